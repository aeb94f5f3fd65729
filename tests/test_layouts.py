"""Shapes and strides: what is read in place, what is copied once, and that nothing else changes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import simple_layernorm
from simple_layernorm import reference
from tensors import normal
from tolerances import assert_near

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {  # of a tensor [10, 6, 48]
    "contiguous": lambda t: t,
    "slice of wider rows": lambda t: t[..., 7:31],
    "one element further": lambda t: t.flatten()[1:-47].view(-1, 48),
    "every second row": lambda t: t.view(60, 48)[::2],
    "every second batch of one row": lambda t: t[::2, :1],
    "size-1 dimension with a wild stride": lambda t: t.as_strided((10, 1, 48), (48, 7, 1)),
    "overlapping windows": lambda t: t.flatten()[:100].unfold(0, 24, 1),
    "one row, repeated": lambda t: t[0, :1].expand(9, 48),
    "rows in a batch, repeated": lambda t: t[0, 0].expand(4, 3, 48),
}
COPIED: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda t: t.transpose(1, 2),
    "permuted batches": lambda t: t.transpose(0, 1),
    "every second column": lambda t: t[..., ::2],
    "one column, repeated": lambda t: t[..., :1].expand(10, 6, 20),
    "one number, repeated": lambda t: t[0, 0, 0].expand(7, 20),
    "batches repeated": lambda t: t[:, :1].expand(10, 3, 48),
}
VIEWS = IN_PLACE | COPIED


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_equals_its_contiguous_copy(
    view: Callable[[Tensor], Tensor], dtype: torch.dtype, device: str
) -> None:
    x = view(normal(10, 6, 48, dtype=dtype, device=device))
    cols = x.shape[-1]
    weight, bias = (normal(cols, dtype=dtype, device=device, seed=s) for s in (1, 2))
    output = simple_layernorm.layer_norm(x, (cols,), weight, bias)
    expected = simple_layernorm.layer_norm(x.contiguous(), (cols,), weight, bias)
    assert output.is_contiguous()
    assert torch.equal(output, expected)


def gradients(x: Tensor, weight: Tensor, bias: Tensor, g: Tensor) -> tuple[Tensor, ...]:
    inputs = [t.detach().requires_grad_() for t in (x, weight, bias)]
    output = simple_layernorm.layer_norm(inputs[0], weight.shape, inputs[1], inputs[2])
    return torch.autograd.grad(output, inputs, g)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_gradients_of_views_equal_those_of_contiguous_copies(
    view: Callable[[Tensor], Tensor], dtype: torch.dtype, device: str
) -> None:
    x, g = (view(normal(10, 6, 48, dtype=dtype, device=device, seed=s)) for s in (0, 1))
    cols = x.shape[-1]
    weight, bias = (normal(cols, dtype=dtype, device=device, seed=s) for s in (2, 3))
    kept = g.clone()
    actual = gradients(x, weight, bias, g)
    expected = gradients(x.contiguous(), weight, bias, g.contiguous())
    for got, wanted in zip(actual, expected, strict=True):
        assert torch.equal(got, wanted)
    assert torch.equal(g, kept)  # grad_output is never written to


def test_gradient_of_a_sum_is_right(device: str) -> None:
    x = normal(2, 50, 256, device=device).requires_grad_()
    weight, bias = (normal(256, device=device, seed=s).requires_grad_() for s in (1, 2))
    simple_layernorm.layer_norm(x, (256,), weight, bias).sum().backward()
    ones = torch.ones_like(x)
    expected = reference.layer_norm_gradients(ones, x, (256,), weight)
    for tensor, name in ((x, "input"), (weight, "weight"), (bias, "bias")):
        assert tensor.grad is not None
        assert_near(tensor.grad, getattr(expected, name), f"grad_{name}")


# torch 2.11's profiler says once that events of one cycle are all that it reports.
pytestmark = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")


def copies_made(function: Callable[[], object]) -> int:
    with torch.profiler.profile() as trace:
        function()
    return sum(event.name == "aten::copy_" for event in trace.events())


@pytest.mark.parametrize("view", IN_PLACE.values(), ids=IN_PLACE.keys())
def test_rows_of_contiguous_columns_are_read_in_place(
    view: Callable[[Tensor], Tensor], device: str
) -> None:
    x = view(normal(10, 6, 48, device=device))
    weight = torch.ones(x.shape[-1], device=device)
    assert copies_made(lambda: simple_layernorm.layer_norm(x, weight.shape, weight)) == 0
    leaf = weight.requires_grad_()
    output = simple_layernorm.layer_norm(x, weight.shape, leaf)
    assert copies_made(lambda: torch.autograd.grad(output, leaf, x)) == 0


@pytest.mark.parametrize("view", COPIED.values(), ids=COPIED.keys())
def test_other_layouts_are_copied_once(view: Callable[[Tensor], Tensor], device: str) -> None:
    x = view(normal(10, 6, 48, device=device))
    assert copies_made(lambda: simple_layernorm.layer_norm(x, x.shape[-1:])) == 1


def test_a_repeated_row_of_strided_columns_is_copied_as_one_row(device: str) -> None:
    g = torch.ones((), device=device).expand(1000, 64)
    weight = torch.ones(64, device=device, requires_grad=True)
    output = simple_layernorm.layer_norm(normal(1000, 64, device=device), (64,), weight)
    with torch.profiler.profile(record_shapes=True) as trace:
        torch.autograd.grad(output, weight, g)
    copied = [event.input_shapes[0] for event in trace.events() if event.name == "aten::copy_"]
    assert copied == [[64]]


@pytest.mark.parametrize("which", ["weight", "bias"])
def test_strided_parameters_are_read_right(which: str, device: str) -> None:
    x = normal(5, 12, 8, device=device)
    strided = normal(8, 12, device=device, seed=1).t()
    arguments = {which: strided}
    output = simple_layernorm.layer_norm(x, (12, 8), **arguments)
    expected = simple_layernorm.layer_norm(x, (12, 8), **{which: strided.contiguous()})
    assert torch.equal(output, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_misaligned_parameters_are_read_right(dtype: torch.dtype, device: str) -> None:
    for cols in (64, 1024, 2056):
        x = normal(3, cols, dtype=dtype, device=device)
        storage = normal(cols + 8, dtype=dtype, device=device, seed=1)
        for offset in (1, 2, 3, 5, 7):
            weight = storage[offset : offset + cols]
            output = simple_layernorm.layer_norm(x, (cols,), weight, weight)
            aligned = weight.clone()
            assert torch.equal(output, simple_layernorm.layer_norm(x, (cols,), aligned, aligned))


def moved(t: Tensor, offset: int) -> Tensor:
    """The same numbers `offset` elements after where they would be aligned."""
    storage = t.new_empty(t.numel() + offset)
    return storage[offset:].view(t.shape).copy_(t)


ROW_LENGTHS = [7, 8, 33, 64, 129, 257, 520, 1000, 1001, 2056, 4097, 5000, 9001, 20001, 70001]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", ROW_LENGTHS)
def test_rows_at_any_address_give_the_same_bits(cols: int, dtype: torch.dtype, device: str) -> None:
    x = normal(5, cols, dtype=dtype, device=device)
    weight, bias = (normal(cols, dtype=dtype, device=device, seed=s) for s in (1, 2))
    aligned = x.new_empty(5, cols // 8 * 8 + 8)[:, :cols].copy_(x)
    expected = simple_layernorm.layer_norm(aligned, (cols,), weight, bias)
    for offset in range(8):
        output = simple_layernorm.layer_norm(moved(x, offset), (cols,), weight, bias)
        assert torch.equal(output, expected), offset


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", ROW_LENGTHS)
def test_gradients_of_rows_at_any_address_have_the_same_bits(
    cols: int, dtype: torch.dtype, device: str
) -> None:
    x, g = (normal(5, cols, dtype=dtype, device=device, seed=s) for s in (0, 1))
    weight, bias = (normal(cols, dtype=dtype, device=device, seed=s) for s in (2, 3))
    expected = gradients(x, weight, bias, g)
    for offset in range(8):
        places = moved(x, offset), weight, bias, moved(g, 3 * offset % 8)
        for got, wanted in zip(gradients(*places), expected, strict=True):
            assert torch.equal(got, wanted), offset


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("shape", [(6, 5, 4), (1, 2, 3), (3, 1, 1)])
def test_any_number_of_dimensions_is_normalised(
    shape: tuple[int, ...], dims: int, device: str
) -> None:
    x, g = (normal(*shape, device=device, seed=s) for s in (0, 1))
    weight, bias = (normal(*shape[-dims:], device=device, seed=s) for s in (2, 3))
    output = simple_layernorm.layer_norm(x, shape[-dims:], weight, bias)
    assert_near(output, reference.layer_norm(x, shape[-dims:], weight, bias), "output")
    expected = reference.layer_norm_gradients(g, x, shape[-dims:], weight)
    for actual, name in zip(
        gradients(x, weight, bias, g), ("input", "weight", "bias"), strict=True
    ):
        assert_near(actual, getattr(expected, name), f"grad_{name}")


@pytest.mark.parametrize("shape", [(0, 8), (4, 0, 8), (2, 0, 0, 8)])
def test_no_rows_give_an_empty_output_and_zero_weight_gradients(
    shape: tuple[int, ...], device: str
) -> None:
    x = torch.empty(shape, device=device, requires_grad=True)
    weight, bias = (torch.ones(8, device=device, requires_grad=True) for _ in range(2))
    output = simple_layernorm.layer_norm(x, (8,), weight, bias)
    assert output.shape == shape
    grads = torch.autograd.grad(output.sum(), (x, weight, bias))
    assert grads[0].shape == shape
    for gradient in grads[1:]:
        assert torch.equal(gradient, torch.zeros(8, device=device))


def test_no_columns_give_empty_results(device: str) -> None:
    x = torch.empty(3, 0, device=device, requires_grad=True)
    weight = torch.empty(0, device=device, requires_grad=True)
    output = simple_layernorm.layer_norm(x, (0,), weight)
    assert output.shape == (3, 0)
    assert [t.shape for t in torch.autograd.grad(output.sum(), (x, weight))] == [(3, 0), (0,)]


@pytest.mark.parametrize("normalized_shape", [(4, 9), (36,), (9,)])
def test_more_than_65536_rows_with_bias_alone(
    normalized_shape: tuple[int, ...], device: str
) -> None:
    x, g = (normal(65600, *normalized_shape, device=device, seed=s) for s in (0, 1))
    bias = normal(*normalized_shape, device=device, seed=2).requires_grad_()
    output = simple_layernorm.layer_norm(x, normalized_shape, None, bias)
    (grad_bias,) = torch.autograd.grad(output, bias, g)
    assert_near(grad_bias, g.double().sum(0), "grad_bias")


def test_output_shares_no_memory_with_input(device: str) -> None:
    for cols in (1, 8):
        x = normal(4, cols, device=device)
        kept = x.clone()
        simple_layernorm.layer_norm(x, (cols,)).fill_(7)
        assert torch.equal(x, kept)


@pytest.mark.slow
def test_2p23_rows_and_one_more(device: str) -> None:
    rows = 2**23 + 1
    x, g = (torch.randn(rows, 3, device=device) for _ in range(2))
    weight = normal(3, device=device).requires_grad_()
    x.requires_grad_()
    output = simple_layernorm.layer_norm(x, (3,), weight)
    grad_input, grad_weight = torch.autograd.grad(output, (x, weight), g)
    assert_near(output.detach(), reference.layer_norm(x, (3,), weight), "output")
    expected = reference.layer_norm_gradients(g, x, (3,), weight)
    assert torch.allclose(grad_weight.double(), expected.weight, rtol=1e-4, atol=1)
    torch.testing.assert_close(grad_input.double(), expected.input, rtol=1e-3, atol=1e-3)
