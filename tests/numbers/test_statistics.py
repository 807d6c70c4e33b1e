"""Ranks and correlations against scipy and by hand; influences as derivatives."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from stsbench.numbers.statistics import (
    AGGREGATIONS,
    CORRELATIONS,
    Correlation,
    Float64Array,
    average_ranks,
    kendall,
    kendall_influence,
    pearson,
    pearson_influence,
    spearman,
    spearman_influence,
    split_parts,
    spread,
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
    assert kendall(array(1, 1, 2, 3), array(1, 2, 3, 4)) == pytest.approx(5 / math.sqrt(5 * 6), abs=1e-15)


def test_parts_are_subsets_in_the_order_met_and_their_shares():
    subset = ["b", "a", "b", "b"]
    cut = {name: split_parts(subset, name) for name in AGGREGATIONS}
    assert {name: [at.tolist() for at in parts.indices] for name, parts in cut.items()} == {
        "all": [[0, 1, 2, 3]],
        "mean": [[0, 2, 3], [1]],
        "wmean": [[0, 2, 3], [1]],
    }
    assert {name: parts.shares.tolist() for name, parts in cut.items()} == {
        "all": [1.0],
        "mean": [0.5, 0.5],
        "wmean": [0.75, 0.25],
    }


def test_mean_and_deviation_of_a_sample():
    found = spread([1.0, 2.0, 6.0])
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


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_ranks_are_those_of_scipy(row):
    assert np.array_equal(average_ranks(row), stats.rankdata(row), equal_nan=True)


def test_rows_are_ranked_each_by_itself():
    rows = np.round(RNG.normal(size=(4, 30)), 1)
    assert np.array_equal(average_ranks(rows), stats.rankdata(rows, axis=-1))


@pytest.mark.parametrize("name", ["no ties", "ties", "infinite"])
def test_correlations_are_those_of_scipy(name):
    x = ROWS[name]
    y = np.round(x.clip(-9, 9) + RNG.normal(size=len(x)), 1)
    assert spearman(x, y) == stats.spearmanr(x, y).statistic
    if np.isfinite(x).all():
        assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-15)


def test_of_values_that_are_all_one_no_correlation_is_known():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(spearman(np.ones(5), np.arange(5.0))) and np.isnan(pearson(np.arange(5.0), np.ones(5)))


@pytest.mark.parametrize("x", [[], [1.0], [1.0, 1.0], [1.0, float("nan")]])
def test_where_there_is_no_order_kendall_is_not_a_number(x):
    assert np.isnan(kendall(np.array(x), np.arange(float(len(x))))) and np.isnan(
        kendall(np.arange(float(len(x))), np.array(x))
    )


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
        both, of_x, of_y = both + w[i] * w[j] * a * b, of_x + w[i] * w[j] * a * a, of_y + w[i] * w[j] * b * b
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
        assert found[item] == pytest.approx((literal(x, y, moved) - literal(x, y, even)) / STEP, abs=2e-5)
    assert found.sum() == pytest.approx(0, abs=1e-10)


def test_kendall_in_blocks_is_kendall_at_once(monkeypatch):
    x, y = tied(40)
    at_once = kendall_influence(x, y)
    monkeypatch.setattr("stsbench.numbers.statistics.BLOCK", 100)
    np.testing.assert_allclose(kendall_influence(x, y), at_once, rtol=0, atol=1e-14)


def test_a_correlation_without_a_function_of_its_own_leaves_each_item_out():
    x, y = tied(300)
    plain = Correlation(name="mine", label="Mine", function=CORRELATIONS["spearman"].function)
    difference = plain.influence(x, y) - spearman_influence(x, y)
    assert np.abs(difference).max() < 0.03 * np.abs(spearman_influence(x, y)).max()


@pytest.mark.parametrize("influence", [pearson_influence, spearman_influence, kendall_influence])
def test_of_values_that_are_all_one_there_is_none(influence):
    x, y = tied(9)
    assert np.isnan(influence(np.full(9, 0.1), y)).all()
    assert np.isnan(influence(x, np.full(9, 3.0))).all()
    assert np.isnan(Correlation(name="m", label="M", function=lambda a, b: 0.0).influence(x, np.full(9, 3.0))).all()
