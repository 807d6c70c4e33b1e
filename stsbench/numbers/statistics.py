"""Correlations, their average over subsets, and their influence functions and intervals.

The influence of item k on a statistic T is the derivative of T as a little weight moves from all
items to k (Hampel 1974; for rank correlations Croux and Dehon 2010). Influences add up to 0. To
first order, the deviation of T over other items is the mean of their influences. Its variance
follows, for independent items and for clusters of them.

95% intervals of one score are computed from each item's influence on it: by Fisher's z for a
correlation, by Wilson's method for a share. Items share sentences: two pairs with the same
sentence are wrong together if an encoder embeds that sentence badly, and pairs without a common
sentence are independent. The variance of a sum over items is then the sum of products over all
pairs of items that share a sentence, the dyadic-robust variance (Fafchamps and Gubert 2007,
equation 2.6; Aronow, Samii and Assenova 2015): for each sentence the squared sum over its items,
minus what is counted twice because two items share both sentences.

The variance of a share of independent items, p (1 - p) / n, is known: its interval is Wilson's
(1927). If items share sentences, the variance is estimated from few of these. Then n is the
number of independent items with the same variance, and Student's quantile, with the degrees of
freedom of the variance, replaces the normal one (Korn and Graubard 1998, Survey Methodology 24,
but with Wilson's interval instead of theirs, as Dean and Pagano 2015, Journal of Survey Statistics
and Methodology 3, advise). With 5 to 20 clusters of 20 items it contains the true value 1 to 2%
less often than theirs and is 8 to 20% narrower; benchmarks/calibration.py compares it with the
normal quantile.
"""

from __future__ import annotations

import hashlib
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
"""Scores, gold scores and similarities; embeddings are float32, see ``encoders.base``."""
IntArray = npt.NDArray[np.int64]
FLAT_TOLERANCE = 1e-13
"""A deviation this small, as a share of the mean, is rounding (scipy's bound)."""
KENDALL_BLOCK = 1 << 22


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


def weighted_rank_sums(x: Float64Array, weights: Float64Array) -> Float64Array:
    """Return a rank-weighted sum for each item, (n,).

    It is the sum of the weights of all items with a higher value, and half of those with the same
    value, divided by n.

    Args:
        x: The values of the items, (n,).
        weights: The weights of the items, (n,).
    """
    _, groups = np.unique(x, return_inverse=True)
    group_weights = np.bincount(groups, weights=weights)
    return np.asarray(
        (group_weights.sum() - np.cumsum(group_weights) + 0.5 * group_weights)[groups]
        / len(weights)
    )


def spearman(x: Float64Array, y: Float64Array) -> float:
    """Return Spearman's rank correlation of x and y, both (n,), with average ranks for ties.

    It is NaN if all values of one are equal.
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
    """Return Kendall's tau-b of x and y, both (n,).

    It is NaN if all values of one are equal, or if a value is NaN.
    """
    from scipy import stats

    if len(x) < 2 or np.isnan(x).any() or np.isnan(y).any():
        return float("nan")
    # The cheaper p-value, as it is not used; for two items that one would divide by zero.
    return float(stats.kendalltau(x, y, method="asymptotic" if len(x) > 2 else "auto").statistic)


def pearson_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """Return the influence of each item on Pearson's correlation, (n,); NaN if that is NaN."""
    u, v = _standardised(x), _standardised(y)
    return np.asarray(u * v - np.mean(u * v) * (u * u + v * v) / 2)


def spearman_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """Return the influence of each item on Spearman's correlation, (n,); NaN if that is NaN.

    Ties have average ranks. The correlation is Pearson's of the mid-distribution functions of x and
    y. An item moves it twice: by its own rank, and by moving the ranks of all items above it.
    """
    u, v = centred_ranks(x), centred_ranks(y)
    variance_u = float(u @ u) / len(u)
    variance_v = float(v @ v) / len(v)
    covariance = float(u @ v) / len(u)
    if not (variance_u > 0 and variance_v > 0):
        return np.full(len(u), np.nan)
    covariance_influence = (
        u * v + weighted_rank_sums(x, v) + weighted_rank_sums(y, u) - 3 * covariance
    )
    u_influence = u * u + 2 * weighted_rank_sums(x, u) - 3 * variance_u
    v_influence = v * v + 2 * weighted_rank_sums(y, v) - 3 * variance_v
    scale = np.sqrt(variance_u * variance_v)
    variances_influence = u_influence / variance_u + v_influence / variance_v
    return np.asarray(covariance_influence / scale - covariance / scale * variances_influence / 2)


def kendall_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """Return the influence of each item on Kendall's tau-b, (n,); NaN if that is NaN.

    It takes n x n steps.
    """
    n = len(x)
    concordance, untied_share_x, untied_share_y = np.empty((3, n))
    block_rows = max(1, KENDALL_BLOCK // n)
    for start in range(0, n, block_rows):
        block = slice(start, start + block_rows)
        signs_x = np.sign(x[block, None] - x)
        signs_y = np.sign(y[block, None] - y)
        concordance[block] = np.einsum("bn,bn->b", signs_x, signs_y) / n
        untied_share_x[block] = np.count_nonzero(signs_x, axis=1) / n
        untied_share_y[block] = np.count_nonzero(signs_y, axis=1) / n
    untied_x = untied_share_x.mean()
    untied_y = untied_share_y.mean()
    if not (untied_x > 0 and untied_y > 0):
        return np.full(n, np.nan)
    scale = np.sqrt(untied_x * untied_y)
    tau = concordance.mean() / scale
    ties_influence = untied_share_x / untied_x + untied_share_y / untied_y - 2
    return np.asarray(2 * (concordance / scale - tau) - tau * ties_influence)


def _standardised(x: Float64Array) -> Float64Array:
    """Return x with mean 0 and deviation 1; NaN if all values are equal up to rounding."""
    centred = x - x.mean()
    deviation = np.sqrt(np.mean(centred**2))
    if deviation <= FLAT_TOLERANCE * abs(x.mean()):
        return np.full(len(x), np.nan)
    return np.asarray(centred / deviation)


def centred_ranks(x: Float64Array) -> Float64Array:
    """Return the mid-distribution function minus one half: ranks from -1/2 to 1/2 with mean 0."""
    return np.asarray((average_ranks(x) - 0.5) / len(x) - 0.5)


@dataclass(frozen=True)
class Correlation:
    """A metric of pairs with gold scores, with all that computes, compares or prints it.

    Attributes:
        name: The name of the metric in protocols.
        label: The name of the metric in tables.
        compute: Return the correlation of values and gold scores, both (n,).
        scale: Transform values, (n,), so that Pearson's correlation of the results is this metric;
            None if there is no such function: values are then never swapped between two encoders.
        influence_function: Return how much each item moves the correlation; None: it is recomputed
            without each item in turn.
        depends_on_ranks_only: Whether only the order of the values counts.
        better: Whether high or low values are better.
    """

    name: str
    label: str
    compute: Callable[[Float64Array, Float64Array], float]
    scale: Callable[[Float64Array], Float64Array] | None = None
    influence_function: Callable[[Float64Array, Float64Array], Float64Array] | None = None
    depends_on_ranks_only: bool = False
    better: Literal["high", "low"] = "high"

    def __call__(self, x: Float64Array, y: Float64Array) -> float:
        """Return the correlation of x and y, both (n,)."""
        return self.compute(x, y)

    def influence(self, x: Float64Array, y: Float64Array) -> Float64Array:
        """Return how much each item moves the correlation, (n,), for intervals and tests.

        It is NaN if the correlation is; without an influence function also for fewer than three
        items.
        """
        if self.influence_function is not None:
            return self.influence_function(x, y)
        if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
            return np.full(len(x), np.nan)
        leave_one_out = np.array(
            [self.compute(np.delete(x, k), np.delete(y, k)) for k in range(len(x))]
        )
        return np.asarray((len(x) - 1) * (leave_one_out.mean() - leave_one_out))


_CORRELATIONS = (
    Correlation(
        name="spearman",
        label="Spearman",
        compute=spearman,
        scale=average_ranks,
        influence_function=spearman_influence,
        depends_on_ranks_only=True,
    ),
    Correlation(
        name="pearson",
        label="Pearson",
        compute=pearson,
        scale=lambda x: x,
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
    """The indices of the items that are correlated together, and each such part's weight."""

    indices: list[npt.NDArray[np.int64]]
    weights: Float64Array


def weigh_subsets(subset: Sequence[str], aggregation: str) -> SubsetWeights:
    """Split items into the parts that an aggregation correlates, in the order of the items.

    Args:
        subset: The subset of each item.
        aggregation: A key of ``AGGREGATIONS``.
    """
    weight_function = AGGREGATIONS[aggregation]
    if weight_function is None:
        return SubsetWeights([np.arange(len(subset))], np.ones(1))
    indices = list(subset_indices(subset).values())
    sizes = np.array(list(map(len, indices)), dtype=np.float64)
    weights = weight_function(sizes)
    return SubsetWeights(indices, weights / weights.sum())


def subset_indices(subset: Sequence[str]) -> dict[str, npt.NDArray[np.int64]]:
    """Return the indices of each subset's items, in the order of the items."""
    names = np.asarray(subset, dtype=object)
    return {name: np.flatnonzero(names == name) for name in dict.fromkeys(subset)}


LEVEL = 0.95
"""The confidence level of intervals."""
CORRELATION_INTERVAL_METHOD = "Fisher's z, with the covariance of pairs that share a sentence"
SHARE_INTERVAL_METHOD = (
    "Wilson score interval by Student's t, with the covariance of items that share a sentence"
)
IMAGE_INTERVAL_METHOD = "Wilson score interval over test images with their captions"
MIN_ITEMS = 4
"""With fewer items the variance of a correlation is unknown."""
SENTENCE_COLUMNS = ("sentence1", "sentence2")
"""The per-item columns with the sentences of an item, as numbers."""


def sentence_columns(*sides: Sequence[str]) -> dict[str, npt.NDArray[np.uint32]]:
    """Return the first four bytes of each sentence's sha256, as per-item columns.

    Two of 26,000 different sentences have the same number with probability 0.08; a few items too
    many then count as dependent.

    Args:
        sides: The sentences of the items, or the first and the second sentences of the pairs.
    """
    keys = (
        np.frombuffer(b"".join(map(_sentence_key, side)), dtype="<u4").astype(np.uint32)
        for side in sides
    )
    return dict(zip(SENTENCE_COLUMNS, keys, strict=False))


# Each encoder has the same sentences again.
@lru_cache(maxsize=1 << 16)
def _sentence_key(sentence: str) -> bytes:
    return hashlib.sha256(sentence.encode("utf-8", "surrogatepass")).digest()[:4]


def read_sentence_ids(columns: Mapping[str, npt.NDArray[Any] | list[str]]) -> IntArray | None:
    """Return the sentences of each item as numbers, (n, 1) or (n, 2), from per-item columns.

    It is None if the columns do not contain them.
    """
    ids_by_side = [
        np.asarray(columns[name]).astype(np.int64) for name in SENTENCE_COLUMNS if name in columns
    ]
    return np.stack(ids_by_side, axis=1) if ids_by_side else None


class ItemDependence:
    """The sentences of n items, prepared for sums over items that share a sentence."""

    def __init__(self, sentences: IntArray) -> None:
        """Assign numbers to the sentences, and to the pairs of them.

        Args:
            sentences: The sentences of each item as numbers, (n, 1) or (n, 2).
        """
        _, sentence_numbers = np.unique(sentences.ravel(), return_inverse=True)
        sides = np.sort(sentence_numbers.reshape(sentences.shape), axis=1)
        self._first, self._last = sides[:, 0], sides[:, -1]
        _, self._pair = np.unique(
            self._first * (1 + sentence_numbers.max()) + self._last, return_inverse=True
        )
        self._has_two_sentences = self._first != self._last
        items_by_sentence = np.bincount(
            np.concatenate([self._first, self._last[self._has_two_sentences]])
        )
        self.are_independent = bool(items_by_sentence.max() == 1)
        """Whether no two items share a sentence."""

    @classmethod
    def without_shared(cls, n: int) -> ItemDependence:
        """Return n items of which no two share a sentence."""
        return cls(np.arange(n)[:, None])

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._first)

    def covariance(self, influences: Float64Array) -> Float64Array:
        """Return sums of products of influences over pairs of items that share a sentence, (k, k).

        If a row's sum with itself is smaller than the sum over each item with itself, as by chance
        or if most items have the same sentence, the latter replaces all sums of that row. There,
        items with the same pair of sentences count as one.

        Args:
            influences: The influences of n items on k statistics, (k, n).
        """
        sums, own_sums = self._products(influences)
        is_too_small = np.diag(sums) < np.diag(own_sums)
        return np.where(is_too_small[:, None] | is_too_small, own_sums, sums)

    def variances_of_differences(self, influences: Float64Array) -> Float64Array:
        """Return the variance of the difference of each two of k statistics, (k, k).

        Each is computed as by :meth:`variance`.

        Args:
            influences: The influences of n items on k statistics, (k, n).
        """
        sums = np.stack(self._products(influences))
        variances = np.diagonal(sums, axis1=1, axis2=2)
        difference_variances: Float64Array = (
            variances[:, :, None] + variances[:, None, :] - 2 * sums
        ).max(axis=0)
        return np.maximum(difference_variances, 0.0)

    def _products(self, influences: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return sums of products over items that share a sentence, and over each item with itself.

        Both are (k, k) for influences (k, n); items with the same pair of sentences count as one.
        """
        influences_of_pairs = influences[:, self._has_two_sentences]
        sentence_sums = self._sums(self._first, influences) + self._sums(
            self._last[self._has_two_sentences], influences_of_pairs
        )
        pair_sums = self._sums(self._pair, influences)
        # Two items with the same two sentences are counted for each sentence.
        double_counted = self._sums(self._pair[self._has_two_sentences], influences_of_pairs)
        return (
            sentence_sums @ sentence_sums.T - double_counted @ double_counted.T,
            pair_sums @ pair_sums.T,
        )

    def variance(self, influences: Float64Array) -> float:
        """Return the sum of products of influences, (n,), over items that share a sentence."""
        return float(self.covariance(influences[None])[0, 0])

    def effective_sample_size(self, weights: Float64Array) -> float:
        """Return the number of independent items of equal weight with the same variance.

        Args:
            weights: The weights of the items in the score, (n,).
        """
        return float(weights.sum()) ** 2 / self.variance(weights)

    def _sums(self, groups: IntArray, influences: Float64Array) -> Float64Array:
        """Return the sums of influences (k, n) in each group of items, (k, number of groups).

        Args:
            groups: The group of each item, (n,).
            influences: The influences of n items on k statistics, (k, n).
        """
        n_groups = 1 + int(max(self._last.max(), self._pair.max()))
        rows = [np.bincount(groups, weights=row, minlength=n_groups) for row in influences]
        return np.array(rows)


def cached_dependence(sentences: IntArray) -> ItemDependence:
    """Return the dependence of items with these sentences, (n, m); all encoders share a cache."""
    return _dependence_of_bytes(sentences.tobytes(), sentences.shape)


@lru_cache(maxsize=16)
def _dependence_of_bytes(content: bytes, shape: tuple[int, ...]) -> ItemDependence:
    return ItemDependence(np.frombuffer(content, dtype=np.int64).reshape(shape))


class StandardError(NamedTuple):
    """A standard error, and its degrees of freedom."""

    error: float
    df: float


def read_dependence(columns: Mapping[str, npt.NDArray[Any] | list[str]], n: int) -> ItemDependence:
    """Return the dependence of n items by their per-item columns.

    The items are independent if the columns have no sentences.
    """
    sentences = read_sentence_ids(columns)
    return ItemDependence.without_shared(n) if sentences is None else ItemDependence(sentences)


def item_weights(subset_weights: SubsetWeights, n: int) -> Float64Array:
    """Return the weight of each of n items in the score, (n,), equal within a subset."""
    weights = np.zeros(n)
    for indices, weight in zip(*subset_weights, strict=True):
        weights[indices] = weight / len(indices)
    return weights


def correlation_influences(
    metric: str, values: Float64Array, gold: Float64Array, subset_weights: SubsetWeights
) -> Float64Array:
    """Return how much each item moves a correlation, or its average over subsets, (n,).

    The influence on a correlation that is NaN is 0; influences are NaN in a subset of fewer than
    ``MIN_ITEMS`` items.

    Args:
        metric: A key of ``CORRELATIONS``.
        values: The similarity of each item, (n,).
        gold: The gold score of each item, (n,).
        subset_weights: The subsets that are correlated apart, with their weights.
    """
    influences = np.zeros(len(values))
    for indices, weight in zip(*subset_weights, strict=True):
        if len(indices) < MIN_ITEMS:
            influences[indices] = np.nan
            continue
        subset_influences = CORRELATIONS[metric].influence(values[indices], gold[indices])
        influences[indices] = weight * np.nan_to_num(subset_influences) / len(indices)
    return influences


def standard_error(
    influences: Float64Array, dependence: ItemDependence, weights: Float64Array
) -> StandardError:
    """Return the standard error of a score; NaN with fewer than two independent items.

    Args:
        influences: How much each item moves the score, (n,).
        dependence: Which items share sentences.
        weights: The weights of the items in the score, (n,).
    """
    n_effective = dependence.effective_sample_size(weights)
    if n_effective < 2:
        return StandardError(float("nan"), df=1.0)
    variance = dependence.variance(influences) * n_effective / (n_effective - 1)
    return StandardError(float(np.sqrt(variance)), n_effective - 1)


def correlation_interval(
    score: float,
    metric: str,
    values: Float64Array,
    gold: Float64Array,
    *,
    subset_weights: SubsetWeights,
    dependence: ItemDependence,
) -> tuple[float, float]:
    """Return the 95% interval of a correlation, or of its average over subsets.

    It is -1 to 1 with too few items.

    Args:
        score: The correlation, or the average.
        metric: A key of ``CORRELATIONS``.
        values: The similarity of each item, (n,).
        gold: The gold score of each item, (n,).
        subset_weights: The subsets that are correlated apart, with their weights.
        dependence: Which items share sentences.
    """
    from scipy import special

    influences = correlation_influences(metric, values, gold, subset_weights)
    weights = item_weights(subset_weights, len(values))
    error, df = standard_error(influences, dependence, weights)
    if np.isnan(error) or df < MIN_ITEMS - 1:
        return -1.0, 1.0
    if abs(score) >= 1 or error == 0:
        return score, score
    half_width = special.stdtrit(df, (1 + LEVEL) / 2) * error / (1 - score**2)
    low, high = np.tanh(np.arctanh(score) + np.array([-half_width, half_width]))
    return float(low), float(high)


def share_interval(values: Float64Array, dependence: ItemDependence) -> tuple[float, float]:
    """Return the 95% interval of a mean of values between 0 and 1, (n,)."""
    n = len(values)
    mean = float(values.mean())
    weights = np.full(n, 1 / n)
    influences = (values - mean) / n
    if dependence.are_independent:
        error = StandardError(float(np.sqrt(dependence.variance(influences))), float("inf"))
    else:
        error = standard_error(influences, dependence, weights)
    return wilson_interval(mean, error, dependence.effective_sample_size(weights))


def wilson_interval(
    mean: float, error: StandardError, effective_items: float
) -> tuple[float, float]:
    """Return Wilson's 95% interval of a mean of values between 0 and 1, from its error.

    Args:
        mean: The mean.
        error: The standard error of the mean.
        effective_items: The number of independent items, for an error of 0: all values are equal
            then, and the interval of a mean of 1 has a width nevertheless.
    """
    from scipy import special

    if not np.isfinite(error.error):
        return 0.0, 1.0
    n = mean * (1 - mean) / error.error**2 if error.error > 0 else effective_items
    z_squared = float(special.stdtrit(error.df, (1 + LEVEL) / 2)) ** 2
    centre = mean + z_squared / (2 * n)
    half_width = np.sqrt(z_squared * (mean * (1 - mean) / n + z_squared / (4 * n * n)))
    low = (centre - half_width) / (1 + z_squared / n)
    high = (centre + half_width) / (1 + z_squared / n)
    return float(max(low, 0.0)), float(min(high, 1.0))
