"""Values: how near float64, and on what the bits of a row depend."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import simple_layernorm
from simple_layernorm import reference
from tensors import normal
from tolerances import assert_near

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
COLS = [1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 768, 769, 1000, 1023, 4097, 65537]


def gradients(x: Tensor, weight: Tensor | None, bias: Tensor | None, g: Tensor) -> list[Tensor]:
    inputs = [t.detach().requires_grad_() for t in (x, weight, bias) if t is not None]
    rest = iter(inputs)
    arguments = [next(rest) if t is not None else None for t in (x, weight, bias)]
    shape = x.shape[-1:] if weight is None else weight.shape
    output = simple_layernorm.layer_norm(arguments[0], shape, arguments[1], arguments[2])
    return list(torch.autograd.grad(output, inputs, g))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", COLS)
def test_output_and_gradients_are_float64s(cols: int, dtype: torch.dtype, device: str) -> None:
    x = normal(5, cols, dtype=dtype, device=device) * 2 + 0.5
    weight, bias = (normal(cols, dtype=dtype, device=device, seed=s) for s in (1, 2))
    g = normal(5, cols, dtype=dtype, device=device, seed=3)
    output = simple_layernorm.layer_norm(x, (cols,), weight, bias)
    assert_near(output, reference.layer_norm(x, (cols,), weight, bias), "output")
    expected = reference.layer_norm_gradients(g, x, (cols,), weight)
    for actual, name in zip(
        gradients(x, weight, bias, g), ("input", "weight", "bias"), strict=True
    ):
        assert_near(actual, getattr(expected, name), f"grad_{name}")


@pytest.mark.parametrize("weight_dtype", [torch.float32, None])
@pytest.mark.parametrize("bias_dtype", [torch.float32, None])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parameters_of_16_bit_input_may_be_float32(
    dtype: torch.dtype,
    weight_dtype: torch.dtype | None,
    bias_dtype: torch.dtype | None,
    device: str,
) -> None:
    x = normal(70, 129, dtype=dtype, device=device)
    weight = normal(129, dtype=weight_dtype or dtype, device=device, seed=1)
    bias = normal(129, dtype=bias_dtype or dtype, device=device, seed=2)
    g = normal(70, 129, dtype=dtype, device=device, seed=3)
    output = simple_layernorm.layer_norm(x, (129,), weight, bias)
    assert output.dtype == dtype
    assert_near(output, reference.layer_norm(x, (129,), weight, bias), "output")
    expected = reference.layer_norm_gradients(g, x, (129,), weight)
    actual = gradients(x, weight, bias, g)
    assert [t.dtype for t in actual] == [dtype, weight.dtype, bias.dtype]
    for gradient, name in zip(actual, ("input", "weight", "bias"), strict=True):
        assert_near(gradient, getattr(expected, name), f"grad_{name}")


def largest_error(output: Tensor, expected: Tensor) -> float:
    return (output.double() - expected).abs().max().item()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [7, 64, 768, 4097])
def test_error_is_at_most_torchs_or_two_ulp(cols: int, dtype: torch.dtype, device: str) -> None:
    for seed in range(5):
        x = normal(32, cols, dtype=dtype, device=device, seed=seed)
        expected = reference.layer_norm(x, (cols,))
        ours = largest_error(simple_layernorm.layer_norm(x, (cols,)), expected)
        torchs = largest_error(F.layer_norm(x, (cols,)), expected)
        _, exponent = torch.frexp(expected.abs().max())
        ulp = torch.finfo(dtype).eps * 2.0 ** (exponent.item() - 1)
        assert ours <= max(torchs, 2 * ulp)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [64, 1000])
def test_over_200_seeds_the_median_error_is_at_most_torchs(
    cols: int, dtype: torch.dtype, device: str
) -> None:
    ratios = []
    for seed in range(200):
        x = normal(8, cols, dtype=dtype, device=device, seed=seed)
        expected = reference.layer_norm(x, (cols,))
        ours = largest_error(simple_layernorm.layer_norm(x, (cols,)), expected)
        ratios.append(ours / largest_error(F.layer_norm(x, (cols,)), expected))
    assert torch.tensor(ratios).median() <= 1


@pytest.mark.parametrize("cols", [8, 100, 768, 5000])
def test_mean_of_1e4_and_spread_of_1e_minus_3_come_out_right(cols: int, device: str) -> None:
    x = (1e4 + 1e-3 * normal(16, cols, dtype=torch.float64, device="cpu")).float().to(device)
    error = largest_error(simple_layernorm.layer_norm(x, (cols,)), reference.layer_norm(x, (cols,)))
    assert error <= 1e-5


@pytest.mark.parametrize("magnitude", [1e-40, 1e-30, 1e19, 1e25, 1e30, 1e38])
@pytest.mark.parametrize("eps", [1e-5, 0.0])
def test_rows_of_any_magnitude_come_out_right(magnitude: float, eps: float, device: str) -> None:
    x = torch.tensor([magnitude, 2 * magnitude, 3 * magnitude], device=device).repeat(3, 41)
    output = simple_layernorm.layer_norm(x, (123,), eps=eps)
    assert_near(output, reference.layer_norm(x, (123,), eps=eps), "output")


def test_a_constant_row_gives_the_bias(device: str) -> None:
    bias = normal(40, dtype=torch.float32, device=device)
    for value in (0.0, 3.0, -1e-3, 8e5, 1e30):
        x = torch.full((3, 40), value, device=device)
        output = simple_layernorm.layer_norm(x, (40,), torch.ones(40, device=device), bias)
        torch.testing.assert_close(output, bias.expand(3, 40), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_column_gives_the_bias_exactly(dtype: torch.dtype, device: str) -> None:
    x = torch.tensor([[5e4], [-5e4], [1.0], [0.0]], dtype=dtype, device=device)
    weight, bias = (torch.tensor([v], dtype=dtype, device=device) for v in (4.0, 5.0))
    assert (simple_layernorm.layer_norm(x, (1,), weight, bias) == 5).all()


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinity_stay_in_their_row(poison: float, dtype: torch.dtype, device: str) -> None:
    clean = normal(9, 50, dtype=dtype, device=device)
    poisoned = clean.clone()
    poisoned[4, 17] = poison
    weight, bias = (normal(50, dtype=dtype, device=device, seed=s) for s in (1, 2))
    others = torch.arange(9, device=device) != 4
    output = simple_layernorm.layer_norm(poisoned, (50,), weight, bias)
    assert output[4].isnan().all()
    assert torch.equal(
        output[others], simple_layernorm.layer_norm(clean, (50,), weight, bias)[others]
    )
    g = normal(9, 50, dtype=dtype, device=device, seed=3)
    grad_input, expected = (gradients(x, weight, bias, g)[0] for x in (poisoned, clean))
    assert torch.equal(grad_input[others], expected[others])


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(2, 70),
    cols=st.integers(1, 300),
    offset=st.integers(0, 9),
    gap=st.integers(0, 5),
    dtype=st.sampled_from(DTYPES),
    data=st.data(),
)
def test_bits_of_a_row_depend_on_nothing_around_it_on_the_cpu(
    rows: int, cols: int, offset: int, gap: int, dtype: torch.dtype, data: st.DataObject
) -> None:
    check_row_invariance(rows, cols, offset, gap, dtype, data.draw(st.integers(0, rows - 1)), "cpu")


# Around the lengths at which a row is shared out otherwise, and where the number of rows decides
# which kernel does it: src/gpu/launch_plan.hpp, backward_plan.hpp.
PLAN_BOUNDARIES = [256, 512, 640, 768, 896, 1024, 1280, 1792, 2048, 3072, 4096, 5120, 7168, 8192]
WIDE_PLAN_BOUNDARIES = [16384, 32768, 65536, 131072]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("beside", [-1, 0, 1])
@pytest.mark.parametrize("boundary", [2, 32, 64, 128, *PLAN_BOUNDARIES, *WIDE_PLAN_BOUNDARIES])
def test_bits_of_a_row_depend_on_nothing_around_it_on_a_gpu(
    boundary: int, beside: int, dtype: torch.dtype
) -> None:
    most_rows = 4097 if boundary not in WIDE_PLAN_BOUNDARIES else 300
    for rows, offset, gap in ((2, 0, 0), (3, 1, 1), (70, 4, 0), (300, 0, 3), (most_rows, 8, 8)):
        check_row_invariance(rows, boundary + beside, offset, gap, dtype, rows - 1, "cuda")


def check_row_invariance(
    rows: int, cols: int, offset: int, gap: int, dtype: torch.dtype, row: int, device: str
) -> None:
    generator = torch.Generator(device).manual_seed(0)  # `normal` takes seconds for the largest
    size = offset + rows * (cols + gap)
    x, g = (
        torch.randn(size, dtype=dtype, device=device, generator=generator)[offset:].as_strided(
            (rows, cols), (cols + gap, 1)
        )
        for _ in range(2)
    )
    weight, bias = (normal(cols, dtype=dtype, device=device, seed=s) for s in (2, 3))
    alone, g_alone = x[row : row + 1].clone(), g[row : row + 1].clone()
    expected = simple_layernorm.layer_norm(alone, (cols,), weight, bias)
    output = simple_layernorm.layer_norm(x, (cols,), weight, bias)
    assert torch.equal(output[row : row + 1], expected)
    expected = gradients(alone, weight, bias, g_alone)[0]
    assert torch.equal(gradients(x, weight, bias, g)[0][row : row + 1], expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1000, 33), (65, 1024), (4097, 8)])
def test_backward_gives_the_same_bits_every_time(
    shape: tuple[int, int], dtype: torch.dtype, device: str
) -> None:
    x, g = (normal(*shape, dtype=dtype, device=device, seed=s) for s in (0, 1))
    weight, bias = (normal(shape[1], dtype=dtype, device=device, seed=s) for s in (2, 3))
    first = gradients(x, weight, bias, g)
    for _ in range(3):
        for again, before in zip(gradients(x, weight, bias, g), first, strict=True):
            assert torch.equal(again, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 1000), (1000, 33), (65, 1024), (4097, 8)])
def test_bits_do_not_depend_on_the_number_of_threads(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    x, g = (normal(*shape, dtype=dtype, device="cpu", seed=s) for s in (0, 1))
    weight, bias = (normal(shape[1], dtype=dtype, device="cpu", seed=s) for s in (2, 3))
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 8):
            torch.set_num_threads(count)
            output = simple_layernorm.layer_norm(x, shape[1:], weight, bias)
            results.append([output, *gradients(x, weight, bias, g)])
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        for actual, expected in zip(result, results[0], strict=True):
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weight_gradients_of_65536_rows_are_summed_in_float32(
    dtype: torch.dtype, device: str
) -> None:
    signs = torch.tensor([1.0, -1.0], device=device, dtype=dtype).repeat(65536, 4)
    weight, bias = (torch.ones(8, dtype=dtype, device=device) * v for v in (1, 0))
    _, grad_weight, grad_bias = gradients(signs, weight, bias, torch.full_like(signs, 2**-10))
    assert (grad_bias == 64).all()  # a sum in 16 bits would stop growing long before
    torch.testing.assert_close(grad_weight, 64 * signs[0], rtol=1e-2, atol=0)
