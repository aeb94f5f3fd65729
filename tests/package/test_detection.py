"""What a configuration chooses: which torch, which GPU language, which architectures.

Everything about torch builds for GPUs and about ROCm is simulated here, by stand-ins that look to
CMake like the real thing.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from environments import Venv, run
from stand_ins import debian_stand_in, rocm_stand_in, torch_stand_in

MakeVenv = Callable[[], Venv]
DEBIAN_HIP = shutil.which("hipcc") is not None
needs_hip = pytest.mark.skipif(not DEBIAN_HIP, reason="Debian's hipcc is not installed")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")

NO_NVCC = "-DCMAKE_IGNORE_PATH=/usr/local/cuda/bin;/usr/local/bin"
NO_GPU = ["-DSIMPLE_LAYERNORM_ROCM_DEVICE_FILES=", "-DSIMPLE_LAYERNORM_CUDA_DEVICE_FILES="]
AMD_GPU = "-DSIMPLE_LAYERNORM_ROCM_DEVICE_FILES=/dev/null"
NVIDIA_GPU = "-DSIMPLE_LAYERNORM_CUDA_DEVICE_FILES=/dev/null"


class Configure:
    """Configures the source tree and gives the facts of the summary."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.source = source
        self.folder = folder

    def output(self, *options: str, fails: bool = False, **variables: str | None) -> str:
        command = ["cmake", "-G", "Ninja", "-S", self.source, "-B", self.folder, *options]
        return run(command, fails=fails, **variables)

    def __call__(self, *options: str, **variables: str | None) -> dict[str, str]:
        lines = self.output(*options, **variables).splitlines()
        facts = [line[5:].split("  ", 1) for line in lines if line.startswith("--   ")]
        return {name: value.strip() for name, value in facts}

    def error(self, *options: str, **variables: str | None) -> str:
        return " ".join(self.output(*options, fails=True, **variables).split())


@pytest.fixture
def configure(source: Path, tmp_path: Path) -> Configure:
    return Configure(source, tmp_path / "build")


@pytest.fixture
def with_torch(make_venv: MakeVenv, tmp_path: Path) -> Callable[..., list[str]]:
    """Options that make a build use a stand-in for a torch build."""

    def options(**of_torch: str) -> list[str]:
        environment = make_venv().add_torch(torch_stand_in(tmp_path, **of_torch))
        return ["-DSIMPLE_LAYERNORM_PYTHON=ON", f"-DPython_EXECUTABLE={environment.python}"]

    return options


def test_core_needs_neither_python_nor_torch(configure: Configure) -> None:
    facts = configure("-DSIMPLE_LAYERNORM_GPU=OFF", PATH="/usr/bin:/bin")
    assert facts["torch"] == facts["Python"] == "not used"


def test_project_that_has_found_a_python_can_add_the_core(configure: Configure) -> None:
    facts = configure(f"-DPython_EXECUTABLE={sys.executable}")
    assert facts["torch"] == "not used"


def test_cpu_torch_means_no_gpu_kernels(configure: Configure, builder: Venv) -> None:
    python = f"-DPython_EXECUTABLE={builder.python}"
    facts = configure("-DSIMPLE_LAYERNORM_PYTHON=ON", python)
    assert facts["GPU kernels"].endswith("is a build for the CPU")


def test_torch_of_the_python_on_path_is_found(configure: Configure, builder: Venv) -> None:
    path = f"{builder.python.parent}:/usr/bin:/bin"
    facts = configure("-DSIMPLE_LAYERNORM_PYTHON=ON", PATH=path)
    assert facts["Python"].endswith(str(builder.python.parent / "python3"))
    assert facts["torch"].startswith(torch.__version__)


def test_python_without_torch_is_named_with_the_ways_to_give_one(
    configure: Configure, make_venv: MakeVenv
) -> None:
    python = make_venv().python
    error = configure.error("-DSIMPLE_LAYERNORM_TORCH=ON", f"-DPython_EXECUTABLE={python}")
    assert f"no torch found. Asked: {python}" in error
    assert "-DTorch_DIR=" in error
    assert "-DCMAKE_PREFIX_PATH=" in error


@pytest.mark.parametrize("option", ["-DTorch_DIR={}/share/cmake/Torch", "-DCMAKE_PREFIX_PATH={}"])
def test_unpacked_torch_is_found_without_python(
    configure: Configure, tmp_path: Path, option: str
) -> None:
    package = torch_stand_in(tmp_path, version="2.77.0")
    facts = configure("-DSIMPLE_LAYERNORM_TORCH=ON", option.format(package), PATH="/usr/bin:/bin")
    assert facts["torch"].startswith("2.77.0 (cpu)")


def test_unknown_gpu_language_is_refused(configure: Configure) -> None:
    error = configure.error("-DSIMPLE_LAYERNORM_GPU=METAL")
    assert "expected SIMPLE_LAYERNORM_GPU to be AUTO, HIP, CUDA or OFF, but got METAL" in error


@pytest.mark.parametrize(
    ("flavour", "hide"), [({"cuda": "13.0"}, NO_NVCC), ({"hip": "7.1.0"}, "-DNOTHING=")]
)
def test_gpu_torch_without_gpu_and_compiler_gives_a_cpu_build_that_says_so(
    configure: Configure,
    with_torch: Callable[..., list[str]],
    tmp_path: Path,
    flavour: dict[str, str],
    hide: str,
) -> None:
    no_rocm = f"-DSIMPLE_LAYERNORM_DEBIAN_PREFIX={tmp_path}"
    facts = configure(*with_torch(**flavour), *NO_GPU, hide, no_rocm, PATH="/usr/bin:/bin")
    assert facts["GPU kernels"].startswith("none: built on a machine where no GPU is seen and no ")


@pytest.mark.parametrize(
    ("flavour", "gpu", "hide", "names"),
    [
        ({"cuda": "13.0"}, NVIDIA_GPU, NO_NVCC, "no CUDA compiler was found (nvcc on PATH"),
        ({"hip": "7.1.0"}, AMD_GPU, "-DNOTHING=", "no HIP compiler was found (ROCm in /opt/rocm"),
    ],
)
def test_gpu_torch_with_a_gpu_but_no_compiler_is_an_error_that_names_it(
    configure: Configure,
    with_torch: Callable[..., list[str]],
    tmp_path: Path,
    flavour: dict[str, str],
    gpu: str,
    hide: str,
    names: str,
) -> None:
    no_rocm = f"-DSIMPLE_LAYERNORM_DEBIAN_PREFIX={tmp_path}"
    error = configure.error(*with_torch(**flavour), gpu, hide, no_rocm, PATH="/usr/bin:/bin")
    assert names in error
    assert "pip install . --config-settings cmake.define.SIMPLE_LAYERNORM_GPU=OFF" in error


@needs_hip
def test_debian_needs_nothing_but_the_option(configure: Configure) -> None:
    facts = configure("-DSIMPLE_LAYERNORM_GPU=HIP")
    assert facts["GPU kernels"] == "hip for gfx90a gfx1030"


@needs_hip
@pytest.mark.parametrize(
    "device_libraries",
    ["lib/x86_64-linux-gnu/amdgcn/bitcode", "lib/llvm-17/lib/clang/17/amdgcn/bitcode"],
    ids=["Debian 12", "Debian 13"],
)
def test_device_libraries_are_found_where_each_debian_puts_them(
    configure: Configure, tmp_path: Path, device_libraries: str
) -> None:
    usr = debian_stand_in(tmp_path / "usr", device_libraries)
    options = ["-DSIMPLE_LAYERNORM_GPU=HIP", f"-DSIMPLE_LAYERNORM_DEBIAN_PREFIX={usr}"]
    assert configure(*options)["GPU kernels"] == "hip for gfx90a gfx1030"


@needs_hip
def test_debian_with_rocm_path_set_to_usr_still_configures(configure: Configure) -> None:
    facts = configure("-DSIMPLE_LAYERNORM_GPU=HIP", ROCM_PATH="/usr")
    assert facts["GPU kernels"] == "hip for gfx90a gfx1030"


@needs_hip
def test_rocm_torch_decides_for_hip_and_its_architectures(
    configure: Configure, with_torch: Callable[..., list[str]]
) -> None:
    options = with_torch(hip="5.2.1", architectures="gfx906 gfx90a")
    assert configure(*options)["GPU kernels"] == "hip for gfx906 gfx90a"


@needs_hip
def test_explicit_architectures_win_over_the_environment_and_that_over_torch(
    configure: Configure, with_torch: Callable[..., list[str]]
) -> None:
    options = with_torch(hip="5.2.1", architectures="gfx906")
    environment = {"PYTORCH_ROCM_ARCH": "gfx1030;gfx908"}
    assert configure(*options, **environment)["GPU kernels"] == "hip for gfx1030 gfx908"
    options.append("-DCMAKE_HIP_ARCHITECTURES=gfx90a")
    assert configure(*options, **environment)["GPU kernels"] == "hip for gfx90a"


@needs_hip
def test_rocm_of_another_major_version_than_torchs_stops(
    configure: Configure, with_torch: Callable[..., list[str]]
) -> None:
    error = configure.error(*with_torch(hip="7.1.0", architectures="gfx942"))
    assert "expected HIP 7, which torch 2.13.0 was built with, but got HIP 5." in error
    assert "Set ROCM_PATH" in error


@needs_hip
@pytest.mark.parametrize("how", ["ROCM_PATH", "CMAKE_HIP_COMPILER_ROCM_ROOT"])
def test_rocm_in_one_folder_is_used_where_it_is(
    configure: Configure, tmp_path: Path, how: str
) -> None:
    root = rocm_stand_in(tmp_path / "rocm", version="7.1")
    variables = {"amd_comgr_DIR": str(root / "lib/cmake/amd_comgr")}
    options = ["-DSIMPLE_LAYERNORM_GPU=HIP", "-DCMAKE_HIP_ARCHITECTURES=gfx90a"]
    if how == "ROCM_PATH":
        variables[how] = str(root)
    else:
        options.append(f"-D{how}={root}")
    configure(*options, **variables)
    cache = (configure.folder / "CMakeCache.txt").read_text()
    assert f"{root}/lib/llvm/bin/clang++" in cache


@needs_hip
def test_rocm_from_python_packages_is_found(
    configure: Configure, make_venv: MakeVenv, tmp_path: Path
) -> None:
    environment = make_venv().add_torch(torch_stand_in(tmp_path, hip="7.1.0"))
    root = rocm_stand_in(environment.site_packages / "_rocm_sdk_devel", version="7.1")
    (root / "__init__.py").touch()
    facts = configure(
        "-DSIMPLE_LAYERNORM_PYTHON=ON",
        f"-DPython_EXECUTABLE={environment.python}",
        "-DCMAKE_HIP_ARCHITECTURES=gfx90a",
        amd_comgr_DIR=str(root / "lib/cmake/amd_comgr"),
    )
    assert facts["GPU kernels"] == "hip for gfx90a"
    assert f"{root}/lib/llvm/bin/clang++" in (configure.folder / "CMakeCache.txt").read_text()


@needs_nvcc
@pytest.mark.parametrize(
    ("options", "variables", "architectures"),
    [
        (["-DCMAKE_CUDA_ARCHITECTURES=90"], {}, "sm_90 compute_90"),
        (["-DCMAKE_CUDA_ARCHITECTURES=80-real;90-virtual"], {}, "sm_80 compute_90"),
        ([], {"TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX"}, "sm_80 sm_90 compute_90"),
        ([], {}, "sm_80 sm_90 compute_90"),
    ],
    ids=["explicit", "real and virtual", "TORCH_CUDA_ARCH_LIST", "torch's own"],
)
def test_cuda_torch_decides_for_cuda_and_its_architectures(
    configure: Configure,
    with_torch: Callable[..., list[str]],
    options: list[str],
    variables: dict[str, str],
    architectures: str,
) -> None:
    of_torch = with_torch(cuda="13.0", architectures="sm_80 sm_90 compute_90")
    assert configure(*of_torch, *NO_GPU, *options, **variables)["GPU kernels"] == (
        f"cuda for {architectures}"
    )


def test_configuration_prints_what_it_found(configure: Configure, builder: Venv) -> None:
    python = f"-DPython_EXECUTABLE={builder.python}"
    facts = configure("-DSIMPLE_LAYERNORM_PYTHON=ON", python)
    assert list(facts) == ["torch", "Python", "GPU kernels", "compilers", "build type"]
