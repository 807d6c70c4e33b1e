"""Tail probabilities of estimates whose variance is a sum over items and over training seeds.

There are thousands of items and a few seeds, so that the variance over items is known well and that
over seeds is not. If the estimated variance over seeds is s with f degrees of freedom, the true one
is taken as s / y, where y is distributed as chi-squared by its f degrees of freedom: the fiducial
distribution by which Fisher (1935) and Behrens (1929) compare means, and the generalised p-value of
Tsui and Weerahandi (1989, Journal of the American Statistical Association 84). For each y the
estimate has Student's t distribution, with the variance v + s / y and Satterthwaite's degrees of
freedom m ((v + s / y) / v)² for a variance v over items with m of them. The tail probability is the
mean of Student's over y. Without a variance over seeds it is Student's with m degrees of freedom,
without one over items it is Student's with f.

Satterthwaite's degrees of freedom for the whole sum, v + s, are right on average only: where the
seeds of a sample happen to agree, s is too small and they are too many. Far tails, which Holm's
correction asks for, consist of such samples (benchmarks/ties.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from stsbench.numbers.statistics import Float64Array

STEP: Final = 0.2
"""The distance of two nodes of the quadrature."""
NODES: Final = np.arange(-4.2, 6.0, STEP)
"""Where the mean over y is computed, (nodes,), on a scale on which its density is nearly normal."""
BLOCK_SIZE: Final = 1 << 12
"""The number of estimates whose nodes are in memory at once."""


class SummedVariances(NamedTuple):
    """The estimated variances of k estimates, each a sum of one over items and one over seeds.

    Attributes:
        items: The variances over items, (k,).
        item_df: The degrees of freedom of these.
        seeds: The variances over seeds, (k,), more than 0.
        seed_dfs: The degrees of freedom of these, (k,), finite.
    """

    items: Float64Array
    item_df: float
    seeds: Float64Array
    seed_dfs: Float64Array


def upper_tails(distances: Float64Array, variances: SummedVariances) -> Float64Array:
    """Return the probability that each estimate is so far above its true value, or farther, (k,).

    The variance of an estimate is v over items, with m degrees of freedom, plus s over training
    seeds, which is estimated from few seeds. The true variance over seeds is taken as s / y, where
    y varies as chi-squared divided by its degrees of freedom. For each y the probability is that of
    Student's t distribution, with Satterthwaite's degrees of freedom m ((v + s / y) / v)². The
    result is the weighted mean over many y.

    Args:
        distances: The distances, (k,); negative for a probability above one half.
        variances: The variances of the k estimates: v is ``items``, m ``item_df`` and s ``seeds``;
            ``seed_dfs`` are the degrees of freedom of s.
    """
    from scipy import special

    probabilities = np.empty(len(distances))
    # A block of estimates at once, to bound the memory.
    for start in range(0, len(distances), BLOCK_SIZE):
        block = slice(start, start + BLOCK_SIZE)
        item_variances = variances.items[block, None]
        # The values of y and their weights, (block, nodes) each.
        y, y_weights = chi_squared_nodes(variances.seed_dfs[block, None])
        # The variance of each estimate at each y, (block, nodes).
        sums = item_variances + variances.seeds[block, None] / y
        with np.errstate(divide="ignore"):
            # Infinite without a variance over items.
            df = variances.item_df * (sums / item_variances) ** 2
        tails = special.stdtr(df, -distances[block, None] / np.sqrt(sums))
        probabilities[block] = (y_weights * tails).sum(axis=1)
    return probabilities


def chi_squared_nodes(dfs: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return values y and weights, so that a weighted sum is a mean over chi-squared divided by df.

    The mean of a function f of y, where y is distributed as chi-squared with df degrees of freedom
    divided by df, is the sum of weight f(y) over all values.

    This numerical integration is the trapezoidal rule over t, with
    log y = sqrt(2 / df) (t - exp(-t)). The density of t falls fast on both sides (the double
    exponential rule of Takahasi and Mori 1974).

    Args:
        dfs: The degrees of freedom, (k, 1).

    Returns:
        The values y and their weights with the sum 1, (k, nodes) each.
    """
    # NODES are equally spaced values of t, (nodes,). The longest distance of log y from 0 that is
    # needed grows as 1 / df if df is small.
    scale = np.sqrt(2 / dfs)
    log_y = scale * (NODES - np.exp(-NODES))
    # The log of the density of log y, up to a constant.
    log_density = dfs / 2 * (log_y - np.expm1(log_y))
    # The second factor is the derivative of t - exp(-t).
    weights = np.exp(log_density) * (1 + np.exp(-NODES))
    return np.exp(log_y), weights / weights.sum(axis=1, keepdims=True)


def tail_quantiles(probability: float, variances: SummedVariances) -> Float64Array:
    """Return the distance above its true value that each estimate exceeds with a probability, (k,).

    It is the inverse of :func:`upper_tails`, found by a search for the root of a function.

    Args:
        probability: The probability, less than one half, so that all distances are above 0.
        variances: The variances of the k estimates over items and over training seeds, with their
            degrees of freedom.
    """
    from scipy.optimize import elementwise

    def excess(
        distances: Float64Array, items: Float64Array, seeds: Float64Array, seed_dfs: Float64Array
    ) -> Float64Array:
        """Return by how much the logarithms of the tail probabilities are too large, (k,).

        The search calls it with fewer and fewer estimates: those whose distance is not found yet,
        (k,), with their variances over items, over seeds, and the degrees of freedom of the latter.
        Those over items (``variances.item_df``) and the wanted probability are the same for all.
        """
        tails = upper_tails(distances, SummedVariances(items, variances.item_df, seeds, seed_dfs))
        # No logarithm of 0.
        positive_tails = np.maximum(tails, np.finfo(np.float64).tiny)
        return np.log(positive_tails / probability)

    arguments = variances.items, variances.seeds, variances.seed_dfs
    errors = np.sqrt(variances.items + variances.seeds)
    # Two distances on either side of the root, searched for from the standard error on; find_root()
    # narrows them down.
    bracket = elementwise.bracket_root(excess, errors, xmin=0.0, args=arguments)
    return np.asarray(elementwise.find_root(excess, bracket.bracket, args=arguments).x)
