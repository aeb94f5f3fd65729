"""The tensors of a case: made once per case, shared by all contenders, never written to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from simple_layernorm.bench.cases import Case

EPS = 1e-5
CHUNK = 2**24  # elements that the float64 reference holds at once: 128 MiB a tensor


@dataclass
class Tensors:
    """Arguments of both directions. mean and rstd are those of the float64 reference."""

    input: Tensor
    grad_output: Tensor
    weight: Tensor
    bias: Tensor
    mean: Tensor
    rstd: Tensor

    @property
    def normalized_shape(self) -> list[int]:
        return [self.input.shape[1]]

    def leaves(self) -> tuple[Tensor, Tensor, Tensor]:
        """input, weight and bias as autograd leaves over the same memory."""
        return tuple(t.detach().requires_grad_() for t in (self.input, self.weight, self.bias))  # type: ignore[return-value]


def chunks(rows: int, cols: int) -> list[slice]:
    step = max(1, CHUNK // max(1, cols))
    return [slice(begin, min(rows, begin + step)) for begin in range(0, rows, step)]


def statistics(input: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and 1 / sqrt(variance + eps) of every row, computed in float64."""
    mean = torch.empty(input.shape[0], dtype=torch.float64, device=input.device)
    rstd = torch.empty_like(mean)
    for rows in chunks(*input.shape):
        x = input[rows].double()
        mean[rows] = x.mean(1)
        rstd[rows] = (x.var(1, unbiased=False) + EPS).rsqrt()
    return mean, rstd


def make(case: Case, device: str) -> Tensors:
    generator = torch.Generator(device).manual_seed(20)

    def normal(count: int, dtype: str, offset: int, center: float, spread: float) -> Tensor:
        # Straight into the dtype: a float32 copy of the largest tensors would cost time and memory.
        storage = torch.empty(count + offset, dtype=getattr(torch, dtype), device=device)
        return storage[offset:].normal_(center, spread, generator=generator)

    size = case.elements
    input = normal(size, case.input_dtype, case.offset, 0.5, 2.0).view(case.rows, case.cols)
    grad_output = normal(size, case.input_dtype, case.offset, 0.0, 1.0).view(case.rows, case.cols)
    weight = normal(case.cols, case.weight_dtype, 0, 1.0, 0.25)
    bias = normal(case.cols, case.weight_dtype, 0, 0.0, 0.25)
    mean, rstd = statistics(input)
    return Tensors(input, grad_output, weight, bias, mean.float(), rstd.float())
