"""What is inside a wheel, and that it can be imported in every order."""

import re
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import torch
from environments import Venv, run
from stand_ins import torch_stand_in

MINOR = ".".join(torch.__version__.split(".")[:2])
PACKAGE = "simple_layernorm"


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_wheel_holds_the_libraries_of_this_project_and_no_others(unpacked: Path) -> None:
    libraries = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*.so*")}
    assert libraries == {
        f"{PACKAGE}/_C{sysconfig.get_config_var('EXT_SUFFIX')}",
        f"{PACKAGE}/lib/libsimple_layernorm.so",
        f"{PACKAGE}/lib/libsimple_layernorm_torch.so",
    }


def test_wheel_holds_what_cmake_and_type_checkers_need(unpacked: Path) -> None:
    expected = [
        "include/simple_layernorm/cpu.hpp",
        "include/simple_layernorm/torch/layer_norm.hpp",
        "share/cmake/simple_layernorm/simple_layernormConfig.cmake",
        "py.typed",
        "_C.pyi",
        "_build_info.py",
    ]
    assert [name for name in expected if not (unpacked / PACKAGE / name).is_file()] == []


def test_wheel_holds_no_sources_of_the_kernels_and_no_links(unpacked: Path) -> None:
    assert [p for p in unpacked.rglob("*") if p.suffix in {".hip", ".cpp", ".o"}] == []
    assert [p for p in unpacked.rglob("*") if p.is_symlink()] == []


def test_libraries_are_found_relative_to_the_wheel_alone(unpacked: Path) -> None:
    for library in unpacked.rglob("*.so"):
        (paths,) = re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", run(["readelf", "-d", library]))
        assert all(path.startswith("$ORIGIN") for path in paths.split(":")), (library, paths)


def test_no_file_of_the_wheel_names_the_folder_it_was_built_in(
    unpacked: Path, source: Path
) -> None:
    for path in filter(Path.is_file, unpacked.rglob("*")):
        assert str(source).encode() not in path.read_bytes(), path


def test_tag_names_the_python_that_built_it(wheel: Path) -> None:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.split("-")[2:4] == [tag, tag]


def test_wheel_requires_the_torch_minor_that_it_links(unpacked: Path) -> None:
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    assert f"Requires-Dist: torch=={MINOR}.*" in metadata.read_text().splitlines()


def test_usual_tools_find_nothing_wrong(wheel: Path, sdist: Path, source: Path) -> None:
    run([sys.executable, "-m", "check_wheel_contents", wheel], cwd=source)
    run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist])
    run([sys.executable, "-m", "validate_pyproject", source / "pyproject.toml"])


@pytest.mark.parametrize(
    "statements",
    [
        "import simple_layernorm; simple_layernorm.layer_norm",
        "import simple_layernorm._C",
        "from simple_layernorm import _C; _C.layer_norm",
        "import my_layernorm_backend; my_layernorm_backend.layernorm_forward",
        "import torch, simple_layernorm",
        "import simple_layernorm, torch",
        "import torch; torch.ops.load_library('{operators}'); import simple_layernorm",
        "import torch, simple_layernorm; torch.ops.load_library('{operators}')",
    ],
)
def test_any_order_of_imports_works_in_a_fresh_process(installed: Venv, statements: str) -> None:
    operators = installed.site_packages / PACKAGE / "lib" / "libsimple_layernorm_torch.so"
    installed.run("-W", "error", "-c", statements.format(operators=operators))


def test_library_of_operators_loads_without_torch_imported_before(installed: Venv) -> None:
    library = installed.site_packages / PACKAGE / "lib" / "libsimple_layernorm_torch.so"
    installed.run("-c", f"import ctypes; ctypes.CDLL({str(library)!r})")


def test_build_info_says_what_was_built(installed: Venv) -> None:
    text = (installed.site_packages / PACKAGE / "_build_info.py").read_text()
    values = dict(re.findall(r'^(\w+) = "(.*)"$', text, re.MULTILINE))
    assert values["torch_version"] == torch.__version__
    assert values["python_version"] == sys.version.split()[0]
    assert values["gpu_language"] == "off"
    assert values["gpu_reason"] == "built with SIMPLE_LAYERNORM_GPU=OFF"
    assert re.fullmatch("[0-9a-f]{64}", values["kernel_sources"])


@pytest.mark.parametrize("version", ["2.99.0", "3.13.0"])
def test_import_under_another_torch_version_says_how_to_rebuild(
    installed: Venv, tmp_path: Path, version: str
) -> None:
    """Simulated: the same torch, saying another version."""
    torch_stand_in(tmp_path, version=version)
    output = installed.run("-c", "import simple_layernorm", PYTHONPATH=str(tmp_path), fails=True)
    assert output.splitlines()[-1] == (
        f"ImportError: simple_layernorm was built for torch {torch.__version__}, but the installed "
        f"torch is {version}; rebuild it in its source tree: "
        "pip install --force-reinstall --no-deps ."
    )


def test_stubs_match_the_compiled_module(installed: Venv, tmp_path: Path) -> None:
    configuration = tmp_path / "mypy.ini"
    # torch's types have no part in it, and reading them takes most of a minute.
    configuration.write_text("[mypy]\n[mypy-torch.*]\nfollow_imports = skip\n")
    modules = ["simple_layernorm._C", "simple_layernorm._build_info"]
    installed.run("-m", "mypy.stubtest", "--mypy-config-file", configuration, *modules)
