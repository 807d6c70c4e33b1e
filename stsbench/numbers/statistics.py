"""Correlations, their aggregation over subsets, and how much each item moves them: its influence function.

The influence of item k on a statistic T is the derivative of T where a little weight goes from all items to k
(Hampel 1974; for rank correlations Croux and Dehon 2010). Influences add up to 0; to first order the deviation of T
over other items is their mean, whence its variance, for independent items and for clusters of them alike.

95% intervals of one score come from each item's share in it: of correlations by Fisher's z, of shares by Wilson's way.
Items share sentences. Two pairs that hold one sentence are wrong together where an encoder embeds that sentence badly;
pairs without a sentence in common are independent. The variance of a sum over items is then the sum of products over all
pairs of items that share a sentence, the dyadic-robust variance (Fafchamps and Gubert 2007, equation 2.6; Aronow, Samii and
Assenova 2015): for each sentence the squared sum over its items, less what is counted twice because two items share both.

A share of independent items varies by p (1 - p) / n, which is known: its interval is Wilson's (1927). Where items share
sentences the variance is estimated from few of these: n is then the number of independent items that would vary as much,
and Student's quantile, with as many degrees of freedom as the variance has, stands in the place of the normal one (Korn and
Graubard 1998, Survey Methodology 24, with Wilson's interval in the place of theirs, as Dean and Pagano 2015, Journal of
Survey Statistics and Methodology 3, advise). With 5 to 20 clusters of 20 items it holds the truth 1 to 2% less often than
theirs and is 8 to 20% narrower; benchmarks/calibration.py shows it beside the normal quantile.
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
"""Scores, gold and similarities; embeddings are float32, see ``encoders.base``."""
IntArray = npt.NDArray[np.int64]
FLAT_TOLERANCE = 1e-13
"""A deviation this small, as a share of the mean, is rounding (scipy's bound)."""
KENDALL_BLOCK = 1 << 22


class MeanAndDeviation(NamedTuple):
    """Mean over seeds, and the deviation of a sample (n - 1); None of a single seed."""

    mean: float
    deviation: float | None


def mean_and_deviation(scores: Sequence[float]) -> MeanAndDeviation:
    """The mean and deviation of one score a seed, in the scores' own unit; there is at least one."""
    return MeanAndDeviation(
        statistics.fmean(scores), statistics.stdev(scores) if len(scores) > 1 else None
    )


def average_ranks(x: Float64Array) -> Float64Array:
    """The ranks of values, (n,), from 1; ties share their mean, and NaN makes all of them NaN."""
    from scipy import stats

    return np.asarray(stats.rankdata(x))


def weighted_rank_sums(x: Float64Array, weights: Float64Array) -> Float64Array:
    """For each item the sum of weights, (n,), over items above it by x and half of those beside it, divided by n."""
    _, group = np.unique(x, return_inverse=True)
    sums = np.bincount(group, weights=weights)
    return np.asarray((sums.sum() - np.cumsum(sums) + 0.5 * sums)[group] / len(weights))


def spearman(x: Float64Array, y: Float64Array) -> float:
    """Spearman's rank correlation, average ranks for ties; x, y are (n,); NaN where all values of one are the same."""
    from scipy import stats

    with warnings.catch_warnings(action="ignore", category=stats.ConstantInputWarning):
        return float(stats.spearmanr(x, y).statistic)


def pearson(x: Float64Array, y: Float64Array) -> float:
    """Pearson's correlation; x, y are (n,); NaN where all values of one are the same."""
    from scipy import stats

    with warnings.catch_warnings(action="ignore", category=stats.DegenerateDataWarning):
        return float(stats.pearsonr(x, y).statistic) if len(x) > 1 else float("nan")


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
    return np.asarray(u * v - np.mean(u * v) * (u * u + v * v) / 2)


def spearman_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """The influence of each item on Spearman's correlation, average ranks for ties, (n,); NaN where there is none.

    The correlation is Pearson's of the mid-distribution functions of x and y, which an item moves twice: by its own
    place among the ranks, and by moving the ranks of all items above it.
    """
    if np.isnan(x).any() or np.isnan(y).any():
        return np.full(len(x), np.nan)
    u, v = centred_ranks(x), centred_ranks(y)
    spread_u, spread_v, product = (
        float(u @ u) / len(u),
        float(v @ v) / len(v),
        float(u @ v) / len(u),
    )
    if not (spread_u > 0 and spread_v > 0):
        return np.full(len(u), np.nan)
    of_product = u * v + weighted_rank_sums(x, v) + weighted_rank_sums(y, u) - 3 * product
    of_u, of_v = (
        w * w + 2 * weighted_rank_sums(z, w) - 3 * s
        for z, w, s in ((x, u, spread_u), (y, v, spread_v))
    )
    scale = np.sqrt(spread_u * spread_v)
    return np.asarray(
        of_product / scale - product / scale * (of_u / spread_u + of_v / spread_v) / 2
    )


def kendall_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """The influence of each item on Kendall's tau-b, (n,); NaN where there is no correlation. Takes n x n steps."""
    product, of_x, of_y = np.empty((3, len(x)))
    rows = max(1, KENDALL_BLOCK // len(x))
    for start in range(0, len(x), rows):
        at = slice(start, start + rows)
        above_x, above_y = (np.sign(z[at, None] - z) for z in (x, y))
        product[at] = np.einsum("bn,bn->b", above_x, above_y) / len(x)
        of_x[at], of_y[at] = (
            np.count_nonzero(above, axis=1) / len(x) for above in (above_x, above_y)
        )
    untied_x, untied_y = of_x.mean(), of_y.mean()
    if not (untied_x > 0 and untied_y > 0):
        return np.full(len(x), np.nan)
    scale = np.sqrt(untied_x * untied_y)
    tau = product.mean() / scale
    return np.asarray(2 * (product / scale - tau) - tau * (of_x / untied_x + of_y / untied_y - 2))


def _standardised(x: Float64Array) -> Float64Array:
    centred = x - x.mean()
    spread = np.sqrt(np.mean(centred**2))
    if spread <= FLAT_TOLERANCE * abs(x.mean()):
        return np.full(len(x), np.nan)
    return np.asarray(centred / spread)


def centred_ranks(x: Float64Array) -> Float64Array:
    """The mid-distribution function less one half: average ranks, between -1/2 and 1/2, with mean 0."""
    return np.asarray((average_ranks(x) - 0.5) / len(x) - 0.5)


@dataclass(frozen=True)
class Correlation:
    """One metric of pairs with gold scores; whatever computes, compares or prints it reads this row.

    ``scale`` is what is done to values, (n,), before Pearson's formula makes the correlation of
    them; None where it does not: values are then never swapped between two encoders. ``influence_function`` gives
    how much each item moves the correlation; None: each item is left out once.
    """

    name: str
    label: str
    compute: Callable[[Float64Array, Float64Array], float]
    scale: Callable[[Float64Array], Float64Array] | None = None
    influence_function: Callable[[Float64Array, Float64Array], Float64Array] | None = None
    depends_on_ranks_only: bool = False
    """Whether it depends on the order of the values alone."""
    better: Literal["high", "low"] = "high"

    def __call__(self, x: Float64Array, y: Float64Array) -> float:
        """The correlation of x and y, both (n,)."""
        return self.compute(x, y)

    def influence(self, x: Float64Array, y: Float64Array) -> Float64Array:
        """How much each item moves the correlation, (n,), whence intervals and tests; NaN where there is none."""
        if self.influence_function is not None:
            return self.influence_function(x, y)
        if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
            return np.full(len(x), np.nan)
        without = np.array([self.compute(np.delete(x, k), np.delete(y, k)) for k in range(len(x))])
        return np.asarray((len(x) - 1) * (without.mean() - without))


_CORRELATIONS = (
    Correlation(
        "spearman",
        "Spearman",
        spearman,
        average_ranks,
        spearman_influence,
        depends_on_ranks_only=True,
    ),
    Correlation("pearson", "Pearson", pearson, lambda x: x, pearson_influence),
    Correlation(
        "kendall",
        "Kendall",
        kendall,
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
"""How subsets make one score: the weight of each by its number of items; None: they are joined first."""


class SubsetWeights(NamedTuple):
    """The indices of the items that are correlated together, and each part's share of the score."""

    indices: list[npt.NDArray[np.int64]]
    weights: Float64Array


def weigh_subsets(subset: Sequence[str], aggregation: str) -> SubsetWeights:
    """Cut items into the parts that an aggregation correlates; ``subset`` is each item's, parts in the order met."""
    weigh = AGGREGATIONS[aggregation]
    if weigh is None:
        return SubsetWeights([np.arange(len(subset))], np.ones(1))
    indices = list(subset_indices(subset).values())
    weights = weigh(np.array([len(at) for at in indices], dtype=np.float64))
    return SubsetWeights(indices, weights / weights.sum())


def subset_indices(subset: Sequence[str]) -> dict[str, npt.NDArray[np.int64]]:
    """The indices of each subset's items, subsets in the order met."""
    names = np.asarray(subset, dtype=object)
    return {name: np.flatnonzero(names == name) for name in dict.fromkeys(subset)}


LEVEL = 0.95
CORRELATION_INTERVAL_METHOD = "Fisher's z, with the covariance of pairs that share a sentence"
SHARE_INTERVAL_METHOD = (
    "Wilson score interval by Student's t, with the covariance of items that share a sentence"
)
IMAGE_INTERVAL_METHOD = "Wilson score interval over test images with their captions"
MIN_ITEMS = 4
"""Of fewer items nothing is known of how a correlation varies."""
SENTENCE_COLUMNS = ("sentence1", "sentence2")
"""The per-item columns that tell which sentences an item holds."""


def sentence_columns(*sides: Sequence[str]) -> dict[str, npt.NDArray[np.uint32]]:
    """The first four bytes of each sentence's sha256, as per-item columns: one side, or both of pairs.

    Two of 26,000 different sentences are taken for one with probability 0.08, which then ties a few items too many.
    """
    keys = (
        np.frombuffer(b"".join(map(_key, side)), dtype="<u4").astype(np.uint32) for side in sides
    )
    return dict(zip(SENTENCE_COLUMNS, keys, strict=False))


# The same sentences come again with each encoder.
@lru_cache(maxsize=1 << 16)
def _key(sentence: str) -> bytes:
    return hashlib.sha256(sentence.encode("utf-8", "surrogatepass")).digest()[:4]


def read_sentence_ids(columns: Mapping[str, npt.NDArray[Any] | list[str]]) -> IntArray | None:
    """The sentences of each item, (n, 1) or (n, 2), from per-item columns; None where these do not tell them."""
    known = [
        np.asarray(columns[name]).astype(np.int64) for name in SENTENCE_COLUMNS if name in columns
    ]
    return np.stack(known, axis=1) if known else None


class ItemDependence:
    """The sentences of n items, prepared to sum over those that share one."""

    def __init__(self, sentences: IntArray) -> None:
        """Number sentences and pairs of them; ``sentences`` is (n, 1) or (n, 2)."""
        _, flat = np.unique(sentences.ravel(), return_inverse=True)
        sides = np.sort(flat.reshape(sentences.shape), axis=1)
        self._first, self._last = sides[:, 0], sides[:, -1]
        _, self._pair = np.unique(self._first * (1 + flat.max()) + self._last, return_inverse=True)
        self._two = self._first != self._last
        held = np.bincount(np.concatenate([self._first, self._last[self._two]]))
        self.are_independent = bool(held.max() == 1)
        """Whether no two items share a sentence."""

    @classmethod
    def without_shared(cls, n: int) -> ItemDependence:
        """N items of which no two share a sentence."""
        return cls(np.arange(n)[:, None])

    def __len__(self) -> int:
        """The number of items."""
        return len(self._first)

    def covariance(self, influences: Float64Array) -> Float64Array:
        """Sums of products of shares over all pairs of items that share a sentence, (k, k) of (k, n).

        Where a row's own sum is less than that of each item with itself (a pair that stands twice is one item), as by chance or
        where one sentence is in most items, the latter stands in all sums of that row; other rows keep theirs.
        """
        found, least = self._products(influences)
        odd = np.diag(found) < np.diag(least)
        return np.where(odd[:, None] | odd, least, found)

    def variances_of_differences(self, influences: Float64Array) -> Float64Array:
        """The variance, as :meth:`variance` gives it, of the difference of each two rows of shares, (k, k) of (k, n)."""
        sums = np.stack(self._products(influences))
        own = np.diagonal(sums, axis1=1, axis2=2)
        found: Float64Array = (own[:, :, None] + own[:, None, :] - 2 * sums).max(axis=0)
        return np.maximum(found, 0.0)

    def _products(self, shares: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Sums of products over items that share a sentence, and over each item with itself; both (k, k)."""
        by_sentence = self._sums(self._first, shares) + self._sums(
            self._last[self._two], shares[:, self._two]
        )
        by_pair, twice = (
            self._sums(self._pair, shares),
            self._sums(self._pair[self._two], shares[:, self._two]),
        )
        return by_sentence @ by_sentence.T - twice @ twice.T, by_pair @ by_pair.T

    def variance(self, influences: Float64Array) -> float:
        """The sum of products of shares, (n,), over all pairs of items that share a sentence."""
        return float(self.covariance(influences[None])[0, 0])

    def effective_sample_size(self, weights: Float64Array) -> float:
        """How many independent items of equal weight would tell as much; weights, (n,), are shares of the score."""
        return float(weights.sum()) ** 2 / self.variance(weights)

    def _sums(self, group: IntArray, shares: Float64Array) -> Float64Array:
        width = 1 + int(max(self._last.max(), self._pair.max()))
        return np.array([np.bincount(group, weights=row, minlength=width) for row in shares])


def cached_dependence(sentences: IntArray) -> ItemDependence:
    """What these sentences, (n, m), share; prepared once for all encoders of the same items."""
    return _dependence_of_bytes(sentences.tobytes(), sentences.shape)


@lru_cache(maxsize=16)
def _dependence_of_bytes(content: bytes, shape: tuple[int, ...]) -> ItemDependence:
    return ItemDependence(np.frombuffer(content, dtype=np.int64).reshape(shape))


class StandardError(NamedTuple):
    """A standard error, and of how many degrees of freedom it is known."""

    error: float
    df: float


def read_dependence(columns: Mapping[str, npt.NDArray[Any] | list[str]], n: int) -> ItemDependence:
    """Which of n items share sentences, from per-item columns; none where these tell no sentences."""
    sentences = read_sentence_ids(columns)
    return ItemDependence.without_shared(n) if sentences is None else ItemDependence(sentences)


def item_weights(subset_weights: SubsetWeights, n: int) -> Float64Array:
    """What share of the score each of n items is, (n,), the items of a part sharing its own alike."""
    weights = np.zeros(n)
    for at, share in zip(*subset_weights, strict=True):
        weights[at] = share / len(at)
    return weights


def correlation_influences(
    metric: str, values: Float64Array, gold: Float64Array, subset_weights: SubsetWeights
) -> Float64Array:
    """How much each item moves a correlation, or its average over subsets, (n,).

    No item moves a correlation that there is not one of; NaN where a subset is too small to tell.
    """
    shares = np.zeros(len(values))
    for at, share in zip(*subset_weights, strict=True):
        influence = np.nan_to_num(CORRELATIONS[metric].influence(values[at], gold[at]))
        shares[at] = share * influence / len(at) if len(at) >= MIN_ITEMS else np.nan
    return shares


def standard_error(
    influences: Float64Array, dependence: ItemDependence, weights: Float64Array
) -> StandardError:
    """The error of a score of which each item moves a share; weights are the items', all (n,); NaN of too few items."""
    items = dependence.effective_sample_size(weights)
    if items < 2:
        return StandardError(float("nan"), 1.0)
    return StandardError(
        float(np.sqrt(dependence.variance(influences) * items / (items - 1))), items - 1
    )


def correlation_interval(
    score: float,
    metric: str,
    values: Float64Array,
    gold: Float64Array,
    *,
    subset_weights: SubsetWeights,
    dependence: ItemDependence,
) -> tuple[float, float]:
    """The interval of a correlation of values with gold scores, both (n,), or of its average over subsets."""
    from scipy import special

    shares, weights = (
        correlation_influences(metric, values, gold, subset_weights),
        item_weights(subset_weights, len(values)),
    )
    error, df = standard_error(shares, dependence, weights)
    if np.isnan(error) or df < MIN_ITEMS - 1:
        return -1.0, 1.0
    if abs(score) >= 1 or error == 0:
        return score, score
    reach = special.stdtrit(df, (1 + LEVEL) / 2) * error / (1 - score**2)
    low, high = np.tanh(np.arctanh(score) + np.array([-reach, reach]))
    return float(low), float(high)


def share_interval(values: Float64Array, dependence: ItemDependence) -> tuple[float, float]:
    """The interval of a mean of values between 0 and 1, (n,)."""
    n, mean = len(values), float(values.mean())
    even = np.full(n, 1 / n)
    if dependence.are_independent:
        found = StandardError(
            float(np.sqrt(dependence.variance((values - mean) / n))), float("inf")
        )
    else:
        found = standard_error((values - mean) / n, dependence, even)
    return wilson_interval(mean, found, dependence.effective_sample_size(even))


def wilson_interval(
    mean: float, error: StandardError, effective_items: float
) -> tuple[float, float]:
    """Wilson's interval of a mean of values between 0 and 1 from its error.

    Where all values are alike and the error is 0, ``effective_items`` count, the independent items that the values tell as much as:
    so the interval of a mean of 1 has a width.
    """
    from scipy import special

    if not np.isfinite(error.error):
        return 0.0, 1.0
    n = mean * (1 - mean) / error.error**2 if error.error > 0 else effective_items
    z2 = float(special.stdtrit(error.df, (1 + LEVEL) / 2)) ** 2
    centre, reach = mean + z2 / (2 * n), np.sqrt(z2 * (mean * (1 - mean) / n + z2 / (4 * n * n)))
    low, high = (centre - reach) / (1 + z2 / n), (centre + reach) / (1 + z2 / n)
    return float(max(low, 0.0)), float(min(high, 1.0))
