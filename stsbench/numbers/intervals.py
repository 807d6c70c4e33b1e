"""Standard errors and 95% intervals of scores.

Intervals of one score are computed from each item's influence on it: by Fisher's z for a
correlation, by Wilson's method for a share. The variance of a score is estimated in two ways, by
shared sentences and by connected components of items (:mod:`stsbench.numbers.dependence`). Each has
its own degrees of freedom, the number of independent items with the same information less one. An
interval is the wider one of the two, and a p-value the larger one, so that a p-value is below .05
exactly if 0 lies outside the 95% interval.

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

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from stsbench.numbers.dependence import ItemDependence
from stsbench.numbers.statistics import (
    CORRELATIONS,
    MIN_ITEMS,
    Float64Array,
    SubsetWeights,
    correlation_influences,
    item_weights,
)
from stsbench.numbers.tails import SummedVariances, tail_quantiles, upper_tails

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
AGREEMENT_INTERVAL_METHOD = (
    "no item moves the correlation: "
    "by the pairs of items that could be out of order, with Daniels' inequality"
)
"""The label of the interval of a correlation of 1 or -1."""
ZERO_ERROR = 1e-12
"""A standard error of at most this size is 0 with rounding errors."""


class StandardError(NamedTuple):
    """The standard error of an estimate over items, or over items and training seeds.

    Attributes:
        error: The whole error, the root of the sum of the variances over items and over seeds.
        df: The degrees of freedom of the variance over items.
        seed_error: The root of the variance over seeds alone; 0 if there is none.
        seed_df: The degrees of freedom of the variance over seeds; infinite if there is none.
    """

    error: float
    df: float
    seed_error: float = 0.0
    seed_df: float = math.inf

    @property
    def quantile(self) -> float:
        """Half the width of the 95% interval, in units of the error."""
        from scipy import special

        probability = (1 - LEVEL) / 2
        if not self._has_seed_part:
            return float(special.stdtrit(self.df, 1 - probability))
        return float(tail_quantiles(probability, self._variances)[0]) / self.error

    @property
    def half_width(self) -> float:
        """Half the width of the 95% interval."""
        return self.quantile * self.error

    def upper_tail(self, distance: float) -> float:
        """Return the probability that the estimate is so far above the true value.

        It is Student's, or of :func:`stsbench.numbers.tails.upper_tails` if there are seeds. The
        error must be more than 0.
        """
        from scipy import special

        if not self._has_seed_part:
            return float(special.stdtr(self.df, -distance / self.error))
        return float(upper_tails(np.array([distance]), self._variances)[0])

    @property
    def _has_seed_part(self) -> bool:
        return self.seed_error > 0 and math.isfinite(self.error)

    @property
    def _variances(self) -> SummedVariances:
        """The variances of this single estimate."""
        item_variance = max(self.error**2 - self.seed_error**2, 0.0)
        return SummedVariances(
            items=np.array([item_variance]),
            item_df=self.df,
            seeds=np.array([self.seed_error**2]),
            seed_dfs=np.array([self.seed_df]),
        )


def widest_first(errors: Sequence[StandardError]) -> list[StandardError]:
    """Sort standard errors of one score by the width of the 95% interval, the widest one first.

    Among errors of 0, the one with the fewest degrees of freedom is first.
    """
    return sorted(errors, key=lambda error: (-error.half_width, error.df))


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
    by_sentences = VarianceEstimator(dependence.variance, n_effective)
    if dependence.are_independent or dependence.has_dominant_component(weights):
        return [by_sentences]
    # As many independent items would give the weights the same variance.
    n_components = float(weights.sum()) ** 2 / dependence.component_variance(weights)
    return [by_sentences, VarianceEstimator(dependence.component_variance, n_components)]


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


class CorrelationInterval(NamedTuple):
    """The 95% interval of a correlation, and the label of its method."""

    bounds: tuple[float, float]
    method: str


def correlation_interval(
    score: float,
    metric: str,
    values: Float64Array,
    gold: Float64Array,
    *,
    subset_weights: SubsetWeights,
    dependence: ItemDependence,
    has_chains: bool = True,
) -> CorrelationInterval:
    """Return the 95% interval of a correlation, or of its average over subsets.

    It is -1 to 1 with too few items. It is by :func:`agreement_interval` if no item moves the
    correlation.

    Args:
        score: The correlation, or the average.
        metric: A key of ``CORRELATIONS``.
        values: The similarity of each item, (n,).
        gold: The gold score of each item, (n,).
        subset_weights: The subsets that are correlated apart, with their weights.
        dependence: Which items share sentences.
        has_chains: Whether chains of items may err together. Without them the interval is that
            of ``EARLIER_INTERVAL_METHODS``, without width for a correlation of 1 or -1.
    """
    influences = correlation_influences(metric, values, gold, subset_weights)
    weights = item_weights(subset_weights, len(values))
    errors = standard_errors(influences, dependence, weights)
    method = CORRELATION_INTERVAL_METHOD
    # The variance by shared sentences says whether there are enough items.
    if np.isnan(errors[0].error) or errors[0].df < MIN_ITEMS - 1:
        return CorrelationInterval((-1.0, 1.0), method)
    widest = widest_first(errors)[0] if has_chains else errors[0]
    has_no_error = widest.error <= ZERO_ERROR or 1 - abs(score) <= ZERO_ERROR
    if has_no_error and has_chains:
        correlations = [
            CORRELATIONS[metric](values[indices], gold[indices])
            for indices in subset_weights.indices
        ]
        bounds = agreement_interval(score, correlations, independent_items(errors, weights))
        return CorrelationInterval(bounds, AGREEMENT_INTERVAL_METHOD)
    if abs(score) >= 1 or widest.error == 0:
        return CorrelationInterval((score, score), method)
    return CorrelationInterval(_fisher_interval(score, widest.half_width / (1 - score**2)), method)


def _fisher_interval(score: float, half_width: float) -> tuple[float, float]:
    """Return the bounds of a correlation whose interval has this half width on Fisher's scale."""
    low, high = np.tanh(np.arctanh(score) + np.array([-half_width, half_width]))
    return float(low), float(high)


def independent_items(errors: Sequence[StandardError], weights: Float64Array) -> float:
    """Return a number of independent items that is not too large for :func:`agreement_interval`.

    Args:
        errors: The standard errors of the score, whose degrees of freedom are items less one.
        weights: The weights of the items in the score, (n,). If subsets count equally, those of a
            small subset have a large weight, and all items count as if they were in such ones.
    """
    return float(min(min(error.df for error in errors) + 1, weights.sum() / weights.max()))


def agreement_interval(
    score: float, correlations: Sequence[float], n_items: float
) -> tuple[float, float]:
    """Return the 95% interval of a correlation if no two of its items are out of order.

    Of m = n / 2 independent pairs of items none is discordant. So with 97.5% confidence at most
    q = 1 - .025^(1 / m) of all pairs are (Clopper and Pearson 1934, without a failure), and
    Kendall's tau is at least t = 1 - 2 q. Spearman's correlation is then at least (3 t - 1) / 2, or
    (t² + 2 t - 1) / 2 for a negative t (Daniels 1950; Durbin and Stuart 1951), which tau is above
    too, and so is Pearson's correlation of normal values, sin(pi t / 2). The bound holds for every
    distribution; it is nearly reached if few items are the lowest in one variable and the highest
    in the other.

    Args:
        score: The correlation, or the average over subsets.
        correlations: The correlation of each subset.
        n_items: The number n of independent items.

    Returns:
        The lower and the upper bound: -1 to 1 if a correlation is neither 1 nor -1, which has no
        error only if items say nothing.
    """
    if not all(1 - abs(correlation) <= ZERO_ERROR for correlation in correlations):
        return -1.0, 1.0
    m = max(math.floor(n_items / 2 + ZERO_ERROR), 1)
    q = 1 - ((1 - LEVEL) / 2) ** (1 / m)
    t = 1 - 2 * q
    least_correlation = (3 * t - 1) / 2 if t >= 0 else (t**2 + 2 * t - 1) / 2
    distance = 1 - least_correlation
    return max(score - distance, -1.0), min(score + distance, 1.0)


def spearman_interval(correlation: float, n: int) -> tuple[float, float]:
    """Return the 95% interval of Spearman's correlation, if only the number of items is known.

    By Fisher's z, with the variance (1 + r² / 2) / (n - 3) of Bonett and Wright (2000,
    Psychometrika 65); of a correlation of 1 or -1 by :func:`agreement_interval`. It is -1 to 1
    with three items or fewer.

    Args:
        correlation: The correlation of independent items.
        n: The number of items.
    """
    if n <= 3:
        return -1.0, 1.0
    if 1 - abs(correlation) <= ZERO_ERROR:
        return agreement_interval(correlation, [correlation], n)
    error = StandardError(float(np.sqrt((1 + correlation**2 / 2) / (n - 3))), np.inf)
    return _fisher_interval(correlation, error.half_width)


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

    With p the mean, n the number of independent items and z the error's quantile, its bounds are
    (p + z² / 2n ± z sqrt(p (1 - p) / n + z² / 4n²)) / (1 + z² / n). The number n is
    p (1 - p) / error², at which the error of a share is this one. If the error is not finite, the
    interval is 0 to 1.

    Args:
        mean: The mean p.
        error: The standard error of the mean.
        effective_items: The number n if the error is 0: all values are equal then, and the interval
            of a mean of 1 has a width nevertheless.
    """
    if not np.isfinite(error.error):
        return 0.0, 1.0
    variance = mean * (1 - mean)
    n = variance / error.error**2 if error.error > ZERO_ERROR else effective_items
    z_squared = error.quantile**2
    centre = mean + z_squared / (2 * n)
    half_width = np.sqrt(z_squared * (variance / n + z_squared / (4 * n * n)))
    low = (centre - half_width) / (1 + z_squared / n)
    high = (centre + half_width) / (1 + z_squared / n)
    return float(max(low, 0.0)), float(min(high, 1.0))
