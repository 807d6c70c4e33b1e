"""95% intervals of one score from each item's share in it: of correlations by Fisher's z, of shares by Wilson's way.

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
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.statistics import CORRELATIONS, Float64Array, IntArray, Parts

LEVEL = 0.95
CORRELATION_METHOD = "Fisher's z, with the covariance of pairs that share a sentence"
SHARE_METHOD = "Wilson score interval by Student's t, with the covariance of items that share a sentence"
IMAGE_METHOD = "Wilson score interval over test images with their captions"
FEWEST = 4
"""Of fewer items nothing is known of how a correlation varies."""
SentenceKeys = npt.NDArray[np.uint32]
COLUMNS = ("sentence1", "sentence2")
"""The per-item columns that tell which sentences an item holds."""


def sentence_columns(*sides: Sequence[str]) -> dict[str, SentenceKeys]:
    """The first four bytes of each sentence's sha256, as per-item columns: one side, or both of pairs.

    Two of 26,000 different sentences are taken for one with probability 0.08, which then ties a few items too many.
    """
    keys = (np.frombuffer(b"".join(map(_key, side)), dtype="<u4").astype(np.uint32) for side in sides)
    return dict(zip(COLUMNS, keys, strict=False))


# The same sentences come again with each encoder.
@lru_cache(maxsize=1 << 16)
def _key(sentence: str) -> bytes:
    return hashlib.sha256(sentence.encode("utf-8", "surrogatepass")).digest()[:4]


def sentences_of(columns: Mapping[str, npt.NDArray[Any] | list[str]]) -> IntArray | None:
    """The sentences of each item, (n, 1) or (n, 2), from per-item columns; None where these do not tell them."""
    known = [np.asarray(columns[name]).astype(np.int64) for name in COLUMNS if name in columns]
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

        Where a row's own sum is less than that of each item with itself (a pair that stands twice is one item), as by chance or
        where one sentence is in most items, the latter stands in all sums of that row; other rows keep theirs.
        """
        found, least = self._products(shares)
        odd = np.diag(found) < np.diag(least)
        return np.where(odd[:, None] | odd, least, found)

    def variances_of_differences(self, shares: Float64Array) -> Float64Array:
        """The variance, as :meth:`variance` gives it, of the difference of each two rows of shares, (k, k) of (k, n)."""
        sums = np.stack(self._products(shares))
        own = np.diagonal(sums, axis1=1, axis2=2)
        found: Float64Array = (own[:, :, None] + own[:, None, :] - 2 * sums).max(axis=0)
        return np.maximum(found, 0.0)

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


class StandardError(NamedTuple):
    """A standard error, and of how many degrees of freedom it is known."""

    error: float
    df: float


def sharing_from(columns: Mapping[str, npt.NDArray[Any] | list[str]], n: int) -> Sharing:
    """Which of n items share sentences, from per-item columns; none where these tell no sentences."""
    sentences = sentences_of(columns)
    return Sharing.none(n) if sentences is None else Sharing(sentences)


def item_weights(parts: Parts, n: int) -> Float64Array:
    """What share of the score each of n items is, (n,), the items of a part sharing its own alike."""
    weights = np.zeros(n)
    for at, share in zip(*parts, strict=True):
        weights[at] = share / len(at)
    return weights


def correlation_shares(metric: str, values: Float64Array, gold: Float64Array, parts: Parts) -> Float64Array:
    """How much each item moves a correlation, or its average over subsets, (n,).

    No item moves a correlation that there is not one of; NaN where a subset is too small to tell.
    """
    shares = np.zeros(len(values))
    for at, share in zip(*parts, strict=True):
        influence = np.nan_to_num(CORRELATIONS[metric].influence(values[at], gold[at]))
        shares[at] = share * influence / len(at) if len(at) >= FEWEST else np.nan
    return shares


def standard_error(shares: Float64Array, sharing: Sharing, weights: Float64Array) -> StandardError:
    """The error of a score of which each item moves a share; weights are the items', all (n,); NaN of too few items."""
    items = sharing.effective_items(weights)
    if items < 2:
        return StandardError(float("nan"), 1.0)
    return StandardError(float(np.sqrt(sharing.variance(shares) * items / (items - 1))), items - 1)


def correlation_interval(
    score: float, metric: str, values: Float64Array, gold: Float64Array, *, parts: Parts, sharing: Sharing
) -> tuple[float, float]:
    """The interval of a correlation of values with gold scores, both (n,), or of its average over subsets."""
    from scipy import special

    shares, weights = correlation_shares(metric, values, gold, parts), item_weights(parts, len(values))
    error, df = standard_error(shares, sharing, weights)
    if np.isnan(error) or df < FEWEST - 1:
        return -1.0, 1.0
    if abs(score) >= 1 or error == 0:
        return score, score
    reach = special.stdtrit(df, (1 + LEVEL) / 2) * error / (1 - score**2)
    low, high = np.tanh(np.arctanh(score) + np.array([-reach, reach]))
    return float(low), float(high)


def share_interval(values: Float64Array, sharing: Sharing) -> tuple[float, float]:
    """The interval of a mean of values between 0 and 1, (n,)."""
    n, mean = len(values), float(values.mean())
    even = np.full(n, 1 / n)
    if sharing.independent:
        found = StandardError(float(np.sqrt(sharing.variance((values - mean) / n))), float("inf"))
    else:
        found = standard_error((values - mean) / n, sharing, even)
    return wilson_interval(mean, found, sharing.effective_items(even))


def wilson_interval(mean: float, found: StandardError, items: float) -> tuple[float, float]:
    """Wilson's interval of a mean of values between 0 and 1 from its error.

    Where all values are alike and the error is 0, ``items`` count, the independent items that the values tell as much as:
    so the interval of a mean of 1 has a width.
    """
    from scipy import special

    if not np.isfinite(found.error):
        return 0.0, 1.0
    n = mean * (1 - mean) / found.error**2 if found.error > 0 else items
    z2 = float(special.stdtrit(found.df, (1 + LEVEL) / 2)) ** 2
    centre, reach = mean + z2 / (2 * n), np.sqrt(z2 * (mean * (1 - mean) / n + z2 / (4 * n * n)))
    low, high = (centre - reach) / (1 + z2 / n), (centre + reach) / (1 + z2 / n)
    return float(max(low, 0.0)), float(min(high, 1.0))
