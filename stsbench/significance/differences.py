"""Scores over items and seeds, and the errors of their differences and means.

Items and seeds are crossed: every seed's encoder is scored on the same items. The variance of a
mean over seeds is that over items of the averaged encoder, plus that over seeds beyond what items
explain (the two-way layout of random effects; Searle, Casella and McCulloch 1992, chapter 4).
The variances over
the seeds of two encoders have Satterthwaite's degrees of freedom together (1946). Tail
probabilities count that this part is known badly (:mod:`stsbench.numbers.tails`).

A seed may be good or bad on all tasks at once. The seeds' part of the variance of a mean over
tasks t with weights w_t is therefore the sum over all t and u of
w_t w_u n_tu / (n_t n_u) C_tu. Here n_t is the number of seeds of task t, n_tu the number of seeds
that t and u share, and C_tu the covariance of their scores over these, less what items explain.
If all tasks have the same seeds, that is the variance of the mean taken seed by seed; if no two
tasks share a seed, it is that of independent tasks.

The variance over items is estimated in two ways (:mod:`stsbench.numbers.intervals`). The seeds'
variance is added to each of them. Of the two standard errors that result, the one with the wider
95% interval is that of the difference, and the larger of the two p-values is its p-value.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stsbench.numbers.dependence import ItemDependence
from stsbench.numbers.intervals import StandardError, standard_errors, widest_first
from stsbench.numbers.statistics import Float64Array

TIE_TOLERANCE = 1e-12
"""Two statistics this close are equal: sums in another order differ by as much."""
MAX_CORRELATION_DIFFERENCE = 2.0
"""The largest difference that two correlations can have."""


@dataclass(frozen=True, eq=False)
class ScoreSample:
    """One encoder's score by each of s seeds, and how much each of n items moves it.

    Attributes:
        scores: The scores, (s,).
        influences: How much each item moves each score, (s, n).
        seeds: The seeds by which samples of different tasks are matched; empty if they are
            averaged already, or if no seed can be shared.
        seed_errors: The errors of means over seeds that are averaged already.
        mean_score: The mean over all results, of which some seeds may have more than others; None
            if it is that over ``scores``.
    """

    scores: Float64Array
    influences: Float64Array
    seeds: tuple[Hashable, ...]
    seed_errors: tuple[StandardError, ...] = ()
    mean_score: float | None = None

    @property
    def score(self) -> float:
        """The mean over seeds, as tables show it."""
        return float(self.scores.mean()) if self.mean_score is None else self.mean_score

    @property
    def mean_influences(self) -> Float64Array:
        """How much each item moves the mean over seeds, (n,)."""
        return np.asarray(self.influences.mean(axis=0))


def combine_errors(
    item_error: StandardError, seed_errors: Sequence[StandardError]
) -> StandardError:
    """Join the error of a score over test items with its errors over training seeds.

    They are independent, so their variances (squared errors) are added up. The degrees of freedom
    of a sum of variances v over seeds are Satterthwaite's: (sum of v)² / (sum of v² / df).

    Args:
        item_error: The error over items.
        seed_errors: The errors over seeds; of a difference, for example, one for each encoder that
            has several seeds.

    Returns:
        The joined error, and its part over seeds, each with its own degrees of freedom: ``df`` is
        still that over items. It is the error over items unchanged if seeds add nothing. It is
        infinite if an error is NaN, because too few items say nothing about how a score varies.
    """
    variance = item_error.error**2
    seed_variances = np.array([error.error**2 for error in seed_errors])
    seed_variance = float(seed_variances.sum())
    if np.isnan(variance + seed_variance):
        return StandardError(float("inf"), 1.0)
    if not seed_variance:
        return item_error
    satterthwaite_sum = float(np.sum(seed_variances**2 / [error.df for error in seed_errors]))
    return StandardError(
        (variance + seed_variance) ** 0.5,
        item_error.df,
        seed_error=seed_variance**0.5,
        seed_df=seed_variance**2 / satterthwaite_sum,
    )


class EstimatedDifference(NamedTuple):
    """A difference and its standard error, by which the 95% interval is wider than by another one.

    Attributes:
        difference: The difference.
        error: Its standard error.
        df: The degrees of freedom of the error, over items if there are seeds too.
        seed_error: The error over seeds alone, a part of ``error``; 0 if there is none.
        seed_df: The degrees of freedom of the error over seeds; infinite if there is none.
        other_error: The error by the other estimate of the variance over items, whose interval is
            not wider; None if there is only one.
    """

    difference: float
    error: float
    df: float
    seed_error: float = 0.0
    seed_df: float = math.inf
    other_error: StandardError | None = None

    @property
    def standard_error(self) -> StandardError:
        """The error of the wider interval with its degrees of freedom."""
        return StandardError(self.error, self.df, self.seed_error, self.seed_df)

    @property
    def errors(self) -> list[StandardError]:
        """The error of the wider interval, then the other one if there are two estimates."""
        others = [] if self.other_error is None else [self.other_error]
        return [self.standard_error, *others]

    @property
    def p(self) -> float:
        """The two-sided p-value of the difference.

        It is below 0.05 exactly if 0 is outside the 95% interval, :meth:`interval`. It is 1 for a
        difference of 0 (at most 1e-12, for rounding), and for an infinite error.
        """
        if abs(self.difference) <= TIE_TOLERANCE:
            return 1.0
        return 2 * self.upper_tail(abs(self.difference))

    def upper_tail(self, distance: float) -> float:
        """Return the probability that the estimate is so far above the true value, or farther.

        There may be two estimates of the error; the larger probability counts. One of 0 is left
        out. If all are 0, it is 0 for a distance of at least 0 and 1 for a negative one.
        """
        # By Student's t, or over items and seeds together, for one or two StandardErrors.
        tails = [error.upper_tail(distance) for error in self.errors if error.error]
        return max(tails, default=float(distance < 0))

    def interval(self) -> tuple[float, float]:
        """Return the 95% interval of the difference."""
        half_width = self.standard_error.half_width
        low = max(self.difference - half_width, -MAX_CORRELATION_DIFFERENCE)
        high = min(self.difference + half_width, MAX_CORRELATION_DIFFERENCE)
        return low, high

    @classmethod
    def estimate(
        cls,
        first: ScoreSample | None,
        second: ScoreSample,
        dependence: ItemDependence,
        weights: Float64Array,
    ) -> EstimatedDifference:
        """Estimate the difference of two encoders' scores on the same items.

        A sample has an encoder's scores by seed, and how much each item moves each score (its
        influences). The error over items is estimated from the influences, in one or two ways.

        Args:
            first: The encoder whose score is subtracted; None compares the second one with 0.
            second: The other encoder, on the same items.
            dependence: Which of the n items share a sentence.
            weights: The items' shares of the score, (n,).

        Returns:
            The difference, second minus first, with the error that gives the wider 95% interval,
            and the other error if there are two. An error is infinite if there are too few items.
        """
        samples = [second] if first is None else [first, second]
        difference = second.score
        influences = second.mean_influences
        if first is not None:
            difference = difference - first.score
            influences = influences - first.mean_influences
        errors_of_seeds = [
            error for sample in samples for error in all_seed_errors(sample, dependence)
        ]
        # One for each way to estimate the variance over items.
        errors = [
            combine_errors(item_error, errors_of_seeds)
            for item_error in standard_errors(influences, dependence, weights)
        ]
        # The variance over items is estimated in two ways at most, so there are one or two errors.
        # Each is a tuple (error, df, seed_error, seed_df), as the fields after the difference are.
        widest, *narrower = widest_first(errors)
        return cls(difference, *widest, other_error=narrower[0] if narrower else None)


def seed_error(sample: ScoreSample, dependence: ItemDependence) -> StandardError | None:
    """Compute the standard error over training seeds of an encoder's mean score.

    Scores of different seeds also differ because the test items are a sample. That part is in the
    error over items already, so it is subtracted. With s seeds the error is the root of
    (V - E) / s, at least 0. V is the variance of the scores over seeds. E (``explained``) is the
    part of V that the items explain: the variance over items of each seed's influences less the
    seeds' mean influences, added up over seeds and divided by s - 1.

    Args:
        sample: The scores by seed, and how much each item moves each of them (its influences).
        dependence: Which items share a sentence.

    Returns:
        The error with s - 1 degrees of freedom; None for a single seed. It is NaN if influences
        are, because there are too few items.
    """
    n_seeds = len(sample.scores)
    if n_seeds < 2:
        return None
    seed_deviations = sample.influences - sample.mean_influences
    # Each variance is a sum of products over all pairs of items that share a sentence.
    explained = sum(map(dependence.variance, seed_deviations)) / (n_seeds - 1)
    variance = (float(np.var(sample.scores, ddof=1)) - explained) / n_seeds
    return StandardError(max(variance, 0.0) ** 0.5, n_seeds - 1)


def all_seed_errors(sample: ScoreSample, dependence: ItemDependence) -> list[StandardError]:
    """Return all standard errors of an encoder's score over seeds; their squares are added up.

    The first is that of the mean over the sample's own seeds; it is missing for a single seed. Then
    come errors of means over seeds that were averaged before (``sample.seed_errors``; empty unless
    the sample is a mean over tasks with different seeds).

    Args:
        sample: The encoder's scores by seed, and how much each item moves them.
        dependence: Which items share a sentence.
    """
    error = seed_error(sample, dependence)
    if error is None:
        return list(sample.seed_errors)
    return [error, *sample.seed_errors]


def average_samples(
    samples: Sequence[ScoreSample],
    dependence: ItemDependence,
    weights: Sequence[float] | None = None,
) -> ScoreSample:
    """Average one encoder's scores over several tasks.

    If every task has the same seeds, the mean is taken seed by seed. Otherwise each task's seeds
    are averaged first, and :func:`error_over_seeds` computes their error.

    Args:
        samples: For each of k tasks the encoder's scores by seed, and how much each item of the
            task moves them (influences). None has been averaged before.
        dependence: Which items of all tasks share a sentence.
        weights: The tasks' shares of the mean, (k,), with the sum 1; None weighs all equally.

    Returns:
        The means as one sample, whose items are those of all tasks, one task after another. It has
        one mean per seed; or, if seeds differ, a single mean without seeds but with their error.
    """
    if weights is None:
        weights = [1 / len(samples)] * len(samples)
    weighted_samples = list(zip(samples, weights, strict=True))
    mean_score = sum(weight * sample.score for sample, weight in weighted_samples)
    have_equal_seeds = len({sample.seeds for sample in samples}) == 1
    if have_equal_seeds:
        scores: Float64Array = np.sum(
            [weight * sample.scores for sample, weight in weighted_samples], axis=0
        )
        influences = np.concatenate(
            [weight * sample.influences for sample, weight in weighted_samples], axis=1
        )
        return ScoreSample(scores, influences, samples[0].seeds, mean_score=mean_score)
    error = error_over_seeds(samples, dependence, np.array(weights))
    mean_influences = np.concatenate(
        [weight * sample.mean_influences for sample, weight in weighted_samples]
    )
    return ScoreSample(
        scores=np.array([mean_score]),
        influences=mean_influences[None],
        seeds=(),
        seed_errors=() if error is None else (error,),
    )


def error_over_seeds(
    samples: Sequence[ScoreSample],
    dependence: ItemDependence,
    weights: Float64Array,
    *,
    is_single: bool = False,
) -> StandardError | None:
    """Compute the error over seeds of a mean over k tasks, which may have different seeds.

    The variance is the sum over all tasks t and u of W_tu C_tu. The weight W_tu is
    w_t w_u n_tu / (n_t n_u), with the tasks' weights w, their numbers of seeds n_t and the number
    of seeds n_tu that both have. For the mean of a single seed that all tasks have, it is w_t w_u.
    C_tu is the covariance of their scores over these seeds, less what items explain. If two tasks
    share fewer than two seeds, it cannot be estimated and is replaced by B_tu, the product of their
    deviations, as if the tasks moved together. A task of one seed is taken to
    vary as the others do on average; one without ``seeds`` adds no variance.

    The degrees of freedom are Satterthwaite's, tr(Q)² / tr(Q²), with the matrix Q over seeds: the
    sum over t and u of W_tu B_tu M_tu, where M_tu turns the scores of two tasks into their
    covariance. So a seed is taken to be equally good on every task, which gives the fewest.

    Args:
        samples: The encoder's sample on each task.
        dependence: Which items of all tasks share a sentence.
        weights: The tasks' shares w of the mean, (k,).
        is_single: Compute the error of the mean of a single seed that all tasks have, not that of
            the mean over each task's own seeds.

    Returns:
        The error; None if no task has two seeds.
    """
    seeds = list(dict.fromkeys(seed for sample in samples for seed in sample.seeds))
    has_seed = np.array(
        [[seed in sample.seeds for seed in seeds] for sample in samples], dtype=np.float64
    )
    n_seeds = has_seed.sum(axis=1)
    if n_seeds.max(initial=0) < 2:
        return None
    # n_tu and W_tu, (k, k).
    n_shared = (has_seed[:, None, :] * has_seed[None, :, :]).sum(axis=2)
    pair_weights = np.outer(weights, weights)
    if not is_single:
        pair_weights = pair_weights * n_shared / np.maximum(np.outer(n_seeds, n_seeds), 1)
    # C_tu, (k, k): the sum over seeds s and v of M_tu[s, v] times the product of the score of task
    # t with seed s and that of task u with seed v, both less their means.
    products = _unexplained_products(samples, dependence, seeds)
    matrices = _covariance_matrices(has_seed)
    covariances = np.einsum("tusv,tsuv->tu", matrices, products)
    variances = np.where(n_seeds > 1, np.maximum(np.diag(covariances), 0.0), 0.0)
    variances[n_seeds == 1] = variances[n_seeds > 1].mean()
    # B_tu, (k, k).
    deviations = np.sqrt(variances)
    bounds = np.outer(deviations, deviations)
    variance = float(np.sum(pair_weights * np.where(n_shared > 1, covariances, bounds)))
    # Q, (seeds, seeds).
    quadratic_form = np.einsum("tu,tusv->sv", pair_weights * bounds, matrices)
    if quadratic_form.any():
        df = np.trace(quadratic_form) ** 2 / np.sum(quadratic_form**2)
    else:
        df = n_seeds[n_seeds > 1].min() - 1
    return StandardError(max(variance, 0.0) ** 0.5, float(df))


def _covariance_matrices(has_seed: Float64Array) -> Float64Array:
    """Return for every two of k tasks the matrix M that makes the covariance of their scores.

    The covariance of two tasks' scores x and y over the n seeds that both have is x' M y. M is
    (I - 1 / n) / (n - 1) on these seeds, and 0 on others; all 0 if they share fewer than two.

    Args:
        has_seed: 1 if a task has a seed and 0 if not, (k, seeds).

    Returns:
        The matrices, (k, k, seeds, seeds).
    """
    is_shared = has_seed[:, None, :] * has_seed[None, :, :]
    n_shared = is_shared.sum(axis=2)[..., None, None]
    identity = is_shared[..., None] * np.eye(has_seed.shape[1])
    # 1 / n for every two seeds that both tasks have.
    mean = is_shared[..., None] * is_shared[:, :, None] / np.maximum(n_shared, 1)
    return np.asarray((identity - mean) / np.maximum(n_shared - 1, 1))


def _unexplained_products(
    samples: Sequence[ScoreSample], dependence: ItemDependence, seeds: Sequence[Hashable]
) -> Float64Array:
    """Multiply an encoder's scores of every two tasks and seeds, after their means are subtracted.

    The mean of a score is that over the seeds of its task. From each product, the covariance that
    the test items explain is subtracted.

    Args:
        samples: For each of k tasks the scores by seed, and how much each item moves them
            (influences). ``seeds`` of a sample is empty if no other task can have its seed.
        dependence: Which items of all tasks share a sentence.
        seeds: All s seeds that any task has.

    Returns:
        The products, (k, s, k, s); 0 if a task lacks a seed.
    """
    k = len(samples)
    s = len(seeds)
    scores = np.zeros((k, s))
    influences = np.zeros((k, s, len(dependence)))
    # The position, among the items of all tasks, of a task's first item.
    start = 0
    for task, sample in enumerate(samples):
        seed_indices = [seeds.index(seed) for seed in sample.seeds]
        stop = start + sample.influences.shape[1]
        if seed_indices:
            scores[task, seed_indices] = sample.scores - sample.score
            deviations = sample.influences - sample.mean_influences
            influences[task, seed_indices, start:stop] = deviations
        start = stop
    # Two arrays (k s, k s), over every two pairs of a task and a seed.
    products = np.outer(scores, scores) - dependence.covariance(influences.reshape(k * s, -1))
    return products.reshape(k, s, k, s)
