"""What every kind of encoder keeps, whatever it is made of; a new kind joins by a row of MADE."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from stsbench.core.errors import EncoderError
from stsbench.encoders.base import ENCODERS, SERVED, Encoder, TextFitted
from stsbench.encoders.engine.embed import Engine
from tests.encoders.made_checkpoints import save
from tests.encoders.served.test_use import write_model
from tests.encoders.words.test_model2vec import write_model2vec
from tests.encoders.words.word_encoders import write_fastsent, write_halves, write_infersent, write_vectors
from tests.encoders.words.word_files import cache

__all__ = ["cache"]
pytestmark = [pytest.mark.usefixtures("cache"), pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")]

SENTENCES = [
    "the cat sat on the mat .",
    "a cat",
    "",
    "😀 👨‍👩‍👧 a cat",
    "שלום עולם , مرحبا بالعالم the mat",
    "a cat sat . " * 600,  # more than a batch of the engine holds
    "half an emoji: \ud83d the cat",
    " the\tcat\u2028sat\n",
    "xyzzy",
    "the cat sat on the mat .",
]


@dataclass(frozen=True)
class Made:
    """How a kind is tried: its folder or file and parameters, and a parameter that changes embeddings."""

    write: Callable[[Path, Path], Mapping[str, Any]]
    """Given an empty folder and a small BERT, the parameters that make the encoder."""
    other: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    atol: float = 1e-5


def of_bert(folder: Path, bert: Path) -> Mapping[str, Any]:
    shutil.copytree(bert, folder / "bert")
    return {"model": str(folder / "bert"), "device": "cpu"}


def of_library(folder: Path, bert: Path) -> Mapping[str, Any]:
    transformer = Transformer(str(bert))
    saved = save(folder / "st", transformer, Pooling(16, "max"), prompts={"plain": "the "})
    return {"model": str(saved), "device": "cpu"}


def of_vectors(folder: Path, bert: Path) -> Mapping[str, Any]:
    return {"file": str(write_vectors(folder / "vectors.txt", 1))}


def of_infersent(folder: Path, bert: Path) -> Mapping[str, Any]:
    return {"model": str(write_infersent(folder / "infersent", write_vectors(folder / "vectors.txt", 1)))}


def of_use(folder: Path, bert: Path) -> Mapping[str, Any]:
    import tensorflow

    return {"model": str(write_model(tensorflow, folder / "use"))}


def over_bert(folder: Path, bert: Path) -> dict[str, Any]:
    shutil.copytree(bert, folder / "bert")
    return {"base": str(folder / "bert"), "base_params": {"device": "cpu"}}


MADE: Mapping[str, Made] = {
    "transformer": Made(of_bert, {"pooling": "max"}),
    "sentence_transformer": Made(of_library, {"normalise": True}),
    "words": Made(of_vectors, {"tokens": "sbert"}),
    "infersent": Made(of_infersent, {"padding": "masked"}),
    "skip_thoughts": Made(lambda f, b: {"model": str(write_halves(f / "m", "skip_thoughts"))}, {"append_eos": True}),
    "quick_thoughts": Made(lambda f, b: {"model": str(write_halves(f / "m", "quick_thoughts"))}, {"halves": ["f"]}),
    "fastsent": Made(lambda f, b: {"model": str(write_fastsent(f / "m"))}, {"mean": True}, atol=1e-3),
    "model2vec": Made(lambda f, b: {"model": str(write_model2vec(f / "m", b))}, {"normalise": True}),
    "use": Made(of_use, needs="tensorflow", atol=1e-3),
    # Fitted on texts before they embed.
    "whitening": Made(over_bert, {"k": 3}, atol=1e-4),
    "calibration": Made(lambda folder, bert: {**over_bert(folder, bert), "remove": 1}, {"remove": 2}, atol=1e-4),
    "flow": Made(lambda f, b: {**over_bert(f, b), "width": 4}, {"seed": 1}, atol=1e-4),
    "token_removal": Made(lambda f, b: {**over_bert(f, b), "k": 3}, {"k": 5}),
}
TO_FIT = [f"{who} cat sat {'on the mat ' * (i % 4)}{end}" for i in range(16) for who in "a the".split() for end in ".,"]
TO_FIT_ELSE = [
    f"q : {who} dog {'runs : q ' * (i % 5)}{end}" for i in range(16) for who in "a the".split() for end in ":,"
]
LOCATIONS = ("file", "base", "model")
"""The parameters that say where weights or vectors lie."""


@pytest.fixture(scope="module", params=sorted(MADE))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if MADE[name].needs and importlib.util.find_spec(MADE[name].needs) is None:
        pytest.skip(f"{MADE[name].needs} is not installed")
    return name


@pytest.fixture(scope="module")
def params(kind: str, bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return MADE[kind].write(tmp_path_factory.mktemp(kind), bert)


def load(kind: str, params: Mapping[str, Any], **more: Any) -> Encoder:
    encoder = ENCODERS.load(kind)(**{**params, **more})
    assert isinstance(encoder, Encoder)
    if isinstance(encoder, TextFitted):
        with pytest.raises(EncoderError, match="is fitted on texts"):
            encoder.encode(SENTENCES)
        encoder = encoder.fit_texts(TO_FIT)
        assert isinstance(encoder, Encoder)
    return encoder


def test_every_kind_is_tried():
    # Those behind a server are tried with one in served/test_openai.py.
    assert set(MADE) | SERVED == set(ENCODERS.table)


def test_shape_type_and_order(kind, params):
    encoder = load(kind, params)
    embeddings = encoder.encode(SENTENCES)
    n, d = embeddings.shape
    assert n == len(SENTENCES)
    assert embeddings.dtype == np.float32
    assert np.isfinite(embeddings).all()
    assert encoder.encode([]).shape == (0, d)
    np.testing.assert_allclose(encoder.encode(SENTENCES[::-1])[::-1], embeddings, atol=MADE[kind].atol)
    # Equal text, equal embedding; of the others most differ.
    np.testing.assert_allclose(embeddings[0], embeddings[-1], atol=MADE[kind].atol)
    assert np.abs(embeddings[0] - embeddings[1]).max() > 1e-3


def test_neighbours_and_batches_do_not_matter(kind, params):
    encoder, atol = load(kind, params), MADE[kind].atol
    together = encoder.encode(SENTENCES)
    alone = np.concatenate([encoder.encode([sentence]) for sentence in SENTENCES])
    np.testing.assert_allclose(alone, together, atol=atol)
    np.testing.assert_allclose(np.asarray(Engine(encoder)(SENTENCES)), together, atol=atol)
    many = [*SENTENCES, *(f"the cat sat {'on the mat ' * (i % 9)}" for i in range(200))]
    np.testing.assert_allclose(encoder.encode(many)[: len(SENTENCES)], together, atol=atol)


def test_the_one_kind_that_depends_on_neighbours_says_so(tmp_path, bert):
    encoder = load("infersent", of_infersent(tmp_path, bert), padding="batch")
    # A maximum below zero is lifted to zero beside a longer sentence: as InferSent 1 was released.
    alone, beside = encoder.encode(["a cat"])[0], encoder.encode(["a cat", SENTENCES[0]])[0]
    np.testing.assert_allclose(beside, np.maximum(alone, 0), atol=1e-6)
    assert alone.min() < 0
    assert encoder.fingerprint is None


def test_the_same_files_give_the_same_bytes(kind, params):
    first = load(kind, params).encode(SENTENCES)
    assert load(kind, params).encode(SENTENCES).tobytes() == first.tobytes()


def test_fingerprint_changes_if_and_only_if_embeddings_can(kind, params):
    encoder = load(kind, params)
    assert encoder.fingerprint == load(kind, params).fingerprint == load(kind, params, name="another").fingerprint
    assert encoder.fingerprint
    changed = MADE[kind].other
    if changed:
        other = load(kind, params, **changed)
        assert other.fingerprint != encoder.fingerprint
        was, now = encoder.encode(SENTENCES), other.encode(SENTENCES)
        assert was.shape != now.shape or np.abs(was - now).max() > 1e-4


@pytest.mark.parametrize(
    "kind", sorted(set(MADE) & {"whitening", "calibration", "flow", "token_removal"}), indirect=True
)
def test_fingerprint_knows_the_texts_and_not_what_they_are_called(kind, params):
    made = ENCODERS.load(kind)(**params)
    called = ENCODERS.load(kind)(**params, fit="stsb.test")
    assert called.fingerprint == made.fingerprint
    one, same, other = made.fit_texts(TO_FIT), called.fit_texts(list(TO_FIT)), made.fit_texts(TO_FIT_ELSE)
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert one.encode(SENTENCES).tobytes() == same.encode(SENTENCES).tobytes()
    assert np.abs(one.encode(SENTENCES) - other.encode(SENTENCES)).max() > 1e-5


def test_fingerprint_changes_with_the_weights(kind, params, tmp_path):
    encoder, key = load(kind, params), next(key for key in LOCATIONS if key in params)
    source = Path(params[key])
    copied = tmp_path / source.name
    (shutil.copytree if source.is_dir() else shutil.copy)(source, copied)
    same = load(kind, {**params, key: str(copied)})
    assert same.fingerprint == encoder.fingerprint
    files = [copied] if copied.is_file() else [p for p in copied.rglob("*") if p.suffix in (".safetensors", ".pb")]
    for path in files:
        content = path.read_bytes()
        # The last value: of a weight, or of a vector.
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    assert load(kind, {**params, key: str(copied)}).fingerprint != encoder.fingerprint
