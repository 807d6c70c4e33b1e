"""What an encoder tells of itself: read in one place, and refused in one line where it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import stsbench
from stsbench.bench.progress import RunCallbacks
from stsbench.core.errors import EncoderError
from stsbench.encoders.base import WordEncoder
from stsbench.encoders.metadata import (
    EncoderMetadata,
    check_encoder,
    check_sentences,
    count_cut,
    describe_prompt,
    find_base,
    read_metadata,
    read_notes,
    sentences_without_known_words,
)
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.objects import wrap_object
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder
from tests.encoders.fakes import Neighbourly, Plain
from tests.encoders.made_checkpoints import save


def made(**attributes: Any) -> Any:
    """An encoder of a class ``Odd`` that has these attributes too."""
    return type(
        "Odd",
        (),
        {"name": "odd", "fingerprint": None, "encode": Plain.encode, "d": 4, **attributes},
    )()


def test_who_tells_nothing_has_no_facts():
    assert read_metadata(Plain()) == EncoderMetadata()
    assert (read_notes(Plain()), find_base(Plain())) == ([], None)


def test_facts_are_read_when_they_are_asked_for():
    encoder = made(
        revision="abc",
        train_seed=np.int64(3),
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
        fit="wiki1m",
    )
    expected = EncoderMetadata(
        revision="abc", train_seed=3, dtype="bfloat16", device="cpu", fit="wiki1m"
    )
    assert read_metadata(encoder) == expected
    encoder.device_used = "cuda:1"
    assert read_metadata(encoder).device_used == "cuda:1"


def test_what_is_made_over_another_has_its_facts_but_for_seed_and_texts():
    base = made(
        revision="abc",
        train_seed=3,
        dtype="float16",
        device="auto",
        device_used="cpu",
        fit="target",
    )
    assert read_metadata(made(base=base)) == EncoderMetadata(
        revision="abc", dtype="float16", device="auto", device_used="cpu"
    )
    assert read_metadata(made(base=made(base=base), dtype="float32")).dtype == "float32"
    assert read_metadata(made(base=made(base=base))).revision == "abc"
    base.base = base
    assert read_metadata(base).revision == "abc"
    base.base = made(base=base)
    for read in (read_metadata, describe_prompt):
        with pytest.raises(
            EncoderError, match="'odd' is made of itself: its bases lead back to it"
        ):
            read(base)
    assert read_metadata(made(fit=lambda self, x, y=None: self)).fit is None, (
        "a method as scikit-learn's tells no texts"
    )
    assert read_notes(made(notes=("careful", "very"))) == ["careful", "very"]


def test_the_sentences_of_no_known_word():
    encoder = made(unknown=lambda self, sentences: [one for one in sentences if "a" not in one])
    assert isinstance(encoder, WordEncoder) and not isinstance(Plain(), WordEncoder)
    assert sentences_without_known_words(encoder, ["a b", "c", ""]) == ["c", ""]


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (None, "must be a list of texts; it is None"),
        (3, "must be a list of texts; it is 3"),
        ("text", "must be a list of texts; it is 'text'"),
        ((text for text in "ab"), "must be a list of texts; it is <generator"),
    ],
)
def test_what_is_no_list_of_unknown_sentences_is_refused(sentences, message):
    encoder = made(unknown=lambda self, texts: sentences)
    with pytest.raises(EncoderError, match=rf"'unknown\(sentences\)' of Odd {message}"):
        sentences_without_known_words(encoder, ["a"])


NO_LINE = "must be a line of text without a key, for results go into a folder of that name; it is"
NO_TEXT = "must be text; it is"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": ""}, f"'name' of Odd {NO_LINE} ''"),
        ({"name": " . "}, f"'name' of Odd {NO_LINE} ' . '"),
        ({"name": 3}, f"'name' of Odd {NO_LINE} 3"),
        ({"name": "a\nb"}, f"'name' of Odd {NO_LINE} 'a\\nb'"),
        ({"name": "a\x1bb"}, f"'name' of Odd {NO_LINE} 'a\\x1bb'"),
        ({"name": lambda self: "odd"}, f"'name' of Odd {NO_LINE} a method; make it a property"),
        ({"fingerprint": 3}, "'fingerprint' of Odd must be text, or None; it is 3"),
        ({"fingerprint": ""}, "'fingerprint' of Odd must be text, or None; it is ''"),
        ({"fingerprint": "\ud800"}, "'fingerprint' of Odd must be text, or None; it is '\\ud800'"),
        ({"fingerprint": lambda self: "1"}, "'fingerprint' of Odd must be text, or None; it is a method"),
        ({"fingerprint": property(lambda self: self.weights)}, "has no 'fingerprint' ('Odd' object has no attribute 'w"),
        ({"encode": None}, "'encode' of Odd must be a method; it is None"),
        ({"encode": lambda self: None}, "encode of Odd must take the sentences alone: too many positional arguments"),
        ({"base": "bert", "over": max, "fit_texts": max}, "'base' of Odd must be the encoder whose embeddings it"),
        ({"revision": b"abc"}, f"'revision' of Odd {NO_TEXT} b'abc'"),
        ({"dtype": np.float32}, f"'dtype' of Odd {NO_TEXT} <class 'numpy.float32'>"),
        ({"device_used": ["cpu"]}, f"'device_used' of Odd {NO_TEXT} ['cpu']"),
        ({"train_seed": "1"}, "'train_seed' of Odd must be a whole number from 0 to 9223372036854775807; it is '1'"),
        ({"train_seed": -1}, "it is -1"),
        ({"train_seed": True}, "it is True"),
        ({"train_seed": 1.0}, "it is 1.0"),
        ({"train_seed": 1 << 63}, "it is 9223372036854775808"),
        ({"notes": 3}, "'notes' of Odd must be a list of texts; it is 3"),
        ({"notes": "text"}, "'notes' of Odd must be a list of texts; it is 'text'"),
        ({"notes": {"a": 1}}, "'notes' of Odd must be a list of texts; it is {'a': 1}"),
        ({"notes": [""]}, "'notes' of Odd must be a list of texts; it is ['']"),
        ({"dtype": "x" * 99 + "\ud800"}, f"'dtype' of Odd {NO_TEXT} '{'x' * 79}…"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(attributes, message):
    with pytest.raises(EncoderError) as caught:
        check_encoder(made(**attributes), "here")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (
            3,
            "here: int has no 'name'; an encoder needs name, fingerprint (or None) and encode(sentences)",
        ),
        (None, "here: NoneType has no 'name'"),
        (Plain, "here: Plain is a class, not an encoder; give Plain(…)"),
        (
            SimpleNamespace(name="a", encode=max),
            "here: SimpleNamespace has no 'fingerprint'; an encoder needs",
        ),
    ],
)
def test_what_is_no_encoder_is_refused(thing, message):
    with pytest.raises(EncoderError) as caught:
        check_encoder(thing, "here")
    assert str(caught.value).startswith(message)


class Delegating:
    """Has what the encoder inside it has."""

    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Chunked:
    """Takes more than the sentences, with defaults."""

    name, fingerprint = "chunked", None
    encode: Callable[[Sequence[str]], Any] = staticmethod(
        lambda sentences, size=3, **more: sentences
    )


@pytest.mark.parametrize(
    "encoder",
    [Plain(), Neighbourly(), Delegating(Plain()), Chunked(), made(encode=staticmethod(len))],
)
def test_what_is_an_encoder_is_handed_back(encoder):
    assert check_encoder(encoder, "here") is encoder


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ("a b", "encode takes a list of sentences; it was given one text of 3 characters"),
        (["a", None], "encode takes sentences; number 1 is None"),
        (5, "encode takes a list of sentences; it was given 5"),
        (iter("ab"), "encode takes a list of sentences; it was given <str_ascii_iterator"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(sentences, message):
    check_sentences(["a b", ""])
    check_sentences(np.array(["a b"]))
    with pytest.raises(EncoderError) as caught:
        check_sentences(sentences)
    assert str(caught.value).partition(" object at")[0] == message


@pytest.mark.parametrize("name", ["minilm", "minilm+pooling=cls"])
def test_an_encoder_takes_no_text_in_the_place_of_a_list(name):
    with pytest.raises(EncoderError, match="of 3 characters"):
        stsbench.load_encoder(name).encode("a b")


def test_texts_that_are_cut_are_counted_as_the_tokenizer_cuts_them(bert):
    sentences = ["a", "a b c", "a b c a b c a b", " ".join(["word"] * 60), "é" * 30]
    for max_length in (4, 6, 64, None):
        encoder = TransformerEncoder(str(bert), max_length=max_length, prompt="a ")
        lengths = encoder.backbone.tokenize(encoder.prompt.wrap(sentences), max_length=None).lengths
        expected = sum(length > encoder.max_length for length in lengths)
        assert count_cut(encoder, sentences) == expected
    n_cut = count_cut(TransformerEncoder(str(bert), max_length=6), sentences)
    assert n_cut is not None and 0 < n_cut < len(sentences)


def test_a_prompt_is_described_by_the_text_around_a_sentence(bert):
    encoders = (
        TransformerEncoder(str(bert)),
        TransformerEncoder(str(bert), prompt="query: "),
        TransformerEncoder(str(bert), prompt_template="this {} means"),
    )
    described = [describe_prompt(encoder) for encoder in encoders]
    assert described == ["", "query: {}", "this {} means"]
    # A function may add a prompt of its own, and cut what it likes.
    function = wrap_object(lambda sentences: [[1.0]] * len(sentences))
    assert describe_prompt(function) is None and count_cut(function, ["a"]) is None


def test_a_sentence_transformer_counts_what_it_cuts(bert, tmp_path):
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    save(tmp_path, Transformer(str(bert)), Pooling(16, "mean"))
    encoder = SentenceTransformerEncoder(str(tmp_path), max_length=6)
    assert count_cut(encoder, ["a", "a b c", "a b c a b c a b"]) == 1


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("x/multilingual-e5-small", "runs without a prompt; the card multilingual-e5-small has 'q"),
        ("e5-small-unsupervised", "runs without a prompt; its documentation puts 'query: ' before"),
        ("e5-small-unsupervised+prompt=", ""),
        ("someone/else", ""),
    ],
)
def test_a_known_model_without_its_prompt_is_warned_of(bert, name, warning):
    plain = NamedEncoder(name=name, encoder=TransformerEncoder(str(bert)))
    prompted = NamedEncoder(name=name, encoder=TransformerEncoder(str(bert), prompt="query: "))
    message = plain.missing_prompt(stsbench.Catalogue())
    assert warning in message and bool(message) == bool(warning)
    assert prompted.missing_prompt(stsbench.Catalogue()) == ""


def test_a_result_notes_what_is_cut_and_how_long_a_sentence_takes(bert):
    warnings: list[str] = []
    (result,) = stsbench.evaluate(
        str(bert),
        "quickstart-en",
        params={"max_length": 8},
        store=None,
        callbacks=RunCallbacks(on_notice=warnings.append),
    )
    assert 0 < result.run["cut"] <= 600
    assert (
        f"{result.run['cut']} of 600 sentences were cut at the encoder's maximum length"
        in result.notes
    )
    assert result.run["ms_per_sentence"] is None or result.run["ms_per_sentence"] > 0
    assert warnings == []
