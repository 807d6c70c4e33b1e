"""Objects of other libraries that a program scores, and the batches that they are called with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import AutoModel, AutoTokenizer

import stsbench
from stsbench.core.errors import StsbenchError
from stsbench.encoders.objects import wrap_object

SENTENCES = ["the cat", "a mat", "the dog sat on the mat"]


class Client:
    """A client as openai's: it answers out of order, as a server may."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.embeddings = self

    def create(self, *, model: str, input: Sequence[str]) -> Any:  # noqa: A002 - as openai
        self.sizes.append(len(input))
        rows = [
            SimpleNamespace(index=index, embedding=[len(text), text.count(" "), 1])
            for index, text in enumerate(input)
        ]
        return SimpleNamespace(data=rows[::-1])


class StaticModel:
    """A model as model2vec's."""

    __module__ = "model2vec.model"

    def encode(self, sentences: Sequence[str], max_length: int = 512) -> Any:
        return np.array([[len(text), text.count(" ")] for text in sentences])


@pytest.fixture(scope="module")
def pair(bert: Path) -> tuple[Any, Any]:
    return AutoModel.from_pretrained(bert), AutoTokenizer.from_pretrained(bert)


def test_a_model_with_its_tokenizer_embeds_by_the_mean_over_its_tokens(pair, bert):
    model, tokenizer = pair
    encoder = wrap_object(pair)
    expected = []
    for sentence in SENTENCES:
        states = model(**tokenizer(sentence, return_tensors="pt")).last_hidden_state
        expected.append(states[0].mean(dim=0).detach().numpy())
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)
    ours = stsbench.load_encoder(str(bert), params={"pooling": "mean"}).encode(SENTENCES)
    np.testing.assert_allclose(encoder.encode(SENTENCES), ours, atol=1e-5)
    (result,) = stsbench.evaluate(pair, "quickstart-en", name="mine")
    assert (result.encoder, result.fingerprint) == ("mine", None)
    assert "mean over the tokens of the last layer" in result.notes


def test_roberta_reads_as_many_tokens_as_it_has_positions_for(tiny):
    folder = tiny["roberta"]
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = 10**30
    longest = " ".join(["a b c d"] * model.config.max_position_embeddings)
    assert wrap_object((model, tokenizer)).encode([longest]).shape == (1, model.config.hidden_size)


def test_a_model_in_training_is_scored_without_dropout_and_goes_on_training(pair):
    model, _ = pair
    encoder = wrap_object(pair)
    model.train()
    first, second = encoder.encode(SENTENCES), encoder.encode(SENTENCES)
    assert model.training
    model.eval()
    np.testing.assert_array_equal(first, second)


def test_a_client_is_asked_in_batches():
    client = Client()
    (result,) = stsbench.evaluate((client, "embed-3"), "quickstart-en", batch_size=100)
    (same,) = stsbench.evaluate(
        lambda texts: [[len(text), text.count(" "), 1] for text in texts], "quickstart-en"
    )
    assert result.encoder == "embed-3"
    assert result.score == same.score
    assert max(client.sizes) == 100
    client.sizes.clear()
    list(stsbench.iterate([(client, "embed-3")], "quickstart-en"))
    assert max(client.sizes) == 256


def test_a_model_of_model2vec_needs_no_name():
    model: Any = StaticModel()
    (result,) = stsbench.evaluate(model, "quickstart-en")
    assert result.encoder == "StaticModel"


def test_the_batch_of_a_function_can_be_set():
    sizes = []

    def lengths(sentences: list[str]) -> list[list[int]]:
        sizes.append(len(sentences))
        return [[len(sentence), sentence.count(" ")] for sentence in sentences]

    (default,) = stsbench.evaluate(lengths, "quickstart-en")
    assert max(sizes) == 600
    sizes.clear()
    (in_batches,) = stsbench.evaluate(lengths, "quickstart-en", batch_size=64)
    assert max(sizes) == 64
    assert in_batches.score == default.score
    assert wrap_object(lengths).encode([]).shape[0] == 0
    with pytest.raises(StsbenchError, match="plans its own batches"):
        stsbench.evaluate("minilm", "quickstart-en", batch_size=64)


def test_a_pair_that_cannot_embed_is_one_line(pair):
    _, tokenizer = pair
    with pytest.raises(StsbenchError, match="is not an encoder"):
        stsbench.evaluate((object(), tokenizer), "quickstart-en")
