"""Builds the driver that runs the GPU kernels on the CPU.

    python tests/emulation/emulated_driver.py --wave 64 [--run]

The kernel files are those that CMake compiles, unchanged. A driver is kept in build/emulation under
a name made of everything that went into it, so that an unchanged tree costs no compilation.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
BUILDS = PROJECT / "build" / "emulation"

# -O1: at -O2 the compiler merges or splits calls of wave operations. No position independence, so
# that addr2line takes run-time addresses.
COMMON = "-std=c++17 -g -O1 -no-pie -fno-pie -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas"
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined"
DEFINITIONS = ['-DSIMPLE_LAYERNORM_GPU_ARCHITECTURES="gfx90a;gfx1030"']


class BuildError(Exception):
    """The compiler refused a file; the text is what it said."""


@dataclass(frozen=True)
class Tree:
    """Where the product's sources lie: the project, or a changed copy of its src."""

    src: Path = PROJECT / "src"

    def kernel_files(self) -> list[Path]:
        """The .hip files that CMake compiles."""
        text = (self.src / "gpu" / "CMakeLists.txt").read_text()
        listed = re.search(r"set\(kernel_files ([^)]*)\)", text)
        if listed is None:
            raise BuildError("src/gpu/CMakeLists.txt: expected set(kernel_files ...)")
        return [self.src / "gpu" / name for name in listed[1].split()]


def compiler() -> list[str]:
    return (["ccache"] if shutil.which("ccache") else []) + ["g++"]


def fingerprint(tree: Tree, wave: int) -> str:
    digest = hashlib.sha256(f"{wave} {COMMON} {SANITIZERS}".encode())
    for folder in (tree.src / "gpu", tree.src / "math", tree.src / "include", HERE):
        for path in sorted(folder.rglob("*")):
            if path.suffix in {".hip", ".hpp", ".h", ".cpp", ".ld", ".txt", ".py"}:
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def run_compiler(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{result.stderr}")


def build(wave: int, tree: Tree = Tree(), jobs: int = 2) -> Path:
    """Path of the driver for waves of this size, built if need be."""
    folder = BUILDS / fingerprint(tree, wave)
    driver = folder / "driver"
    if driver.exists():
        return driver
    folder.mkdir(parents=True, exist_ok=True)

    flags = [
        *COMMON.split(),
        f"-DSIMPLE_LAYERNORM_EMULATED_WAVE={wave}",
        *DEFINITIONS,
        *(f"-I{path}" for path in (HERE / "include", HERE, tree.src, tree.src / "include")),
    ]
    commands, objects = [], []

    def compile_file(source: Path, *more: str) -> None:
        objects.append(str(folder / f"{source.parent.name}_{source.name}.o"))
        commands.append([*compiler(), *flags, *more, "-c", str(source), "-o", objects[-1]])

    # The runtime switches stacks and moves shared memory about: nothing for sanitizers to watch.
    for source in sorted((HERE / "runtime").glob("*.cpp")):
        compile_file(source, "-O2")
    for source in sorted((HERE / "driver").glob("*.cpp")):
        compile_file(source, *SANITIZERS.split())
    for source in tree.kernel_files():
        compile_file(source, *SANITIZERS.split(), "-fdata-sections", "-x", "c++")
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run_compiler, commands))

    script = f"-Wl,-T,{HERE / 'shared_memory.ld'}"
    unfinished = folder / f"driver.{os.getpid()}"
    run_compiler(["g++", *SANITIZERS.split(), "-no-pie", *objects, script, "-o", str(unfinished)])
    unfinished.rename(driver)
    return driver


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wave", type=int, choices=(32, 64), default=64)
    parser.add_argument("--run", nargs="*", metavar="ARGUMENT", help="run the driver with these")
    options = parser.parse_args()
    try:
        driver = build(options.wave)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(driver)
    return 0 if options.run is None else subprocess.call([str(driver), *options.run])


if __name__ == "__main__":
    sys.exit(main())
