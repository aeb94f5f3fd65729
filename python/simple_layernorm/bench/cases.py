"""What is measured: the cases, as data, and how a command line selects among them.

A case says what work is done on which tensors. It knows neither who does the work (contenders)
nor what is fast enough (bars).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FORWARD = "forward"
FORWARD_STATS = "forward+stats"
BACKWARD = "backward"
GRAD_INPUT = "grad_input"
END_TO_END = "forward+backward"
REPLAY = "graph replay"
CALL = "call"
CALL_GRAD = "call with grad"
BLOCK = "transformer block"
WORKS = (FORWARD, FORWARD_STATS, BACKWARD, GRAD_INPUT, END_TO_END, REPLAY, CALL, CALL_GRAD, BLOCK)

DTYPES = ("float32", "bfloat16", "float16", "bfloat16/float32")

COLS = (64, 256, 768, 1000, 1024, 2048, 4096, 5120, 8192, 16384, 32768, 65536, 131072)
ODD_COLS = (773, 1001, 4097, 5001)
OFFSET_COLS = (1024, 4096)
FEW_ROWS = (1, 4, 16, 64)
FEW_ROWS_COLS = (16384, 65536, 262144, 1048576)
SMALL_SIZES = ((128, 1024), (16, 64), (1, 8192), (4096, 768))
END_TO_END_SIZES = ((4096, 4096), (16384, 1024))
CPU_SIZES = (
    (128, 1024), (4096, 768), (4096, 1000), (2048, 4096), (1024, 16384), (65536, 64), (16, 262144),
    (1, 4096), (8, 64),
)  # fmt: skip
CALL_SIZE = (4, 16)
BLOCK_SIZES = {"cuda": (8192, 2048), "cpu": (256, 384)}  # tokens, width

GPU_ELEMENTS = 2**28  # 0.5 GiB in 16 bits: far beyond every last-level cache
CPU_ELEMENTS = 2**23


@dataclass(frozen=True)
class Case:
    """One cell's work. `dtype` is input's; as "bfloat16/float32" it names the parameters' too.
    `offset` is the storage offset of input and grad_output, in elements."""

    work: str
    rows: int
    cols: int
    dtype: str
    offset: int = 0

    @property
    def input_dtype(self) -> str:
        return self.dtype.split("/")[0]

    @property
    def weight_dtype(self) -> str:
        return self.dtype.split("/")[-1]

    @property
    def elements(self) -> int:
        return self.rows * self.cols

    @property
    def few_rows(self) -> bool:
        return self.rows in FEW_ROWS and self.cols in FEW_ROWS_COLS

    @property
    def odd(self) -> bool:
        return self.offset != 0 or self.cols in ODD_COLS

    @property
    def size(self) -> str:
        return f"{self.rows} x {self.cols}" + (f" +{self.offset}" if self.offset else "")

    def __str__(self) -> str:
        return f"{self.work} {self.size} {self.dtype}"


@dataclass(frozen=True)
class Group:
    """Cases that one word of --cases selects."""

    work: str
    sizes: str
    about: str


GROUPS = {
    "forward": Group(FORWARD, "full", "input, weight, bias to output"),
    "stats": Group(FORWARD_STATS, "full", "the same, mean and rstd written too"),
    "backward": Group(BACKWARD, "full", "gradients of input, weight and bias"),
    "grad-input": Group(GRAD_INPUT, "full", "gradient of input only"),
    "end-to-end": Group(END_TO_END, "end-to-end", "forward and backward through autograd"),
    "few-rows": Group(FORWARD, "few-rows", "forward of 1 to 64 long rows"),
    "few-rows-backward": Group(BACKWARD, "few-rows", "backward of 1 to 64 long rows"),
    "small": Group(REPLAY, "small", "forward of small tensors, 20 calls in a replayed graph"),
    "odd": Group(FORWARD, "odd", "forward of odd and of misaligned rows"),
    "odd-backward": Group(BACKWARD, "odd", "backward of odd and of misaligned rows"),
    "call": Group(CALL, "call", "host cost of an eager call"),
    "call-grad": Group(CALL_GRAD, "call", "host cost of an eager call that records a graph"),
    "block": Group(BLOCK, "block", "a transformer block, patched and not, eager and compiled"),
}
GPU_ONLY = ("small", "few-rows", "few-rows-backward")


def groups_of(device: str) -> list[str]:
    return [name for name in GROUPS if device == "cuda" or name not in GPU_ONLY]


def _sizes(
    kind: str, device: str, elements: int, cols: Sequence[int]
) -> Iterator[tuple[int, int, int]]:
    """Rows, columns and storage offset of every case of a kind; `cols` replaces the listed columns
    where a case is free to choose its rows, and selects elsewhere."""

    def wanted(listed: Sequence[int]) -> Sequence[int]:
        return [c for c in listed if c in cols] if cols else listed

    if kind == "full" and device == "cpu" and not cols:
        yield from ((rows, c, 0) for rows, c in CPU_SIZES)
    elif kind == "full":
        yield from ((max(1, elements // c), c, 0) for c in cols or COLS)
    elif kind == "odd":
        yield from ((elements // c, c, 0) for c in wanted(ODD_COLS))
        yield from ((elements // c, c, 1) for c in wanted(OFFSET_COLS))
    elif kind == "few-rows":
        yield from ((rows, c, 0) for rows in FEW_ROWS for c in wanted(FEW_ROWS_COLS))
    else:
        fixed = {
            "end-to-end": END_TO_END_SIZES if device == "cuda" else ((2048, 4096), (4096, 768)),
            "small": SMALL_SIZES,
            "call": (CALL_SIZE,),
            "block": (BLOCK_SIZES[device],),
        }[kind]
        yield from ((rows, c, 0) for rows, c in fixed if not cols or c in cols)


def select(
    groups: Sequence[str],
    dtypes: Sequence[str],
    device: str,
    *,
    cols: Sequence[int] = (),
    sizes: Sequence[tuple[int, int]] = (),
    elements: int | None = None,
) -> list[Case]:
    """The cases of the groups, each once, in the order of the groups. `sizes` replaces the sizes
    of every group but those of fixed meaning (call, block)."""
    elements = elements or (GPU_ELEMENTS if device == "cuda" else CPU_ELEMENTS)
    found: dict[Case, None] = {}
    for name in groups:
        group = GROUPS[name]
        free = group.sizes not in ("call", "block")
        shapes = (
            [(rows, c, 0) for rows, c in sizes]
            if sizes and free
            else _sizes(group.sizes, device, elements, cols)
        )
        for rows, c, offset in shapes:
            for dtype in ("float32",) if group.sizes in ("call", "small") else dtypes:
                if group.sizes != "block" or "/" not in dtype:
                    found[Case(group.work, rows, c, dtype, offset)] = None
    return list(found)
