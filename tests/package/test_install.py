"""The ways in which people install from source, and what they are told when it cannot work."""

import re
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from environments import ROOT, Venv, build_wheel, run
from stand_ins import torch_stand_in

WORKS = """
import torch, simple_layernorm
x = torch.randn(3, 7)
torch.testing.assert_close(
    simple_layernorm.layer_norm(x, (7,)), torch.nn.functional.layer_norm(x, (7,))
)
"""
UV = [sys.executable, "-m", "uv"]
MakeVenv = Callable[[], Venv]
CopySource = Callable[[], Path]


def test_isolated_build_links_the_installed_torch(make_venv: MakeVenv, source: Path) -> None:
    environment = make_venv().add_torch()
    environment.pip("install", "--no-deps", source)
    environment.run("-c", WORKS)


@pytest.mark.parametrize(
    "options", [[], ["--no-build-isolation"]], ids=["isolated", "not isolated"]
)
def test_missing_torch_is_told_within_seconds(
    make_venv: MakeVenv, source: Path, options: list[str]
) -> None:
    environment = make_venv()
    if options:
        environment.pip("install", "scikit-build-core>=1.1", "ninja")
    start = time.monotonic()
    output = environment.pip("install", *options, source, fails=True)
    assert time.monotonic() - start < 20
    assert "torch is not installed yet: install it first, version 2.11 or later" in output
    assert "Traceback" not in output


def test_torch_older_than_the_oldest_supported_is_refused(
    make_venv: MakeVenv, source: Path, tmp_path: Path
) -> None:
    """Simulated: the installed torch, saying another version."""
    environment = make_venv().add_torch(torch_stand_in(tmp_path, version="2.10.1"))
    output = environment.pip("install", "--no-build-isolation", source, fails=True)
    assert "expected torch 2.11 or later" in output
    assert "but got 2.10.1" in output


@pytest.mark.parametrize(
    "command",
    [
        [*UV, "pip", "install", "--python", "{python}", "{source}"],
        [*UV, "build", "--wheel", "--python", "{python}", "-o", "{folder}", "{source}"],
        ["{python}", "-m", "build", "--wheel", "-o", "{folder}", "{source}"],
    ],
    ids=["uv pip install", "uv build", "python -m build"],
)
def test_tools_that_isolate_for_real_say_how_to_build_without(
    builder: Venv, source: Path, tmp_path: Path, command: list[str]
) -> None:
    places = {"python": builder.python, "source": source, "folder": tmp_path}
    command = [part.format(**places) for part in command]
    output = run(command, fails=True)
    assert "torch is installed: this build runs isolated from it" in output
    assert "--no-build-isolation" in output
    assert "python -m build --no-isolation" in output


def test_uv_without_isolation_installs(make_venv: MakeVenv, source: Path) -> None:
    environment = make_venv().add_torch()
    arguments = ["--python", environment.python, "--no-build-isolation", "--no-deps", source]
    run([*UV, "pip", "install", *arguments])
    environment.run("-c", WORKS)


def test_sdist_holds_the_sources_and_builds_the_same_wheel(
    builder: Venv, sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    run(["tar", "xf", sdist, "-C", tmp_path])
    (unpacked,) = filter(Path.is_dir, tmp_path.iterdir())
    metadata = (unpacked / "PKG-INFO").read_text()
    assert "Requires-Dist: torch>=2.11\n" in metadata
    assert "Dynamic: Requires-Dist\n" in metadata
    folder = tmp_path / "wheel"
    folder.mkdir()
    from_sdist = build_wheel(
        builder, unpacked, folder, "--config-settings", "cmake.define.SIMPLE_LAYERNORM_GPU=OFF"
    )
    assert from_sdist.name == wheel.name
    listings = [run([sys.executable, "-m", "zipfile", "-l", file]) for file in (wheel, from_sdist)]
    names = [sorted(line.split()[0] for line in text.splitlines()) for text in listings]
    assert names[0] == names[1]


def test_editable_install_works_from_anywhere_and_a_rebuild_reaches_it(
    make_venv: MakeVenv, copy_source: CopySource
) -> None:
    source = copy_source()
    environment = make_venv().add_torch()
    install = ["install", "--no-deps", "--no-build-isolation", "-e", source]
    environment.pip(*install)
    environment.run("-c", WORKS)
    run([environment.python, "-c", WORKS], cwd=source)
    run([environment.python, "-c", WORKS], cwd=source / "python" / "simple_layernorm")
    assert str(source) in environment.run("-c", "import simple_layernorm as s; print(s.__file__)")

    functions = source / "python" / "simple_layernorm" / "functional.py"
    functions.write_text(functions.read_text() + "\nADDED = 'by an edit'\n")
    environment.run("-c", "from simple_layernorm.functional import ADDED")
    absent = source / "src" / "gpu" / "gpu_absent.cpp"
    absent.write_text(absent.read_text().replace('return {"off", ""}', 'return {"edited", ""}'))
    environment.pip(*install)
    output = environment.run("-c", "from simple_layernorm import _C; print(_C.gpu_build())")
    assert "edited" in output


def test_second_build_in_the_same_folder_links_the_torch_of_that_moment(
    make_venv: MakeVenv, builder: Venv, source: Path, wheel: Path, tmp_path: Path
) -> None:
    """Simulated: the second torch is the first one, saying another version."""
    assert list(source.glob("build/cp*")), f"{wheel} was built there"
    info = "from simple_layernorm import _build_info as b; print(b.torch_version)"
    other = make_venv().add_torch(torch_stand_in(tmp_path, version="2.12.5"))
    other.pip("install", "--no-deps", "--no-build-isolation", source)
    assert other.run("-c", info).strip() == "2.12.5"

    folder = tmp_path / "wheel"
    folder.mkdir()
    environment = make_venv().add_torch()
    environment.pip("install", "--no-deps", build_wheel(builder, source, folder))
    environment.run("-c", WORKS)


def another_python(make_venv: MakeVenv) -> Path:
    """A Python of another version, if the machine has one; else one of another environment."""
    for minor in range(10, 20):
        path = shutil.which(f"python3.{minor}")
        if path and minor != sys.version_info.minor:
            if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
                return Path(path)
    return make_venv().python


def test_another_python_on_path_and_in_the_build_folder_does_not_confuse_the_build(
    make_venv: MakeVenv, builder: Venv, source: Path, build_folder: Path, tmp_path: Path
) -> None:
    other = another_python(make_venv)
    for name in ("python", "python3"):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {other} "$@"\n')
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    options = ["-G", "Ninja", f"-DPython_EXECUTABLE={other}"]
    run(["cmake", "-S", source, "-B", build_folder, *options])
    cache = build_folder / "CMakeCache.txt"
    assert f"Python_EXECUTABLE:UNINITIALIZED={other}" in cache.read_text()

    wheels = tmp_path / "wheel"
    command = [builder.python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    run(
        [*command, "--config-settings", f"build-dir={build_folder}", "-w", wheels, source],
        PATH=path,
    )
    (wheel,) = wheels.glob("*.whl")
    assert f"-cp{sys.version_info.major}{sys.version_info.minor}-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        assert f"simple_layernorm/_C{sysconfig.get_config_var('EXT_SUFFIX')}" in archive.namelist()
    chosen = rf"^Python_EXECUTABLE:PATH={builder.python}3?$"
    assert re.search(chosen, cache.read_text(), re.MULTILINE)


def test_import_from_the_source_tree_says_to_install(make_venv: MakeVenv) -> None:
    environment = make_venv().add_torch()
    output = environment.run(
        "-c", "import simple_layernorm", PYTHONPATH=str(ROOT / "python"), fails=True
    )
    assert "was imported from its source tree; install it: pip install ." in output
