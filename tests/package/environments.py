"""Commands in a known environment, fresh virtual environments, wheels."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
TORCH = Path(torch.__file__).parent

# The same sources are compiled in a dozen folders; ccache, if installed, does it once.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("CMAKE_", "SIMPLE_LAYERNORM_", "SKBUILD_", "PYTEST_", "PYTHON"))
    and not name.startswith(("PYTORCH_ROCM_", "ROCM_", "TORCH_CUDA_ARCH", "CUDA"))
}
if shutil.which("ccache"):
    ENVIRONMENT |= {f"CMAKE_{x}_COMPILER_LAUNCHER": "ccache" for x in ("CXX", "HIP", "CUDA")}
    ENVIRONMENT |= {"CCACHE_BASEDIR": tempfile.gettempdir(), "CCACHE_NOHASHDIR": "1"}
    ENVIRONMENT["CCACHE_IGNOREOPTIONS"] = "-ffile-prefix-map=*"


def run(
    command: Sequence[str | Path],
    cwd: Path | str = "/",
    fails: bool = False,
    **variables: str | None,
) -> str:
    """Output of a command that must succeed, or must fail. A variable that is None is unset."""
    environment = {k: v for k, v in (ENVIRONMENT | variables).items() if v is not None}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert (result.returncode != 0) == fails, (
        f"{command} ended with {result.returncode}:\n{result.stdout}"
    )
    return result.stdout


# Packages of the environment that runs the tests, except the one under test.
PACKAGES = [
    entry
    for folder in map(Path, sys.path)
    if folder.name.endswith("-packages") and folder.is_dir()
    for entry in folder.iterdir()
    if "layernorm" not in entry.name and entry.name != "__pycache__"
]


class Venv:
    """A fresh virtual environment. Packages are linked into it: installing torch takes a minute."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.folder = folder
        self.python = folder / "bin" / "python"
        paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
        self.site_packages = Path(paths["platlib"])
        self._link(entry for entry in PACKAGES if entry.name.split("-")[0] == "pip")

    def add_torch(self, package: Path = TORCH) -> "Venv":
        """Adds a torch, and everything else that the tests' environment has."""
        self._link([package])
        self._link(PACKAGES)
        return self

    def _link(self, entries: Iterable[Path]) -> None:
        for entry in entries:
            link = self.site_packages / entry.name
            if not link.exists():
                link.symlink_to(entry)

    def run(self, *arguments: str | Path, fails: bool = False, **options: str | None) -> str:
        return run([self.python, *arguments], fails=fails, **options)

    def pip(self, *arguments: str | Path, fails: bool = False, **options: str | None) -> str:
        return self.run("-m", "pip", *arguments, fails=fails, **options)


def build_wheel(builder: Venv, source: Path, folder: Path, *options: str) -> Path:
    builder.pip("wheel", "--no-deps", "--no-build-isolation", "-w", folder, *options, source)
    (wheel,) = folder.glob("*.whl")
    return wheel
