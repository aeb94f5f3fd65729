"""The GPU kernels, run on the CPU at both wave sizes: every path, dtype and order of threads."""

import shutil
import subprocess

import pytest
from emulated_driver import CHECKS, build

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.timeout(900),  # half of it compiles
]


@pytest.mark.parametrize("checks", CHECKS)
@pytest.mark.parametrize("wave", [32, 64])
def test_kernels_give_the_references_numbers_in_every_order_of_threads(wave, checks):
    result = subprocess.run([build(wave, checks)], capture_output=True, text=True, check=False)
    print(result.stdout)
    assert result.returncode == 0, result.stderr + result.stdout
