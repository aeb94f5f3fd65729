"""Functions with the signatures of torch.nn.functional."""

from collections.abc import Sequence

import torch
from torch import Tensor

from simple_layernorm import _C


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """torch.nn.functional.layer_norm by this library's kernels.

    `input` is float32, float64, float16 or bfloat16, of shape [*, *normalized_shape], on the CPU or
    on a ROCm or CUDA GPU. It is read in place if its normalised dimensions are contiguous and its
    rows equally far apart, else copied once. `weight` and `bias` have normalized_shape and input's
    dtype, or float32 beside 16-bit input. The result is contiguous, of input's shape and dtype
    (float32 under GPU autocast). Differentiable to every order with respect to all three.

    Raises RuntimeError for wrong shapes, layouts, devices and dtypes of weight and bias, and for a
    GPU that this build has no kernels for; NotImplementedError for other dtypes and devices.
    """
    # Every other tracer sees the dispatcher's call. is_compiling() would ask for them too: 1000 of
    # the 25000 instructions of a call with gradients (callgrind, 2026-11-30).
    if torch.compiler.is_dynamo_compiling():
        output: Tensor = torch.ops.simple_layernorm.layer_norm(
            input, normalized_shape, weight, bias, eps
        )
        return output
    return _C.layer_norm(input, normalized_shape, weight, bias, eps)
