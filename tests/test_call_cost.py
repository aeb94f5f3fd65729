"""What a call of the smallest kind costs beside torch's: rows so few that only overhead is left."""

import statistics
import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from simple_layernorm import layer_norm

BLOCKS, CALLS = 101, 200


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("grad", [False, True])
def test_a_small_call_costs_no_more_than_torchs(
    grad: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.randn(4, 16).requires_grad_(grad)
    weight, bias = (torch.randn(16).requires_grad_(grad) for _ in range(2))

    def microseconds(norm: Callable[..., Tensor]) -> float:
        start = time.thread_time()
        for _ in range(CALLS):
            norm(x, (16,), weight, bias)
        return (time.thread_time() - start) / CALLS * 1e6

    # CPU time of this thread in interleaved blocks: a busy machine slows both alike, if at all.
    pairs = [(microseconds(layer_norm), microseconds(F.layer_norm)) for _ in range(BLOCKS)]
    ratio = statistics.median(ours / torchs for ours, torchs in pairs)
    with capsys.disabled():
        print(
            f"\n(4, 16) float32, CPU, one thread, {'with' if grad else 'without'} gradients: "
            f"{min(ours for ours, _ in pairs):.2f} µs, torch {min(t for _, t in pairs):.2f} µs, "
            f"median ratio {ratio:.2f}"
        )
    assert ratio <= 1
