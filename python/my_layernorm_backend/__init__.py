"""The name under which the first version of this library was imported."""

import simple_layernorm  # noqa: F401  loads the compiled module
from simple_layernorm._C import layernorm_forward

__all__ = ["layernorm_forward"]
