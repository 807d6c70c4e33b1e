"""95% intervals of one score from each item's share in it: of correlations by Fisher's z, of shares by Wilson's way.

A score's error is the root of the sum of products of influences over items that share a sentence. Where no two do,
Wilson's interval is the one of independent items to the last digit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.sharing import Sharing, sentences_of
from stsbench.numbers.statistics import CORRELATIONS, Parts

LEVEL = 0.95
CORRELATION_METHOD = "Fisher's z, with the covariance of pairs that share a sentence"
SHARE_METHOD = "Wilson score interval, with the covariance of items that share a sentence"
IMAGE_METHOD = "Wilson score interval over test images with their captions"
FEWEST = 4
"""Of fewer items nothing is known of how a correlation varies."""


class StandardError(NamedTuple):
    """A standard error, and of how many degrees of freedom it is known."""

    error: float
    df: float


def sharing_from(columns: Mapping[str, npt.NDArray[Any]], n: int) -> Sharing:
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
    """Wilson's interval of a mean of values between 0 and 1, (n,), with as many items as vary like independent ones."""
    from scipy import special

    mean = float(values.mean())
    variance = sharing.variance(values - mean) / len(values) ** 2
    # Where all values are alike, those that share no sentence count.
    n = mean * (1 - mean) / variance if variance > 0 else sharing.effective_items(np.ones(len(values)))
    z2 = float(special.ndtri((1 + LEVEL) / 2)) ** 2
    centre, reach = mean + z2 / (2 * n), np.sqrt(z2 * (mean * (1 - mean) / n + z2 / (4 * n * n)))
    low, high = (centre - reach) / (1 + z2 / n), (centre + reach) / (1 + z2 / n)
    return float(max(low, 0.0)), float(min(high, 1.0))
