"""Ranks, ties sharing their mean. By numpy: scipy.stats takes longer to import than a whole board to print."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from stsbench.numbers.arrays import Float64Array, IntArray


def average_ranks(x: Float64Array) -> Float64Array:
    """The ranks of values along the last axis, from 1; ties share their mean, and NaN makes all of its row NaN.

    The same as ``scipy.stats.rankdata``, bit for bit.
    """
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim > 1:
        return np.array([average_ranks(row) for row in rows]).reshape(rows.shape)
    if np.isnan(rows).any():
        return np.full(rows.shape, np.nan)
    return Ties.among(rows).ranks


class Ties(NamedTuple):
    """Which of n values are the same: the number of each one's group (n,), groups in rising order, and their sizes."""

    group: IntArray
    sizes: IntArray

    @classmethod
    def among(cls, values: Float64Array) -> Self:
        """Sort the values."""
        _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
        return cls(group, sizes)

    @property
    def ranks(self) -> Float64Array:
        """From 1; ties share their mean."""
        ranks: Float64Array = (np.cumsum(self.sizes) - (self.sizes - 1) / 2)[self.group]
        return ranks

    def mean_above(self, weights: Float64Array) -> Float64Array:
        """For each value the sum of weights, (n,), of values above it and half of those beside it, divided by n."""
        sums = np.bincount(self.group, weights=weights)
        found: Float64Array = (sums.sum() - np.cumsum(sums) + 0.5 * sums)[self.group] / len(weights)
        return found


def tied_pairs(values: IntArray) -> int:
    """How many pairs of values (n,) are equal."""
    _, counts = np.unique(values, return_counts=True)
    return int((counts * (counts - 1) // 2).sum())


def inversions(values: IntArray) -> int:
    """How many pairs of values (n,), each at least 0 and below n, stand in falling order.

    Blocks twice as long at each step are sorted; what of a block's second half is passed by values of its first is counted.
    """
    n, found, half = len(values), 0, 1
    place = np.arange(n)
    # A block's values, and nothing of others, lie between its own number's multiples.
    values = values + place * n
    while half < n:
        block, second = place // (2 * half), place // half % 2 == 1
        keys = values % n + block * n
        first = keys[~second]
        passed = np.searchsorted(first, keys[second], side="right")
        ends = np.minimum((block[second] + 1) * half, len(first))
        found += int((ends - passed).sum())
        values, half = np.sort(keys, kind="stable"), 2 * half
    return found
