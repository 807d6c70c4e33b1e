"""Tail probabilities over items and seeds equal integrals taken literally."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from stsbench.numbers.intervals import StandardError
from stsbench.numbers.tails import SummedVariances, tail_quantiles, upper_tails

ITEM_DF = 50.0


def literal_tail(distance: float, item_variance: float, seed_variance: float, df: float) -> float:
    """Integrate Student's tail over the chi-squared distribution, in log y."""

    def integrand(log_y: float) -> float:
        y = np.exp(log_y)
        variance = item_variance + seed_variance / y
        tail = stats.norm.sf(distance / variance**0.5)
        if item_variance:
            item_df = ITEM_DF * (variance / item_variance) ** 2
            tail = stats.t.sf(distance / variance**0.5, item_df)
        # The density of log y, if y df is chi-squared.
        return float(tail * stats.chi2.pdf(df * y, df) * df * y)

    ends = [-120 / df - 2, -1.0, 0.0, 1.0, np.log(1 + 200 / df)]
    ends = sorted({end for end in ends if end <= np.log(1 + 200 / df)})
    parts = [
        integrate.quad(integrand, low, high, epsabs=0, epsrel=1e-9, limit=500)[0]
        for low, high in zip(ends, ends[1:], strict=False)
    ]
    return sum(parts)


@pytest.mark.parametrize("df", [1.0, 2.0, 3.3, 18.0])
@pytest.mark.parametrize("item_variance", [0.0, 0.1, 10.0])
def test_tails_equal_the_integral(df: float, item_variance: float):
    for distance in (-2.0, 0.0, 0.3, 2.0, 8.0):
        variances = SummedVariances(np.array([item_variance]), ITEM_DF, np.ones(1), np.array([df]))
        (tail,) = upper_tails(np.array([distance]), variances)
        assert tail == pytest.approx(literal_tail(distance, item_variance, 1.0, df), rel=5e-4)


@pytest.mark.parametrize("df", [1.0, 2.0, 4.0, 40.0, 1e4])
def test_tails_are_students_if_one_part_is_all(df: float):
    distances = np.array([0.5, 2.0, 5.0])
    zeros, ones, dfs = np.zeros(3), np.ones(3), np.full(3, df)
    by_seeds = upper_tails(distances, SummedVariances(zeros, ITEM_DF, ones, dfs))
    assert by_seeds == pytest.approx(stats.t.sf(distances, df), rel=1e-4)
    by_items = upper_tails(distances, SummedVariances(ones, ITEM_DF, 1e-20 * ones, dfs))
    assert by_items == pytest.approx(stats.t.sf(distances, ITEM_DF), rel=1e-6)
    assert StandardError(2.0, ITEM_DF, 2.0, df).half_width == pytest.approx(
        2 * stats.t.ppf(0.975, df), rel=1e-4
    )
    assert StandardError(2.0, df).upper_tail(3.0) == pytest.approx(stats.t.sf(1.5, df))


def test_quantiles_invert_tails():
    rng = np.random.default_rng(0)
    item_variances, seed_variances = rng.gamma(1.0, size=(2, 50))
    dfs = rng.uniform(1.0, 20.0, 50)
    for probability in (0.4, 0.025, 1e-5):
        variances = SummedVariances(item_variances, ITEM_DF, seed_variances, dfs)
        tails = upper_tails(tail_quantiles(probability, variances), variances)
        assert tails == pytest.approx(np.full(50, probability), rel=1e-6)


def test_a_difference_over_seeds_is_significant_exactly_if_its_interval_leaves_0_out():
    rng = np.random.default_rng(1)
    for _ in range(200):
        error = float(rng.gamma(1.0))
        standard_error = StandardError(error, 100.0, error * rng.uniform(0.1, 1.0), seed_df=3.0)
        distance = 3 * error * rng.uniform()
        is_significant = 2 * standard_error.upper_tail(distance) < 0.05
        assert is_significant is (distance > standard_error.half_width)
