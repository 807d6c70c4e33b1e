"""What identifies an embedding: who made it, with which parameters, by which versions."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import partial
from importlib import metadata
from pathlib import Path

import pytest

from stsbench.bench.embedder import open_store
from stsbench.core import provenance as machine
from stsbench.core.errors import EncoderError
from stsbench.core.provenance import (
    add_texts,
    copy_factory,
    encoder_identity,
    fingerprint,
    is_same_encoder,
    record_factory,
    strip_texts,
    strip_versions,
)
from stsbench.encoders.fitted import FittedEncoder, texts_sha256
from stsbench.encoders.load import load_named
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.whitening import WhiteningMethod
from stsbench.results.folder import read_states
from tests.cli.commands import Command, write
from tests.encoders.fakes import Plain
from tests.encoders.made_checkpoints import change

CONSTANT = '''
import numpy as np
from zlib import crc32


class Hashed:
    """As README's, with a parameter that its fingerprint does not know."""

    name, fingerprint = "hashed", "hashed-1"

    def __init__(self, size: int = 997):
        self.size = size

    def encode(self, sentences):
        rows = [[crc32(w.encode()) % self.size for w in (s.split() or [""])] for s in sentences]
        return np.stack([np.bincount(r, minlength=self.size) for r in rows]).astype(np.float32)


class Slotted:
    __slots__ = ()
    name, fingerprint = "slotted", "1"

    def __init__(self, size: int = 1):
        pass

    def encode(self, sentences):
        return np.ones((len(sentences), 2), np.float32)


def large():
    return Hashed(50)


small = lambda: Hashed(5)  # noqa: E731
ready = Hashed(7)
'''
TEXTS = texts_sha256(["a"])


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path / "own_constant.py", CONSTANT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(__import__("sys").modules, "own_constant", raising=False)
    return tmp_path


def test_a_parameter_that_the_fingerprint_does_not_know_is_another_encoder(own, capsys):
    stsbench = Command(capsys)
    run = ("run", "--encoder", "own_constant:Hashed", "--tasks", "quickstart-en")
    for more in (
        (),
        ("--set", "size=31"),
        ("--set", "size=31", "--no-store", "--results", "elsewhere"),
    ):
        stsbench.fine(*run, *more)
    stored = {r.fingerprint: r for r in read_states(own / "results").results}
    (fresh,) = read_states(own / "elsewhere").results
    plain, sized = (
        stored["hashed-1 of own_constant:Hashed"],
        stored["hashed-1 of own_constant:Hashed(size=31)"],
    )
    assert sized.score == fresh.score != plain.score
    assert sized.run["encoded"] == plain.run["encoded"] > 0


def test_functions_and_parts_of_one_class_are_not_taken_for_each_other(own):
    found = [
        load_named(f"own_constant:{name}").fingerprint
        for name in ("Hashed", "small", "large", "ready")
    ]
    assert found == [
        f"hashed-1 of own_constant:{name}" for name in ("Hashed", "small", "large", "ready")
    ]


def test_what_takes_no_attributes_is_refused(own):
    with pytest.raises(EncoderError, match="Slotted takes no attributes"):
        load_named("own_constant:Slotted", params={"size": 2})
    assert load_named("own_constant:Slotted").fingerprint == "1 of own_constant:Slotted"


def test_where_it_runs_is_no_parameter_of_an_embedding():
    plain, placed = Plain(), Plain()
    record_factory(plain, Plain, {}, name="x")
    record_factory(placed, Plain, {"device": "cuda:1"}, name="x")
    assert (
        encoder_identity(plain)
        == encoder_identity(placed)
        == "plain-1 of tests.encoders.fakes:Plain"
    )


def test_without_a_fingerprint_there_is_no_identity():
    encoder = Plain(fingerprint=None)
    record_factory(encoder, Plain, {"d": 4}, name="x")
    assert encoder_identity(encoder) is None


def test_a_wrapper_that_answers_for_what_is_inside_has_an_identity_of_its_own():
    class Wrapper:
        name, fingerprint = "w", "1"

        def __init__(self, inner: object) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    inner = Plain()
    record_factory(inner, Plain, {"d": 3}, name="x")
    assert "Wrapper" in str(encoder_identity(Wrapper(inner))) and "d=3" not in str(
        encoder_identity(Wrapper(inner))
    )


def test_a_base_of_another_class_or_parameters_is_another_fit():
    class Other(Plain):
        pass

    sized = Plain()
    record_factory(sized, Plain, {"d": 9}, name="x")
    method = WhiteningMethod(2, normalise=True)
    fits = [FittedEncoder(base, method, ["a", "b"], name="w") for base in (Plain(), Other(), sized)]
    assert len({fit.fingerprint for fit in fits}) == len({fit.folder for fit in fits}) == 3


def test_a_fitted_one_is_stored_by_parameters_and_texts(tmp_path):
    made, fitted = Plain(), Plain()
    record_factory(made, Plain, {"d": 4}, name="x")
    copy_factory(fitted, made)
    shelves = [
        open_store(tmp_path, made),
        open_store(tmp_path, fitted, texts_sha256(["a"])),
        open_store(tmp_path, fitted, texts_sha256(["b"])),
    ]
    assert encoder_identity(fitted) == encoder_identity(made)
    assert len({shelf.folder for shelf in shelves}) == 3


# --- versions ---


def test_versions_of_what_computes_are_in_it(bert, monkeypatch):
    encoder = TransformerEncoder(str(bert))
    assert re.fullmatch(r"[0-9a-f]{64} by tokenizers \S+, transformers \S+", encoder.fingerprint)
    real = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "5.1.0" if name == "transformers" else real(name)
    )
    older = TransformerEncoder(str(bert)).fingerprint
    assert older.endswith("transformers 5.1.0") and older != encoder.fingerprint
    assert is_same_encoder(older, encoder.fingerprint)


@pytest.mark.parametrize(
    "damage",
    ["no tokenizer.json", "a class of its own", "no class"],
    ids=lambda damage: damage.replace(" ", "-"),
)
def test_a_tokenizer_of_other_packages_names_them(bert, tmp_path, damage):

    folder = Path(shutil.copytree(bert, tmp_path / "bert"))
    if damage == "no tokenizer.json":
        (folder / "tokenizer.json").unlink()
    else:
        change(
            folder / "tokenizer_config.json",
            tokenizer_class="FlaubertTokenizer" if "own" in damage else None,
        )
    encoder = TransformerEncoder(str(folder))
    for package in ("sacremoses", "sentencepiece"):
        assert f"{package} {metadata.version(package)}" in encoder.fingerprint


# --- the form ---

HASH = "0" * 64
FORMS = {
    "plain-1 of own:Plain": ("plain-1 of own:Plain", "plain-1 of own:Plain"),
    f"{HASH} by torch 2.13.0+cpu, transformers 5.23.0": (
        f"{HASH} by torch 2.13.0+cpu, transformers 5.23.0",
        HASH,
    ),
    f"{HASH} by nltk 3.10 fitted on {TEXTS}": (f"{HASH} by nltk 3.10", f"{HASH} fitted on {TEXTS}"),
    "made by hand fitted on nothing of own:Plain": ("made by hand fitted on nothing of own:Plain",)
    * 2,
    'x of own:Plain(note="y by z 1")': ('x of own:Plain(note="y by z 1")',) * 2,
    "two\nlines": ("two\nlines", "two\nlines"),
}


@pytest.mark.parametrize("text", FORMS)
def test_parts_are_found_again(text):
    assert (strip_texts(text), strip_versions(text)) == FORMS[text]


def test_a_package_that_is_not_installed_computes_nothing():
    assert fingerprint({"a": 1}, ["no-such-package"]) == fingerprint({"a": 1})
    assert add_texts("x", TEXTS).startswith("x fitted on ")
    assert not is_same_encoder(None, None)


def test_parts_of_partial_are_not_lost():
    maker, encoder = partial(Plain, d=7), Plain(d=7)
    record_factory(encoder, maker, {}, name="own:seven")
    assert encoder_identity(encoder) == "plain-1 of own:seven"


def test_a_checkout_says_its_commit_and_whether_it_was_changed(tmp_path, monkeypatch):
    place = write(tmp_path / "stsbench" / "core" / "provenance.py", "")
    monkeypatch.setattr(machine, "__file__", str(place))
    commit = machine.commit.__wrapped__
    assert commit() == (None, None)
    git = ("git", "-C", tmp_path, "-c", "user.name=A", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "all")):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run(
        [*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    write(tmp_path / "results" / "new.json", "{}")
    assert commit() == (head, False)
    write(place, "# changed")
    assert commit() == (head, True)
