"""The wider of two intervals: components against literal sums, guards, and their agreement with p-values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from stsbench.numbers.dependence import ItemDependence
from stsbench.numbers.intervals import (
    AGREEMENT_INTERVAL_METHOD,
    CORRELATION_INTERVAL_METHOD,
    CorrelationInterval,
    StandardError,
    agreement_interval,
    correlation_interval,
    mean_interval,
    share_interval,
    spearman_interval,
    standard_error,
    standard_errors,
    variance_estimators,
    widest_first,
    wilson_interval,
)
from stsbench.numbers.statistics import SubsetWeights, correlation_influences, spearman
from stsbench.significance.differences import EstimatedDifference, ScoreSample, combine_errors


def literal_components(sentences: np.ndarray) -> list[int]:
    """Give linked items the same number, merging two components after the other."""
    numbers = list(range(len(sentences)))
    for i, j in itertools.combinations(range(len(sentences)), 2):
        if set(sentences[i].tolist()) & set(sentences[j].tolist()):
            old, new = numbers[j], numbers[i]
            numbers = [new if number == old else number for number in numbers]
    return numbers


def chain(length: int, chains: int) -> np.ndarray:
    """Pairs of which each shares one sentence with the next of its chain."""
    starts = 100 * np.repeat(np.arange(chains), length) + np.tile(np.arange(length), chains)
    return np.stack([starts, starts + 1], axis=1)


def reach(influences, dependence, weights, component) -> float:
    """The formula literally: half the width of the wider 95% interval."""
    m = dependence.effective_sample_size(weights)
    by_sentences = (
        stats.t.ppf(0.975, m - 1) * (dependence.variance(influences) * m / (m - 1)) ** 0.5
    )
    sizes = np.bincount(component, weights)
    n_components = weights.sum() ** 2 / (sizes**2).sum()
    variance = (np.bincount(component, influences) ** 2).sum() * n_components / (n_components - 1)
    return float(max(by_sentences, stats.t.ppf(0.975, n_components - 1) * variance**0.5))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width", [1, 2])
def test_components_link_items_by_chains_of_sentences(seed, width):
    sentences = np.random.default_rng(seed).integers(0, 60, size=(40, width))
    components = ItemDependence(sentences).components.tolist()
    expected = literal_components(sentences)
    for i, j in itertools.combinations(range(40), 2):
        assert (components[i] == components[j]) == (expected[i] == expected[j])
    assert len(set(components)) == len(set(expected)) > 3


@pytest.mark.parametrize("seed", range(8))
def test_an_interval_reaches_as_far_as_the_wider_one(seed):
    rng = np.random.default_rng(seed)
    dependence = ItemDependence(chain(5, 12))
    component = np.repeat(np.arange(12), 5)
    weights = rng.random(60)
    influences = rng.normal(size=60) + (seed % 4) * rng.normal(size=12)[component]
    influences -= influences.mean()
    expected = reach(influences, dependence, weights, component)
    widest = standard_error(influences, dependence, weights)
    assert widest.half_width == pytest.approx(expected)
    by_sentences, by_components = standard_errors(influences, dependence, weights)
    assert widest == max(by_sentences, by_components, key=lambda error: error.half_width)
    assert by_components.df == pytest.approx(
        weights.sum() ** 2 / (np.bincount(component, weights) ** 2).sum() - 1
    )


def test_either_estimate_may_be_the_wider_one():
    rng = np.random.default_rng(0)
    dependence, weights = ItemDependence(chain(5, 40)), np.full(200, 1 / 200)
    by_items = [
        standard_error(u - u.mean(), dependence, weights).df for u in rng.normal(size=(20, 200))
    ]
    assert {round(df) for df in by_items} == {39, 76}
    by_chains = np.repeat(rng.normal(size=40), 5)
    assert standard_error(by_chains, dependence, weights).df == pytest.approx(39)


def test_items_of_one_group_are_a_component_so_that_both_estimates_agree():
    groups = np.random.default_rng(1).integers(0, 9, size=50)
    dependence, weights = ItemDependence(groups[:, None]), np.full(50, 1 / 50)
    by_sentences, by_components = standard_errors(np.arange(50.0) - 24.5, dependence, weights)
    assert by_sentences == pytest.approx(by_components)


@pytest.mark.parametrize(
    ("sentences", "n_estimators"),
    [
        (np.arange(20).reshape(10, 2), 1),  # no chains
        (chain(5, 2), 2),  # two components of one half each
        (np.concatenate([chain(6, 1), 500 + chain(4, 1)]), 1),  # one of six tenths
        (chain(10, 1), 1),  # a single one
        (np.zeros((10, 1), dtype=np.int64), 0),  # one sentence in all items: one item
    ],
)
def test_a_component_of_more_than_half_of_the_items_says_nothing(sentences, n_estimators):
    dependence, weights = ItemDependence(sentences), np.full(10, 1 / 10)
    assert len(variance_estimators(dependence, weights)) == n_estimators
    errors = standard_errors(np.arange(10.0) - 4.5, dependence, weights)
    assert len(errors) == max(n_estimators, 1)
    assert np.isnan(errors[0].error) == (n_estimators == 0)
    is_dominated = len(set(literal_components(sentences))) < 3 and n_estimators < 2
    assert dependence.has_dominant_component(weights) == is_dominated


def test_among_errors_of_0_the_fewest_degrees_of_freedom_come_first():
    errors = [StandardError(0.0, 9.0), StandardError(0.0, 3.0)]
    assert widest_first(errors) == errors[::-1]
    infinite = StandardError(float("inf"), 1.0)
    assert widest_first([*errors, infinite])[0] == infinite


def test_the_variances_of_differences_are_those_of_each_pair_by_both_estimates():
    rng = np.random.default_rng(3)
    dependence = ItemDependence(rng.integers(0, 40, size=(50, 2)))
    influences = rng.normal(size=(4, 50))
    found = dependence.variances_of_differences(influences)
    for variances, variance in zip(
        found, (dependence.variance, dependence.component_variance), strict=True
    ):
        expected = [[variance(a - b) for b in influences] for a in influences]
        np.testing.assert_allclose(variances, expected, atol=1e-12)
    blocks = [(slice(0, 2), slice(2, 4))]
    for variances, all_variances in zip(
        dependence.variances_of_differences(influences, blocks), found, strict=True
    ):
        np.testing.assert_allclose(variances[:2, 2:], all_variances[:2, 2:], atol=1e-12)
    assert len(variance_estimators(ItemDependence(chain(5, 12)), np.ones(60))) == 2


def sample(rng: np.random.Generator, n_seeds: int, chain_effect: float) -> ScoreSample:
    influences = rng.normal(size=(n_seeds, 60)) + chain_effect * np.repeat(
        rng.normal(size=(n_seeds, 12)), 5, axis=1
    )
    influences = (influences - influences.mean(axis=1, keepdims=True)) / 60
    seeds = tuple(("training", seed) for seed in range(n_seeds)) if n_seeds > 1 else ()
    return ScoreSample(0.7 + 0.3 * rng.normal(size=n_seeds), influences, seeds)


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_p_is_below_the_level_exactly_if_0_is_outside_the_interval(n_seeds):
    rng = np.random.default_rng(n_seeds)
    dependence, weights = ItemDependence(chain(5, 12)), np.full(60, 1 / 60)
    decided_by_other = 0
    for _ in range(200):
        first, second = (sample(rng, n_seeds, rng.random() * 2) for _ in range(2))
        estimate = EstimatedDifference.estimate(first, second, dependence, weights)
        # Anywhere near the bound of the interval, where the two estimates may disagree.
        bound = estimate.interval()[1] - estimate.difference
        assert estimate.other_error is not None
        for difference in bound * np.array([-1.3, -1.0001, -0.9999, 0.7, 0.99999, 1.00001, 1.2]):
            moved = EstimatedDifference(difference, *estimate[1:])
            low, high = moved.interval()
            assert (moved.p < 0.05) == (not low <= 0 <= high)
            p_values = [
                2 * error.upper_tail(abs(difference))
                for error in (estimate.standard_error, estimate.other_error)
            ]
            assert moved.p == pytest.approx(max(p_values))
            decided_by_other += p_values[1] > p_values[0]
    # With seeds the two errors differ less.
    assert decided_by_other or n_seeds > 1


def test_seeds_are_added_to_both_estimates():
    rng = np.random.default_rng(5)
    dependence, weights = ItemDependence(chain(5, 12)), np.full(60, 1 / 60)
    first, second = (sample(rng, 3, 1.0) for _ in range(2))
    estimate = EstimatedDifference.estimate(first, second, dependence, weights)
    item_errors = standard_errors(
        second.mean_influences - first.mean_influences, dependence, weights
    )
    expected = []
    for item_error in item_errors:
        variances = []
        for encoder in (first, second):
            deviations = encoder.influences - encoder.mean_influences
            explained = sum(map(dependence.variance, deviations)) / 2
            variances.append(max(encoder.scores.var(ddof=1) - explained, 0) / 3)
        seed_variance = sum(variances)
        seed_df = seed_variance**2 / sum(variance**2 / 2 for variance in variances)
        error = (item_error.error**2 + seed_variance) ** 0.5
        expected.append((error, item_error.df, seed_variance**0.5, seed_df))
    found = [tuple(estimate.standard_error), tuple(estimate.other_error or ())]
    assert sorted(found) == [pytest.approx(error) for error in sorted(expected)]


def test_errors_over_seeds_have_satterthwaites_degrees_of_freedom():
    items = StandardError(12.0, 10.0)
    seed_errors = [StandardError(3.0, 10.0), StandardError(4.0, 2.0)]
    seed_df = 625 / (81 / 10 + 256 / 2)
    assert combine_errors(items, seed_errors) == pytest.approx((13.0, 10.0, 5.0, seed_df))
    without = StandardError(0.0, 7.0)
    assert combine_errors(without, [StandardError(0.0, 2.0)]) == without
    assert combine_errors(items, []) == items
    unknown = combine_errors(StandardError(float("nan"), 1.0), [StandardError(1.0, 2.0)])
    assert unknown == StandardError(float("inf"), 1.0)


def test_intervals_of_one_score_are_the_wider_ones():
    rng = np.random.default_rng(2)
    gold = np.repeat(rng.normal(size=30), 5)
    x = gold + np.repeat(rng.normal(size=30), 5) + 0.1 * rng.normal(size=150)
    dependence, component = ItemDependence(chain(5, 30)), np.repeat(np.arange(30), 5)
    weights, subsets = np.full(150, 1 / 150), SubsetWeights([np.arange(150)], np.ones(1))
    score = spearman(x, gold)
    influences = correlation_influences("spearman", x, gold, subsets)
    half_width = reach(influences, dependence, weights, component) / (1 - score**2)
    found = correlation_interval(
        score, "spearman", x, gold, subset_weights=subsets, dependence=dependence
    )
    assert found.method == CORRELATION_INTERVAL_METHOD
    assert found.bounds == pytest.approx(
        (np.tanh(np.arctanh(score) - half_width), np.tanh(np.arctanh(score) + half_width))
    )
    right = np.repeat(rng.random(30) < 0.8, 5).astype(float)
    # Wilson's by the clusters: their interval holds that of shared sentences.
    p, variance = right.mean(), right.reshape(30, 5).mean(axis=1).var(ddof=1) / 30
    n, t = p * (1 - p) / variance, stats.t.ppf(0.975, 29)
    centre, width = p + t * t / 2 / n, t * np.sqrt(p * (1 - p) / n + t * t / 4 / n / n)
    assert share_interval(right, dependence) == pytest.approx(
        ((centre - width) / (1 + t * t / n), min((centre + width) / (1 + t * t / n), 1.0))
    )
    # All right: as many independent items as components, with a width nevertheless.
    low, high = share_interval(np.ones(150), dependence)
    assert (low, high) == pytest.approx((30 / (30 + t * t), 1.0))


def test_coverage_holds_where_whole_chains_err_together():
    """False positives of the wider interval lie at the level; by shared sentences alone they do not."""
    rounds, by_both, by_sentences = 400, 0, 0
    dependence, weights = ItemDependence(chain(8, 60)), np.full(480, 1 / 480)
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=480) + np.repeat(rng.normal(size=60), 8)
        influences = (values - values.mean()) / 480
        errors = standard_errors(influences, dependence, weights)
        by_both += abs(values.mean()) > max(error.half_width for error in errors)
        by_sentences += abs(values.mean()) > errors[0].half_width
    low, high = stats.binom.interval(0.999, rounds, 0.05)
    assert low <= by_both <= high
    assert by_sentences > 2 * high


@pytest.mark.parametrize(("rho", "n"), [(0.8, 50), (0.9, 40), (0.6, 30)])
def test_an_interval_from_the_number_of_items_alone_holds(rho, n):
    rng = np.random.default_rng(n)
    draws = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], size=(4000, n))
    # Spearman's correlation of a normal pair.
    truth = 6 / np.pi * np.arcsin(rho / 2)
    ranks = stats.rankdata(draws, axis=1)
    x, y = (ranks - ranks.mean(axis=1, keepdims=True)).transpose(2, 0, 1)
    correlations = (x * y).sum(axis=1) / np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    bounds = np.array([spearman_interval(float(r), n) for r in correlations])
    coverage = np.mean((bounds[:, 0] < truth) & (truth < bounds[:, 1]))
    # The standard error of a coverage of 95% in 4,000 draws is .0034.
    assert 0.935 < coverage < 0.97
    z = np.arctanh(correlations[0]) + 1.959964 * np.sqrt(
        (1 + correlations[0] ** 2 / 2) / (n - 3)
    ) * np.array([-1, 1])
    np.testing.assert_allclose(bounds[0], np.tanh(z), atol=1e-6)


def test_an_interval_of_a_correlation_has_edges():
    assert spearman_interval(0.9, 3) == spearman_interval(-1.0, 2) == (-1, 1)
    assert spearman_interval(1.0, 50) == agreement_interval(1.0, [1.0], 50)
    low, high = spearman_interval(0.0, 50)
    assert low == pytest.approx(-high) and np.isnan(spearman_interval(float("nan"), 50)).all()


def literal_agreement(n: int) -> float:
    """The least Spearman correlation at which n items are in order once in 40 samples or more."""
    # None of the disjoint pairs of items is discordant; Clopper and Pearson's bound of their share.
    discordant = stats.binomtest(0, n // 2).proportion_ci(0.95, method="exact").high
    tau = 1 - 2 * discordant
    return (3 * tau - 1) / 2 if tau >= 0 else (tau**2 + 2 * tau - 1) / 2


@pytest.mark.parametrize("n", [4, 5, 20, 41, 300, 3000])
def test_a_correlation_of_1_has_the_bound_of_pairs_that_could_be_out_of_order(n):
    least = literal_agreement(n)
    assert agreement_interval(1.0, [1.0], n) == pytest.approx((least, 1.0))
    assert agreement_interval(-1.0, [-1.0], n) == pytest.approx((-1.0, -least))
    assert agreement_interval(0.0, [1.0, -1.0], n)[0] == pytest.approx(max(least - 1, -1))
    assert agreement_interval(0.0, [1.0, float("nan")], n) == (-1.0, 1.0)


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_the_bound_of_items_in_order_holds_and_is_nearly_reached(n):
    # A share of items lowest in x and highest in y: all others are out of order with each of them.
    least = literal_agreement(n)
    share = 1 - 0.025 ** (1 / n)
    # E[F(x) G(y)] with average ranks, less that of independence, over the deviations of both ranks.
    others = (1 - share) * (share + (1 - share) / 2) * (1 - share) / 2
    spread = (1 - share) ** 3 / 12
    mean = (1 - share) * spread / (1 - share) + others + share * (share / 2) * (1 - share / 2)
    variance = (1 - share) ** 3 / 12 + share * (1 - share) / 4
    correlation = (mean - 1 / 4) / variance
    # Samples of it are in order with a probability of 2.5%, so that the interval has to hold it.
    assert least <= correlation <= 1 - 0.8 * (1 - least)


@pytest.mark.parametrize("metric", ["spearman", "pearson", "kendall"])
def test_no_interval_of_a_correlation_is_without_width(metric):
    rng = np.random.default_rng(0)
    gold = rng.normal(size=60)
    alone = ItemDependence.without_shared(60)
    chains = ItemDependence(chain(5, 12))
    subsets = SubsetWeights([np.arange(60)], np.ones(1))

    def interval(
        values: np.ndarray,
        dependence: ItemDependence,
        subset_weights: SubsetWeights = subsets,
        score: float = 1.0,
        has_chains: bool = True,
    ) -> CorrelationInterval:
        return correlation_interval(
            score, metric, values, gold,
            subset_weights=subset_weights, dependence=dependence, has_chains=has_chains,
        )  # fmt: skip

    found = interval(2 * gold + 3, alone, score=1 - 1e-15)
    assert found.bounds == pytest.approx((literal_agreement(60), 1.0))
    assert found.method == AGREEMENT_INTERVAL_METHOD
    # Twelve chains are twelve items.
    assert interval(gold, chains).bounds == pytest.approx((literal_agreement(12), 1.0))
    # Subsets of 12 and 48 items that count equally: all items as if they were in subsets of 12.
    unequal = SubsetWeights([np.arange(12), np.arange(12, 60)], np.full(2, 0.5))
    assert interval(gold, alone, unequal).bounds == pytest.approx((literal_agreement(24), 1.0))
    signs = np.where(np.arange(60) < 12, -1.0, 1.0)
    reach = 1 - literal_agreement(24)
    mixed = interval(signs * gold, alone, unequal, score=0.0)
    assert mixed.bounds == pytest.approx((max(-reach, -1), min(reach, 1)))
    # As versions before had it, which their results are verified by.
    earlier = interval(gold, alone, has_chains=False)
    assert earlier == ((1.0, 1.0), CORRELATION_INTERVAL_METHOD)


def test_an_error_of_rounding_leaves_a_share_its_width():
    n, z = 40, stats.norm.ppf(0.975)
    low, high = wilson_interval(0.5, StandardError(1e-17, np.inf), effective_items=n)
    assert high - low == pytest.approx(
        2 * z / (1 + z * z / n) * np.sqrt(0.25 / n + z * z / 4 / n / n)
    )


def test_the_interval_of_a_mean_adds_the_distances_of_the_ends_as_squares():
    intervals = [(0.5, 0.9), (0.4, 0.7), (-0.2, 0.3)]
    low, high = mean_interval([0.8, 0.6, 0.1], intervals)
    assert low == pytest.approx(0.5 - (0.3**2 + 0.2**2 + 0.3**2) ** 0.5 / 3)
    assert high == pytest.approx(0.5 + (0.1**2 + 0.1**2 + 0.2**2) ** 0.5 / 3)
    assert mean_interval([0.8], intervals[:1]) == pytest.approx(intervals[0])


def test_the_interval_of_a_mean_of_correlations_holds():
    rng = np.random.default_rng(0)
    n, rho = 30, 0.7
    truth = 6 / np.pi * np.arcsin(rho / 2)
    hits = 0
    for _ in range(1000):
        pairs = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], size=(3, n))
        scores = [spearman(task[:, 0], task[:, 1]) for task in pairs]
        low, high = mean_interval(scores, [spearman_interval(score, n) for score in scores])
        hits += low < truth < high
    # The standard error of a coverage of 95% in 1,000 draws is .007.
    assert 0.925 < hits / 1000 < 0.975
