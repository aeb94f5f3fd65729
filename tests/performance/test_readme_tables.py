"""The README's figures are those of the recorded results."""

import importlib.util
from pathlib import Path

import pytest

from simple_layernorm.bench import environment, store
from simple_layernorm.bench.cases import FORWARD
from simple_layernorm.bench.store import Cell, Results

HERE = Path(__file__).parent


def _load(name: str):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


readme_tables = _load("readme_tables")
RUN = {"gpu": "a GPU", "cpu": "a CPU", "torch": "2", "date": "2026-11-29", "command": "python"}


def cell(contender: str, us: float, dtype: str = "float32") -> Cell:
    return Cell(FORWARD, 2**16, 4096, dtype, 0, "cuda", 0, contender, 0, us, 90.0, "copy")


def written(*cells: Cell, kernel_sources: str | None = None) -> str:
    results = Results(runs=[{**RUN, "kernel_sources": kernel_sources}])
    for one in cells:
        results.add(one)
    return readme_tables.tables(results, "cuda", "gpu.json")


def test_the_readme_shows_the_recorded_figures():
    text = readme_tables.README.read_text()
    assert {match[2] for match in readme_tables.MARKED.finditer(text)} == {"gpu", "cpu"}
    message = "run: python tests/performance/readme_tables.py"
    assert readme_tables.filled(text) == text, message


def test_a_changed_figure_changes_the_table():
    assert written(cell("ours", 92.0)) != written(cell("ours", 93.0))


def test_a_loss_is_marked_and_listed():
    text = written(cell("ours", 100.0), cell("compile", 91.0))
    assert "| 65536 × 4096 | 0.900 ↓ | **0.989** |" in text  # noqa: RUF001
    assert "- forward 65536 × 4096 float32: copy >= 0.96: 0.9," in text  # noqa: RUF001


def test_figures_of_other_kernels_than_the_present_ones_are_called_stale():
    present = environment.kernel_sources("cuda")
    assert "stale" not in written(cell("ours", 92.0), kernel_sources=present)
    assert "stale" in written(cell("ours", 92.0), kernel_sources="0123456789abcdef")


def test_without_a_recorded_run_the_readme_says_so():
    assert "No run" in written()


@pytest.mark.parametrize("path", sorted((HERE / "results").glob("*.json")), ids=lambda p: p.name)
def test_a_recorded_file_says_where_and_when_it_was_measured(path):
    results = store.load(path)
    for run in results.runs:
        assert {"date", "command", "torch", "cpu", "kernel_sources"} <= run.keys()
    assert not any(c.contender == "ours" and c.us is None for c in results.cells.values())
