"""How much each item moves a correlation: its influence function, at the items as they are.

The influence of item k on a statistic T is the derivative of T where a little weight goes from all items to k
(Hampel 1974; for rank correlations Croux and Dehon 2010). Influences add up to 0; to first order the deviation of T
over other items is their mean, whence its variance, for independent items and for clusters of them alike.
"""

from __future__ import annotations

import numpy as np

from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.ranks import Ties, average_ranks

ROUNDING = 1e-13
"""A deviation this small, as a share of the mean, is rounding (scipy's bound)."""
BLOCK = 1 << 22


def pearson_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """The influence of each item on Pearson's correlation, (n,); NaN where there is no correlation."""
    u, v = _standardised(x), _standardised(y)
    found: Float64Array = u * v - np.mean(u * v) * (u * u + v * v) / 2
    return found


def spearman_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """The influence of each item on Spearman's correlation, average ranks for ties, (n,); NaN where there is none.

    The correlation is Pearson's of the mid-distribution functions of x and y, which an item moves twice: by its own
    place among the ranks, and by moving the ranks of all items above it.
    """
    if np.isnan(x).any() or np.isnan(y).any():
        return np.full(len(x), np.nan)
    of_x, of_y = Ties.among(x), Ties.among(y)
    u, v = ((ties.ranks - 0.5) / len(x) - 0.5 for ties in (of_x, of_y))
    spread_u, spread_v, product = float(u @ u) / len(u), float(v @ v) / len(v), float(u @ v) / len(u)
    if not (spread_u > 0 and spread_v > 0):
        return np.full(len(u), np.nan)
    of_product = u * v + of_x.mean_above(v) + of_y.mean_above(u) - 3 * product
    of_u, of_v = (w * w + 2 * z.mean_above(w) - 3 * s for z, w, s in ((of_x, u, spread_u), (of_y, v, spread_v)))
    scale = np.sqrt(spread_u * spread_v)
    found: Float64Array = of_product / scale - product / scale * (of_u / spread_u + of_v / spread_v) / 2
    return found


def kendall_influence(x: Float64Array, y: Float64Array) -> Float64Array:
    """The influence of each item on Kendall's tau-b, (n,); NaN where there is no correlation. Takes n x n steps."""
    product, of_x, of_y = np.empty((3, len(x)))
    rows = max(1, BLOCK // len(x))
    for start in range(0, len(x), rows):
        at = slice(start, start + rows)
        above_x, above_y = (np.sign(z[at, None] - z) for z in (x, y))
        product[at] = np.einsum("bn,bn->b", above_x, above_y) / len(x)
        of_x[at], of_y[at] = (np.count_nonzero(above, axis=1) / len(x) for above in (above_x, above_y))
    untied_x, untied_y = of_x.mean(), of_y.mean()
    if not (untied_x > 0 and untied_y > 0):
        return np.full(len(x), np.nan)
    scale = np.sqrt(untied_x * untied_y)
    tau = product.mean() / scale
    found: Float64Array = 2 * (product / scale - tau) - tau * (of_x / untied_x + of_y / untied_y - 2)
    return found


def _standardised(x: Float64Array) -> Float64Array:
    centred = x - x.mean()
    spread = np.sqrt(np.mean(centred**2))
    if spread <= ROUNDING * abs(x.mean()):
        return np.full(len(x), np.nan)
    found: Float64Array = centred / spread
    return found


def centred_ranks(x: Float64Array) -> Float64Array:
    """The mid-distribution function less one half: average ranks, between -1/2 and 1/2, with mean 0."""
    ranks: Float64Array = (average_ranks(x) - 0.5) / len(x) - 0.5
    return ranks


def mean_above(x: Float64Array, w: Float64Array) -> Float64Array:
    """For each item the sum of w, (n,), over items above it by x and half of those beside it, divided by n."""
    return Ties.among(x).mean_above(w)
