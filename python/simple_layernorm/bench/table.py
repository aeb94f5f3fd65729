"""The results on the terminal: one rich table per work, each cell of ours against its bars."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from simple_layernorm.bench.bars import AIM, BELOW, GATE, UNKNOWN, Verdict, judge
from simple_layernorm.bench.cases import WORKS, Case
from simple_layernorm.bench.store import Cell, Results

STYLE = {AIM: "green", GATE: "yellow", BELOW: "bold red", UNKNOWN: "dim"}
WRONG = "†"
Row = tuple[Case, dict[str, Cell]]


def time_of(us: float | None) -> str:
    if us is None:
        return "-"
    return (
        f"{us / 1000:.2f} ms" if us >= 10_000 else f"{us:.1f} us" if us >= 100 else f"{us:.2f} us"
    )


def figure(cell: Cell | None, stale: bool = False) -> str:
    """Ratio to the limit where there is one, else a time."""
    if cell is None:
        return ""
    text = time_of(cell.us) if cell.ratio is None else f"{cell.ratio:.3f}"
    return (
        text + (WRONG if cell.wrong and cell.us is not None else "") + (" (stale)" if stale else "")
    )


def describe(verdicts: Iterable[Verdict]) -> str:
    """The bars that were missed, else the one that held by least."""
    listed = list(verdicts)
    if below := [v for v in listed if v.state == BELOW]:
        return "; ".join(f"[{STYLE[BELOW]}]below[/] {v}" for v in below)
    for state in (UNKNOWN, GATE, AIM):
        if reached := [v for v in listed if v.state == state]:
            return f"[{STYLE[state]}]{state}[/] {reached[0]}"
    return ""


def show(results: Results, console: Console, sources: str | None, device: str) -> None:
    """Prints all cells of a device. Figures are shares of the limit's speed, or times where a work
    has no limit."""
    for work in WORKS:
        rows = [
            (case, cells)
            for (case, on, _), cells in results.by_case()
            if case.work == work and on == device
        ]
        if rows:
            _show_work(work, device, rows, results, console, sources)


def _show_work(
    work: str, device: str, rows: list[Row], results: Results, console: Console, sources: str | None
) -> None:
    names = list(dict.fromkeys(name for _, cells in rows for name in cells))
    limit = next((c.limit for _, cells in rows for c in cells.values() if c.limit), None)
    title = f"{work} on {device}" + (f": share of the speed of {limit}" if limit else "")
    table = Table(title=title, title_justify="left")
    table.add_column("rows x cols", justify="right")
    table.add_column("dtype")
    if device == "cpu":
        table.add_column("threads", justify="right")
    if limit:
        table.add_column(limit, justify="right")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("bar")
    for case, cells in rows:
        some = max(cells.values(), key=lambda cell: cell.limit_us or 0.0)
        first = [case.size, case.dtype]
        if device == "cpu":
            first.append(str(some.threads))
        if limit:
            first.append(time_of(some.limit_us))
        stale = {name: results.is_stale(cell, sources) for name, cell in cells.items()}
        figures = [figure(cells.get(name), stale.get(name, False)) for name in names]
        ours = [cell for name, cell in cells.items() if name == "ours"]
        table.add_row(*first, *figures, describe(v for cell in ours for v in judge(cell, results)))
    console.print(table)
    for note in _notes(rows):
        console.print(f"  {note}", highlight=False, markup=False)


def _notes(rows: list[Row]) -> list[str]:
    """What the figures cannot say, each sentence once."""
    notes: dict[str, int] = {}
    for _, cells in rows:
        for cell in cells.values():
            if cell.why is not None:
                text = f"{cell.contender}: {cell.why}"
                notes[text] = notes.get(text, 0) + 1
    lines = [f"{text} ({count} of {len(rows)} cases)" for text, count in notes.items()]
    if any(cell.wrong and cell.us is not None for _, cells in rows for cell in cells.values()):
        lines.append(f"{WRONG} further from float64 than its dtype's rounding explains")
    return lines


def missed(results: Results) -> list[tuple[Cell, Verdict]]:
    """This library's cells below a gate."""
    return [
        (cell, verdict)
        for cell in results.cells.values()
        if cell.contender == "ours"
        for verdict in judge(cell, results)
        if verdict.state == BELOW
    ]


def compare(old: Results, new: Results, console: Console) -> None:
    """Cells that both files have: the ratio to the limit then and now, or the time."""
    table = Table(title="against the older file", title_justify="left")
    for column in ("case", "device", "who", "then", "now", "change"):
        table.add_column(column, justify="left" if column in ("case", "device", "who") else "right")
    for key, cell in new.cells.items():
        before = old.cells.get(key)
        if before is None or before.us is None or cell.us is None:
            continue
        if cell.ratio is not None and before.ratio is not None:
            change = cell.ratio / before.ratio - 1.0
        else:
            change = before.us / cell.us - 1.0
        colour = "green" if change > 0.02 else "red" if change < -0.02 else "dim"
        device = cell.device if cell.device != "cpu" else f"cpu, {cell.threads} threads"
        speed = f"[{colour}]{change:+.1%}[/]"
        table.add_row(str(cell.case), device, cell.contender, figure(before), figure(cell), speed)
    console.print(table)
