"""simple_layernorm.LayerNorm is torch.nn.LayerNorm in all but the kernel."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import simple_layernorm
from simple_layernorm import LayerNorm

CONSTRUCTIONS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((8,), {}),
    (([4, 8],), {}),
    (((8,), 1e-3), {}),
    ((8,), {"elementwise_affine": False}),
    ((8,), {"bias": False}),
    ((8, 1e-6, True, True), {"dtype": torch.bfloat16}),
    ((8,), {"device": "meta"}),
]


@pytest.mark.parametrize(("arguments", "options"), CONSTRUCTIONS)
def test_constructor_attributes_and_repr_are_torchs(
    arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    ours, torchs = LayerNorm(*arguments, **options), nn.LayerNorm(*arguments, **options)
    assert repr(ours) == repr(torchs)
    assert ours.normalized_shape == torchs.normalized_shape
    assert (ours.eps, ours.elementwise_affine) == (torchs.eps, torchs.elementwise_affine)
    assert ours.state_dict().keys() == torchs.state_dict().keys()
    for name, value in torchs.state_dict().items():
        assert ours.state_dict()[name].dtype == value.dtype
        assert ours.state_dict()[name].device == value.device


@pytest.mark.parametrize("options", [{}, {"elementwise_affine": False}, {"bias": False}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_output_is_torchs(options: dict[str, Any], dtype: torch.dtype) -> None:
    torchs = nn.LayerNorm([3, 50], dtype=dtype, **options)
    for parameter in torchs.parameters():
        nn.init.normal_(parameter)
    ours = LayerNorm([3, 50], dtype=dtype, **options)
    ours.load_state_dict(torchs.state_dict())
    x = torch.randn(2, 7, 3, 50, dtype=dtype)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), torchs(x))


def test_checkpoints_load_in_both_directions() -> None:
    ours, torchs = LayerNorm(8), nn.LayerNorm(8)
    nn.init.normal_(ours.weight)
    torchs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(torchs.weight, ours.weight, rtol=0, atol=0)
    ours.load_state_dict(nn.LayerNorm(8).state_dict())
    torch.testing.assert_close(ours.weight, torch.ones(8), rtol=0, atol=0)


def _through_pickle(module: nn.Module) -> Any:
    return pickle.loads(pickle.dumps(module))


def _through_torch_save(module: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def _through_weights_only_load(module: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh = LayerNorm(8)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, _through_pickle, _through_torch_save, _through_weights_only_load]
)
def test_copies_are_of_the_same_class_with_the_same_values(copied: Any) -> None:
    module = LayerNorm(8)
    nn.init.normal_(module.weight)
    again = copied(module)
    assert type(again) is LayerNorm
    assert again.weight is not module.weight
    torch.testing.assert_close(again.weight, module.weight, rtol=0, atol=0)
    x = torch.randn(3, 8)
    with torch.no_grad():
        torch.testing.assert_close(again(x), module(x), rtol=0, atol=0)


def test_moving_to_another_dtype_moves_the_computation() -> None:
    module = LayerNorm(8).to(torch.bfloat16)
    with torch.no_grad():
        assert module(torch.randn(2, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_reset_parameters_is_inherited() -> None:
    module = LayerNorm(8)
    nn.init.normal_(module.weight)
    module.reset_parameters()
    torch.testing.assert_close(module.weight.detach(), torch.ones(8))


def test_every_public_name_is_documented() -> None:
    for name in simple_layernorm.__all__:
        assert not name.startswith("_")
        assert getattr(simple_layernorm, name).__doc__
