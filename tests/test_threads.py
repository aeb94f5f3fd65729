"""Threads: of the caller, who may use the library from several; and within a call, torch's own."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from simple_layernorm import layer_norm, reference
from tensors import normal
from tolerances import assert_near


def test_python_threads_may_call_at_the_same_time(device: str) -> None:
    inputs = [normal(50, 300, device=device, seed=s) for s in range(4)]
    expected = [reference.layer_norm(x, (300,)) for x in inputs]
    outputs: list[Tensor | None] = [None] * 4

    def work(index: int) -> None:
        for _ in range(20):
            x = inputs[index].detach().requires_grad_()
            output = layer_norm(x, (300,))
            output.sum().backward()
            outputs[index] = output.detach()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for output, wanted in zip(outputs, expected, strict=True):
        assert output is not None
        assert_near(output, wanted, "output")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux")
def test_intra_op_threads_are_those_of_torchs_own_pool() -> None:
    x = normal(4096, 512)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        F.layer_norm(x, (512,))  # starts torch's pool
        before = cpu_time_of_threads()
        for _ in range(200):
            layer_norm(x, (512,))
        after = cpu_time_of_threads()
    finally:
        torch.set_num_threads(threads)
    assert not after.keys() - before.keys()  # a second pool would have threads of its own
    assert sum(after[thread] > before[thread] for thread in after) >= 2


def cpu_time_of_threads() -> dict[str, int]:
    """In clock ticks, of every thread of this process."""
    times = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it may end before it is read
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            times[task.name] = int(fields[11]) + int(fields[12])
    return times
