"""Which items of a task vary together, and the standard errors and intervals of scores.

95% intervals of one score are computed from each item's influence on it: by Fisher's z for a
correlation, by Wilson's method for a share. Items share sentences: two pairs with the same
sentence are wrong together if an encoder embeds that sentence badly, and pairs without a common
sentence are independent. The variance of a sum over items is then the sum of products over all
pairs of items that share a sentence, the dyadic-robust variance (Fafchamps and Gubert 2007,
equation 2.6; Aronow, Samii and Assenova 2015): for each sentence the squared sum over its items,
minus what is counted twice because two items share both sentences.

Chains of items err together too: an item and the next have a sentence in common, but the first and
the last have none. The second variance is therefore that of connected components of items, which
are clusters (Liang and Zeger 1986). Each has its own degrees of freedom, the number of independent
items with the same information less one. An interval is the wider one of the two, and a p-value
the larger one, so that a p-value is below .05 exactly if 0 lies outside the 95% interval.
Components say nothing if one of them has more than half of the weight of all items.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.statistics import (
    MIN_ITEMS,
    Float64Array,
    IntArray,
    SubsetWeights,
    correlation_influences,
    item_weights,
)

LEVEL = 0.95
"""The confidence level of intervals."""
CORRELATION_INTERVAL_METHOD = (
    "Fisher's z, by shared sentences or by chains of them, whichever is wider"
)
SHARE_INTERVAL_METHOD = (
    "Wilson score interval by Student's t, "
    "by shared sentences or by chains of them, whichever is wider"
)
EARLIER_INTERVAL_METHODS = (
    "Fisher's z, with the covariance of pairs that share a sentence",
    "Wilson score interval by Student's t, with the covariance of items that share a sentence",
)
"""Labels of intervals by shared sentences alone, as earlier versions made them."""
IMAGE_INTERVAL_METHOD = "Wilson score interval over test images with their captions"
MAX_COMPONENT_SHARE = 0.5
"""With a larger component, components cannot estimate a variance."""
DOMINANT_COMPONENT_NOTE = (
    "chains of shared sentences link more than half of the items: the interval is by shared "
    "sentences alone, and does not cover that whole chains err together"
)
MAX_SENTENCES = 8
"""The largest number of sentences of an item."""
SENTENCE_COLUMNS = tuple(f"sentence{number}" for number in range(1, MAX_SENTENCES + 1))
"""The per-item columns with the sentences of an item, as numbers; most items have one or two."""


def sentence_columns(*sides: Sequence[str]) -> dict[str, npt.NDArray[np.uint32]]:
    """Return the first four bytes of each sentence's sha256, as per-item columns.

    Two of 26,000 different sentences have the same number with probability 0.08; a few items too
    many then count as dependent.

    Args:
        sides: One sequence for items of one sentence; for pairs the first sentences, then the
            second ones; at most ``MAX_SENTENCES`` sequences.

    Returns:
        The numbers, (n,), by the names of the columns: ``sentence1``, ``sentence2`` and so on.
    """
    columns = {}
    # There are more names than sides.
    for name, side in zip(SENTENCE_COLUMNS, sides, strict=False):
        key_bytes = b"".join(map(_sentence_key, side))
        columns[name] = np.frombuffer(key_bytes, dtype="<u4").astype(np.uint32)
    return columns


# Each encoder has the same sentences again.
@lru_cache(maxsize=1 << 16)
def _sentence_key(sentence: str) -> bytes:
    return hashlib.sha256(sentence.encode("utf-8", "surrogatepass")).digest()[:4]


def read_sentence_ids(columns: Mapping[str, npt.NDArray[Any] | list[str]]) -> IntArray | None:
    """Return the m sentences of each item as numbers, (n, m), from per-item columns.

    It is None if the columns do not contain them.
    """
    ids_by_side = [
        np.asarray(columns[name]).astype(np.int64) for name in SENTENCE_COLUMNS if name in columns
    ]
    return np.stack(ids_by_side, axis=1) if ids_by_side else None


def merge_chains(sentences: IntArray) -> IntArray:
    """Return the sentences of items, (n, m), in at most two columns, by which they vary together.

    Items with more than two sentences vary with all items of their chain: they get the lowest
    number in it, (n, 1).
    """
    n, m = sentences.shape
    if m <= 2:
        return sentences
    from scipy import sparse
    from scipy.sparse import csgraph

    numbers, rows = np.unique(sentences, return_inverse=True)
    rows = rows.reshape(n, m)
    links = sparse.coo_array(
        (np.ones(n * m), (np.repeat(rows[:, 0], m), rows.ravel())), shape=2 * numbers.shape
    )
    _, chain_by_sentence = csgraph.connected_components(links, directed=False)
    # Numbers are sorted, so that the first sentence of a chain is the lowest one.
    _, first_by_chain = np.unique(chain_by_sentence, return_index=True)
    lowest: IntArray = numbers[first_by_chain[chain_by_sentence[rows[:, :1]]]]
    return lowest


class _Groups(NamedTuple):
    """Groups of items whose influences are added up.

    Attributes:
        items: The items of one group after another; an item may be in several groups, or in none.
        starts: Where each group begins in ``items``.
    """

    items: IntArray
    starts: IntArray

    @classmethod
    def of_numbers(cls, group_numbers: IntArray, items: IntArray) -> _Groups:
        """Return groups of items; those of equal group number are in one group.

        Args:
            group_numbers: The number of each item's group, 0 or more, (n,).
            items: The indices of the items, (n,).
        """
        order = np.argsort(group_numbers, kind="stable")
        starts = np.flatnonzero(np.diff(group_numbers[order], prepend=-1))
        return cls(items[order], starts)

    def chunks(self, max_items: int) -> Iterator[_Groups]:
        """Yield all groups in chunks of whole groups.

        Args:
            max_items: Groups that start within so many items are in one chunk; the last one of them
                may end later.
        """
        first_group = 0
        while first_group < len(self.starts):
            start = self.starts[first_group]
            next_group = int(np.searchsorted(self.starts, start + max_items))
            has_more = next_group < len(self.starts)
            stop = self.starts[next_group] if has_more else len(self.items)
            # The starts of a chunk count from its own first item.
            chunk_starts = self.starts[first_group:next_group] - start
            yield _Groups(self.items[start:stop], chunk_starts)
            first_group = next_group

    def sums(self, influences: npt.NDArray[np.floating]) -> Float64Array:
        """Return the sums of influences in each group, (groups, k).

        Args:
            influences: The influences of n items on k statistics, (k, n).
        """
        selected = influences.T[self.items].astype(np.float64, copy=False)
        n_items = len(self.items)
        if len(self.starts) == n_items:
            # Each group has one item, which is its sum.
            return selected
        from scipy import sparse

        # Ten times as fast as numpy's reduceat.
        row_stops = np.append(self.starts, n_items)
        indicators = sparse.csr_array(
            (np.ones(n_items), np.arange(n_items), row_stops), shape=(len(self.starts), n_items)
        )
        return np.asarray(indicators @ selected)


class DifferenceVariances(NamedTuple):
    """The variances of the differences of every two of k statistics, (k, k), in two ways.

    Attributes:
        by_sentences: As :meth:`ItemDependence.variance` computes them.
        by_components: As :meth:`ItemDependence.component_variance` does.
    """

    by_sentences: Float64Array
    by_components: Float64Array


class ItemDependence:
    """The sentences of n items, prepared for sums over items that share a sentence.

    Sums of products over all pairs of items that vary together are sums of squares of groups. Items
    with the same pair of sentences are one pair. A pair is alone if no other pair has one of its
    sentences, else linked.

    * Over each pair with itself: the squared sums of all pairs, those alone and those linked.
    * Over pairs with a common sentence: those alone, plus each shared sentence's, less those of
      pairs of which both sentences are shared, for they are counted twice.
    * Over pairs of one component: those alone, plus each component's of linked pairs.
    """

    def __init__(self, sentences: IntArray) -> None:
        """Assign numbers to the sentences, and to the pairs of them.

        Args:
            sentences: The m sentences of each item as numbers, (n, m); with more than two, items
                vary with all of their chain.
        """
        sentences = merge_chains(sentences)
        _, sentence_numbers = np.unique(sentences.ravel(), return_inverse=True)
        sides = np.sort(sentence_numbers.reshape(sentences.shape), axis=1)
        # An item of one sentence has that sentence as its first and as its last.
        self._first, self._last = sides[:, 0], sides[:, -1]
        # Each pair of sentences as one number.
        pair_keys = self._first * (1 + self._last.max()) + self._last
        _, item_of_pair, self._pair = np.unique(pair_keys, return_index=True, return_inverse=True)
        has_two_sentences = self._first != self._last
        items_by_sentence = np.bincount(
            np.concatenate([self._first, self._last[has_two_sentences]])
        )
        self.are_independent = bool(items_by_sentence.max() == 1)
        """Whether no two items share a sentence."""
        first_of_pair, last_of_pair = self._first[item_of_pair], self._last[item_of_pair]
        last_of_two = last_of_pair[first_of_pair != last_of_pair]
        pairs_by_sentence = np.bincount(np.concatenate([first_of_pair, last_of_two]))
        is_first_shared = pairs_by_sentence[self._first] > 1
        is_last_shared = has_two_sentences & (pairs_by_sentence[self._last] > 1)
        is_linked = is_first_shared | is_last_shared
        self._alone = self._groups_of_pairs(~is_linked)
        self._linked = self._groups_of_pairs(is_linked)
        self._counted_twice = self._groups_of_pairs(is_first_shared & is_last_shared)
        self._sentences = _Groups.of_numbers(
            np.concatenate([self._first[is_first_shared], self._last[is_last_shared]]),
            np.concatenate([np.flatnonzero(is_first_shared), np.flatnonzero(is_last_shared)]),
        )
        linked_items = np.flatnonzero(is_linked)
        self._linked_components = _Groups.of_numbers(self.components[linked_items], linked_items)

    def _groups_of_pairs(self, is_selected: npt.NDArray[np.bool_]) -> _Groups:
        """Return the pairs of the selected items, (n,), as groups of items."""
        items = np.flatnonzero(is_selected)
        return _Groups.of_numbers(self._pair[items], items)

    @classmethod
    def without_shared(cls, n: int) -> ItemDependence:
        """Return n items of which no two share a sentence."""
        return cls(np.arange(n)[:, None])

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._first)

    @cached_property
    def components(self) -> IntArray:
        """The number of each item's connected component, (n,); chains of sentences connect."""
        from scipy import sparse
        from scipy.sparse import csgraph

        n_sentences = 1 + int(self._last.max())
        links = sparse.coo_array(
            (np.ones(len(self)), (self._first, self._last)), shape=(n_sentences, n_sentences)
        )
        _, component_by_sentence = csgraph.connected_components(links, directed=False)
        return np.asarray(component_by_sentence[self._first], dtype=np.int64)

    def has_dominant_component(self, weights: Float64Array) -> bool:
        """Return whether a component has more than ``MAX_COMPONENT_SHARE`` of the weight.

        Args:
            weights: The weights of the items in the score, (n,).
        """
        if self.are_independent:
            return False
        heaviest = np.bincount(self.components, weights).max()
        return bool(heaviest > MAX_COMPONENT_SHARE * weights.sum())

    def covariance(self, influences: Float64Array) -> Float64Array:
        """Return sums of products of influences over pairs of items that share a sentence, (k, k).

        If a row's sum with itself is smaller than the sum over each item with itself, as by chance
        or if most items have the same sentence, the latter replaces all sums of that row. There,
        items with the same pair of sentences count as one.

        Args:
            influences: The influences of n items on k statistics, (k, n).
        """
        alone, linked, sentences, counted_twice = (
            _products(groups, influences)
            for groups in (self._alone, self._linked, self._sentences, self._counted_twice)
        )
        own_sums = alone + linked
        # Pairs of items that share both sentences are in the sum of either sentence.
        sums = alone + sentences - counted_twice
        is_too_small = np.diag(sums) < np.diag(own_sums)
        return np.where(is_too_small[:, None] | is_too_small, own_sums, sums)

    def variances_of_differences(
        self,
        influences: npt.NDArray[np.floating],
        row_pairs: Sequence[tuple[slice, slice]] | None = None,
    ) -> DifferenceVariances:
        """Return the variances of the differences of every two of k statistics.

        Args:
            influences: The influences of n items on k statistics, (k, n). Many rows are added up
                faster if those of one item follow each other in memory.
            row_pairs: Blocks of rows and columns of which the variances are needed; all others are
                wrong. None if all are needed.
        """
        alone, linked, sentences, counted_twice, components = (
            _difference_sums(groups, influences, row_pairs)
            for groups in (
                self._alone,
                self._linked,
                self._sentences,
                self._counted_twice,
                self._linked_components,
            )
        )
        by_sentences = alone + np.maximum(sentences - counted_twice, linked)
        by_components = alone + components
        return DifferenceVariances(by_sentences, by_components)

    def variance(self, influences: Float64Array) -> float:
        """Return the sum of products of influences, (n,), over items that share a sentence.

        It is the sum over each item with itself if that is larger, see :meth:`covariance`.
        """
        return float(self.covariance(influences[None])[0, 0])

    def component_variance(self, influences: Float64Array) -> float:
        """Return the sum of products of influences, (n,), over items of one component."""
        return float(np.sum(np.bincount(self.components, influences) ** 2))

    def effective_sample_size(self, weights: Float64Array) -> float:
        """Return the number of independent items of equal weight with the same variance.

        Args:
            weights: The weights of the items in the score, (n,).
        """
        return float(weights.sum()) ** 2 / self.variance(weights)


CHUNK_ITEMS = 2048
"""How many items' influences on all statistics are added up at once, to bound the memory."""


def _products(groups: _Groups, influences: Float64Array) -> Float64Array:
    """Return the products of the sums of influences, (k, n), added up over groups, (k, k)."""
    products = np.zeros((len(influences), len(influences)))
    for chunk in groups.chunks(CHUNK_ITEMS):
        sums = chunk.sums(influences)
        products += sums.T @ sums
    return products


EQUAL_SUMS = 1e-13
"""Sums of squares that differ by this share of them, or less, differ by rounding."""


def _difference_sums(
    groups: _Groups,
    influences: npt.NDArray[np.floating],
    row_pairs: Sequence[tuple[slice, slice]] | None,
) -> Float64Array:
    """Return the squared sums of every two rows' difference, added up over groups, (k, k).

    Args:
        groups: The groups of items.
        influences: The influences of n items on k statistics, (k, n).
        row_pairs: The blocks of rows and columns that are needed; None for all.
    """
    k = len(influences)
    products = np.zeros((k, k))
    squares = np.zeros(k)
    for chunk in groups.chunks(CHUNK_ITEMS):
        sums = chunk.sums(influences)
        squares += np.einsum("gk,gk->k", sums, sums)
        if row_pairs is None:
            products += sums.T @ sums
            continue
        for rows, columns in row_pairs:
            products[rows, columns] += sums[:, rows].T @ sums[:, columns]
    total = squares[:, None] + squares
    differences = total - 2 * products
    return np.where(differences > EQUAL_SUMS * total, differences, 0.0)


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

    @property
    def half_width(self) -> float:
        """Half the width of the 95% interval by Student's t."""
        from scipy import special

        return float(special.stdtrit(self.df, (1 + LEVEL) / 2) * self.error)


def widest_first(errors: Sequence[StandardError]) -> list[StandardError]:
    """Sort standard errors of one score by the width of the 95% interval, the widest one first.

    Among errors of 0, the one with the fewest degrees of freedom is first.
    """
    return sorted(errors, key=lambda error: (-error.half_width, error.df))


def read_dependence(columns: Mapping[str, npt.NDArray[Any] | list[str]], n: int) -> ItemDependence:
    """Return the dependence of n items by their per-item columns.

    The items are independent if the columns have no sentences.
    """
    sentences = read_sentence_ids(columns)
    return ItemDependence.without_shared(n) if sentences is None else cached_dependence(sentences)


class VarianceEstimator(NamedTuple):
    """One of the ways to estimate how much a score varies over items.

    Attributes:
        variance: Return the variance of one score from its influences, (n,).
        n_items: The number of independent items with the same information, at least 2; the
            variance is that of a population, to be multiplied by n_items / (n_items - 1).
    """

    variance: Callable[[Float64Array], float]
    n_items: float


def variance_estimators(
    dependence: ItemDependence, weights: Float64Array
) -> list[VarianceEstimator]:
    """Return the ways to estimate how much a score varies over items.

    Args:
        dependence: Which items share sentences.
        weights: The weights of the items in the score, (n,).

    Returns:
        The estimator by shared sentences, then that by connected components. The latter is missing
        if no items share a sentence, or if a component has more than ``MAX_COMPONENT_SHARE`` of the
        weight. Empty with fewer than two independent items.
    """
    n_effective = dependence.effective_sample_size(weights)
    if n_effective < 2:
        return []
    estimators = [VarianceEstimator(dependence.variance, n_effective)]
    if not (dependence.are_independent or dependence.has_dominant_component(weights)):
        n_components = float(weights.sum()) ** 2 / dependence.component_variance(weights)
        estimators.append(VarianceEstimator(dependence.component_variance, n_components))
    return estimators


def standard_errors(
    influences: Float64Array, dependence: ItemDependence, weights: Float64Array
) -> list[StandardError]:
    """Return the standard errors of a score, one for each of ``variance_estimators``.

    The interval of the score is the wider one of theirs, its p-value is the larger one.

    Args:
        influences: How much each item moves the score, (n,).
        dependence: Which items share sentences.
        weights: The weights of the items in the score, (n,).

    Returns:
        The errors, at least one; NaN with fewer than two independent items.
    """
    errors = []
    for estimator in variance_estimators(dependence, weights):
        df = estimator.n_items - 1
        variance = estimator.variance(influences) * estimator.n_items / df
        errors.append(StandardError(float(np.sqrt(variance)), df))
    return errors or [StandardError(float("nan"), df=1.0)]


def standard_error(
    influences: Float64Array, dependence: ItemDependence, weights: Float64Array
) -> StandardError:
    """Return the standard error of a score whose 95% interval is the wider one.

    It is NaN with fewer than two independent items; see :func:`standard_errors`.
    """
    return widest_first(standard_errors(influences, dependence, weights))[0]


def correlation_interval(
    score: float,
    metric: str,
    values: Float64Array,
    gold: Float64Array,
    *,
    subset_weights: SubsetWeights,
    dependence: ItemDependence,
    has_chains: bool = True,
) -> tuple[float, float]:
    """Return the 95% interval of a correlation, or of its average over subsets, by Fisher's z.

    Its bounds are tanh(arctanh(r) ± w / (1 - r²)), with r the score and w half the width of the
    interval of r itself. It is -1 to 1 with too few items, and has no width if all items agree.

    Args:
        score: The correlation, or the average.
        metric: A key of ``CORRELATIONS``.
        values: The similarity of each item, (n,).
        gold: The gold score of each item, (n,).
        subset_weights: The subsets that are correlated apart, with their weights.
        dependence: Which items share sentences.
        has_chains: Whether chains of items may err together. Without them the interval is that
            of ``EARLIER_INTERVAL_METHODS``.
    """
    influences = correlation_influences(metric, values, gold, subset_weights)
    weights = item_weights(subset_weights, len(values))
    error_by_sentences, *errors_by_chains = standard_errors(influences, dependence, weights)
    # The variance by shared sentences says whether there are enough items.
    if np.isnan(error_by_sentences.error) or error_by_sentences.df < MIN_ITEMS - 1:
        return -1.0, 1.0
    error = error_by_sentences
    if has_chains:
        error = widest_first([error_by_sentences, *errors_by_chains])[0]
    if abs(score) >= 1 or error.error == 0:
        return score, score
    half_width = error.half_width / (1 - score**2)
    low, high = np.tanh(np.arctanh(score) + np.array([-half_width, half_width]))
    return float(low), float(high)


def spearman_interval(correlation: float, n: int) -> tuple[float, float]:
    """Return the 95% interval of Spearman's correlation, if only the number of items is known.

    By Fisher's z, with the variance (1 + r² / 2) / (n - 3) of Bonett and Wright (2000,
    Psychometrika 65). It is -1 to 1 with three items or fewer.

    Args:
        correlation: The correlation of independent items.
        n: The number of items.
    """
    if n <= 3:
        return -1.0, 1.0
    if abs(correlation) >= 1:
        return correlation, correlation
    error = StandardError(float(np.sqrt((1 + correlation**2 / 2) / (n - 3))), np.inf)
    bounds = np.array([-error.half_width, error.half_width])
    low, high = np.tanh(np.arctanh(correlation) + bounds)
    return float(low), float(high)


def mean_interval(
    scores: Sequence[float], intervals: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Return the 95% interval of the mean of independent scores, from their own intervals.

    On each side the distances of score and bound are added as squares (Zou and Donner 2008,
    Statistics in Medicine 27), which keeps the intervals' skewness: the low bound is the mean less
    the root of the sum of (score - low)² over the number of scores, and the high one likewise.
    """
    mean = np.mean(scores)
    distances = np.abs(np.asarray(intervals) - np.asarray(scores)[:, None])
    below, above = np.sqrt(np.sum(distances**2, axis=0)) / len(scores)
    return float(mean - below), float(mean + above)


def share_interval(
    values: Float64Array, dependence: ItemDependence, *, has_chains: bool = True
) -> tuple[float, float]:
    """Return the 95% interval of a mean of values between 0 and 1, by Wilson's method.

    Args:
        values: The value of each item, (n,).
        dependence: Which items share sentences.
        has_chains: Whether chains of items may err together. Without them the interval is that
            of ``EARLIER_INTERVAL_METHODS``.
    """
    n = len(values)
    mean = float(values.mean())
    weights = np.full(n, 1 / n)
    influences = (values - mean) / n
    if dependence.are_independent:
        # The variance of a share of independent items is known: its quantile is the normal one.
        error = StandardError(float(np.sqrt(dependence.variance(influences))), df=float("inf"))
        return wilson_interval(mean, error, effective_items=float(n))
    error_by_sentences, *errors_by_chains = standard_errors(influences, dependence, weights)
    error = error_by_sentences
    if has_chains:
        error = widest_first([error_by_sentences, *errors_by_chains])[0]
    return wilson_interval(mean, error, effective_items=error.df + 1)


def wilson_interval(
    mean: float, error: StandardError, effective_items: float
) -> tuple[float, float]:
    """Return Wilson's 95% interval of a mean of values between 0 and 1, from its error.

    With p the mean, n the number of independent items and z Student's quantile, its bounds are
    (p + z² / 2n ± z sqrt(p (1 - p) / n + z² / 4n²)) / (1 + z² / n). The number n is
    p (1 - p) / error², at which the error of a share is this one. If the error is not finite, the
    interval is 0 to 1.

    Args:
        mean: The mean p.
        error: The standard error of the mean.
        effective_items: The number n if the error is 0: all values are equal then, and the interval
            of a mean of 1 has a width nevertheless.
    """
    from scipy import special

    if not np.isfinite(error.error):
        return 0.0, 1.0
    variance = mean * (1 - mean)
    n = variance / error.error**2 if error.error > 0 else effective_items
    z_squared = float(special.stdtrit(error.df, (1 + LEVEL) / 2)) ** 2
    centre = mean + z_squared / (2 * n)
    half_width = np.sqrt(z_squared * (variance / n + z_squared / (4 * n * n)))
    low = (centre - half_width) / (1 + z_squared / n)
    high = (centre + half_width) / (1 + z_squared / n)
    return float(max(low, 0.0)), float(min(high, 1.0))
