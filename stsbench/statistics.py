"""Correlations, and bootstrap intervals of them, many resamples at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]
Correlation = Callable[[FloatArray, FloatArray], float]


def spearman(x: FloatArray, y: FloatArray) -> float:
    """Spearman's rank correlation, average ranks for ties; x, y are (n,)."""
    return float(stats.spearmanr(x, y).statistic)


def pearson(x: FloatArray, y: FloatArray) -> float:
    """Pearson's correlation; x, y are (n,)."""
    return float(stats.pearsonr(x, y).statistic)


def kendall(x: FloatArray, y: FloatArray) -> float:
    """Kendall's tau-b; x, y are (n,)."""
    return float(stats.kendalltau(x, y).statistic)


ROUNDING = 1e-13
"""A deviation this small, as a share of the mean, is rounding (scipy's bound)."""
CORRELATIONS: dict[str, Correlation] = {"spearman": spearman, "pearson": pearson, "kendall": kendall}


def resample(n: int, *, resamples: int, rng: np.random.Generator, block: int = 64) -> Iterator[npt.NDArray[np.int64]]:
    """Draw bootstrap samples of n items: blocks of how often each item was drawn, (<= block, n)."""
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = rng.integers(0, n, size=(rows, n))
        offset = np.arange(rows)[:, None] * n
        yield np.bincount((drawn + offset).ravel(), minlength=rows * n).reshape(rows, n)


class ResampledRanks:
    """Average ranks of one variable within bootstrap samples given as counts.

    Sorting happens once: within a sample, the average rank of a tie group is the number of
    items drawn from smaller groups, plus half of those drawn from its own.
    """

    def __init__(self, x: FloatArray) -> None:
        """Find the tie groups of x, shape (n,)."""
        _, self._group = np.unique(x, return_inverse=True)
        self._order = np.argsort(self._group, kind="stable")
        self._starts = np.flatnonzero(np.diff(self._group[self._order], prepend=-1))

    def __call__(self, counts: npt.NDArray[np.int64]) -> FloatArray:
        """Return mid-ranks, (b, n), for counts (b, n); rows of items not drawn are meaningless."""
        per_group = np.add.reduceat(counts[:, self._order], self._starts, axis=1)
        below = np.cumsum(per_group, axis=1) - per_group
        middle: FloatArray = (below + 0.5 * per_group)[:, self._group]
        return middle


def weighted_pearson(x: FloatArray, y: FloatArray, weights: npt.NDArray[np.int64]) -> FloatArray:
    """Pearson's correlation with item weights: x, y (n,) or (b, n); weights (b, n); returns (b,), NaN without variance."""
    total = weights.sum(axis=1)
    mean_x = np.einsum("bn,bn->b", weights, np.broadcast_to(x, weights.shape)) / total
    mean_y = np.einsum("bn,bn->b", weights, np.broadcast_to(y, weights.shape)) / total
    dx, dy = x - mean_x[:, None], y - mean_y[:, None]
    weighted = weights * dx
    spread_x, spread_y = np.einsum("bn,bn->b", weighted, dx), np.einsum("bn,bn,bn->b", weights, dy, dy)
    # A sample that drew one value has no correlation; the rounding of its mean would make one up.
    flat = (spread_x <= total * (ROUNDING * mean_x) ** 2) | (spread_y <= total * (ROUNDING * mean_y) ** 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(flat, np.nan, np.einsum("bn,bn->b", weighted, dy) / np.sqrt(spread_x * spread_y))


def resampled_correlation(x: FloatArray, y: FloatArray, counts: npt.NDArray[np.int64], *, metric: str) -> FloatArray:
    """Spearman or Pearson of (x, y) within each bootstrap sample; counts (b, n); returns (b,)."""
    if metric == "spearman":
        return weighted_pearson(ResampledRanks(x)(counts), ResampledRanks(y)(counts), counts)
    return weighted_pearson(x, y, counts)


def percentile_interval(values: FloatArray, *, level: float = 0.95) -> tuple[float, float]:
    """The percentile bootstrap interval of a correlation; resamples without a value (no variance) are left out."""
    if np.isnan(values).all():
        # So few items that nothing is known.
        return -1.0, 1.0
    tail = (1 - level) / 2
    low, high = np.nanquantile(values, [tail, 1 - tail])
    return float(low), float(high)
