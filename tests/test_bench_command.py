"""The benchmark's command, run on small tensors: what it measures, keeps, shows and refuses.

For a GPU the device's clock, graphs and properties are replaced, and the tensors are the CPU's.
"""

import argparse
import importlib.util
import itertools
import json
import sys
import types

import pytest
import torch

from simple_layernorm import bench
from simple_layernorm.bench import (
    bars,
    block,
    cases,
    command,
    contenders,
    environment,
    store,
    table,
    tensors,
    timing,
)
from simple_layernorm.bench import measure as measuring
from simple_layernorm.errors import UserError

ALL_DTYPES = list(cases.DTYPES)


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args([*words, "--allocator", "default"])


def run_on_cpu(*words: str) -> int:
    return bench.run(parse("--device", "cpu", "--peers", "torch", "--budget-ms", "1", *words))


class TestCommand:
    SMALL = ("--cases", "forward", "--sizes", "40x64", "--dtypes", "float32")

    def test_a_second_run_measures_nothing_again(self, tmp_path, capsys):
        path = tmp_path / "r.json"
        assert run_on_cpu(*self.SMALL, "--json", str(path)) == 0
        first = path.read_text()
        content = json.loads(first)
        assert {c["contender"] for c in content["cells"]} == {"ours", "torch"}
        assert all(c["us"] > 0 and c["limit_us"] > 0 for c in content["cells"])
        assert content["runs"][0]["torch"] == torch.__version__
        assert run_on_cpu(*self.SMALL, "--json", str(path)) == 0
        assert path.read_text() == first
        assert "40 x 64" in capsys.readouterr().out

    def test_figures_of_other_kernels_are_shown_as_stale_and_measured_again(
        self, tmp_path, capsys, monkeypatch
    ):
        path = tmp_path / "r.json"
        monkeypatch.setattr(environment, "kernel_sources", lambda device: "old")
        run_on_cpu(*self.SMALL, "--json", str(path))
        monkeypatch.setattr(environment, "kernel_sources", lambda device: "new")
        run_on_cpu(*self.SMALL, "--json", str(path), "--time-limit", "1", "--list")
        results = store.load(path)
        assert results.is_stale(results.cells[next(iter(results.cells))], "new")
        stale = [table.figure(c, results.is_stale(c, "new")) for c in results.cells.values()]
        assert ["stale" in text for text in stale] == [True, False], "only this library's"
        run_on_cpu(*self.SMALL, "--json", str(path))
        results = store.load(path)
        assert not any(results.is_stale(c, "new") for c in results.cells.values())

    @pytest.mark.parametrize("stop", ["ctrl-c", "time limit"])
    def test_what_was_measured_before_a_stop_is_kept(self, tmp_path, capsys, monkeypatch, stop):
        real, count = measuring.measure, itertools.count()

        def measure(case, *arguments, **named):
            if next(count) == 1 and stop == "ctrl-c":
                raise KeyboardInterrupt
            return real(case, *arguments, **named)

        monkeypatch.setattr(command, "measure", measure)
        if stop == "time limit":
            now = itertools.count()
            monkeypatch.setattr(command.Sweep, "out_of_time", lambda self: next(now) >= 1)
        path = tmp_path / "r.json"
        words = ("--cases", "forward", "--sizes", "40x64", "8x32", "--dtypes", "float32")
        status = run_on_cpu(*words, "--json", str(path))
        assert status == (command.INTERRUPTED if stop == "ctrl-c" else 0)
        assert {c.rows for c in store.load(path).cells.values()} == {40}

    def test_a_wrong_result_of_this_library_is_not_timed(self, monkeypatch, capsys, tmp_path):
        wrong = contenders.Contender(lambda x, w, b: torch.zeros_like(x))
        monkeypatch.setitem(contenders.FACTORIES, contenders.OURS, lambda: wrong)
        path = tmp_path / "r.json"
        assert run_on_cpu(*self.SMALL, "--json", str(path)) == 1
        ours = next(c for c in store.load(path).cells.values() if c.contender == "ours")
        assert ours.us is None
        assert "wrong result" in (ours.why or "")
        assert "wrong result" in capsys.readouterr().out

    def test_a_peer_that_fails_costs_its_own_cell_only(self, monkeypatch, tmp_path):
        def fail(x, w, b):
            raise ValueError("not this shape\nand more")

        monkeypatch.setitem(contenders.FACTORIES, "torch", lambda: contenders.Contender(fail))
        path = tmp_path / "r.json"
        assert run_on_cpu(*self.SMALL, "--json", str(path)) == 0
        found = {c.contender: c for c in store.load(path).cells.values()}
        assert found["torch"].why == "ValueError: not this shape"
        assert found["ours"].us

    def test_check_turns_a_missed_gate_into_a_status(self, monkeypatch, capsys):
        monkeypatch.setattr(bars, "BARS", ())
        assert run_on_cpu(*self.SMALL, "--check") == 0
        never = bars.Bar("cpu", (cases.FORWARD,), ("float32",), 1e9, regime=bars.ANY)
        monkeypatch.setattr(bars, "BARS", (never,))
        assert run_on_cpu(*self.SMALL) == 0
        assert run_on_cpu(*self.SMALL, "--check") == 1
        assert "below" in capsys.readouterr().out

    def test_an_older_file_is_compared(self, tmp_path, capsys):
        old = tmp_path / "old.json"
        run_on_cpu(*self.SMALL, "--json", str(old))
        capsys.readouterr()
        assert run_on_cpu(*self.SMALL, "--compare", str(old)) == 0
        assert "%" in capsys.readouterr().out

    def test_a_picture_is_drawn(self, tmp_path):
        pytest.importorskip("matplotlib")
        path = tmp_path / "p.png"
        assert run_on_cpu(*self.SMALL, "--plot", str(path)) == 0
        assert path.read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize("package", ["rich", "matplotlib"])
    def test_a_missing_package_is_named_with_its_command(self, monkeypatch, package):
        real = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *a: None if name == package else real(name, *a),
        )
        with pytest.raises(UserError, match=f"pip install {package}"):
            run_on_cpu(*self.SMALL, "--plot", "p.png")

    @pytest.mark.parametrize(
        "words",
        [
            ("--cases", "few-rows"),
            ("--plan", "portable"),
            ("--clock", "cpu", "--threads", "2"),
            ("--compare", "/nonexistent.json"),
        ],
    )
    def test_what_cannot_be_done_on_the_cpu_is_said(self, words):
        with pytest.raises(UserError):
            run_on_cpu(*words)

    @pytest.mark.parametrize("text", ["4096", "x", "0x5", "axb"])
    def test_a_size_that_is_none_is_refused(self, text, capsys):
        with pytest.raises(SystemExit):
            parse("--sizes", text)
        assert "ROWSxCOLS" in capsys.readouterr().err

    def test_page_faults_are_kept_out_by_a_restart_with_the_allocators_variables(self, monkeypatch):
        for name in environment.STEADY_ALLOCATOR:
            monkeypatch.delenv(name, raising=False)
        started = []

        def execve(path, words, env):
            started.append((words, env))
            raise SystemExit

        monkeypatch.setattr(environment.os, "execve", execve)
        arguments = parse("--device", "cpu", *self.SMALL)
        arguments.allocator = "steady"
        with pytest.raises(SystemExit):
            bench.run(arguments)
        words, env = started[0]
        assert words[1:] == sys.orig_argv[1:]
        assert env.items() >= environment.STEADY_ALLOCATOR.items()


class _Graph:
    """Stands for a CUDA graph and the context that captures into it."""

    def __init__(self, *_: object) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class _Stream(_Graph):
    def wait_stream(self, other: object) -> None:
        return None


class _Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        return None

    def synchronize(self) -> None:
        return None

    def elapsed_time(self, other: "_Event") -> float:
        return 0.04  # ms of a whole graph


@pytest.fixture
def simulated_gpu(monkeypatch):
    """Everything that asks for a GPU finds one, and its tensors are the CPU's."""
    testing = types.ModuleType("triton.testing")

    def do_bench(call, warmup, rep, return_mode):
        assert return_mode == "median"
        call()
        return 0.5

    testing.do_bench = do_bench
    triton = types.ModuleType("triton")
    triton.testing = testing
    triton.__spec__ = importlib.util.spec_from_loader("triton", loader=None)
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.testing", testing)
    properties = types.SimpleNamespace(name="a GPU")
    for name, value in {
        "is_available": lambda: True,
        "synchronize": lambda: None,
        "current_device": lambda: 0,
        "get_device_properties": lambda index: properties,
        "current_stream": _Stream,
        "Stream": _Stream,
        "stream": _Stream,
        "CUDAGraph": _Graph,
        "graph": _Graph,
        "Event": _Event,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, "compile", lambda f, dynamic: f)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    report = types.SimpleNamespace(name="a device", kernel="cuda/sm_00")
    monkeypatch.setattr(environment, "report", lambda device: report)
    monkeypatch.setattr(measuring, "make", lambda case, device: tensors.make(case, "cpu"))
    real = block.BlockBench
    monkeypatch.setattr(measuring, "BlockBench", lambda case, device: real(case, "cpu"))
    monkeypatch.setitem(cases.BLOCK_SIZES, "cuda", (16, 64))
    monkeypatch.setenv(environment.PLAN, "native")  # what a run sets is undone with it


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is simulated where there is none")
class TestSimulatedGpu:
    def test_every_group_runs_through_the_gpus_clocks(self, simulated_gpu, tmp_path, monkeypatch):
        for name, small in {
            "FEW_ROWS": (1, 4),
            "FEW_ROWS_COLS": (16384,),
            "END_TO_END_SIZES": ((16, 64),),
            "SMALL_SIZES": ((16, 64), (1, 8192)),
        }.items():
            monkeypatch.setattr(cases, name, small)
        path, picture = tmp_path / "r.json", tmp_path / "p.png"
        words = ["--device", "cuda", "--peers", "torch", "compile", "--elements", "2^14"]
        words += ["--cols", "64", "16384", "8192", "1001", "1024", "16", "2048"]
        words += ["--dtypes", *ALL_DTYPES, "--json", str(path), "--plot", str(picture)]
        arguments = parse(*words)
        bench.run(arguments)
        results = store.load(path)
        timed = {c.work for c in results.cells.values() if c.us is not None}
        assert timed == set(cases.WORKS)
        times = {c.us for c in results.cells.values() if c.work == cases.REPLAY and c.us}
        assert times == {0.04 * 1e3 / timing.REPLAYED_CALLS}
        full = [c for c in results.cells.values() if c.work == cases.FORWARD and c.us]
        assert {c.us for c in full} == {500.0}
        assert {c.ratio for c in full} == {1.0}
        assert results.runs[0]["gpu"] == "a GPU"
        assert picture.exists()

    def test_a_graph_that_cannot_be_captured_costs_its_own_cell_only(
        self, simulated_gpu, tmp_path, monkeypatch
    ):
        class Refusing(_Graph):
            captures = 0

            def __init__(self, *arguments: object) -> None:
                super().__init__(*arguments)
                Refusing.captures += 1
                if Refusing.captures == 1:
                    raise RuntimeError("capture of ours failed")

        monkeypatch.setattr(torch.cuda, "graph", Refusing)
        path = tmp_path / "r.json"
        words = ("--device", "cuda", "--peers", "torch", "--cases", "small", "--sizes", "16x64")
        assert bench.run(parse(*words, "--json", str(path))) == 1
        found = {c.contender: c for c in store.load(path).cells.values()}
        assert found["ours"].why == "RuntimeError: capture of ours failed"
        assert found["torch"].us

    def test_a_clock_that_fails_costs_its_case_only(self, simulated_gpu, tmp_path, monkeypatch):
        def do_bench(call, warmup, rep, return_mode):
            if call().shape[1] == 64:
                raise RuntimeError("out of memory")
            return 0.5

        monkeypatch.setattr(sys.modules["triton.testing"], "do_bench", do_bench)
        path = tmp_path / "r.json"
        words = ("--device", "cuda", "--peers", "--cases", "forward", "--cols", "64", "128")
        words += ("--elements", "2^12", "--dtypes", "float32", "--json", str(path))
        assert bench.run(parse(*words)) == 1
        found = {c.cols: c for c in store.load(path).cells.values()}
        assert found[64].why == "RuntimeError: out of memory"
        assert found[128].us == 500.0

    def test_a_fault_of_the_device_ends_the_run_and_records_nothing_of_its_case(
        self, simulated_gpu, tmp_path, monkeypatch, capsys
    ):
        def fault(*_: object) -> None:
            raise RuntimeError("illegal memory access")

        monkeypatch.setitem(contenders.FACTORIES, "torch", lambda: contenders.Contender(fault))
        path = tmp_path / "r.json"
        words = ("--device", "cuda", "--peers", "torch", "--cases", "forward", "--cols", "64")
        words += ("--elements", "2^12", "--dtypes", "float32", "--json", str(path))
        assert bench.run(parse(*words)) == 0, "a peer's own failure is no fault"
        path.unlink()
        monkeypatch.setattr(torch.cuda, "synchronize", fault)
        assert bench.run(parse(*words)) == 1
        assert not path.exists()
        assert "illegal memory access" in capsys.readouterr().out

    def test_a_plan_that_the_library_would_not_hear_of_is_refused(self, simulated_gpu, tmp_path):
        folder = tmp_path / "lib"
        folder.mkdir()
        library = folder / "libsimple_layernorm_gpu.so"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(environment._C, "__file__", str(tmp_path / "_C.so"))
            library.write_bytes(b"\0kernels\0")
            with pytest.raises(UserError, match="one plan"):
                bench.run(parse("--device", "cuda", "--plan", "portable", "--list"))
            library.write_bytes(b"\0SIMPLE_LAYERNORM_PLAN\0")
            assert bench.run(parse("--device", "cuda", "--plan", "portable", "--list")) == 0

    def test_another_plan_is_a_contender_of_its_own(self, simulated_gpu, tmp_path, monkeypatch):
        monkeypatch.setattr(environment, "plan_can_be_chosen", lambda: True)
        path = tmp_path / "r.json"
        words = ("--device", "cuda", "--peers", "--cases", "forward", "--cols", "64", "--elements",
                 "2^12", "--dtypes", "float32", "--json", str(path))  # fmt: skip
        assert bench.run(parse(*words)) == 0
        assert bench.run(parse(*words, "--plan", "portable")) == 0
        assert environment.os.environ[environment.PLAN] == "portable"
        assert {c.contender for c in store.load(path).cells.values()} == {"ours", "ours (portable)"}

    def test_the_limit_of_a_misaligned_case_is_aligned(self):
        from simple_layernorm.bench.limits import limit_call

        case = cases.Case(cases.BACKWARD, 8, 1024, "bfloat16", offset=1)
        t = tensors.make(case, "cpu")
        assert t.input.data_ptr() % 16 == 2
        assert t.grad_output.data_ptr() % 16 == 2
        seen = []
        real = torch.add
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                torch, "add", lambda *a, **k: seen.extend([*a, k["out"]]) or real(*a, **k)
            )
            limit_call(case, t, "cuda")()
        assert [s.data_ptr() % 16 for s in seen] == [0, 0, 0]
