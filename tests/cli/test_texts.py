"""The sentences of a task go out, their embeddings come back as a file and are scored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from stsbench.core.provenance import strip_versions
from stsbench.encoders.base import FloatArray
from stsbench.encoders.engine import embed
from tests.cli.commands import HASHED, QUICK


@pytest.fixture
def files(stsbench):
    """The sentences of quickstart-en, and files of the embeddings that ``Hashed`` makes of them."""
    own_encoders = import_module("own_encoders")
    stsbench.fine("texts", "quickstart-en", "--out", "texts.jsonl")
    lines = Path("texts.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    embeddings = own_encoders.Hashed().encode(texts)
    np.save("by_order.npy", embeddings)
    np.savez("by_text.npz", texts=np.array(texts[::-1]), embeddings=embeddings[::-1])
    return texts


RNG = np.random.default_rng(0)


def draw(texts: Sequence[str]) -> FloatArray:
    """Return other embeddings at each call."""
    return RNG.normal(size=(len(texts), 3)).astype(np.float32)


def test_the_sentences_are_distinct_and_in_the_order_of_the_data(stsbench, files):
    import stsbench as package

    assert files == package.load_task("quickstart-en").texts(["test"])
    printed = stsbench.fine("texts", "quickstart-en")
    assert [json.loads(line)["text"] for line in printed.splitlines()] == files
    out = stsbench.fine("texts", "quickstart-en,quickstart-es-en", "--out", "both.txt")
    lines = Path("both.txt").read_text(encoding="utf-8").splitlines()
    assert lines[: len(files)] == files
    assert len(set(lines)) == len(lines)
    assert out == f"wrote {len(lines)} sentences to both.txt\n"


def test_texts_refuses_what_it_cannot_write(stsbench):
    assert "needs a task" in stsbench.refused("texts")
    assert ".jsonl or .txt" in stsbench.refused("texts", "quickstart-en", "--out", "texts.csv")
    assert "did you mean" in stsbench.refused("texts", "quickstart-enn")


def test_embeddings_from_a_file_score_as_those_of_the_encoder(stsbench, files):
    spec = "file:by_order.npy+texts=texts.jsonl"
    (expected,) = stsbench.json("run", *HASHED, *QUICK)["results"]
    (by_order,) = stsbench.json("run", spec, *QUICK)["results"]
    (by_text,) = stsbench.json("run", "file:by_text.npz", *QUICK)["results"]
    for result in (by_order, by_text):
        assert result["score"] == expected["score"]
        assert result["interval"] == expected["interval"]
        assert result["run"]["prompt"] is None and result["run"]["cut"] is None
    assert [by_order["encoder"], by_text["encoder"]] == ["by_order.npy", "by_text.npz"]
    (note,) = by_text["notes"]
    assert note.startswith("embeddings from the file by_text.npz (sha256 ")
    assert strip_versions(by_text["fingerprint"]) == by_text["fingerprint"]
    # The same command again has its result; another content of the file is scored anew.
    stsbench.fine("run", "file:by_text.npz", *QUICK)
    assert any("1 of 1 cells known" in line for line in stsbench.progress)
    np.savez("by_text.npz", texts=np.array(files), embeddings=draw(files))
    (changed,) = stsbench.json("run", "file:by_text.npz", *QUICK)["results"]
    assert changed["score"] != expected["score"]
    assert changed["encoder"] == "by_text.npz"
    assert "No significant difference" in stsbench.fine("compare", "hashed", "by_order.npy")


def test_parity_takes_a_file_for_its_tasks_sentences(stsbench, files):
    out = stsbench.fine("parity", "own_encoders:Hashed", "file:by_text.npz", *QUICK)
    assert "verdict: same" in out
    assert "of the tasks" in out and "numbers" not in out


def test_a_task_whose_sentences_are_missing_fails_alone(stsbench, files):
    code, out, err = stsbench(
        "run", "file:by_text.npz", "--tasks", "quickstart-en,quickstart-es-en"
    )
    assert code == 2
    assert "quickstart-en" in out
    assert err.startswith(
        "stsbench: by_text.npz on quickstart-es-en: by_text.npz lacks 200 of 200 sentences, the "
        "first is sentence 1 of 200 "
    )
    assert err.endswith("'stsbench texts TASK --out FILE' lists the sentences of a task\n")
    refused = stsbench.refused("run", "file:by_order.npy", *QUICK)
    assert "--set texts=FILE" in refused


def test_two_files_of_one_name_are_told_apart(stsbench, files, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "x.npz", texts=np.array(files), embeddings=draw(files))
    results = stsbench.json("run", "file:a/x.npz,file:b/x.npz", *QUICK)["results"]
    assert [result["encoder"] for result in results] == ["a/x.npz", "b/x.npz"]


def test_scores_of_the_written_pairs_stand_beside_encoders(stsbench):
    assert stsbench.fine("texts", "quickstart-en", "--pairs", "--out", "pairs.jsonl") == (
        "wrote 300 pairs to pairs.jsonl\n"
    )
    pairs = [json.loads(line) for line in Path("pairs.jsonl").read_text().splitlines()]
    assert [*pairs[0]] == ["sentence1", "sentence2"]
    scores = np.array([len({*pair["sentence1"]} & {*pair["sentence2"]}) for pair in pairs])
    np.save("scores.npy", scores)
    stsbench.fine("run", *HASHED, "--similarities", "scores.npy", *QUICK)
    (result,) = stsbench.json("run", "--similarities", "scores.npy", *QUICK)["results"]
    assert result["protocol"]["similarity"] is None
    stsbench.fine("run", "--similarities", "scores.npy", *QUICK)
    assert any("1 of 1 cells known" in line for line in stsbench.progress)
    assert "compare" not in stsbench.refused("texts", "quickstart-en", "--pairs", "--out", "x.txt")
    # Everything that reads results takes both.
    assert "2 verified" in stsbench.fine("verify", "results")
    stsbench.fine("lock", "results", "--out", "scores.json")
    stsbench.fine("check", "results", "--against", "scores.json")
    assert "scores.npy" in stsbench.fine("compare", "hashed", "scores.npy")
    board = stsbench.fine("leaderboard", "--suite", "quickstart", "--format", "markdown")
    assert "scores.npy‖" in board and "‖ scores pairs itself; no embeddings" in board


def test_what_a_file_holds_has_no_time_to_embed(stsbench, files, monkeypatch):
    monkeypatch.setattr(embed, "TEXTS_PER_BATCH", 16)
    np.save("scores.npy", np.arange(300.0))
    encoders = ["own_encoders:Hashed,file:by_text.npz,file:by_text.npz+dimensions=8"]
    results = stsbench.json("run", *encoders, "--similarities", "scores.npy", *QUICK)["results"]
    times = [result["run"]["ms_per_sentence"] for result in results]
    assert times[0] is not None and times[1:] == [None, None, None]
    board = ("leaderboard", "--suite", "quickstart", "--format", "markdown", "--rows-only")
    rows = stsbench.fine(*board, "--columns", "ms").splitlines()
    assert sum(row.endswith(" – |") for row in rows) == 3


def test_what_needs_embeddings_is_refused_at_the_start(stsbench):
    np.save("scores.npy", np.arange(300.0))
    refused = stsbench.refused("run", "--similarities", "scores.npy", "--tasks", "quickstart-probe")
    assert "'scores.npy' scores pairs and has no embeddings, which are needed for" in refused
    code, out, err = stsbench(
        "run", "--similarities", "scores.npy", "--tasks", "quickstart-en,quickstart-probe"
    )
    assert code == 2 and "quickstart-en" in out and err.count("\n") == 1
    assert "has 300 scores for 100 pairs" in stsbench.refused(
        "run", "--similarities", "scores.npy", "--tasks", "quickstart-es-en"
    )
    analysed = stsbench.refused("analyze", "spectrum", "-e", "similarities:scores.npy", *QUICK)
    assert "scores pairs; an analysis needs embeddings" in analysed


def test_available_tasks_that_need_embeddings_are_left_out_of_a_pair_scorer_s(
    stsbench, monkeypatch
):
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    omitted = "no pairs of quickstart-probe: scored by embeddings alone"
    assert omitted in stsbench("texts", "quickstart", "--pairs", "--out", "pairs.jsonl")[2]
    assert stsbench.refused("texts", "quickstart-probe", "--pairs") == omitted
    pairs = [json.loads(line) for line in Path("pairs.jsonl").read_text().splitlines()]
    assert len(pairs) == 400
    lines = [json.dumps(pair | {"score": len(pair["sentence1"])}) for pair in pairs]
    Path("scored.jsonl").write_text("\n".join(lines))
    code, out, err = stsbench("run", "--similarities", "scored.jsonl", "--tasks", "available")
    assert code == 0 and "quickstart-en" in out and "probe" not in out
    assert err == "stsbench: scored.jsonl: 1 task left out: embeddings needed\n"
