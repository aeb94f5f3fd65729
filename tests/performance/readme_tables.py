"""Writes the README's tables of figures from the recorded results, between its markers.

    python tests/performance/readme_tables.py [--check]

A marker is `<!-- results:gpu -->` or `<!-- results:cpu zh -->`: which results, in which language.
What stands up to `<!-- /results:gpu -->` is replaced; `--check` only says whether it would change.
"""

# ruff: noqa: RUF001  typographic signs and Chinese punctuation are meant

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from simple_layernorm.bench import store
from simple_layernorm.bench.bars import BELOW, FULL, judge, regime
from simple_layernorm.bench.cases import BACKWARD, DTYPES, FORWARD, WORKS, Case
from simple_layernorm.bench.environment import kernel_sources
from simple_layernorm.bench.store import Cell, Results
from simple_layernorm.bench.table import missed, time_of

HERE = Path(__file__).parent
README = HERE.parent.parent / "README.md"
MARKED = re.compile(r"(<!-- results:(gpu|cpu)( zh)? -->\n).*?(<!-- /results:\2 -->)", re.DOTALL)
SHOWN = ("ours", "ours, compiled", "torch", "compile", "liger", "quack", "apex", "apex-fast")

WORDS = {
    "en": {
        "none": "No run of the benchmark is recorded here yet.",
        "from": "{machine}, {kernel}, torch {torch}, {runtime}{clock}{load}{date}; kernel sources "
        "`{sources}`{stale}. Run by `{command}`, recorded in `{file}`.",
        "stale": " (**stale**: the kernels have changed since)",
        "clock": "CPU time of one thread, ",
        "share": "**{work}**: share of the speed of {limit} in the same run{times}",
        "multiple": ", and multiple of torch's speed",
        "time": "**{work}**: time",
        "size": "rows × columns",
        "threads": "threads",
        "load": "load {load} on {cores} cores, ",
        "more": "Other dtypes, few rows, odd and misaligned rows, other work",
        "fastest": "Bold: the fastest. †: further from float64 than the dtype's rounding explains. "
        "↓: below the gate that this library sets itself ({below} of {judged} cells){end}",
    },
    "zh": {
        "none": "此处尚未记录基准的运行结果。",
        "from": "{machine}，{kernel}，torch {torch}，{runtime}{clock}{load}{date}；"
        "内核源码 `{sources}`{stale}。运行命令 `{command}`，结果记录于 `{file}`。",
        "stale": "（**已过时**：此后内核有改动）",
        "clock": "单线程 CPU 时间，",
        "share": "**{work}**：占同一次运行中 {limit} 速度的比例{times}",
        "multiple": "，以及相对 torch 的速度倍数",
        "time": "**{work}**：耗时",
        "size": "行 × 列",
        "threads": "线程",
        "load": "{cores} 核，负载 {load}，",
        "more": "其他数据类型、少行、奇数列与未对齐的行，以及其他工作",
        "fastest": "粗体：最快者。†：与 float64 的偏差超出该类型舍入所能解释的范围。"
        "↓：低于本库自定的门槛（{judged} 格中有 {below} 格）{end}",
    },
}

Row = tuple[Case, int, dict[str, Cell]]


def tables(results: Results, device: str, file: str, language: str = "en") -> str:
    """The markdown of all tables of a device."""
    words = WORDS[language]
    rows = [
        (case, threads, cells)
        for (case, on, threads), cells in results.by_case()
        if on == device and "ours" in cells
    ]
    if not rows:
        return words["none"] + "\n"
    front = [row for row in rows if row[0].work in (FORWARD, BACKWARD) and _is_full(row)]
    rest = [row for row in rows if row not in front]
    parts = [_origin(results, rows, file, words)]
    parts += [_table(work, front, results, words) for work in WORKS if _has(work, front)]
    picture = HERE / "results" / Path(file).with_suffix(".png").name
    if picture.exists():
        parts.append(f"![{file}]({picture.relative_to(README.parent).as_posix()})")
    parts.append(_legend(results, rows, words))
    if rest:
        parts.append(f"<details><summary>{words['more']}</summary>")
        parts += [_table(work, rest, results, words) for work in WORKS if _has(work, rest)]
        parts.append("</details>")
    return "\n\n".join(parts) + "\n"


def _is_full(row: Row) -> bool:
    case, _, cells = row
    if cells["ours"].device == "cpu":
        return True
    return regime(case) == FULL and case.dtype in ("float32", "bfloat16")


def _has(work: str, rows: list[Row]) -> bool:
    return any(case.work == work for case, _, _ in rows)


def _origin(results: Results, rows: list[Row], file: str, words: dict[str, str]) -> str:
    cell = max((cells["ours"] for _, _, cells in rows), key=lambda cell: cell.run)
    run = results.runs[cell.run]
    is_stale = results.is_stale(cell, kernel_sources(cell.device))
    return words["from"].format(
        machine=run.get("gpu") or run["cpu"],
        kernel=run.get("kernel"),
        torch=run["torch"],
        runtime=f"{run['runtime']}, " if "runtime" in run else "",
        clock=words["clock"] if run.get("clock") == "cpu" else "",
        load="" if "gpu" in run else words["load"].format(load=run["load"], cores=run["cores"]),
        date=run["date"][:10],
        sources=(run.get("kernel_sources") or "unknown")[:12],
        stale=words["stale"] if is_stale else "",
        command=run["command"],
        file=file,
    )


def _table(work: str, rows: list[Row], results: Results, words: dict[str, str]) -> str:
    """One line per size and thread count, one column per dtype and contender."""
    rows = [row for row in rows if row[0].work == work]
    limit = next((c.limit for _, _, cells in rows for c in cells.values() if c.limit), None)
    on_cpu = rows[0][2]["ours"].device == "cpu"
    several_threads = len({threads for _, threads, _ in rows}) > 1
    columns = [
        (dtype, name)
        for dtype in DTYPES
        for name in SHOWN
        if any(case.dtype == dtype and name in cells for case, _, cells in rows)
    ]
    heads = [words["size"], *([words["threads"]] if several_threads else [])]
    lines = [
        "| " + " | ".join([*heads, *(f"{dtype} {name}" for dtype, name in columns)]) + " |",
        "|" + "---:|" * (len(heads) + len(columns)),
    ]
    places = dict.fromkeys((case.size, threads) for case, threads, _ in rows)
    for size, threads in places:
        found = {c.dtype: cells for c, t, cells in rows if (c.size, t) == (size, threads)}
        figures = [_figure(found.get(dtype, {}), name, results, on_cpu) for dtype, name in columns]
        first = [size.replace(" x ", " × "), *([str(threads)] if several_threads else [])]
        lines.append("| " + " | ".join([*first, *figures]) + " |")
    times = words["multiple"] if on_cpu else ""
    title = words["share" if limit else "time"].format(work=work, limit=limit, times=times)
    return title + "\n\n" + "\n".join(lines)


def _figure(cells: dict[str, Cell], name: str, results: Results, on_cpu: bool) -> str:
    cell = cells.get(name)
    if cell is None or cell.us is None:
        return "–"
    text = time_of(cell.us) if cell.ratio is None else f"{cell.ratio:.3f}"
    if cell.us == min(other.us for other in cells.values() if other.us is not None):
        text = f"**{text}**"
    text += "†" if cell.wrong else ""
    if name == "ours":
        torch = cells.get("torch")
        if on_cpu and torch is not None and torch.us is not None:
            text += f", {torch.us / cell.us:.1f}×"
        text += " ↓" if any(v.state == BELOW for v in judge(cell, results)) else ""
    return text


def _legend(results: Results, rows: list[Row], words: dict[str, str]) -> str:
    ours = {cells["ours"].key for _, _, cells in rows}
    judged = sum(bool(judge(results.cells[key], results)) for key in ours)
    losses: dict[str, list[str]] = {}
    for cell, verdict in missed(results):
        if cell.key in ours:
            losses.setdefault(str(cell.case).replace(" x ", " × "), []).append(str(verdict))
    text = words["fastest"].format(below=len(losses), judged=judged, end=":" if losses else ".")
    if not losses:
        return text
    lines = [f"- {case}: {', '.join(v)}" for case, v in losses.items()]
    return f"{text}\n\n<details><summary>↓</summary>\n\n" + "\n".join(lines) + "\n\n</details>"


def filled(readme: str) -> str:
    """The README's text with every marked place up to date."""

    def replacement(match: re.Match[str]) -> str:
        path = HERE / "results" / f"{match[2]}.json"
        results = store.load(path) if path.exists() else Results()
        device = "cuda" if match[2] == "gpu" else "cpu"
        file = path.relative_to(README.parent).as_posix()
        return match[1] + tables(results, device, file, "zh" if match[3] else "en") + match[4]

    return MARKED.sub(replacement, readme)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if outdated")
    arguments = parser.parse_args()
    before = README.read_text()
    after = filled(before)
    if arguments.check:
        print("README.md is up to date" if before == after else "README.md: figures are outdated")
        return int(before != after)
    README.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
