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
        """Half the width of the 95% interval, in units of the standard error ``self.error``.

        With a variance over items alone it is the quantile of Student's distribution with
        ``self.df`` degrees of freedom. With a variance over training seeds as well
        (``self.seed_error`` above 0, ``self.error`` finite), it is that of
        :func:`stsbench.numbers.tails.tail_quantiles`, which is in the unit of the score.
        """
        from scipy import special

        # LEVEL is .95, so that .025 is left on each side.
        tail_probability = (1 - LEVEL) / 2
        if not self._has_seed_part:
            return float(special.stdtrit(self.df, 1 - tail_probability))
        # self._variances holds this one estimate, so that there is one quantile.
        quantiles = tail_quantiles(tail_probability, self._variances)
        return float(quantiles[0]) / self.error

    @property
    def half_width(self) -> float:
        """Half the width of the 95% interval."""
        return self.quantile * self.error

    def upper_tail(self, distance: float) -> float:
        """Return the probability that the estimate is so far above the true value, or farther.

        With a variance over items alone it is that of Student's distribution with ``self.df``
        degrees of freedom. With a variance over training seeds as well (``self.seed_error`` above
        0, ``self.error`` finite), it is that of :func:`stsbench.numbers.tails.upper_tails`.

        Args:
            distance: The distance in the unit of the score; ``self.error``, the standard error,
                must be more than 0.
        """
        from scipy import special

        if not self._has_seed_part:
            return float(special.stdtr(self.df, -distance / self.error))
        # self._variances holds this one estimate, so that there is one probability.
        probabilities = upper_tails(np.array([distance]), self._variances)
        return float(probabilities[0])

    @property
    def _has_seed_part(self) -> bool:
        return self.seed_error > 0 and math.isfinite(self.error)

    @property
    def _variances(self) -> SummedVariances:
        """The variances of this single estimate, over items and over training seeds, (1,) each.

        ``self.error`` is the root of the sum of both, ``self.seed_error`` that over seeds alone;
        ``self.df`` and ``self.seed_df`` are their degrees of freedom.
        """
        # Rounding may make the difference negative.
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
    """Return one or two ways to estimate how much a score varies over items.

    Each one is a function that returns the variance of a score from the influences of the items,
    (n,), with the number of independent items that hold the same information.

    * By shared sentences: items vary together if they have a sentence in common.
    * By connected components: all items that chains of shared sentences connect vary together.

    Args:
        dependence: Which items share sentences.
        weights: The weights of the items in the score, (n,).

    Returns:
        The estimator by shared sentences, then that by connected components. The latter is missing
        if no items share a sentence, or if one component has more than half of the weight. Empty
        with fewer than two independent items.
    """
    # As many independent items of equal weight: (sum of the weights)² / variance of that sum.
    n_by_sentences = dependence.effective_sample_size(weights)
    if n_by_sentences < 2:
        return []
    by_sentences = VarianceEstimator(dependence.variance, n_by_sentences)
    if dependence.are_independent or dependence.has_dominant_component(weights):
        return [by_sentences]
    # The same number, with the variance by components.
    n_by_components = float(weights.sum()) ** 2 / dependence.component_variance(weights)
    by_components = VarianceEstimator(dependence.component_variance, n_by_components)
    return [by_sentences, by_components]


def standard_errors(
    influences: Float64Array, dependence: ItemDependence, weights: Float64Array
) -> list[StandardError]:
    """Return one or two standard errors of a score.

    The first is by shared sentences: items vary together if they have a sentence in common. The
    second is by connected components: all items that chains of shared sentences connect vary
    together. It is missing if no items share a sentence or if one component has more than half of
    the weight. The caller takes the wider one of their intervals and the larger one of their
    p-values.

    Args:
        influences: How much each item moves the score, (n,).
        dependence: Which items share sentences.
        weights: The weights of the items in the score, (n,).

    Returns:
        The errors, at least one. With fewer than two independent items it is one of NaN.
    """
    errors = []
    for estimator in variance_estimators(dependence, weights):
        # The estimator's variance is that of a population of n_items independent items; that of a
        # sample is larger by n_items / (n_items - 1).
        df = estimator.n_items - 1
        variance = estimator.variance(influences) * estimator.n_items / df
        errors.append(StandardError(float(np.sqrt(variance)), df))
    return errors or [StandardError(float("nan"), df=1.0)]


def standard_error(
    influences: Float64Array, dependence: ItemDependence, weights: Float64Array
) -> StandardError:
    """Return that standard error of a score whose 95% interval is the widest.

    :func:`standard_errors` gives one or two: by shared sentences, and by connected components of
    items. :func:`widest_first` sorts them. The error is NaN with fewer than two independent items.

    Args:
        influences: How much each item moves the score, (n,).
        dependence: Which items share sentences.
        weights: The weights of the items in the score, (n,).
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

    * With fewer than ``MIN_ITEMS`` (4) independent items it is -1 to 1.
    * If the standard error is 0 or the correlation is 1 or -1, it is that of
      :func:`agreement_interval`; without ``has_chains`` it has no width.
    * Else it is by Fisher's z: symmetric about the correlation after the transformation artanh.

    Args:
        score: The correlation, or the average.
        metric: A key of ``CORRELATIONS``.
        values: The similarity of each item, (n,).
        gold: The gold score of each item, (n,).
        subset_weights: The indices of the items of each subset that is correlated apart, and the
            weight of its correlation; one subset of all items for a correlation over all.
        dependence: Which items share sentences.
        has_chains: Whether items that chains of shared sentences connect may err together. Without
            them the interval is by shared sentences alone, as earlier versions computed it.

    Returns:
        The lower and the upper bound, and the label of the method.
    """
    # How much each item moves the score, and how much it counts in it, (n,) each.
    influences = correlation_influences(metric, values, gold, subset_weights)
    weights = item_weights(subset_weights, len(values))
    errors = standard_errors(influences, dependence, weights)
    method = CORRELATION_INTERVAL_METHOD
    # The first error is by shared sentences. It says whether there are enough items: its degrees of
    # freedom are the number of independent items less one.
    error_by_sentences = errors[0]
    if np.isnan(error_by_sentences.error) or error_by_sentences.df < MIN_ITEMS - 1:
        return CorrelationInterval((-1.0, 1.0), method)
    # The error with the widest interval of one or two.
    widest = widest_first(errors)[0] if has_chains else error_by_sentences
    has_no_error = widest.error <= ZERO_ERROR or 1 - abs(score) <= ZERO_ERROR
    if has_no_error and has_chains:
        correlations = [
            CORRELATIONS[metric](values[indices], gold[indices])
            for indices in subset_weights.indices
        ]
        n_items = independent_items(errors, weights)
        bounds = agreement_interval(score, correlations, n_items)
        return CorrelationInterval(bounds, AGREEMENT_INTERVAL_METHOD)
    if abs(score) >= 1 or widest.error == 0:
        return CorrelationInterval((score, score), method)
    # The slope of artanh at the score.
    half_width = widest.half_width / (1 - score**2)
    return CorrelationInterval(_fisher_interval(score, half_width), method)


def _fisher_interval(correlation: float, half_width: float) -> tuple[float, float]:
    """Return the lower and the upper bound of a correlation by Fisher's z.

    Args:
        correlation: The correlation, above -1 and below 1.
        half_width: Half the width of the interval of artanh(correlation).
    """
    low, high = np.tanh(np.arctanh(correlation) + np.array([-half_width, half_width]))
    return float(low), float(high)


def independent_items(errors: Sequence[StandardError], weights: Float64Array) -> float:
    """Return a number of independent items that is not too large for :func:`agreement_interval`.

    That function gives the interval of a correlation of exactly 1 or -1, which depends on how many
    items are independent.

    It is the smaller one of two numbers: that by the standard errors, and that by the weights, the
    sum of all weights over the largest one. If subsets count equally, items of a small subset have
    the largest weight, and all items count as if they had it.

    Args:
        errors: The standard errors of the score, whose degrees of freedom ``df`` are the number of
            independent items less one.
        weights: The weights of the items in the score, (n,).
    """
    items_by_errors = min(error.df for error in errors) + 1
    items_by_weights = weights.sum() / weights.max()
    return float(min(items_by_errors, items_by_weights))


def agreement_interval(
    score: float, correlations: Sequence[float], n_items: float
) -> tuple[float, float]:
    """Return the 95% interval of a correlation of 1 or -1, whose standard error is 0.

    All items are in order then. Other items may still be out of order, so that the true correlation
    may be less than 1. Its bound follows in three steps:

    * None of m = n / 2 independent pairs of items is discordant (one item higher in one variable
      and lower in the other). So with 97.5% confidence at most q = 1 - .025^(1 / m) of all pairs
      are (Clopper and Pearson 1934, without a failure).
    * Kendall's tau is then at least t = 1 - 2 q.
    * Spearman's correlation is then at least (3 t - 1) / 2, or (t² + 2 t - 1) / 2 for a negative t
      (Daniels 1950; Durbin and Stuart 1951).

    Kendall's tau is above this bound too, and so is Pearson's correlation of normal values,
    sin(pi t / 2). The bound holds for every distribution. It is nearly reached if few items are the
    lowest in one variable and the highest in the other.

    Args:
        score: The correlation, or the average over subsets.
        correlations: The correlation of each subset.
        n_items: The number n of independent items.

    Returns:
        The lower and the upper bound. They are -1 and 1 if a correlation is neither 1 nor -1: an
        error of 0 then means that the items say nothing about it.
    """
    # ZERO_ERROR, 1e-12, allows for rounding; a correlation of NaN is not perfect.
    are_perfect = all(1 - abs(correlation) <= ZERO_ERROR for correlation in correlations)
    if not are_perfect:
        return -1.0, 1.0
    m = max(math.floor(n_items / 2 + ZERO_ERROR), 1)
    # LEVEL is .95.
    q = 1 - ((1 - LEVEL) / 2) ** (1 / m)
    t = 1 - 2 * q
    least_correlation = (3 * t - 1) / 2 if t >= 0 else (t**2 + 2 * t - 1) / 2
    distance = 1 - least_correlation
    return max(score - distance, -1.0), min(score + distance, 1.0)


def spearman_interval(correlation: float, n: int) -> tuple[float, float]:
    """Return the 95% interval of Spearman's correlation, if only the number of items is known.

    * With three items or fewer it is -1 to 1.
    * For a correlation of 1 or -1 it is that of :func:`agreement_interval`.
    * Else it is by Fisher's z: artanh(r) of the correlation r has the variance
      (1 + r² / 2) / (n - 3) (Bonett and Wright 2000, Psychometrika 65).

    Args:
        correlation: The correlation r of independent items.
        n: The number of items.

    Returns:
        The lower and the upper bound.
    """
    if n <= 3:
        return -1.0, 1.0
    # ZERO_ERROR, 1e-12, allows for rounding.
    if 1 - abs(correlation) <= ZERO_ERROR:
        return agreement_interval(correlation, [correlation], n)
    variance = (1 + correlation**2 / 2) / (n - 3)
    # Infinite degrees of freedom: the quantile is that of the normal distribution. The half width
    # is the quantile times the error.
    error_on_fisher_scale = StandardError(float(np.sqrt(variance)), df=np.inf)
    return _fisher_interval(correlation, error_on_fisher_scale.half_width)


def mean_interval(
    scores: Sequence[float], intervals: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Return the 95% interval of the mean of independent scores, from their own intervals.

    On each side the distances of score and bound are added as squares (Zou and Donner 2008,
    Statistics in Medicine 27), so that the interval of the mean is as skewed as those of the
    scores. With k scores the lower bound is mean - sqrt(sum of (score - low)²) / k, and the upper
    one is mean + sqrt(sum of (high - score)²) / k.

    Args:
        scores: The k scores.
        intervals: The lower and the upper bound of each score.

    Returns:
        The lower and the upper bound of the mean.
    """
    mean = np.mean(scores)
    # The distance of each score to its two bounds, (k, 2).
    distances = np.abs(np.asarray(intervals) - np.asarray(scores)[:, None])
    below, above = np.sqrt(np.sum(distances**2, axis=0)) / len(scores)
    return float(mean - below), float(mean + above)


def share_interval(
    values: Float64Array, dependence: ItemDependence, *, has_chains: bool = True
) -> tuple[float, float]:
    """Return the 95% interval of a mean of values between 0 and 1, by Wilson's method.

    Args:
        values: The value of each item, (n,), for example 1 for a right answer and 0 for a wrong
            one.
        dependence: Which items share sentences.
        has_chains: Whether items that chains of shared sentences connect may err together. Without
            them the interval is by shared sentences alone, as earlier versions computed it.

    Returns:
        The lower and the upper bound, within 0 and 1.
    """
    n = len(values)
    mean = float(values.mean())
    weights = np.full(n, 1 / n)
    # How much each item moves the mean.
    influences = (values - mean) / n
    if dependence.are_independent:
        # The variance of a share of independent items is known, the sum of the squared influences:
        # its quantile is the normal one.
        error = StandardError(float(np.sqrt(dependence.variance(influences))), df=float("inf"))
        return wilson_interval(mean, error, effective_items=float(n))
    # The first error is by shared sentences; a second one, if any, is by chains of them.
    errors = standard_errors(influences, dependence, weights)
    error = widest_first(errors)[0] if has_chains else errors[0]
    return wilson_interval(mean, error, effective_items=error.df + 1)


def wilson_interval(
    mean: float, error: StandardError, effective_items: float
) -> tuple[float, float]:
    """Return Wilson's 95% interval of a mean of values between 0 and 1, from its standard error.

    With p the mean, n a number of independent items and z the quantile of the error, its bounds are
    (p + z² / 2n ± z sqrt(p (1 - p) / n + z² / 4n²)) / (1 + z² / n).

    * The number n is p (1 - p) / error²: a share p of n independent items has that error.
    * If the error is 0, all values are equal, and n is ``effective_items``: the interval of a mean
      of 1 has a width nevertheless.
    * If the error is not finite, the interval is 0 to 1.

    Args:
        mean: The mean p.
        error: The standard error of the mean, with its quantile z.
        effective_items: The number n if the error is 0.

    Returns:
        The lower and the upper bound, within 0 and 1.
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
