"""Builds, installs and links the package as its users do, each time in a folder of its own.

Needs compilers, the packages of the extra `dev` and a package index. What few machines have is
simulated, by stand_ins.py, and the test says so.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from environments import ROOT, Venv, build_wheel, run

PACKAGE_TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if PACKAGE_TESTS in item.path.parents:
            item.add_marker(pytest.mark.package)
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def make_venv(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Venv]:
    return lambda: Venv(tmp_path_factory.mktemp("venv"))


@pytest.fixture(scope="session")
def copy_source(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A copy of the source tree, as a fresh clone has it."""

    def copy() -> Path:
        listing = run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT
        )
        folder = tmp_path_factory.mktemp("source")
        for name in filter(None, listing.split("\0")):
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
        return folder

    return copy


@pytest.fixture(scope="session")
def source(copy_source: Callable[[], Path]) -> Path:
    """A copy that tests build in, and do not change."""
    return copy_source()


@pytest.fixture
def build_folder(source: Path, tmp_path: Path) -> Path:
    """As near to the sources as a wheel's build folder: ccache then knows the objects."""
    return source / "build" / tmp_path.name


@pytest.fixture(scope="session")
def builder(make_venv: Callable[[], Venv]) -> Venv:
    """An environment with torch and the build requirements."""
    return make_venv().add_torch()


@pytest.fixture(scope="session")
def wheel(builder: Venv, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel without GPU kernels."""
    folder = tmp_path_factory.mktemp("wheel")
    return build_wheel(
        builder, source, folder, "--config-settings", "cmake.define.SIMPLE_LAYERNORM_GPU=OFF"
    )


@pytest.fixture(scope="session")
def sdist(builder: Venv, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    builder.run("-m", "build", "--no-isolation", "--sdist", "-o", folder, source)
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


@pytest.fixture(scope="session")
def installed(make_venv: Callable[[], Venv], wheel: Path) -> Venv:
    """An environment with torch and that wheel."""
    environment = make_venv().add_torch()
    environment.pip("install", "--no-deps", wheel)
    return environment
