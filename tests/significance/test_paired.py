"""Paired statistics against literal sums, loops and scipy: tests, F1, variance over items and seeds."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from stsbench.numbers.intervals import ItemDependence, StandardError, standard_error
from stsbench.numbers.statistics import CORRELATIONS, Float64Array, SubsetWeights
from stsbench.results.record import Result
from stsbench.significance.differences import (
    EstimatedDifference,
    ScoreSample,
    average_samples,
    seed_error,
)
from stsbench.significance.items import pair_items
from stsbench.significance.means import compute_mean_intervals
from stsbench.significance.paired import (
    PairedCorrelation,
    PairedF1,
    PairedMean,
    Williams,
    combine_williams,
    draw_swaps,
    holm,
    mcnemar,
    permutation_p,
    williams,
)
from tests.boards.scored import probe, sts
from tests.significance.pairs import told

METRICS: list[Literal["spearman", "pearson"]] = ["spearman", "pearson"]


def correlate(x: Float64Array, y: Float64Array, metric: str) -> float:
    return float(
        stats.spearmanr(x, y).statistic if metric == "spearman" else stats.pearsonr(x, y).statistic
    )


def correlated(
    metric: Literal["spearman", "pearson"], *, seeds: int = 1, parts: int = 1, n: int = 40
) -> PairedCorrelation:
    """Two encoders with ties among their values and the gold scores; parts of unlike sizes."""
    rng = np.random.default_rng(7)
    gold = np.round(rng.normal(size=n) * 2)
    values = np.round(
        gold + rng.normal(size=(2, seeds, n)) * np.array([1.5, 2.5])[:, None, None], 1
    )
    values[1] = np.exp(values[1] / 4)
    edges = [0, *np.cumsum([n // (parts + 1)] * (parts - 1)).tolist(), n]
    indices = [np.arange(a, b) for a, b in itertools.pairwise(edges)]
    weights = np.array([len(at) for at in indices]) / n
    return PairedCorrelation(
        values=list(values),
        gold=gold,
        subset_weights=SubsetWeights(indices, weights),
        metric=metric,
    )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("seeds", "parts"), [(1, 1), (3, 1), (1, 3), (2, 2)])
def test_scores_of_each_seed_are_weighted_means_of_parts(metric, seeds, parts):
    data = correlated(metric, seeds=seeds, parts=parts)
    for encoder, seed in np.ndindex(2, seeds):
        expected = sum(
            weight * correlate(data.values[encoder][seed, at], data.gold[at], metric)
            for at, weight in zip(*data.subset_weights, strict=True)
        )
        assert data.scores(encoder)[seed] == pytest.approx(expected, abs=1e-12)
        # However close the values lie.
        close = replace(data, values=[row / 1000 for row in data.values])
        assert close.scores(encoder)[seed] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_shares_are_the_influences_of_each_seed(metric):
    data = correlated(metric, seeds=2)
    for encoder, seed in np.ndindex(2, 2):
        expected = CORRELATIONS[metric].influence(data.values[encoder][seed], data.gold) / 40
        np.testing.assert_allclose(data.influences(encoder)[seed], expected, rtol=0, atol=1e-15)
    assert data.weights == pytest.approx(np.full(40, 1 / 40))


def scaled(x: Float64Array, metric: str) -> Float64Array:
    ranked = stats.rankdata(x) if metric == "spearman" else x
    result: Float64Array = (ranked - np.mean(ranked)) / np.std(ranked)
    return result


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("parts", [1, 3])
def test_a_permutation_swaps_the_scaled_values_of_single_items(metric, parts):
    data = correlated(metric, parts=parts)
    found = data.permuted_differences(0, 1, n_permutations=6, rng=np.random.default_rng(2))
    (drawn,) = draw_swaps(40, 6, int(np.random.default_rng(2).integers(2**63)))
    assert found is not None
    for sample in range(6):
        expected = 0.0
        for at, weight in zip(*data.subset_weights, strict=True):
            a, b = (scaled(data.values[encoder][0, at], metric) for encoder in (0, 1))
            for place, item in enumerate(at):
                if drawn[sample, item]:
                    a[place], b[place] = b[place], a[place]
            gold = scaled(data.gold[at], metric)
            expected += weight * (np.corrcoef(b, gold)[0, 1] - np.corrcoef(a, gold)[0, 1])
        assert found[sample] == pytest.approx(expected, abs=1e-12)


def test_a_correlation_without_a_scale_is_not_permuted():
    data = PairedCorrelation(values=correlated("spearman").values, gold=np.arange(40.0),
                      subset_weights=SubsetWeights([np.arange(40)], np.ones(1)), metric="kendall")  # fmt: skip
    assert data.permuted_differences(0, 1, n_permutations=9, rng=np.random.default_rng(0)) is None
    assert data.williams(0, 1) is None
    assert data.scores(0)[0] == pytest.approx(
        stats.kendalltau(data.values[0][0], data.gold).statistic
    )


def test_every_swap_is_as_likely_as_any_other():
    drawn = np.concatenate(list(draw_swaps(8, 8000, 1)))
    patterns, counts = np.unique(drawn, axis=0, return_counts=True)
    assert drawn.shape == (8000, 8) and len(patterns) == 256
    assert stats.chisquare(counts).pvalue > 0.001


def test_means_are_permuted_item_by_item():
    rng = np.random.default_rng(3)
    data = PairedMean(values=list((rng.random((2, 1, 11)) < 0.6).astype(float)))
    assert [data.scores(at)[0] for at in (0, 1)] == pytest.approx(
        [data.values[0].mean(), data.values[1].mean()]
    )
    assert data.influences(0)[0] == pytest.approx((data.values[0][0] - data.values[0].mean()) / 11)
    found = data.permuted_differences(0, 1, n_permutations=5, rng=np.random.default_rng(1))
    (drawn,) = draw_swaps(11, 5, int(np.random.default_rng(1).integers(2**63)))
    assert found is not None
    for sample in range(5):
        signs = np.where(drawn[sample] == 1, -1, 1)
        assert found[sample] == pytest.approx(
            np.mean(signs * (data.values[1][0] - data.values[0][0]))
        )


# Tests of hypotheses.


def test_williams_is_steigers_formula():
    # Three correlations over 103 items, worked by hand: |R| = 1 - .16 - .25 - .01 + 2 * .4 * .5 * .1 = 0.62,
    # t = .1 * sqrt(102 * 1.1 / (2 * 102 / 100 * 0.62 + .45^2 * .9^3)).
    test = williams(0.4, 0.5, 0.1, n_items=103)
    t = 0.1 * np.sqrt(102 * 1.1 / (2 * 102 / 100 * 0.62 + 0.45**2 * 0.9**3))
    assert t == pytest.approx(0.8913, abs=1e-4)
    assert test.difference / test.error == pytest.approx(t, rel=1e-12)
    assert test.p == pytest.approx(2 * (1 - stats.t.cdf(t, 100)), rel=1e-9)
    turned = williams(0.5, 0.4, 0.1, n_items=103)
    assert (turned.difference, turned.p) == pytest.approx((-test.difference, test.p))
    assert williams(0.4, 0.4, 1.0, n_items=103).p == 1.0
    assert williams(0.4, 0.5, 1.0, n_items=103)[1:] == (0.0, 0.0)


def test_williams_of_parts_adds_differences_and_variances_by_weight():
    tests, weights = [Williams(0.1, 0.02, 0.0), Williams(-0.04, 0.05, 0.0)], np.array([0.25, 0.75])
    whole = combine_williams(tests, weights)
    assert whole.difference == pytest.approx(0.25 * 0.1 - 0.75 * 0.04)
    assert whole.error == pytest.approx(np.hypot(0.25 * 0.02, 0.75 * 0.05))
    assert whole.p == pytest.approx(2 * stats.norm.sf(abs(whole.difference) / whole.error))
    assert (
        combine_williams(
            [Williams(0.1, 0.1, 0.3), Williams(-0.1, 0.1, 0.3)], np.array([0.5, 0.5])
        ).p
        == 1.0
    )


def williams_by_hand(data: PairedCorrelation, at: np.ndarray, metric: str) -> Williams:
    a, b, gold = data.values[0][0, at], data.values[1][0, at], data.gold[at]
    with_gold = correlate(a, gold, metric), correlate(b, gold, metric)
    return williams(*with_gold, correlate(a, b, metric), n_items=len(at))


@pytest.mark.parametrize("metric", METRICS)
def test_williams_of_data_takes_its_correlations(metric):
    data = correlated(metric)
    assert data.williams(0, 1) == pytest.approx(
        williams_by_hand(data, np.arange(40), metric), abs=1e-12
    )
    parts = correlated(metric, parts=2)
    each = [williams_by_hand(parts, at, metric) for at in parts.subset_weights.indices]
    assert parts.williams(0, 1) == pytest.approx(
        combine_williams(each, parts.subset_weights.weights), abs=1e-12
    )
    assert correlated(metric, seeds=2).williams(0, 1) is None


def test_mcnemar_is_the_sum_over_all_swaps_of_the_items_that_differ():
    a = np.array([1, 1, 1, 1, 0, 0, 1, 1, 1], dtype=bool)
    b = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0], dtype=bool)
    # Three items the first alone has right, one the second alone.
    signs = list(itertools.product([-1, 1], repeat=4))
    extreme = sum(abs(sum(row)) >= 3 - 1 for row in signs)
    assert mcnemar(a & ~b, b & ~a) == pytest.approx(extreme / len(signs))
    both, rng = (
        PairedMean(values=[a[None].astype(float), b[None].astype(float)]),
        np.random.default_rng(0),
    )
    assert both.exact_p(0, 1, n_permutations=9, rng=rng) == pytest.approx(extreme / 16)
    assert mcnemar(a & False, a & False) == 1.0


def test_a_p_value_counts_ties_and_the_observed_order():
    assert permutation_p(-0.3, np.array([0.1, 0.3, -0.3, 0.2])) == 3 / 5
    assert permutation_p(0.5, np.array([0.1, 0.3, -0.3, 0.2])) == 1 / 5
    assert permutation_p(0.3 + 1e-14, np.array([0.3])) == 1.0


def test_holm_steps_down():
    # Sorted .005 .01 .03 .04, times 4 3 2 1, then made to rise.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02] and holm([]) == []


SHARING = ItemDependence(np.arange(24)[:, None] // 2)
BOTH = ItemDependence(np.arange(48)[:, None] // 2)
EVEN = np.full(24, 1 / 24)


def sample(seed: int, seeds: int = 3) -> ScoreSample:
    """Scores that differ by more than their items explain."""
    rng = np.random.default_rng(seed)
    shares = rng.normal(size=(seeds, 24)) / 1000
    return ScoreSample(
        0.7 + rng.normal(size=seeds) / 20, shares, tuple(range(seeds)) if seeds > 1 else ()
    )


def test_what_seeds_add_is_their_variance_less_what_items_explain():
    one = sample(1)
    explained = (
        sum(SHARING.variance(one.influences[s] - one.influences.mean(axis=0)) for s in range(3)) / 2
    )
    expected = (one.scores.var(ddof=1) - explained) / 3
    found = seed_error(one, SHARING)
    assert found is not None and found.df == 2 and found.error**2 == pytest.approx(expected)
    assert seed_error(replace(one, scores=np.full(3, 0.7)), SHARING) == StandardError(0.0, 2)
    assert seed_error(sample(1, seeds=1), SHARING) is None


def test_a_difference_adds_items_and_the_seeds_of_both_sides():
    a, b = sample(1), sample(2, seeds=4)
    items = standard_error(b.influences.mean(axis=0) - a.influences.mean(axis=0), SHARING, EVEN)
    parts = [items, seed_error(a, SHARING), seed_error(b, SHARING)]
    variances = [part.error**2 for part in parts if part is not None]
    found = EstimatedDifference.estimate(a, b, SHARING, EVEN)
    df = sum(variances) ** 2 / sum(
        v**2 / part.df for v, part in zip(variances, parts, strict=True) if part
    )
    assert found[:3] == pytest.approx((b.score - a.score, sum(variances) ** 0.5, df))
    assert found.p == pytest.approx(2 * stats.t.sf(abs(found.difference) / found.error, df))
    reach = stats.t.ppf(0.975, df) * found.error
    assert found.interval() == pytest.approx((found.difference - reach, found.difference + reach))
    assert EstimatedDifference.estimate(a, replace(a, seeds=()), SHARING, EVEN).p == 1.0


def test_of_items_that_all_share_a_sentence_nothing_is_known():
    found = EstimatedDifference.estimate(
        sample(1, 1), sample(2, 1), ItemDependence(np.zeros((24, 1), dtype=np.int64)), EVEN
    )
    assert found.interval() == (-2.0, 2.0) and found.p == 1.0
    assert EstimatedDifference(0.5, 0.0, 3.0).p == 0.0


def test_a_mean_over_tasks_is_taken_seed_by_seed_where_all_have_the_same():
    one, two = sample(1), sample(2)
    joint = average_samples([one, two], BOTH)
    assert joint.scores == pytest.approx((one.scores + two.scores) / 2) and joint.seed_errors == ()
    np.testing.assert_allclose(
        joint.influences, np.concatenate([one.influences, two.influences], axis=1) / 2
    )


def test_seeds_of_which_tasks_share_none_are_independent():
    one, two = sample(1), replace(sample(2), seeds=(7, 8, 9))
    apart = average_samples([one, two], BOTH)
    spreads = [error for s in (one, two) if (error := seed_error(s, SHARING))]
    variances = [(s.error / 2) ** 2 for s in spreads]
    assert apart.score == pytest.approx((one.score + two.score) / 2) and apart.influences.shape == (
        1,
        48,
    )
    df = sum(variances) ** 2 / sum(v**2 / 2 for v in variances)
    (found,) = apart.seed_errors
    assert tuple(found) == pytest.approx((sum(variances) ** 0.5, df))


def test_the_seeds_that_tasks_share_err_together():
    """Against the sum over tasks of the covariances over shared seeds, one after another, without items."""
    rng, weights = np.random.default_rng(4), (0.5, 0.3, 0.2)
    seeds = [(1, 2, 3, 4), (1, 2, 3), (2, 3, 4)]
    scores = [dict(zip(names, rng.normal(size=len(names)), strict=True)) for names in seeds]
    still = ItemDependence.without_shared(3)
    samples = [
        ScoreSample(np.array(list(one.values())), np.zeros((len(one), 1)), tuple(one))
        for one in scores
    ]
    variance = 0.0
    for (t, one), (u, other) in itertools.product(enumerate(scores), repeat=2):
        both = sorted(set(one) & set(other))
        covariance = np.cov([one[s] for s in both], [other[s] for s in both])[0, 1]
        variance += weights[t] * weights[u] * len(both) / len(one) / len(other) * covariance
    (found,) = average_samples(samples, still, weights).seed_errors
    assert found.error**2 == pytest.approx(variance) and 2 <= found.df <= 3


@pytest.mark.parametrize("seed", [1, 9])
def test_a_task_of_one_seed_varies_as_the_others_do_and_with_them_where_they_share_it(seed):
    several = ScoreSample(np.array([0.1, 0.4, 0.3]), np.zeros((3, 1)), (1, 2, 3))
    single = ScoreSample(np.array([0.2]), np.zeros((1, 1)), (seed,))
    (found,) = average_samples(
        [several, single], ItemDependence.without_shared(2), (0.6, 0.4)
    ).seed_errors
    variance = float(np.var(several.scores, ddof=1))
    shared = 2 * 0.6 * 0.4 * variance / 3 if seed == 1 else 0.0
    assert found.error**2 == pytest.approx(0.6**2 * variance / 3 + 0.4**2 * variance + shared)


def test_two_seeds_of_one_task_are_enough_to_tell_how_a_mean_varies():
    two = ScoreSample(np.array([0.1, 0.5]), np.zeros((2, 1)), (1, 2))
    (found,) = average_samples(
        [two, ScoreSample(np.array([0.2]), np.zeros((1, 1)), (3,))],
        ItemDependence.without_shared(2),
    ).seed_errors
    assert found.error**2 == pytest.approx((0.08 / 2 + 0.08) / 4)


def test_seeds_that_do_not_differ_have_no_error_and_the_fewest_degrees_of_freedom():
    flat = [
        ScoreSample(np.full(count, 0.5), np.zeros((count, 1)), tuple(range(count)))
        for count in (2, 4)
    ]
    assert average_samples(flat, ItemDependence.without_shared(2)).seed_errors == (
        StandardError(0.0, 1.0),
    )


def answers(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.66
    return np.where(rng.random(n) < 0.75, truth, ~truth).astype(float), truth.astype(float)


def scored(*pairs: tuple[np.ndarray, np.ndarray]) -> PairedF1:
    return PairedF1(
        predicted=[np.array([predicted for predicted, _ in pairs])],
        correct=[np.array([predicted == truth for predicted, truth in pairs]).astype(float)],
    )


def test_the_score_is_scikit_learns_and_shares_are_its_derivatives():
    pairs = [answers(1), answers(2)]
    found = scored(*pairs)
    for row, (predicted, truth) in enumerate(pairs):
        assert found.scores(0)[row] == pytest.approx(f1_score(truth, predicted))
        assert found.influences(0)[row].sum() == pytest.approx(0, abs=1e-12)
        step = 1e-6
        for item in (0, 7, 100):
            weights = np.ones(len(truth))
            weights[item] += step
            moved = f1_score(truth, predicted, sample_weight=weights)
            assert (moved - f1_score(truth, predicted)) / step == pytest.approx(
                found.influences(0)[row, item], rel=1e-3
            )
    assert found.weights.sum() == pytest.approx(1)


def test_nothing_predicted_and_nothing_true_is_0():
    nothing = np.zeros(5)
    assert scored((nothing, nothing)).scores(0) == [0]
    assert not scored((nothing, nothing)).influences(0).any()


def test_a_mean_over_accuracy_and_f1_of_the_same_items_knows_that_they_vary_together():
    predicted, truth = answers(3)
    right = told(probe("a", "mrpc", predicted == truth))
    right.per_item["prediction"] = predicted.astype(np.int64)
    shares = (right.per_item["correct"] - right.score) / 200 / 2 + scored(
        (predicted, truth)
    ).influences(0)[0] / 2
    found = compute_mean_intervals([[right], [right]], [(0, 1)], ["accuracy", "f1"]).intervals[0, 1]
    middle = (right.score + f1_score(truth, predicted)) / 2
    # Wilson's interval, of as many items as would vary as much: its half width is a hair less than the error's.
    reach = 1.972 * np.sqrt((shares**2).sum() * 200 / 199)
    assert np.ptp(found) / 2 == pytest.approx(reach, rel=0.02) and found[0] < middle < found[1]


def test_what_no_column_is_of_has_no_statistic():
    three = probe("a", "trec", [True, False, True])
    classes = msgspec.structs.replace(
        three, per_item={**three.per_item, "prediction": np.array([0, 2, 1])}
    )
    assert (
        pair_items({0: [classes]}, score_name="f1") is None
        and pair_items({0: [three]}, score_name="dev_accuracy") is None
    )
    assert pair_items({0: [three]}, score_name="accuracy") is not None
    gold, similarity = np.arange(6.0), np.array([0.0, 2.0, 1.0, 5.0, 3.0, 4.0])
    parts = ["news"] * 2 + ["forum"] * 4
    pairs = pair_items(
        {0: [sts("a", "sts12", gold, similarity, subset=parts)]}, score_name="pearson.wmean"
    )
    assert pairs is not None
    by_part = [correlate(similarity[at], gold[at], "pearson") for at in (slice(0, 2), slice(2, 6))]
    assert pairs.samples[0].score == pytest.approx((2 * by_part[0] + 4 * by_part[1]) / 6)
    # One encoder that answers a third class is enough.
    both: dict[int, list[Result]] = {0: [three], 1: [classes]}
    assert pair_items(both, score_name="f1") is None
    assert pair_items({0: [three], 1: [three]}, score_name="f1") is not None


def test_a_swap_that_leaves_one_value_alone_has_correlation_0():
    gold, values = np.array([1.0, 3.0, 2.0]), [np.array([[1.0, 2.0, 3.0]]), np.ones((1, 3))]
    data = PairedCorrelation(
        values=values,
        gold=gold,
        subset_weights=SubsetWeights([np.arange(3)], np.ones(1)),
        metric="pearson",
    )
    found = data.permuted_differences(0, 1, n_permutations=100, rng=np.random.default_rng(0))
    (drawn,) = draw_swaps(3, 100, int(np.random.default_rng(0).integers(2**63)))
    assert found is not None
    # Without any swap the second's are all one, and with all three swapped the first's are.
    alone = correlate(values[0][0], gold, "pearson")
    assert found[~drawn.any(axis=1)] == pytest.approx(-alone)
    assert found[drawn.all(axis=1)] == pytest.approx(alone)
    assert {0, 3} <= set(drawn.sum(axis=1))


def test_an_encoder_that_gives_every_pair_one_value_has_correlation_0():
    data = correlated("spearman")
    flat = PairedCorrelation(
        values=[data.values[0], np.ones((1, 40))],
        gold=data.gold,
        subset_weights=data.subset_weights,
        metric="spearman",
    )
    assert flat.scores(1)[0] == 0.0
    assert np.all(flat.influences(1) == 0)
    permuted = flat.permuted_differences(0, 1, n_permutations=10, rng=np.random.default_rng(0))
    assert permuted is not None and np.isfinite(permuted).all()
