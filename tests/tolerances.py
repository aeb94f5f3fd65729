"""The one table of tolerances: how far a result may be from float64's.

In units of the result's own epsilon, times the largest expected magnitude (at least 1): a result in
16 bits is off by its one rounding, of half a unit at most, and hardly more; a float32 result by the
roundings inside its sums.
"""

import torch
from torch import Tensor

EPSILONS = {
    "output": {torch.float64: 8, torch.float32: 8, torch.float16: 0.6, torch.bfloat16: 0.6},
    "grad_input": {torch.float64: 16, torch.float32: 16, torch.float16: 0.6, torch.bfloat16: 0.6},
    "grad_weight": {torch.float64: 32, torch.float32: 32, torch.float16: 0.6, torch.bfloat16: 0.6},
    "grad_bias": {torch.float64: 32, torch.float32: 32, torch.float16: 0.6, torch.bfloat16: 0.6},
}


def assert_near(actual: Tensor, expected: Tensor, kind: str) -> None:
    """`expected` is float64; `kind` names a line of the table."""
    assert actual.shape == expected.shape, f"{kind}: {actual.shape} instead of {expected.shape}"
    if expected.numel() == 0:
        return
    scale = max(1.0, expected.abs().max().item())
    atol = EPSILONS[kind][actual.dtype] * torch.finfo(actual.dtype).eps * scale
    torch.testing.assert_close(
        actual.double(), expected, rtol=0, atol=atol, msg=lambda text: f"{kind}: {text}"
    )
