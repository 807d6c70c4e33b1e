"""Correlations, their aggregation over subsets, and how much each item moves them: its influence function.

The influence of item k on a statistic T is the derivative of T where a little weight goes from all items to k
(Hampel 1974; for rank correlations Croux and Dehon 2010). Influences add up to 0; to first order the deviation of T
over other items is their mean, whence its variance, for independent items and for clusters of them alike.

Ranks are numpy's, because the influence of Spearman's correlation needs the groups of ties too; Pearson's correlation is
ours, because scipy's differs in the last digit of half of all inputs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
"""Scores, gold and similarities; embeddings are float32, see ``encoders.base``."""
IntArray = npt.NDArray[np.int64]
ROUNDING = 1e-13
"""A deviation this small, as a share of the mean, is rounding (scipy's bound)."""
BLOCK = 1 << 22


class Spread(NamedTuple):
    """Mean over seeds, and the deviation of a sample (n - 1); None of a single seed."""

    mean: float
    deviation: float | None


def spread(scores: Sequence[float]) -> Spread:
    """The mean and deviation of one score a seed, in the scores' own unit; there is at least one."""
    return Spread(statistics.fmean(scores), statistics.stdev(scores) if len(scores) > 1 else None)


def average_ranks(x: Float64Array) -> Float64Array:
    """The ranks of values along the last axis, from 1; ties share their mean, and NaN makes all of its row NaN.

    The same as ``scipy.stats.rankdata``, bit for bit.
    """
    if x.ndim > 1:
        return np.array([average_ranks(row) for row in x]).reshape(x.shape)
    return np.full(x.shape, np.nan) if np.isnan(x).any() else Ties.among(x).ranks


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


def spearman(x: Float64Array, y: Float64Array) -> float:
    """Spearman's rank correlation, average ranks for ties; x, y are (n,); NaN where all values of one are the same."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.corrcoef(average_ranks(x), average_ranks(y))[1, 0])


def pearson(x: Float64Array, y: Float64Array) -> float:
    """Pearson's correlation; x, y are (n,); NaN where all values of one are the same."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    x, y = (centred / np.linalg.norm(centred) for centred in (x - x.mean(), y - y.mean()))
    return float(np.clip(x @ y, -1.0, 1.0))


def kendall(x: Float64Array, y: Float64Array) -> float:
    """Kendall's tau-b; x, y are (n,); NaN where all values of one are the same, or not all are numbers."""
    from scipy import stats

    if len(x) < 2 or np.isnan(x).any() or np.isnan(y).any():
        return float("nan")
    # The p-value, which is dropped, is the cheaper one; for two items it divides by zero.
    return float(stats.kendalltau(x, y, method="asymptotic" if len(x) > 2 else "auto").statistic)


def pearson_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """The influence of each item on Pearson's correlation, (n,); NaN where there is no correlation."""
    u, v = _standardised(x), _standardised(y)
    found: Float64Array = u * v - np.mean(u * v) * (u * u + v * v) / 2
    return found


def spearman_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """The influence of each item on Spearman's correlation, average ranks for ties, (n,); NaN where there is none.

    The correlation is Pearson's of the mid-distribution functions of x and y, which an item moves twice: by its own
    place among the ranks, and by moving the ranks of all items above it.
    """
    if np.isnan(x).any() or np.isnan(y).any():
        return np.full(len(x), np.nan)
    of_x, of_y = Ties.among(x), Ties.among(y)
    u, v = ((ties.ranks - 0.5) / len(x) - 0.5 for ties in (of_x, of_y))
    spread_u, spread_v, product = float(u @ u) / len(u), float(v @ v) / len(v), float(u @ v) / len(u)
    if not (spread_u > 0 and spread_v > 0):
        return np.full(len(u), np.nan)
    of_product = u * v + of_x.mean_above(v) + of_y.mean_above(u) - 3 * product
    of_u, of_v = (w * w + 2 * z.mean_above(w) - 3 * s for z, w, s in ((of_x, u, spread_u), (of_y, v, spread_v)))
    scale = np.sqrt(spread_u * spread_v)
    found: Float64Array = of_product / scale - product / scale * (of_u / spread_u + of_v / spread_v) / 2
    return found


def kendall_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """The influence of each item on Kendall's tau-b, (n,); NaN where there is no correlation. Takes n x n steps."""
    product, of_x, of_y = np.empty((3, len(x)))
    rows = max(1, BLOCK // len(x))
    for start in range(0, len(x), rows):
        at = slice(start, start + rows)
        above_x, above_y = (np.sign(z[at, None] - z) for z in (x, y))
        product[at] = np.einsum("bn,bn->b", above_x, above_y) / len(x)
        of_x[at], of_y[at] = (np.count_nonzero(above, axis=1) / len(x) for above in (above_x, above_y))
    untied_x, untied_y = of_x.mean(), of_y.mean()
    if not (untied_x > 0 and untied_y > 0):
        return np.full(len(x), np.nan)
    scale = np.sqrt(untied_x * untied_y)
    tau = product.mean() / scale
    found: Float64Array = 2 * (product / scale - tau) - tau * (of_x / untied_x + of_y / untied_y - 2)
    return found


def _standardised(x: Float64Array) -> Float64Array:
    centred = x - x.mean()
    spread = np.sqrt(np.mean(centred**2))
    if spread <= ROUNDING * abs(x.mean()):
        return np.full(len(x), np.nan)
    found: Float64Array = centred / spread
    return found


def centred_ranks(x: Float64Array) -> Float64Array:
    """The mid-distribution function less one half: average ranks, between -1/2 and 1/2, with mean 0."""
    ranks: Float64Array = (average_ranks(x) - 0.5) / len(x) - 0.5
    return ranks


def mean_above(x: Float64Array, w: Float64Array) -> Float64Array:
    """For each item the sum of w, (n,), over items above it by x and half of those beside it, divided by n."""
    return Ties.among(x).mean_above(w)


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """One metric of pairs with gold scores; whatever computes, compares or prints it reads this row.

    ``scale`` is what is done to values, along the last axis, before Pearson's formula makes the correlation of
    them; None where it does not: values are then never swapped between two encoders. ``influence_function`` gives
    how much each item moves the correlation; None: each item is left out once.
    """

    name: str
    label: str
    function: Callable[[Float64Array, Float64Array], float]
    scale: Callable[[Float64Array], Float64Array] | None = None
    influence_function: Callable[[Float64Array, Float64Array], Float64Array] | None = None
    by_rank: bool = False
    """Whether it depends on the order of the values alone."""
    better: Literal["high", "low"] = "high"

    def __call__(self, x: Float64Array, y: Float64Array) -> float:
        """The correlation of x and y, both (n,)."""
        return self.function(x, y)

    def influence(self, x: Float64Array, y: Float64Array) -> Float64Array:
        """How much each item moves the correlation, (n,), whence intervals and tests; NaN where there is none."""
        if self.influence_function is not None:
            return self.influence_function(x, y)
        if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
            return np.full(len(x), np.nan)
        without = np.array([self.function(np.delete(x, k), np.delete(y, k)) for k in range(len(x))])
        found: Float64Array = (len(x) - 1) * (without.mean() - without)
        return found


_CORRELATIONS = (
    Correlation(
        name="spearman",
        label="Spearman",
        function=spearman,
        scale=average_ranks,
        influence_function=spearman_influence,
        by_rank=True,
    ),
    Correlation(
        name="pearson", label="Pearson", function=pearson, scale=lambda x: x, influence_function=pearson_influence
    ),
    Correlation(name="kendall", label="Kendall", function=kendall, influence_function=kendall_influence, by_rank=True),
)
CORRELATIONS: Mapping[str, Correlation] = {row.name: row for row in _CORRELATIONS}

AGGREGATIONS: Mapping[str, Callable[[Float64Array], Float64Array] | None] = {
    "all": None,
    "mean": np.ones_like,
    "wmean": lambda sizes: sizes,
}
"""How subsets make one score: the weight of each by its number of items; None: they are joined first."""


class Parts(NamedTuple):
    """The indices of the items that are correlated together, and each part's share of the score."""

    indices: list[npt.NDArray[np.int64]]
    shares: Float64Array


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
