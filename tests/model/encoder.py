"""A sentence encoder: a transformer, its tokenizer, and the mean over the tokens."""

import time
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass
class SentenceEncoder:
    """Token ids in, one embedding of length 1 per sentence out."""

    model: nn.Module
    tokenizer: Any
    device: str

    def clock(self) -> float:
        """Seconds. On the CPU those of the process, which other processes do not lengthen."""
        return time.process_time() if self.device == "cpu" else time.perf_counter()

    def tokens(self, sentences: list[str]) -> dict[str, Tensor]:
        batch = self.tokenizer(sentences, padding=True, return_tensors="pt")
        return {name: tensor.to(self.device) for name, tensor in batch.items()}

    def embed(self, tokens: dict[str, Tensor]) -> Tensor:
        hidden = self.model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
        return nn.functional.normalize(mean, dim=1)
