"""LayerNorm in float64, by the formulas of src/math/layer_norm.hpp: the judge of every kernel.

Plain torch operations on any device, no kernel of this library and no autograd. Every function
takes tensors of any floating dtype and returns float64. Float64 input is computed in its own
precision, so there the reference is as exact as what it judges; values above 1e150 overflow.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Statistics(NamedTuple):
    """Of every row: `centred` is input - mean [rows, cols]; `mean` and `rstd` are [rows, 1]."""

    centred: Tensor
    mean: Tensor
    rstd: Tensor


class Gradients(NamedTuple):
    """Shaped as input, normalized_shape and normalized_shape."""

    input: Tensor
    weight: Tensor
    bias: Tensor


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The output, float64, of input's shape. Arguments as `simple_layernorm.layer_norm`."""
    statistics = layer_norm_statistics(input, normalized_shape, eps)
    output = (statistics.centred * statistics.rstd).reshape(input.shape)
    if weight is not None:
        output = output * weight.double()
    if bias is not None:
        output = output + bias.double()
    return output


def layer_norm_statistics(
    input: Tensor, normalized_shape: Sequence[int], eps: float = 1e-5
) -> Statistics:
    """Mean and rstd of every row, by the corrected two-pass algorithm."""
    rows = _as_rows(input, normalized_shape)
    rounded_mean = rows.mean(dim=1, keepdim=True)
    centred = rows - rounded_mean
    correction = centred.mean(dim=1, keepdim=True)
    centred = centred - correction
    rstd = (centred.square().mean(dim=1, keepdim=True) + eps).rsqrt()
    return Statistics(centred, rounded_mean + correction, rstd)


def layer_norm_gradients(
    grad_output: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float = 1e-5,
) -> Gradients:
    """Gradients with respect to input, weight and bias, given that of the output."""
    statistics = layer_norm_statistics(input, normalized_shape, eps)
    x_hat = statistics.centred * statistics.rstd
    g = _as_rows(grad_output, normalized_shape)
    h = g if weight is None else g * weight.double().reshape(1, -1)
    h_average = h.mean(dim=1, keepdim=True)
    h_x_hat_average = (h * x_hat).mean(dim=1, keepdim=True)
    grad_input = statistics.rstd * (h - h_average - x_hat * h_x_hat_average)
    return Gradients(
        grad_input.reshape(input.shape),
        (g * x_hat).sum(dim=0).reshape(tuple(normalized_shape)),
        g.sum(dim=0).reshape(tuple(normalized_shape)),
    )


def _as_rows(tensor: Tensor, normalized_shape: Sequence[int]) -> Tensor:
    leading = tensor.shape[: tensor.dim() - len(normalized_shape)]
    rows = torch.Size(leading).numel()
    cols = torch.Size(normalized_shape).numel()
    return tensor.detach().double().reshape(rows, cols)
