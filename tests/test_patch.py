"""patch() changes the class of plain LayerNorms, and nothing else about a model."""

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from simple_layernorm import LayerNorm, patch, unpatch


class Block(nn.Module):
    """Two norms, one of them tied to a parameter elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.linear = nn.Linear(16, 16)
        self.out = nn.LayerNorm([4, 16])

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x + self.linear(self.norm(x)))


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 4, 16, generator=torch.Generator().manual_seed(0))


def test_patch_reports_what_it_swapped_and_the_output_stays(x: Tensor) -> None:
    model = nn.Sequential(Block(), Block())
    with torch.no_grad():
        before = model(x)
        report = patch(model)
        torch.testing.assert_close(model(x), before)
    assert report.swapped == ("0.norm", "0.out", "1.norm", "1.out")
    assert report.skipped == {}
    assert all(type(model.get_submodule(name)) is LayerNorm for name in report.swapped)
    assert str(report) == "swapped 4 of 4 LayerNorms"


def test_a_patched_model_computes_with_this_library(x: Tensor) -> None:
    model = Block()
    patch(model)
    with torch.no_grad(), torch.profiler.profile() as profile:
        model(x)
    names = {event.name for event in profile.events()}
    assert "simple_layernorm::layer_norm" in names
    assert "aten::native_layer_norm" not in names


def test_unpatch_restores_the_class() -> None:
    model = nn.Sequential(Block(), LayerNorm(8))
    patch(model)
    assert unpatch(model) == ("0.norm", "0.out", "1")
    assert type(model[0].norm) is nn.LayerNorm
    assert type(model[1]) is nn.LayerNorm
    assert unpatch(model) == ()


def test_patching_twice_changes_nothing_more() -> None:
    model = Block()
    patch(model)
    assert patch(model).swapped == ()
    assert patch(model).skipped == {}


def test_a_norm_by_itself_can_be_patched() -> None:
    norm = nn.LayerNorm(8)
    assert patch(norm).swapped == ("",)
    assert type(norm) is LayerNorm


def test_parameters_buffers_keys_and_training_mode_stay_the_same_objects() -> None:
    model = Block().eval()
    before = dict(model.named_parameters())
    keys = list(model.state_dict())
    patch(model)
    after = dict(model.named_parameters())
    assert list(model.state_dict()) == keys
    assert all(after[name] is parameter for name, parameter in before.items())
    assert not model.norm.training


def test_hooks_survive(x: Tensor) -> None:
    model = Block()
    calls = []
    model.norm.register_forward_pre_hook(lambda module, inputs: calls.append("pre"))
    model.norm.register_forward_hook(lambda module, inputs, output: calls.append("post"))
    patch(model)
    with torch.no_grad():
        model(x)
    assert calls == ["pre", "post"]


def test_tied_parameters_and_shared_modules_survive(x: Tensor) -> None:
    model = nn.Sequential(Block(), Block())
    model[1].norm.weight = model[0].norm.weight
    model[1].out = model[0].out
    report = patch(model)
    assert report.swapped == ("0.norm", "0.out", "1.norm")
    assert model[1].norm.weight is model[0].norm.weight
    assert model[1].out is model[0].out


def test_copies_of_a_patched_model_are_patched(x: Tensor) -> None:
    model = Block()
    patch(model)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(copied.norm) is LayerNorm
        with torch.no_grad():
            torch.testing.assert_close(copied(x), model(x), rtol=0, atol=0)


class Float32LayerNorm(nn.LayerNorm):
    """As found in many models."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.float()).type_as(input)


def _replaced_forward() -> nn.Module:
    norm = nn.LayerNorm(8)
    norm.forward = lambda input: input  # type: ignore[method-assign]
    return norm


def _prepared_for_quantisation() -> nn.Module:
    norm = nn.LayerNorm(8)
    norm.qconfig = object()
    return norm


def _uninitialised() -> nn.Module:
    norm = nn.LayerNorm(8)
    norm.weight = nn.UninitializedParameter()
    return norm


def _quantised_parameters() -> nn.Module:
    norm = nn.LayerNorm(8)
    quantised = torch.quantize_per_tensor(torch.ones(8), 0.1, 0, torch.qint8)
    norm.weight = nn.Parameter(quantised, requires_grad=False)
    return norm


def _quantised_module() -> nn.Module:
    weight, bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))
    return torch.ao.nn.quantized.LayerNorm(8, weight, bias, 0.1, 0)


def _parametrized() -> nn.Module:
    norm = nn.LayerNorm(8)
    nn.utils.parametrize.register_parametrization(norm, "weight", nn.Identity())
    return norm


def _scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates scripting
        return torch.jit.script(nn.LayerNorm(8))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Float32LayerNorm(8), "subclass"),
        (_quantised_module, "subclass, torch.ao.nn.quantized"),
        (_parametrized, "subclass"),
        (_replaced_forward, "forward was replaced"),
        (_prepared_for_quantisation, "prepared for quantisation"),
        (_quantised_parameters, "parameters are quantised"),
        (_uninitialised, "not initialised"),
        (_scripted, "scripted"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_what_may_not_be_swapped_is_left_alone_and_reported(
    build: Callable[[], nn.Module], reason: str
) -> None:
    norm = build()
    model = nn.Sequential(nn.LayerNorm(8), norm)
    kind = type(norm)
    report = patch(model)
    assert report.swapped == ("0",)
    assert list(report.skipped) == ["1"]
    assert reason in report.skipped["1"]
    assert type(norm) is kind
    assert "left alone: 1: " in str(report)


def _encoder_layer(**options: object) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, **options)  # type: ignore[arg-type]


def test_norms_that_the_fused_encoder_path_bypasses_are_left_alone_and_reported() -> None:
    encoder = nn.TransformerEncoder(_encoder_layer(batch_first=True), 2, norm=nn.LayerNorm(16))
    report = patch(encoder)
    assert report.swapped == ("norm",)
    assert list(report.skipped) == [f"layers.{i}.norm{j}" for i in (0, 1) for j in (1, 2)]
    assert "fused path" in report.skipped["layers.0.norm1"]


def test_one_norm_of_a_fused_encoder_layer_can_be_patched_on_purpose() -> None:
    layer = _encoder_layer(batch_first=True)
    assert patch(layer.norm1).swapped == ("",)
    assert list(patch(layer).skipped) == ["norm2"]


def _calls_of_norm1(layer: nn.TransformerEncoderLayer, x: Tensor) -> int:
    """How often torch's eval forward runs norm1 as a module; a hook would itself forbid fusion."""
    calls = []

    class Counting(nn.LayerNorm):
        def forward(self, input: Tensor) -> Tensor:
            calls.append(1)
            return super().forward(input)

    layer = copy.deepcopy(layer).eval()
    layer.norm1.__class__ = Counting
    with torch.no_grad():
        layer(x)
    return len(calls)


@pytest.mark.parametrize(
    ("options", "fused"),
    [
        ({"batch_first": True}, True),
        ({"batch_first": True, "norm_first": True}, True),
        ({"batch_first": True, "activation": "gelu"}, True),
        ({"batch_first": False}, False),
        ({"batch_first": True, "bias": False}, False),
        ({"batch_first": True, "activation": torch.tanh}, False),
    ],
)
def test_an_encoder_layer_is_left_alone_exactly_when_torch_bypasses_its_norms(
    options: dict[str, object], fused: bool, x: Tensor
) -> None:
    layer = _encoder_layer(**options)
    assert (_calls_of_norm1(layer, x) == 0) == fused
    assert (patch(layer).swapped == ()) == fused


def test_different_eps_in_an_encoder_layer_rules_the_fused_path_out(x: Tensor) -> None:
    layer = _encoder_layer(batch_first=True)
    layer.norm2.eps = 1e-3
    assert _calls_of_norm1(layer, x) == 1
    assert patch(layer).swapped == ("norm1", "norm2")


def test_decoder_layers_are_patched() -> None:
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 1)
    assert len(patch(decoder).swapped) == 3


def test_a_patched_model_trains_as_before_and_its_optimizer_goes_on(x: Tensor) -> None:
    models = [Block().double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1) for model in models]
    for step in range(4):
        if step == 2:
            patch(models[1])
        losses = []
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            loss = model(x.double()).cos().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        torch.testing.assert_close(*losses)
    for ours, torchs in zip(models[1].parameters(), models[0].parameters(), strict=True):
        torch.testing.assert_close(ours, torchs)


def test_full_backward_hooks_survive(x: Tensor) -> None:
    model = Block()
    calls = []
    model.norm.register_full_backward_hook(lambda module, grad_in, grad_out: calls.append(1))
    patch(model)
    model(x.requires_grad_()).sum().backward()
    assert calls == [1]


def test_an_encoder_layer_patched_on_purpose_trains_with_the_kernels(x: Tensor) -> None:
    layer = _encoder_layer(batch_first=True)
    patch(layer.norm1)
    with torch.profiler.profile() as profile:
        layer(x).sum().backward()
    assert "simple_layernorm::layer_norm" in {event.name for event in profile.events()}


def test_a_compiled_model_computes_with_this_library_after_a_patch(x: Tensor) -> None:
    model = Block()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        before = compiled(x)
        assert patch(compiled).swapped == ("_orig_mod.norm", "_orig_mod.out")
        with torch.profiler.profile() as profile:
            after = compiled(x)
    torch.testing.assert_close(after, before)
    assert "simple_layernorm::layer_norm" in {event.name for event in profile.events()}


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    """A group of one process, enough for the wrappers to do all they do."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_a_patched_model_trains_under_distributed_data_parallel(x: Tensor) -> None:
    model, reference = Block(), Block()
    model.load_state_dict(reference.state_dict())
    patch(model)
    nn.parallel.DistributedDataParallel(model)(x).sin().sum().backward()
    reference(x).sin().sum().backward()
    for ours, torchs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, torchs.grad)


@pytest.mark.usefixtures("process_group")
def test_a_patched_model_trains_under_fully_sharded_data_parallel(x: Tensor) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, reference = Block(), Block()
    model.load_state_dict(reference.state_dict())
    patch(model)
    mesh = init_device_mesh("cpu", (1,))
    fully_shard(model.norm, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(x).sin().sum().backward()
    reference(x).sin().sum().backward()
    for ours, torchs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.full_tensor(), torchs.grad)
    report = patch(model)
    assert list(report.skipped) == []
