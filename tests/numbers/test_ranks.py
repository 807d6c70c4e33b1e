"""Ranks and the correlations over them are scipy's, to the bit or to rounding."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

from stsbench.numbers.ranks import average_ranks, inversions
from stsbench.numbers.statistics import kendall, pearson, spearman

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


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 33])
def test_inversions_are_those_counted_one_by_one(n):
    values = RNG.integers(0, max(1, n // 2), size=n)
    assert inversions(values) == sum(values[i] > values[j] for j in range(n) for i in range(j))


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
@pytest.mark.parametrize("levels", [3, 40, 10**6])
def test_kendall_is_scipys_to_the_bit(row, levels):
    gold = RNG.integers(0, levels, size=len(row)) / 5
    for x, y in ((row, gold), (gold, row)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            due = float(stats.kendalltau(x, y).statistic)
        assert np.array_equal(kendall(x, y), due, equal_nan=True)
