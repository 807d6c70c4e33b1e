"""95% intervals of one score from each item's share in it: of correlations by Fisher's z, of shares by Wilson's way.

A score's error is the root of the sum over clusters of squared sums of influences. Where no two items share a
sentence every item is a cluster, and Wilson's interval is the one of independent items to the last digit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.clusters import IntArray, effective_clusters, find_clusters, sentences_of
from stsbench.numbers.statistics import CORRELATIONS, Parts

FloatArray = npt.NDArray[np.float64]
LEVEL = 0.95
CORRELATION_METHOD = "Fisher's z, pairs that share a sentence as one cluster"
SHARE_METHOD = "Wilson score interval, items that share a sentence as one cluster"
IMAGE_METHOD = "Wilson score interval over test images with their captions"
FEWEST = 4
"""Of fewer items, or clusters, nothing is known of how a correlation varies."""


class Spread(NamedTuple):
    """A standard error, and of how many degrees of freedom it is known."""

    error: float
    df: float


def clusters_from(columns: Mapping[str, npt.NDArray[np.uint32]], n: int) -> IntArray:
    """The cluster of each of n items, (n,), from per-item columns; each its own where these tell no sentences."""
    sentences = sentences_of(columns)
    return np.arange(n) if sentences is None else find_clusters(sentences)


def item_weights(parts: Parts, n: int) -> FloatArray:
    """What share of the score each of n items is, (n,), the items of a part sharing its own alike."""
    weights = np.zeros(n)
    for at, share in zip(*parts, strict=True):
        weights[at] = share / len(at)
    return weights


def correlation_shares(metric: str, values: FloatArray, gold: FloatArray, parts: Parts) -> FloatArray:
    """How much each item moves a correlation, or its average over subsets, (n,).

    No item moves a correlation that there is none of; NaN where a subset is too small to tell.
    """
    shares = np.zeros(len(values))
    for at, share in zip(*parts, strict=True):
        influence = np.nan_to_num(CORRELATIONS[metric].influence(values[at], gold[at]))
        shares[at] = share * influence / len(at) if len(at) >= FEWEST else np.nan
    return shares


def standard_error(shares: FloatArray, cluster: IntArray, weights: FloatArray) -> Spread:
    """The error of a score of which each item moves a share, all (n,); no error is known of one cluster."""
    sums = np.bincount(cluster, weights=shares)
    if len(sums) < 2:
        return Spread(float("nan"), 1.0)
    error = float(np.sqrt((sums @ sums) * len(sums) / (len(sums) - 1)))
    return Spread(error, max(effective_clusters(cluster, weights) - 1, 1.0))


def correlation_interval(
    score: float, metric: str, values: FloatArray, gold: FloatArray, *, parts: Parts, cluster: IntArray
) -> tuple[float, float]:
    """The interval of a correlation of values with gold scores, both (n,), or of its average over subsets."""
    from scipy import stats

    if len(np.unique(cluster)) < FEWEST:
        return -1.0, 1.0
    shares = correlation_shares(metric, values, gold, parts)
    error, df = standard_error(shares, cluster, item_weights(parts, len(values)))
    if np.isnan(error):
        return -1.0, 1.0
    if abs(score) >= 1 or error == 0:
        return score, score
    reach = stats.t.ppf((1 + LEVEL) / 2, df) * error / (1 - score**2)
    low, high = np.tanh(np.arctanh(score) + np.array([-reach, reach]))
    return float(low), float(high)


def share_interval(values: FloatArray, cluster: IntArray) -> tuple[float, float]:
    """Wilson's interval of a mean of values between 0 and 1, (n,), with as many items as vary like independent ones."""
    from scipy import stats

    mean, sums = float(values.mean()), np.bincount(cluster, weights=values - values.mean())
    variance = float(sums @ sums) / len(values) ** 2
    # Where all values are alike, clusters stand for their items.
    n = mean * (1 - mean) / variance if variance > 0 else float(len(sums))
    z2 = float(stats.norm.ppf((1 + LEVEL) / 2)) ** 2
    centre, reach = mean + z2 / (2 * n), np.sqrt(z2 * (mean * (1 - mean) / n + z2 / (4 * n * n)))
    low, high = (centre - reach) / (1 + z2 / n), (centre + reach) / (1 + z2 / n)
    return float(max(low, 0.0)), float(min(high, 1.0))
