"""Paired statistics against literal sums, loops and scipy: tests, F1, variance over items and seeds."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.metrics import f1_score

from stsbench.numbers.dependence import ItemDependence
from stsbench.numbers.intervals import (
    StandardError,
    standard_error,
)
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
    PairedShares,
    correct_by_holm,
    draw_swaps,
    permutation_half_width,
    permutation_p,
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
    assert data.exact_test(0, 1, n_permutations=9, rng=np.random.default_rng(0)) is None
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


def test_mid_p_is_mcnemars_exact_p_less_half_of_what_was_observed():
    a = np.array([1, 1, 1, 1, 0, 0, 1, 1, 1], dtype=float)
    b = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0], dtype=float)
    # Three items the first alone has right, one the second alone: all swaps of these four.
    sums = [abs(sum(row)) for row in itertools.product([-1, 1], repeat=4)]
    mid_p = np.mean([(total > 2) + (total == 2) / 2 for total in sums])
    both, rng = PairedMean(values=[a[None], b[None]]), np.random.default_rng(0)
    test = both.exact_test(0, 1, n_permutations=9, rng=rng)
    assert test is not None
    assert (test.method, test.discordant) == ("McNemar's mid-p", (3, 1))
    assert test.p == pytest.approx(mid_p)
    assert test.interval == PairedShares(9, 3, 1).interval()
    assert PairedShares(9, 0, 0).p == 1.0


def literal_tango(n: int, only_first: int, only_second: int, difference: float) -> float:
    """The statistic with the likelihood maximised by search over what only the first has right."""
    least = max(0.0, -difference)

    def surprise(share: float) -> float:
        probabilities = [share, share + difference, 1 - 2 * share - difference]
        counts = [only_first, only_second, n - only_first - only_second]
        terms = [
            count * np.log(probability)
            for count, probability in zip(counts, probabilities, strict=True)
            if count
        ]
        return -float(sum(terms))

    bounds = least + 1e-12, (1 - difference) / 2 - 1e-12
    share = optimize.minimize_scalar(surprise, bounds=bounds, options={"xatol": 1e-12}).x
    variance = n * (2 * share + difference * (1 - difference))
    return float((only_second - only_first - n * difference) / variance**0.5)


@pytest.mark.parametrize(
    "counts", [(40, 3, 9), (100, 0, 5), (50, 10, 21), (200, 1, 1), (12, 4, 3), (9, 0, 1)]
)
def test_bounds_of_shares_are_where_tangos_statistic_is_the_quantile(counts):
    shares = PairedShares(*counts)
    n, only_first, only_second = counts
    m = only_first + only_second
    by_normal = abs(only_second - only_first) / m**0.5
    by_mid_p = stats.norm.isf(shares.p / 2)
    ratio = max(1.0, by_normal / by_mid_p) if by_mid_p > 1e-9 else 1.0
    wide = max(ratio, 1 + 1 / (2 * max(m, 2)))
    for side, bound in zip((1, -1), shares.interval(), strict=True):
        decides = shares.p < 0.05 and side * (only_second - only_first) > 0
        quantile = stats.norm.ppf(0.975) * (ratio if decides else wide)
        assert literal_tango(n, only_first, only_second, bound) == pytest.approx(
            side * quantile, rel=1e-4
        )
    assert PairedShares(n, only_second, only_first).interval() == pytest.approx(
        [-bound for bound in shares.interval()[::-1]]
    )


@pytest.mark.parametrize("level", [0.95, 0.9])
def test_intervals_of_shares_have_a_width_and_leave_zero_out_as_their_test_does(level):
    outcomes = [
        PairedShares(n, m - second, second)
        for n in (1, 2, 5, 40, 500)
        for m in range(min(n, 40) + 1)
        for second in range(m + 1)
    ]
    n_significant = 0
    for shares in outcomes:
        low, high = shares.interval(level)
        assert -1 <= low < high <= 1
        difference = (shares.only_second - shares.only_first) / shares.n
        assert low <= difference <= high
        assert (low > 0 or high < 0) == (shares.p < 1 - level)
        n_significant += shares.p < 1 - level
    assert 100 < n_significant < len(outcomes) - 100


@pytest.mark.parametrize("rate", [0.004, 0.03, 0.18])
@pytest.mark.parametrize("n", [50, 100])
def test_intervals_of_shares_hold_the_true_difference_as_often_as_they_say(n, rate):
    """Summed over all outcomes: whichever encoder is right more often, and by how much."""
    m = np.arange(int(stats.binom.ppf(1 - 1e-7, n, rate)) + 1)
    outcomes = [(n, total - second, second) for total in m for second in range(total + 1)]
    bounds = np.array([PairedShares(*map(int, outcome)).interval() for outcome in outcomes])
    counts = np.array([[first, second, n - first - second] for _, first, second in outcomes])
    for split in (0, 0.1, 0.3, 0.5, 1):
        first, second = rate * (1 - split), rate * split
        probabilities = stats.multinomial.pmf(counts, n, [first, second, 1 - rate])
        held = (bounds[:, 0] <= second - first) & (second - first <= bounds[:, 1])
        assert probabilities @ held >= 0.94


def test_the_interval_of_permutations_ends_where_their_p_is_no_longer_small():
    permuted = np.random.default_rng(0).normal(size=399)
    half_width = permutation_half_width(permuted)
    assert permutation_p(half_width * (1 + 1e-9), permuted) < 0.05
    assert permutation_p(half_width * (1 - 1e-9), permuted) >= 0.05
    # p is never below 0.05 with 19 permutations, and with 20 only above all of them.
    assert permutation_half_width(permuted[:18]) == np.inf
    assert permutation_half_width(permuted[:20]) == pytest.approx(np.abs(permuted[:20]).max())


def test_from_250_pairs_on_permutations_are_not_needed():
    rng = np.random.default_rng(0)
    small = correlated("spearman", n=249)
    test = small.exact_test(0, 1, n_permutations=99, rng=rng)
    assert test is not None and (test.method, test.discordant) == ("permutations", None)
    assert correlated("spearman", n=250).exact_test(0, 1, n_permutations=99, rng=rng) is None
    recalls = PairedMean(values=[np.linspace(0, 1, 12)[None], np.linspace(0, 1, 12)[None] ** 2])
    test = recalls.exact_test(0, 1, n_permutations=99, rng=rng)
    assert test is not None and test.method == "permutations"


def test_a_p_value_counts_ties_and_the_observed_order():
    assert permutation_p(-0.3, np.array([0.1, 0.3, -0.3, 0.2])) == 3 / 5
    assert permutation_p(0.5, np.array([0.1, 0.3, -0.3, 0.2])) == 1 / 5
    assert permutation_p(0.3 + 1e-14, np.array([0.3])) == 1.0


def test_holm_steps_down():
    # Sorted .005 .01 .03 .04, times 4 3 2 1, then made to rise.
    assert correct_by_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct_by_holm([0.6, 0.7]) == [1.0, 1.0]
    assert correct_by_holm([0.02]) == [0.02] and correct_by_holm([]) == []


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
    seed_variance = sum(variances[1:])
    seed_df = seed_variance**2 / (variances[1] ** 2 / 2 + variances[2] ** 2 / 3)
    assert found[:5] == pytest.approx(
        (b.score - a.score, sum(variances) ** 0.5, items.df, seed_variance**0.5, seed_df)
    )
    error = StandardError(*found[1:5])
    assert found.p == pytest.approx(2 * error.upper_tail(abs(found.difference)))
    reach = error.half_width
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
    assert found[:2] == pytest.approx((sum(variances) ** 0.5, df))


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
