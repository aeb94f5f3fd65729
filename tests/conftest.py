"""Every test that takes `device` runs on the CPU and on the GPU that this build has kernels for."""

from collections.abc import Iterator

import pytest
import torch

from simple_layernorm import _C

GPU = torch.cuda.is_available() and _C.gpu_build()[0] != "off"


def pytest_configure(config: pytest.Config) -> None:
    # torch's own code, on the way to forward-mode derivatives and in its compiler.
    for category in ("DeprecationWarning", "FutureWarning"):
        for module in (r"torch\..*", "copyreg", "typing_extensions"):
            config.addinivalue_line("filterwarnings", f"ignore::{category}:{module}")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not GPU:
        no_gpu = pytest.mark.skip(reason="no GPU, or a build without kernels for one")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(no_gpu)


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
