"""Who does the work: this library, torch eager and compiled, and the norm libraries installed.

A contender turns a case's tensors into a call without arguments, through what its users call. Work
that the public functions hide (statistics, backward alone) goes through the operator below, or
through autograd on a graph that is kept.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from simple_layernorm.bench.cases import (
    BACKWARD,
    BLOCK,
    CALL_GRAD,
    END_TO_END,
    FORWARD_STATS,
    GRAD_INPUT,
    Case,
)
from simple_layernorm.bench.tensors import EPS, Tensors

Call = Callable[[], Any]
# (input, weight, bias) -> output
LayerNorm = Callable[[Tensor, Tensor, Tensor], Tensor]
# (input, weight, bias) -> output, mean, rstd
Stats = Callable[[Tensor, Tensor, Tensor], Any]
# (grad_output, input, mean, rstd, weight, bias, output_mask) -> gradients
Backward = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, list[bool]], Any]

OURS = "ours"
TORCH = "torch"
COMPILE = "compile"
# Backward alone too: some contenders reach it only through a graph.
NEEDS_GRAD = (BACKWARD, GRAD_INPUT, END_TO_END, CALL_GRAD, BLOCK)


class CannotRun(Exception):
    """A contender does not have this case; the text says why."""


@dataclass(frozen=True)
class Contender:
    """`backward` None goes through autograd; `stats` None means that it cannot be asked for."""

    layer_norm: LayerNorm
    stats: Stats | None = None
    backward: Backward | None = None
    compiled: bool = False

    def call(self, case: Case, t: Tensors) -> Call:
        if case.work == FORWARD_STATS:
            if self.stats is None:
                raise CannotRun("does not hand out mean and rstd")
            stats = self._ready(self.stats)
            return lambda: stats(t.input, t.weight, t.bias)
        if case.work in (BACKWARD, GRAD_INPUT) and self.backward is not None:
            return self._direct_backward(t, case.work == BACKWARD)
        f = self._ready(self.layer_norm)
        if case.work in (BACKWARD, GRAD_INPUT):
            leaves = t.leaves()
            output = f(*leaves)
            wanted = leaves if case.work == BACKWARD else leaves[:1]
            return lambda: torch.autograd.grad(output, wanted, t.grad_output, retain_graph=True)
        if case.work == END_TO_END:
            leaves = t.leaves()
            return lambda: torch.autograd.grad(f(*leaves), leaves, t.grad_output)
        arguments = t.leaves() if case.work == CALL_GRAD else (t.input, t.weight, t.bias)
        return lambda: f(*arguments)

    def _ready(self, f: Callable[..., Any]) -> Callable[..., Any]:
        # Static shapes: the compiler's best case.
        return torch.compile(f, dynamic=False) if self.compiled else f

    def _direct_backward(self, t: Tensors, all_gradients: bool) -> Call:
        assert self.backward is not None
        mean, rstd = t.mean, t.rstd
        if self.stats is not None:  # in the shape and dtype in which its own forward keeps them
            _, mean, rstd = self.stats(t.input, t.weight, t.bias)
        mask = [True, all_gradients, all_gradients]
        f = self._ready(self.backward)
        return lambda: f(t.grad_output, t.input, mean, rstd, t.weight, t.bias, mask)


def _torch_layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b, EPS)


def _torch_stats(x: Tensor, w: Tensor, b: Tensor) -> Any:
    return torch.ops.aten.native_layer_norm.default(x, [x.shape[-1]], w, b, EPS)


def _torch_backward(
    dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor, b: Tensor, mask: list[bool]
) -> Any:
    backward = torch.ops.aten.native_layer_norm_backward.default
    return backward(dy, x, [x.shape[-1]], mean, rstd, w, b, mask)


def _ours() -> Contender:
    import simple_layernorm

    def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return simple_layernorm.layer_norm(x, (x.shape[-1],), w, b, EPS)

    ops = torch.ops.simple_layernorm
    if not hasattr(ops, "layer_norm_forward") or not hasattr(ops, "layer_norm_backward"):
        return Contender(layer_norm)

    def stats(x: Tensor, w: Tensor, b: Tensor) -> Any:
        return ops.layer_norm_forward.default(x, [x.shape[-1]], w, b, EPS)

    def backward(
        dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor, b: Tensor, mask: list[bool]
    ) -> Any:
        backward = ops.layer_norm_backward.default
        # None stands for input's dtype. A dtype takes 2 of 12 us (8 x 64, EPYC): torch.ops asks it
        # for __torch_function__, and writes the text of an error that it has none.
        bias_dtype = None if b.dtype == x.dtype else b.dtype
        return backward(dy, x, [x.shape[-1]], mean, rstd, w, bias_dtype, mask)

    return Contender(layer_norm, stats, backward)


def _torch() -> Contender:
    return Contender(_torch_layer_norm, _torch_stats, _torch_backward)


def _compile() -> Contender:
    return Contender(_torch_layer_norm, _torch_stats, _torch_backward, compiled=True)


def _liger() -> Contender:
    function = importlib.import_module("liger_kernel.ops.layer_norm").LigerLayerNormFunction
    return Contender(lambda x, w, b: function.apply(x, w, b, EPS))


def _quack() -> Contender:
    """Forward only, float32 parameters only (quack-kernels 0.6.5)."""
    forward = importlib.import_module("quack.rmsnorm").layernorm_fwd

    def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        if x.requires_grad:
            raise CannotRun("has no backward")
        output: Tensor = forward(x, w, b, eps=EPS)
        return output

    return Contender(layer_norm)


def _apex() -> Contender:
    module = importlib.import_module("apex.normalization.fused_layer_norm")
    importlib.import_module("fused_layer_norm_cuda")

    def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        same = x.dtype == w.dtype
        f = module.fused_layer_norm_affine if same else module.mixed_dtype_fused_layer_norm_affine
        output: Tensor = f(x, w, b, (x.shape[-1],), EPS)
        return output

    return Contender(layer_norm)


def _apex_fast() -> Contender:
    function = importlib.import_module("apex.contrib.layer_norm.layer_norm")._fast_layer_norm
    return Contender(lambda x, w, b: function(x, w, b, EPS))


FACTORIES: dict[str, Callable[[], Contender]] = {
    OURS: _ours,
    TORCH: _torch,
    COMPILE: _compile,
    "liger": _liger,
    "quack": _quack,
    "apex": _apex,
    "apex-fast": _apex_fast,
}
GPU_ONLY = ("liger", "quack", "apex", "apex-fast")


def importable(names: Sequence[str], device: str) -> dict[str, Contender]:
    """Those of the named contenders that this installation and device have."""
    found = {}
    for name in names:
        if device == "cpu" and name in GPU_ONLY:
            continue
        try:
            found[name] = FACTORIES[name]()
        except (ImportError, AttributeError):
            continue
    return found
