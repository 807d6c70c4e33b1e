"""Correlations and their influence against literal computations; which items share sentences; intervals of scores."""

from __future__ import annotations

import hashlib
import itertools
import math
import warnings

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from stsbench.numbers.dependence import (
    ItemDependence,
    read_sentence_ids,
    sentence_columns,
)
from stsbench.numbers.intervals import (
    correlation_interval,
    share_interval,
    standard_error,
)
from stsbench.numbers.statistics import (
    AGGREGATIONS,
    CORRELATIONS,
    Correlation,
    Float64Array,
    SubsetWeights,
    average_ranks,
    correlation_influences,
    item_weights,
    kendall,
    kendall_influence,
    mean_and_deviation,
    pearson,
    pearson_influence,
    spearman,
    spearman_influence,
    weigh_subsets,
)

Floats = npt.NDArray[np.float64]


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def test_spearman_of_ties_by_hand():
    x = array(7, 7, 1, 9, 7)  # ranks: 1 -> 1; the three 7s share 2, 3, 4 -> 3 each; 9 -> 5
    y = array(0, 5, 0, 5, 2)  # ranks: the 0s share 1, 2 -> 1.5; 2 -> 3; the 5s share 4, 5 -> 4.5
    rx, ry = [3, 3, 1, 5, 3], [1.5, 4.5, 1.5, 4.5, 3]
    # About the mean rank 3: dx = 0 0 -2 2 0, dy = -1.5 1.5 -1.5 1.5 0.
    covariance = (-2) * (-1.5) + 2 * 1.5
    spread_x, spread_y = 2**2 + 2**2, 4 * 1.5**2
    assert sum(rx) == sum(ry) == 15
    assert spearman(x, y) == pytest.approx(covariance / math.sqrt(spread_x * spread_y), abs=1e-15)
    # Not the formula without ties, which would give 1 - 6 * (2.25 + 2.25 + 0.25 + 0.25) / 120.
    assert spearman(x, y) != pytest.approx(1 - 6 * 5 / 120, abs=0.01)


def test_pearson_by_hand():
    # dx = -1 0 1, dy = -2 1 1.
    assert pearson(array(1, 2, 3), array(0, 3, 3)) == pytest.approx(3 / math.sqrt(2 * 6), abs=1e-15)


def test_kendall_of_ties_by_hand():
    # Pairs: 5 concordant, 0 discordant, one tie in x alone: tau-b = 5 / sqrt((6 - 1) * 6).
    assert kendall(array(1, 1, 2, 3), array(1, 2, 3, 4)) == pytest.approx(
        5 / math.sqrt(5 * 6), abs=1e-15
    )


def test_parts_are_subsets_in_the_order_met_and_their_shares():
    subset = ["b", "a", "b", "b"]
    cut = {name: weigh_subsets(subset, name) for name in AGGREGATIONS}
    indices = {name: [at.tolist() for at in parts.indices] for name, parts in cut.items()}
    assert indices == {"all": [[0, 1, 2, 3]], "mean": [[0, 2, 3], [1]], "wmean": [[0, 2, 3], [1]]}
    shares = {name: parts.weights.tolist() for name, parts in cut.items()}
    assert shares == {"all": [1.0], "mean": [0.5, 0.5], "wmean": [0.75, 0.25]}


def test_mean_and_deviation_of_a_sample():
    found = mean_and_deviation([1.0, 2.0, 6.0])
    assert found.mean == 3.0
    assert found.deviation == pytest.approx(7**0.5)


RNG = np.random.default_rng(4)
ROWS = {
    "no ties": RNG.normal(size=500),
    "ties": np.round(RNG.normal(size=500), 1),
    "few values": RNG.integers(0, 6, size=1379).astype(float),
    "all one": np.ones(7),
    "one item": np.array([3.0]),
    "none": np.array([]),
    "infinite": np.array([1.0, np.inf, -np.inf, np.inf]),
    "both zeros": np.array([0.0, -0.0, 1.0]),
    "nan": np.array([1.0, np.nan, 0.0]),
}


def literal_ranks(row: Floats) -> Floats:
    """One more than the values below, and half of the others that are the same."""
    if np.isnan(row).any():
        return np.full(len(row), np.nan)
    return np.array([1 + sum(row < value) + (sum(row == value) - 1) / 2 for value in row])


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_ranks_count_the_values_below(row):
    assert np.array_equal(average_ranks(row), literal_ranks(row), equal_nan=True)


@pytest.mark.parametrize("name", ["no ties", "ties", "infinite"])
def test_correlations_are_the_literal_formulas(name):
    x = ROWS[name]
    y = np.round(x.clip(-9, 9) + RNG.normal(size=len(x)), 1)

    def literal(one: Floats, other: Floats) -> float:
        a, b = ([value - math.fsum(row) / len(row) for value in row] for row in (one, other))
        return math.fsum(map(math.prod, zip(a, b, strict=True))) / math.hypot(*a) / math.hypot(*b)

    assert spearman(x, y) == pytest.approx(literal(literal_ranks(x), literal_ranks(y)), abs=1e-14)
    if np.isfinite(x).all():
        assert pearson(x, y) == pytest.approx(literal(x, y), abs=1e-14)


def test_of_values_that_are_all_one_no_correlation_is_known():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(spearman(np.ones(5), np.arange(5.0))) and np.isnan(
            pearson(np.arange(5.0), np.ones(5))
        )


@pytest.mark.parametrize("x", [[], [1.0], [1.0, 1.0], [1.0, float("nan")]])
def test_where_there_is_no_order_kendall_is_not_a_number(x):
    one, other = np.array(x), np.arange(float(len(x)))
    assert np.isnan(kendall(one, other)) and np.isnan(kendall(other, one))


STEP = 1e-6


def weighted_pearson(x: Float64Array, y: Float64Array, w: Float64Array) -> float:
    dx, dy = x - w @ x, y - w @ y
    return float((w @ (dx * dy)) / np.sqrt((w @ dx**2) * (w @ dy**2)))


def weighted_spearman(x: Float64Array, y: Float64Array, w: Float64Array) -> float:
    ranks = [np.array([sum(w[v < one]) + sum(w[v == one]) / 2 for one in v]) for v in (x, y)]
    return weighted_pearson(ranks[0], ranks[1], w)


def weighted_kendall(x: Float64Array, y: Float64Array, w: Float64Array) -> float:
    both = of_x = of_y = 0.0
    for i, j in itertools.product(range(len(x)), repeat=2):
        a, b = np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
        both, of_x, of_y = (
            both + w[i] * w[j] * a * b,
            of_x + w[i] * w[j] * a * a,
            of_y + w[i] * w[j] * b * b,
        )
    return float(both / np.sqrt(of_x * of_y))


LITERAL = {"pearson": weighted_pearson, "spearman": weighted_spearman, "kendall": weighted_kendall}


def tied(n: int) -> tuple[Float64Array, Float64Array]:
    rng = np.random.default_rng(n)
    y = rng.integers(0, 6, size=n).astype(np.float64)
    return np.round(y / 5 + rng.normal(0, 0.4, size=n), 1), y


@pytest.mark.parametrize("metric", CORRELATIONS)
def test_influence_is_the_derivative_towards_one_item(metric):
    x, y = tied(25)
    even, found = np.full(25, 1 / 25), CORRELATIONS[metric].influence(x, y)
    literal = LITERAL[metric]
    assert literal(x, y, even) == pytest.approx(CORRELATIONS[metric](x, y), abs=1e-12)
    for item in range(25):
        moved = (1 - STEP) * even + STEP * np.eye(25)[item]
        assert found[item] == pytest.approx(
            (literal(x, y, moved) - literal(x, y, even)) / STEP, abs=2e-5
        )
    assert found.sum() == pytest.approx(0, abs=1e-10)


def test_kendall_in_blocks_is_kendall_at_once(monkeypatch):
    x, y = tied(40)
    at_once = kendall_influence(x, y)
    monkeypatch.setattr("stsbench.numbers.statistics.KENDALL_PAIRS_AT_ONCE", 100)
    np.testing.assert_allclose(kendall_influence(x, y), at_once, rtol=0, atol=1e-14)


def test_a_correlation_without_a_function_of_its_own_leaves_each_item_out():
    x, y = tied(300)
    plain = Correlation(name="mine", label="Mine", compute=CORRELATIONS["spearman"].compute)
    mean = Correlation(name="mean", label="Mean", compute=lambda a, b: float(a.mean()))
    assert mean.influence(x, y) == pytest.approx(x - x.mean())
    difference = plain.influence(x, y) - spearman_influence(x, y)
    assert np.abs(difference).max() < 0.03 * np.abs(spearman_influence(x, y)).max()


@pytest.mark.parametrize("influence", [pearson_influence, spearman_influence, kendall_influence])
def test_of_values_that_are_all_one_there_is_none(influence):
    x, y = tied(9)
    assert np.isnan(influence(np.full(9, 0.1), y)).all()
    assert np.isnan(influence(x, np.full(9, 3.0))).all()
    assert np.isnan(
        Correlation(name="m", label="M", compute=lambda a, b: 0.0).influence(x, np.full(9, 3.0))
    ).all()
    missing = np.append(x[:-1], np.nan)
    assert np.isnan(influence(missing, y)).all() and np.isnan(influence(y, missing)).all()


def literal(sentences: np.ndarray, shares: np.ndarray) -> float:
    """The sum of products over all pairs of items that have a sentence in common, each item with itself too."""
    held, n = [set(row) for row in sentences.tolist()], len(sentences)
    return float(
        sum(shares[i] * shares[j] for i in range(n) for j in range(n) if held[i] & held[j])
    )


def test_a_row_whose_sums_cancel_changes_no_other_row():
    sharing = ItemDependence(np.stack([np.repeat(np.arange(6), 2), 100 + np.arange(12)], axis=1))
    shared = np.repeat(np.random.default_rng(1).normal(size=(2, 6)), 2, axis=1)
    rows = np.random.default_rng(0).normal(size=(2, 12)) + shared
    odd = np.tile([1.0, -1.0], 6)
    found = sharing.covariance(np.array([*rows, odd]))
    assert found[:2, :2] == pytest.approx(sharing.covariance(rows)) and found[
        2, 2
    ] == pytest.approx(12)
    assert found[0, 1] != pytest.approx(rows[0] @ rows[1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width", [1, 2])
def test_a_variance_is_the_sum_over_items_that_share_a_sentence(seed, width):
    rng = np.random.default_rng(seed)
    # Few sentences: some pairs stand twice, either way round, and some hold one sentence twice.
    sentences, shares = rng.integers(0, 25, size=(80, width)), rng.normal(size=(3, 80)) + 0.5
    sharing = ItemDependence(sentences)
    found = sharing.covariance(shares)
    for at in range(3):
        assert found[at, at] == pytest.approx(literal(sentences, shares[at]))
        assert sharing.variance(shares[at]) == pytest.approx(found[at, at])
    both = literal(sentences, shares[0] + shares[1]) - found[0, 0] - found[1, 1]
    assert found[0, 1] == pytest.approx(both / 2)
    assert not sharing.are_independent and len(sharing) == 80


def test_a_sum_that_is_too_small_is_that_of_the_items_alone():
    # One sentence is in every pair: what all have in common adds up to nothing.
    shares = np.array([1.0, -2.0, 3.0, -2.0])
    sentences = np.stack([np.zeros(4, dtype=np.int64), np.arange(1, 5)], axis=1)
    assert literal(sentences, shares) == 0
    assert ItemDependence(sentences).variance(shares) == 18
    # Here the same pair stands twice, and is one item.
    doubled = np.array([(0, 1), (1, 0), (0, 2), (0, 3)])
    assert ItemDependence(doubled).variance(np.array([1.0, 1.0, -1.0, -1.0])) == 4 + 1 + 1


@pytest.mark.parametrize(
    ("sentences", "independent"),
    [
        ([(0, 1), (2, 3)], True),
        ([(0, 0), (2, 3)], True),
        ([(0, 1), (1, 2)], False),
        ([(0, 1), (1, 0)], False),
        ([(0,), (1,)], True),
        ([(0,), (0,)], False),
    ],
)
def test_items_are_independent_where_no_two_share_a_sentence(sentences, independent):
    assert ItemDependence(np.array(sentences)).are_independent is independent


def test_effective_items_count_independent_ones_of_equal_weight():
    assert ItemDependence.without_shared(4).effective_sample_size(np.ones(4)) == 4
    assert ItemDependence(np.array([(0,), (0,), (1,), (1,)])).effective_sample_size(np.ones(4)) == 2
    assert ItemDependence.without_shared(4).effective_sample_size(
        np.array([1.0, 1.0, 1.0, 3.0])
    ) == pytest.approx(36 / 12)


def test_a_sentence_is_known_by_the_start_of_its_sha256():
    columns = sentence_columns(["a", "b", "a"], ["ü", "\ud800", "b"])
    assert list(columns) == ["sentence1", "sentence2"] and columns["sentence1"].dtype == np.uint32
    assert columns["sentence1"][1] == int.from_bytes(hashlib.sha256(b"b").digest()[:4], "little")
    assert (
        columns["sentence1"][0]
        == columns["sentence1"][2]
        != columns["sentence1"][1]
        == columns["sentence2"][2]
    )
    found = read_sentence_ids(columns)
    assert found is not None and found.shape == (3, 2)
    assert read_sentence_ids({"gold": np.zeros(3)}) is None
    (single,) = sentence_columns(["a"]).values()
    assert single.shape == (1,)


@pytest.mark.parametrize("seed", range(5))
def test_the_variance_of_every_two_rows_difference_is_that_of_their_difference_alone(seed):
    rng = np.random.default_rng(seed)
    sentences, shares = rng.integers(0, 12, size=(30, 2)), rng.normal(size=(5, 30))
    if seed % 2:
        # One sentence is in every pair: of rows that add up to nothing, so do the sums over what they share.
        sentences[:, 0], shares = 99, shares - shares.mean(axis=1, keepdims=True)
    sharing = ItemDependence(sentences)
    found = sharing.variances_of_differences(shares).by_sentences
    expected = [[sharing.variance(a - b) for b in shares] for a in shares]
    np.testing.assert_allclose(found, expected, atol=1e-12)


WHOLE = SubsetWeights([np.arange(40)], np.ones(1))


def values() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    gold = rng.integers(0, 6, size=40).astype(float)
    return gold + rng.normal(size=40), gold


def grouped(groups: np.ndarray) -> ItemDependence:
    """Items that hold one sentence alone, that of their group."""
    return ItemDependence(groups[:, None])


def test_the_error_is_of_the_variance_and_the_items_that_tell_as_much():
    rng = np.random.default_rng(2)
    shares, sharing = rng.normal(size=40), grouped(rng.integers(0, 12, size=40))
    found = standard_error(shares, sharing, np.full(40, 1 / 40))
    items = sharing.effective_sample_size(np.full(40, 1 / 40))
    assert found.error == pytest.approx(math.sqrt(sharing.variance(shares) * items / (items - 1)))
    assert found.df == pytest.approx(items - 1)
    assert math.isnan(
        standard_error(shares, grouped(np.zeros(40, dtype=np.int64)), np.full(40, 1 / 40)).error
    )


@pytest.mark.parametrize("metric", CORRELATIONS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_shares_are_influences_by_the_weight_of_their_part(metric, aggregation):
    x, gold = values()
    parts = weigh_subsets(["news"] * 15 + ["forum"] * 25, aggregation)
    shares = correlation_influences(metric, x, gold, parts)
    weight = {"all": [1.0], "mean": [0.5, 0.5], "wmean": [15 / 40, 25 / 40]}[aggregation]
    for at, share in zip(parts.indices, weight, strict=True):
        expected = share * CORRELATIONS[metric].influence(x[at], gold[at]) / len(at)
        np.testing.assert_allclose(shares[at], expected, rtol=0, atol=1e-15)
    weights = item_weights(parts, 40)
    assert weights.sum() == pytest.approx(1) and weights[0] == pytest.approx(
        weight[0] / len(parts.indices[0])
    )


@pytest.mark.parametrize(
    ("groups", "is_known"),
    # Five pairs of which two hold the same sentence tell as much as 25 / 7 do.
    [([0, 1, 2, 3], True), ([0, 1, 2, 3, 3], False), ([0, 1, 2], False)],
)
def test_of_fewer_than_four_independent_pairs_no_correlation_is_known(groups, is_known):
    gold, x = array(0, 1, 2, 4, 5)[: len(groups)], array(0, 2, 1, 3, 4)[: len(groups)]
    parts = SubsetWeights([np.arange(len(gold))], np.ones(1))
    score = CORRELATIONS["spearman"](x, gold)
    sharing = grouped(np.array(groups))
    low, high = correlation_interval(
        score, "spearman", x, gold, subset_weights=parts, dependence=sharing
    ).bounds
    assert (-1 < low < score < high < 1) if is_known else (low, high) == (-1, 1)


def test_the_interval_is_fishers_around_the_score():
    x, gold = values()
    score, sharing = CORRELATIONS["spearman"](x, gold), grouped(np.arange(40) // 2)
    error, df, *_ = standard_error(
        correlation_influences("spearman", x, gold, WHOLE), sharing, item_weights(WHOLE, 40)
    )
    found = correlation_interval(
        score, "spearman", x, gold, subset_weights=WHOLE, dependence=sharing
    ).bounds
    reach = stats.t.ppf(0.975, df) * error / (1 - score**2)
    assert df == pytest.approx(19)
    assert found == pytest.approx(
        (math.tanh(math.atanh(score) - reach), math.tanh(math.atanh(score) + reach))
    )


def test_of_too_few_nothing_is_known():
    x, gold = values()
    three = grouped(np.arange(40) % 3)
    assert correlation_interval(
        0.5, "spearman", x, gold, subset_weights=WHOLE, dependence=three
    ).bounds == (-1.0, 1.0)
    pairs = weigh_subsets([str(at // 2) for at in range(40)], "mean")
    alone = ItemDependence.without_shared(40)
    assert correlation_interval(
        0.5, "spearman", x, gold, subset_weights=pairs, dependence=alone
    ).bounds == (-1.0, 1.0)
    flat = correlation_interval(
        0.0, "spearman", gold * 0, gold, subset_weights=WHOLE, dependence=alone
    )
    assert flat.bounds == (-1.0, 1.0)


def test_shares_of_independent_items_have_wilsons_interval():
    right = np.array([1.0] * 31 + [0.0] * 9)
    expected = stats.binomtest(31, 40).proportion_ci(method="wilson")
    assert share_interval(right, ItemDependence.without_shared(40)) == pytest.approx(
        (expected.low, expected.high), abs=1e-12
    )
    # Every item twice tells as much as each once, but for Student's quantile.
    low, high = share_interval(np.repeat(right, 2), grouped(np.repeat(np.arange(40), 2)))
    assert expected.low - 0.02 < low < expected.low < expected.high < high < expected.high + 0.02
    all_right = stats.binomtest(40, 40).proportion_ci(method="wilson")
    assert share_interval(np.zeros(40), ItemDependence.without_shared(40)) == pytest.approx(
        (0.0, 1 - all_right.low), abs=1e-12
    )
    assert share_interval(np.ones(40), ItemDependence.without_shared(40)) == pytest.approx(
        (all_right.low, 1.0), abs=1e-12
    )
    for n in range(2, 40):
        # No rounding leads out of it.
        assert share_interval(np.ones(n), ItemDependence.without_shared(n))[1] <= 1.0
    assert share_interval(np.ones(80), grouped(np.repeat(np.arange(40), 2)))[0] == pytest.approx(
        all_right.low, abs=0.01
    )
    assert share_interval(np.ones(4), grouped(np.zeros(4, dtype=np.int64))) == (0.0, 1.0)


def test_the_interval_of_a_share_of_few_clusters_is_students():
    right = np.random.default_rng(2).permutation([1.0] * 70 + [0.0] * 30)
    clusters = right.reshape(5, 20).sum(axis=1) / 20
    variance, t = clusters.var(ddof=1) / 5, stats.t.ppf(0.975, 4)
    n = 0.7 * 0.3 / variance
    centre, reach = 0.7 + t * t / 2 / n, t * math.sqrt(0.7 * 0.3 / n + t * t / 4 / n / n)
    expected = max((centre - reach) / (1 + t * t / n), 0), (centre + reach) / (1 + t * t / n)
    assert share_interval(right, grouped(np.repeat(np.arange(5), 20))) == pytest.approx(expected)


def test_intervals_hold_the_truth_where_pairs_share_sentences():
    # Spearman's rho of two normals with correlation r is 6 / pi * asin(r / 2). Each pair stands thrice.
    r, rounds, held, alone = 0.7, 300, 0, 0
    truth = 6 / math.pi * math.asin(r / 2)
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        gold = np.repeat(rng.normal(size=80), 3)
        x = r * gold + np.repeat(math.sqrt(1 - r * r) * rng.normal(size=80), 3)
        score, parts = (
            CORRELATIONS["spearman"](x, gold),
            SubsetWeights([np.arange(240)], np.ones(1)),
        )
        for sharing, name in (
            (grouped(np.arange(240) // 3), "held"),
            (ItemDependence.without_shared(240), "alone"),
        ):
            low, high = correlation_interval(
                score, "spearman", x, gold, subset_weights=parts, dependence=sharing
            ).bounds
            held += name == "held" and low <= truth <= high
            alone += name == "alone" and low <= truth <= high
    low, high = stats.binom.interval(0.999, rounds, 0.95)
    assert low <= held <= high
    assert alone < 0.85 * rounds
