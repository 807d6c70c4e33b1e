"""Influence functions: against the correlation of items with unequal weights, worked out literally."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.influence import kendall_influence, pearson_influence, spearman_influence
from stsbench.numbers.statistics import CORRELATIONS, Correlation

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
    monkeypatch.setattr("stsbench.numbers.influence.BLOCK", 100)
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
