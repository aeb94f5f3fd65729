"""Tensors that tests start from."""

import torch
from torch import Tensor


def normal(
    *shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0
) -> Tensor:
    """Normally distributed; the same numbers, rounded to dtype, on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).to(device)
