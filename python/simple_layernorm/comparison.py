"""What `verify` checks: ours beside torch's on the same tensors, both against float64."""

import zlib
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from simple_layernorm import reference
from simple_layernorm.functional import layer_norm

# float32: largest |ours - torch's|. The others: largest |ours - float64| / max(1, |float64|), two
# roundings to the dtype for 16 bits; for float64 the reference rounds as the kernel does. Gradients
# of any dtype: largest |ours - float64|, divided by the gradient's largest value or 1.
TOLERANCES = {
    torch.float32: 1e-4,
    torch.float64: 1e-12,
    torch.float16: 1e-3,
    torch.bfloat16: 8e-3,
}
GRADIENTS = ("input", "weight", "bias")


@dataclass(frozen=True)
class Case:
    """An input to normalise over its last dimension; weight and bias have that size."""

    name: str
    input: Tensor
    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Errors:
    """Of a tensor against what was expected: absolute, and relative where |expected| > 1."""

    largest: float
    mean: float
    largest_scaled: float


@dataclass(frozen=True)
class Result:
    """Outcome of a case. `errors` are against `judge`, "torch" or "float64"."""

    output: Tensor
    torch_output: Tensor
    judge: str
    errors: Errors
    against_float64: Errors
    torch_against_float64: Errors
    gradients: dict[str, Errors]
    output_passed: bool
    gradients_passed: bool

    @property
    def passed(self) -> bool:
        return self.output_passed and self.gradients_passed


def random_case(rows: int, cols: int, dtype: torch.dtype, device: torch.device) -> Case:
    """Normally distributed rows of mean 0.5 and spread 2; the same values on every machine."""
    values = torch.randn(rows, cols, generator=_generator(f"{rows} x {cols}")) * 2 + 0.5
    return case_of(f"{rows} x {cols}", values, dtype, device)


def case_of(name: str, values: Tensor, dtype: torch.dtype, device: torch.device) -> Case:
    """These values, with a weight about 1 and a bias about 0."""
    cols = values.shape[-1]
    generator = _generator(f"parameters {cols}")
    weight = torch.randn(cols, generator=generator) * 0.1 + 1
    bias = torch.randn(cols, generator=generator) * 0.1
    return Case(
        name,
        values.to(device=device, dtype=dtype),
        weight.to(device=device, dtype=dtype),
        bias.to(device=device, dtype=dtype),
    )


def check(case: Case, eps: float = 1e-5) -> Result:
    """Runs ours and torch's forward and our backward, and judges ours by TOLERANCES."""
    shape = (case.input.shape[-1],)
    leaves = [t.detach().requires_grad_() for t in (case.input, case.weight, case.bias)]
    output = layer_norm(leaves[0], shape, leaves[1], leaves[2], eps)
    torch_output = F.layer_norm(case.input, shape, case.weight, case.bias, eps)
    exact = reference.layer_norm(case.input, shape, case.weight, case.bias, eps)
    ours = errors_between(output.detach(), exact)
    torchs = errors_between(torch_output, exact)
    tolerance = TOLERANCES[case.input.dtype]

    judge, errors = "float64", ours
    passed = ours.largest_scaled < tolerance
    if case.input.dtype == torch.float32:
        against_torch = errors_between(output.detach(), torch_output)
        # If float64 agrees with ours where torch does not, torch is the one that is off, as it is
        # on rows with a mean far above their spread.
        if against_torch.largest < tolerance or not passed:
            judge, errors = "torch", against_torch
            passed = against_torch.largest < tolerance

    grad_output = _random_like(case.input)
    gradients = torch.autograd.grad(output, leaves, grad_output)
    exact_gradients = reference.layer_norm_gradients(
        grad_output, case.input, shape, case.weight, eps
    )
    gradient_errors = {
        name: errors_between(gradient, exact_gradient, scaled_by_largest=True)
        for name, gradient, exact_gradient in zip(
            GRADIENTS, gradients, exact_gradients, strict=True
        )
    }
    gradients_passed = all(e.largest_scaled < tolerance for e in gradient_errors.values())
    return Result(
        output.detach(),
        torch_output,
        judge,
        errors,
        ours,
        torchs,
        gradient_errors,
        passed,
        gradients_passed,
    )


def errors_between(output: Tensor, expected: Tensor, scaled_by_largest: bool = False) -> Errors:
    """Compares in float64. Equal infinities and NaN against NaN count as no error.

    `largest_scaled` is relative to |expected|, or to its largest value in the whole tensor, but
    never to less than 1. The latter is for sums over rows, whose terms cancel.
    """
    if output.shape != expected.shape:
        raise AssertionError(f"expected shape {expected.shape}, but got {output.shape}")
    if output.numel() == 0:
        return Errors(0.0, 0.0, 0.0)
    output, expected = output.double(), expected.double()
    same = (output == expected) | (output.isnan() & expected.isnan())
    error = torch.where(same, 0.0, (output - expected).abs()).nan_to_num(nan=torch.inf)
    scale = torch.where(expected.isfinite(), expected.abs(), 1.0).clamp(min=1.0)
    scaled = error / (scale.max() if scaled_by_largest else scale)
    return Errors(error.max().item(), error.mean().item(), scaled.max().item())


def _random_like(tensor: Tensor) -> Tensor:
    values = torch.randn(tensor.shape, generator=_generator("grad_output"))
    return values.to(device=tensor.device, dtype=tensor.dtype)


def _generator(text: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(text.encode()))
