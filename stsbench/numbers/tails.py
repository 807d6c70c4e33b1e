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
    """Return the probability that an estimate is this far above the true value, (k,).

    Args:
        distances: The distances, (k,); negative for a probability above one half.
        variances: The variances of the estimates.
    """
    from scipy import special

    probabilities = np.empty(len(distances))
    for start in range(0, len(distances), BLOCK_SIZE):
        block = slice(start, start + BLOCK_SIZE)
        item_variances = variances.items[block, None]
        y, y_weights = chi_squared_nodes(variances.seed_dfs[block, None])
        # The variance of each estimate at each node, (block, nodes).
        sums = item_variances + variances.seeds[block, None] / y
        with np.errstate(divide="ignore"):
            # Infinite without a variance over items.
            df = variances.item_df * (sums / item_variances) ** 2
        tails = special.stdtr(df, -distances[block, None] / np.sqrt(sums))
        probabilities[block] = (y_weights * tails).sum(axis=1)
    return probabilities


def chi_squared_nodes(dfs: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return nodes and weights of a quadrature over y, chi-squared divided by its df.

    It is the trapezoidal rule for log y = sqrt(2 / df) (t - exp(-t)), which makes the density of t
    fall fast on both sides (the double exponential rule of Takahasi and Mori 1974).

    Args:
        dfs: The degrees of freedom, (k, 1).

    Returns:
        The values y and their weights with the sum 1, (k, nodes) each.
    """
    # The longest distance of log y from 0 that is needed grows as 1 / df for few of them.
    scale = np.sqrt(2 / dfs)
    log_y = scale * (NODES - np.exp(-NODES))
    log_density = dfs / 2 * (log_y - np.expm1(log_y))
    weights = np.exp(log_density) * (1 + np.exp(-NODES))
    return np.exp(log_y), weights / weights.sum(axis=1, keepdims=True)


def tail_quantiles(probability: float, variances: SummedVariances) -> Float64Array:
    """Return the distance above the true value that an estimate exceeds with a probability, (k,).

    Args:
        probability: The probability, less than one half.
        variances: The variances of the estimates.
    """
    from scipy.optimize import elementwise

    def excess(
        distances: Float64Array, items: Float64Array, seeds: Float64Array, seed_dfs: Float64Array
    ) -> Float64Array:
        """Return by how much the logarithms of the tail probabilities are too large, (k,)."""
        tails = upper_tails(distances, SummedVariances(items, variances.item_df, seeds, seed_dfs))
        return np.log(np.maximum(tails, np.finfo(np.float64).tiny) / probability)

    arguments = variances.items, variances.seeds, variances.seed_dfs
    errors = np.sqrt(variances.items + variances.seeds)
    bracket = elementwise.bracket_root(excess, errors, xmin=0.0, args=arguments)
    return np.asarray(elementwise.find_root(excess, bracket.bracket, args=arguments).x)
