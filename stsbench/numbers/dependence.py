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
    _, first_by_chain = np.unique(chain_by_sentence, return_index=True)
    chain_by_item = chain_by_sentence[sentence_indices[:, :1]]
    lowest: IntArray = distinct_sentences[first_by_chain[chain_by_item]]
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

        # A matrix (groups, items) of ones where an item is in a group; ten times as fast as
        # numpy's reduceat.
        n_groups = len(self.starts)
        stops = np.append(self.starts, n_items)
        is_in_group = sparse.csr_array(
            (np.ones(n_items), np.arange(n_items), stops), shape=(n_groups, n_items)
        )
        return np.asarray(is_in_group @ selected)


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
        # For each item, whether another pair of sentences has its first, its last, or either one.
        is_linked = is_first_shared | is_last_shared
        self._unlinked_pairs = self._groups_of_pairs(~is_linked)
        self._linked_pairs = self._groups_of_pairs(is_linked)
        self._doubly_shared_pairs = self._groups_of_pairs(is_first_shared & is_last_shared)
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
        # Each is (k, k).
        of_unlinked_pairs = _products_of_sums(self._unlinked_pairs, influences)
        of_linked_pairs = _products_of_sums(self._linked_pairs, influences)
        of_shared_sentences = _products_of_sums(self._shared_sentences, influences)
        counted_twice = _products_of_sums(self._doubly_shared_pairs, influences)
        own_sums = of_unlinked_pairs + of_linked_pairs
        # Items that share both sentences are in the sum of either sentence.
        sums = of_unlinked_pairs + of_shared_sentences - counted_twice
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
        # Each is (k, k).
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
        # That over each pair with itself, if it is the larger one, as in covariance().
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
    """Return for every two rows the sum over groups of a b, (k, k).

    Here a and b are the sums of the two rows' influences in a group.

    Args:
        groups: The groups of items.
        influences: The influences of n items on k statistics, (k, n).
    """
    products = np.zeros((len(influences), len(influences)))
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
    """Return for every two rows the sum over groups of (a - b)², (k, k).

    Here a and b are the sums of the two rows' influences in a group. It is computed as the sum of
    a² and of b² less twice that of a b; a result so small that it may be rounding is set to 0.

    Args:
        groups: The groups of items.
        influences: The influences of n items on k statistics, (k, n).
        row_pairs: The blocks of rows and columns that are needed, outside of which the result is
            wrong; None for all.
    """
    k = len(influences)
    products = np.zeros((k, k))  # the sum of a b over groups, for every two rows
    squares = np.zeros(k)  # the sum of a² over groups, for each row
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
    is_above_rounding = squared_differences > EQUAL_SUMS * sums_of_squares
    return np.where(is_above_rounding, squared_differences, 0.0)


def cached_dependence(sentences: IntArray) -> ItemDependence:
    """Return the dependence of items with these sentences, (n, m); all encoders share a cache."""
    return _dependence_of_bytes(sentences.tobytes(), sentences.shape)


@lru_cache(maxsize=16)
def _dependence_of_bytes(content: bytes, shape: tuple[int, ...]) -> ItemDependence:
    return ItemDependence(np.frombuffer(content, dtype=np.int64).reshape(shape))


def read_dependence(columns: Mapping[str, npt.NDArray[Any] | list[str]], n: int) -> ItemDependence:
    """Return the dependence of n items by their per-item columns.

    The items are independent if the columns have no sentences.
    """
    sentences = read_sentence_ids(columns)
    return ItemDependence.without_shared(n) if sentences is None else cached_dependence(sentences)
