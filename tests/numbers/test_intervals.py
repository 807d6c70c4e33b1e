"""Intervals: against literal sums over pairs of items, and by how often they hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from stsbench.numbers.intervals import (
    correlation_interval,
    correlation_shares,
    item_weights,
    share_interval,
    sharing_from,
    standard_error,
)
from stsbench.numbers.sharing import Sharing
from stsbench.numbers.statistics import AGGREGATIONS, CORRELATIONS, Parts, split_parts

WHOLE = Parts([np.arange(40)], np.ones(1))


def values() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    gold = rng.integers(0, 6, size=40).astype(float)
    return gold + rng.normal(size=40), gold


def tied(groups: np.ndarray) -> Sharing:
    """Items that hold one sentence alone, that of their group."""
    return Sharing(groups[:, None])


def test_the_error_is_of_the_variance_and_the_items_that_tell_as_much():
    rng = np.random.default_rng(2)
    shares, sharing = rng.normal(size=40), tied(rng.integers(0, 12, size=40))
    found = standard_error(shares, sharing, np.full(40, 1 / 40))
    items = sharing.effective_items(np.full(40, 1 / 40))
    assert found.error == pytest.approx(math.sqrt(sharing.variance(shares) * items / (items - 1)))
    assert found.df == pytest.approx(items - 1)
    assert math.isnan(standard_error(shares, tied(np.zeros(40, dtype=np.int64)), np.full(40, 1 / 40)).error)


@pytest.mark.parametrize("metric", CORRELATIONS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_shares_are_influences_by_the_weight_of_their_part(metric, aggregation):
    x, gold = values()
    parts = split_parts(["news"] * 15 + ["forum"] * 25, aggregation)
    shares = correlation_shares(metric, x, gold, parts)
    weight = {"all": [1.0], "mean": [0.5, 0.5], "wmean": [15 / 40, 25 / 40]}[aggregation]
    for at, share in zip(parts.indices, weight, strict=True):
        expected = share * CORRELATIONS[metric].influence(x[at], gold[at]) / len(at)
        np.testing.assert_allclose(shares[at], expected, rtol=0, atol=1e-15)
    weights = item_weights(parts, 40)
    assert weights.sum() == pytest.approx(1) and weights[0] == pytest.approx(weight[0] / len(parts.indices[0]))


def test_the_interval_is_fishers_around_the_score():
    x, gold = values()
    score, sharing = CORRELATIONS["spearman"](x, gold), tied(np.arange(40) // 2)
    error, df = standard_error(correlation_shares("spearman", x, gold, WHOLE), sharing, item_weights(WHOLE, 40))
    found = correlation_interval(score, "spearman", x, gold, parts=WHOLE, sharing=sharing)
    reach = stats.t.ppf(0.975, df) * error / (1 - score**2)
    assert df == pytest.approx(19)
    assert found == pytest.approx((math.tanh(math.atanh(score) - reach), math.tanh(math.atanh(score) + reach)))


def test_of_too_few_nothing_is_known():
    x, gold = values()
    three = tied(np.arange(40) % 3)
    assert correlation_interval(0.5, "spearman", x, gold, parts=WHOLE, sharing=three) == (-1.0, 1.0)
    pairs = split_parts([str(at // 2) for at in range(40)], "mean")
    assert correlation_interval(0.5, "spearman", x, gold, parts=pairs, sharing=Sharing.none(40)) == (-1.0, 1.0)
    assert correlation_interval(1.0, "spearman", gold, gold, parts=WHOLE, sharing=Sharing.none(40)) == (1.0, 1.0)
    assert correlation_interval(0.0, "spearman", gold * 0, gold, parts=WHOLE, sharing=Sharing.none(40)) == (0.0, 0.0)


def test_shares_of_independent_items_have_wilsons_interval():
    right = np.array([1.0] * 31 + [0.0] * 9)
    expected = stats.binomtest(31, 40).proportion_ci(method="wilson")
    assert share_interval(right, Sharing.none(40)) == pytest.approx((expected.low, expected.high), abs=1e-12)
    # Every item twice tells as much as each once.
    assert share_interval(np.repeat(right, 2), tied(np.repeat(np.arange(40), 2))) == pytest.approx(
        (expected.low, expected.high), abs=1e-12
    )
    all_right = stats.binomtest(40, 40).proportion_ci(method="wilson")
    assert share_interval(np.ones(40), Sharing.none(40)) == pytest.approx((all_right.low, 1.0), abs=1e-12)
    assert share_interval(np.ones(80), tied(np.repeat(np.arange(40), 2)))[0] == pytest.approx(all_right.low, abs=1e-12)


def test_columns_that_tell_no_sentences_leave_every_item_by_itself():
    assert sharing_from({}, 3).independent
    assert not sharing_from({"sentence1": np.array([7, 8, 7], dtype=np.uint32)}, 3).independent


def test_intervals_hold_the_truth_where_pairs_share_sentences():
    # Spearman's rho of two normals with correlation r is 6 / pi * asin(r / 2). Each pair stands thrice.
    r, rounds, held, alone = 0.7, 300, 0, 0
    truth = 6 / math.pi * math.asin(r / 2)
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        gold = np.repeat(rng.normal(size=80), 3)
        x = r * gold + np.repeat(math.sqrt(1 - r * r) * rng.normal(size=80), 3)
        score, parts = CORRELATIONS["spearman"](x, gold), Parts([np.arange(240)], np.ones(1))
        for sharing, name in ((tied(np.arange(240) // 3), "held"), (Sharing.none(240), "alone")):
            low, high = correlation_interval(score, "spearman", x, gold, parts=parts, sharing=sharing)
            held += name == "held" and low <= truth <= high
            alone += name == "alone" and low <= truth <= high
    low, high = stats.binom.interval(0.999, rounds, 0.95)
    assert low <= held <= high
    assert alone < 0.85 * rounds
