"""Ours against torch's at several sizes: the first thing to look at.

`python tests/test_layernorm.py` prints the comparison; its arguments are those of
`python -m simple_layernorm verify`.
"""

import sys

import pytest
import torch

import my_layernorm_backend
from simple_layernorm import comparison, verify
from simple_layernorm.__main__ import main


@pytest.mark.parametrize("dtype", verify.DTYPES.values(), ids=verify.DTYPES)
@pytest.mark.parametrize(("rows", "cols"), verify.SIZES)
def test_output_is_torchs_within_tolerance(
    rows: int, cols: int, dtype: torch.dtype, device: str
) -> None:
    result = comparison.check(comparison.random_case(rows, cols, dtype, torch.device(device)))
    assert result.passed, result


@pytest.mark.parametrize("shape", [(4, 16), (2, 3, 1000), (7,)])
def test_layernorm_forward_normalises_the_last_dimension(
    shape: tuple[int, ...], device: str
) -> None:
    x = torch.randn(shape, device=device)
    expected = torch.nn.functional.layer_norm(x, shape[-1:], eps=1e-3)
    torch.testing.assert_close(
        my_layernorm_backend.layernorm_forward(x, eps=1e-3), expected, atol=1e-4, rtol=0
    )


if __name__ == "__main__":
    sys.exit(main(["verify", *sys.argv[1:]]))
