"""The picture: share of the limit's speed at every size, one line per contender.

One panel per work and dtype. On a GPU all tensors have the same number of elements and the axis is
columns; on the CPU they differ, and the axis lists them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simple_layernorm.bench.bars import FULL, regime
from simple_layernorm.bench.cases import (
    BACKWARD,
    DTYPES,
    FORWARD,
    FORWARD_STATS,
    GRAD_INPUT,
)
from simple_layernorm.bench.store import Cell, Results
from simple_layernorm.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLOTTED = (FORWARD, FORWARD_STATS, BACKWARD, GRAD_INPUT)
COLOURS = {
    "ours": "#c8102e",
    "torch": "#777777",
    "compile": "#e69f00",
    "liger": "#0072b2",
    "quack": "#009e73",
    "apex": "#cc79a7",
    "apex-fast": "#8a3ffc",
}

Panels = dict[tuple[str, str], dict[str, list[Cell]]]


def draw(results: Results, path: Path, device: str) -> None:
    """Writes the picture of a device's full-size cells, those of one thread on the CPU."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = _panels(results, device)
    if not panels:
        raise UserError(f"--plot: no cell of forward or backward on {device} to plot")
    works = [work for work in PLOTTED if any(work == key[0] for key in panels)]
    dtypes = [dtype for dtype in DTYPES if any(dtype == key[1] for key in panels)]
    figure, axes = plt.subplots(
        len(works),
        len(dtypes),
        figsize=(5.2 * len(dtypes), 3.6 * len(works)),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    for i, work in enumerate(works):
        for j, dtype in enumerate(dtypes):
            if lines := panels.get((work, dtype)):
                axes[i][j].set_title(f"{work}, {dtype}", fontsize=10)
                _draw_panel(axes[i][j], lines, columns_only=device != "cpu")
            else:
                axes[i][j].set_axis_off()
    axes[0][0].legend(fontsize=8)
    figure.suptitle(_origin(results, panels, device), fontsize=11)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _panels(results: Results, device: str) -> Panels:
    panels: Panels = {}
    for cell in results.cells.values():
        shown = cell.work in PLOTTED and (device == "cpu" or regime(cell.case) == FULL)
        if shown and cell.device == device and cell.ratio is not None and cell.threads <= 1:
            lines = panels.setdefault((cell.work, cell.dtype), {})
            lines.setdefault(cell.contender, []).append(cell)
    return panels


def _draw_panel(axis: Axes, lines: dict[str, list[Cell]], columns_only: bool) -> None:
    cells = [cell for line in lines.values() for cell in line]
    sizes = sorted({(cell.cols, cell.rows, cell.case.size) for cell in cells})
    labels = [str(cols) if columns_only else size for cols, _, size in sizes]
    place = {size: i for i, (_, _, size) in enumerate(sizes)}
    for name, line in lines.items():
        points = sorted((place[cell.case.size], cell.ratio or 0.0) for cell in line)
        ours = name.startswith("ours")
        axis.plot(
            [x for x, _ in points],
            [y for _, y in points],
            label=name,
            color=COLOURS.get(name),
            marker="o",
            markersize=3,
            linewidth=2 if ours else 1,
            zorder=3 if ours else 2,
        )
    axis.axhline(1.0, color="black", linewidth=0.6, linestyle=":")
    axis.set_ylim(bottom=0.0)
    axis.set_xticks(range(len(sizes)), labels, rotation=60, fontsize=7, ha="right")
    axis.set_xlabel("columns" if columns_only else "rows x columns", fontsize=8)
    axis.set_ylabel(f"share of the speed of {cells[0].limit}", fontsize=8)
    axis.grid(alpha=0.3)


def _origin(results: Results, panels: Panels, device: str) -> str:
    cells = [cell for lines in panels.values() for line in lines.values() for cell in line]
    run = results.runs[max(cell.run for cell in cells)]
    machine = run["gpu"] if device == "cuda" else f"{run['cpu']}, one thread"
    return f"{machine}, torch {run['torch']}, {run['date'][:10]}"
