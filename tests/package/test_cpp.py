"""C++ programs over the library, by every way in which CMake gets hold of it."""

import re
import resource
import shutil
import sys
from pathlib import Path

import pytest
from environments import ROOT, Venv, run

CONSUMERS = Path(__file__).parent / "consumers"
SYSTEM_CMAKE = "/usr/bin/cmake"
NEWEST_CMAKE = shutil.which("cmake", path=str(Path(sys.executable).parent))


@pytest.fixture(params=[SYSTEM_CMAKE, NEWEST_CMAKE], ids=["system", "newest"])
def cmake(request: pytest.FixtureRequest) -> str:
    """The distribution's CMake (Debian 12: 3.25, the oldest supported) and PyPI's newest."""
    assert request.param is not None, "the extra `dev` brings CMake"
    return str(request.param)


def build(cmake: str, project: str, folder: Path, *options: str) -> None:
    run([cmake, "-G", "Ninja", "-S", CONSUMERS / project, "-B", folder, *options])
    run([cmake, "--build", folder, "-j2"])


@pytest.fixture(scope="module")
def prefix(source: Path, builder: Venv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with its operators, by cmake --install."""
    cmake, folder = str(NEWEST_CMAKE), source / "build" / "installed"
    options = ["-DSIMPLE_LAYERNORM_GPU=OFF", "-DSIMPLE_LAYERNORM_TORCH=ON"]
    python = f"-DPython_EXECUTABLE={builder.python}"
    run([cmake, "-G", "Ninja", "-S", source, "-B", folder, python, *options])
    run([cmake, "--build", folder, "-j2"])
    prefix = tmp_path_factory.mktemp("prefix")
    run([cmake, "--install", folder, "--prefix", prefix])
    return prefix


@pytest.fixture(params=["wheel", "installed", "add_subdirectory", "FetchContent"])
def options(request: pytest.FixtureRequest, source: Path, builder: Venv) -> list[str]:
    """Options of a consumer for one way of getting hold of the library."""
    python = f"-DPython_EXECUTABLE={builder.python}"
    if request.param == "wheel":
        installed: Venv = request.getfixturevalue("installed")
        folder = installed.run("-m", "simple_layernorm", "--cmake-dir").strip()
        return [f"-Dsimple_layernorm_DIR={folder}"]
    if request.param == "installed":
        return [f"-DCMAKE_PREFIX_PATH={request.getfixturevalue('prefix')}", python]
    return [f"-DACQUIRE={request.param}", f"-DLIBRARY_SOURCE={source}", python]


def test_program_over_the_kernels_builds_and_runs(
    cmake: str, options: list[str], build_folder: Path
) -> None:
    build(cmake, "kernels", build_folder, "-DSIMPLE_LAYERNORM_GPU=OFF", *options)
    output = run([build_folder / "consumer"])
    assert output.startswith("cpu ")
    assert "expected a build with GPU kernels, but this one has none" in output
    assert "libtorch" not in run(["ldd", build_folder / "consumer"])


def test_program_over_the_operators_builds_and_runs(
    cmake: str, options: list[str], build_folder: Path
) -> None:
    build(cmake, "operators", build_folder, *options)
    run([build_folder / "functions"])
    run([build_folder / "dispatcher"])


def test_program_that_also_uses_torchs_own_package_builds_and_runs(
    cmake: str, options: list[str], builder: Venv, build_folder: Path
) -> None:
    torch = f"-DTorch_DIR={builder.site_packages / 'torch' / 'share' / 'cmake' / 'Torch'}"
    build(cmake, "operators_and_torch", build_folder, torch, *options)
    run([build_folder / "consumer"])


def test_core_configures_builds_and_installs_without_python_and_torch_in_little_time(
    source: Path, build_folder: Path, tmp_path: Path
) -> None:
    def seconds_of_commands() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    start = seconds_of_commands()
    variables = {"PATH": "/usr/bin:/bin"}  # a Python without torch
    options = ["-G", "Ninja", "-DSIMPLE_LAYERNORM_GPU=OFF"]
    run(["cmake", "-S", source, "-B", build_folder, *options], **variables)
    run(["cmake", "--build", build_folder, "-j2"], **variables)
    run(["cmake", "--install", build_folder, "--prefix", tmp_path / "prefix"], **variables)
    assert seconds_of_commands() - start < 150  # of one processor, whatever else it has to do
    installed = {str(p.relative_to(tmp_path / "prefix")) for p in (tmp_path / "prefix").rglob("*")}
    assert "include/simple_layernorm/cpu.hpp" in installed
    assert "share/cmake/simple_layernorm/simple_layernormConfig.cmake" in installed
    assert any(name.startswith("lib/libsimple_layernorm.so") for name in installed)
    assert not any("torch" in Path(name).name for name in installed if name.endswith(".so"))


def test_another_torch_than_the_operators_were_built_for_is_refused(
    installed: Venv, tmp_path: Path
) -> None:
    """Simulated: the same torch, saying another version."""
    from stand_ins import torch_stand_in

    torch = torch_stand_in(tmp_path, version="2.99.0")
    folder = installed.run("-m", "simple_layernorm", "--cmake-dir").strip()
    options = [f"-Dsimple_layernorm_DIR={folder}", f"-DTorch_DIR={torch}/share/cmake/Torch"]
    command = [
        "cmake",
        "-G",
        "Ninja",
        "-S",
        CONSUMERS / "operators",
        "-B",
        tmp_path / "b",
        *options,
    ]
    assert "was built for torch" in run(command, fails=True)


def test_program_in_the_readme_builds_and_runs(installed: Venv, tmp_path: Path) -> None:
    (program,) = re.findall(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[:1]
    (tmp_path / "main.cpp").write_text(program)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(readme CXX)\n"
        "find_package(simple_layernorm REQUIRED)\nadd_executable(readme main.cpp)\n"
        "target_link_libraries(readme PRIVATE simple_layernorm::kernels)\n"
    )
    folder = installed.run("-m", "simple_layernorm", "--cmake-dir").strip()
    options = ["-G", "Ninja", f"-Dsimple_layernorm_DIR={folder}"]
    run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", *options])
    run(["cmake", "--build", tmp_path / "build"])
    run([tmp_path / "build" / "readme"])
