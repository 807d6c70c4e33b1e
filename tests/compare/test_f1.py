"""F1 over items: against scikit-learn, and each item's share against the derivative of the weighted score."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score

from stsbench.compare.f1 import F1Scored
from stsbench.compare.items import pair_items
from stsbench.compare.means import mean_intervals
from tests.compare.pairs import told
from tests.leaderboard.scored import probe


def answers(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.66
    return np.where(rng.random(n) < 0.75, truth, ~truth).astype(float), truth.astype(float)


def scored(*pairs: tuple[np.ndarray, np.ndarray]) -> F1Scored:
    return F1Scored(
        predicted=[np.array([predicted for predicted, _ in pairs])],
        correct=[np.array([predicted == truth for predicted, truth in pairs]).astype(float)],
    )


def test_the_score_is_scikit_learns_and_shares_are_its_derivatives():
    pairs = [answers(1), answers(2)]
    found = scored(*pairs)
    for row, (predicted, truth) in enumerate(pairs):
        assert found.scores(0)[row] == pytest.approx(f1_score(truth, predicted))
        assert found.shares(0)[row].sum() == pytest.approx(0, abs=1e-12)
        step = 1e-6
        for item in (0, 7, 100):
            weights = np.ones(len(truth))
            weights[item] += step
            moved = f1_score(truth, predicted, sample_weight=weights)
            assert (moved - f1_score(truth, predicted)) / step == pytest.approx(found.shares(0)[row, item], rel=1e-3)
    assert found.weights.sum() == pytest.approx(1)


def test_shares_tell_how_the_score_varies_over_other_items():
    scores, errors = [], []
    for seed in range(400):
        found = scored(answers(seed))
        scores.append(found.scores(0)[0])
        errors.append(np.sqrt((found.shares(0)[0] ** 2).sum()))
    assert np.mean(errors) == pytest.approx(np.std(scores), rel=0.1)


def test_nothing_predicted_and_nothing_true_is_0():
    nothing = np.zeros(5)
    assert scored((nothing, nothing)).scores(0) == [0]
    assert not scored((nothing, nothing)).shares(0).any()


def test_a_mean_over_accuracy_and_f1_of_the_same_items_knows_that_they_vary_together():
    predicted, truth = answers(3)
    right = told(probe("a", "mrpc", predicted == truth))
    right.per_item["prediction"] = predicted.astype(np.int64)
    shares = (right.per_item["correct"] - right.score) / 200 / 2 + scored((predicted, truth)).shares(0)[0] / 2
    found = mean_intervals({0: [[right], [right]]}, {0: [(0, 1)]}, ["accuracy", "f1"]).intervals[0, (0, 1)]
    middle = (right.score + f1_score(truth, predicted)) / 2
    assert sum(found) / 2 == pytest.approx(middle)
    assert np.ptp(found) / 2 == pytest.approx(1.972 * np.sqrt((shares**2).sum() * 200 / 199), rel=1e-3)


def test_what_no_column_is_of_has_no_statistic():
    three = probe("a", "trec", [True, False, True])
    columns = [[{**three.per_item, "prediction": np.array([0, 2, 1])}]]
    assert pair_items([[three]], columns, score="f1") is None
    assert pair_items([[three]], [[three.per_item]], score="dev_accuracy") is None
    assert pair_items([[three]], [[three.per_item]], score="accuracy") is not None
