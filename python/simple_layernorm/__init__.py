"""LayerNorm for PyTorch on AMD and NVIDIA GPUs and on the CPU."""

import torch  # noqa: F401  loads the libraries that _C is linked against

from simple_layernorm.functional import layer_norm

__all__ = ["layer_norm"]
