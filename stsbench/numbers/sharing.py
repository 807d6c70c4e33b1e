"""Which items share sentences: these are not drawn independently of each other.

Two pairs that hold one sentence are wrong together where an encoder embeds that sentence badly; pairs without a
sentence in common are independent. The variance of a sum over items is then the sum of products over all pairs of items that
share a sentence, the dyadic-robust variance (Fafchamps and Gubert 2007, equation 2.6; Aronow, Samii and Assenova
2015): for each sentence the squared sum over its items, less what is counted twice because two items share both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from stsbench.numbers.arrays import Float64Array, IntArray

SentenceKeys = npt.NDArray[np.uint32]
COLUMNS = ("sentence1", "sentence2")
"""The per-item columns that tell which sentences an item holds."""


def sentence_columns(*sides: Sequence[str]) -> dict[str, SentenceKeys]:
    """The first four bytes of each sentence's sha256, as per-item columns: one side, or both of pairs.

    Two of 26,000 different sentences are taken for one with probability 0.08, which then ties a few items too many.
    """
    return {name: _keys(side) for name, side in zip(COLUMNS, sides, strict=False)}


def _keys(sentences: Sequence[str]) -> SentenceKeys:
    return np.frombuffer(b"".join(map(_key, sentences)), dtype="<u4").astype(np.uint32)


# The same sentences come again with each encoder.
@lru_cache(maxsize=1 << 16)
def _key(sentence: str) -> bytes:
    return hashlib.sha256(sentence.encode("utf-8", "surrogatepass")).digest()[:4]


def sentences_of(columns: Mapping[str, npt.NDArray[Any]]) -> IntArray | None:
    """The sentences of each item, (n, 1) or (n, 2), from per-item columns; None where these do not tell them."""
    known = [columns[name].astype(np.int64) for name in COLUMNS if name in columns]
    return np.stack(known, axis=1) if known else None


class Sharing:
    """The sentences of n items, prepared to sum over those that share one."""

    def __init__(self, sentences: IntArray) -> None:
        """Number sentences and pairs of them; ``sentences`` is (n, 1) or (n, 2)."""
        _, flat = np.unique(sentences.ravel(), return_inverse=True)
        sides = np.sort(flat.reshape(sentences.shape), axis=1)
        self._first, self._last = sides[:, 0], sides[:, -1]
        _, self._pair = np.unique(self._first * (1 + flat.max()) + self._last, return_inverse=True)
        self._two = self._first != self._last
        held = np.bincount(np.concatenate([self._first, self._last[self._two]]))
        self.independent = bool(held.max() == 1)
        """Whether no two items share a sentence."""

    @classmethod
    def none(cls, n: int) -> Sharing:
        """N items of which no two share a sentence."""
        return cls(np.arange(n)[:, None])

    def __len__(self) -> int:
        """The number of items."""
        return len(self._first)

    def covariance(self, shares: Float64Array) -> Float64Array:
        """Sums of products of shares over all pairs of items that share a sentence, (k, k) of (k, n).

        Where the sum is less than that of each item with itself (a pair that stands twice is one item), as by chance or where one
        sentence is in most items, the latter stands.
        """
        found, least = self._products(shares)
        return found if np.all(np.diag(found) >= np.diag(least)) else least

    def variances_of_differences(self, shares: Float64Array) -> Float64Array:
        """The variance, as :meth:`variance` gives it, of the difference of each two rows of shares, (k, k) of (k, n)."""
        found, least = map(_of_differences, self._products(shares))
        return np.maximum(found, least)

    def _products(self, shares: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Sums of products over items that share a sentence, and over each item with itself; both (k, k)."""
        by_sentence = self._sums(self._first, shares) + self._sums(self._last[self._two], shares[:, self._two])
        by_pair, twice = self._sums(self._pair, shares), self._sums(self._pair[self._two], shares[:, self._two])
        return by_sentence @ by_sentence.T - twice @ twice.T, by_pair @ by_pair.T

    def variance(self, shares: Float64Array) -> float:
        """The sum of products of shares, (n,), over all pairs of items that share a sentence."""
        return float(self.covariance(shares[None])[0, 0])

    def effective_items(self, weights: Float64Array) -> float:
        """How many independent items of equal weight would tell as much; weights, (n,), are shares of the score."""
        return float(weights.sum()) ** 2 / self.variance(weights)

    def _sums(self, group: IntArray, shares: Float64Array) -> Float64Array:
        width = 1 + int(max(self._last.max(), self._pair.max()))
        return np.array([np.bincount(group, weights=row, minlength=width) for row in shares])


def _of_differences(products: Float64Array) -> Float64Array:
    own = np.diag(products)
    found: Float64Array = own[:, None] + own[None, :] - 2 * products
    return np.maximum(found, 0.0)
