"""What is installed, what was built and which device has a kernel: paste it into a bug report."""

import argparse
import dataclasses
import json
import platform
from importlib import metadata
from typing import Any

import torch

from simple_layernorm import _C, _build_info, devices


def collect() -> dict[str, Any]:
    """Everything that `info --json` prints."""
    language, architectures = _C.gpu_build()
    return {
        "simple_layernorm": metadata.version("simple-layernorm"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": {
            "version": torch.__version__,
            "hip": torch.version.hip,
            "cuda": torch.version.cuda,
            "threads": torch.get_num_threads(),
        },
        "build": {k: v for k, v in vars(_build_info).items() if not k.startswith("_")},
        "gpu_language": language,
        "gpu_architectures": architectures.split(";") if architectures else [],
        "cpu_level": _C.cpu_level(),
        "devices": [dataclasses.asdict(device) for device in devices.all_reports()],
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints; returns 0."""
    found = collect()
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    build = found["build"]
    lines = {
        "simple_layernorm": f"{found['simple_layernorm']}, kernels {build['kernel_sources'][:12]}",
        "python": f"{found['python']} on {found['platform']}",
        "torch": _torch_line(found["torch"]),
        "built with": f"torch {build['torch_version']} ({build['torch_flavour']}), "
        f"Python {build['python_version']}, {build['cxx_compiler']}, CMake "
        f"{build['cmake_version']}, {build['build_type']}",
        "GPU kernels": _gpu_line(found),
        "CPU kernels": found["cpu_level"],
    }
    for device in found["devices"]:
        kernel = device["kernel"] or f"no kernel: {device['reason']}"
        lines[device["device"]] = f"{device['name']} ({device['architecture']}): {kernel}"
    width = max(len(name) for name in lines)
    for name, value in lines.items():
        print(f"{name:{width}}  {value}")
    return 0


def _gpu_line(found: dict[str, Any]) -> str:
    if found["gpu_language"] == "off":
        return f"none: {found['build']['gpu_reason']}"
    architectures = " ".join(found["gpu_architectures"])
    return f"{found['gpu_language']} for {architectures}, {found['build']['gpu_compiler']}"


def _torch_line(found: dict[str, Any]) -> str:
    flavour = "CPU only"
    if found["hip"]:
        flavour = f"ROCm {found['hip']}"
    elif found["cuda"]:
        flavour = f"CUDA {found['cuda']}"
    return f"{found['version']} ({flavour}), {found['threads']} CPU threads"
