"""One case, measured: tensors, calls, check, clock. The rest of the benchmark is around this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from simple_layernorm.bench import check
from simple_layernorm.bench.block import BlockBench, names_for
from simple_layernorm.bench.cases import BLOCK, REPLAY, Case
from simple_layernorm.bench.contenders import NEEDS_GRAD, OURS, Call, CannotRun, Contender
from simple_layernorm.bench.limits import LIMITS, least_bytes, limit_call
from simple_layernorm.bench.store import Cell
from simple_layernorm.bench.tensors import make
from simple_layernorm.bench.timing import captured, timer_for

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
    threads: int,
    budget_ms: float,
    clock: str = "wall",
    run: int,
    label: Callable[[str], str] = lambda name: name,
) -> list[Cell]:
    """Checks every contender against float64, then times those that can run, in turns. A contender
    that fails costs only its own cell; a wrong result of this library is never timed."""
    if case.work == BLOCK or any(contender.compiled for contender in contenders.values()):
        torch.compiler.reset()  # else the ninth shape of one function would silently run eager
    if device == "cpu":
        torch.set_num_threads(threads)
    with torch.set_grad_enabled(case.work in NEEDS_GRAD):
        build, error_of, limit = _prepare(case, contenders, device)
        tolerance = check.TOLERANCE[case.input_dtype]
        tolerance *= BLOCK_TOLERANCE if case.work == BLOCK else 1
        blank = Cell(
            case.work,
            case.rows,
            case.cols,
            case.dtype,
            case.offset,
            device,
            threads,
            contender="",
            run=run,
            us=None,
            limit=LIMITS.get(case.work),
        )
        calls: dict[str, Call] = {}
        cells: dict[str, Cell] = {}
        for name in contenders_of(case, list(contenders)):
            cells[name] = replace(blank, contender=label(name))
            try:
                call = build(name)
                error = error_of(call)
                if case.work == REPLAY:
                    call = captured(call)
            except Exception as failure:  # noqa: BLE001  a peer may fail in any way
                _check_device(device, failure)
                cells[name] = replace(cells[name], why=_first_line(failure))
                continue
            wrong = error > tolerance
            cells[name] = replace(cells[name], error=error, wrong=wrong)
            if wrong and name.startswith(OURS):
                cells[name] = replace(cells[name], why=f"wrong result: error {error:.1e}")
            else:
                calls[name] = call
        if calls and limit is not None:
            calls[LIMIT] = captured(limit) if case.work == REPLAY else limit
        times = timer_for(case, device, budget_ms, clock)(calls) if calls else {}
    limit_us = times.pop(LIMIT, None)
    least = least_bytes(case)
    for name, us in times.items():
        gbs = least / us / 1e3 if least else None
        cells[name] = replace(cells[name], us=us, limit_us=limit_us, gbs=gbs)
    return list(cells.values())


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
