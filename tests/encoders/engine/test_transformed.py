"""Embeddings changed when they are asked for: the same rows by every way to ask."""

import numpy as np

from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.transformed import TransformedEngine
from tests.encoders.fakes import Plain

TEXTS = ["a", "b", "a", "c"]


def test_rows_are_changed_and_kept_in_order():
    base = Plain(d=4)
    view = TransformedEngine(Engine(base), lambda rows: 2 * rows[:, :3])(TEXTS)
    expected = 2 * base.encode(TEXTS)[:, :3]
    assert view.shape == (4, 3)
    assert np.array_equal(np.asarray(view), expected)
    assert np.array_equal(view.take(np.array([3, 0])), expected[[3, 0]])
    assert np.asarray(view, dtype=np.float64).dtype == np.float64
