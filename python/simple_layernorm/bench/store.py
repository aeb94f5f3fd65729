"""The results file: runs (where and when) and cells (one contender's figure for one case).

Version 1, JSON. A cell's `us` is a median in microseconds, or null with `why`; `limit_us` is the
limit's median in the same rounds, null where the work has none. `run` is an index into `runs`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from simple_layernorm.bench.cases import Case
from simple_layernorm.errors import UserError

VERSION = 1


@dataclass(frozen=True)
class Cell:
    work: str
    rows: int
    cols: int
    dtype: str
    offset: int
    device: str
    threads: int  # of torch on the CPU; 0 on a GPU
    contender: str
    run: int
    us: float | None
    limit_us: float | None = None
    limit: str | None = None
    gbs: float | None = None  # least traffic of the work by time
    error: float | None = None  # largest, against float64; see check.TOLERANCE
    wrong: bool = False  # the error is beyond the tolerance
    why: str | None = None  # there is no time

    @property
    def case(self) -> Case:
        return Case(self.work, self.rows, self.cols, self.dtype, self.offset)

    @property
    def ratio(self) -> float | None:
        """Share of the limit's speed that was reached."""
        return self.limit_us / self.us if self.us and self.limit_us else None

    @property
    def key(self) -> tuple[Case, str, int, str]:
        return (self.case, self.device, self.threads, self.contender)


@dataclass
class Results:
    runs: list[dict[str, Any]] = field(default_factory=list)
    cells: dict[tuple[Case, str, int, str], Cell] = field(default_factory=dict)

    def add(self, cell: Cell) -> None:
        self.cells[cell.key] = cell

    def find(
        self, like: Cell, *, contender: str | None = None, dtype: str | None = None
    ) -> Cell | None:
        """The cell of another contender or dtype for the same work."""
        other = replace(like, contender=contender or like.contender, dtype=dtype or like.dtype)
        return self.cells.get(other.key)

    def sources(self, cell: Cell) -> str | None:
        return self.runs[cell.run].get("kernel_sources")

    def is_stale(self, cell: Cell, current: str | None) -> bool:
        """Whether this library's figure was taken with other kernels than the current ones."""
        return (
            cell.contender.startswith("ours")
            and current is not None
            and self.sources(cell) != current
        )

    def by_case(self) -> Iterator[tuple[tuple[Case, str, int], dict[str, Cell]]]:
        """The cells of each case, device and thread count, by contender, in order of measuring."""
        grouped: dict[tuple[Case, str, int], dict[str, Cell]] = {}
        for (case, device, threads, contender), cell in self.cells.items():
            grouped.setdefault((case, device, threads), {})[contender] = cell
        yield from grouped.items()


def load(path: Path) -> Results:
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    try:
        content = json.loads(text)
        if content["version"] != VERSION:
            raise UserError(f"{path}: version {content['version']}, expected {VERSION}")
        results = Results(runs=content["runs"])
        for cell in content["cells"]:
            results.add(Cell(**cell))
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a results file of this benchmark: {error!r}") from error
    return results


def _compact(cell: Cell) -> dict[str, Any]:
    """Without what is at its default, and without digits that no clock has."""
    content = {k: v for k, v in asdict(cell).items() if v is not None and v is not False}
    content.setdefault("us", None)
    return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in content.items()}


def save(results: Results, path: Path) -> None:
    """Replaces the file as a whole, so that an interruption never leaves half of one. Runs without
    a cell are dropped."""
    used = sorted({cell.run for cell in results.cells.values()})
    renumbered = {old: new for new, old in enumerate(used)}
    cells = [_compact(replace(cell, run=renumbered[cell.run])) for cell in results.cells.values()]
    runs = ",\n".join(f"  {json.dumps(results.runs[old])}" for old in used)
    lines = ",\n".join(f"  {json.dumps(cell)}" for cell in cells)
    text = f'{{"version": {VERSION},\n "runs": [\n{runs}\n ],\n "cells": [\n{lines}\n ]}}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text)
    os.replace(partial, path)
