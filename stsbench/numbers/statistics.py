"""Correlations and their aggregation over subsets, one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.influence import kendall_influence, pearson_influence, spearman_influence
from stsbench.numbers.ranks import average_ranks, inversions, tied_pairs


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
    """Kendall's tau-b; x, y are (n,); NaN where all values of one are the same. As ``scipy.stats.kendalltau``, bit for bit."""
    if np.isnan(x).any() or np.isnan(y).any():
        return float("nan")
    order = np.lexsort((y, x))
    _, of_x = np.unique(x[order], return_inverse=True)
    _, of_y = np.unique(y[order], return_inverse=True)
    every = len(x) * (len(x) - 1) // 2
    tied_x, tied_y, tied = map(tied_pairs, (of_x, of_y, of_x * (len(x) + 1) + of_y))
    if every in (tied_x, tied_y):
        return float("nan")
    # Sorted by x, and by y where x is tied, two items stand in the wrong order by y exactly where they disagree.
    more = every - tied_x - tied_y + tied - 2 * inversions(of_y)
    return float(np.clip(more / np.sqrt(every - tied_x) / np.sqrt(every - tied_y), -1.0, 1.0))


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
