"""Derivatives of every order and kind, for every combination of inputs that need them."""

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import simple_layernorm
from simple_layernorm import layer_norm, reference
from tensors import normal
from tolerances import assert_near

Function = Callable[..., Tensor]


def textbook(
    x: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The definition, for torch to differentiate."""
    dims = tuple(range(-len(normalized_shape), 0))
    centred = x - x.mean(dims, keepdim=True)
    y = centred / (centred.square().mean(dims, keepdim=True) + eps).sqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


PARAMETERS = [(True, True), (True, False), (False, True), (False, False)]


def float64_arguments(
    with_weight: bool, with_bias: bool, device: str
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    x, weight, bias = (
        normal(*shape, dtype=torch.float64, device=device, seed=seed).requires_grad_()
        for seed, shape in enumerate([(3, 5), (5,), (5,)])
    )
    return x, weight if with_weight else None, bias if with_bias else None


def over_five(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    return layer_norm(x, (5,), weight, bias, 1e-5)


@pytest.mark.parametrize(("with_weight", "with_bias"), PARAMETERS)
@pytest.mark.parametrize("fast", [True, False])
def test_gradcheck_backward_forward_and_batched(
    with_weight: bool, with_bias: bool, fast: bool, device: str
) -> None:
    assert torch.autograd.gradcheck(
        over_five,
        float64_arguments(with_weight, with_bias, device),
        check_forward_ad=True,
        check_backward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        check_undefined_grad=True,
        fast_mode=fast,
    )


@pytest.mark.parametrize(("with_weight", "with_bias"), PARAMETERS)
@pytest.mark.parametrize("fast", [True, False])
def test_gradgradcheck_backward_forward_and_batched(
    with_weight: bool, with_bias: bool, fast: bool, device: str
) -> None:
    assert torch.autograd.gradgradcheck(
        over_five,
        float64_arguments(with_weight, with_bias, device),
        check_batched_grad=True,
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
        fast_mode=fast,
    )


SUBSETS = [s for s in itertools.product([True, False], repeat=3) if any(s)]


@pytest.mark.parametrize("subset", SUBSETS)
@pytest.mark.parametrize("shape", [(9, 40), (300, 64)])
def test_any_subset_of_inputs_may_require_grad(
    subset: tuple[bool, ...], shape: tuple[int, int], device: str
) -> None:
    x, g = (normal(*shape, device=device, seed=s) for s in (0, 1))
    weight, bias = (normal(shape[1], device=device, seed=s) for s in (2, 3))
    inputs = [x, weight, bias]
    for tensor, wanted in zip(inputs, subset, strict=True):
        tensor.requires_grad_(wanted)
    layer_norm(x, shape[1:], weight, bias).backward(g)
    expected = reference.layer_norm_gradients(g, x, shape[1:], weight)
    for tensor, wanted, name in zip(inputs, subset, ("input", "weight", "bias"), strict=True):
        if wanted:
            assert tensor.grad is not None
            assert_near(tensor.grad, getattr(expected, name), f"grad_{name}")
        else:
            assert tensor.grad is None


@pytest.mark.parametrize("mask", SUBSETS)
def test_gradients_nobody_asked_for_are_not_made(mask: tuple[bool, ...], device: str) -> None:
    ops = torch.ops.simple_layernorm
    x, weight = normal(6, 8, device=device), normal(8, device=device, seed=1)
    _, mean, rstd = ops.layer_norm_forward(x, (8,), weight, None, 1e-5)
    results = ops.layer_norm_backward(x, x, (8,), mean, rstd, weight, torch.float32, mask)
    assert [r is not None for r in results] == list(mask)


def third_order(function: Function, x: Tensor) -> Tensor:
    for _ in range(3):
        (x_grad,) = torch.autograd.grad(function(x), x, create_graph=True)
        function = lambda _, g=x_grad: g.square().sum()  # noqa: E731
    return x_grad


def test_third_order_gradients_are_right(device: str) -> None:
    x = normal(3, 5, dtype=torch.float64, device=device).requires_grad_()
    results = [
        third_order(lambda x, norm=norm: norm(x, (5,)).pow(3).sum(), x)
        for norm in (layer_norm, textbook)
    ]
    torch.testing.assert_close(*results)


def cubes(norm: Function, device: str) -> Function:
    weight, bias = (normal(5, dtype=torch.float64, device=device, seed=s) for s in (1, 2))
    return lambda x: norm(x, (5,), weight, bias, 1e-5).pow(3).sum()


def jvp_of(function: Function, direction: Tensor) -> Function:
    return lambda x: torch.func.jvp(function, (x,), (direction,))[1]


def grad_of_sum(function: Function) -> Function:
    return lambda x: torch.func.grad(function)(x).square().sum()


TRANSFORMS: dict[str, Callable[[Function, Tensor], Function]] = {
    "grad": lambda f, _: torch.func.grad(f),
    "vjp": lambda f, _: lambda x: torch.func.vjp(f, x)[1](torch.ones_like(f(x)))[0],
    "jvp": jvp_of,
    "jvp of jvp": lambda f, t: jvp_of(jvp_of(f, t), t),
    "jvp of grad": lambda f, t: jvp_of(torch.func.grad(f), t),
    "grad of jvp": lambda f, t: torch.func.grad(jvp_of(f, t)),
    "jacrev": lambda f, _: torch.func.jacrev(f),
    "jacfwd": lambda f, _: torch.func.jacfwd(f),
    "hessian": lambda f, _: torch.func.hessian(f),
    "jacrev of jacrev": lambda f, _: torch.func.jacrev(torch.func.jacrev(f)),
    "jacfwd of jacfwd": lambda f, _: torch.func.jacfwd(torch.func.jacfwd(f)),
    "grad of grad of grad": lambda f, _: torch.func.grad(grad_of_sum(grad_of_sum(f))),
    "vmap": lambda f, _: torch.vmap(f),
    "vmap of grad": lambda f, _: torch.vmap(torch.func.grad(f)),
    "grad of vmap": lambda f, _: torch.func.grad(lambda x: torch.vmap(f)(x).sum()),
    "vmap of vmap": lambda f, _: lambda x: torch.vmap(torch.vmap(f))(x.expand(2, *x.shape)),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_torch_func_transforms_are_right(
    transform: Callable[[Function, Tensor], Function], device: str
) -> None:
    x, direction = (normal(4, 5, dtype=torch.float64, device=device, seed=s) for s in (3, 4))
    ours, expected = (transform(cubes(n, device), direction)(x) for n in (layer_norm, textbook))
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_per_sample_gradients_of_every_parameter(device: str) -> None:
    samples = normal(6, 4, 10, dtype=torch.float64, device=device)
    parameters = tuple(normal(10, dtype=torch.float64, device=device, seed=s) for s in (1, 2))

    def per_sample(norm: Function) -> tuple[Tensor, ...]:
        def loss(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
            return norm(x, (10,), weight, bias).square().sum()

        gradient = torch.func.grad(loss, argnums=(0, 1, 2))
        return torch.vmap(gradient, in_dims=(None, None, 0))(*parameters, samples)

    torch.testing.assert_close(per_sample(layer_norm), per_sample(textbook))


@pytest.mark.parametrize("dims", [(0, None, None), (None, 0, None), (None, None, 0), (1, 0, 0)])
def test_any_argument_may_be_batched(dims: tuple[int | None, ...], device: str) -> None:
    shapes = [(3, 8), (8,), (8,)]
    arguments = []
    for seed, (shape, dim) in enumerate(zip(shapes, dims, strict=True)):
        size = list(shape)
        if dim is not None:
            size.insert(dim, 4)
        arguments.append(normal(*size, device=device, seed=seed))
    ours, expected = (
        torch.vmap(lambda x, w, b, n=norm: n(x, (8,), w, b), in_dims=dims)(*arguments)
        for norm in (layer_norm, textbook)
    )
    torch.testing.assert_close(ours, expected)


def test_batched_gradients_take_one_batched_call(device: str) -> None:
    x = normal(6, 8, device=device).requires_grad_()
    weight, bias = (normal(8, device=device, seed=s).requires_grad_() for s in (1, 2))
    output = layer_norm(x, (8,), weight, bias)
    g = normal(5, 6, 8, device=device, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a fallback to a loop over the batch warns
        batched = torch.autograd.grad(
            output, (x, weight, bias), g, is_grads_batched=True, retain_graph=True
        )
        torch.vmap(lambda t: layer_norm(t, (8,)))(x.detach().view(2, 3, 8))
    for index in range(5):
        single = torch.autograd.grad(output, (x, weight, bias), g[index], retain_graph=True)
        for many, one in zip(batched, single, strict=True):
            torch.testing.assert_close(many[index], one)


@pytest.mark.parametrize("which", range(3))
def test_a_tangent_of_any_single_input_is_carried(which: int, device: str) -> None:
    arguments = [
        normal(*shape, device=device, seed=seed) for seed, shape in enumerate([(4, 6), (6,), (6,)])
    ]
    tangent = normal(*arguments[which].shape, device=device, seed=7)

    def output_tangent(norm: Function) -> Tensor:
        with forward_ad.dual_level():
            duals = list(arguments)
            duals[which] = forward_ad.make_dual(duals[which], tangent)
            return forward_ad.unpack_dual(norm(duals[0], (6,), duals[1], duals[2])).tangent

    torch.testing.assert_close(output_tangent(layer_norm), output_tangent(textbook))


def test_a_tangent_of_grad_output_passes_the_backward_pass(device: str) -> None:
    x = normal(4, 6, device=device).requires_grad_()
    g, tangent = (normal(4, 6, device=device, seed=s) for s in (1, 2))

    def gradient_tangent(norm: Function) -> Tensor:
        output = norm(x, (6,))
        with forward_ad.dual_level():
            (gradient,) = torch.autograd.grad(output, x, forward_ad.make_dual(g, tangent))
            return forward_ad.unpack_dual(gradient).tangent

    torch.testing.assert_close(gradient_tangent(layer_norm), gradient_tangent(textbook))


def test_eager_calls_after_a_transform_use_the_kernels_again(device: str) -> None:
    x = normal(4, 6, device=device).requires_grad_()
    torch.func.grad(lambda t: layer_norm(t, (6,)).sum())(x.detach())
    assert layer_norm(x, (6,)).grad_fn.name() == "LayerNormBackward"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_derivatives_of_16_bit_gradients_are_right(dtype: torch.dtype, device: str) -> None:
    x, weight = normal(8, 32, dtype=dtype, device=device), normal(32, dtype=dtype, device=device)

    def second(norm: Function, dtype: torch.dtype) -> Tensor:
        leaf, w = x.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()
        (gradient,) = torch.autograd.grad(
            norm(leaf, (32,), w).pow(2).sum(), leaf, create_graph=True
        )
        return torch.autograd.grad(gradient.pow(2).sum(), w)[0]

    expected = second(textbook, torch.float64)
    error = (second(layer_norm, dtype).double() - expected).abs().max() / expected.abs().max()
    assert error <= 8 * torch.finfo(dtype).eps


def test_inner_operators_refuse_to_be_differentiated(device: str) -> None:
    ops = torch.ops.simple_layernorm
    x = normal(4, 6, device=device).requires_grad_()
    g = normal(4, 6, device=device, seed=1)
    output, mean, rstd = ops.layer_norm_forward(x, (6,), None, None, 1e-5)
    with pytest.raises(RuntimeError, match="layer_norm_forward"):
        output.sum().backward()
    mask = [True, False, True]
    for result in ops.layer_norm_backward(g, x, (6,), mean, rstd, None, None, mask)[::2]:
        with pytest.raises(RuntimeError, match="layer_norm_backward"):
            result.sum().backward()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(g, x.detach())
        with pytest.raises(NotImplementedError, match="layer_norm_forward"):
            ops.layer_norm_forward(dual, (6,), None, None, 1e-5)
        with pytest.raises(NotImplementedError, match="layer_norm_backward"):
            ops.layer_norm_backward(dual, g, (6,), mean, rstd, None, None, mask)


@pytest.mark.parametrize("output_dtype", [torch.float32, torch.float16])
def test_output_dtype_is_differentiable_in_every_way(
    output_dtype: torch.dtype, device: str
) -> None:
    operator = torch.ops.simple_layernorm.layer_norm
    x = normal(8, 32, dtype=torch.float16, device=device)
    weight = normal(32, dtype=torch.float16, device=device, seed=1)
    g = normal(8, 32, dtype=output_dtype, device=device, seed=2)
    leaf, w = x.clone().requires_grad_(), weight.clone().requires_grad_()
    output = operator(leaf, (32,), w, w, output_dtype=output_dtype)
    assert output.dtype == output_dtype
    assert_near(output.detach(), reference.layer_norm(x, (32,), weight, weight), "output")
    grad_input, grad_weight = torch.autograd.grad(output, (leaf, w), g)
    assert (grad_input.dtype, grad_weight.dtype) == (torch.float16, torch.float16)
    expected = reference.layer_norm_gradients(g, x, (32,), weight)
    assert_near(grad_input, expected.input, "grad_input")
    assert_near(grad_weight, expected.weight + expected.bias, "grad_weight")
    batched = torch.vmap(lambda t: operator(t, (32,), weight, output_dtype=output_dtype))(x)
    assert batched.dtype == output_dtype


def test_more_than_one_backward_needs_retain_graph(device: str) -> None:
    x = normal(4, 6, device=device).requires_grad_()
    output = simple_layernorm.layer_norm(x, (6,)).sum()
    output.backward()
    with pytest.raises(RuntimeError, match="second time"):
        output.backward()
