"""Cosines by bins of gold against a count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from stsbench.analysis import collapse
from stsbench.analysis.pairs import GoldAgainstCosine, gold_bins
from stsbench.core.errors import DataError
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain

GOLD = np.array([0.0, 0.9, 1.0, 2.5, 3.99, 4.0, 5.0])
COSINES = np.array([0.1, 0.3, 0.5, 0.5, 0.6, 0.8, 0.9])


def test_bins_are_equal_and_the_highest_score_is_in_the_last():
    assert gold_bins(GOLD, 5).tolist() == [0, 0, 1, 2, 3, 4, 4]


def test_collapse_is_the_lowest_bin_as_a_share_of_the_highest():
    assert collapse(COSINES, GOLD) == pytest.approx(((0.1 + 0.3) / 2) / ((0.8 + 0.9) / 2))
    assert collapse(np.full(7, 0.7), GOLD) == pytest.approx(1)
    assert np.isnan(collapse(COSINES[:2], np.array([0.0, 0.0])))


def test_the_tables_are_of_the_scored_pairs():
    found = GoldAgainstCosine(bins=2).tables(bed(Plain()))
    split = bed(Plain()).read.task.load("test")
    a, b = (Plain().encode(list(side)).astype(float) for side in split.sides)
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    (whole,) = found["encoders"]
    assert whole["mean"] == pytest.approx(cosines.mean())
    assert whole["from_0.6"] == pytest.approx(sum(one >= 0.6 for one in cosines) / len(cosines))
    assert [row["cosine"] for row in found["pairs"]] == pytest.approx(cosines.tolist())
    assert sum(row["n"] for row in found["bins"]) == len(cosines)
    low = [c for c, r in zip(cosines, found["pairs"], strict=True) if r["gold"] < found["bins"][0]["to"]]
    assert found["bins"][0]["median"] == pytest.approx(np.median(low))


def test_a_task_without_gold_scores_is_refused():
    with pytest.raises(DataError, match="quickstart-probe has no sentence pairs with gold scores"):
        GoldAgainstCosine().tables(bed(Plain(), task="quickstart-probe"))


def test_the_picture_has_a_panel_an_encoder():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    analysis = GoldAgainstCosine()
    chart = analysis.draw(analysis.tables(bed(Plain(), Plain("other", d=8))), "mine")
    assert [axes.get_title() for axes in chart.axes] == ["plain", "other"]
