"""What a program may hand over as an encoder."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

import stsbench
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.objects import FunctionEncoder, resolve_encoder, wrap_object
from tests.encoders.fakes import Plain

CATALOGUE = Catalogue()


def lengths(sentences: Sequence[str]) -> list[list[int]]:
    return [[len(sentence), sentence.count(" ")] for sentence in sentences]


class Called:
    """A callable object, as one of TensorFlow Hub is."""

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        return lengths(sentences)

    def embed(self, sentences: Sequence[str]) -> list[list[int]]:
        return lengths(sentences)


@pytest.fixture(scope="module")
def model(bert: Path) -> SentenceTransformer:
    return SentenceTransformer(modules=[Transformer(str(bert)), Pooling(16, "mean")], device="cpu")


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lengths, "lengths"),
        (lambda sentences: lengths(sentences), "lambda"),
        (functools.partial(lengths), "lengths"),
        (Called(), "Called"),
        (Called().embed, "embed"),
        (lambda sentences: np.array(lengths(sentences)), "lambda"),
        (lambda sentences: torch.tensor(lengths(sentences)), "lambda"),
        (lambda sentences, size=3, *, slow=False: lengths(sentences), "lambda"),
    ],
)
def test_a_function_is_an_encoder_of_its_name(function, name):
    encoder = wrap_object(function)
    assert (encoder.name, encoder.fingerprint) == (name, None)
    embeddings = encoder.encode(("a b", "c"))
    assert embeddings.dtype == np.float32 and embeddings.tolist() == [[3, 1], [1, 0]]


def test_a_function_that_takes_something_else_is_refused_at_once():
    with pytest.raises(EncoderError, match="function lambda .* missing .*'size'"):
        wrap_object(lambda sentences, size: None)


def test_a_function_called_as_a_card_is_none():
    def minilm(sentences: Sequence[str]) -> list[list[int]]:
        return lengths(sentences)

    assert resolve_encoder(minilm, CATALOGUE).name == "minilm (function)"


def test_a_library_model_is_scored_as_it_embeds(model):
    encoder = wrap_object(model)
    assert (encoder.name, encoder.fingerprint) == ("SentenceTransformer", None)
    np.testing.assert_array_equal(
        encoder.encode(("the cat", "a mat")), model.encode(["the cat", "a mat"])
    )
    assert encoder.encode(["half an emoji: \ud83d", ""]).shape == (2, 16)
    (result,) = stsbench.evaluate(model, "quickstart-en", name="my-model")
    (same,) = stsbench.evaluate(lambda sentences: model.encode(sentences), "quickstart-en")
    assert (result.encoder, result.fingerprint, result.overlap) == ("my-model", None, "unknown")
    assert result.score == pytest.approx(same.score, abs=1e-6)
    assert (result.run["device"], result.run["dtype"]) == ("cpu", "float32")


def test_a_changed_model_is_never_taken_from_the_store(model, tmp_path):
    scores = []
    for seed in (1, 2):
        with torch.no_grad():
            model[0].auto_model.embeddings.word_embeddings.weight.normal_(
                generator=torch.Generator().manual_seed(seed)
            )
        (result,) = stsbench.evaluate(model, "quickstart-en", store=tmp_path)
        scores.append(result.score)
    assert scores[0] != scores[1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "thing",
    [
        3,
        None,
        b"minilm",
        {"minilm"},
        [3],
        {"mine": 3},
        object(),
        int,
        Called,
        torch.nn.Linear(1, 1),
    ],
)
def test_what_is_no_encoder_is_one_line(thing):
    with pytest.raises(
        EncoderError, match="is not an encoder; give a name, an object with name, fingerprint"
    ) as caught:
        stsbench.evaluate(thing, "quickstart-en")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["minilm", "minilm+pooling=max", "simcse-small", "", " . ", "a\nb"]
)
def test_a_name_that_is_a_cards_or_names_nothing_is_refused(name):
    with pytest.raises(EncoderError, match="cannot be the name of an encoder of your own"):
        resolve_encoder(lengths, CATALOGUE, name=name)


def test_a_known_encoder_is_handed_through_under_the_name_given():
    known = NamedEncoder(name="plain", encoder=Plain())
    assert resolve_encoder(known, CATALOGUE) is known
    assert resolve_encoder(known, CATALOGUE, name="other").name == "other"
    assert isinstance(resolve_encoder(lengths, CATALOGUE, name="mine").encoder, FunctionEncoder)


class Nameless:
    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        return lengths(sentences)


def test_what_only_encodes_is_an_encoder_under_the_name_given():
    known = resolve_encoder(Nameless(), CATALOGUE, name="mine")
    assert (known.name, known.encoder.fingerprint) == ("mine", None)
    assert known.encoder.encode(["a b"]).tolist() == [[3.0, 1.0]]
    with pytest.raises(EncoderError, match="Nameless has .*'name'"):
        resolve_encoder(Nameless(), CATALOGUE)
    with pytest.raises(EncoderError, match=r"class, .*Nameless\(…\)"):
        resolve_encoder(Nameless, CATALOGUE, name="mine")


def facts(result: stsbench.Result) -> dict[str, Any]:
    return {
        key: getattr(result, key)
        for key in ("encoder", "encoder_card", "fingerprint", "overlap", "revision", "score")
    }


def test_a_loaded_encoder_gives_the_results_of_its_name(tmp_path):
    (of_name,) = stsbench.evaluate("minilm+pooling=max", "quickstart-en", store=tmp_path)
    (of_object,) = stsbench.evaluate(
        stsbench.load_encoder("minilm", params={"pooling": "max"}), "quickstart-en", store=tmp_path
    )
    assert facts(of_object) == facts(of_name)
    assert of_name.encoder_card is not None


def test_what_was_renamed_or_copied_is_only_what_it_says():
    encoder: Any = stsbench.load_encoder("minilm")
    copied = copy.copy(encoder)
    assert resolve_encoder(encoder, CATALOGUE).card is not None
    assert resolve_encoder(copied, CATALOGUE).card is None
    encoder.name = "mine"
    assert (resolve_encoder(encoder, CATALOGUE).name, resolve_encoder(encoder, CATALOGUE).card) == (
        "mine",
        None,
    )


class OneRow:
    """An object with ``encode`` alone, which returns one row for any sentences."""

    def encode(self, sentences: Sequence[str]) -> list[list[float]]:
        return [[1.0]]


class NamedOneRow(OneRow):
    name = "a name of its own"
    fingerprint = None


@pytest.mark.parametrize(
    ("candidate", "problem"),
    [
        (lambda sentences: [[float("nan")]] * len(sentences), "returned NaN or infinity for"),
        (lambda sentences: ["a"] * len(sentences), "returned a list that is not an array"),
        (lambda sentences: [[1.0]], "returned shape"),
        (OneRow(), "returned shape"),
        (NamedOneRow(), "returned shape"),
        (NamedOneRow, ": NamedOneRow is a class, not an encoder"),
    ],
)
def test_errors_name_an_encoder_as_the_user_does(candidate, problem):
    for call in (
        functools.partial(stsbench.evaluate, {"mine": candidate}),
        functools.partial(stsbench.evaluate, candidate, name="mine"),
    ):
        with pytest.raises(EncoderError, match=f"^encoder 'mine' ?{problem}"):
            call(tasks="quickstart-en")
