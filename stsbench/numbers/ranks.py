"""Ranks, ties sharing their mean. By numpy: scipy.stats takes longer to import than a whole board to print."""

from __future__ import annotations

import numpy as np

from stsbench.numbers.arrays import Float64Array


def average_ranks(x: Float64Array) -> Float64Array:
    """The ranks of values along the last axis, from 1; ties share their mean, and NaN makes all of its row NaN.

    The same as ``scipy.stats.rankdata``, bit for bit.
    """
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim > 1:
        return np.array([average_ranks(row) for row in rows]).reshape(rows.shape)
    if np.isnan(rows).any():
        return np.full(rows.shape, np.nan)
    _, group, counts = np.unique(rows, return_inverse=True, return_counts=True)
    ranks: Float64Array = (np.cumsum(counts) - (counts - 1) / 2)[group]
    return ranks
