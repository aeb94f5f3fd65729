"""The benchmark's parts: cases, bars, results file, check against float64, clocks."""

import itertools
import time

import pytest
import torch

from simple_layernorm.bench import bars, cases, check, contenders, store, tensors, timing
from simple_layernorm.bench import measure as measuring
from simple_layernorm.errors import UserError

ALL_DTYPES = list(cases.DTYPES)


def cell(
    work: str = cases.FORWARD, cols: int = 4096, dtype: str = "bfloat16", **values
) -> store.Cell:
    content = {
        "rows": 65536,
        "offset": 0,
        "device": "cuda",
        "threads": 0,
        "contender": "ours",
        "run": 0,
        "us": 100.0,
        "limit_us": 100.0,
        "limit": "copy",
    }
    return store.Cell(work=work, cols=cols, dtype=dtype, **{**content, **values})


def results_of(*cells: store.Cell, sources: str | None = None) -> store.Results:
    run = {"kernel_sources": sources, "torch": "2", "date": "2026-11-29", "cpu": "c", "gpu": "g"}
    results = store.Results(runs=[run, dict(run)])
    for one in cells:
        results.add(one)
    return results


class TestCases:
    def test_default_sizes_of_a_gpu_have_2_28_elements_at_most_one_row_less(self):
        for case in cases.select(["forward", "backward", "odd"], ["float32"], "cuda"):
            assert 0 <= 2**28 - case.elements < case.cols

    def test_a_case_of_two_groups_is_measured_once(self):
        once = cases.select(["forward"], ["float32"], "cpu")
        assert cases.select(["forward", "forward"], ["float32"], "cpu") == once

    def test_columns_select_listed_sizes_and_choose_rows_of_full_ones(self):
        chosen = cases.select(["forward", "few-rows"], ["float32"], "cuda", cols=[16384, 48])
        assert {c.cols for c in chosen} == {16384, 48}
        assert {c.rows for c in chosen if c.cols == 16384} == {1, 4, 16, 64, 16384}

    def test_every_bar_applies_to_a_default_case(self):
        for bar in bars.BARS:
            every = cases.select(cases.groups_of(bar.device), ALL_DTYPES, bar.device)
            assert any(bar.matches(case, bar.device) for case in every), bar

    @pytest.mark.parametrize("group", [g for g in cases.GROUPS if g != "block"])
    def test_every_default_case_of_a_gpu_has_a_bar(self, group):
        for case in cases.select([group], ["float32", "bfloat16"], "cuda"):
            assert any(bar.matches(case, "cuda") for bar in bars.BARS), case


class TestBars:
    @pytest.mark.parametrize(
        ("cols", "dtype", "ratio", "state"),
        [
            (8192, "bfloat16", 0.95, bars.BELOW),
            (8192, "bfloat16", 0.97, bars.GATE),
            (8192, "bfloat16", 0.99, bars.AIM),
            (131072, "float32", 0.89, bars.GATE),
            (32768, "float32", 0.95, bars.GATE),
            (32768, "bfloat16", 0.95, bars.BELOW),
        ],
    )
    def test_forward_is_held_against_gate_and_aim(self, cols, dtype, ratio, state):
        one = cell(cols=cols, dtype=dtype, us=100.0, limit_us=100.0 * ratio)
        assert bars.judge(one, results_of(one))[0].state == state

    def test_few_rows_may_take_two_and_a_half_copies_or_ten_microseconds(self):
        def state(us: float, limit_us: float) -> str:
            one = cell(rows=4, cols=65536, us=us, limit_us=limit_us)
            return bars.judge(one, results_of(one))[0].state

        assert state(24.9, 10.0) == bars.AIM
        assert state(25.2, 10.0) == bars.BELOW
        assert state(9.9, 3.0) == bars.AIM

    def test_a_peer_that_is_ahead_by_more_than_two_points_is_a_loss(self):
        ours = cell(cols=8192, limit_us=97.0)
        ahead = cell(cols=8192, limit_us=99.5, contender="compile")
        verdicts = bars.judge(ours, results_of(ours, ahead))
        assert [v.state for v in verdicts if "compile" in v.asked] == [bars.BELOW]

    def test_times_of_two_runs_are_not_compared(self):
        ours = cell(cases.REPLAY, rows=16, cols=64, dtype="float32", us=2.0)
        peer = cell(
            cases.REPLAY, rows=16, cols=64, dtype="float32", us=1.0, contender="compile", run=1
        )
        assert bars.judge(ours, results_of(ours, peer))[0].state == bars.UNKNOWN

    def test_float16_may_be_two_points_behind_bfloat16(self):
        twin = cell(limit_us=98.0)
        for ratio, state in ((0.97, bars.AIM), (0.95, bars.BELOW)):
            half = cell(dtype="float16", limit_us=100.0 * ratio)
            assert bars.judge(half, results_of(half, twin))[0].state == state

    def test_on_the_cpu_a_share_of_the_limit_is_enough_instead_of_a_multiple_of_torch(self):
        place = {"device": "cpu", "threads": 1, "rows": 4096, "cols": 768}
        torch_cell = cell(us=150.0, contender="torch", **place)
        for limit_us, state in ((90.0, bars.AIM), (60.0, bars.BELOW)):
            ours = cell(us=100.0, limit_us=limit_us, **place)
            assert bars.judge(ours, results_of(ours, torch_cell))[0].state == state


class TestStore:
    def test_a_saved_file_reads_back_equal(self, tmp_path):
        path = tmp_path / "r.json"
        kept = results_of(cell(), cell(cols=64, us=None, why="no"), sources="abc")
        store.save(kept, path)
        read = store.load(path)
        assert read.cells == kept.cells
        assert read.runs == kept.runs[:1], "a run without cells is dropped"

    @pytest.mark.parametrize("text", ["", "[]", '{"version": 9}', '{"version": 1, "runs": []}'])
    def test_a_file_that_holds_no_results_is_named(self, tmp_path, text):
        path = tmp_path / "r.json"
        path.write_text(text)
        with pytest.raises(UserError, match=r"r\.json"):
            store.load(path)


class TestCheck:
    CASE = cases.Case(cases.BACKWARD, 300, 40, "float32")

    def test_a_wrong_element_of_any_output_is_found(self):
        t = tensors.make(self.CASE, "cpu")
        expected = check.reference(t, cases.BACKWARD)
        right = contenders.FACTORIES["torch"]().call(self.CASE, t)()
        assert check.largest_error(cases.BACKWARD, right, expected) < 2e-5
        for output in range(3):
            wrong = [r.clone() for r in right]
            wrong[output].view(-1)[-1] += 0.1 * wrong[output].abs().max()
            assert check.largest_error(cases.BACKWARD, wrong, expected) > 1e-3

    def test_an_element_outside_the_sampled_rows_must_at_least_be_written(self, monkeypatch):
        monkeypatch.setattr(check, "SAMPLED_ELEMENTS", 40 * 10)
        t = tensors.make(self.CASE, "cpu")
        expected = check.reference(t, cases.FORWARD)
        assert (len(expected.rows), expected.rows[0], expected.rows[-1]) == (10, 0, 299)
        output = torch.nn.functional.layer_norm(t.input, (40,), t.weight, t.bias)
        output[5, 3] = float("nan")
        with pytest.raises(check.WrongResult, match="never written"):
            check.largest_error(cases.FORWARD, output, expected)

    def test_memory_of_fresh_outputs_is_poisoned_before_each_contenders_check(self, monkeypatch):
        events = []
        real = check.poison
        monkeypatch.setattr(check, "poison", lambda like: events.append("poison") or real(like))

        def layer_norm(x, w, b):
            events.append("call")
            return torch.nn.functional.layer_norm(x, x.shape[1:], w, b)

        both = {name: contenders.Contender(layer_norm) for name in ("ours", "torch")}
        case = cases.Case(cases.FORWARD, 8, 64, "float32")
        measuring.measure(case, both, device="cpu", threads=[1], budget_ms=1, run=0)
        assert events[:4] == ["poison", "call", "poison", "call"]

    def test_reference_does_not_depend_on_chunks(self, monkeypatch):
        t = tensors.make(self.CASE, "cpu")
        whole = check.reference(t, cases.BACKWARD)
        monkeypatch.setattr(tensors, "CHUNK", 40 * 7)
        parts = check.reference(tensors.make(self.CASE, "cpu"), cases.BACKWARD)
        torch.testing.assert_close(parts.grad_weight, whole.grad_weight)
        torch.testing.assert_close(parts.grad_bias, whole.grad_bias)


class TestTiming:
    @pytest.mark.parametrize("now", timing.CLOCKS.values(), ids=timing.CLOCKS)
    def test_contenders_take_turns_and_the_slower_one_takes_longer(self, now):
        order: list[str] = []

        def call(name: str, loops: int):
            def work() -> None:
                order.append(name)
                for _ in range(loops):
                    pass

            return work

        times = timing.on_thread(
            {("fast", 1): call("fast", 10_000), ("slow", 1): call("slow", 100_000)}, 5, now
        )
        assert times["slow", 1] > 2 * times["fast", 1]
        turns = [name for name, _ in itertools.groupby(order[4:])]
        assert len(turns) > timing.FEWEST_ROUNDS

    def test_numbers_of_threads_take_turns(self, one_thread):
        seen: list[int] = []
        calls = {("ours", count): lambda: seen.append(torch.get_num_threads()) for count in (1, 2)}
        timing.on_thread(calls, 5, timing.CLOCKS["wall"])
        turns = [count for count, _ in itertools.groupby(seen)]
        assert len(turns) > timing.FEWEST_ROUNDS
        assert set(turns) == {1, 2}

    def test_a_calls_cost_is_that_of_one_call(self):
        now = itertools.count(0, 1_000_000)
        cost = timing.host_cost({("one", 0): lambda: None}, lambda: next(now))
        assert cost == {("one", 0): 1_000 / timing.HOST_CALLS}

    def test_cpu_time_leaves_out_what_the_thread_waits_for(self):
        def wait() -> None:
            time.sleep(0.002)

        case = cases.Case(cases.FORWARD, 8, 8, "float32")
        waited = {
            clock: timing.timer_for(case, "cpu", 1, clock)({("wait", 1): wait})["wait", 1]
            for clock in timing.CLOCKS
        }
        assert waited["wall"] > 2000 > waited["cpu"]
