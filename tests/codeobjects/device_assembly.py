"""Compiles the GPU kernels for AMD devices and reads what the compiler made of them.

    python tests/codeobjects/device_assembly.py [ARCHITECTURE ...]

No AMD GPU is needed, nor ROCm: the clang that Debian's hipcc depends on and its device libraries
write assembly text, which holds the instructions and the metadata of the code object. Texts are
kept in build/codeobjects under a name made of all that went into them.
"""

import hashlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

PROJECT = Path(__file__).resolve().parents[2]
SRC = PROJECT / "src"
BUILDS = PROJECT / "build" / "codeobjects"
ARCHITECTURES = ("gfx90a", "gfx1030")  # waves of 64, waves of 32


def clang() -> str | None:
    """The clang that hipcc depends on, by Debian's name."""
    names = (f"clang++-{version}" for version in range(21, 14, -1))
    installed = [path for path in map(which, names) if path is not None]
    return installed[-1] if installed else None


def device_libraries() -> Path | None:
    """The folder of AMD's device libraries."""
    found = sorted(Path("/usr/lib").glob("*/amdgcn/bitcode/ockl.bc"))
    return found[0].parent if found else None


def missing_tool() -> str | None:
    """What is needed to compile and is not installed; None if all is there."""
    if clang() is None or device_libraries() is None or not Path("/usr/include/hip").exists():
        return "needs clang for AMD GPUs: apt-get install hipcc libamdhip64-dev"
    return None


@dataclass
class Kernel:
    """One kernel in one code object."""

    name: str
    architecture: str
    metadata: dict[str, int] = field(default_factory=dict)
    instructions: Counter[str] = field(default_factory=Counter)
    dpp: int = 0  # instructions that take an operand from another lane

    def count(self, pattern: str) -> int:
        return sum(n for name, n in self.instructions.items() if re.fullmatch(pattern, name))

    @property
    def spills(self) -> int:
        return self.metadata["vgpr_spill_count"] + self.metadata["sgpr_spill_count"]

    @property
    def scratch_bytes(self) -> int:
        return self.metadata["private_segment_fixed_size"]

    @property
    def shared_bytes(self) -> int:
        return self.metadata["group_segment_fixed_size"]

    @property
    def wide_loads(self) -> int:
        return self.count(r"global_load_(dwordx4|b128)")

    @property
    def wide_stores(self) -> int:
        return self.count(r"global_store_(dwordx4|b128)")

    @property
    def moves_through_shared_memory(self) -> int:
        return self.count(r"ds_b?permute_b32|ds_swizzle_b32")

    @property
    def template(self) -> str:
        return self.name.partition("<")[0]


def run(*command: str | Path, text: str | None = None) -> str:
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{result.stderr}")
    return result.stdout


def compile_kernels(source: Path, architecture: str) -> str:
    """The assembly text of a .hip file, compiled as the library is."""
    options = [
        *("-x", "hip", "-std=c++17", "--cuda-device-only", f"--offload-arch={architecture}"),
        *("-O3", "-ffp-contract=off", "-w"),
        *("--rocm-path=/usr", f"--rocm-device-lib-path={device_libraries()}"),
        *(f"-I{SRC}", f"-I{SRC / 'include'}"),
        f'-DSIMPLE_LAYERNORM_GPU_ARCHITECTURES="{architecture}"',
    ]
    compiler = clang() or "clang++"
    listing = run(compiler, *options, "-MM", source).partition(":")[2].replace("\\\n", " ")
    digest = hashlib.sha256(" ".join([compiler, *options]).encode())
    for name in listing.split():
        digest.update(Path(name).read_bytes())
    path = BUILDS / f"{source.stem}.{architecture}.{digest.hexdigest()[:20]}.s"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        run(compiler, *options, "-S", "-o", path.with_suffix(".unfinished"), source)
        path.with_suffix(".unfinished").rename(path)
    return path.read_text()


def short_names(mangled: Iterable[str]) -> list[str]:
    """Demangled, without namespaces and parameters."""
    names = run("c++filt", text="\n".join(mangled)).splitlines()
    noise = r"simple_layernorm::|gpu::|\(anonymous namespace\)::|^void "
    return [re.sub(noise, "", name).partition("(")[0] for name in names]


def parse(text: str, architecture: str) -> list[Kernel]:
    """The kernels of an assembly text."""
    code, _, metadata = text.partition(".amdgpu_metadata")
    entries = re.split(r"^  - ", metadata, flags=re.MULTILINE)[1:]
    kernels = {}
    for entry in entries:
        symbol = re.search(r"\.name: +(\S+)", entry)
        if symbol is None:
            continue
        numbers = re.findall(r"^ *\.(\w+): +(\d+)$", entry, flags=re.MULTILINE)
        kernels[symbol[1]] = Kernel(symbol[1], architecture, {k: int(v) for k, v in numbers})

    current = None
    for line in code.splitlines():
        if label := re.match(r"(\w+):", line):
            current = kernels.get(label[1])
        elif line.startswith(".Lfunc_end"):
            current = None
        elif current is not None and (instruction := re.match(r"\t([a-z]\w+)(.*)", line)):
            current.instructions[instruction[1]] += 1
            current.dpp += bool(re.search(r"quad_perm:|row_\w+:|row_(half_)?mirror", line))
    for kernel, name in zip(kernels.values(), short_names(kernels), strict=True):
        kernel.name = name
    return list(kernels.values())


def kernels_of(architecture: str) -> list[Kernel]:
    """All kernels of the library, compiled for one architecture."""
    listed = re.search(r"set\(kernel_files\s([^)]*)\)", (SRC / "gpu/CMakeLists.txt").read_text())
    sources = [SRC / "gpu" / name for name in listed[1].split()] if listed else []
    with ThreadPoolExecutor(2) as pool:
        texts = pool.map(lambda source: compile_kernels(source, architecture), sources)
        return [kernel for text in texts for kernel in parse(text, architecture)]


def table(kernels: list[Kernel]) -> str:
    head = f"{'kernel':58s} VGPRs SGPRs spills scratch   LDS  DPP permutes 16-byte loads stores"
    rows = [
        f"{k.name:58s} {k.metadata['vgpr_count']:5d} {k.metadata['sgpr_count']:5d} {k.spills:6d} "
        f"{k.scratch_bytes:7d} {k.shared_bytes:5d} {k.dpp:4d} {k.moves_through_shared_memory:8d} "
        f"{k.wide_loads:13d} {k.wide_stores:6d}"
        for k in sorted(kernels, key=lambda k: k.name)
    ]
    return "\n".join([head, *rows])


if __name__ == "__main__":
    if reason := missing_tool():
        sys.exit(reason)
    for chosen in sys.argv[1:] or ARCHITECTURES:
        print(f"{chosen}\n{table(kernels_of(chosen))}")
