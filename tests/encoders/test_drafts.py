"""Encoders' cards drafted from checkpoints of each make and from word vectors: the card is the encoder that its files tell."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stsbench.core.cards import EncoderCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, EncoderError
from stsbench.data.card_draft import Draft, locate_card
from stsbench.encoders.described import write_saved
from stsbench.encoders.encoder_draft import draft_encoder
from stsbench.encoders.load import load_encoder
from tests.encoders.made_checkpoints import write_plain

VECTORS = "3 2\nthe 1 2\ncat 3 4\nsat 5 6\n"


def drafted(source: Path, out: Path) -> tuple[Draft, EncoderCard]:
    draft = draft_encoder(source, locate_card(out, "baselines", "mine"))
    draft.write(force=False)
    return draft, Catalogue(out).encoder("mine")


def same(source: Path, out: Path) -> bool:
    return (
        load_encoder("mine", catalogue=Catalogue(out)).fingerprint
        == load_encoder(source).fingerprint
    )


def test_a_bare_transformer(bert, tmp_path):
    draft, card = drafted(bert, tmp_path)
    assert (card.kind, card.backbone, card.dimensions, card.overlap) == (
        "transformer",
        "bert",
        16,
        "unknown",
    )
    expected: dict[str, Any] = {"model": str(bert.resolve()), "pooling": "mean", "normalise": False}
    assert card.params == {**expected, "max_length": 64, "dtype": "float32"}
    (doubt,) = [doubt for doubt in draft.doubts if "pooling" in doubt]
    assert doubt.endswith("how to run it; assumed: pooling mean, normalise no, prompt none")
    assert draft.doubts[-1] == "not in the files: method, overlap, paper, license"
    assert same(bert, tmp_path)


def test_a_readme_tells_licence_and_base(bert, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    (folder / "README.md").write_text(
        "---\nlicense: apache-2.0\nbase_model: org/some-bert\ntags:\n- x\n---\nlicense: mit\n"
    )
    draft, card = drafted(folder, tmp_path / "cards")
    assert (card.license, card.backbone) == ("apache-2.0", "some-bert")
    assert draft.doubts[-1] == "not in the files: method, overlap, paper"


def test_a_plain_sentence_transformer_is_run_by_our_engine(bert, tmp_path):
    pooling = {"embedding_dimension": 16, "pooling_mode": "cls", "include_prompt": True}
    own = {"max_seq_length": 24, "do_lower_case": False}
    folder = write_plain(
        bert,
        tmp_path / "model",
        pooling=pooling,
        own=own,
        normalise=True,
        prompt="query: ",
        at="0_Transformer",
    )
    draft, card = drafted(folder, tmp_path / "cards")
    assert card.kind == "transformer"
    due = {"pooling": "cls_before_pooler", "normalise": True, "max_length": 24, "prompt": "query: "}
    due["subfolder"] = "0_Transformer"
    assert {key: card.params[key] for key in due} == due
    assert not [line for line in draft.doubts if "pooling" in line]
    assert same(folder, tmp_path / "cards")


def test_a_prompt_that_is_not_the_default_is_the_only_doubt(bert, tmp_path):
    pooling = {"embedding_dimension": 16, "pooling_mode": "cls", "include_prompt": True}
    folder = write_plain(
        bert, tmp_path / "model", pooling=pooling, own={}, normalise=False, prompt="", at=""
    )
    prompts = {"prompts": {"STS": "similar: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    draft, card = drafted(folder, tmp_path / "cards")
    assert card.params["pooling"] == "cls_before_pooler"
    assert [doubt for doubt in draft.doubts if "prompt_name=STS" in doubt]
    assert not [doubt for doubt in draft.doubts if "pooling" in doubt]


def test_a_folder_that_says_its_kind(bert, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    write_saved(folder, "transformer", {"pooling": "max", "max_length": 8})
    draft, card = drafted(folder, tmp_path / "cards")
    assert (card.params["pooling"], card.params["max_length"]) == ("max", 8)
    assert not [line for line in draft.doubts if "pooling" in line]
    assert same(folder, tmp_path / "cards")


def test_word_vectors(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text(VECTORS)
    draft, card = drafted(path, tmp_path / "cards")
    assert (card.kind, card.dimensions, card.params) == (
        "words",
        2,
        {"file": str(path), "tokens": "whitespace"},
    )
    assert draft.doubts[-1] == "not in the files: overlap, paper, license"
    assert load_encoder("mine", catalogue=Catalogue(tmp_path / "cards")).encode(
        ["the cat"]
    ).tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("empty", EncoderError, "empty: no config.json; is it a checkpoint folder"),
        (
            "nothing",
            EncoderError,
            "nothing' does not exist; give a checkpoint's folder or a file of word vectors",
        ),
        ("data.csv", DataError, "data.csv: line 1: expected a word and its values"),
    ],
)
def test_what_is_no_encoder_is_refused(tmp_path, name, error, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "data.csv").write_text("a,b,c\n")
    with pytest.raises(error, match=message):
        drafted(tmp_path / name, tmp_path / "cards")
    assert not (tmp_path / "cards").exists()
