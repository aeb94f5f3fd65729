"""Takes the library of GPU kernels apart and reads what the compiler made of it for AMD devices.

    python tests/codeobjects/device_assembly.py [ARCHITECTURE ...]

No AMD GPU is needed, nor ROCm: CMake builds the library as for a wheel, and the LLVM tools that
Debian's hipcc depends on list instructions and metadata of the code objects inside.
"""

import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

PROJECT = Path(__file__).resolve().parents[2]
ARCHITECTURES = ("gfx90a", "gfx1030")  # waves of 64, waves of 32


def llvm(tool: str) -> str | None:
    """A tool of the LLVM that hipcc depends on: the oldest there is, by Debian's name."""
    found = [path for n in range(15, 30) if (path := which(f"llvm-{tool}-{n}")) is not None]
    return found[0] if found else None


def missing_tool() -> str | None:
    """What is needed to build and to read, and is not installed; None if all is there."""
    if which("hipcc") is None or llvm("objdump") is None:
        return "needs a compiler for AMD GPUs: apt-get install hipcc libamdhip64-dev"
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


def run(*command: str | Path | None, text: str | None = None) -> str:
    words = [str(word) for word in command]
    result = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}\n{result.stdout}{result.stderr}")
    return result.stdout


def build(architectures: Iterable[str]) -> Path:
    """The library of GPU kernels. With ccache it comes from the objects of any other HIP build."""
    folder = PROJECT / "build" / "-".join(["codeobjects", *architectures])
    options = ["-DSIMPLE_LAYERNORM_GPU=HIP", f"-DCMAKE_HIP_ARCHITECTURES={';'.join(architectures)}"]
    run("cmake", "-G", "Ninja", "-S", PROJECT, "-B", folder, *options)
    run("cmake", "--build", folder, "--target", "simple_layernorm_gpu", "-j2")
    return folder / "src" / "libsimple_layernorm_gpu.so"


def code_objects(library: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Architecture and file of each code object; the library holds a bundle per source file."""
    section = folder / "hip_fatbin"
    run(llvm("objcopy"), f"--dump-section=.hip_fatbin={section}", library, "/dev/null")
    content = section.read_bytes()
    for bundle in re.finditer(b"__CLANG_OFFLOAD_BUNDLE__", content):
        (entries,) = struct.unpack_from("<Q", content, bundle.end())
        at = bundle.end() + 8
        for _ in range(entries):
            offset, size, length = struct.unpack_from("<QQQ", content, at)
            target = content[at + 24 : at + 24 + length].decode()
            at += 24 + length
            if "amdgcn" in target:
                path = folder / f"{bundle.start()}.{target}"
                start = bundle.start() + offset
                path.write_bytes(content[start : start + size])
                yield target.partition("--")[2], path


def short_names(mangled: Iterable[str]) -> list[str]:
    """Demangled, without namespaces and parameters."""
    names = run("c++filt", text="\n".join(mangled)).splitlines()
    noise = r"simple_layernorm::|gpu::|\(anonymous namespace\)::|^void "
    return [re.sub(noise, "", name).partition("(")[0] for name in names]


def parse(code: str, metadata: str, architecture: str) -> list[Kernel]:
    """The kernels of a code object, from what llvm-objdump and llvm-readelf say of it."""
    kernels = {}
    for entry in re.split(r"^  - ", metadata, flags=re.MULTILINE)[1:]:
        symbol = re.search(r"\.name: +(\S+)", entry)
        if symbol is None:
            continue
        numbers = re.findall(r"^ *\.(\w+): +(\d+)$", entry, flags=re.MULTILINE)
        kernels[symbol[1]] = Kernel(symbol[1], architecture, {k: int(v) for k, v in numbers})

    current = None
    for line in code.splitlines():
        if label := re.match(r"<(\S+)>:", line):
            current = kernels.get(label[1])
        elif current is not None and (instruction := re.match(r"\t([a-z]\w+)", line)):
            current.instructions[instruction[1]] += 1
            current.dpp += bool(re.search(r"quad_perm:|row_\w+:|row_(half_)?mirror", line))
    for kernel, name in zip(kernels.values(), short_names(kernels), strict=True):
        kernel.name = name
    return list(kernels.values())


def kernels_of(library: Path) -> list[Kernel]:
    """All kernels of a library, for every architecture that it was built for."""
    found = []
    with TemporaryDirectory() as folder:
        for architecture, path in code_objects(library, Path(folder)):
            code = run(llvm("objdump"), "-d", "--no-show-raw-insn", "--no-leading-addr", path)
            found += parse(code, run(llvm("readelf"), "--notes", path), architecture)
    return found


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
    chosen = sys.argv[1:] or ARCHITECTURES
    all_kernels = kernels_of(build(chosen))
    for name in chosen:
        print(f"{name}\n{table([k for k in all_kernels if k.architecture == name])}")
