"""The contract of a fingerprint: every parameter of every kind that can change an embedding changes it, no other does."""

from __future__ import annotations

import importlib.util
import inspect
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.base import ENCODERS
from stsbench.encoders.checkpoint import Checkpoint
from stsbench.results.folder import read_states
from tests.cli.commands import Command
from tests.encoders.test_contract import MADE, kind, load, params
from tests.encoders.words.word_files import cache

__all__ = ["cache", "kind", "params"]
pytestmark = pytest.mark.usefixtures("cache")

PLACES: Mapping[str, Any] = {"name": "another", "device": "auto", "catalogue": None}
"""Parameters that change no embedding, of whatever kind."""
LOCATES = {"model", "file", "base", "package", "subfolder", "sha256", "revision", "vectors"}
"""Parameters that say where files lie: their bytes count, which other tests change."""
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "transformer": {
        "pooling": "max",
        "max_length": 9,
        "normalise": True,
        "prompt": "the ",
        "prompt_template": "the {}",
        "add_full_stop": True,
        "padding_side": "left",
        "dtype": "bfloat16",
    },
    "sentence_transformer": {
        "prompt_name": "plain",
        "prompt": "the ",
        "max_length": 9,
        "normalise": True,
        "dtype": "bfloat16",
    },
    "words": {"tokens": "sbert", "limit": 3},
    "infersent": {"tokens": "ptb", "padding": "masked"},
    "skip_thoughts": {"halves": ["uni"], "tokens": "ptb", "append_eos": True},
    "quick_thoughts": {"halves": ["f"], "tokens": "ptb", "append_eos": True},
    "fastsent": {"mean": True, "tokens": "ptb"},
    "model2vec": {"max_length": 2, "normalise": True},
    "use": {},
    "whitening": {"k": 3, "normalise": False, "base_params": {"pooling": "max"}},
    "calibration": {"standardise": False, "remove": 2, "base_params": {"pooling": "max"}},
    "flow": {
        "levels": 1,
        "depth": 2,
        "width": 5,
        "epochs": 2.0,
        "learning_rate": 1e-4,
        "decay": "port",
        "dropout": True,
        "seed": 1,
        "base_params": {"pooling": "max"},
    },
    "token_removal": {"k": 5, "count": "script", "base_params": {"max_length": 9}},
}
KEEPS: Mapping[str, Mapping[str, Any]] = {
    "use": {"batch": 1},
    # Which texts is in the hash of the texts; what they are called is not.
    "whitening": {"fit": "stsb.test", "base_params": {"device": "auto"}},
    "calibration": {"fit": "stsb.test", "base_params": {"device": "auto"}},
    "flow": {"fit": "stsb.test", "base_params": {"device": "auto"}},
    "token_removal": {"fit": "stsb.test", "base_params": {"device": "auto"}},
}


ELSEWHERE: Mapping[str, set[str]] = {
    # Only checkpoints of their own have these: prompts with names, decoders, adapters (tests/encoders/transformer); and runtimes are extras.
    "transformer": {"prompt_name", "bidirectional", "adapters", "backend"},
    "sentence_transformer": {"backend"},
}
SERVED = {"openai"}
"""Kinds that ask a server: tests/encoders/served."""


def test_every_parameter_of_every_kind_is_listed():
    assert set(CHANGES) | SERVED == set(ENCODERS.table)
    for name, changes in CHANGES.items():
        if MADE[name].needs and importlib.util.find_spec(MADE[name].needs) is None:
            takes = {"batch"}
        else:
            takes = set(inspect.signature(ENCODERS.load(name)).parameters)
        takes -= ELSEWHERE.get(name, set())
        assert takes - LOCATES - set(PLACES) == set(changes) | set(KEEPS.get(name, {})), name


def test_a_parameter_changes_the_fingerprint_if_and_only_if_it_can_change_an_embedding(kind, params):
    plain = load(kind, params).fingerprint
    changed = {key: load(kind, params, **{key: value}).fingerprint for key, value in CHANGES[kind].items()}
    assert all(changed.values())
    alike = {mark for mark in changed.values()}
    # Two of them say the same thing in two ways.
    same = 1 if kind == "sentence_transformer" else 0
    assert plain not in alike and len(alike) == len(changed) - same, changed
    takes = set(inspect.signature(ENCODERS.load(kind)).parameters)
    for key, value in {**{k: v for k, v in PLACES.items() if k in takes}, **KEEPS.get(kind, {})}.items():
        assert load(kind, params, **{key: value}).fingerprint == plain, key


def test_every_file_that_the_librarys_tokenizers_name_counts(tmp_path):
    import transformers
    from transformers.models.auto import tokenization_auto

    named = set()
    for classes in tokenization_auto.TOKENIZER_MAPPING_NAMES.values():
        for each in [classes] if isinstance(classes, str) else filter(None, classes or ()):
            named |= set(getattr(getattr(transformers, each, None), "vocab_files_names", {}).values())
    assert {"vocab.txt", "spm.model", "bpe.codes"} <= named
    for name in named:
        (tmp_path / name).write_text(name)
    assert named <= set(Checkpoint(folder=tmp_path, revision=None, weights=()).digests())


COUNT = ["spm.model", "bpe.codes", "prophetnet.tokenizer", "vocab-src.json", "dict.txt"]
NEVER_LOADED = ["README.md", "LICENSE", "run.json", "stsbench.json", "model.onnx", ".gitattributes"]


@pytest.mark.parametrize("name", [*COUNT, *NEVER_LOADED])
def test_every_file_counts_that_a_tokenizer_may_load(bert, tmp_path, name):
    folder = Path(shutil.copytree(bert, tmp_path / "bert"))
    prints = [load("transformer", {"model": str(folder)}).fingerprint]
    for content in ("one", "two"):
        (folder / name).write_text(content)
        prints.append(load("transformer", {"model": str(folder)}).fingerprint)
    assert len(set(prints)) == (3 if name in COUNT else 1)


def test_a_device_is_refused_at_once(kind, params):
    if "device" not in inspect.signature(ENCODERS.load(kind)).parameters:
        pytest.skip("runs without a device of its own")
    make = ENCODERS.load(kind)
    with pytest.raises(CardError, match="'bogus' is not a device; give auto, cpu, cuda, or cuda:1"):
        make(**{**params, "device": "bogus"})
    with pytest.raises(EncoderError, match="device 'cuda:99' cannot be used here"):
        make(**{**params, "device": "cuda:99"})


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
