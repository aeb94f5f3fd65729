"""What memory allows: a copy or an add of the case's tensors, and the least traffic of its work.

The limit runs among the contenders, in the same rounds. On a GPU it writes a tensor that is there
already; on the CPU a fresh one as everybody else does, because there the allocation is a part of
what memory costs. Its tensors are aligned, whatever the case's offset is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from simple_layernorm.bench.cases import (
    BACKWARD,
    END_TO_END,
    FORWARD,
    FORWARD_STATS,
    GRAD_INPUT,
    REPLAY,
    Case,
)
from simple_layernorm.bench.contenders import Call
from simple_layernorm.bench.tensors import Tensors

COPY = "copy"
ADD = "add"
COPY_AND_ADD = "copy + add"

LIMITS = {
    FORWARD: COPY,
    FORWARD_STATS: COPY,
    REPLAY: COPY,
    BACKWARD: ADD,
    GRAD_INPUT: ADD,
    END_TO_END: COPY_AND_ADD,
}
# Tensors of the input's size that the limit reads and writes.
TRAFFIC = {COPY: 2, ADD: 3, COPY_AND_ADD: 5}


def least_bytes(case: Case) -> int | None:
    """Bytes of row data that the work cannot do without, None where bytes are not the point."""
    name = LIMITS.get(case.work)
    item = getattr(torch, case.input_dtype).itemsize
    return None if name is None else TRAFFIC[name] * case.elements * item


def limit_call(case: Case, tensors: Tensors, device: str) -> Call | None:
    name = LIMITS.get(case.work)
    if name is None:
        return None
    # clone() keeps strides, not the storage offset: a fresh storage is aligned.
    x = tensors.input.clone() if case.offset else tensors.input
    dy = x if name == COPY else tensors.grad_output.clone() if case.offset else tensors.grad_output
    out = None if device == "cpu" else torch.empty_like(x)

    def copy() -> Tensor:
        return x.clone() if out is None else out.copy_(x)

    def add() -> Tensor:
        return torch.add(x, dy, out=out)

    def copy_and_add() -> None:
        copy()
        add()

    return {COPY: copy, ADD: add, COPY_AND_ADD: copy_and_add}[name]
