"""Which kernel of this build serves a device, or why none does."""

import platform
from dataclasses import dataclass
from pathlib import Path

import torch

from simple_layernorm import _C, _build_info
from simple_layernorm.errors import UserError
from simple_layernorm.functional import layer_norm


@dataclass(frozen=True)
class DeviceReport:
    """What this build can do on a device.

    `kernel` names what runs there, as "cpu/avx512", "hip/gfx90a" or "cuda/sm_90"; it is None where
    nothing does, and `reason` then says why in one line.
    """

    device: str
    name: str
    architecture: str
    kernel: str | None
    reason: str = ""


def report(device: torch.device) -> DeviceReport:
    """Describes a device. Raises UserError if the running torch has no such device."""
    if device.type == "cpu":
        level = _C.cpu_level()
        return DeviceReport("cpu", _cpu_name(), platform.machine(), f"cpu/{level}")
    if device.type != "cuda":
        raise UserError(
            f"device {device}: expected cpu or cuda (torch's name for AMD GPUs too), "
            f"but got {device.type}"
        )
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = device.index or 0
    if index >= count:
        flavour = torch.version.hip or torch.version.cuda
        why = (
            f"torch {torch.__version__} sees {count} GPUs"
            if flavour
            else (f"torch {torch.__version__} is a build without GPU support")
        )
        raise UserError(f"device {device}: there is no such GPU; {why}")
    return _gpu_report(index)


def all_reports() -> list[DeviceReport]:
    """The CPU, then every GPU that torch sees."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [report(torch.device("cpu")), *(_gpu_report(index) for index in range(count))]


def _gpu_report(index: int) -> DeviceReport:
    properties = torch.cuda.get_device_properties(index)
    torch_language = "hip" if torch.version.hip else "cuda"
    architecture = f"sm_{properties.major}{properties.minor}"
    if torch.version.hip:
        architecture = properties.gcnArchName.split(":")[0]
    reason = _reason_for_no_kernel(index, torch_language)
    kernel = None if reason else f"{torch_language}/{architecture}"
    return DeviceReport(f"cuda:{index}", properties.name, architecture, kernel, reason)


def _reason_for_no_kernel(index: int, torch_language: str) -> str:
    language, _ = _C.gpu_build()
    rebuild = (
        f"rebuild with --config-settings cmake.define.SIMPLE_LAYERNORM_GPU={torch_language.upper()}"
    )
    if language == "off":
        return f"this build has no GPU kernels ({_build_info.gpu_reason}); {rebuild}"
    if language != torch_language:
        return f"this build's kernels are {language}, torch's are {torch_language}; {rebuild}"
    try:  # which code runs on which device is for the library to say
        layer_norm(torch.zeros(1, 8, device=f"cuda:{index}"), (8,))
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.is_file() else []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
