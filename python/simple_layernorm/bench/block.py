"""A transformer block, forward and backward: what the norm's speed is worth in a model.

Compiled and unpatched, the compiler fuses the norms into their neighbours, which it cannot do with
an operator of its own; the four times say whether patching pays here.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from simple_layernorm.bench.cases import Case
from simple_layernorm.bench.contenders import COMPILE, OURS, TORCH, Call, CannotRun

OURS_COMPILED = "ours, compiled"
SEQUENCE = 1024
HEAD = 64


class Block(nn.Module):
    """Pre-norm attention and a GELU network, each with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.network_norm = nn.LayerNorm(width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(self.attention_norm(x)).view(batch, length, 3, width // HEAD, HEAD)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        mixed = self.network(self.network_norm(x))
        output: Tensor = x + mixed
        return output


def names_for(contenders: list[str]) -> list[str]:
    """The four ways that stand for the contenders asked for."""
    ways = {TORCH: [TORCH], COMPILE: [COMPILE], OURS: [OURS, OURS_COMPILED]}
    return [way for name in contenders for way in ways.get(name, [])]


class BlockBench:
    """One block with the same parameters for all ways, and its exact output."""

    def __init__(self, case: Case, device: str) -> None:
        torch.manual_seed(20)
        dtype = getattr(torch, case.input_dtype)
        length = min(SEQUENCE, case.rows)
        self.block = Block(case.cols).to(device, dtype)
        self.input = torch.randn(case.rows // length, length, case.cols, device=device).to(dtype)
        self.grad_output = torch.randn_like(self.input)
        with torch.no_grad():
            self.exact = copy.deepcopy(self.block).double()(self.input.double())

    def call(self, name: str) -> Call:
        block = copy.deepcopy(self.block)
        if name in (OURS, OURS_COMPILED):
            import simple_layernorm

            if not hasattr(simple_layernorm, "patch"):
                raise CannotRun("this build has no patch()")
            simple_layernorm.patch(block)
        run = torch.compile(block, dynamic=False) if name in (COMPILE, OURS_COMPILED) else block
        x = self.input.detach().requires_grad_()
        leaves = [x, *block.parameters()]

        def forward_and_backward() -> tuple[Tensor, ...]:
            output = run(x)
            return (output.detach(), *torch.autograd.grad(output, leaves, self.grad_output))

        return forward_and_backward

    def error(self, result: tuple[Tensor, ...]) -> float:
        got = result[0].double()
        worst = ((got - self.exact).abs() / self.exact.abs().clamp_min(1.0)).max().item()
        return worst if worst == worst else float("inf")
