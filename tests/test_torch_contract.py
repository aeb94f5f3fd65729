"""Life inside PyTorch: autograd's rules, autocast, overrides, tracing, the profiler."""

import copy
import itertools
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import simple_layernorm
from simple_layernorm import layer_norm, reference
from tensors import normal
from tolerances import assert_near

pytestmark = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # torch 2.11
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def parameters(cols: int, device: str, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    weight, bias = (normal(cols, dtype=dtype, device=device, seed=s) for s in (1, 2))
    return weight.requires_grad_(), bias.requires_grad_()


# Autograd


def test_output_requires_grad_only_if_an_input_does_and_grad_is_on(device: str) -> None:
    x = normal(4, 8, device=device)
    weight, _ = parameters(8, device)
    assert not layer_norm(x, (8,)).requires_grad
    assert layer_norm(x, (8,), weight).requires_grad
    with torch.no_grad():
        assert not layer_norm(x, (8,), weight).requires_grad
    with torch.inference_mode():
        output = layer_norm(x, (8,), weight)
        assert output.is_inference()
    assert not output.requires_grad


def test_inference_tensors_are_refused_by_autograd_as_torch_does(device: str) -> None:
    weight, _ = parameters(8, device)
    with torch.inference_mode():
        x = normal(4, 8, device=device).clone()
    assert torch.equal(layer_norm(x, (8,)), layer_norm(x.clone(), (8,)))
    for norm in (F.layer_norm, layer_norm):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            norm(x, (8,), weight)


def saved_shapes(grad: bool, inputs: tuple[Tensor, Tensor, Tensor]) -> list[tuple[int, ...]]:
    packed: list[tuple[int, ...]] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tuple(tensor.shape))
        return tensor.detach().clone()

    with saved_tensors_hooks(pack, lambda tensor: tensor), torch.set_grad_enabled(grad):
        x, weight, bias = inputs
        output = layer_norm(x, weight.shape, weight, bias)
        if grad:
            g = torch.ones_like(output)
            expected = reference.layer_norm_gradients(g, x, weight.shape, weight.detach())
            for actual, name in zip(
                torch.autograd.grad(output, inputs, g), ("input", "weight", "bias"), strict=True
            ):
                assert_near(actual, getattr(expected, name), f"grad_{name}")
    return packed


def test_tensors_are_saved_through_hooks_and_only_when_grad_is_on(device: str) -> None:
    inputs = (normal(5, 8, device=device).requires_grad_(), *parameters(8, device))
    assert sorted(saved_shapes(True, inputs)) == [(5,), (5,), (5, 8), (8,)]
    assert saved_shapes(False, inputs) == []


@pytest.mark.parametrize("changed", ["input", "weight"])
def test_in_place_change_of_a_saved_tensor_is_detected(changed: str, device: str) -> None:
    x, weight = (normal(*s, device=device).requires_grad_() for s in ((4, 8), (8,)))
    tensors = {"input": x * 1, "weight": weight * 1}
    output = layer_norm(tensors["input"], (8,), tensors["weight"])
    with torch.no_grad():
        tensors[changed].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_in_place_change_of_bias_is_allowed(device: str) -> None:
    x = normal(4, 8, device=device).requires_grad_()
    weight, bias = parameters(8, device)
    output = layer_norm(x, (8,), weight, bias)
    with torch.no_grad():
        bias.zero_()
    output.sum().backward()  # no gradient depends on bias


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointed_gradients_are_the_same(use_reentrant: bool, device: str) -> None:
    x = normal(6, 8, device=device).requires_grad_()
    weight, bias = parameters(8, device)

    def block(t: Tensor) -> Tensor:
        return layer_norm(t * 2, (8,), weight, bias).square()

    expected = torch.autograd.grad(block(x).sum(), (x, weight, bias))
    checkpoint(block, x, use_reentrant=use_reentrant).sum().backward()
    for tensor, gradient in zip((x, weight, bias), expected, strict=True):
        assert torch.equal(tensor.grad, gradient)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.filterwarnings("ignore:Error detected in LayerNormBackward")
def test_gradient_hooks_and_anomaly_mode_work(device: str) -> None:
    x = normal(4, 8, device=device).requires_grad_()
    seen: list[Tensor] = []
    with torch.autograd.detect_anomaly(check_nan=True):
        output = layer_norm(x, (8,))
        output.register_hook(seen.append)
        output.sum().backward()
    assert len(seen) == 1
    output = layer_norm(x, (8,))
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="LayerNormBackward"):
        output.backward(torch.full_like(output, float("nan")))


def test_one_input_may_be_used_many_times(device: str) -> None:
    x = normal(6, 8, dtype=torch.float64, device=device).requires_grad_()
    weight, bias = parameters(8, device, torch.float64)

    def loss(norm: Any) -> Tensor:
        return (norm(x, (8,), weight, weight) * norm(x, (8,), bias, None, 1e-3) + x).square().sum()

    inputs = (x, weight, bias)
    ours, torchs = (torch.autograd.grad(loss(norm), inputs) for norm in (layer_norm, F.layer_norm))
    torch.testing.assert_close(ours, torchs)


# Arguments


@pytest.mark.parametrize(
    "normalized_shape",
    [(4, 5), [4, 5], torch.Size([4, 5]), (numpy.int64(4), 5), (torch.tensor(4), 5)],
)
def test_every_kind_of_normalized_shape_that_torch_takes(normalized_shape: Any) -> None:
    x = normal(3, 4, 5)
    torch.testing.assert_close(layer_norm(x, normalized_shape), F.layer_norm(x, normalized_shape))


def test_arguments_by_name_and_kinds_of_eps(device: str) -> None:
    x, (weight, bias) = normal(3, 8, device=device), parameters(8, device)
    expected = layer_norm(x, (8,), weight, bias, 1.0)
    for eps in (1, numpy.float64(1), torch.tensor(1.0)):
        named = {"eps": eps, "bias": bias, "weight": weight, "normalized_shape": [8], "input": x}
        assert torch.equal(layer_norm(**named), expected)


# Autocast


def result_dtype(norm: Any, kind: str, dtype: torch.dtype, tensors: list[Tensor | None]) -> Any:
    x, weight, bias = tensors
    try:
        with torch.autocast(kind, dtype=dtype):
            return norm(x, (8,), weight, bias).dtype
    except RuntimeError:
        return "refused"


@pytest.mark.parametrize("autocast_dtype", [torch.float16, torch.bfloat16])
def test_result_dtypes_under_autocast_are_torchs(autocast_dtype: torch.dtype, device: str) -> None:
    compared = 0
    for x_dtype, weight_dtype, bias_dtype in itertools.product(
        DTYPES, [None, *DTYPES], [None, *DTYPES]
    ):
        tensors = [
            None if dtype is None else normal(*shape, dtype=dtype, device=device)
            for dtype, shape in ((x_dtype, (4, 8)), (weight_dtype, (8,)), (bias_dtype, (8,)))
        ]
        torchs = result_dtype(F.layer_norm, device, autocast_dtype, tensors)
        if torchs != "refused":  # mixtures that torch refuses and this library takes
            assert result_dtype(layer_norm, device, autocast_dtype, tensors) == torchs
            compared += 1
    assert compared >= 20


def test_result_dtypes_under_gpu_autocast_are_torchs_on_fake_tensors() -> None:
    kinds = [torch.float32, torch.float16, torch.bfloat16]
    mixtures = [*itertools.product(kinds, [None, *kinds], [None, *kinds]), (torch.float64,) * 3]
    was_enabled = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        with FakeTensorMode():
            for x_dtype, weight_dtype, bias_dtype in mixtures:
                x = torch.empty(4, 8, dtype=x_dtype, device="cuda")
                weight, bias = (
                    None if dtype is None else torch.empty(8, dtype=dtype, device="cuda")
                    for dtype in (weight_dtype, bias_dtype)
                )
                ours, torchs = (n(x, (8,), weight, bias) for n in (layer_norm, F.layer_norm))
                assert ours.dtype == torchs.dtype
    finally:
        torch.set_autocast_enabled("cuda", was_enabled)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gpu_autocast_takes_one_kernel_and_no_cast(dtype: torch.dtype) -> None:
    x = normal(64, 128, dtype=dtype, device="cuda").requires_grad_()
    weight, bias = parameters(128, "cuda")
    with torch.autocast("cuda", dtype=dtype), torch.profiler.profile() as trace:
        output = layer_norm(x, (128,), weight, bias)
    assert output.dtype == torch.float32
    names = [event.name for event in trace.events()]
    assert not any("copy" in name or name == "aten::to" for name in names)
    assert sum("LaunchKernel" in name for name in names) == 1
    assert_near(output.detach(), reference.layer_norm(x, (128,), weight, bias), "output")
    g = normal(64, 128, device="cuda", seed=3)
    grad_input, grad_weight, _ = torch.autograd.grad(output, (x, weight, bias), g)
    expected = reference.layer_norm_gradients(g, x, (128,), weight)
    assert grad_input.dtype == dtype
    assert_near(grad_input, expected.input, "grad_input")
    assert_near(grad_weight, expected.weight, "grad_weight")


# Overrides and modes


class Recorded(Tensor):
    """A subclass that notes which functions it passes through."""

    functions: list[Any] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        cls.functions.append(function)
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.mark.parametrize("which", ["input", "weight"])
def test_subclasses_override_the_public_function(which: str) -> None:
    tensors = {"input": normal(4, 8), "weight": normal(8)}
    tensors[which] = tensors[which].as_subclass(Recorded)
    Recorded.functions.clear()
    output = layer_norm(tensors["input"], (8,), tensors["weight"])
    assert Recorded.functions == [simple_layernorm.layer_norm]
    assert type(output) is Recorded


def test_plain_subclasses_come_back_as_from_torch() -> None:
    class Plain(Tensor):
        pass

    x = normal(4, 8).as_subclass(Plain)
    assert type(layer_norm(x, (8,))) is type(F.layer_norm(x, (8,))) is Plain
    weight = torch.nn.Parameter(torch.ones(8))
    assert type(layer_norm(normal(4, 8), (8,), weight)) is Tensor


def test_torch_function_modes_see_the_public_function() -> None:
    seen: list[Any] = []

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    x = normal(4, 8)
    with Mode():
        output = layer_norm(x, (8,), eps=1e-3)
    assert seen == [simple_layernorm.layer_norm]
    assert torch.equal(output, layer_norm(x, (8,), eps=1e-3))


def test_torch_dispatch_modes_see_the_operators() -> None:
    seen: list[Any] = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    x = normal(4, 8)
    ops = torch.ops.simple_layernorm
    with Mode():
        layer_norm(x, (8,))
        layer_norm(x.requires_grad_(), (8,)).backward(torch.ones(4, 8))
    ours = [function for function in seen if function.namespace == "simple_layernorm"]
    assert ours == [
        ops.layer_norm.default,
        ops.layer_norm_forward.default,
        ops.layer_norm_backward.default,
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jit_trace_records_the_operator() -> None:
    weight = normal(8)
    traced = torch.jit.trace(
        lambda x: layer_norm(x, (8,), weight=weight, eps=1e-3), (normal(4, 8),)
    )
    assert "simple_layernorm::layer_norm" in str(traced.graph)
    x = normal(6, 8, seed=5)
    assert torch.equal(traced(x), layer_norm(x, (8,), weight, eps=1e-3))


# The rest of the world


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_path_falls_back_to_torchs_layer_norm(dtype: torch.dtype, device: str) -> None:
    base = normal(6, 10, 48, dtype=dtype, device=device)
    views = [
        base,
        base[..., ::2],
        base[..., 3:20],
        base.transpose(1, 2),
        base[:1].expand(6, 10, 48),
    ]
    with torch.profiler.profile() as trace:
        for x in views:
            cols = x.shape[-1]
            weight, bias = parameters(cols, device, dtype)
            leaf = copy.deepcopy(x).requires_grad_()
            with torch.no_grad():
                layer_norm(x, (cols,), weight, bias)
            output = layer_norm(leaf, (cols,), weight, bias)
            torch.autograd.grad(output.sum(), (leaf, weight, bias), create_graph=True)
            torch.vmap(lambda t, n=cols: layer_norm(t, (n,)))(x)
            torch.func.jvp(lambda t, n=cols: layer_norm(t, (n,)), (x,), (x,))
            with torch.autocast(device):
                layer_norm(x, (cols,), weight, bias)
    names = {event.name for event in trace.events()}
    assert "simple_layernorm::layer_norm" in names
    assert not any("layer_norm" in name and name.startswith("aten::") for name in names)


def test_subnormal_numbers_survive_a_call(device: str) -> None:
    layer_norm(normal(64, 96, device=device), (96,))
    tiny = torch.full((100_000,), 1e-40)
    assert bool((tiny * 1.0 != 0).all())
    assert 5e-324 * 1.0 != 0.0


def test_meta_tensors_give_shapes_alone() -> None:
    x = torch.empty(5, 8, device="meta", dtype=torch.bfloat16, requires_grad=True)
    output = layer_norm(x, (8,))
    assert (output.shape, output.dtype, output.device.type) == ((5, 8), torch.bfloat16, "meta")
    output.sum().backward()
    assert x.grad is not None
    assert x.grad.device.type == "meta"
