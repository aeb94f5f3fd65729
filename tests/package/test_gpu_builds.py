"""Builds with GPU kernels, where there is no GPU: import and the CPU path work all the same."""

import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from environments import Venv, build_wheel, run

MakeVenv = Callable[[], Venv]
LIBRARY = "simple_layernorm/lib/libsimple_layernorm_gpu.so"
CPU_PATH_WORKS = """
import torch, simple_layernorm
x = torch.randn(3, 7)
torch.testing.assert_close(
    simple_layernorm.layer_norm(x, (7,)), torch.nn.functional.layer_norm(x, (7,))
)
"""
HIP = torch.version.hip is not None


@pytest.fixture(scope="module", params=["HIP", "CUDA"])
def language(request: pytest.FixtureRequest) -> str:
    language: str = request.param
    compiler = {"HIP": "hipcc", "CUDA": "nvcc"}[language]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    return language


@pytest.fixture(scope="module")
def wheel(
    language: str, builder: Venv, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    options = [f"SIMPLE_LAYERNORM_GPU={language}"]
    if language == "CUDA":
        options.append("CMAKE_CUDA_ARCHITECTURES=90-real")
    flags = [part for option in options for part in ("--config-settings", f"cmake.define.{option}")]
    return build_wheel(builder, source, tmp_path_factory.mktemp("gpu_wheel"), *flags)


@pytest.fixture
def environment(make_venv: MakeVenv, wheel: Path) -> Venv:
    environment = make_venv().add_torch()
    environment.pip("install", "--no-deps", wheel)
    return environment


def test_gpu_kernels_lie_in_a_library_of_their_own_without_the_runtime(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if ".so" in name and "/lib/" in name]
    assert sorted(libraries) == [
        "simple_layernorm/lib/libsimple_layernorm.so",
        LIBRARY,
        "simple_layernorm/lib/libsimple_layernorm_torch.so",
    ]


def test_gpu_library_is_found_relative_to_the_wheel_alone(environment: Venv) -> None:
    text = run(["readelf", "-d", environment.site_packages / LIBRARY])
    (paths,) = re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", text)
    assert paths == "$ORIGIN:$ORIGIN/../../torch/lib"


def test_build_info_names_language_and_architectures(environment: Venv, language: str) -> None:
    program = (
        "from simple_layernorm import _build_info as b; print(b.gpu_language, b.gpu_architectures)"
    )
    expected = {"HIP": "hip gfx90a;gfx1030", "CUDA": "cuda sm_90"}[language]
    assert environment.run("-c", program).strip() == expected


def gpu_call(environment: Venv, folder: Path) -> str:
    """What a C++ program over the wheel's kernels gets when it asks for the device."""
    package = environment.run("-m", "simple_layernorm", "--cmake-dir").strip()
    program = Path(__file__).parent / "consumers" / "kernels"
    run(["cmake", "-G", "Ninja", "-S", program, "-B", folder, f"-Dsimple_layernorm_DIR={package}"])
    run(["cmake", "--build", folder])
    return run([folder / "consumer"]).splitlines()[-1]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("architecture", ["75", "80"])
def test_kernels_compile_for_nvidia_gpus_before_hopper(source: Path, architecture: str) -> None:
    """The general kernels: they take what all others do of the instructions that such GPUs lack."""
    target = f"arch=compute_{architecture},code=sm_{architecture}"
    include = [f"-I{source / 'src'}", f"-I{source / 'src' / 'include'}"]
    for file in ("layernorm_kernel.hip", "layernorm_backward_kernel.hip"):
        code = source / "src" / "gpu" / file
        options = ["-std=c++17", "-gencode", target, *include, "-x", "cu", "-cubin"]
        run(["nvcc", *options, code, "-o", "/dev/null"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cpu_path_works_and_a_gpu_call_says_what_is_missing(
    environment: Venv, tmp_path: Path
) -> None:
    environment.run("-c", CPU_PATH_WORKS)
    assert gpu_call(environment, tmp_path).startswith("simple_layernorm: GetDevice")


def test_runtime_library_that_is_missing_is_named_by_the_gpu_call_alone(
    environment: Venv, language: str, tmp_path: Path
) -> None:
    """Simulated: the kernels' library asks for a runtime of a name that no machine has."""
    if language == "CUDA":
        pytest.skip("CUDA's runtime is linked statically; a missing driver is the case above")
    library = environment.site_packages / LIBRARY
    content = library.read_bytes()
    (runtime,) = set(re.findall(rb"libamdhip64\.so\.\d", content))
    library.write_bytes(content.replace(runtime, b"libabsent64.so.5"))
    environment.run("-c", CPU_PATH_WORKS)
    answer = gpu_call(environment, tmp_path)
    assert answer.startswith("simple_layernorm: the GPU kernels cannot be loaded:")
    assert "libabsent64.so.5: cannot open shared object file" in answer


@pytest.mark.skipif(not torch.cuda.is_available() or HIP, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (
            "CMAKE_CUDA_ARCHITECTURES=75-real",
            "expected a GPU of one of the architectures in this build (sm_75), but got sm_",
        ),
        (
            "SIMPLE_LAYERNORM_GPU=OFF",
            "expected a build with GPU kernels, but this one has none (built with "
            "SIMPLE_LAYERNORM_GPU=OFF)",
        ),
    ],
    ids=["another architecture", "no GPU kernels"],
)
def test_gpu_tensor_in_a_build_without_kernels_for_it_is_refused_before_a_launch(
    make_venv: MakeVenv, source: Path, tmp_path: Path, option: str, expected: str
) -> None:
    environment = make_venv().add_torch()
    wheel = build_wheel(
        environment, source, tmp_path, "--config-settings", f"cmake.define.{option}"
    )
    environment.pip("install", "--no-deps", wheel)
    environment.run("-c", CPU_PATH_WORKS)
    call = "import torch, simple_layernorm as s; s.layer_norm(torch.ones(2, 7).cuda(), (7,))"
    last_line = environment.run("-c", call, fails=True).splitlines()[-1]
    assert last_line.startswith("RuntimeError: ")
    assert expected in last_line
