"""The float64 reference, judged by torch's own float64 operator and by autograd."""

import pytest
import torch

from simple_layernorm import reference


@pytest.mark.parametrize("normalized_shape", [(7,), (3, 7)])
@pytest.mark.parametrize("affine", [True, False])
def test_output_and_gradients_are_those_of_torch_in_float64(
    normalized_shape: tuple[int, ...], affine: bool
) -> None:
    x = torch.randn(5, 3, 7, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(normalized_shape, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(normalized_shape, dtype=torch.float64, requires_grad=True)
    parameters = (weight, bias) if affine else (None, None)
    expected = torch.nn.functional.layer_norm(x, normalized_shape, *parameters, 1e-3)
    torch.testing.assert_close(
        reference.layer_norm(x, normalized_shape, *parameters, 1e-3), expected.detach()
    )
    grad_output = torch.randn_like(expected)
    gradients = reference.layer_norm_gradients(
        grad_output, x, normalized_shape, parameters[0], 1e-3
    )
    wanted = (x, weight, bias) if affine else (x,)
    for found, right in zip(
        gradients, torch.autograd.grad(expected, wanted, grad_output), strict=affine
    ):
        torch.testing.assert_close(found, right)


def test_mean_far_above_the_spread_costs_no_digits() -> None:
    z = torch.randn(4, 1000, dtype=torch.float64)
    shifted = 1e6 + 1e-3 * z
    spread = (shifted - 1e6) / 1e-3
    torch.testing.assert_close(
        reference.layer_norm(shifted, (1000,), eps=0.0),
        reference.layer_norm(spread, (1000,), eps=0.0),
        atol=1e-9,
        rtol=0,
    )


def test_low_precision_input_is_taken_at_its_exact_value() -> None:
    x = torch.randn(4, 100).to(torch.bfloat16)
    torch.testing.assert_close(
        reference.layer_norm(x, (100,)), reference.layer_norm(x.double(), (100,)), rtol=0, atol=0
    )
