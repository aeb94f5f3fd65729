"""Swaps the LayerNorm modules of a finished model for this library's, in place, and back.

Only the class of a module changes: parameters, buffers, hooks, names in the state_dict, and what an
optimizer, a parent or a tied weight refers to stay the objects they were.
"""

from dataclasses import dataclass

from torch import nn

from simple_layernorm.modules import LayerNorm


@dataclass(frozen=True)
class PatchReport:
    """What patch() did. Names are those of model.named_modules(); the model itself is ""."""

    swapped: tuple[str, ...]
    skipped: dict[str, str]  # name to the reason why it was left alone

    def __str__(self) -> str:
        found = len(self.swapped) + len(self.skipped)
        lines = [f"swapped {len(self.swapped)} of {found} LayerNorms"]
        lines += [f"  left alone: {name or '(model)'}: {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


def patch(model: nn.Module) -> PatchReport:
    """Makes every plain torch.nn.LayerNorm in `model` a simple_layernorm.LayerNorm, in place.

    Left alone and reported: subclasses (they may compute something else; quantised and sharded
    modules are such), modules prepared for quantisation or not initialised yet, modules whose
    forward was replaced on the instance, scripted ones, and the norms of an
    nn.TransformerEncoderLayer that can take torch's fused path for inference. To swap one of the
    last all the same, patch it by itself: patch(model.encoder.layers[0].norm1).

    Calling it again swaps only what is new. Patch before torch.nn.parallel wraps or shards the
    model: sharding changes a module's class too.
    """
    swapped = []
    skipped = {}
    bypassed = _norms_of_fused_encoder_layers(model)
    for name, module in model.named_modules():
        if isinstance(module, LayerNorm) or not _is_layer_norm(module):
            continue
        reason = _reason_to_leave_alone(module)
        if not reason and module in bypassed and module is not model:
            reason = (
                "its nn.TransformerEncoderLayer has a fused path for inference, "
                "which would bypass the module"
            )
        if reason:
            skipped[name] = reason
        else:
            module.__class__ = LayerNorm
            swapped.append(name)
    return PatchReport(tuple(swapped), skipped)


def unpatch(model: nn.Module) -> tuple[str, ...]:
    """Makes every simple_layernorm.LayerNorm in `model` a torch.nn.LayerNorm again, in place.

    Also those that patch() did not make, so that a model saved afterwards loads without this
    library. Subclasses of simple_layernorm.LayerNorm stay. Returns the names of the modules.
    """
    restored = []
    for name, module in model.named_modules():
        if type(module) is LayerNorm:
            module.__class__ = nn.LayerNorm  # type: ignore[assignment]
            restored.append(name)
    return tuple(restored)


def _is_layer_norm(module: nn.Module) -> bool:
    scripted_from = getattr(module, "original_name", None)
    return isinstance(module, nn.LayerNorm) or scripted_from == nn.LayerNorm.__name__


def _reason_to_leave_alone(module: nn.Module) -> str:
    kind = type(module)
    if not isinstance(module, nn.LayerNorm):
        return "it is scripted"
    if kind is not nn.LayerNorm:
        return f"it is a subclass, {kind.__module__}.{kind.__qualname__}"
    if "forward" in vars(module):
        return "its forward was replaced on the instance"
    if getattr(module, "qconfig", None) is not None:
        return "it is prepared for quantisation"
    for parameter in (module.weight, module.bias):
        if nn.parameter.is_lazy(parameter):
            return "its parameters are not initialised"
        if parameter is not None and parameter.is_quantized:
            return "its parameters are quantised"
    return ""


def _norms_of_fused_encoder_layers(model: nn.Module) -> set[nn.Module]:
    norms: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and _can_be_fused(module):
            norms.update((module.norm1, module.norm2))
    return norms


def _can_be_fused(layer: nn.TransformerEncoderLayer) -> bool:
    """What TransformerEncoderLayer.forward asks for, except what may change from call to call."""
    attention = layer.self_attn
    return bool(
        attention.batch_first
        and attention.in_proj_bias is not None
        and attention._qkv_same_embed_dim
        and attention.num_heads % 2 == 0
        and layer.activation_relu_or_gelu
        and layer.norm1.eps == layer.norm2.eps
    )
