"""Differences from the first encoder, by hand; seeds of one recipe are one encoder."""

from __future__ import annotations

import pytest
from scipy import stats

from stsbench.analysis.training import Shift
from stsbench.core.errors import DataError
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain


def score(encoder: Plain) -> float:
    (subject,) = bed(encoder).subjects()
    return float(stats.spearmanr(subject.cosines, subject.pairs().gold).statistic)


def test_each_is_held_against_the_first():
    encoders = [Plain("target", d=4), Plain("other", d=9), Plain("third", d=16)]
    found = Shift().tables(bed(*encoders))["encoders"]
    scores = [score(encoder) for encoder in encoders]
    assert [row["score"] for row in found] == pytest.approx(scores)
    assert [row["change"] for row in found[1:]] == pytest.approx([one - scores[0] for one in scores[1:]])
    assert found[0]["change"] is None and found[0]["deviation"] is None
    assert all(row["low"] < row["change"] < row["high"] for row in found[1:])


def test_one_encoder_is_not_enough():
    with pytest.raises(DataError, match="shift compares encoders"):
        Shift().tables(bed(Plain()))


def test_the_picture_holds_the_others():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    axes = Shift().draw(Shift().tables(bed(Plain("target"), Plain("other", d=9))), "mine").axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["other"]
    assert "less that of target" in axes.get_xlabel()
