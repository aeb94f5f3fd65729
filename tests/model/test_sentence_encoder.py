"""A real model gives the same embeddings and learns the same, patched and unpatched.

pip install '.[test,model]'
pytest -m model -s      prints differences, losses and times
"""

from collections.abc import Callable
from statistics import median

import pytest
import torch
from encoder import SentenceEncoder
from sentences import PAIRS
from torch import Tensor

from simple_layernorm import patch

pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("default"),  # other packages' warnings are not ours to refuse
]

LoadEncoder = Callable[[], SentenceEncoder]
LEFT = [left for left, _ in PAIRS]
RIGHT = [right for _, right in PAIRS]
STEPS = 20

# Embeddings have length 1; both models round to float32 in every layer.
EMBEDDING_TOLERANCE = 2e-6


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_patched_embeddings_are_the_unpatched_ones(
    load_encoder: LoadEncoder, compiled: bool
) -> None:
    encoder = load_encoder()
    tokens = encoder.tokens(LEFT + RIGHT)
    with torch.no_grad():
        before = encoder.embed(tokens)
        report = patch(encoder.model)
        if compiled:
            encoder.model.compile(fullgraph=True)
        after = encoder.embed(tokens)
    assert len(report.swapped) == 13
    assert report.skipped == {}
    difference = (after - before).abs().max().item()
    print(f"\n{encoder.device}, compiled {compiled}: largest difference {difference:.1e}")
    assert difference < EMBEDDING_TOLERANCE

    similarity = after[: len(PAIRS)] @ after[len(PAIRS) :].T
    assert (similarity.argmax(dim=1).cpu() == torch.arange(len(PAIRS))).all()


def _loss(encoder: SentenceEncoder, tokens: dict[str, Tensor]) -> Tensor:
    """Every sentence on the left is to be nearest to its partner among all on the right."""
    left, right = encoder.embed(tokens).chunk(2)
    return torch.nn.functional.cross_entropy(
        left @ right.T * 5, torch.arange(len(left), device=left.device)
    )


class Trainer:
    """Fine-tunes an encoder on PAIRS, dropout included."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        self.encoder = encoder
        self.optimizer = torch.optim.AdamW(encoder.model.parameters(), lr=2e-5)
        self.tokens = encoder.tokens(LEFT + RIGHT)
        self.losses: list[float] = []
        self.milliseconds: list[float] = []
        encoder.model.train()

    def step(self, seed: int) -> None:
        torch.manual_seed(seed)
        start = self.encoder.clock()
        loss = _loss(self.encoder, self.tokens)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())  # waits for the device
        self.milliseconds.append((self.encoder.clock() - start) * 1e3)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_patched_model_has_the_same_losses_over_twenty_steps(
    load_encoder: LoadEncoder, compiled: bool
) -> None:
    unpatched, patched = Trainer(load_encoder()), Trainer(load_encoder())
    patch(patched.encoder.model)
    if compiled:
        unpatched.encoder.model.compile(fullgraph=True)
        patched.encoder.model.compile(fullgraph=True)
    for seed in range(STEPS):
        # Taking turns in going first, so that no one profits from the other's caches.
        for trainer in (unpatched, patched)[:: 1 if seed % 2 else -1]:
            trainer.step(seed)

    pairs = zip(unpatched.losses, patched.losses, strict=True)
    difference = max(abs(a - b) / a for a, b in pairs)
    print(
        f"\n{patched.encoder.device}, compiled {compiled}: "
        f"loss {patched.losses[0]:.4f} -> {patched.losses[-1]:.4f}, "
        f"largest relative difference {difference:.1e}; "
        f"step {median(unpatched.milliseconds):.1f} ms unpatched, "
        f"{median(patched.milliseconds):.1f} ms patched"
    )
    assert patched.losses[-1] < patched.losses[0]
    assert patched.losses == pytest.approx(unpatched.losses, rel=1e-3)
