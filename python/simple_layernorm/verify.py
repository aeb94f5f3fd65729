"""Checks this library against torch on random data or on a tensor of the user's own."""

import argparse
import itertools
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from simple_layernorm import devices
from simple_layernorm.comparison import TOLERANCES, Case, Result, case_of, check, random_case
from simple_layernorm.errors import UserError
from simple_layernorm.tensor_files import load_tensor

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}

# Narrow, square, the widths of real models, odd ones, one wider than a block keeps in registers.
SIZES = ((1, 8), (64, 64), (4096, 768), (1000, 1000), (128, 4097), (8, 65537))


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

    cases_run = 0
    results = []
    for case in cases:
        cases_run += 1
        try:
            result = check(case)
        except RuntimeError as error:  # an operator that raises has failed, whatever the reason
            print(f"{case.name}: FAIL: {str(error).splitlines()[0]}\n")
            continue
        _print_result(case, result, found.kernel)
        results.append(result)

    passed = sum(result.passed for result in results)
    worst = max((result.errors.largest for result in results), default=float("nan"))
    verdict = "PASS" if passed == cases_run else "FAIL"
    print(f"{verdict}: {passed} of {cases_run} within tolerance, largest error {worst:.2e}")
    return 0 if passed == cases_run else 1


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
    return case_of(f"{name}, {shape}", values, dtype, device)


def _print_result(case: Case, result: Result, kernel: str) -> None:
    dtype = str(case.input.dtype).removeprefix("torch.")
    tolerance = TOLERANCES[case.input.dtype]
    print(f"{case.name}  {dtype}  {kernel}")
    print(f"  torch  {_shortened(result.torch_output)}")
    print(f"  ours   {_shortened(result.output)}")
    print(
        f"  against {result.judge}: largest error {result.errors.largest:.2e}, "
        f"mean {result.errors.mean:.2e}, tolerance {tolerance:.0e}: "
        f"{'PASS' if result.output_passed else 'FAIL'}"
    )
    if result.judge == "float64" and case.input.dtype == torch.float32:
        print("  judged by float64, because torch's own error is larger than the tolerance here")
    print(
        f"  largest error against float64: ours {result.against_float64.largest:.2e}, "
        f"torch's {result.torch_against_float64.largest:.2e}"
    )
    gradients = ", ".join(f"{name} {e.largest_scaled:.2e}" for name, e in result.gradients.items())
    verdict = "PASS" if result.gradients_passed else "FAIL"
    print(f"  gradients against float64: {gradients}, tolerance {tolerance:.0e}: {verdict}\n")


def _shortened(output: Tensor) -> str:
    row = output.reshape(-1, output.shape[-1])[0].double().tolist()
    first = " ".join(f"{value:9.5f}" for value in row[:4])
    return first if len(row) <= 4 else f"{first}  …  {row[-1]:9.5f}"
