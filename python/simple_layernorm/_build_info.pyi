"""How this installation was built. Written by CMake."""

version: str
python_version: str
torch_version: str
"""Of the torch that was linked, such as "2.13.0+cpu"."""
torch_flavour: str
""""cpu", "cuda" or "rocm"."""
gpu_language: str
""""hip", "cuda" or "off"."""
gpu_architectures: str
"""Semicolon-separated, such as "gfx90a;gfx1030"; empty when off."""
gpu_reason: str
"""Why there are no GPU kernels; empty when there are."""
cxx_compiler: str
gpu_compiler: str
build_type: str
cmake_version: str
kernel_sources: str
"""sha256 of the files of src/gpu and src/math, one after another in the order of their paths."""
cpu_kernel_sources: str
"""The same of src/cpu and src/math."""
