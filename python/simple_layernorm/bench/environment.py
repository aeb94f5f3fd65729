"""Where and from which sources a measurement comes: what is written beside every figure."""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from simple_layernorm import _C
from simple_layernorm.devices import report

# Page faults of fresh outputs cost more than the work on them: from 32 MB on, a copy into a warm
# buffer takes 2.0 ms and into a fresh tensor 15.6 ms (2048 x 4096 float32). With these, glibc keeps
# freed memory, so that a fresh output is one whose pages the process already has.
STEADY_ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
PLAN = "SIMPLE_LAYERNORM_PLAN"


def plan_can_be_chosen() -> bool:
    """Whether this build's GPU library asks for PLAN at all: if not, figures of another plan would
    be those of the device's own under a false name."""
    libraries = (Path(_C.__file__).parent / "lib").glob("*gpu*")
    return any(PLAN.encode() in library.read_bytes() for library in libraries)


def allocator_is_steady() -> bool:
    return all(os.environ.get(name) == value for name, value in STEADY_ALLOCATOR.items())


def restart_with_steady_allocator() -> None:
    """Replaces this process by itself: glibc reads the variables when a process starts."""
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, {**os.environ, **STEADY_ALLOCATOR})


def kernel_sources(device: str) -> str | None:
    """The hash of the kernel sources that the installed library was built from."""
    try:
        build = importlib.import_module("simple_layernorm._build_info")
    except ImportError:
        return None
    return getattr(build, "cpu_kernel_sources" if device == "cpu" else "kernel_sources", None)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _driver() -> str | None:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.splitlines()[0].strip() if answer.stdout.strip() else None


def gather(device: str, plan: str, clock: str) -> dict[str, Any]:
    """One run's environment, as it goes into the results file."""
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["python", *sys.orig_argv[1:]]),
        "device": device,
        "plan": plan,
        "kernel_sources": kernel_sources(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu": report(torch.device("cpu")).name,
        "kernel": report(torch.device(device)).kernel,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "peers": {
            name: version
            for name in ("triton", "liger-kernel", "quack-kernels", "apex")
            if (version := _version(name))
        },
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        found |= {
            "gpu": properties.name,
            "runtime": f"HIP {torch.version.hip}"
            if torch.version.hip
            else f"CUDA {torch.version.cuda}",
            "driver": _driver(),
        }
    else:
        found |= {"clock": clock, "steady_allocator": allocator_is_steady()}
    return found
