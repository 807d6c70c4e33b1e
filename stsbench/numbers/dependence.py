"""Which items of a task vary together.

Items share sentences: two pairs with the same sentence are wrong together if an encoder embeds that
sentence badly, and pairs without a common sentence are independent. The variance of a sum over
items is then the sum of products over all pairs of items that share a sentence, the dyadic-robust
variance (Fafchamps and Gubert 2007, equation 2.6; Aronow, Samii and Assenova 2015): for each
sentence the squared sum over its items, minus what is counted twice because two items share both
sentences.

Chains of items err together too: an item and the next have a sentence in common, but the first and
the last have none. The second variance is therefore that of connected components of items, which
are clusters (Liang and Zeger 1986). Components say nothing if one of them has more than half of the
weight of all items.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.statistics import Float64Array, IntArray

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
    """Return a number for each sentence of n items, the same one wherever the sentence occurs.

    The number is the first four bytes of the sentence's sha256. Among 26,000 different sentences,
    two have the same number with probability 0.08. Their items then count as dependent though they
    are not.

    Args:
        sides: One sequence of n sentences for items of one sentence. For pairs, the n first
            sentences, then the n second ones. At most ``MAX_SENTENCES`` sequences.

    Returns:
        Name of the side (``sentence1``, ``sentence2`` and so on) -> the numbers of its sentences,
        (n,).
    """
    columns = {}
    # SENTENCE_COLUMNS, the names, may be longer than the sides: zip() then stops at the last side.
    for name, side in zip(SENTENCE_COLUMNS, sides, strict=False):
        number_bytes = b"".join(map(_first_sha256_bytes, side))
        columns[name] = np.frombuffer(number_bytes, dtype="<u4").astype(np.uint32)
    return columns


# Each encoder has the same sentences again.
@lru_cache(maxsize=1 << 16)
def _first_sha256_bytes(sentence: str) -> bytes:
    """Return the first four bytes of the sha256 of a sentence."""
    return hashlib.sha256(sentence.encode("utf-8", "surrogatepass")).digest()[:4]


def read_sentence_ids(columns: Mapping[str, npt.NDArray[Any] | list[str]]) -> IntArray | None:
    """Return the m sentences of each of n items as numbers, (n, m).

    Equal sentences have equal numbers. It is None if the columns contain no sentences.

    Args:
        columns: Name of a column -> its n values, one for each item. Sentences are in the columns
            ``sentence1``, ``sentence2`` and so on.
    """
    # SENTENCE_COLUMNS are all names that a column of sentences may have, in order.
    ids_by_side = [
        np.asarray(columns[name]).astype(np.int64) for name in SENTENCE_COLUMNS if name in columns
    ]
    return np.stack(ids_by_side, axis=1) if ids_by_side else None


def merge_chains(sentences: IntArray) -> IntArray:
    """Reduce the sentences of items to at most two for each item.

    Two items vary together if they share a sentence. With one or two sentences an item, the array
    is returned as it is. With more, all items of a chain vary together, where each item of a chain
    shares a sentence with another one: each item then gets the lowest sentence number in its chain.

    Args:
        sentences: The m sentences of each of n items as numbers, (n, m).

    Returns:
        The sentences unchanged, (n, m), if m is 1 or 2; else one number for each item, (n, 1).
    """
    n, m = sentences.shape
    if m <= 2:
        return sentences
    from scipy import sparse
    from scipy.sparse import csgraph

    # Each sentence as its index among the distinct ones, (n, m).
    distinct_sentences, sentence_indices = np.unique(sentences, return_inverse=True)
    sentence_indices = sentence_indices.reshape(n, m)
    # The first sentence of an item is linked to each of its sentences.
    first_of_item = np.repeat(sentence_indices[:, 0], m)
    n_distinct = len(distinct_sentences)
    links = sparse.coo_array(
        (np.ones(n * m), (first_of_item, sentence_indices.ravel())), shape=(n_distinct, n_distinct)
    )
    _, chain_by_sentence = csgraph.connected_components(links, directed=False)
    # The distinct sentences are sorted, so that the first one of a chain has the lowest number.
    _, first_sentence_by_chain = np.unique(chain_by_sentence, return_index=True)
    chain_by_item = chain_by_sentence[sentence_indices[:, :1]]
    lowest_number_by_item: IntArray = distinct_sentences[first_sentence_by_chain[chain_by_item]]
    return lowest_number_by_item


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
        """Put items with the same group number into one group.

        Args:
            group_numbers: The number of each item's group, 0 or more, (n,).
            items: The indices of the items, (n,).

        Returns:
            The items sorted by their group, and where each group starts among them.
        """
        order = np.argsort(group_numbers, kind="stable")
        # A group starts where the sorted number differs from the one before; -1 is no group's.
        starts = np.flatnonzero(np.diff(group_numbers[order], prepend=-1))
        return cls(items[order], starts)

    def chunks(self, max_items: int) -> Iterator[_Groups]:
        """Yield the groups in chunks, so that fewer items are in memory at once.

        No group is split. ``self.items`` are the indices of the items, one group after another;
        ``self.starts`` are the positions in it where the groups begin.

        Args:
            max_items: A chunk takes each further group that starts less than so many items after
                the chunk's first item. The last group may end later.
        """
        first_group = 0
        while first_group < len(self.starts):
            start = self.starts[first_group]
            # The first group that starts too late for this chunk.
            next_group = int(np.searchsorted(self.starts, start + max_items))
            has_more = next_group < len(self.starts)
            stop = self.starts[next_group] if has_more else len(self.items)
            # The starts of a chunk count from its own first item.
            chunk_starts = self.starts[first_group:next_group] - start
            yield _Groups(self.items[start:stop], chunk_starts)
            first_group = next_group

    def sums(self, influences: npt.NDArray[np.floating]) -> Float64Array:
        """Add up, for each group, the influences of its items on k statistics.

        ``self.items`` are the indices of the items, one group after another; ``self.starts`` are
        the positions in it where the groups begin.

        Args:
            influences: How much each of n items moves each of k statistics, (k, n).

        Returns:
            The sums, (groups, k).
        """
        item_influences = influences.T[self.items].astype(np.float64, copy=False)
        n_items = len(self.items)
        n_groups = len(self.starts)
        if n_groups == n_items:
            # Each group has one item, whose influence is the sum.
            return item_influences
        from scipy import sparse

        # A matrix (groups, items) of ones where an item is in a group; ten times as fast as
        # numpy's reduceat.
        row_starts = np.append(self.starts, n_items)
        is_in_group = sparse.csr_array(
            (np.ones(n_items), np.arange(n_items), row_starts), shape=(n_groups, n_items)
        )
        return np.asarray(is_in_group @ item_influences)


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
        """Put n items into the groups over which sums of items that share a sentence are computed.

        Items with the same sentences have one pair of sentences in common. A pair is linked if
        another pair has one of its sentences, else unlinked. There are groups of

        * items of each unlinked pair, and of each linked pair;
        * items of each pair of which both sentences occur in other pairs;
        * items of each sentence that occurs in several pairs;
        * items of each connected component, where chains of shared sentences connect items.

        Args:
            sentences: The m sentences of each item as numbers, (n, m). With more than two, an item
                shares a sentence with all items of its chain.
        """
        # At most two sentences an item.
        merged_sentences = merge_chains(sentences)
        _, sentence_numbers = np.unique(merged_sentences.ravel(), return_inverse=True)
        sides = np.sort(sentence_numbers.reshape(merged_sentences.shape), axis=1)
        # An item of one sentence has that sentence as its first and as its last.
        self._first, self._last = sides[:, 0], sides[:, -1]
        # Each pair of sentences as one number, and that of each item.
        pair_keys = self._first * (1 + self._last.max()) + self._last
        _, item_of_pair, self._pair = np.unique(pair_keys, return_index=True, return_inverse=True)
        has_two_sentences = self._first != self._last
        items_by_sentence = np.bincount(
            np.concatenate([self._first, self._last[has_two_sentences]])
        )
        self.are_independent = bool(items_by_sentence.max() == 1)
        """Whether no two items share a sentence."""
        # In how many different pairs each sentence occurs.
        first_of_pair, last_of_pair = self._first[item_of_pair], self._last[item_of_pair]
        last_of_two = last_of_pair[first_of_pair != last_of_pair]
        pairs_by_sentence = np.bincount(np.concatenate([first_of_pair, last_of_two]))
        # For each item, whether another pair of sentences has its first, its last, or either one.
        is_first_shared = pairs_by_sentence[self._first] > 1
        is_last_shared = has_two_sentences & (pairs_by_sentence[self._last] > 1)
        is_linked = is_first_shared | is_last_shared
        # Each _Groups holds the indices of items, grouped by a number: here that of their pair.
        self._unlinked_pairs = self._groups_of_pairs(~is_linked)
        self._linked_pairs = self._groups_of_pairs(is_linked)
        self._doubly_shared_pairs = self._groups_of_pairs(is_first_shared & is_last_shared)
        # By the number of a shared sentence: an item is in the groups of one or two sentences.
        self._shared_sentences = _Groups.of_numbers(
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
        """The number of each item's connected component, (n,).

        Items that share a sentence are in one component, and so are items that a chain of such
        items connects. An item has one or two sentences: ``self._first`` and ``self._last`` (n,)
        are their numbers from 0, the smaller one first; equal for a single sentence.
        """
        from scipy import sparse
        from scipy.sparse import csgraph

        n_sentences = 1 + int(self._last.max())
        links = sparse.coo_array(
            (np.ones(len(self)), (self._first, self._last)), shape=(n_sentences, n_sentences)
        )
        _, component_by_sentence = csgraph.connected_components(links, directed=False)
        return np.asarray(component_by_sentence[self._first], dtype=np.int64)

    def has_dominant_component(self, weights: Float64Array) -> bool:
        """Return whether one component has more than a share of the weight of all items.

        A component is a set of items that chains of shared sentences connect. The share is
        ``MAX_COMPONENT_SHARE``, one half. If no two items share a sentence, the answer is no.

        Args:
            weights: The weights of the items in the score, (n,).
        """
        # self.components is the number of each item's component, (n,).
        if self.are_independent:
            return False
        heaviest = np.bincount(self.components, weights).max()
        return bool(heaviest > MAX_COMPONENT_SHARE * weights.sum())

    def covariance(self, influences: Float64Array) -> Float64Array:
        """Return the covariances of k statistics whose items depend on each other, (k, k).

        The covariance of two statistics is a sum over all pairs of items that share a sentence: the
        influence of one item on the first statistic times that of the other on the second. An item
        and itself are such a pair.

        A variance, on the diagonal, may be smaller than the same sum over each item with itself
        alone, by chance or if most items have the same sentence. That second sum then replaces all
        covariances of this statistic. In it, items with the same two sentences count as one item.

        Args:
            influences: How much each of n items moves each of k statistics, (k, n).
        """
        # Each is (k, k): for every two statistics, the products of their sums in groups of items.
        # A pair of sentences is linked if another pair has one of its sentences.
        of_unlinked_pairs = _products_of_sums(self._unlinked_pairs, influences)
        of_linked_pairs = _products_of_sums(self._linked_pairs, influences)
        of_shared_sentences = _products_of_sums(self._shared_sentences, influences)
        counted_twice = _products_of_sums(self._doubly_shared_pairs, influences)
        # Over each pair of sentences with itself.
        own_sums = of_unlinked_pairs + of_linked_pairs
        # Items that share both sentences are in the sum of either sentence.
        sums = of_unlinked_pairs + of_shared_sentences - counted_twice
        is_too_small = np.diag(sums) < np.diag(own_sums)
        # Entries whose row or column is that of a statistic with too small a variance.
        is_of_such_statistic = is_too_small[:, None] | is_too_small
        return np.where(is_of_such_statistic, own_sums, sums)

    def variances_of_differences(
        self,
        influences: npt.NDArray[np.floating],
        row_pairs: Sequence[tuple[slice, slice]] | None = None,
    ) -> DifferenceVariances:
        """Return the variances of the differences of every two of k statistics.

        Args:
            influences: How much each of n items moves each of k statistics, (k, n). Many rows are
                added up faster if the values of one item follow each other in memory.
            row_pairs: Blocks (rows, columns) of the (k, k) variances that are needed; all others
                are wrong. None if all are needed.

        Returns:
            Two variances of each difference, (k, k) each. For ``by_sentences`` two items vary
            together if they share a sentence; it is at least the variance if only items with the
            same two sentences do. For ``by_components`` all items that chains of shared sentences
            connect vary together.
        """
        # Each is (k, k): for every two statistics, the sum over groups of items of the squared
        # difference of their two sums. A pair of sentences is linked if another pair has one of
        # its sentences.
        of_unlinked_pairs, of_linked_pairs, of_shared_sentences, counted_twice, of_components = (
            _squared_differences_of_sums(groups, influences, row_pairs)
            for groups in (
                self._unlinked_pairs,
                self._linked_pairs,
                self._shared_sentences,
                self._doubly_shared_pairs,
                self._linked_components,
            )
        )
        # Items that share both sentences are in the sum of either sentence: counted_twice. The sum
        # over each pair with itself replaces a smaller one.
        of_linked_items = np.maximum(of_shared_sentences - counted_twice, of_linked_pairs)
        return DifferenceVariances(
            by_sentences=of_unlinked_pairs + of_linked_items,
            by_components=of_unlinked_pairs + of_components,
        )

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


def _products_of_sums(groups: _Groups, influences: Float64Array) -> Float64Array:
    """Return, for every two of k statistics, the sum over all groups of a b, (k, k).

    Here a is the sum of the influences on the first statistic of all items in a group, and b that
    on the second.

    Args:
        groups: The groups of items.
        influences: How much each of n items moves each of k statistics, (k, n).
    """
    products = np.zeros((len(influences), len(influences)))
    # A chunk is some of the groups, with about CHUNK_ITEMS items, so that memory is bounded.
    for chunk in groups.chunks(CHUNK_ITEMS):
        sums = chunk.sums(influences)
        products += sums.T @ sums
    return products


EQUAL_SUMS = 1e-13
"""Sums of squares that differ by this share of them, or less, differ by rounding."""


def _squared_differences_of_sums(
    groups: _Groups,
    influences: npt.NDArray[np.floating],
    row_pairs: Sequence[tuple[slice, slice]] | None,
) -> Float64Array:
    """Return, for every two of k statistics, the sum over all groups of (a - b)², (k, k).

    Here a is the sum of the influences on the first statistic of all items in a group, and b that
    on the second. It is computed as the sum of a² plus that of b² less twice that of a b. A result
    so small that it may be rounding (``EQUAL_SUMS`` of a² + b², or less) is set to 0; one that is
    NaN, because influences are, stays NaN.

    Args:
        groups: The groups of items.
        influences: How much each of n items moves each of k statistics, (k, n).
        row_pairs: The blocks (rows, columns) of the result that are needed; elsewhere it is wrong.
            None if all of it is needed.
    """
    k = len(influences)
    products = np.zeros((k, k))  # the sum of a b over groups, for every two statistics
    squares = np.zeros(k)  # the sum of a² over groups, for each statistic
    # A chunk is some of the groups, with about CHUNK_ITEMS items, so that memory is bounded.
    for chunk in groups.chunks(CHUNK_ITEMS):
        sums = chunk.sums(influences)
        squares += np.einsum("gk,gk->k", sums, sums)
        if row_pairs is None:
            products += sums.T @ sums
            continue
        for rows, columns in row_pairs:
            products[rows, columns] += sums[:, rows].T @ sums[:, columns]
    sums_of_squares = squares[:, None] + squares  # those of a² + b²
    squared_differences = sums_of_squares - 2 * products
    # False for NaN, which stays.
    is_rounding = squared_differences <= EQUAL_SUMS * sums_of_squares
    return np.where(is_rounding, 0.0, squared_differences)


def cached_dependence(sentences: IntArray) -> ItemDependence:
    """Return the dependence of items with these sentences, (n, m); all encoders share a cache."""
    return _dependence_of_bytes(sentences.tobytes(), sentences.shape)


@lru_cache(maxsize=16)
def _dependence_of_bytes(content: bytes, shape: tuple[int, ...]) -> ItemDependence:
    return ItemDependence(np.frombuffer(content, dtype=np.int64).reshape(shape))


def read_dependence(columns: Mapping[str, npt.NDArray[Any] | list[str]], n: int) -> ItemDependence:
    """Return which of n items share sentences, from their per-item columns.

    The items are independent if the columns have no sentences.
    """
    sentences = read_sentence_ids(columns)
    return ItemDependence.without_shared(n) if sentences is None else cached_dependence(sentences)
