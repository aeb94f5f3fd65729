"""What only a GPU has: streams, graphs, a second device, tensors beyond 2**31 elements."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from simple_layernorm import layer_norm, reference
from tensors import normal
from tolerances import assert_near

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Warning. Profiler clears events"),  # torch 2.11
]

A_LONG_WHILE = 100_000_000  # clock cycles: tens of milliseconds


def leaves(rows: int, cols: int, device: str = "cuda", seed: int = 0) -> list[Tensor]:
    shapes = [(rows, cols), (cols,), (cols,)]
    return [
        normal(*shape, device=device, seed=seed + i).requires_grad_()
        for i, shape in enumerate(shapes)
    ]


def check(output: Tensor, gradients: tuple[Tensor, ...], inputs: list[Tensor], g: Tensor) -> None:
    x, weight, bias = inputs
    cols = x.shape[-1:]
    assert_near(output.detach(), reference.layer_norm(x, cols, weight.detach(), bias), "output")
    expected = reference.layer_norm_gradients(g, x, cols, weight.detach())
    for actual, name in zip(gradients, ("input", "weight", "bias"), strict=True):
        assert_near(actual, getattr(expected, name), f"grad_{name}")


def forward_and_backward(inputs: list[Tensor], g: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    x, weight, bias = inputs
    output = layer_norm(x, x.shape[-1:], weight, bias)
    return output, torch.autograd.grad(output, inputs, g)


def test_runs_on_the_current_stream_behind_its_work() -> None:
    inputs, g = leaves(256, 512), normal(256, 512, device="cuda", seed=9)
    wanted_x, wanted_g = inputs[0].detach().clone(), g.clone()
    stream = torch.cuda.Stream()
    for _ in range(3):
        with torch.no_grad():
            inputs[0].zero_()
            g.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(A_LONG_WHILE)
            with torch.no_grad():
                inputs[0].copy_(wanted_x)
                g.copy_(wanted_g)
            output, gradients = forward_and_backward(inputs, g)
        torch.cuda.synchronize()
        check(output, gradients, inputs, g)


def test_backward_runs_on_the_stream_of_the_forward_pass() -> None:
    inputs, g = leaves(128, 256), torch.zeros(128, 256, device="cuda")
    wanted = normal(128, 256, device="cuda", seed=9)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        output = layer_norm(inputs[0], (256,), inputs[1], inputs[2])
        torch.cuda._sleep(A_LONG_WHILE)
        g.copy_(wanted)
        gradients = torch.autograd.grad(output, inputs, g)
    torch.cuda.synchronize()
    check(output, gradients, inputs, wanted)


def test_two_streams_at_once_do_not_share_a_workspace() -> None:
    streams = [torch.cuda.Stream() for _ in range(2)]
    problems = [
        (leaves(4096, 1024, seed=10 * i), normal(4096, 1024, device="cuda", seed=5 + i))
        for i in range(2)
    ]
    results: list[list[tuple[Tensor, tuple[Tensor, ...]]]] = [[], []]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, problem, result in zip(streams, problems, results, strict=True):
            with torch.cuda.stream(stream):
                result.append(forward_and_backward(*problem))
    torch.cuda.synchronize()
    for (inputs, g), result in zip(problems, results, strict=True):
        for output, gradients in result:
            check(output, gradients, inputs, g)


@pytest.mark.parametrize("cols", [2**18, 2**20, 2**21])
def test_rows_shared_by_many_blocks_run_on_streams_of_every_priority(cols: int) -> None:
    """Their blocks wait for each other: those of one kernel must not keep another's out."""
    least, greatest = torch.cuda.Stream.priority_range()
    streams = [torch.cuda.Stream(priority=p) for p in range(greatest, least + 1)]
    inputs, g = leaves(3, cols), normal(3, cols, device="cuda", seed=5)
    expected = forward_and_backward(inputs, g)
    check(*expected, inputs, g)
    torch.cuda.synchronize()
    results = []
    for _ in range(10):
        for stream in streams:
            with torch.cuda.stream(stream):
                own = [t.detach().requires_grad_() for t in inputs]
                results.append(forward_and_backward(own, g))
    torch.cuda.synchronize()
    for output, gradients in results:
        assert torch.equal(output, expected[0])
        assert all(torch.equal(a, b) for a, b in zip(gradients, expected[1], strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(64, 128), (3, 65537), (4097, 768), (2, 2**20), (40, 2**18)])
def test_a_captured_graph_replays_with_new_data(shape: tuple[int, int], dtype: torch.dtype) -> None:
    inputs = [t.detach().to(dtype).requires_grad_() for t in leaves(*shape)]
    g = normal(*shape, dtype=dtype, device="cuda", seed=9)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        forward_and_backward(inputs, g)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output, gradients = forward_and_backward(inputs, g)
    for seed in range(3):
        with torch.no_grad():
            for i, tensor in enumerate([*inputs, g]):
                fresh = normal(*tensor.shape, dtype=dtype, device="cuda", seed=20 * seed + i)
                tensor.copy_(fresh)
        graph.replay()
        torch.cuda.synchronize()
        check(output, gradients, inputs, g)
    now = forward_and_backward([t.detach().requires_grad_() for t in inputs], g)
    assert torch.equal(output, now[0])
    assert all(torch.equal(a, b) for a, b in zip(gradients, now[1], strict=True))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_call_does_not_synchronise() -> None:
    inputs, g = leaves(256, 512), normal(256, 512, device="cuda", seed=9)
    forward_and_backward(inputs, g)  # loads the kernels
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        torch.cuda._sleep(A_LONG_WHILE)
        forward_and_backward(inputs, g)
        assert not torch.cuda.current_stream().query()  # the sleep is not over yet
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_second_gpu_works_while_the_first_is_current() -> None:
    inputs, g = leaves(33, 96, "cuda:1"), normal(33, 96, device="cuda:1", seed=9)
    torch.cuda.set_device(0)
    output, gradients = forward_and_backward(inputs, g)
    torch.cuda.synchronize(1)
    assert output.device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0
    check(output, gradients, inputs, g)


@pytest.mark.skipif(torch.version.hip is not None, reason="AMD GPUs load them as others")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_of_large_tensors_have_the_bits_of_small_ones(dtype: torch.dtype) -> None:
    """They are loaded in another way: see keeps_cached in launch_plan.hpp."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    rows = 9 * cache // (4096 * dtype.itemsize)
    x = torch.randn(rows, 4096, device="cuda").to(dtype)
    batches = [layer_norm(part, (4096,)) for part in x.split(rows // 9)]
    assert torch.equal(layer_norm(x, (4096,)), torch.cat(batches))


BITS_WHEREVER_ROWS_LIE = """
import torch
from simple_layernorm import layer_norm

for dtype in (torch.float32, torch.bfloat16):
    for cols in (512, 4224, 16384, 65536):
        x, g = (torch.randn(301, cols, device="cuda").to(dtype) for _ in range(2))
        weight = torch.randn(cols, device="cuda").to(dtype).requires_grad_()
        results = []
        for offset in (0, 1):
            moved = [torch.empty(t.numel() + offset, device="cuda", dtype=dtype) for t in (x, g)]
            own_x, own_g = (m[offset:].view(301, cols).copy_(t) for m, t in zip(moved, (x, g)))
            own_x.requires_grad_()
            output = layer_norm(own_x, (cols,), weight)
            results.append([output, *torch.autograd.grad(output, (own_x, weight), own_g)])
        assert all(torch.equal(a, b) for a, b in zip(*results)), (dtype, cols)
"""


@pytest.mark.parametrize("plan", ["native", "portable"])
def test_bits_do_not_depend_on_where_rows_lie(plan: str) -> None:
    environment = {**os.environ, "SIMPLE_LAYERNORM_PLAN": plan}
    subprocess.run([sys.executable, "-c", BITS_WHEREVER_ROWS_LIE], env=environment, check=True)


def rows_of(count: int, length: int, total: int) -> list[slice]:
    """At both ends, and around the elements where 32-bit indices would wrap."""
    edges = [0, 2**31 // length, 2**32 // length, total]
    return [slice(max(0, e - count), min(total, e + count)) for e in edges if e <= total]


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "cols"), [(2**22 + 3, 1024), (2**23 + 5, 513), (4099, 2**20 + 1)])
def test_more_than_2p32_elements(rows: int, cols: int) -> None:
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] < 7 * rows * cols * 2:
        pytest.skip("needs more memory on the GPU")
    x = torch.randn(rows, cols, dtype=torch.float16, device="cuda").requires_grad_()
    g = torch.randn(rows, cols, dtype=torch.float16, device="cuda")
    weight = torch.randn(cols, device="cuda").requires_grad_()
    output = layer_norm(x, (cols,), weight)
    grad_input, grad_weight = torch.autograd.grad(output, (x, weight), g)
    for part in rows_of(100 if cols < 2**20 else 2, cols, rows):
        expected = reference.layer_norm(x[part], (cols,), weight.detach())
        assert_near(output[part].detach(), expected, "output")
        gradients = reference.layer_norm_gradients(g[part], x[part], (cols,), weight.detach())
        assert_near(grad_input[part], gradients.input, "grad_input")
    assert_near(grad_weight, weight_gradient_by_parts(x.detach(), g), "grad_weight")


def weight_gradient_by_parts(x: Tensor, g: Tensor) -> Tensor:
    total = torch.zeros(x.shape[1], dtype=torch.float64, device=x.device)
    step = 2**27 // x.shape[1]
    for start in range(0, x.shape[0], step):
        part = slice(start, start + step)
        total += reference.layer_norm_gradients(g[part], x[part], x.shape[1:]).weight
    return total


def kernels_in(function: Callable[[], object]) -> int:
    with torch.profiler.profile() as trace:
        function()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in trace.events())


def test_forward_is_one_kernel() -> None:
    inputs = leaves(64, 128)
    layer_norm(inputs[0], (128,), inputs[1], inputs[2])
    with torch.no_grad():
        assert kernels_in(lambda: layer_norm(inputs[0], (128,), inputs[1], inputs[2])) == 1
