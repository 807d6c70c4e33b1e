"""Correlations, their average over subsets, and their influence functions.

The influence of item k on a statistic T is the derivative of T as a little weight moves from all
items to k (Hampel 1974; for rank correlations Croux and Dehon 2010). Influences add up to 0. To
first order, the deviation of T over other items is the mean of their influences. Its variance
follows, for independent items and for those that vary together
(:mod:`stsbench.numbers.dependence`).
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
"""Scores, gold scores and similarities; embeddings are float32, see ``encoders.base``."""
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FLAT_TOLERANCE = 1e-13
"""A deviation this small, as a share of the mean, is rounding (scipy's bound)."""
KENDALL_PAIRS_AT_ONCE = 1 << 22
"""How many pairs of items are compared at once for influences on Kendall's tau-b."""
MIN_ITEMS = 4
"""With fewer items the variance of a correlation is unknown."""


class MeanAndDeviation(NamedTuple):
    """The mean over seeds, and the sample's deviation (n - 1), which is None for a single seed."""

    mean: float
    deviation: float | None


def mean_and_deviation(scores: Sequence[float]) -> MeanAndDeviation:
    """Return the mean and deviation of scores, one per seed and at least one, in their own unit."""
    deviation = statistics.stdev(scores) if len(scores) > 1 else None
    return MeanAndDeviation(statistics.fmean(scores), deviation)


def average_ranks(x: Float64Array) -> Float64Array:
    """Return the ranks of values, (n,), from 1; ties share their mean, and NaN makes all NaN."""
    from scipy import stats

    return np.asarray(stats.rankdata(x))


class RankedValues:
    """Values in groups of equal ones, so that a single sort serves all that depends on ranks.

    Attributes:
        groups: The group of each value, (n,), from the lowest values to the highest.
        centred_ranks: The mid-distribution function minus one half, (n,): ranks from -1/2 to 1/2
            with mean 0; all are NaN if a value is.
    """

    def __init__(self, x: Float64Array) -> None:
        """Put values into groups of equal ones, and rank the groups.

        It sets ``groups``, the group number of each value, (n,), where 0 has the lowest values, and
        ``centred_ranks``, the rank of each value on a scale from -1/2 to 1/2 with mean 0, (n,),
        where equal values share their mean rank. All ranks are NaN if a value is.

        Args:
            x: The values, (n,).
        """
        n = len(x)
        order = np.argsort(x)
        ordered = x[order]
        # Whether a sorted value is the first one of its group.
        is_first = np.ones(n, dtype=bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        starts = np.flatnonzero(is_first)
        sizes = np.diff(starts, append=n)
        self.groups = np.empty(n, dtype=np.int64)
        self.groups[order] = np.cumsum(is_first) - 1
        # Ranks count from 1: a group that begins at index s has the ranks s + 1 to s + size.
        mean_ranks = starts + (1 + sizes) / 2
        centred_rank_by_group = (mean_ranks - 0.5) / n - 0.5
        self.centred_ranks: Float64Array = centred_rank_by_group[self.groups]
        # NaN is sorted last.
        if n and np.isnan(ordered[-1]):
            self.centred_ranks = np.full(n, np.nan)

    def sums_above(self, weights: Float64Array) -> Float64Array:
        """Return for each item the weights of all items with a higher value, divided by n, (n,).

        The weights are added up. Those of items with the same value, the item itself included,
        count half.

        Args:
            weights: The weights of the n items, (n,).
        """
        # self.groups is the group of each item, (n,): items of equal value, lowest values first.
        weight_by_group = np.bincount(self.groups, weights=weights)
        weight_above_group = weight_by_group.sum() - np.cumsum(weight_by_group)
        sum_by_group = weight_above_group + weight_by_group / 2
        return np.asarray(sum_by_group[self.groups] / len(weights))


@lru_cache(maxsize=32)
def _ranked_bytes(content: bytes) -> RankedValues:
    """Rank float64 values given as bytes; cached, for all encoders have the same gold scores."""
    return RankedValues(np.frombuffer(content, dtype=np.float64))


def weighted_rank_sums(x: Float64Array, weights: Float64Array) -> Float64Array:
    """Return for each item the weights of all items with a higher value, divided by n, (n,).

    The weights are added up. Those of items with the same value, the item itself included, count
    half.

    Args:
        x: The values of the n items, (n,).
        weights: The weights of the items, (n,).
    """
    return RankedValues(x).sums_above(weights)


def spearman(x: Float64Array, y: Float64Array) -> float:
    """Return Spearman's rank correlation of x and y, both (n,), with average ranks for ties.

    It is NaN for fewer than two items, if all values of x or all of y are equal (scipy's warning of
    that is not shown), or if a value is NaN.
    """
    from scipy import stats

    with warnings.catch_warnings(action="ignore", category=stats.ConstantInputWarning):
        return float(stats.spearmanr(x, y).statistic)


def pearson(x: Float64Array, y: Float64Array) -> float:
    """Return Pearson's correlation of x and y, both (n,); NaN if all values of one are equal."""
    from scipy import stats

    with warnings.catch_warnings(action="ignore", category=stats.DegenerateDataWarning):
        return float(stats.pearsonr(x, y).statistic) if len(x) > 1 else float("nan")


def kendall(x: Float64Array, y: Float64Array) -> float:
    """Return Kendall's tau-b of x and y, both (n,), a rank correlation by pairs of items.

    It is NaN for fewer than two items, if all values of x or all of y are equal, or if a value is
    NaN.
    """
    from scipy import stats

    if len(x) < 2 or np.isnan(x).any() or np.isnan(y).any():
        return float("nan")
    # scipy computes a p-value too, which is not used: the asymptotic one is the cheapest, but for
    # two items it would divide by zero.
    p_value_method: Literal["asymptotic", "auto"] = "asymptotic" if len(x) > 2 else "auto"
    return float(stats.kendalltau(x, y, method=p_value_method).statistic)


def pearson_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """Return how much each item moves Pearson's correlation, (n,); NaN if the correlation is NaN.

    With u and v the values of x and y, scaled to mean 0 and standard deviation 1 (NaN if all values
    are equal), the correlation r is the mean of u v, and the influence of an item is
    u v - r (u² + v²) / 2.

    Args:
        x: The first values of the items, (n,).
        y: Their second values, (n,).
    """
    u, v = _standardised(x), _standardised(y)
    r = np.mean(u * v)
    return np.asarray(u * v - r * (u * u + v * v) / 2)


def spearman_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """Return how much each item moves Spearman's correlation, (n,).

    Let u and v be the ranks of x and y, on a scale from -1/2 to 1/2 with mean 0. The correlation is
    the covariance, the mean of u v, over the root of the product of the two variances, the means of
    u² and of v².

    An item moves the mean of a product of two ranks in three ways: by its own product; by raising
    the first rank of all items above it in the first variable; and by raising the second rank of
    all items above it in the second. The mean of each of the three over all items is the mean of
    the product itself. So three times that mean is subtracted, and the influences add up to 0.

    The influences on the covariance and on the variances give that on the correlation, by the rule
    for the derivative of a quotient: covariance_influence / scale
    - correlation (u_influence / variance_u + v_influence / variance_v) / 2.

    All are NaN if the correlation is: if all values of x, or all of y, are equal.

    Args:
        x: The values of the items, (n,).
        y: Their gold scores, (n,), whose ranks are cached.
    """
    ranked_x = RankedValues(x)
    # RankedValues(y), from a cache by y's bytes.
    ranked_y = _ranked_bytes(np.asarray(y, dtype=np.float64).tobytes())
    u, v = ranked_x.centred_ranks, ranked_y.centred_ranks
    variance_u = float(u @ u) / len(u)
    variance_v = float(v @ v) / len(v)
    covariance = float(u @ v) / len(u)
    if not (variance_u > 0 and variance_v > 0):
        return np.full(len(u), np.nan)
    covariance_influence = u * v + ranked_x.sums_above(v) + ranked_y.sums_above(u) - 3 * covariance
    u_influence = u * u + 2 * ranked_x.sums_above(u) - 3 * variance_u
    v_influence = v * v + 2 * ranked_y.sums_above(v) - 3 * variance_v
    scale = np.sqrt(variance_u * variance_v)
    correlation = covariance / scale
    variances_influence = u_influence / variance_u + v_influence / variance_v
    return np.asarray(covariance_influence / scale - correlation * variances_influence / 2)


def kendall_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """Return how much each item moves Kendall's tau-b, (n,); NaN if tau-b is NaN.

    Tau-b compares every two items: do x and y put them in the same order? For item i

    * c_i is the mean over all items j of sign(x_i - x_j) sign(y_i - y_j);
    * a_i is the share of items j whose x differs from that of i, and b_i that whose y differs.

    With s the root of mean(a) mean(b), tau-b is mean(c) / s, and the influence of item i is
    2 (c_i / s - tau) - tau (a_i / mean(a) + b_i / mean(b) - 2). It takes n x n steps.

    Args:
        x: The first values of the items, (n,).
        y: Their second values, (n,).
    """
    n = len(x)
    c, a, b = np.empty((3, n))
    # At most KENDALL_PAIRS_AT_ONCE pairs of items are in memory.
    block_rows = max(1, KENDALL_PAIRS_AT_ONCE // n)
    for start in range(0, n, block_rows):
        block = slice(start, start + block_rows)
        signs_x = np.sign(x[block, None] - x)
        signs_y = np.sign(y[block, None] - y)
        c[block] = np.einsum("bn,bn->b", signs_x, signs_y) / n
        a[block] = np.count_nonzero(signs_x, axis=1) / n
        b[block] = np.count_nonzero(signs_y, axis=1) / n
    mean_a = a.mean()
    mean_b = b.mean()
    if not (mean_a > 0 and mean_b > 0):
        return np.full(n, np.nan)
    s = np.sqrt(mean_a * mean_b)
    tau = c.mean() / s
    ties_influence = a / mean_a + b / mean_b - 2
    return np.asarray(2 * (c / s - tau) - tau * ties_influence)


def _standardised(x: Float64Array) -> Float64Array:
    """Return x with mean 0 and deviation 1; NaN if all values are equal up to rounding."""
    centred = x - x.mean()
    deviation = np.sqrt(np.mean(centred**2))
    if deviation <= FLAT_TOLERANCE * abs(x.mean()):
        return np.full(len(x), np.nan)
    return np.asarray(centred / deviation)


def centred_ranks(x: Float64Array) -> Float64Array:
    """Return the mid-distribution function minus one half: ranks from -1/2 to 1/2 with mean 0."""
    return RankedValues(x).centred_ranks


@dataclass(frozen=True)
class Correlation:
    """A metric of pairs with gold scores, with all that computes, compares or prints it.

    Attributes:
        name: The name of the metric in protocols.
        label: The name of the metric in tables.
        compute: Return the correlation of values and gold scores, both (n,).
        to_pearson: Transform values, (n,), so that Pearson's correlation of the results is this
            metric; None if there is no such function: values are then never swapped between two
            encoders.
        influence_function: Return how much each item moves the correlation; None: it is recomputed
            without each item in turn.
        depends_on_ranks_only: Whether only the order of the values counts.
        better: Whether high or low values are better.
    """

    name: str
    label: str
    compute: Callable[[Float64Array, Float64Array], float]
    to_pearson: Callable[[Float64Array], Float64Array] | None = None
    influence_function: Callable[[Float64Array, Float64Array], Float64Array] | None = None
    depends_on_ranks_only: bool = False
    better: Literal["high", "low"] = "high"

    def __call__(self, x: Float64Array, y: Float64Array) -> float:
        """Return the correlation of x and y, both (n,)."""
        return self.compute(x, y)

    def influence(self, x: Float64Array, y: Float64Array) -> Float64Array:
        """Return how much each item moves the correlation, (n,), for intervals and tests.

        ``self.influence_function`` computes it. A metric whose function is None takes the
        jackknife: the correlation is recomputed without each item in turn, and the influence of an
        item is n - 1 times (the mean of these n correlations less the one without the item).

        The influences are NaN if the correlation is NaN, and those of the jackknife with fewer than
        three items too.

        Args:
            x: The values of the items, (n,).
            y: Their gold scores, (n,).
        """
        if self.influence_function is not None:
            return self.influence_function(x, y)
        n = len(x)
        # The range of the values, ptp() (peak to peak), is 0 if all are equal.
        if n < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
            return np.full(n, np.nan)
        without_item = np.array([self.compute(np.delete(x, k), np.delete(y, k)) for k in range(n)])
        return np.asarray((n - 1) * (without_item.mean() - without_item))


_CORRELATIONS = (
    Correlation(
        name="spearman",
        label="Spearman",
        compute=spearman,
        to_pearson=average_ranks,
        influence_function=spearman_influence,
        depends_on_ranks_only=True,
    ),
    Correlation(
        name="pearson",
        label="Pearson",
        compute=pearson,
        to_pearson=lambda x: x,
        influence_function=pearson_influence,
    ),
    Correlation(
        name="kendall",
        label="Kendall",
        compute=kendall,
        influence_function=kendall_influence,
        depends_on_ranks_only=True,
    ),
)
CORRELATIONS: Mapping[str, Correlation] = {row.name: row for row in _CORRELATIONS}

AGGREGATIONS: Mapping[str, Callable[[Float64Array], Float64Array] | None] = {
    "all": None,
    "mean": np.ones_like,
    "wmean": lambda sizes: sizes,
}
"""By name, the weights of subsets by their sizes; None: the items are correlated together."""


class SubsetWeights(NamedTuple):
    """The subsets in which items are correlated, and how much each counts in the average."""

    indices: list[npt.NDArray[np.int64]]
    """The indices of each subset's items; all items if they are correlated together."""
    weights: Float64Array
    """The weight of each subset's correlation in the average, (subsets,); they sum to 1."""


def weigh_subsets(subset: Sequence[str], aggregation: str) -> SubsetWeights:
    """Split items into the subsets that are correlated apart, with the weight of each.

    A score is the weighted average of the subsets' correlations.

    Args:
        subset: The name of each item's subset, n names.
        aggregation: ``all``: all items are correlated together, as one subset with weight 1.
            ``mean``: all subsets count equally. ``wmean``: by their number of items.

    Returns:
        The indices of each subset's items, and the weight of each subset, (subsets,); the weights
        sum to 1. Subsets are in the order of their first items.
    """
    # AGGREGATIONS has for each name a function from the sizes of subsets to their weights.
    weight_function = AGGREGATIONS[aggregation]
    # None for ``all``.
    if weight_function is None:
        all_items = np.arange(len(subset))
        return SubsetWeights([all_items], np.ones(1))
    indices_by_subset = list(subset_indices(subset).values())
    sizes = np.array(list(map(len, indices_by_subset)), dtype=np.float64)
    weights = weight_function(sizes)
    return SubsetWeights(indices_by_subset, weights / weights.sum())


def subset_indices(subset: Sequence[str]) -> dict[str, npt.NDArray[np.int64]]:
    """Return the indices of each subset's items, in the order of the items."""
    names = np.asarray(subset, dtype=object)
    return {name: np.flatnonzero(names == name) for name in dict.fromkeys(subset)}


def item_weights(subset_weights: SubsetWeights, n: int) -> Float64Array:
    """Return the weight of each of n items in the score, (n,), equal within a subset."""
    weights = np.zeros(n)
    for indices, weight in zip(subset_weights.indices, subset_weights.weights, strict=True):
        weights[indices] = weight / len(indices)
    return weights


def correlation_influences(
    metric: str, values: Float64Array, gold: Float64Array, subset_weights: SubsetWeights
) -> Float64Array:
    """Return how much each item moves a correlation, or its average over subsets, (n,).

    With the weight w of a subset of m items and the influence i of an item on the subset's
    correlation, the item moves the average by w i / m.

    * A correlation that is NaN counts as 0, and so do the influences on it.
    * Influences are NaN in a subset of fewer than ``MIN_ITEMS`` (4) items: unreliable there.

    Args:
        metric: A key of ``CORRELATIONS``: ``spearman``, ``pearson`` or ``kendall``.
        values: The similarity of each item, (n,).
        gold: The gold score of each item, (n,).
        subset_weights: The subsets that are correlated apart: the indices of the items of each, and
            the weight of each in the average.
    """
    influences = np.full(len(values), np.nan)
    for indices, weight in zip(subset_weights.indices, subset_weights.weights, strict=True):
        if len(indices) >= MIN_ITEMS:
            of_subset = CORRELATIONS[metric].influence(values[indices], gold[indices])
            influences[indices] = weight * np.nan_to_num(of_subset) / len(indices)
    return influences
