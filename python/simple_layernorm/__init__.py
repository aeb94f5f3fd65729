"""LayerNorm for PyTorch on AMD and NVIDIA GPUs and on the CPU."""

from simple_layernorm import _loader  # noqa: F401  checks torch before _C is loaded
from simple_layernorm.functional import layer_norm

__all__ = ["layer_norm"]
