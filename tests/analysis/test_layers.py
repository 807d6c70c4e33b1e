"""The layer sweep: the scores that each layer's own encoder has."""

from __future__ import annotations

import math

import pytest

from stsbench.analysis.layers import Layers
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.errors import CardError, EncoderError
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
