"""Alignment and uniformity as an analysis: over all splits, with the task's score."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from stsbench.analysis import alignment, collapse, uniformity
from stsbench.analysis.pairs import Closeness, GoldAgainstCosine, gold_bins
from stsbench.core.errors import DataError
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain

X = np.random.default_rng(1).normal(size=(9, 4))
Y = np.random.default_rng(2).normal(size=(9, 4))


def unit(row: Any) -> list[float]:
    length = math.sqrt(sum(float(one) ** 2 for one in row))
    return [float(one) / length for one in row]


def squared(u: Any, v: Any) -> float:
    return sum((a - b) ** 2 for a, b in zip(unit(u), unit(v), strict=True))


@pytest.mark.parametrize("scale", [1.0, 1e-3, 250.0])
def test_both_are_of_unit_vectors_whatever_their_scale(scale):
    wanted = sum(squared(x, y) for x, y in zip(X, Y, strict=True)) / 9
    assert alignment(scale * X, 3 * scale * Y) == pytest.approx(wanted, rel=1e-12)
    terms = [math.exp(-3 * squared(x, y)) for x, y in itertools.combinations(X, 2)]
    assert uniformity(scale * X, t=3) == pytest.approx(math.log(sum(terms) / 36), rel=1e-12)


def test_positives_are_pairs_above_a_gold_score_of_all_splits():
    found = Closeness(above=3.0).tables(bed(Plain()))
    (row,) = found["encoders"]
    task = bed(Plain()).read.task
    splits: list[Any] = [task.load(name) for name in task.card.splits]
    texts = [pair for s in splits for pair, gold in zip(zip(*s.sides, strict=True), s.gold, strict=True) if gold > 3]
    sides = [Plain().encode([pair[at] for pair in texts]) for at in (0, 1)]
    assert row["alignment"] == pytest.approx(sum(squared(x, y) for x, y in zip(*sides, strict=True)) / len(texts))
    everything = Plain().encode(sorted({text for s in splits for text in s.texts()}))
    assert row["uniformity"] == pytest.approx(uniformity(everything))
    assert (row["positives"], row["sentences"]) == (len(texts), len(everything))
    assert found["training"] == []


def test_a_bar_that_no_pair_passes_is_told():
    with pytest.raises(DataError, match="no pair of quickstart-en has a gold score above 9; --set above="):
        Closeness(above=9.0).tables(bed(Plain()))


def test_the_picture_of_closeness_has_a_point_an_encoder_and_a_panel_a_training_run():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    numbers = {"alignment": 0.2, "uniformity": -2.0, "score": 0.8}
    tables: Any = {
        "encoders": [{"encoder": "a", **numbers}],
        "training": [{"encoder": "a", "step": step, **numbers} for step in (1, 2)],
    }
    chart = Closeness().draw(tables, "mine")
    assert [axes.get_title() for axes in chart.axes[:2]] == ["", "a, validations"]
    assert len(chart.axes[1].collections[0].get_offsets()) == 2


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


def test_the_picture_of_similarity_has_a_panel_an_encoder():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    analysis = GoldAgainstCosine()
    chart = analysis.draw(analysis.tables(bed(Plain(), Plain("other", d=8))), "mine")
    assert [axes.get_title() for axes in chart.axes] == ["plain", "other"]
