"""Correlations and parts by hand."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from stsbench.numbers.statistics import (
    AGGREGATIONS,
    CORRELATIONS,
    kendall,
    pearson,
    spearman,
    split_parts,
)

Floats = npt.NDArray[np.float64]


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def test_spearman_by_hand():
    # Ranks 1 2 3 4 5 and 2 1 4 3 5: rho = 1 - 6 * sum(d^2) / (n (n^2 - 1)).
    d2 = 1 + 1 + 1 + 1 + 0
    assert spearman(array(1, 2, 3, 4, 5), array(20, 10, 40, 30, 50)) == pytest.approx(1 - 6 * d2 / (5 * 24), abs=1e-15)


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


def test_a_row_is_named_as_the_table_names_it():
    assert all(name == row.name for name, row in CORRELATIONS.items())


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
