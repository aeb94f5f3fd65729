"""Stand-ins for what no machine here has: torch builds for GPUs, another torch version, a ROCm."""

import re
import shutil
from pathlib import Path

from environments import TORCH, run

USR = Path("/usr")


def debian_hip() -> tuple[Path, Path, str]:
    """Of Debian's HIP: the folder of its CMake packages, its device libraries, its compiler."""
    (hip_lang,) = USR.glob("lib/*/cmake/hip-lang")
    device_libraries = [
        *USR.glob("lib/*/amdgcn/bitcode"),  # Debian 12
        *USR.glob("lib/llvm-*/lib/clang/*/amdgcn/bitcode"),  # Debian 13
    ]
    depends = run(["dpkg-query", "--show", "--showformat=${Depends}", "hipcc"])
    (version,) = set(re.findall(r"clang-(\d+)", depends))
    return hip_lang.parent, device_libraries[0], f"clang++-{version}"


def debian_stand_in(folder: Path, device_libraries: str) -> Path:
    """/usr as a Debian release has it that puts the device libraries there."""
    packages, bitcode, _ = debian_hip()
    links = {
        "include/hip": USR / "include" / "hip",
        f"lib/{packages.parent.name}/cmake": packages,
        device_libraries: bitcode,
    }
    for name, target in links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    return folder


def torch_stand_in(
    folder: Path,
    version: str = "2.13.0",
    hip: str | None = None,
    cuda: str | None = None,
    architectures: str = "",
) -> Path:
    """The installed torch under another version and flavour: links to its files, the library that
    a GPU build has beside them, and `architectures` as those that it was built for."""
    package = folder / "torch"
    (package / "lib").mkdir(parents=True)
    for file in TORCH.iterdir():
        if file.name not in {"lib", "version.py", "__init__.py", "__pycache__"}:
            (package / file.name).symlink_to(file)
    for file in (TORCH / "lib").iterdir():
        (package / "lib" / file.name).symlink_to(file)
    for name in ["libtorch_hip.so"] * bool(hip) + ["libtorch_cuda.so"] * bool(cuda):
        link = package / "lib" / name
        if not link.exists():
            link.symlink_to(TORCH / "lib" / "libtorch_cpu.so")
    (package / "version.py").write_text(
        f"from typing import Optional\n__version__ = '{version}'\ndebug = False\n"
        f"cuda: Optional[str] = {cuda!r}\ngit_version = '0'\nhip: Optional[str] = {hip!r}\n"
        "rocm: Optional[str] = None\nxpu: Optional[str] = None\n"
    )
    (package / "__init__.py").write_text(
        (TORCH / "__init__.py").read_text()
        + f"\n_C._cuda_getArchFlags = lambda: {architectures!r}\n"
    )
    return package


def rocm_stand_in(folder: Path, version: str | None = None) -> Path:
    """A folder laid out as /opt/rocm is, made of Debian's packages."""
    packages, bitcode, clang = debian_hip()
    for name in ("hip-lang", "amd_comgr"):
        link = folder / "lib" / "cmake" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(packages / name)
    shutil.copytree("/usr/include/hip", folder / "include" / "hip")
    if version is not None:
        major, minor = version.split(".")
        (folder / "include" / "hip" / "hip_version.h").write_text(
            f"#define HIP_VERSION_MAJOR {major}\n#define HIP_VERSION_MINOR {minor}\n"
        )
    compiler = folder / "lib" / "llvm" / "bin" / "clang++"
    compiler.parent.mkdir(parents=True)
    compiler.write_text(
        f'#!/bin/sh\nexec {clang} --rocm-path=/usr --rocm-device-lib-path={bitcode} "$@"\n'
    )
    compiler.chmod(0o755)
    (folder / "lib" / "llvm" / "lib").mkdir()
    (folder / "lib" / "llvm" / "lib" / "clang").symlink_to("/usr/lib/clang")
    return folder
