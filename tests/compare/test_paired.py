"""Paired statistics: against slow loops and against published figures."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import pytest
from scipy import stats

from stsbench.compare.paired import (
    Averaged,
    Correlated,
    Swaps,
    Williams,
    combine,
    holm,
    mcnemar,
    permutation_p,
    rank_intervals_of_draws,
    williams,
)
from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.statistics import CORRELATIONS, Parts

METRICS: list[Literal["spearman", "pearson"]] = ["spearman", "pearson"]


def correlate(x: Float64Array, y: Float64Array, metric: str) -> float:
    return float(stats.spearmanr(x, y).statistic if metric == "spearman" else stats.pearsonr(x, y).statistic)


def correlated(metric: Literal["spearman", "pearson"], *, seeds: int = 1, parts: int = 1, n: int = 40) -> Correlated:
    """Two encoders with ties among their values and the gold scores; parts of unlike sizes."""
    rng = np.random.default_rng(7)
    gold = np.round(rng.normal(size=n) * 2)
    values = np.round(gold + rng.normal(size=(2, seeds, n)) * np.array([1.5, 2.5])[:, None, None], 1)
    values[1] = np.exp(values[1] / 4)
    edges = [0, *np.cumsum([n // (parts + 1)] * (parts - 1)).tolist(), n]
    indices = [np.arange(a, b) for a, b in itertools.pairwise(edges)]
    weights = np.array([len(at) for at in indices]) / n
    return Correlated(values=list(values), gold=gold, parts=Parts(indices, weights), metric=metric)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("seeds", "parts"), [(1, 1), (3, 1), (1, 3), (2, 2)])
def test_scores_of_each_seed_are_weighted_means_of_parts(metric, seeds, parts):
    data = correlated(metric, seeds=seeds, parts=parts)
    for encoder, seed in np.ndindex(2, seeds):
        expected = sum(
            weight * correlate(data.values[encoder][seed, at], data.gold[at], metric)
            for at, weight in zip(*data.parts, strict=True)
        )
        assert data.scores(encoder)[seed] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_shares_are_the_influences_of_each_seed(metric):
    data = correlated(metric, seeds=2)
    for encoder, seed in np.ndindex(2, 2):
        expected = CORRELATIONS[metric].influence(data.values[encoder][seed], data.gold) / 40
        np.testing.assert_allclose(data.shares(encoder)[seed], expected, rtol=0, atol=1e-15)
    assert data.weights == pytest.approx(np.full(40, 1 / 40))


def scaled(x: Float64Array, metric: str) -> Float64Array:
    ranked = stats.rankdata(x) if metric == "spearman" else x
    result: Float64Array = (ranked - np.mean(ranked)) / np.std(ranked)
    return result


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("parts", [1, 3])
def test_a_permutation_swaps_the_scaled_values_of_single_items(metric, parts):
    data = correlated(metric, parts=parts)
    found = data.permuted(0, 1, permutations=6, rng=np.random.default_rng(2))
    (drawn,) = Swaps(40, 6, np.random.default_rng(2))
    assert found is not None
    for sample in range(6):
        expected = 0.0
        for at, weight in zip(*data.parts, strict=True):
            a, b = (scaled(data.values[encoder][0, at], metric) for encoder in (0, 1))
            for place, item in enumerate(at):
                if drawn[sample, item]:
                    a[place], b[place] = b[place], a[place]
            gold = scaled(data.gold[at], metric)
            expected += weight * (np.corrcoef(b, gold)[0, 1] - np.corrcoef(a, gold)[0, 1])
        assert found[sample] == pytest.approx(expected, abs=1e-12)


def test_swaps_are_fair_and_the_same_each_time():
    swaps = Swaps(50, 600, np.random.default_rng(0))
    first, again = np.concatenate(list(swaps)), np.concatenate(list(swaps))
    assert first.shape == (600, 50) and np.array_equal(first, again)
    assert set(np.unique(first)) == {0.0, 1.0}
    low, high = stats.binom.interval(0.9999, 30000, 0.5)
    assert low <= first.sum() <= high


def test_a_correlation_without_a_scale_is_not_permuted():
    data = Correlated(values=correlated("spearman").values, gold=np.arange(40.0),
                      parts=Parts([np.arange(40)], np.ones(1)), metric="kendall")  # fmt: skip
    assert data.permuted(0, 1, permutations=9, rng=np.random.default_rng(0)) is None
    assert data.williams(0, 1) is None
    assert data.scores(0)[0] == pytest.approx(stats.kendalltau(data.values[0][0], data.gold).statistic)


def test_means_are_permuted_item_by_item():
    rng = np.random.default_rng(3)
    data = Averaged(values=list((rng.random((2, 1, 11)) < 0.6).astype(float)))
    assert [data.scores(at)[0] for at in (0, 1)] == pytest.approx([data.values[0].mean(), data.values[1].mean()])
    assert data.shares(0)[0] == pytest.approx((data.values[0][0] - data.values[0].mean()) / 11)
    found = data.permuted(0, 1, permutations=5, rng=np.random.default_rng(1))
    (drawn,) = Swaps(11, 5, np.random.default_rng(1))
    assert found is not None
    for sample in range(5):
        signs = np.where(drawn[sample] == 1, -1, 1)
        assert found[sample] == pytest.approx(np.mean(signs * (data.values[1][0] - data.values[0][0])))


def test_an_encoder_that_gives_every_pair_one_value_has_correlation_0():
    data = correlated("spearman")
    flat = Correlated(values=[data.values[0], np.ones((1, 40))], gold=data.gold, parts=data.parts, metric="spearman")
    assert flat.scores(1)[0] == 0.0
    assert np.all(flat.shares(1) == 0)
    permuted = flat.permuted(0, 1, permutations=10, rng=np.random.default_rng(0))
    assert permuted is not None and np.isfinite(permuted).all()


# Tests of hypotheses.


def test_williams_is_steigers_formula():
    # Three correlations over 103 items, worked by hand: |R| = 1 - .16 - .25 - .01 + 2 * .4 * .5 * .1 = 0.62,
    # t = .1 * sqrt(102 * 1.1 / (2 * 102 / 100 * 0.62 + .45^2 * .9^3)).
    test = williams(0.4, 0.5, 0.1, n=103)
    t = 0.1 * np.sqrt(102 * 1.1 / (2 * 102 / 100 * 0.62 + 0.45**2 * 0.9**3))
    assert t == pytest.approx(0.8913, abs=1e-4)
    assert test.difference / test.error == pytest.approx(t, rel=1e-12)
    assert test.p == pytest.approx(2 * (1 - stats.t.cdf(t, 100)), rel=1e-9)
    turned = williams(0.5, 0.4, 0.1, n=103)
    assert (turned.difference, turned.p) == pytest.approx((-test.difference, test.p))
    assert williams(0.4, 0.4, 1.0, n=103).p == 1.0


def test_williams_of_parts_adds_differences_and_variances_by_weight():
    tests, weights = [Williams(0.1, 0.02, 0.0), Williams(-0.04, 0.05, 0.0)], np.array([0.25, 0.75])
    whole = combine(tests, weights)
    assert whole.difference == pytest.approx(0.25 * 0.1 - 0.75 * 0.04)
    assert whole.error == pytest.approx(np.hypot(0.25 * 0.02, 0.75 * 0.05))
    assert whole.p == pytest.approx(2 * stats.norm.sf(abs(whole.difference) / whole.error))
    assert combine([Williams(0.1, 0.1, 0.3), Williams(-0.1, 0.1, 0.3)], np.array([0.5, 0.5])).p == 1.0


def williams_by_hand(data: Correlated, at: np.ndarray, metric: str) -> Williams:
    a, b, gold = data.values[0][0, at], data.values[1][0, at], data.gold[at]
    with_gold = correlate(a, gold, metric), correlate(b, gold, metric)
    return williams(*with_gold, correlate(a, b, metric), n=len(at))


@pytest.mark.parametrize("metric", METRICS)
def test_williams_of_data_takes_its_correlations(metric):
    data = correlated(metric)
    assert data.williams(0, 1) == pytest.approx(williams_by_hand(data, np.arange(40), metric), abs=1e-12)
    parts = correlated(metric, parts=2)
    each = [williams_by_hand(parts, at, metric) for at in parts.parts.indices]
    assert parts.williams(0, 1) == pytest.approx(combine(each, parts.parts.shares), abs=1e-12)
    assert correlated(metric, seeds=2).williams(0, 1) is None


def test_mcnemar_is_the_sum_over_all_swaps_of_the_items_that_differ():
    a = np.array([1, 1, 1, 1, 0, 0, 1, 1, 1], dtype=bool)
    b = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0], dtype=bool)
    # Three items the first alone has right, one the second alone.
    signs = list(itertools.product([-1, 1], repeat=4))
    extreme = sum(abs(sum(row)) >= 3 - 1 for row in signs)
    assert mcnemar(a & ~b, b & ~a) == pytest.approx(extreme / len(signs))
    assert Averaged(values=[a[None].astype(float), b[None].astype(float)]).mcnemar(0, 1) == pytest.approx(extreme / 16)
    assert mcnemar(a & False, a & False) == 1.0
    halves = [np.array([[1.0, 0.0]]), np.array([[0.5, 0.0]])]
    assert Averaged(values=halves).mcnemar(0, 1) is None


def test_a_p_value_counts_ties_and_the_observed_order():
    assert permutation_p(-0.3, np.array([0.1, 0.3, -0.3, 0.2])) == 3 / 5
    assert permutation_p(0.5, np.array([0.1, 0.3, -0.3, 0.2])) == 1 / 5
    assert permutation_p(0.3 + 1e-14, np.array([0.3])) == 1.0


def test_holm_steps_down():
    # Sorted .005 .01 .03 .04, times 4 3 2 1, then made to rise.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02] and holm([]) == []


def test_rank_intervals_count_who_is_above_in_each_sample():
    scores = np.array([[0.9, 0.9, 0.9, 0.2], [0.5, 0.5, 0.5, 0.5], [0.1, 0.5, 0.6, 0.1], [0.0, 0.0, 0.0, 0.0]])
    by_hand = []
    for encoder in range(4):
        ranks = sorted(1 + sum(scores[:, s] > scores[encoder, s]) for s in range(4))
        by_hand.append((ranks[0], ranks[-1]))
    assert rank_intervals_of_draws(scores, level=0.9) == by_hand == [(1, 2), (1, 3), (2, 3), (4, 4)]


# Calibration: no pair below has a difference, so that one in twenty may seem to.
