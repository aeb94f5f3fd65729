"""One case, measured: tensors, calls, check, clock. The rest of the benchmark is around this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

import torch

from simple_layernorm.bench import check
from simple_layernorm.bench.block import BlockBench, names_for
from simple_layernorm.bench.cases import BLOCK, REPLAY, Case
from simple_layernorm.bench.contenders import NEEDS_GRAD, OURS, Call, CannotRun, Contender
from simple_layernorm.bench.limits import LIMITS, least_bytes, limit_call
from simple_layernorm.bench.store import Cell
from simple_layernorm.bench.tensors import make
from simple_layernorm.bench.timing import Key, captured, timer_for

LIMIT = "limit"
BLOCK_TOLERANCE = 8  # times that of one norm: a block rounds in ten places


class DeviceLost(Exception):
    """The device answers no more in this process; the text is the first failure's."""


def contenders_of(case: Case, contenders: list[str]) -> list[str]:
    """The names under which the contenders appear in the case's cells."""
    return names_for(contenders) if case.work == BLOCK else contenders


def measure(
    case: Case,
    contenders: Mapping[str, Contender],
    *,
    device: str,
    threads: Sequence[int],
    budget_ms: float,
    clock: str = "wall",
    run: int,
    label: Callable[[str], str] = lambda name: name,
) -> list[Cell]:
    """Checks every contender against float64, then times those that can run, with each number of
    threads, in turns. A contender that fails costs only its own cells; a wrong result of this
    library is never timed."""
    if case.work == BLOCK or any(contender.compiled for contender in contenders.values()):
        torch.compiler.reset()  # else the ninth shape of one function would silently run eager
    names = contenders_of(case, list(contenders))
    blank = Cell(**asdict(case), device=device, threads=0, contender="", run=run, us=None)
    cells: dict[Key, Cell] = {
        (name, count): replace(blank, threads=count, contender=label(name))
        for count in threads
        for name in names
    }
    with torch.set_grad_enabled(case.work in NEEDS_GRAD):
        try:
            calls, limit = _checked_calls(case, contenders, device, cells)
            times = timer_for(case, device, budget_ms, clock)(calls) if calls else {}
        except RuntimeError as failure:
            _check_device(device, failure)
            return [replace(cell, why=_first_line(failure)) for cell in cells.values()]
    limits = {count: times.pop((LIMIT, count), None) for count in threads}
    least = least_bytes(case)
    for (name, count), us in times.items():
        cells[name, count] = replace(
            cells[name, count],
            us=us,
            limit=limit,
            limit_us=limits[count],
            gbs=least / us / 1e3 if least else None,
        )
    return list(cells.values())


def _checked_calls(
    case: Case, contenders: Mapping[str, Contender], device: str, cells: dict[Key, Cell]
) -> tuple[dict[Key, Call], str | None]:
    """The calls to be timed, the limit's last, and the limit's name. Errors go into the cells."""
    build, error_of, limit = _prepare(case, contenders, device)
    tolerance = check.TOLERANCE[case.input_dtype]
    tolerance *= BLOCK_TOLERANCE if case.work == BLOCK else 1
    calls: dict[Key, Call] = {}
    for (name, count), cell in cells.items():
        if device == "cpu":
            torch.set_num_threads(count)
        try:
            call = build(name)
            error = error_of(call)
            timed = captured(call) if case.work == REPLAY else call
        except Exception as failure:  # noqa: BLE001  a peer may fail in any way
            _check_device(device, failure)
            cells[name, count] = replace(cell, why=_first_line(failure))
            continue
        wrong = error > tolerance
        cells[name, count] = replace(cell, error=error, wrong=wrong)
        if wrong and name.startswith(OURS):
            cells[name, count] = replace(cells[name, count], why=f"wrong result: error {error:.1e}")
        else:
            calls[name, count] = timed
    for count in {count for _, count in calls}:
        if limit is not None:
            calls[LIMIT, count] = captured(limit) if case.work == REPLAY else limit
    return calls, LIMITS.get(case.work)


def _check_device(device: str, failure: Exception) -> None:
    """After a fault on a GPU nothing runs there until the process ends."""
    if device == "cuda":
        try:
            torch.cuda.synchronize()
        except RuntimeError as fault:
            raise DeviceLost(_first_line(failure)) from fault


def _prepare(
    case: Case, contenders: Mapping[str, Contender], device: str
) -> tuple[Callable[[str], Call], Callable[[Call], float], Call | None]:
    """What makes a contender's call, what finds its error, and the limit."""
    if case.work == BLOCK:
        block = BlockBench(case, device)
        return block.call, lambda call: block.error(call()), None
    tensors = make(case, device)
    expected = check.reference(tensors, case.work)

    def error_of(call: Call) -> float:
        check.poison(tensors.input)
        return check.largest_error(case.work, call(), expected)

    return (
        lambda name: contenders[name].call(case, tensors),
        error_of,
        limit_call(case, tensors, device),
    )


def _first_line(failure: Exception) -> str:
    if isinstance(failure, (CannotRun, check.WrongResult)):
        return str(failure)
    lines = str(failure).strip().splitlines()
    return f"{type(failure).__name__}: {lines[0] if lines else ''}"[:160]
