"""Checks this library against torch on random data or on a tensor of the user's own."""

import argparse
import itertools
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from simple_layernorm import devices, reference
from simple_layernorm.errors import UserError
from simple_layernorm.functional import layer_norm
from simple_layernorm.tensor_files import load_tensor

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}

# Narrow, square, the widths of real models, odd ones, one wider than a block keeps in registers.
SIZES = ((1, 8), (64, 64), (4096, 768), (1000, 1000), (128, 4097), (8, 65537))

# float32: largest |ours - torch's|. The others: largest |ours - float64| / max(1, |float64|), two
# roundings to the dtype for 16 bits; for float64 the reference rounds as the kernel does.
TOLERANCES = {
    torch.float32: 1e-4,
    torch.float64: 1e-12,
    torch.float16: 1e-3,
    torch.bfloat16: 8e-3,
}


@dataclass(frozen=True)
class Case:
    """An input to normalise over its last dimension; weight and bias have that size."""

    name: str
    input: Tensor
    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Errors:
    """Of an output against what was expected: absolute, and relative where |expected| > 1."""

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
    passed: bool


def check(case: Case, eps: float = 1e-5) -> Result:
    """Runs ours and torch's on the same tensors and judges ours by TOLERANCES."""
    shape = (case.input.shape[-1],)
    output = layer_norm(case.input, shape, case.weight, case.bias, eps)
    torch_output = F.layer_norm(case.input, shape, case.weight, case.bias, eps)
    exact = reference.layer_norm(case.input, shape, case.weight, case.bias, eps)
    ours = errors_between(output, exact)
    torchs = errors_between(torch_output, exact)
    tolerance = TOLERANCES[case.input.dtype]

    judge, errors = "float64", ours
    passed = ours.largest_scaled < tolerance
    if case.input.dtype == torch.float32:
        against_torch = errors_between(output, torch_output)
        # If float64 agrees with ours where torch does not, torch is the one that is off, as it is
        # on rows with a mean far above their spread.
        if against_torch.largest < tolerance or not passed:
            judge, errors = "torch", against_torch
            passed = against_torch.largest < tolerance
    return Result(output, torch_output, judge, errors, ours, torchs, passed)


def errors_between(output: Tensor, expected: Tensor) -> Errors:
    """Compares in float64. Equal infinities and NaN against NaN count as no error."""
    if output.shape != expected.shape:
        raise AssertionError(f"expected shape {expected.shape}, but got {output.shape}")
    if output.numel() == 0:
        return Errors(0.0, 0.0, 0.0)
    output, expected = output.double(), expected.double()
    same = (output == expected) | (output.isnan() & expected.isnan())
    error = torch.where(same, 0.0, (output - expected).abs()).nan_to_num(nan=torch.inf)
    scaled = torch.where(same, 0.0, error / expected.abs().clamp(min=1.0)).nan_to_num(nan=torch.inf)
    return Errors(error.max().item(), error.mean().item(), scaled.max().item())


def random_case(rows: int, cols: int, dtype: torch.dtype, device: torch.device) -> Case:
    """Normally distributed rows of mean 0.5 and spread 2; the same values on every machine."""
    values = torch.randn(rows, cols, generator=_generator(f"{rows} x {cols}")) * 2 + 0.5
    return _case(f"{rows} x {cols}", values, dtype, device)


def _case(name: str, values: Tensor, dtype: torch.dtype, device: torch.device) -> Case:
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


def _generator(text: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(text.encode()))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        help="cpu, cuda or cuda:1 (AMD GPUs are cuda to torch); by default a GPU that this build "
        "has kernels for, else the CPU",
    )
    parser.add_argument("--dtype", choices=DTYPES, help="default: float32, or the file's own")
    parser.add_argument("--rows", type=_size, nargs="+", metavar="N", help="default: several sizes")
    parser.add_argument("--cols", type=_size, nargs="+", metavar="N")
    parser.add_argument("--file", type=Path, help="a tensor of yours: .npy, .pt or .safetensors")
    parser.add_argument("--tensor", metavar="NAME", help="which one, if the file holds several")


def run(arguments: argparse.Namespace) -> int:
    """0 if every case passed, 1 if one did not. Raises UserError for what cannot be checked."""
    device = _device(arguments.device)
    found = devices.report(device)
    if found.kernel is None:
        raise UserError(f"device {found.device} ({found.name}): {found.reason}")
    cases = _cases(arguments, device)
    print(f"device {found.device}: {found.name}, kernel {found.kernel}, torch {torch.__version__}")
    if arguments.device is None and device.type == "cpu":
        for gpu in devices.all_reports()[1:]:
            print(f"not used: {gpu.device} ({gpu.name}): {gpu.reason}")
    print("LayerNorm over the last dimension, with weight and bias, eps 1e-5\n")

    results = []
    for case in cases:
        result = check(case)
        _print_result(case, result, found.kernel)
        results.append(result)

    passed = sum(result.passed for result in results)
    worst = max(result.errors.largest for result in results)
    verdict = "PASS" if passed == len(results) else "FAIL"
    print(f"{verdict}: {passed} of {len(results)} within tolerance, largest error {worst:.2e}")
    return 0 if passed == len(results) else 1


def _size(text: str) -> int:
    try:
        size = int(text)
    except ValueError:
        size = 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, but got {text}")
    return size


def _device(name: str | None) -> torch.device:
    if name is not None:
        try:
            return torch.device(name)
        except RuntimeError:
            raise UserError(f"device {name}: expected cpu, cuda or cuda:N") from None
    cpu, *gpus = devices.all_reports()
    return torch.device(next((gpu.device for gpu in gpus if gpu.kernel is not None), cpu.device))


def _cases(arguments: argparse.Namespace, device: torch.device) -> Iterable[Case]:
    if arguments.file is not None:
        if arguments.rows or arguments.cols:
            raise UserError("--rows and --cols are for random data, --file brings its own sizes")
        return [_file_case(arguments, device)]
    if arguments.tensor is not None:
        raise UserError("--tensor NAME needs --file")
    sizes: Iterable[tuple[int, int]] = SIZES
    if arguments.rows or arguments.cols:
        sizes = itertools.product(arguments.rows or [128], arguments.cols or [1024])
    dtype = DTYPES[arguments.dtype or "float32"]
    return (random_case(rows, cols, dtype, device) for rows, cols in sizes)


def _file_case(arguments: argparse.Namespace, device: torch.device) -> Case:
    values = load_tensor(arguments.file, arguments.tensor)
    dtype = DTYPES[arguments.dtype] if arguments.dtype else values.dtype
    if dtype not in TOLERANCES:
        raise UserError(
            f"{arguments.file}: expected a tensor of {', '.join(DTYPES)}, but got {dtype}; "
            "--dtype converts it"
        )
    if values.dim() == 0 or values.numel() == 0:
        raise UserError(
            f"{arguments.file}: expected a tensor with rows to normalise, "
            f"but got shape {tuple(values.shape)}"
        )
    if values.is_complex() or values.layout != torch.strided:
        raise UserError(f"{arguments.file}: expected a dense real tensor, but got {values.dtype}")
    name = arguments.tensor or arguments.file.name
    shape = " x ".join(str(size) for size in values.shape)
    return _case(f"{name}, {shape}", values, dtype, device)


def _print_result(case: Case, result: Result, kernel: str) -> None:
    dtype = str(case.input.dtype).removeprefix("torch.")
    tolerance = TOLERANCES[case.input.dtype]
    print(f"{case.name}  {dtype}  {kernel}")
    print(f"  torch  {_shortened(result.torch_output)}")
    print(f"  ours   {_shortened(result.output)}")
    print(
        f"  against {result.judge}: largest error {result.errors.largest:.2e}, "
        f"mean {result.errors.mean:.2e}, tolerance {tolerance:.0e}: "
        f"{'PASS' if result.passed else 'FAIL'}"
    )
    if result.judge == "float64" and case.input.dtype == torch.float32:
        print("  judged by float64, because torch's own error is larger than the tolerance here")
    print(
        f"  largest error against float64: ours {result.against_float64.largest:.2e}, "
        f"torch's {result.torch_against_float64.largest:.2e}\n"
    )


def _shortened(output: Tensor) -> str:
    row = output.reshape(-1, output.shape[-1])[0].double().tolist()
    first = " ".join(f"{value:9.5f}" for value in row[:4])
    return first if len(row) <= 4 else f"{first}  …  {row[-1]:9.5f}"
