"""Compare encoders over the same items, in which sentences recur, and over seeds.

The influence of an item is how much it moves an encoder's score
(:mod:`stsbench.numbers.statistics`). Scores, their differences and their means vary together by
sums of products of influences over items that share a sentence. From these follow intervals,
ranks and, by Student's t, tests. For one task with one seed per encoder, if no items share a
sentence, the p-value is that of a permutation test, which swaps the two encoders' values of
single items. For items that are right or wrong it is the exact test of McNemar (1947), which is
the permutation test without its draws. For correlations, Williams' test is computed as well
(Steiger 1980, Psychological Bulletin 87, equation 7).

Seeds. Items and seeds are crossed: every seed's encoder is scored on the same items. The
variance of a mean over seeds is that over items of the averaged encoder, plus that over seeds
beyond what items explain (the two-way layout of random effects; Searle, Casella and McCulloch
1992, chapter 4). Degrees of freedom are Satterthwaite's (1946).

A seed may be good or bad on all tasks at once. The seeds' part of the variance of a mean over
tasks t with weights w_t is therefore the sum over all t and u of
w_t w_u n_tu / (n_t n_u) C_tu. Here n_t is the number of seeds of task t, n_tu the number of seeds
that t and u share, and C_tu the covariance of their scores over these, less what items explain.
If all tasks have the same seeds, that is the variance of the mean taken seed by seed; if no two
tasks share a seed, it is that of independent tasks.

Fair swaps. A swap is fair if, under the null hypothesis, an item's two values could as well
have come the other way round. Raw cosines could not: one encoder's lie around 0.3, another's
around 0.8, and a mixture of the two correlates with nothing. So each encoder's values are first
put on one scale, ranks for Spearman and values for Pearson, with mean 0 and variance 1 within
each subset that has a correlation of its own; these are swapped, and the correlation of the
mixtures is computed. To first order in 1/n, a swap then only changes the sign of an item's
influence on the difference of two equal correlations. The test therefore holds its level for
encoders whose values are distributed differently too, not only for exchangeable ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.statistics import (
    CORRELATIONS,
    LEVEL,
    Float64Array,
    ItemDependence,
    StandardError,
    SubsetWeights,
    correlation_influences,
    item_weights,
    standard_error,
)

PERMUTATION_BLOCK = 256
"""How many permutations are drawn at once."""
TIE_TOLERANCE = 1e-12
"""Two statistics this close are equal: sums in another order differ by as much."""
MAX_DIFFERENCE = 2.0
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
    """

    scores: Float64Array
    influences: Float64Array
    seeds: tuple[Hashable, ...]
    seed_errors: tuple[StandardError, ...] = ()

    @property
    def score(self) -> float:
        """The mean over seeds."""
        return float(self.scores.mean())

    @property
    def mean_influences(self) -> Float64Array:
        """How much each item moves the mean over seeds, (n,)."""
        return np.asarray(self.influences.mean(axis=0))


class EstimatedDifference(NamedTuple):
    """A difference, its standard error, and the degrees of freedom of that error."""

    difference: float
    error: float
    df: float

    @property
    def p(self) -> float:
        """The two-sided p-value by Student's t."""
        from scipy import special

        if abs(self.difference) <= TIE_TOLERANCE:
            return 1.0
        if not self.error:
            return 0.0
        return float(2 * special.stdtr(self.df, -abs(self.difference) / self.error))

    def interval(self) -> tuple[float, float]:
        """Return the 95% interval of the difference by Student's t."""
        from scipy import special

        half_width = float(special.stdtrit(self.df, (1 + LEVEL) / 2)) * self.error
        low = max(self.difference - half_width, -MAX_DIFFERENCE)
        high = min(self.difference + half_width, MAX_DIFFERENCE)
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

        Args:
            first: The encoder whose score is subtracted; None compares the second one with 0.
            second: The other encoder, on the same items.
            dependence: Which of the n items share a sentence.
            weights: The items' shares of the score, (n,).

        Returns:
            The difference, second minus first. Its error is infinite if there are too few items.
        """
        samples = [second] if first is None else [first, second]
        difference = second.score
        influences = second.mean_influences
        if first is not None:
            difference = difference - first.score
            influences = influences - first.mean_influences
        errors = [standard_error(influences, dependence, weights)]
        for sample in samples:
            error_of_seeds = seed_error(sample, dependence)
            if error_of_seeds is not None:
                errors.append(error_of_seeds)
        for sample in samples:
            errors.extend(sample.seed_errors)
        variances = np.array([error.error**2 for error in errors])
        variance = float(variances.sum())
        if np.isnan(variance):
            # Too few items say nothing about how a score varies.
            return cls(difference, float("inf"), 1.0)
        # Satterthwaite's degrees of freedom are the squared sum of variances by this sum.
        satterthwaite_sum = float(np.sum(variances**2 / np.array([error.df for error in errors])))
        df = variance**2 / satterthwaite_sum if satterthwaite_sum > 0 else errors[0].df
        return cls(difference, variance**0.5, df)


def seed_error(sample: ScoreSample, dependence: ItemDependence) -> StandardError | None:
    """Compute the error of a mean over seeds that items do not explain; None for a single seed."""
    n_seeds = len(sample.scores)
    if n_seeds < 2:
        return None
    seed_deviations = sample.influences - sample.influences.mean(axis=0)
    explained = sum(map(dependence.variance, seed_deviations)) / (n_seeds - 1)
    variance = (float(np.var(sample.scores, ddof=1)) - explained) / n_seeds
    return StandardError(max(variance, 0.0) ** 0.5, n_seeds - 1)


def all_seed_errors(sample: ScoreSample, dependence: ItemDependence) -> list[StandardError]:
    """List the errors of a sample that come from seeds: of its own seeds, then those averaged."""
    error = seed_error(sample, dependence)
    return [*([] if error is None else [error]), *sample.seed_errors]


def average_samples(
    samples: Sequence[ScoreSample],
    dependence: ItemDependence,
    weights: Sequence[float] | None = None,
) -> ScoreSample:
    """Average one encoder's samples on several tasks, whose items follow each other.

    If every task has the same seeds, the mean is taken seed by seed. Otherwise each task's seeds
    are averaged first, and their error is the one that the module's docstring describes.

    Args:
        samples: One sample per task, k of them.
        dependence: Which items of all tasks share a sentence.
        weights: The tasks' shares of the mean, (k,), with the sum 1; None weighs all equally.
    """
    if weights is None:
        weights = [1 / len(samples)] * len(samples)
    weighted_samples = list(zip(samples, weights, strict=True))
    if len({sample.seeds for sample in samples}) == 1:
        scores: Float64Array = np.sum(
            [weight * sample.scores for sample, weight in weighted_samples], axis=0
        )
        influences = np.concatenate(
            [weight * sample.influences for sample, weight in weighted_samples], axis=1
        )
        return ScoreSample(scores, influences, samples[0].seeds)
    error = _error_of_unequal_seeds(samples, dependence, np.array(weights))
    mean_score = np.sum([weight * sample.score for sample, weight in weighted_samples])
    mean_influences = np.concatenate(
        [weight * sample.mean_influences for sample, weight in weighted_samples]
    )
    return ScoreSample(
        scores=np.array([mean_score]),
        influences=mean_influences[None],
        seeds=(),
        seed_errors=() if error is None else (error,),
    )


def _error_of_unequal_seeds(
    samples: Sequence[ScoreSample], dependence: ItemDependence, weights: Float64Array
) -> StandardError | None:
    """Compute the seeds' error of a mean over k tasks of which not all have the same seeds.

    If two tasks share a single seed, their covariance cannot be estimated: then they are taken to
    move together entirely. A task of one seed is taken to vary as the others do on average. The
    degrees of freedom are Satterthwaite's for the quadratic form in the seeds, tr(B)² / tr(B²),
    as if a seed were equally good or bad on every task, which is the smallest number possible.

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
    is_shared = has_seed[:, None, :] * has_seed[None, :, :]
    n_shared = is_shared.sum(axis=2)
    pair_weights = np.outer(weights, weights) * n_shared / np.maximum(np.outer(n_seeds, n_seeds), 1)
    # (k, k, s, s): subtracts the mean over the shared seeds from the scores of two tasks.
    centring = (
        is_shared[..., None] * np.eye(len(seeds))
        - is_shared[..., None] * is_shared[:, :, None] / np.maximum(n_shared, 1)[..., None, None]
    )
    centring /= np.maximum(n_shared - 1, 1)[..., None, None]
    products = _unexplained_products(samples, dependence, seeds)
    covariances = np.einsum("tusv,tsuv->tu", centring, products)
    variances = np.where(n_seeds > 1, np.maximum(np.diag(covariances), 0.0), 0.0)
    variances[n_seeds == 1] = variances[n_seeds > 1].mean()
    deviations = np.sqrt(variances)
    bounds = np.outer(deviations, deviations)
    variance = float(np.sum(pair_weights * np.where(n_shared > 1, covariances, bounds)))
    quadratic_form = np.einsum("tu,tusv->sv", pair_weights * bounds, centring)
    if quadratic_form.any():
        df = np.trace(quadratic_form) ** 2 / np.sum(quadratic_form**2)
    else:
        df = n_seeds[n_seeds > 1].min() - 1
    return StandardError(max(variance, 0.0) ** 0.5, float(df))


def _unexplained_products(
    samples: Sequence[ScoreSample], dependence: ItemDependence, seeds: Sequence[Hashable]
) -> Float64Array:
    """Multiply the centred scores of every two tasks and seeds, less what items explain of them.

    Returns:
        The products, (k, s, k, s) for k tasks and s seeds; 0 if a task lacks a seed.
    """
    k = len(samples)
    s = len(seeds)
    scores = np.zeros((k, s))
    influences = np.zeros((k, s, len(dependence)))
    start = 0
    for task, sample in enumerate(samples):
        columns = [seeds.index(seed) for seed in sample.seeds]
        stop = start + sample.influences.shape[1]
        if columns:
            scores[task, columns] = sample.scores - sample.score
            influences[task, columns, start:stop] = sample.influences - sample.mean_influences
        start = stop
    products = np.outer(scores, scores) - dependence.covariance(influences.reshape(k * s, -1))
    return products.reshape(k, s, k, s)


def draw_scores(
    samples: Sequence[ScoreSample],
    dependence: ItemDependence,
    *,
    n_draws: int,
    rng: np.random.Generator,
    owners: Sequence[int] = (),
) -> Float64Array:
    """Draw scores that encoders would have on other items and with other seeds, by the normal law.

    Args:
        samples: The samples, k of them, all on the same items.
        dependence: Which items share a sentence.
        n_draws: How many scores to draw for each sample.
        rng: The generator of the draws.
        owners: For each sample the number of its encoder, (k,). A seed is equally good or bad in
            all samples of one encoder. Empty if each sample is of an encoder of its own.

    Returns:
        The drawn scores, (k, n_draws).
    """
    covariance = dependence.covariance(np.array([sample.mean_influences for sample in samples]))
    eigenvalues, eigenvectors = np.linalg.eigh(covariance)
    is_positive = eigenvalues > TIE_TOLERANCE * eigenvalues[-1]
    square_root = eigenvectors[:, is_positive] * np.sqrt(eigenvalues[is_positive])
    drawn_scores = square_root @ rng.standard_normal((square_root.shape[1], n_draws))
    noise_by_owner: dict[int, Float64Array] = {}
    for index, sample in enumerate(samples):
        owner = owners[index] if owners else index
        if owner not in noise_by_owner:
            noise_by_owner[owner] = rng.standard_normal(n_draws)
        variance = sum(error.error**2 for error in all_seed_errors(sample, dependence))
        drawn_scores[index] += sample.score + np.sqrt(variance) * noise_by_owner[owner]
    # Rounded, so that encoders whose items are the same have the same score in every draw.
    return np.asarray(np.round(drawn_scores, 9))


class Williams(NamedTuple):
    """The result of Williams' test: a difference of two correlations, its error and p-value.

    Attributes:
        difference: The difference of the correlations.
        error: Its standard error.
        p: The two-sided p-value.
    """

    difference: float
    error: float
    p: float


class Paired(ABC):
    """The values of k encoders on the same n items of one task, by one or several seeds each."""

    is_proportion = True
    """Whether scores lie between 0 and 1, as shares of right items do."""

    @property
    def weights(self) -> Float64Array:
        """The items' shares of the score, (n,)."""
        n_items = self.influences(0).shape[1]
        return np.full(n_items, 1 / n_items)

    @abstractmethod
    def scores(self, encoder: int) -> Float64Array:
        """Return an encoder's score by each seed, (s,)."""

    @abstractmethod
    def influences(self, encoder: int) -> Float64Array:
        """Return how much each item moves an encoder's score, by each seed, (s, n)."""

    def permuted_differences(
        self, first: int, second: int, *, n_permutations: int, rng: np.random.Generator
    ) -> Float64Array | None:
        """Compute the differences of the first seeds' scores after random swaps of items.

        Returns:
            Second minus first, (n_permutations,); None if scores of swapped items are unknown.
        """
        return None

    def exact_p(
        self, first: int, second: int, *, n_permutations: int, rng: np.random.Generator
    ) -> float | None:
        """Compute the p-value of the first seeds without assuming a distribution.

        Items must be independent.

        Returns:
            The two-sided p-value; None if there is no such test.
        """
        permuted = self.permuted_differences(first, second, n_permutations=n_permutations, rng=rng)
        observed = float(self.scores(second)[0] - self.scores(first)[0])
        return None if permuted is None else permutation_p(observed, permuted)

    def williams(self, first: int, second: int) -> Williams | None:
        """Apply Williams' test to second minus first, for independent items.

        Returns:
            The test's result; None if scores are no correlations.
        """
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedCorrelation(Paired):
    """Values whose correlation with gold scores is the score.

    Attributes:
        values: For each encoder its values by seed, (s, n).
        gold: The gold scores, (n,).
        subset_weights: The items that are correlated together, and their shares of the score: one
            subset for the aggregation ``all``, several for ``mean`` and ``wmean``.
        metric: A name of ``CORRELATIONS``.
    """

    values: Sequence[Float64Array]
    gold: Float64Array
    subset_weights: SubsetWeights
    metric: str
    is_proportion = False

    @property
    def weights(self) -> Float64Array:
        """The items' shares of the score, (n,)."""
        return item_weights(self.subset_weights, len(self.gold))

    def scores(self, encoder: int) -> Float64Array:
        """Compute an encoder's correlation by each seed, (s,); 0 if all its values are equal."""
        return np.array([self._score(values) for values in self.values[encoder]])

    def _score(self, values: Float64Array) -> float:
        metric = CORRELATIONS[self.metric]
        weighted_correlations = [
            weight * metric(values[indices], self.gold[indices])
            for indices, weight in zip(*self.subset_weights, strict=True)
            if np.ptp(values[indices]) > 0
        ]
        return float(sum(weighted_correlations))

    def influences(self, encoder: int) -> Float64Array:
        """Compute how much each item moves an encoder's correlation, by each seed, (s, n)."""
        influences = [
            correlation_influences(self.metric, values, self.gold, self.subset_weights)
            for values in self.values[encoder]
        ]
        return np.array(influences)

    def permuted_differences(
        self, first: int, second: int, *, n_permutations: int, rng: np.random.Generator
    ) -> Float64Array | None:
        """Compute the differences of correlations after random swaps, (n_permutations,).

        Returns:
            The differences; None if values of this correlation have no common scale.
        """
        if CORRELATIONS[self.metric].scale is None:
            return None
        # Every subset draws from the same seed: an item is swapped in the same permutations.
        seed = int(rng.integers(2**63))
        differences = np.zeros(n_permutations)
        for indices, weight in zip(*self.subset_weights, strict=True):
            first_values, second_values, gold = self._scaled(first, second, indices)
            blocks = draw_swaps(len(self.gold), n_permutations, seed)
            differences += weight * _swapped_differences(
                first_values, second_values, gold, indices, blocks
            )
        return differences

    def williams(self, first: int, second: int) -> Williams | None:
        """Apply Williams' test to second minus first, for independent items.

        The differences of several subsets are added up by weight, and their variances by squared
        weight.

        Returns:
            The test's result; None if an encoder has several seeds, or if a subset has fewer than
            four items.
        """
        n_seeds = max(len(self.values[first]), len(self.values[second]))
        if (
            n_seeds > 1
            or CORRELATIONS[self.metric].scale is None
            or min(map(len, self.subset_weights.indices)) < 4
        ):
            return None
        tests = []
        for indices in self.subset_weights.indices:
            n_items = len(indices)
            first_values, second_values, gold = self._scaled(first, second, indices)
            r_first = float(first_values @ gold) / n_items
            r_second = float(second_values @ gold) / n_items
            r_between = float(first_values @ second_values) / n_items
            tests.append(williams(r_first, r_second, r_between, n_items=n_items))
        return tests[0] if len(tests) == 1 else combine_williams(tests, self.subset_weights.weights)

    def _scaled(
        self, first: int, second: int, indices: npt.NDArray[np.int64]
    ) -> Iterator[Float64Array]:
        """Yield the first encoder's, the second's and gold's values of m items on one scale, (m,).

        They are ranks or values with mean 0 and variance 1; zeros if all are equal.
        """
        scale = CORRELATIONS[self.metric].scale
        assert scale is not None, f"{self.metric} has no scale"
        for values in (self.values[first][0], self.values[second][0], self.gold):
            centred = scale(values[indices]) - scale(values[indices]).mean()
            deviation = np.sqrt(np.mean(centred**2))
            yield centred / deviation if deviation > 0 else np.zeros_like(centred)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedMean(Paired):
    """Values whose mean is the score: whether an item is right, or its recall.

    Attributes:
        values: For each encoder its values by seed, (s, n).
    """

    values: Sequence[Float64Array]

    def scores(self, encoder: int) -> Float64Array:
        """Compute an encoder's mean by each seed, (s,)."""
        return np.asarray(self.values[encoder].mean(axis=1))

    def influences(self, encoder: int) -> Float64Array:
        """Compute how much each item moves an encoder's mean, by each seed, (s, n)."""
        values = self.values[encoder]
        return np.asarray((values - values.mean(axis=1, keepdims=True)) / values.shape[1])

    def permuted_differences(
        self, first: int, second: int, *, n_permutations: int, rng: np.random.Generator
    ) -> Float64Array | None:
        """Compute the differences of means after random swaps, (n_permutations,)."""
        item_differences = self.values[second][0] - self.values[first][0]
        n_items = len(item_differences)
        blocks = draw_swaps(n_items, n_permutations, int(rng.integers(2**63)))
        swapped_sums = np.concatenate([block @ item_differences for block in blocks])
        return np.asarray((item_differences.sum() - 2 * swapped_sums) / n_items)

    def exact_p(
        self, first: int, second: int, *, n_permutations: int, rng: np.random.Generator
    ) -> float | None:
        """Compute McNemar's p-value if all items are right or wrong, else that of random swaps."""
        first_values = self.values[first][0]
        second_values = self.values[second][0]
        if np.isin([first_values, second_values], (0.0, 1.0)).all():
            return mcnemar(first_values > second_values, second_values > first_values)
        return super().exact_p(first, second, n_permutations=n_permutations, rng=rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedF1(Paired):
    """Predictions whose F1 is the score, which is no sum over items: swaps do not add up.

    F1 is a ratio of two sums over items, 2 TP / (predicted + true). An item's influence is its part
    in the ratio's first order (delta method; Cochran 1977, Sampling Techniques, section 6.3),
    (2 tp - F1 (predicted + true)) / (predicted + true), with the item's counts above and the sum
    over all items below.

    Attributes:
        predicted: For each encoder the predicted classes by seed, (s, n).
        correct: For each encoder whether the predictions are right, (s, n).
    """

    predicted: Sequence[Float64Array]
    correct: Sequence[Float64Array]

    def scores(self, encoder: int) -> Float64Array:
        """Compute an encoder's F1 by each seed, (s,); 0 if class 1 is never predicted or true."""
        hits, positives = self._counts(encoder)
        return np.asarray(2 * hits.sum(axis=1) / np.maximum(positives.sum(axis=1), 1))

    def influences(self, encoder: int) -> Float64Array:
        """Compute how much each item moves an encoder's F1, by each seed, (s, n)."""
        hits, positives = self._counts(encoder)
        first_order_terms = 2 * hits - self.scores(encoder)[:, None] * positives
        return np.asarray(first_order_terms / np.maximum(positives.sum(axis=1, keepdims=True), 1))

    def _counts(self, encoder: int) -> tuple[Float64Array, Float64Array]:
        """Count for each item of class 1 the hits, and predictions plus truths; both (s, n)."""
        is_predicted = self.predicted[encoder] == 1
        # A wrong answer of two classes is the other class.
        is_true = np.where(self.correct[encoder] == 1, is_predicted, ~is_predicted)
        hits = (is_predicted & is_true).astype(np.float64)
        positives = is_predicted.astype(np.float64) + is_true
        return hits, positives


def draw_swaps(n_items: int, n_permutations: int, seed: int) -> Iterator[Float64Array]:
    """Draw which items are swapped in each permutation, one block of permutations after another.

    Yields:
        Blocks of at most ``PERMUTATION_BLOCK`` rows, (rows, n_items), of zeros and ones, which are
        equally likely.
    """
    rng = np.random.default_rng(seed)
    for start in range(0, n_permutations, PERMUTATION_BLOCK):
        n_rows = min(PERMUTATION_BLOCK, n_permutations - start)
        packed_bits = rng.integers(0, 256, size=(n_rows, -(-n_items // 8)), dtype=np.uint8)
        yield np.unpackbits(packed_bits, axis=1, count=n_items).astype(np.float64)


def _swapped_differences(
    first_values: Float64Array,
    second_values: Float64Array,
    gold: Float64Array,
    indices: npt.NDArray[np.int64],
    blocks: Iterator[Float64Array],
) -> Float64Array:
    """Compute r(b', gold) - r(a', gold) for the values a and b of two encoders after each swap.

    With m half the sum and h half the difference of a and b, a' = m - e h and b' = m + e h for
    signs e. All that the two correlations need of a swap is three sums: of e h gold, e h and e m h.

    Args:
        first_values: The first encoder's values a with mean 0 and variance 1, (m,).
        second_values: The second encoder's values b, scaled likewise, (m,).
        gold: The gold scores, scaled likewise, (m,).
        indices: The positions of these m items among all, (m,).
        blocks: Which of all items are swapped, from ``draw_swaps``.
    """
    half_sum = (first_values + second_values) / 2
    half_difference = (second_values - first_values) / 2
    products = np.stack(
        [half_difference * gold, half_difference, half_sum * half_difference], axis=1
    )
    swapped_sums = np.concatenate([block[:, indices] @ products for block in blocks])
    gold_sums, sums, squares = (products.sum(axis=0) - 2 * swapped_sums).T

    def correlation(sign: int) -> Float64Array:
        variance = (
            np.sum(half_sum * half_sum + half_difference * half_difference)
            + 2 * sign * squares
            - (half_sum.sum() + sign * sums) ** 2 / len(half_sum)
        )
        covariance = half_sum @ gold + sign * gold_sums
        is_constant = variance <= len(half_sum) * TIE_TOLERANCE
        scale = np.sqrt(len(half_sum) * np.where(is_constant, 1.0, variance))
        return np.where(is_constant, 0.0, covariance / scale)

    return correlation(1) - correlation(-1)


def permutation_p(observed: float, permuted: Float64Array) -> float:
    """Compute the two-sided p-value of an observed difference among permuted ones.

    The observed order counts as one permutation (Phipson and Smyth 2010).
    """
    n_as_large = np.sum(np.abs(permuted) >= abs(observed) - TIE_TOLERANCE)
    return float((1 + n_as_large) / (1 + len(permuted)))


def williams(r_first: float, r_second: float, r_between: float, *, n_items: int) -> Williams:
    """Apply Williams' test to two correlations with gold scores (Steiger 1980, equation 7).

    Args:
        r_first: The correlation of the first encoder's values with gold scores.
        r_second: That of the second encoder's values.
        r_between: The correlation of the two encoders' values.
        n_items: The number of items, at least 4.
    """
    from scipy import stats

    determinant = 1 - r_first**2 - r_second**2 - r_between**2 + 2 * r_first * r_second * r_between
    mean_r = (r_first + r_second) / 2
    numerator = (
        2 * (n_items - 1) / (n_items - 3) * max(determinant, 0.0) + mean_r**2 * (1 - r_between) ** 3
    )
    error = float(np.sqrt(max(numerator, 0.0) / ((n_items - 1) * (1 + r_between))))
    return _williams(r_second - r_first, error, lambda t: stats.t.sf(t, n_items - 3))


def combine_williams(tests: Sequence[Williams], weights: Float64Array) -> Williams:
    """Combine Williams' tests of independent subsets: their weighted sum, by the normal law."""
    from scipy import stats

    weighted_tests = list(zip(weights, tests, strict=True))
    difference = float(sum(weight * test.difference for weight, test in weighted_tests))
    variance = sum((weight * test.error) ** 2 for weight, test in weighted_tests)
    return _williams(difference, float(np.sqrt(variance)), stats.norm.sf)


def _williams(difference: float, error: float, upper_tail: Callable[[float], float]) -> Williams:
    if abs(difference) <= TIE_TOLERANCE:
        return Williams(0.0, error, 1.0)
    p = float(2 * upper_tail(abs(difference) / error)) if error else 0.0
    return Williams(difference, error, p)


def mcnemar(only_first: npt.NDArray[np.bool_], only_second: npt.NDArray[np.bool_]) -> float:
    """Compute McNemar's exact two-sided p-value.

    Args:
        only_first: Which items only the first encoder has right, (n,).
        only_second: Which items only the second encoder has right, (n,).
    """
    from scipy import stats

    n_only_first = int(only_first.sum())
    n_only_second = int(only_second.sum())
    n_discordant = n_only_first + n_only_second
    if not n_discordant:
        return 1.0
    return float(stats.binomtest(n_only_first, n_discordant, 0.5).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's method (1979), in the order given.

    All differences whose corrected p-value is below a level are significant together at that level.
    """
    n_tests = len(p_values)
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values, dtype=np.float64)[order] * np.arange(n_tests, 0, -1)
    corrected = np.empty(n_tests)
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0) if n_tests else scaled
    return [float(p) for p in corrected]
