"""How long a call takes, in microseconds, contenders and numbers of threads interleaved so that all
see the same machine.

Three clocks: device time with the last-level cache flushed, device time of a replayed graph, and
time of the calling thread. Every one returns a median per contender.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter_ns, thread_time_ns

import torch

from simple_layernorm.bench.cases import CALL, CALL_GRAD, REPLAY, Case
from simple_layernorm.bench.contenders import Call

Key = tuple[str, int]  # contender, and torch's threads on the CPU or 0
Calls = Mapping[Key, Call]
Timer = Callable[[Calls], dict[Key, float]]
Now = Callable[[], int]  # nanoseconds

ROUNDS = 3  # of every contender in turn, on a GPU
WARMUP_MS = 4
REPLAYED_CALLS = 20
REPLAYS = 40
HOST_CALLS = 50  # without a synchronisation: far below the depth of a GPU launch queue
HOST_BLOCKS = 200  # short ones, so that few of them meet another process
SHORTEST_NS = 50_000  # of what one reading of the clock spans on the CPU
FEWEST_ROUNDS = 7
MOST_ROUNDS = 300

# On the calling thread. Its CPU time leaves out what other processes took from it in between, and
# is the wall time of an idle machine as long as the work stays on this thread.
CLOCKS = {"wall": perf_counter_ns, "cpu": thread_time_ns}


def timer_for(case: Case, device: str, budget_ms: float, clock: str = "wall") -> Timer:
    """The clock that fits the case. `budget_ms` is for one contender."""
    now = CLOCKS[clock]
    if case.work in (CALL, CALL_GRAD):
        return lambda calls: host_cost(calls, now)
    if case.work == REPLAY:
        return replayed
    if device == "cpu":
        return lambda calls: on_thread(calls, budget_ms, now)
    return lambda calls: flushed(calls, budget_ms)


def flushed(calls: Calls, budget_ms: float) -> dict[Key, float]:
    """Device time by triton's do_bench: its median, with the cache flushed before each call."""
    from triton.testing import do_bench

    readings: dict[Key, list[float]] = {key: [] for key in calls}
    for _ in range(ROUNDS):
        for key, call in calls.items():
            ms = do_bench(call, warmup=WARMUP_MS, rep=budget_ms / ROUNDS, return_mode="median")
            readings[key].append(ms * 1e3)
    return {key: median(times) for key, times in readings.items()}


def replayed(replays: Calls) -> dict[Key, float]:
    """Device time of one of the calls in a captured graph, so that no host is in the way."""
    readings: dict[Key, list[float]] = {key: [] for key in replays}
    for _ in range(REPLAYS):
        for key, replay in replays.items():
            start, end = _event(), _event()
            replay()  # wakes the device up: an idle one answers late
            start.record()
            replay()
            end.record()
            end.synchronize()
            readings[key].append(start.elapsed_time(end) * 1e3 / REPLAYED_CALLS)
    return {key: median(times) for key, times in readings.items()}


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def captured(call: Call) -> Call:
    """The replay of a graph of REPLAYED_CALLS calls."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPLAYED_CALLS):
            call()

    def replay(_kept: Call = call) -> None:  # what was captured must live as long as the graph
        graph.replay()

    return replay


def host_cost(calls: Calls, now: Now) -> dict[Key, float]:
    """Time of an eager call on its thread; a GPU's work is waited for outside the clock."""
    readings: dict[Key, list[float]] = {key: [] for key in calls}
    gc.disable()
    try:
        for _ in range(HOST_BLOCKS):
            for key, call in calls.items():
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                _set_threads(key, call)
                start = now()
                for _ in range(HOST_CALLS):
                    call()
                readings[key].append((now() - start) / HOST_CALLS / 1e3)
    finally:
        gc.enable()
    return {key: median(times) for key, times in readings.items()}


def _set_threads(key: Key, call: Call) -> None:
    """Before a reading on the CPU. A call of another number of threads wakes them first."""
    _, threads = key
    if threads not in (0, torch.get_num_threads()):
        torch.set_num_threads(threads)
        call()


def on_thread(calls: Calls, budget_ms: float, now: Now) -> dict[Key, float]:
    """Time on the CPU: one reading per contender and round, the order turning each round. Readings
    span as many calls of every contender: reading the clock takes 1 us, and the first of some calls
    meets cold caches, so that 1 call beside 5 made 8 x 64 backward 1.3 times as slow (EPYC)."""
    spent_ns = []
    for key, call in calls.items():
        _set_threads(key, call)
        call()
        start = perf_counter_ns()
        call()
        spent_ns.append(max(1, perf_counter_ns() - start))
    count = max(1, SHORTEST_NS // min(spent_ns))
    rounds = int(budget_ms * 1e6 * len(calls) / (sum(spent_ns) * count))
    rounds = min(MOST_ROUNDS, max(FEWEST_ROUNDS, rounds))
    readings: dict[Key, list[float]] = {key: [] for key in calls}
    order = list(calls)
    gc.disable()
    try:
        for _ in range(rounds):
            order = order[1:] + order[:1]
            for key in order:
                call = calls[key]
                _set_threads(key, call)
                start = now()
                for _ in range(count):
                    call()
                readings[key].append((now() - start) / count / 1e3)
    finally:
        gc.enable()
    return {key: median(times) for key, times in readings.items()}
