"""Correlations and their aggregation over subsets, one row each, and bootstrap intervals, many resamples at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
"""How often each of n items was drawn in each of b bootstrap samples, (b, n)."""


def spearman(x: FloatArray, y: FloatArray) -> float:
    """Spearman's rank correlation, average ranks for ties; x, y are (n,)."""
    from scipy import stats

    return float(stats.spearmanr(x, y).statistic)


def pearson(x: FloatArray, y: FloatArray) -> float:
    """Pearson's correlation; x, y are (n,)."""
    from scipy import stats

    return float(stats.pearsonr(x, y).statistic)


def kendall(x: FloatArray, y: FloatArray) -> float:
    """Kendall's tau-b; x, y are (n,)."""
    from scipy import stats

    return float(stats.kendalltau(x, y).statistic)


ROUNDING = 1e-13
"""A deviation this small, as a share of the mean, is rounding (scipy's bound)."""


def resample(n: int, *, resamples: int, rng: np.random.Generator, block: int = 64) -> Iterator[Counts]:
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

    def __call__(self, counts: Counts) -> FloatArray:
        """Return mid-ranks, (b, n), for counts (b, n); rows of items not drawn are meaningless."""
        per_group = np.add.reduceat(counts[:, self._order], self._starts, axis=1)
        below = np.cumsum(per_group, axis=1) - per_group
        middle: FloatArray = (below + 0.5 * per_group)[:, self._group]
        return middle


def weighted_pearson(x: FloatArray, y: FloatArray, weights: Counts) -> FloatArray:
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


class Scale(NamedTuple):
    """What is done to values before Pearson's formula makes the correlation of them."""

    whole: Callable[[FloatArray], FloatArray]
    """Of all items, along the last axis."""
    drawn: Callable[[FloatArray], Callable[[Counts], FloatArray]]
    """Of one variable, (n,), within bootstrap samples: (b, n), or (n,) where samples change nothing."""


def _ranks(x: FloatArray) -> FloatArray:
    from scipy import stats

    ranks: FloatArray = stats.rankdata(x, axis=-1)
    return ranks


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """One metric of pairs with gold scores; whatever computes, resamples, compares or prints it reads this row.

    ``scale`` is None where the correlation is not Pearson's of scaled values: bootstrap samples are then scored
    one by one, and there is no paired test.
    """

    name: str
    label: str
    function: Callable[[FloatArray, FloatArray], float]
    scale: Scale | None
    by_rank: bool = False
    """Whether it depends on the order of the values alone."""
    better: Literal["high", "low"] = "high"

    def __call__(self, x: FloatArray, y: FloatArray) -> float:
        """The correlation of x and y, both (n,)."""
        return self.function(x, y)

    def resampled(self, x: FloatArray, y: FloatArray, counts: Counts) -> FloatArray:
        """The correlation within each bootstrap sample, (b,), NaN where a sample has none; x, y are (n,)."""
        if self.scale is None:
            drawn = (np.repeat(np.arange(len(x)), row) for row in counts)
            return np.array([self.function(x[at], y[at]) if len(at) > 1 else np.nan for at in drawn])
        return weighted_pearson(self.scale.drawn(x)(counts), self.scale.drawn(y)(counts), counts)


_CORRELATIONS = (
    Correlation(
        name="spearman", label="Spearman", function=spearman, scale=Scale(_ranks, ResampledRanks), by_rank=True
    ),
    Correlation(
        name="pearson", label="Pearson", function=pearson, scale=Scale(lambda x: x, lambda x: lambda counts: x)
    ),
    Correlation(name="kendall", label="Kendall", function=kendall, scale=None, by_rank=True),
)
CORRELATIONS: Mapping[str, Correlation] = {row.name: row for row in _CORRELATIONS}

AGGREGATIONS: Mapping[str, Callable[[FloatArray], FloatArray] | None] = {
    "all": None,
    "mean": np.ones_like,
    "wmean": lambda sizes: sizes,
}
"""How subsets make one score: the weight of each by its number of items; None: they are joined first."""


class Parts(NamedTuple):
    """The indices of the items that are correlated together, and each part's share of the score."""

    indices: list[npt.NDArray[np.int64]]
    shares: FloatArray


def split_parts(subset: Sequence[str], aggregation: str) -> Parts:
    """Cut items into the parts that an aggregation correlates; ``subset`` is each item's, parts in the order met."""
    weigh = AGGREGATIONS[aggregation]
    if weigh is None:
        return Parts([np.arange(len(subset))], np.ones(1))
    indices = list(subset_indices(subset).values())
    weights = weigh(np.array([len(at) for at in indices], dtype=np.float64))
    return Parts(indices, weights / weights.sum())


def subset_indices(subset: Sequence[str]) -> dict[str, npt.NDArray[np.int64]]:
    """The indices of each subset's items, subsets in the order met."""
    names = np.asarray(subset, dtype=object)
    return {name: np.flatnonzero(names == name) for name in dict.fromkeys(subset)}


def percentile_interval(values: FloatArray, *, level: float = 0.95) -> tuple[float, float]:
    """The percentile bootstrap interval of a correlation; resamples without a value (no variance) are left out."""
    if np.isnan(values).all():
        # So few items that nothing is known.
        return -1.0, 1.0
    tail = (1 - level) / 2
    low, high = np.nanquantile(values, [tail, 1 - tail])
    return float(low), float(high)
