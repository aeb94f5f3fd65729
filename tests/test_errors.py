"""Wrong calls: torch's exception type for each, and a text with the operator, expected and got."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from simple_layernorm import _C, layer_norm


class WrongCall(NamedTuple):
    name: str
    arguments: Callable[[str], tuple[Any, ...]]  # of a device
    error: type[Exception]
    text: str  # a regular expression


def x(device: str) -> Tensor:
    return torch.randn(4, 6, 8, device=device)


def ones(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, device=device, dtype=dtype)


OP = "simple_layernorm::layer_norm: expected "
UNSUPPORTED = [
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
WRONG_CALLS = [
    WrongCall(
        "no normalized dimension",
        lambda d: (x(d), ()),
        RuntimeError,
        OP + r"normalized_shape of at least one dimension, but got \[\]",
    ),
    WrongCall(
        "other last dimension",
        lambda d: (x(d), (9,)),
        RuntimeError,
        OP + r"input whose last dimensions are normalized_shape = \[9\], but got shape \[4, 6, 8\]",
    ),
    WrongCall(
        "swapped dimensions",
        lambda d: (x(d), (8, 6)),
        RuntimeError,
        OP + r"input whose last .* = \[8, 6\], but got shape \[4, 6, 8\]",
    ),
    WrongCall(
        "more dimensions than input",
        lambda d: (x(d), (2, 4, 6, 8)),
        RuntimeError,
        OP + r"input whose last .*, but got shape \[4, 6, 8\]",
    ),
    WrongCall(
        "negative size",
        lambda d: (x(d), (-1,)),
        RuntimeError,
        OP + r"input whose last .* = \[-1\]",
    ),
    WrongCall(
        "number as input",
        lambda d: (torch.tensor(1.0, device=d), (1,)),
        RuntimeError,
        OP + r"input whose last .*, but got shape \[\]",
    ),
    WrongCall(
        "weight of another size",
        lambda d: (x(d), (8,), ones(7, device=d)),
        RuntimeError,
        OP + r"weight of shape normalized_shape = \[8\], but got shape \[7\]",
    ),
    WrongCall(
        "weight of one element",
        lambda d: (x(d), (8,), ones(1, device=d)),
        RuntimeError,
        OP + r"weight of shape .* but got shape \[1\]",
    ),
    WrongCall(
        "flat weight",
        lambda d: (x(d), (6, 8), ones(48, device=d)),
        RuntimeError,
        OP + r"weight of shape .* = \[6, 8\], but got shape \[48\]",
    ),
    WrongCall(
        "bias of another size",
        lambda d: (x(d), (8,), None, ones(16, device=d)),
        RuntimeError,
        OP + r"bias of shape normalized_shape = \[8\], but got shape \[16\]",
    ),
    WrongCall(
        "float64 weight",
        lambda d: (x(d), (8,), ones(8, device=d, dtype=torch.float64)),
        RuntimeError,
        OP + "weight of input's dtype Float, but got Double",
    ),
    WrongCall(
        "float64 input, float32 weight",
        lambda d: (x(d).double(), (8,), ones(8, device=d)),
        RuntimeError,
        OP + "weight of input's dtype Double, but got Float",
    ),
    WrongCall(
        "float16 bias of bfloat16 input",
        lambda d: (x(d).bfloat16(), (8,), None, ones(8, device=d, dtype=torch.float16)),
        RuntimeError,
        OP + "bias of input's dtype BFloat16 or Float, but got Half",
    ),
    WrongCall(
        "weight on the meta device",
        lambda d: (x(d), (8,), ones(8, device="meta")),
        RuntimeError,
        OP + "weight on input's device, .*, but got meta",
    ),
    WrongCall(
        "sparse input",
        lambda d: (x(d).to_sparse(), (8,)),
        RuntimeError,
        "simple_layernorm::layer_norm.*Sparse",
    ),
    WrongCall(
        "sparse weight",
        lambda d: (x(d), (8,), ones(8, device=d).to_sparse()),
        RuntimeError,
        "simple_layernorm::layer_norm.*Sparse",
    ),
    WrongCall(
        "quantised input",
        lambda _: (torch.quantize_per_tensor(x("cpu"), 0.1, 0, torch.qint8), (8,)),
        NotImplementedError,
        "simple_layernorm::layer_norm.*Quantized",
    ),
    *(
        WrongCall(
            f"{dtype} input",
            lambda d, dtype=dtype: (ones(4, 8, device=d).to(dtype), (8,)),
            NotImplementedError,
            OP + "input of dtype Float, Double, Half or BFloat16, but got",
        )
        for dtype in UNSUPPORTED
    ),
    *(
        WrongCall(
            f"{dtype} weight",
            lambda d, dtype=dtype: (x(d), (8,), ones(8, device=d).to(dtype)),
            RuntimeError,
            OP + "weight of input's dtype Float, but got",
        )
        for dtype in UNSUPPORTED
    ),
    *(
        WrongCall(
            f"{type(value).__name__} as input",
            lambda _, value=value: (value, (2,)),
            TypeError,
            r"layer_norm\(\): argument 'input' \(position 1\) must be Tensor, not",
        )
        for value in ([1.0, 2.0], None, 3.0, numpy.ones((2, 2)))
    ),
    *(
        WrongCall(
            f"{value!r} as normalized_shape",
            lambda d, value=value: (x(d), value),
            TypeError,
            r"layer_norm\(\): argument 'normalized_shape' \(position 2\) must be tuple of ints",
        )
        for value in (8, None, (8.0,), ("8",), "8", torch.tensor([8]))
    ),
    WrongCall(
        "list as weight",
        lambda d: (x(d), (8,), [1.0] * 8),
        TypeError,
        r"layer_norm\(\): argument 'weight' \(position 3\) must be Tensor, not list",
    ),
    WrongCall(
        "string as eps",
        lambda d: (x(d), (8,), None, None, "1e-5"),
        TypeError,
        r"layer_norm\(\): argument 'eps' \(position 5\) must be float, not str",
    ),
    WrongCall(
        "None as eps",
        lambda d: (x(d), (8,), None, None, None),
        TypeError,
        r"argument 'eps' \(position 5\) must be float, not NoneType",
    ),
]


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("call", WRONG_CALLS, ids=[call.name for call in WRONG_CALLS])
def test_wrong_call_raises_torchs_type_and_names_the_reason(call: WrongCall, device: str) -> None:
    arguments = call.arguments(device)
    with pytest.raises(Exception) as torchs:  # noqa: PT011  whatever it is
        F.layer_norm(*arguments)
    with pytest.raises(call.error, match=call.text) as ours:
        layer_norm(*arguments)
    assert issubclass(ours.type, torchs.type)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("call", WRONG_CALLS, ids=[call.name for call in WRONG_CALLS])
def test_a_wrong_call_that_requires_grad_or_is_transformed_raises_the_same(
    call: WrongCall, device: str
) -> None:
    arguments = call.arguments(device)
    if not isinstance(arguments[0], Tensor) or not arguments[0].is_floating_point():
        pytest.skip("input can have no gradient")
    if arguments[0].layout != torch.strided or arguments[0].dtype.itemsize == 1:
        pytest.skip("torch itself has no gradient for such an input")
    with pytest.raises(call.error, match=call.text):
        layer_norm(arguments[0].clone().requires_grad_(), *arguments[1:])
    if call.error is RuntimeError and arguments[0].dim() > 1:
        with pytest.raises(call.error):
            torch.func.grad(lambda t: layer_norm(t, *arguments[1:]).sum())(arguments[0])


@pytest.mark.parametrize(
    ("arguments", "options"),
    [((), {}), ((torch.ones(2),), {}), ((torch.ones(2), (2,)), {"gain": 1})],
)
def test_missing_and_unknown_arguments_are_type_errors(
    arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match="layer_norm"):
        layer_norm(*arguments, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("devices", [("cuda", "cpu"), ("cpu", "cuda")])
def test_parameters_on_another_device_are_refused(name: str, devices: tuple[str, str]) -> None:
    parameter = ones(8, device=devices[1])
    with pytest.raises(RuntimeError, match=f"{name} on input's device, {devices[0]}"):
        layer_norm(x(devices[0]), (8,), **{name: parameter})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.skipif(_C.gpu_build()[0] != "off", reason="needs a build without GPU kernels")
def test_gpu_tensor_in_a_build_without_gpu_kernels_says_how_to_rebuild() -> None:
    with pytest.raises(RuntimeError, match="SIMPLE_LAYERNORM_GPU"):
        layer_norm(x("cuda"), (8,))


def backward_arguments(device: str) -> dict[str, Any]:
    t = x(device)
    return {
        "grad_output": t,
        "input": t,
        "normalized_shape": (8,),
        "mean": torch.zeros(4, 6, device=device),
        "rstd": torch.ones(4, 6, device=device),
        "weight": ones(8, device=device),
        "bias_dtype": torch.float32,
        "output_mask": [True, True, True],
    }


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("grad_output", torch.ones(4, 6, 7), "grad_output of shape"),
        (
            "grad_output",
            torch.ones(4, 6, 8).double(),
            "grad_output .* Float, but got .* of Double",
        ),
        ("mean", torch.zeros(4, 5), r"mean of shape \[4, 6\]"),
        ("rstd", torch.zeros(4, 6).half(), "rstd of shape .* and dtype Float"),
        ("weight", torch.ones(7), "weight of shape"),
        ("weight", None, "a weight, whose gradient output_mask asks for"),
        ("bias_dtype", torch.float64, "bias_dtype to be input's dtype Float, but got Double"),
        ("normalized_shape", (7,), "input whose last dimensions"),
    ],
)
def test_backward_operator_refuses_what_does_not_fit(
    name: str, value: Any, text: str, device: str
) -> None:
    value = value.to(device) if isinstance(value, Tensor) else value
    arguments = backward_arguments(device) | {name: value}
    with pytest.raises(
        RuntimeError, match="simple_layernorm::layer_norm_backward: expected " + text
    ):
        torch.ops.simple_layernorm.layer_norm_backward(**arguments)


def test_output_dtype_other_than_inputs_or_float32_is_refused(device: str) -> None:
    operator = torch.ops.simple_layernorm.layer_norm
    with pytest.raises(RuntimeError, match=r"output_dtype to be .* Half or Float, but got"):
        operator(x(device).half(), (8,), output_dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match=r"output_dtype to be .* Double, but got Float"):
        operator(x(device).double(), (8,), output_dtype=torch.float32)


def test_seeds_function_wants_at_least_one_dimension() -> None:
    with pytest.raises(RuntimeError, match="layernorm_forward: expected x of at least one dim"):
        _C.layernorm_forward(torch.tensor(1.0))
