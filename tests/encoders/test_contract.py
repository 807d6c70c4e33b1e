"""What every kind of encoder keeps, whatever it is made of; a new kind joins by a row of MADE."""

from __future__ import annotations

import importlib.util
import inspect
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.base import Encoder, FittableEncoder
from stsbench.encoders.checkpoint import Checkpoint
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.kinds import ENCODERS, KINDS
from stsbench.results.folder import read_states
from tests.cli.commands import Command
from tests.encoders.made_checkpoints import save, write_saved_model
from tests.encoders.words.word_encoders import (
    write_fastsent,
    write_halves,
    write_infersent,
    write_model2vec,
    write_vectors,
)
from tests.encoders.words.word_files import cache

__all__ = ["cache"]
pytestmark = [
    pytest.mark.usefixtures("cache"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]

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
    """How a kind is tried: what it is made of, and its parameters."""

    write: Callable[[Path, Path], Mapping[str, Any]]
    """Given an empty folder and a small BERT, the parameters that make the encoder."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Every parameter that can change an embedding, with another value; the first does."""
    keeps: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of this kind alone that change no embedding."""
    needs: str = ""
    atol: float = 1e-5
    elsewhere: frozenset[str] = frozenset()
    """Parameters that only checkpoints of their own have, or that are extras': tried in other files."""


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
    return {
        "model": str(
            write_infersent(folder / "infersent", write_vectors(folder / "vectors.txt", 1))
        )
    }


def of_use(folder: Path, bert: Path) -> Mapping[str, Any]:
    import tensorflow

    return {"model": str(write_saved_model(tensorflow, folder / "use"))}


def over_bert(folder: Path, bert: Path) -> dict[str, Any]:
    shutil.copytree(bert, folder / "bert")
    return {"base": str(folder / "bert"), "base_params": {"device": "cpu"}}


# Which texts is in the hash of the texts; what they are called is not.
FIT = {"fit": "stsb.test", "base_params": {"device": "auto"}}
MADE: Mapping[str, Made] = {
    "transformer": Made(
        of_bert,
        {
            "pooling": "max",
            "max_length": 9,
            "normalise": True,
            "prompt": "the ",
            "prompt_template": "the {}",
            "add_full_stop": True,
            "padding_side": "left",
            "dtype": "bfloat16",
        },
        elsewhere=frozenset({"prompt_name", "bidirectional", "adapters", "backend"}),
    ),
    "sentence_transformer": Made(
        of_library,
        {
            "normalise": True,
            "prompt_name": "plain",
            "prompt": "the ",
            "max_length": 9,
            "dtype": "bfloat16",
        },
        elsewhere=frozenset({"backend"}),
    ),
    "words": Made(of_vectors, {"tokens": "sbert", "limit": 3}),
    "infersent": Made(of_infersent, {"padding": "masked", "tokens": "ptb"}),
    "skip_thoughts": Made(
        lambda f, b: {"model": str(write_halves(f / "m", "skip_thoughts"))},
        {"append_eos": True, "halves": ["uni"], "tokens": "ptb"},
    ),
    "quick_thoughts": Made(
        lambda f, b: {"model": str(write_halves(f / "m", "quick_thoughts"))},
        {"halves": ["f"], "tokens": "ptb", "append_eos": True},
    ),
    "fastsent": Made(
        lambda f, b: {"model": str(write_fastsent(f / "m"))},
        {"mean": True, "tokens": "ptb"},
        atol=1e-3,
    ),
    "model2vec": Made(
        lambda f, b: {"model": str(write_model2vec(f / "m", b))},
        {"normalise": True, "max_length": 2},
    ),
    "use": Made(of_use, {}, keeps={"batch": 1}, needs="tensorflow", atol=1e-3),
    "whitening": Made(
        over_bert,
        {"k": 3, "normalise": False, "base_params": {"pooling": "max"}},
        keeps=FIT,
        # Directions of little variance are scaled up, and rounding with them.
        atol=5e-4,
    ),
    "calibration": Made(
        lambda f, b: {**over_bert(f, b), "remove": 1},
        {"remove": 2, "standardise": False, "base_params": {"pooling": "max"}},
        keeps=FIT,
        atol=1e-4,
    ),
    "flow": Made(
        lambda f, b: {**over_bert(f, b), "width": 4},
        {
            "seed": 1,
            "levels": 1,
            "depth": 2,
            "width": 5,
            "epochs": 2.0,
            "learning_rate": 0.0001,
            "batch_pairs": 2,
            "weight_decay": 0.5,
            "clip": 0.01,
            "epsilon": 0.01,
            "decay": "port",
            "dropout": True,
            "base_params": {"pooling": "max"},
        },
        keeps=FIT,
        atol=1e-4,
    ),
    "token_removal": Made(
        lambda f, b: {**over_bert(f, b), "k": 3},
        {"k": 5, "count": "script", "base_params": {"max_length": 9}},
        keeps=FIT,
    ),
}
TO_FIT = [
    f"{who} cat sat {'on the mat ' * (i % 4)}{end}"
    for i in range(16)
    for who in "a the".split()
    for end in ".,"
]
TO_FIT_ELSE = [
    f"q : {who} dog {'runs : q ' * (i % 5)}{end}"
    for i in range(16)
    for who in "a the".split()
    for end in ":,"
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
    if isinstance(encoder, FittableEncoder):
        with pytest.raises(EncoderError, match=r"fit_texts\(sentences\)"):
            encoder.encode(SENTENCES)
        encoder = encoder.fit_texts(TO_FIT)
        assert isinstance(encoder, Encoder)
    return encoder


PLACES: Mapping[str, Any] = {"name": "another", "device": "auto", "catalogue": None}
"""Parameters that change no embedding, of whatever kind."""
LOCATES = {"model", "file", "base", "package", "subfolder", "sha256", "revision", "vectors"}
"""Parameters that say where files lie: their bytes count, which other tests change."""


def test_every_parameter_of_every_kind_is_listed():
    # Those behind a server are tried with one in served/test_openai.py.
    served = {name for name, kind in KINDS.items() if kind.needs == "server"}
    # A file embeds no sentence but its own: test_embedding_file.py. Pair scorers: test_pairs.py.
    others = {"file", "similarities", "cross_encoder"}
    assert set(MADE) | served | others == set(ENCODERS.table)
    for name, made in MADE.items():
        installed = not made.needs or importlib.util.find_spec(made.needs) is not None
        takes = set(inspect.signature(ENCODERS.load(name)).parameters) if installed else {"batch"}
        assert takes - made.elsewhere - LOCATES - set(PLACES) == {*made.changes, *made.keeps}, name


def test_shape_type_and_order(kind, params):
    encoder = load(kind, params)
    embeddings = encoder.encode(SENTENCES)
    n, d = embeddings.shape
    assert n == len(SENTENCES)
    assert embeddings.dtype == np.float32
    assert np.isfinite(embeddings).all()
    assert encoder.encode([]).shape == (0, d)
    # It would be embedded letter by letter.
    with pytest.raises(EncoderError, match="one text of 5 characters"):
        encoder.encode("a cat")
    np.testing.assert_allclose(
        encoder.encode(SENTENCES[::-1])[::-1], embeddings, atol=MADE[kind].atol
    )
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


def test_a_parameter_changes_the_fingerprint_if_and_only_if_it_can_change_an_embedding(
    kind, params
):
    encoder, made = load(kind, params), MADE[kind]
    changed = {key: load(kind, params, **{key: value}) for key, value in made.changes.items()}
    alike = {other.fingerprint for other in changed.values()}
    # Two of them say the same thing in two ways.
    same = 1 if kind == "sentence_transformer" else 0
    assert (
        encoder.fingerprint
        and encoder.fingerprint not in alike
        and len(alike) == len(changed) - same
    )
    for other in list(changed.values())[:1]:
        was, now = encoder.encode(SENTENCES), other.encode(SENTENCES)
        assert was.shape != now.shape or np.abs(was - now).max() > 1e-4
    takes = set(inspect.signature(ENCODERS.load(kind)).parameters)
    for key, value in {**{k: v for k, v in PLACES.items() if k in takes}, **made.keeps}.items():
        assert load(kind, params, **{key: value}).fingerprint == encoder.fingerprint, key


@pytest.mark.parametrize(
    "kind", sorted(set(MADE) & {"whitening", "calibration", "flow", "token_removal"}), indirect=True
)
def test_fingerprint_knows_the_texts_and_not_what_they_are_called(kind, params):
    made = ENCODERS.load(kind)(**params)
    called = ENCODERS.load(kind)(**params, fit="stsb.test")
    assert called.fingerprint == made.fingerprint
    one, same, other = (
        made.fit_texts(TO_FIT),
        called.fit_texts(list(TO_FIT)),
        made.fit_texts(TO_FIT_ELSE),
    )
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
    files = (
        [copied]
        if copied.is_file()
        else [p for p in copied.rglob("*") if p.suffix in (".safetensors", ".pb")]
    )
    for path in files:
        content = path.read_bytes()
        # The last value: of a weight, or of a vector.
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    assert load(kind, {**params, key: str(copied)}).fingerprint != encoder.fingerprint


NEVER_READ = {"README.md", "LICENSE", "run.json", "stsbench.json", "model.onnx", ".gitattributes"}


def test_every_file_that_the_librarys_tokenizers_may_load_counts(tmp_path):
    import transformers
    from transformers.models.auto import tokenization_auto

    named = {"prophetnet.tokenizer", "vocab-src.json", "dict.txt"}
    for classes in tokenization_auto.TOKENIZER_MAPPING_NAMES.values():
        for each in [classes] if isinstance(classes, str) else filter(None, classes or ()):
            named |= set(
                getattr(getattr(transformers, each, None), "vocab_files_names", {}).values()
            )
    assert {"vocab.txt", "spm.model", "bpe.codes"} <= named
    for name in named | NEVER_READ:
        (tmp_path / name).write_text(name)
    assert set(Checkpoint(folder=tmp_path).file_hashes()) == named


WRONG_DEVICES = {
    "bogus": (CardError, "'bogus' is not a device; give auto, cpu, cuda, or cuda:1"),
    "cuda:99": (EncoderError, "device 'cuda:99' cannot be used here"),
}
"""What refuses a device, by its name."""


def test_a_device_is_refused_at_once(kind, params):
    if "device" not in inspect.signature(ENCODERS.load(kind)).parameters:
        pytest.skip("runs without a device of its own")
    make = ENCODERS.load(kind)
    for device, (error, message) in WRONG_DEVICES.items():
        with pytest.raises(error, match=message):
            make(**{**params, "device": device})


def test_a_device_is_no_part_of_a_name_and_stands_in_the_run(bert, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    stsbench = Command(capsys)
    run = ("run", "--encoder", bert, "--tasks", "quickstart-en")
    stsbench.fine(*run, "--set", "device=cpu")
    (first,) = read_states(tmp_path / "results").results
    assert (first.encoder, first.run["device"]) == (bert.name, "cpu")
    for device in ("bogus", "cuda:99"):
        # All embeddings are stored and the score is known.
        code, _, err = stsbench(*run, "--set", f"device={device}")
        assert code == 2 and f"'{device}'" in err and err.count("\n") == 1
    stsbench.fine(*run)
    assert read_states(tmp_path / "results").results == [first]
