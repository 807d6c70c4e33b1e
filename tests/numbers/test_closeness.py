"""Alignment and uniformity against their formulas, pair by pair."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from stsbench.numbers import closeness
from stsbench.numbers.closeness import alignment, uniformity

X = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
Y = np.random.default_rng(2).normal(size=(7, 3)).astype(np.float32)


def squared_distance(u: Any, v: Any) -> float:
    u, v = ([float(one) / math.hypot(*map(float, row)) for one in row] for row in (u, v))
    return math.dist(u, v) ** 2


def test_alignment_is_the_mean_squared_distance_of_pairs():
    wanted = sum(squared_distance(u, v) for u, v in zip(X, Y, strict=True)) / 7
    assert alignment(X, Y) == pytest.approx(wanted, rel=1e-12)
    assert alignment(X, 3 * X) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("rows", [2, 7, 1024])
def test_uniformity_is_over_distinct_pairs_however_many_rows_go_at_once(monkeypatch, rows):
    monkeypatch.setattr(closeness, "ROWS", rows)
    terms = [math.exp(-2 * squared_distance(u, v)) for u, v in itertools.combinations(X, 2)]
    assert uniformity(X) == pytest.approx(math.log(sum(terms) / len(terms)), rel=1e-12)


def test_embeddings_that_are_all_alike_are_the_least_uniform():
    assert uniformity(np.ones((4, 3))) == pytest.approx(0, abs=1e-12)
    assert uniformity(np.zeros((4, 3))) == 0
