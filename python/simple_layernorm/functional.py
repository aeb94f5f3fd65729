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
    if torch.compiler.is_compiling():
        return torch.ops.simple_layernorm.layer_norm(input, normalized_shape, weight, bias, eps)
    return _C.layer_norm(input, normalized_shape, weight, bias, eps)
