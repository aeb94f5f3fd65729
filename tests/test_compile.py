"""torch.compile, torch.export and what they rest on: fake tensors, functionalisation, schemas."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo import compiled_autograd
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

from simple_layernorm import layer_norm
from tensors import normal

OPS = torch.ops.simple_layernorm
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


PARAMETERS = list(itertools.product([True, False], repeat=2))


@pytest.mark.parametrize(("with_weight", "with_bias"), PARAMETERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck_is_clean(
    with_weight: bool, with_bias: bool, dtype: torch.dtype, device: str
) -> None:
    for grad_of_x, grad_of_rest in itertools.product([True, False], repeat=2):
        x = normal(3, 5, 8, dtype=dtype, device=device).requires_grad_(grad_of_x)
        weight, bias = (
            normal(8, dtype=kind, device=device).requires_grad_(grad_of_rest) if given else None
            for given, kind in ((with_weight, dtype), (with_bias, torch.float32))
        )
        opcheck(OPS.layer_norm.default, (x, (8,), weight, bias, 1e-5))
    # The inner operators are never differentiated.
    x, weight, bias = x.detach(), detached(weight), detached(bias)
    opcheck(OPS.layer_norm_forward.default, (x, (8,), weight, bias, 1e-5))
    output, mean, rstd = OPS.layer_norm_forward(x, (8,), weight, bias, 1e-5)
    bias_dtype = None if bias is None else bias.dtype
    for mask in itertools.product([True, False], repeat=3):
        if weight is None and mask[1]:
            continue
        arguments = (output, x, (8,), mean, rstd, weight, bias_dtype, mask)
        opcheck(OPS.layer_norm_backward.default, arguments)


@pytest.mark.parametrize("output_dtype", [torch.float32, torch.float16, None])
def test_opcheck_is_clean_for_every_output_dtype(
    output_dtype: torch.dtype | None, device: str
) -> None:
    x = normal(3, 5, 8, dtype=torch.float16, device=device).requires_grad_()
    opcheck(OPS.layer_norm.default, (x, (8,)), {"output_dtype": output_dtype})


Norm = Callable[..., Tensor]


def block(norm: Norm) -> Callable[..., Tensor]:
    def run(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return torch.relu(norm(x * 2, (x.shape[-1],), weight, bias, 1e-5)) + 1

    return run


def arguments(rows: int, cols: int, device: str, grad: bool = True) -> list[Tensor]:
    return [
        normal(*shape, device=device, seed=seed).requires_grad_(grad)
        for seed, shape in enumerate([(rows, cols), (cols,), (cols,)])
    ]


def check_against_eager(compiled: Any, eager: Any, inputs: list[Tensor]) -> None:
    ours, expected = compiled(*inputs), eager(*inputs)
    torch.testing.assert_close(ours, expected)
    if inputs[0].requires_grad:
        g = normal(*expected.shape, device=str(expected.device), seed=9)
        torch.testing.assert_close(
            torch.autograd.grad(ours, inputs, g), torch.autograd.grad(expected, inputs, g)
        )


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("dynamic", [True, False, None])
def test_compiles_without_a_graph_break(grad: bool, dynamic: bool | None, device: str) -> None:
    compiled = torch.compile(
        block(layer_norm), backend="aot_eager", fullgraph=True, dynamic=dynamic
    )
    for rows, cols in ((4, 8), (7, 8), (7, 33), (1, 16)):
        check_against_eager(compiled, block(layer_norm), arguments(rows, cols, device, grad))


def test_inductor_gives_the_eager_result(device: str) -> None:
    compiled = torch.compile(block(layer_norm), fullgraph=True, dynamic=True)
    for rows, cols in ((4, 8), (7, 33)):
        check_against_eager(compiled, block(layer_norm), arguments(rows, cols, device))


@pytest.mark.parametrize("dynamic", [True, None])
def test_recompiles_no_more_often_than_torchs(dynamic: bool | None) -> None:
    shapes = [(4, 8), (5, 8), (6, 8), (1, 8), (3, 16), (3, 17), (5, 33), (0, 8)]
    counts = []
    for norm in (layer_norm, F.layer_norm):
        torch._dynamo.reset()
        backend = CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(block(norm), backend=backend, fullgraph=True, dynamic=dynamic)
        for rows, cols in shapes:
            compiled(*arguments(rows, cols, "cpu")).sum().backward()
        counts.append(backend.frame_count)
    assert counts[0] <= counts[1]


def test_parameters_that_are_none_compile() -> None:
    compiled = torch.compile(block(layer_norm), backend="aot_eager", fullgraph=True)
    x, weight, bias = arguments(4, 8, "cpu", grad=False)
    for parameters in ((None, None), (weight, None), (None, bias)):
        check_against_eager(compiled, block(layer_norm), [x, *parameters])


def test_derivatives_inside_a_compiled_function() -> None:
    def hessian_trace(x: Tensor) -> Tensor:
        return torch.func.hessian(lambda t: layer_norm(t, (5,)).pow(3).sum())(x).sum()

    def per_sample(x: Tensor) -> Tensor:
        return torch.vmap(torch.func.grad(lambda t: layer_norm(t, (5,)).pow(3).sum()))(x)

    x = normal(3, 5, dtype=torch.float64)
    for function in (hessian_trace, per_sample):
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_backward_under_compiled_autograd() -> None:
    for rows in (4, 7, 9):
        inputs = arguments(rows, 8, "cpu")
        expected = torch.autograd.grad(block(layer_norm)(*inputs).sum(), inputs)
        with compiled_autograd._enable(torch.compile(backend="aot_eager", fullgraph=True)):
            block(layer_norm)(*inputs).sum().backward()
        torch.testing.assert_close([t.grad for t in inputs], list(expected))


def test_autocast_region_compiles(device: str) -> None:
    matrix = normal(8, 8, device=device, seed=5)

    def region(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            return layer_norm(x @ matrix, (8,), weight, bias)

    inputs = arguments(8, 8, device)
    compiled = torch.compile(region, backend="aot_eager", fullgraph=True)
    assert compiled(*inputs).dtype == region(*inputs).dtype
    check_against_eager(compiled, region, inputs)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(1, 2),
    "permuted batches": lambda t: t.transpose(0, 1),
    "strided columns": lambda t: t[..., ::2],
    "slice of rows": lambda t: t[..., 3:20],
    "expanded": lambda t: t[:1].expand(6, 10, 48),
    "no rows": lambda t: t[:0],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_fake_tensors_promise_what_the_kernels_give(
    layout: Callable[[Tensor], Tensor], dtype: torch.dtype, device: str
) -> None:
    x = layout(normal(6, 10, 48, dtype=dtype, device=device))
    weight = normal(x.shape[-1], dtype=dtype, device=device)

    def everything(x: Tensor, weight: Tensor) -> list[Tensor]:
        output, mean, rstd = OPS.layer_norm_forward(x, weight.shape, weight, None, 1e-5)
        mask = (True, True, True)
        gradients = OPS.layer_norm_backward(x, x, weight.shape, mean, rstd, weight, None, mask)
        return [layer_norm(x, weight.shape, weight), output, mean, rstd, *gradients]

    with FakeTensorMode() as mode:
        fakes = everything(mode.from_tensor(x), mode.from_tensor(weight))
    for fake, real in zip(fakes, everything(x, weight), strict=True):
        assert (fake.shape, fake.dtype, fake.device) == (real.shape, real.dtype, real.device)
        assert fake.stride() == real.stride()


class Model(torch.nn.Module):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.weight, self.bias = (
            torch.nn.Parameter(normal(16, device=device, seed=s)) for s in (1, 2)
        )

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, (16,), self.weight, self.bias) * 2


@pytest.mark.parametrize("strict", [True, False])
def test_exports_with_dynamic_rows(strict: bool, device: str) -> None:
    model = Model(device)
    example = (normal(4, 16, device=device),)
    shapes = {"x": {0: torch.export.Dim("rows")}}
    program = torch.export.export(model, example, dynamic_shapes=shapes, strict=strict)
    targets = [node.target for node in program.graph.nodes]
    assert OPS.layer_norm.default in targets
    for rows in (2, 4, 31):
        x = normal(rows, 16, device=device, seed=rows)
        torch.testing.assert_close(program.module()(x), model(x))
    decomposed = program.run_decompositions()
    assert OPS.layer_norm.default in [node.target for node in decomposed.graph.nodes]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # torch's first, to make a pool
@pytest.mark.parametrize("grad", [True, False])
def test_reduce_overhead_replays_with_new_data(grad: bool) -> None:
    compiled = torch.compile(block(layer_norm), mode="reduce-overhead", fullgraph=True)
    for seed in range(5):
        inputs = [t + seed for t in arguments(64, 128, "cuda", grad=False)]
        for tensor in inputs:
            tensor.requires_grad_(grad)
        torch.compiler.cudagraph_mark_step_begin()
        check_against_eager(compiled, block(layer_norm), inputs)
