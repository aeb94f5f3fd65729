"""The compiled module, bound in src/torch/layernorm_wrapper.cpp."""

from collections.abc import Sequence

from torch import Tensor

def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor: ...
def layernorm_forward(x: Tensor, eps: float = 1e-05) -> Tensor: ...
def cpu_level() -> str: ...
def gpu_build() -> tuple[str, str]: ...
