"""What is installed, what was built and which device has a kernel: paste it into a bug report."""

import argparse
import dataclasses
import importlib
import json
import platform
from importlib import metadata
from typing import Any

import torch

from simple_layernorm import _C, devices


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
        "build": _build_information(),
        "gpu_language": language,
        "gpu_architectures": architectures.split(";") if architectures else [],
        "cpu_level": _C.cpu_level(),
        "devices": [dataclasses.asdict(device) for device in devices.all_reports()],
    }


def _build_information() -> dict[str, Any]:
    """The names that the build wrote into _build_info.py."""
    try:
        module = importlib.import_module("simple_layernorm._build_info")
    except ModuleNotFoundError:
        return {}
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prints; returns 0."""
    found = collect()
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    lines = {
        "simple_layernorm": found["simple_layernorm"],
        "python": f"{found['python']} on {found['platform']}",
        "torch": _torch_line(found["torch"]),
        **{f"build {name}": value for name, value in found["build"].items()},
        "GPU kernels": " ".join([found["gpu_language"], *found["gpu_architectures"]]),
        "CPU level": found["cpu_level"],
    }
    for device in found["devices"]:
        kernel = device["kernel"] or f"no kernel: {device['reason']}"
        lines[device["device"]] = f"{device['name']} ({device['architecture']}): {kernel}"
    width = max(len(name) for name in lines)
    for name, value in lines.items():
        print(f"{name:{width}}  {value}")
    return 0


def _torch_line(found: dict[str, Any]) -> str:
    flavour = "CPU only"
    if found["hip"]:
        flavour = f"ROCm {found['hip']}"
    elif found["cuda"]:
        flavour = f"CUDA {found['cuda']}"
    return f"{found['version']} ({flavour}), {found['threads']} CPU threads"
