"""Every result is held against float64 before its contender is timed.

Tensors of 2^28 elements have no float64 twin in memory: their rows are sampled, and every element
must at least have been written. Weight gradients are summed over all rows, chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simple_layernorm.bench.cases import BACKWARD, END_TO_END, FORWARD_STATS, GRAD_INPUT
from simple_layernorm.bench.tensors import Tensors, chunks

SAMPLED_ELEMENTS = 2**22  # all rows of a smaller tensor, evenly spread ones of a larger

# Largest error that is still right, relative to the larger of 1 and the value. Peers that round in
# between need two units in the last place of 16 bits.
TOLERANCE = {"float32": 2e-5, "float16": 2**-9, "bfloat16": 2**-6}


class WrongResult(Exception):
    """A contender's result is not the operation's."""


@dataclass
class Reference:
    """Expected results in float64: of the sampled rows, and of whole weight gradients."""

    rows: Tensor
    output: Tensor
    mean: Tensor
    rstd: Tensor
    grad_input: Tensor
    grad_weight: Tensor | None
    grad_bias: Tensor | None


def reference(tensors: Tensors, work: str) -> Reference:
    x, dy, w = tensors.input, tensors.grad_output, tensors.weight.double()
    count, cols = x.shape
    sampled = max(1, min(count, SAMPLED_ELEMENTS // max(1, cols)))
    rows = torch.arange(sampled, device=x.device) * (count - 1) // max(1, sampled - 1)
    mean, rstd = tensors.mean[rows].double(), tensors.rstd[rows].double()
    x_hat = (x[rows].double() - mean[:, None]) * rstd[:, None]
    h = dy[rows].double() * w
    grad_input = rstd[:, None] * (
        h - h.mean(1, keepdim=True) - x_hat * (h * x_hat).mean(1, keepdim=True)
    )
    grad_weight = grad_bias = None
    if work in (BACKWARD, END_TO_END):
        grad_weight, grad_bias = torch.zeros_like(w), torch.zeros_like(w)
        for chunk in chunks(count, cols):
            g = dy[chunk].double()
            centred = x[chunk].double().sub_(tensors.mean[chunk].double()[:, None])
            grad_weight += centred.mul_(tensors.rstd[chunk].double()[:, None]).mul_(g).sum(0)
            grad_bias += g.sum(0)
    return Reference(
        rows, x_hat * w + tensors.bias.double(), mean, rstd, grad_input, grad_weight, grad_bias
    )


def poison(like: Tensor) -> None:
    """Leaves NaN in memory that the allocator is about to hand out as a fresh output."""
    torch.full_like(like, float("nan"), memory_format=torch.contiguous_format)


def _error(name: str, got: Tensor, expected: Tensor, scale: float = 1.0) -> float:
    if got.shape != expected.shape:
        raise WrongResult(f"{name} has shape {tuple(got.shape)}, expected {tuple(expected.shape)}")
    if got.numel() == 0:
        return 0.0
    return ((got.double() - expected).abs() / expected.abs().clamp_min(scale)).max().item()


def largest_error(work: str, result: Tensor | Sequence[Tensor], expected: Reference) -> float:
    """The largest error of any output, relative as TOLERANCE is. NaN counts as infinite."""
    results = [result] if isinstance(result, Tensor) else list(result)
    if results[0].isnan().any():
        raise WrongResult("part of the result is NaN or was never written")
    first = expected.grad_input if work in (BACKWARD, GRAD_INPUT, END_TO_END) else expected.output
    errors = [_error("result", results[0][expected.rows], first)]
    if work == FORWARD_STATS:
        errors.append(_error("mean", results[1].reshape(-1)[expected.rows], expected.mean))
        errors.append(_error("rstd", results[2].reshape(-1)[expected.rows], expected.rstd))
    if expected.grad_weight is not None and expected.grad_bias is not None:
        # A sum over many rows rounds relative to what it passes through, not to where it ends.
        for name, got, sums in (
            ("grad_weight", results[1], expected.grad_weight),
            ("grad_bias", results[2], expected.grad_bias),
        ):
            errors.append(_error(name, got, sums, scale=sums.abs().max().item()))
    worst = max(errors)
    return worst if worst == worst else float("inf")
