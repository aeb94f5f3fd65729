"""The GPU kernels, run on the CPU at both wave sizes: every path, dtype and order of threads."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from emulated_driver import CHECKS, build, run

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.timeout(1200),  # half of it compiles
]


@pytest.mark.parametrize("wave", [32, 64])
def test_kernels_give_the_references_numbers_in_every_order_of_threads(wave):
    drivers = [build(wave, checks) for checks in CHECKS]
    with ThreadPoolExecutor(len(drivers)) as pool:
        results = [result for both in pool.map(run, drivers) for result in both]
    for result in results:
        print(result.stdout)
    assert all(result.returncode == 0 for result in results), "".join(
        result.stderr + result.stdout for result in results
    )
