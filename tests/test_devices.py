"""Which kernel serves a device, and why none does; GPUs are acted where there are none."""

from types import SimpleNamespace

import pytest
import torch

from simple_layernorm import _C, devices


def _act_as_gpu(
    monkeypatch: pytest.MonkeyPatch,
    build: str,
    *,
    hip: str | None = None,
    error: str | None = None,
) -> None:
    def layer_norm(input: object, normalized_shape: object) -> None:
        if error:
            raise RuntimeError(error)

    properties = SimpleNamespace(name="A GPU", major=9, minor=0, gcnArchName="gfx90a:sramecc+")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch, "zeros", lambda *size, device: None)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(devices, "layer_norm", layer_norm)
    monkeypatch.setattr(_C, "gpu_build", lambda: (build, "an architecture"))


def _report() -> devices.DeviceReport:
    return devices.report(torch.device("cuda"))


def test_the_cpu_always_has_a_kernel() -> None:
    report = devices.all_reports()[0]
    assert report.device == "cpu"
    assert report.kernel == f"cpu/{_C.cpu_level()}"


def test_an_amd_gpu_is_named_by_its_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    _act_as_gpu(monkeypatch, "hip", hip="7.0")
    assert _report() == devices.DeviceReport("cuda:0", "A GPU", "gfx90a", "hip/gfx90a", "")


def test_an_nvidia_gpu_is_named_by_its_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    _act_as_gpu(monkeypatch, "cuda")
    assert _report().kernel == "cuda/sm_90"


@pytest.mark.parametrize(
    ("build", "hip", "error", "text"),
    [
        ("off", None, None, "this build has no GPU kernels"),
        (
            "off",
            None,
            None,
            "rebuild with --config-settings cmake.define.SIMPLE_LAYERNORM_GPU=CUDA",
        ),
        (
            "off",
            "7.0",
            None,
            "rebuild with --config-settings cmake.define.SIMPLE_LAYERNORM_GPU=HIP",
        ),
        ("hip", None, None, "kernels are hip, torch's are cuda"),
        ("cuda", None, "no libamdhip64\nand a trace", "no libamdhip64"),
    ],
)
def test_a_gpu_without_a_kernel_says_why_in_one_line(
    build: str, hip: str | None, error: str | None, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _act_as_gpu(monkeypatch, build, hip=hip, error=error)
    report = _report()
    assert report.kernel is None
    assert text in report.reason
    assert "\n" not in report.reason


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_gpu_of_this_build_has_a_kernel() -> None:
    if _C.gpu_build()[0] == "off":
        assert devices.report(torch.device("cuda")).kernel is None
    else:
        assert devices.report(torch.device("cuda")).kernel is not None
