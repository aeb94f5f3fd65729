"""The command line: what it prints, what it refuses, and that it can fail."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from simple_layernorm import _C, comparison, devices, verify
from simple_layernorm.__main__ import main

SMALL = ["--device", "cpu", "--rows", "3", "--cols", "40"]


def test_verify_passes_and_names_the_kernel_and_both_outputs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["verify", *SMALL]) == 0
    printed = capsys.readouterr().out
    for expected in ("kernel cpu/", "3 x 40", "  torch ", "  ours ", "largest error", "mean"):
        assert expected in printed
    assert printed.splitlines()[-1].startswith("PASS: 1 of 1 within tolerance")


@pytest.mark.parametrize("dtype", verify.DTYPES)
def test_verify_passes_in_every_dtype(dtype: str) -> None:
    assert main(["verify", *SMALL, "--dtype", dtype]) == 0


def _off_by_a_thousandth(output: Tensor) -> Tensor:
    return output * 1.001


def _nan_in_one_row(output: Tensor) -> Tensor:
    return torch.cat([output[:-1], torch.full_like(output[-1:], torch.nan)])


def _zero(output: Tensor) -> Tensor:
    return output * 0


def _last_row_unwritten(output: Tensor) -> Tensor:
    return torch.cat([output[:-1], torch.zeros_like(output[-1:])])


@pytest.mark.parametrize(
    "damage", [_off_by_a_thousandth, _nan_in_one_row, _zero, _last_row_unwritten]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_verify_fails_on_a_damaged_output(
    damage: Callable[[Tensor], Tensor],
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = comparison.layer_norm
    monkeypatch.setattr(comparison, "layer_norm", lambda *arguments: damage(right(*arguments)))
    assert main(["verify", *SMALL, "--dtype", dtype]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("FAIL: 0 of 1")


def test_verify_fails_in_one_line_when_the_operator_raises(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: Any) -> Tensor:
        raise RuntimeError("the launch failed\nand a trace of it")

    monkeypatch.setattr(comparison, "layer_norm", broken)
    assert main(["verify", *SMALL]) == 1
    printed = capsys.readouterr().out
    assert "3 x 40: FAIL: the launch failed" in printed
    assert printed.splitlines()[-1].startswith("FAIL: 0 of 1")


@pytest.mark.parametrize("damaged", ["input", "weight", "bias"])
def test_verify_fails_on_a_damaged_gradient(
    damaged: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = torch.autograd.grad

    def wrong(*arguments: Any) -> list[Tensor]:
        gradients = dict(zip(comparison.GRADIENTS, right(*arguments), strict=True))
        gradients[damaged] = gradients[damaged] * 1.01
        return list(gradients.values())

    monkeypatch.setattr(torch.autograd, "grad", wrong)
    assert main(["verify", *SMALL]) == 1
    printed = capsys.readouterr().out
    assert "tolerance 1e-04: PASS" in printed  # of the output
    assert "tolerance 1e-04: FAIL" in printed  # of the gradients


def test_verify_is_judged_by_float64_where_torch_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    values = 1e4 + 1e-3 * torch.randn(16, 768, generator=torch.Generator().manual_seed(0))
    ones, zeros = torch.ones(768), torch.zeros(768)
    result = comparison.check(comparison.Case("large mean", values, ones, zeros))
    assert result.torch_against_float64.largest > 1e-3
    assert result.judge == "float64"
    assert result.passed
    assert result.errors.largest < 1e-5


def test_verify_reads_the_users_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numpy = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.torch")
    values = torch.randn(5, 2, 24)
    numpy.save(tmp_path / "x.npy", values.numpy())
    torch.save(values, tmp_path / "x.pt")
    torch.save({"a": values, "b": torch.zeros(3)}, tmp_path / "two.pt")
    safetensors.save_file({"a": values, "b": torch.zeros(3)}, tmp_path / "two.safetensors")
    for arguments in (
        ["x.npy"],
        ["x.pt"],
        ["two.pt", "--tensor", "a"],
        ["two.safetensors", "--tensor", "a"],
    ):
        file, *rest = arguments
        assert main(["verify", "--device", "cpu", "--file", str(tmp_path / file), *rest]) == 0
        assert "5 x 2 x 24" in capsys.readouterr().out


class _Malicious:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return (exec, ("raise SystemExit('the file ran code')",))


def _write_files(folder: Path) -> None:
    torch.save({"weight": torch.zeros(2, 3), "other": torch.zeros(3)}, folder / "two.pt")
    torch.save(torch.zeros(2, 3, dtype=torch.int64), folder / "integers.pt")
    torch.save(torch.tensor(1.0), folder / "scalar.pt")
    torch.save([1, 2, 3], folder / "list.pt")
    torch.save(_Malicious(), folder / "malicious.pt")
    for suffix in ("npy", "pt", "safetensors"):
        (folder / f"text.{suffix}").write_text("no tensor at all, but a line of text in a file")
        (folder / f"empty.{suffix}").touch()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--file", "missing.npy"], "no such file"),
        (["--file", "image.png"], "expected a file ending in .npy"),
        (
            ["--file", "two.pt"],
            "choose one with --tensor NAME: other, weight",
        ),
        (
            ["--file", "two.pt", "--tensor", "wieght"],
            "did you mean weight?",
        ),
        (["--file", "integers.pt"], "but got torch.int64"),
        (["--file", "scalar.pt"], "but got shape ()"),
        (["--file", "list.pt"], "expected a tensor or a dict of them, but got list"),
        (["--file", "malicious.pt"], "not a file of tensors that loads safely"),
        (["--file", "text.npy"], "not a tensor in .npy format"),
        (["--file", "text.pt"], "not a file of tensors that loads safely"),
        (["--file", "text.safetensors"], "not in safetensors format"),
        (["--file", "empty.npy"], "not a tensor in .npy format"),
        (["--file", "empty.pt"], "not a file of tensors that loads safely"),
        (["--file", "empty.safetensors"], "not in safetensors format"),
        (["--file", "two.pt", "--rows", "2"], "--rows and --cols are for random data"),
        (["--tensor", "weight"], "--tensor NAME needs --file"),
        (["--device", "cuda:99"], "there is no such GPU"),
        (["--device", "warp"], "expected cpu, cuda or cuda:N"),
        (["--device", "meta"], "expected cpu or cuda"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
        (["--rows", "0"], "expected a positive integer, but got 0"),
    ],
)
def test_what_cannot_be_verified_is_one_line_and_status_2(
    arguments: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("safetensors")
    _write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    try:
        status = main(["verify", *arguments])
    except SystemExit as stop:  # argparse's way of refusing an argument
        status = stop.code
    assert status == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert text in printed.err
    assert len(printed.err.splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_never_replaced_by_the_cpu(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["verify", "--device", "cuda"]) == 2
    assert "PASS" not in capsys.readouterr().out


def test_a_device_without_a_kernel_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = devices.DeviceReport("cuda:0", "Some GPU", "gfx942", None, "built for gfx90a")
    monkeypatch.setattr(devices, "report", lambda device: report)
    assert main(["verify", "--device", "cuda"]) == 2
    assert "cuda:0 (Some GPU): built for gfx90a" in capsys.readouterr().err


def test_the_module_runs_as_a_program_and_its_status_reaches_the_shell() -> None:
    command = [sys.executable, "-m", "simple_layernorm", "verify"]
    passed = subprocess.run([*command, *SMALL], capture_output=True, text=True, check=False)
    assert (passed.returncode, passed.stderr) == (0, "")
    refused = subprocess.run(
        [*command, "--file", "no.npy"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr


def test_cmake_dir_is_inside_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cmake-dir"]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert folder.parts[-4:] == ("simple_layernorm", "share", "cmake", "simple_layernorm")


def test_info_prints_versions_and_a_line_per_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    assert torch.__version__ in printed
    assert f"cpu/{_C.cpu_level()}" in printed


def test_info_as_json_is_the_same_information(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["torch"]["version"] == torch.__version__
    assert found["gpu_language"] in ("hip", "cuda", "off")
    assert found["devices"][0]["kernel"] == f"cpu/{found['cpu_level']}"
    assert len(found["devices"]) == 1 + torch.cuda.device_count()
