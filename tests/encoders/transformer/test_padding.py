"""Models whose states depend on padding give each sentence the embedding that it has alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, ConvBertConfig, ConvBertModel, FNetConfig, FNetModel

from stsbench.encoders.loading import load_encoder
from stsbench.encoders.transformer.padding import by_lengths, padding_matters
from tests.encoders.tiny import LONGEST, bytes_tokenizer, save

SENTENCES = ["a dog", "a dog runs", "no", "half of the dogs run in a park", "run", "a dog ran"]
SIZES = {"num_hidden_layers": 2, "intermediate_size": 32, "max_position_embeddings": LONGEST, "initializer_range": 0.4}


def make(folder: Path, kind: Any, config: Any, **fields: Any) -> Path:
    tokenizer, vocab = bytes_tokenizer(["<pad>", "<unk>"])
    made = config(vocab_size=len(vocab), hidden_size=16, pad_token_id=0, **SIZES, **fields)
    return save(folder, kind, made, tokenizer, pad_token="<pad>", unk_token="<unk>")


@pytest.fixture(scope="module")
def convbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ConvBERT, whose convolutions read the padding behind a sentence."""
    folder = tmp_path_factory.mktemp("convbert")
    return make(folder, ConvBertModel, ConvBertConfig, embedding_size=16, num_attention_heads=2)


@pytest.fixture(scope="module")
def fnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FNet, which mixes all tokens by a Fourier transform, and has a pooler."""
    return make(tmp_path_factory.mktemp("fnet"), FNetModel, FNetConfig)


def alone(folder: Path) -> list[torch.Tensor]:
    """The last hidden states of each sentence by itself, as transformers gives them."""
    model = AutoModel.from_pretrained(str(folder)).eval()
    tokenizer = load_encoder(str(folder)).backbone.tokenizer  # type: ignore[attr-defined]
    with torch.no_grad():
        return [model(torch.tensor([tokenizer(one)["input_ids"]])).last_hidden_state[0] for one in SENTENCES]


@pytest.mark.parametrize("make_", ["convbert", "fnet"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_neighbours_do_not_matter(request: pytest.FixtureRequest, make_: str, side: str):
    folder = request.getfixturevalue(make_)
    encoder: Any = load_encoder(str(folder), params={"padding_side": side})
    assert encoder.backbone.minds_padding
    expected = np.stack([states.mean(dim=0).numpy() for states in alone(folder)])
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, rtol=0, atol=2e-5)
    for at, sentence in enumerate(SENTENCES):
        np.testing.assert_allclose(encoder.encode([sentence])[0], expected[at], rtol=0, atol=2e-5)


def test_a_head_of_the_model_s_own_sees_no_padding_either(fnet: Path):
    encoder: Any = load_encoder(str(fnet), params={"pooling": "cls"})
    together = encoder.encode(SENTENCES)
    for at, sentence in enumerate(SENTENCES):
        np.testing.assert_allclose(encoder.encode([sentence])[0], together[at], rtol=0, atol=1e-5)


@pytest.mark.parametrize("made", ["bert", "roberta", "gpt2", "qwen", "mpnet"])
def test_models_that_keep_to_the_mask_do_not_mind(tiny: Any, made: str):
    model = AutoModel.from_pretrained(str(tiny[made]))
    for training in (False, True):
        model.train(training)
        assert not padding_matters(model, 1, torch.device("cpu")) and model.training is training


def test_rows_of_a_length_come_together_without_padding():
    ids = torch.tensor([[7, 8, 0, 0], [5, 6, 7, 8], [9, 9, 0, 0], [0, 0, 3, 4]])
    found = {
        tuple(rows.nonzero().flatten().tolist()): part["input_ids"].tolist()
        for rows, part in by_lengths({"input_ids": ids, "attention_mask": (ids != 0).long()})
    }
    assert found == {(0, 2, 3): [[7, 8], [9, 9], [3, 4]], (1,): [[5, 6, 7, 8]]}
