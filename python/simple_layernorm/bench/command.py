"""The command: which cases the results file lacks, measured one by one, saved, then shown."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

import torch

from simple_layernorm.bench import environment
from simple_layernorm.bench.bars import BARS
from simple_layernorm.bench.cases import Case, groups_of, select
from simple_layernorm.bench.contenders import FACTORIES, OURS, Contender, importable
from simple_layernorm.bench.measure import DeviceLost, contenders_of, measure
from simple_layernorm.bench.options import require
from simple_layernorm.bench.store import Cell, Results, load, save
from simple_layernorm.errors import UserError

INTERRUPTED = 130  # what a shell reports for a process ended by Ctrl-C


@dataclass
class Sweep:
    """One run of the command over its cases."""

    arguments: argparse.Namespace
    device: str
    contenders: dict[str, Contender]
    results: Results
    sources: str | None
    started: float = field(default_factory=time.monotonic)

    def label(self, name: str) -> str:
        """This library under another plan is a contender of its own."""
        plan = self.arguments.plan
        return f"{name} ({plan})" if name.startswith(OURS) and plan != "native" else name

    def threads(self) -> list[int]:
        return self.arguments.threads if self.device == "cpu" else [0]

    def missing(self, case: Case, threads: int) -> list[str]:
        """Contenders without a current cell; what failed in this library is tried again. Where a
        bar compares two contenders' times, both are measured again: times of two runs say nothing
        about each other."""
        absent = []
        for name in self.contenders:
            for shown in contenders_of(case, [name]):
                cell = self.results.cells.get((case, self.device, threads, self.label(shown)))
                failed = cell is not None and cell.us is None and name == OURS
                if cell is None or failed or self.results.is_stale(cell, self.sources):
                    absent.append(name)
        absent = list(dict.fromkeys(absent))
        paired = any(bar.peer is not None and bar.matches(case, self.device) for bar in BARS)
        return list(self.contenders) if absent and paired else absent

    def todo(self, cases: list[Case]) -> Iterator[tuple[Case, list[int], list[str]]]:
        for case in cases:
            absent = {threads: self.missing(case, threads) for threads in self.threads()}
            names = list(dict.fromkeys(chain.from_iterable(absent.values())))
            if names and contenders_of(case, names):
                yield case, [count for count, some in absent.items() if some], names

    def out_of_time(self) -> bool:
        limit = self.arguments.time_limit
        return limit is not None and time.monotonic() - self.started >= limit


def run(arguments: argparse.Namespace) -> int:
    """Carries out the command and returns its exit status. Raises UserError if it cannot."""
    require("rich", "the benchmark's table")
    if arguments.plot is not None:
        require("matplotlib", "--plot")
    device = _device(arguments)
    cases = _cases(arguments, device)
    if arguments.list:
        print(*cases, sep="\n")
        return 0
    if (
        device == "cpu"
        and arguments.allocator == "steady"
        and not environment.allocator_is_steady()
    ):
        environment.restart_with_steady_allocator()
    return _run(arguments, device, cases)


def _device(arguments: argparse.Namespace) -> str:
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU")
    device: str = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda":
        require("triton", "the GPU clock (triton.testing.do_bench)")
        if arguments.plan != "native" and not environment.plan_can_be_chosen():
            raise UserError(f"--plan {arguments.plan}: this build's GPU kernels have one plan")
        # Read once, when the GPU library plans its first launch.
        os.environ[environment.PLAN] = arguments.plan
    elif arguments.plan != "native":
        raise UserError(f"--plan {arguments.plan} is for a GPU")
    if arguments.clock == "cpu" and (device != "cpu" or arguments.threads != [1]):
        raise UserError("--clock cpu sees one thread: expected --device cpu --threads 1")
    return device


def _cases(arguments: argparse.Namespace, device: str) -> list[Case]:
    offered = groups_of(device)
    groups = offered if "all" in arguments.cases else arguments.cases
    if absent := [name for name in groups if name not in offered]:
        raise UserError(f"--cases {' '.join(absent)}: only on a GPU")
    return select(groups, arguments.dtypes, device, cols=arguments.cols, sizes=arguments.sizes,
                  elements=arguments.elements)  # fmt: skip


def _run(arguments: argparse.Namespace, device: str, cases: list[Case]) -> int:
    from rich.console import Console

    from simple_layernorm.bench import table

    console = Console(width=None if sys.stdout.isatty() else 160)
    old = load(arguments.compare) if arguments.compare is not None else None
    results = load(arguments.json) if arguments.json and arguments.json.exists() else Results()
    peers = arguments.peers if arguments.peers is not None else [n for n in FACTORIES if n != OURS]
    contenders = importable([OURS, *peers], device)
    if arguments.peers is not None:
        for name in set(peers) - set(contenders):
            console.print(f"{name}: cannot be imported or has no kernel for {device}; left out")
    sweep = Sweep(arguments, device, contenders, results, environment.kernel_sources(device))
    status, fresh = _measure_all(sweep, cases, console.print)

    table.show(results, console, sweep.sources, device)
    if old is not None:
        table.compare(old, results, console)
    if arguments.plot is not None:
        from simple_layernorm.bench.plot import draw

        draw(results, arguments.plot, device)
    if status == 0 and any(cell.us is None and cell.contender.startswith(OURS) for cell in fresh):
        status = 1  # wrong or failed: no figure makes up for that
    return status or (1 if arguments.check and table.missed(results) else 0)


def _measure_all(
    sweep: Sweep, cases: list[Case], say: Callable[[str], None]
) -> tuple[int, list[Cell]]:
    """Measures what is missing; returns the exit status and the new cells."""
    todo = list(sweep.todo(cases))
    fresh: list[Cell] = []
    if not todo:
        return 0, fresh
    arguments, results = sweep.arguments, sweep.results
    results.runs.append(environment.gather(sweep.device, arguments.plan, arguments.clock))
    budget_ms = arguments.budget_ms or (30 if sweep.device == "cuda" else 400)
    with _progress(len(todo)) as step:
        try:
            for done, (case, threads, names) in enumerate(todo):
                if sweep.out_of_time():
                    say(f"time limit: {len(todo) - done} of {len(todo)} cases left")
                    break
                step(str(case))
                cells = measure(
                    case,
                    {name: sweep.contenders[name] for name in names},
                    device=sweep.device,
                    threads=threads,
                    budget_ms=budget_ms,
                    clock=arguments.clock,
                    run=len(results.runs) - 1,
                    label=sweep.label,
                )
                fresh += cells
                for cell in cells:
                    results.add(cell)
                if arguments.json is not None:
                    save(results, arguments.json)
        except DeviceLost as lost:
            say(f"{case}: the GPU failed, and the rest needs a new process: {lost}")
            return 1, fresh
        except KeyboardInterrupt:
            say("interrupted: what was measured is kept")
            return INTERRUPTED, fresh
    return 0, fresh


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr; calling what it yields begins the next case."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        MofNCompleteColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total, completed=-1)

        def step(description: str) -> None:
            progress.update(task, advance=1, description=description)

        yield step
