"""Plants mistakes in copies of the kernels, one at a time, and sees the emulation notice each."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from emulated_driver import PROJECT, BuildError, build
from mutations import Mutant, mutants

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.slow,  # compiles some kernels for each mistake
    pytest.mark.timeout(3000),
]


def verdict(mutant: Mutant) -> str:
    """What the emulation says about a mutant, in a line; empty if it notices nothing."""
    with TemporaryDirectory() as folder:
        src = Path(folder) / "src"
        shutil.copytree(PROJECT / "src", src)
        (src / mutant.path).write_text(mutant.after)
        driver = build(mutant.mistake.wave, "races", src, mutant.units, jobs=1)
        command = [driver, *mutant.cases]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        driver.unlink()
    return result.stderr.partition("\n")[0] if result.returncode != 0 else ""


def test_every_planted_mistake_is_noticed():
    planted = mutants(PROJECT / "src")
    survivors = []
    with ThreadPoolExecutor(2) as pool:
        for mutant, text in zip(planted, pool.map(verdict, planted), strict=True):
            print(f"{mutant.summary()[:100]:100s} {text or 'SURVIVED'}", flush=True)
            if not text:
                survivors.append(mutant.diff())
    assert not survivors, "unnoticed:\n" + "\n".join(survivors)


def test_a_mutant_that_does_not_compile_is_no_success():
    broken = mutants(PROJECT / "src")[0]
    broken = Mutant(broken.mistake, broken.path, broken.before, broken.before + "\n#error broken\n")
    with pytest.raises(BuildError):
        verdict(broken)
