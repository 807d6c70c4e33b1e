"""The layer sweep: the scores that each layer's own encoder has."""

from __future__ import annotations

import math

import pytest

from stsbench.analysis.inside import Layers
from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.transformer.encoder import TransformerEncoder
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain


def test_scores_are_those_of_each_layers_own_encoder(bert):
    rows = Layers(poolings=["mean", "max"]).tables(bed(TransformerEncoder(str(bert), name="b")))["layers"]
    assert [(row["pooling"], row["layer"]) for row in rows] == [(p, at) for p in ("mean", "max") for at in range(3)]
    for row in rows:
        alone = TransformerEncoder(str(bert), name="b", pooling=f"{row['pooling']}({row['layer']})")
        (subject,) = bed(alone).subjects()
        assert row["score"] == subject.score().score
        assert (row["low"], row["high"]) == subject.score().interval


BIGRAMS = """
name = "Bigrams"
evaluator = "probe"
languages = ["en"]
paper = "none"
license = "mine"
splits = {train = {n = 12}, validation = {n = 6}, test = {n = 6}}
[local]
reader = "probing"
folder = "probing"
files = {train = [{path = "b.txt"}], validation = [{path = "b.txt"}], test = [{path = "b.txt"}]}
"""


@pytest.mark.parametrize("task", ["bigrams", "quickstart-probe"])
def test_probing_and_classification_are_swept_too(bert, tmp_path, task):
    (tmp_path / "cards" / "tasks").mkdir(parents=True)
    (tmp_path / "data" / "probing").mkdir(parents=True)
    (tmp_path / "cards" / "tasks" / "bigrams.toml").write_text(BIGRAMS)
    lines = [
        f"{part}\t{'IO'[at % 2]}\t{('the cat sat', 'sat cat the')[at % 2]} {at}"
        for part, n in (("tr", 12), ("va", 6), ("te", 6))
        for at in range(n)
    ]
    (tmp_path / "data" / "probing" / "b.txt").write_text("\n".join(lines) + "\n")
    own = (tmp_path / "cards", tmp_path / "data")
    rows = Layers(poolings=["mean"]).tables(bed(TransformerEncoder(str(bert), name="b"), task=task, own=own))["layers"]
    for row in rows:
        alone = TransformerEncoder(str(bert), name="b", pooling=f"mean({row['layer']})")
        (subject,) = bed(alone, task=task, own=own).subjects()
        assert row["score"] == subject.score().score and row["low"] <= row["score"] <= row["high"]


def test_the_first_tokens_word_embedding_has_no_score(bert):
    rows = Layers(poolings=["cls"]).tables(bed(TransformerEncoder(str(bert), name="b")))["layers"]
    assert math.isnan(rows[0]["score"]) and not math.isnan(rows[1]["score"])


def test_what_has_no_layers_is_refused(bert):
    with pytest.raises(EncoderError, match="encoder 'plain' has no layers that can be pooled"):
        Layers().tables(bed(Plain()))
    with pytest.raises(CardError, match="unknown pooling 'mena"):
        Layers(poolings=["mena"]).tables(bed(TransformerEncoder(str(bert), name="b")))


def test_lines_leave_out_what_has_no_score_and_a_heat_map_leaves_it_empty(bert):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    tables = Layers().tables(bed(TransformerEncoder(str(bert), name="b")))
    lines = Layers().draw(tables, "mine").axes[0].lines
    assert [line.get_xdata().tolist() for line in lines] == [[1, 2], [0, 1, 2], [0, 1, 2]]
    heat = Layers(picture="heat").draw(tables, "mine").axes[0]
    assert [label.get_text() for label in heat.get_xticklabels()] == ["0", "1", "2"]
    assert len(heat.texts) == 8
