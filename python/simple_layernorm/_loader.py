"""Imported before the compiled module: raises ImportError unless torch is the one that it links.

Under another minor version it may load and compute wrongly, or fail on a mangled name. Under a
torch for the other GPU language two GPU runtimes would meet in one process.
"""

import torch

try:
    from simple_layernorm import _build_info as build
except ImportError as error:
    raise ImportError(
        "simple_layernorm was imported from its source tree; install it: pip install ."
    ) from error


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _difference(running: str) -> str | None:
    if _minor(running) != _minor(build.torch_version):
        return f"was built for torch {build.torch_version}"
    foreign_runtime = {"hip": torch.version.cuda, "cuda": torch.version.hip}.get(build.gpu_language)
    if foreign_runtime is not None:
        return f"has {build.gpu_language.upper()} kernels"
    return None


if difference := _difference(str(torch.__version__)):
    raise ImportError(
        f"simple_layernorm {difference}, but the installed torch is {torch.__version__}; rebuild "
        "it in its source tree: pip install --force-reinstall --no-deps ."
    )
