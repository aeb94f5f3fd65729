"""How fast is fast enough, as data: a gate that must hold and an aim beyond it, cell by cell.

Every bar is a ratio measured within one run: to the limit (a copy or an add), to a peer, or to the
same case in another dtype. `judge` applies those that match a cell.
"""

from __future__ import annotations

from dataclasses import dataclass

from simple_layernorm.bench import cases
from simple_layernorm.bench.cases import (
    BACKWARD,
    CALL,
    CALL_GRAD,
    END_TO_END,
    FORWARD,
    FORWARD_STATS,
    GRAD_INPUT,
    REPLAY,
    Case,
)
from simple_layernorm.bench.store import Cell, Results

NARROW = (64, 256, 768, 1000, 1024, 2048, 4096, 5120, 8192)
MIDDLE = (*NARROW, 16384)
WIDE = (32768, 65536, 131072)
FULL = "full"
ODD = "odd"
FEW = "few rows"
ANY = "any"
SIXTEEN_BITS = ("bfloat16", "float16")
BOTH = ("float32", "bfloat16")
LIKE_BFLOAT16 = ("float16", "bfloat16/float32")

# Best LayerNorm of anyone (forward / copy, backward / add) on one H200, torch 2.11, Liger 0.8.5,
# quack 0.6.5, Apex 6424da3; do_bench medians over 2^28 elements, 2026-11-29.
BEST_KNOWN = {
    "bfloat16": dict(zip((*MIDDLE, *WIDE), [
        (1.00, 0.81), (1.00, 0.81), (1.01, 0.88), (1.00, 0.74), (1.00, 0.78), (0.96, 0.82),
        (0.92, 0.68), (0.92, 0.68), (0.93, 0.69), (0.99, 0.45), (0.75, 0.40), (0.66, 0.38),
        (0.55, 0.38)], strict=True)),
    "float32": dict(zip((*MIDDLE, *WIDE), [
        (1.00, 0.89), (1.00, 0.89), (1.00, 0.96), (0.98, 0.88), (1.00, 0.94), (0.99, 0.93),
        (1.02, 0.95), (0.98, 0.90), (1.01, 0.91), (0.95, 0.72), (0.91, 0.69), (0.75, 0.64),
        (0.71, 0.41)], strict=True)),
}  # fmt: skip
PEER_SLACK = 0.02  # two runs on one machine differ by as much
DTYPE_SLACK = 0.02


@dataclass(frozen=True)
class Bar:
    """`gate` and `aim` are least ratios: of the limit's time to ours, or with `peer` of the peer's
    time to ours. Enough instead: `or_limit`, a ratio to the limit, or `enough_us`, a time."""

    device: str
    works: tuple[str, ...]
    dtypes: tuple[str, ...]
    gate: float
    aim: float | None = None
    regime: str = FULL
    cols: tuple[int, ...] = ()  # all, if empty
    sizes: tuple[tuple[int, int], ...] = ()  # all, if empty
    peer: str | None = None
    or_limit: float | None = None
    enough_us: float | None = None

    def matches(self, case: Case, device: str) -> bool:
        return (
            device == self.device
            and case.work in self.works
            and case.dtype in self.dtypes
            and (self.regime == ANY or self.regime == regime(case))
            and (not self.cols or case.cols in self.cols)
            and (not self.sizes or (case.rows, case.cols) in self.sizes)
        )


def regime(case: Case) -> str:
    return FEW if case.few_rows else ODD if case.odd else FULL


# A call's own cost decides the tiny ones.
CPU_TINY = ((1, 4096), (8, 64))
CPU_SIZES = tuple(size for size in cases.CPU_SIZES if size not in CPU_TINY)

BARS = (
    Bar("cuda", (FORWARD, FORWARD_STATS), BOTH, 0.96, 0.98, cols=MIDDLE[1:]),
    Bar("cuda", (FORWARD,), BOTH, 0.96, 0.98, cols=(64,)),
    Bar("cuda", (FORWARD_STATS,), BOTH, 0.93, 0.98, cols=(64,)),
    Bar("cuda", (FORWARD, FORWARD_STATS), ("bfloat16",), 0.96, 0.98, cols=(32768,)),
    Bar("cuda", (FORWARD, FORWARD_STATS), ("float32",), 0.94, 0.97, cols=(32768,)),
    Bar("cuda", (FORWARD, FORWARD_STATS), BOTH, 0.90, 0.97, cols=(65536,)),
    Bar("cuda", (FORWARD, FORWARD_STATS), BOTH, 0.88, 0.94, cols=(131072,)),
    Bar("cuda", (FORWARD,), ("float32",), 0.95, 0.96, regime=ODD),
    Bar("cuda", (FORWARD,), (*SIXTEEN_BITS, "bfloat16/float32"), 0.88, 0.96, regime=ODD),
    Bar("cuda", (FORWARD,), BOTH, 1 / 2.5, regime=FEW, enough_us=10.0),
    Bar("cuda", (REPLAY,), ("float32",), 1.0, regime=ANY, peer="compile"),
    Bar("cuda", (CALL, CALL_GRAD), ("float32",), 1.0, regime=ANY, peer="torch"),
    Bar("cuda", (BACKWARD,), ("bfloat16",), 0.90, 0.94, cols=NARROW),
    Bar("cuda", (BACKWARD,), ("float32",), 0.93, 0.96, cols=NARROW),
    Bar("cuda", (BACKWARD,), BOTH, 0.91, 0.94, cols=(16384,)),
    Bar("cuda", (BACKWARD,), ("float32",), 0.92, 0.95, cols=WIDE),
    Bar("cuda", (BACKWARD,), ("bfloat16",), 0.75, 0.92, cols=(32768,)),
    Bar("cuda", (BACKWARD,), ("bfloat16",), 0.80, 0.92, cols=(65536,)),
    Bar("cuda", (BACKWARD,), ("bfloat16",), 0.82, 0.92, cols=(131072,)),
    Bar("cuda", (BACKWARD,), (*BOTH, *LIKE_BFLOAT16), 0.80, 0.90, regime=ODD),
    Bar("cuda", (GRAD_INPUT,), BOTH, 0.93),
    Bar("cuda", (BACKWARD,), BOTH, 1 / 3, regime=FEW, enough_us=15.0),
    Bar("cuda", (END_TO_END,), BOTH, 1.8, peer="torch"),
    Bar("cuda", (END_TO_END,), BOTH, 1.0, peer="compile"),
    Bar(
        "cpu",
        (FORWARD,),
        ("float32",),
        1.5,
        sizes=CPU_SIZES,
        regime=ANY,
        peer="torch",
        or_limit=0.85,
    ),
    Bar(
        "cpu",
        (FORWARD,),
        SIXTEEN_BITS,
        4.0,
        sizes=CPU_SIZES,
        regime=ANY,
        peer="torch",
        or_limit=0.85,
    ),
    Bar(
        "cpu",
        (BACKWARD,),
        (*BOTH, "float16"),
        3.0,
        sizes=CPU_SIZES,
        regime=ANY,
        peer="torch",
        or_limit=0.85,
    ),
    Bar("cpu", (FORWARD, BACKWARD), (*BOTH, "float16"), 1.0, sizes=CPU_TINY, peer="torch"),
    Bar("cpu", (CALL, CALL_GRAD), ("float32",), 1.0, peer="torch"),
)

AIM, GATE, BELOW, UNKNOWN = "aim", "gate", "below", "unknown"


@dataclass(frozen=True)
class Verdict:
    """A cell against one bar: the ratio reached, and what was asked of it."""

    state: str
    value: float | None
    asked: str

    def __str__(self) -> str:
        return f"{self.asked}: {'?' if self.value is None else f'{self.value:.3g}'}"


def judge(cell: Cell, results: Results) -> list[Verdict]:
    """This library's cell against every bar that matches it."""
    verdicts = [_apply(bar, cell, results) for bar in BARS if bar.matches(cell.case, cell.device)]
    if cell.device == "cuda" and cell.dtype in LIKE_BFLOAT16 and cell.work in (FORWARD, BACKWARD):
        twin = results.find(cell, dtype="bfloat16")
        if twin is not None and twin.ratio is not None and regime(cell.case) == FULL:
            verdicts.append(_at_least(cell.ratio, twin.ratio - DTYPE_SLACK, "bfloat16's"))
    if cell.device == "cuda" and cell.work in (FORWARD, BACKWARD):
        verdicts += _against_peers(cell, results)
    return verdicts


def _at_least(value: float | None, gate: float, name: str, aim: float | None = None) -> Verdict:
    if value is None:
        return Verdict(UNKNOWN, None, f"{name} >= {gate:.2f}")
    reached = round(value, 3)  # as the table shows it: what reads 0.960 has reached 0.96
    state = BELOW if reached < round(gate, 3) else AIM if reached >= (aim or gate) else GATE
    return Verdict(state, value, f"{name} >= {gate:.2f}")


def _apply(bar: Bar, cell: Cell, results: Results) -> Verdict:
    if bar.peer is None:
        verdict = _at_least(cell.ratio, bar.gate, cell.limit or "limit", bar.aim)
        if verdict.state == BELOW and cell.us is not None and cell.us <= (bar.enough_us or 0.0):
            return Verdict(AIM, verdict.value, f"{verdict.asked} or {bar.enough_us:.0f} us")
        return verdict
    peer = results.find(cell, contender=bar.peer)
    known = peer is not None and peer.us and cell.us and peer.run == cell.run
    speedup = peer.us / cell.us if known and peer and peer.us and cell.us else None
    verdict = _at_least(speedup, bar.gate, f"x {bar.peer}", bar.aim)
    if verdict.state != BELOW or bar.or_limit is None or cell.ratio is None:
        return verdict
    limit = _at_least(cell.ratio, bar.or_limit, cell.limit or "limit")
    if limit.state == BELOW:
        return Verdict(BELOW, verdict.value, f"{verdict.asked} or {limit.asked}")
    return limit


def _against_peers(cell: Cell, results: Results) -> list[Verdict]:
    verdicts = []
    inductor = results.find(cell, contender="compile")
    if inductor is not None and inductor.ratio is not None:
        verdicts.append(_at_least(cell.ratio, inductor.ratio - PEER_SLACK, "compile's"))
    if regime(cell.case) == FULL and cell.cols in BEST_KNOWN.get(cell.dtype, {}):
        forward, backward = BEST_KNOWN[cell.dtype][cell.cols]
        best = forward if cell.work == FORWARD else backward
        verdicts.append(_at_least(cell.ratio, best - PEER_SLACK, "best known's"))
    return verdicts
