"""Compare encoders over the same items, in which sentences recur, and over seeds.

The influence of an item is how much it moves an encoder's score
(:mod:`stsbench.numbers.statistics`). Scores, their differences and their means vary together by
sums of products of influences over items that share a sentence. From these follow intervals,
ranks and, by Student's t, tests. For one task with one seed per encoder, if no items share a
sentence, the p-value is that of a permutation test, which swaps the two encoders' values of
single items. For items that are right or wrong it is the exact test of McNemar (1947), which is
the permutation test without its draws. For correlations, Williams' test is computed as well
(Steiger 1980, Psychological Bulletin 87, equation 7).

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

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.statistics import (
    CORRELATIONS,
    Float64Array,
    SubsetWeights,
    correlation_influences,
    item_weights,
)
from stsbench.significance.differences import (
    TIE_TOLERANCE,
)

PERMUTATION_BLOCK = 256
"""How many permutations are drawn at once."""


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
        n_items = self.influences(encoder=0).shape[1]
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
        """Return McNemar's p-value if each item is right or wrong; else that by random swaps."""
        first_values = self.values[first][0]
        second_values = self.values[second][0]
        if np.isin([first_values, second_values], (0.0, 1.0)).all():
            return mcnemar(
                only_first=first_values > second_values, only_second=second_values > first_values
            )
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
        n_bytes = math.ceil(n_items / 8)
        packed_bits = rng.integers(0, 256, size=(n_rows, n_bytes), dtype=np.uint8)
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

    return correlation(sign=1) - correlation(sign=-1)


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
    return _williams(r_second - r_first, error, upper_tail=lambda t: stats.t.sf(t, n_items - 3))


def combine_williams(tests: Sequence[Williams], weights: Float64Array) -> Williams:
    """Combine Williams' tests of independent subsets: their weighted sum, by the normal law."""
    from scipy import stats

    weighted_tests = list(zip(weights, tests, strict=True))
    difference = float(sum(weight * test.difference for weight, test in weighted_tests))
    variance = sum((weight * test.error) ** 2 for weight, test in weighted_tests)
    return _williams(difference, float(np.sqrt(variance)), stats.norm.sf)


def _williams(difference: float, error: float, upper_tail: Callable[[float], float]) -> Williams:
    if abs(difference) <= TIE_TOLERANCE:
        return Williams(difference=0.0, error=error, p=1.0)
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
