"""LayerNorm for PyTorch on AMD and NVIDIA GPUs and on the CPU."""

from simple_layernorm import _loader  # noqa: F401  checks torch before _C is loaded
from simple_layernorm.functional import layer_norm
from simple_layernorm.modules import LayerNorm
from simple_layernorm.patching import PatchReport, patch, unpatch

__all__ = ["LayerNorm", "PatchReport", "layer_norm", "patch", "unpatch"]
