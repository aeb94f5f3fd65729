"""Builds the drivers that run the GPU kernels on the CPU.

    python tests/emulation/emulated_driver.py --wave 64 --checks races --run

The kernel files are those that CMake compiles, unchanged. There are two drivers per wave size, as
the compiler can watch for one kind of mistake at a time:
    bounds  AddressSanitizer and UndefinedBehaviorSanitizer: every bound, alignment and overflow
    races   every access goes through runtime/access_hooks.cpp: accesses that no barrier orders,
            reads of what nobody has written, writes to inputs
What was compiled is kept in build/emulation under a name made of all that went into it.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
BUILDS = PROJECT / "build" / "emulation"

# -O1: at -O2 the compiler takes minutes. -g1: lines of code, of which messages speak, and no more.
# Fixed addresses are what addr2line reads.
COMMON = "-std=c++17 -g1 -O1 -no-pie -fno-pie -ffp-contract=off -Wall -Wextra"
# The undefined behaviour that kernels are prone to, checked by calls instead of inline: compiling
# the bfloat16 kernels takes 12 s instead of 35 with -g, all of "undefined" and inline checks.
SANITIZERS = [
    "-fsanitize=address,alignment,bounds,shift,signed-integer-overflow,float-cast-overflow",
    "-fno-sanitize-recover=all",
    "--param=asan-instrumentation-with-call-threshold=0",
]
WATCHED = ["-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0"]
KERNEL = [
    "-w",  # the build warns
    "-fdata-sections",
    '-DSIMPLE_LAYERNORM_GPU_ARCHITECTURES="gfx90a;gfx1030"',
    *("-x", "c++"),
]
CHECKS = ("bounds", "races")
PASSES = ("forward", "backward")


class BuildError(Exception):
    """The compiler refused a file; the text is what it said."""


@dataclass(frozen=True)
class Object:
    """A source file with the options that it is compiled with."""

    source: Path
    options: tuple[str, ...]

    def contents(self) -> str:
        """A name for everything that decides what the object file holds."""
        listing = run_compiler([*self.options, "-MM", str(self.source)])
        names = listing.partition(":")[2].replace("\\\n", " ").split()
        digest = hashlib.sha256(" ".join(o for o in self.options if o[:2] != "-I").encode())
        for name in names:
            digest.update(Path(name).name.encode() + Path(name).read_bytes())
        return digest.hexdigest()[:20]

    def compiled(self) -> Path:
        path = BUILDS / f"{self.source.name}.{self.contents()}.o"
        if not path.exists():
            with written_at_once(path) as unfinished:
                run_compiler([*self.options, "-c", str(self.source), "-o", str(unfinished)])
        return path


class written_at_once:
    """A name to write to that becomes `path` at the end, so that nobody sees half a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unfinished = path.with_name(f"{os.getpid()}.{id(self)}.{path.name}")

    def __enter__(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.unfinished

    def __exit__(self, failure: object, *_: object) -> None:
        if failure is None:
            self.unfinished.rename(self.path)


def run_compiler(arguments: list[str]) -> str:
    result = subprocess.run(["g++", *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"g++ {' '.join(arguments)}\n{result.stderr}")
    return result.stdout


def kernel_files(src: Path) -> list[Path]:
    """The .hip files that CMake compiles."""
    listed = re.search(
        r"set\(kernel_files\s([^)]*)\)", (src / "gpu" / "CMakeLists.txt").read_text()
    )
    if listed is None:
        raise BuildError("src/gpu/CMakeLists.txt: expected set(kernel_files ...)")
    return [src / "gpu" / name for name in listed[1].split()]


def options(wave: int, src: Path, *more: str) -> tuple[str, ...]:
    folders = (HERE / "include", HERE, src, src / "include")
    return (
        *COMMON.split(),
        f"-DSIMPLE_LAYERNORM_EMULATED_WAVE={wave}",
        *(f"-I{folder}" for folder in folders),
        *more,
    )


@cache
def harness(wave: int, checks: str, src: Path = PROJECT / "src") -> list[Path]:
    """All but the kernels. Sanitizers have no business in the runtime: it switches stacks."""
    sanitizers = SANITIZERS if checks == "bounds" else []
    runtime = sorted((HERE / "runtime").glob("*.cpp"))
    driver = sorted((HERE / "driver").glob("*.cpp"))
    objects = [Object(source, options(wave, src, "-O2")) for source in runtime]
    objects += [Object(source, options(wave, src, *sanitizers)) for source in driver]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(Object.compiled, objects))


def build(
    wave: int, checks: str, src: Path = PROJECT / "src", units: Sequence[str] = (), jobs: int = 2
) -> Path:
    """Path of a driver for the kernels in `src`, compiled as far as need be.

    With `units`, only these kernel files are taken from there, the others from the project. They
    come first, so that the linker takes functions that several files define from them.
    """
    sanitizers = SANITIZERS if checks == "bounds" else []
    kernels = []
    for name in sorted((f.name for f in kernel_files(src)), key=lambda name: name not in units):
        folder = src if not units or name in units else PROJECT / "src"
        chosen = options(wave, folder, *(sanitizers or WATCHED), *KERNEL)
        kernels.append(Object(folder / "gpu" / name, chosen))
    with ThreadPoolExecutor(jobs) as pool:
        objects = [*pool.map(Object.compiled, kernels), *harness(wave, checks)]
    script = HERE / "shared_memory.ld"
    digest = hashlib.sha256("".join(map(str, objects)).encode() + script.read_bytes())
    driver = BUILDS / f"driver.{wave}.{checks}.{digest.hexdigest()[:20]}"
    if not driver.exists():
        with written_at_once(driver) as unfinished:
            link = [*sanitizers, "-no-pie", *map(str, objects), f"-Wl,-T,{script}"]
            run_compiler([*link, "-o", str(unfinished)])
    return driver


def run(driver: Path, *cases: str) -> list["subprocess.CompletedProcess[str]"]:
    """Runs the driver on the named cases, or all; both passes at the same time."""
    named = [cases] if set(PASSES) & set(cases) else [(name, *cases) for name in PASSES]
    with ThreadPoolExecutor(len(named)) as pool:
        commands = [[str(driver), *words] for words in named]
        return list(pool.map(lambda c: subprocess.run(c, capture_output=True, text=True), commands))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wave", type=int, choices=(32, 64), default=64)
    parser.add_argument("--checks", choices=CHECKS, default="bounds")
    parser.add_argument("--run", nargs="*", metavar="ARGUMENT", help="run the driver with these")
    chosen = parser.parse_args()
    try:
        driver = build(chosen.wave, chosen.checks)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(driver)
    if chosen.run is None:
        return 0
    results = run(driver, *chosen.run)
    for result in results:
        print(result.stdout + result.stderr, end="")
    return max(result.returncode != 0 for result in results)


if __name__ == "__main__":
    sys.exit(main())
