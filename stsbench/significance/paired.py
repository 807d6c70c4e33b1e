"""Compare encoders over the same items, in which sentences recur, and over seeds.

The influence of an item is how much it moves an encoder's score
(:mod:`stsbench.numbers.statistics`). Scores, their differences and their means vary together by
sums of products of influences over items that share a sentence. From these follow intervals,
ranks and, by Student's t, tests. Two tests of this module serve one task with one seed per
encoder, if no items share a sentence. Each has an interval of its own, which leaves 0 out exactly
if the p-value is below 0.05:

* For items that are right or wrong, McNemar's test (1947) with the mid-p-value of the binomial
  distribution (Fagerland, Lydersen and Laake 2013), and Tango's score interval (1998) with a
  quantile that agrees with that p-value.
* For few items, a permutation test, which swaps the two encoders' values of single items.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stsbench.numbers.intervals import LEVEL
from stsbench.numbers.statistics import (
    CORRELATIONS,
    Float64Array,
    IntArray,
    SubsetWeights,
    correlation_influences,
    item_weights,
)
from stsbench.significance.differences import (
    TIE_TOLERANCE,
)

PERMUTATION_BLOCK = 256
"""How many permutations are drawn at once."""
MAX_PERMUTED_ITEMS = 250
"""From this number of items on, Student's t is as good as permutations."""
BISECTIONS = 60
"""How often a bound of a share's interval is halved: to less than rounding."""
STUDENT, MCNEMAR, PERMUTATIONS = "Student's t", "McNemar's mid-p", "permutations"
"""The names of the procedures that give an interval and a p-value."""


class PairedTest(NamedTuple):
    """A test of the difference of two scores, second minus first.

    Attributes:
        method: The name of the procedure.
        p: The two-sided p-value.
        interval: The 95% interval of the difference by the same procedure.
        discordant: The numbers of items that only the first and only the second encoder has right;
            None if items are not right or wrong.
    """

    method: str
    p: float
    interval: tuple[float, float]
    discordant: tuple[int, int] | None = None


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

    def exact_test(
        self, first: int, second: int, *, n_permutations: int, rng: np.random.Generator
    ) -> PairedTest | None:
        """Test the difference of the first seeds without assuming a distribution.

        Items must be independent.

        Returns:
            The test; None if there is none, or if ``MAX_PERMUTED_ITEMS`` make Student's t as good.
        """
        if len(self.weights) >= MAX_PERMUTED_ITEMS:
            return None
        permuted = self.permuted_differences(first, second, n_permutations=n_permutations, rng=rng)
        if permuted is None:
            return None
        difference = float(self.scores(second)[0] - self.scores(first)[0])
        half_width = permutation_half_width(permuted)
        interval = difference - half_width, difference + half_width
        return PairedTest(PERMUTATIONS, permutation_p(difference, permuted), interval)


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
        """Return the weighted mean of the subsets' correlations; that of equal values is 0."""
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
            first_values, second_values, gold = self._put_on_one_scale(first, second, indices)
            blocks = draw_swaps(len(self.gold), n_permutations, seed)
            differences += weight * _correlation_differences_after_swaps(
                first_values, second_values, gold, indices, blocks
            )
        return differences

    def _put_on_one_scale(
        self, first: int, second: int, indices: IntArray
    ) -> Iterator[Float64Array]:
        """Yield the first encoder's, the second's and gold's values of a subset, one array each.

        For Spearman they are ranks, for Pearson the values themselves, with mean 0 and variance 1;
        zeros if all are equal. The values of an encoder are those of its first seed.

        Args:
            first: The index of the first encoder.
            second: The index of the second encoder.
            indices: The indices of the subset's items.
        """
        scale = CORRELATIONS[self.metric].scale
        assert scale is not None, f"{self.metric} has no scale"
        first_seed = 0
        for values in (self.values[first][first_seed], self.values[second][first_seed], self.gold):
            scaled = scale(values[indices])
            centred = scaled - scaled.mean()
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
        """Compute the differences of the first seeds' means after random swaps, (n_permutations,).

        A swapped item changes the sign of its difference, so that the sum of the swapped items'
        differences is subtracted twice from the sum of all.
        """
        item_differences = self.values[second][0] - self.values[first][0]
        n_items = len(item_differences)
        blocks = draw_swaps(n_items, n_permutations, int(rng.integers(2**63)))
        swapped_sums = np.concatenate([block @ item_differences for block in blocks])
        return np.asarray((item_differences.sum() - 2 * swapped_sums) / n_items)

    def exact_test(
        self, first: int, second: int, *, n_permutations: int, rng: np.random.Generator
    ) -> PairedTest | None:
        """Test the difference of the first seeds without assuming a distribution.

        If each item is right or wrong, that is McNemar's test; else random swaps as for other
        scores, None for ``MAX_PERMUTED_ITEMS`` or more.
        """
        first_seed = 0
        first_values = self.values[first][first_seed]
        second_values = self.values[second][first_seed]
        are_right_or_wrong = np.isin([first_values, second_values], (0.0, 1.0)).all()
        if not are_right_or_wrong:
            return super().exact_test(first, second, n_permutations=n_permutations, rng=rng)
        shares = PairedShares(
            n=len(first_values),
            only_first=int(np.sum(first_values > second_values)),
            only_second=int(np.sum(second_values > first_values)),
        )
        discordant = (shares.only_first, shares.only_second)
        return PairedTest(MCNEMAR, shares.p, shares.interval(), discordant)


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


def _correlation_differences_after_swaps(
    first_values: Float64Array,
    second_values: Float64Array,
    gold: Float64Array,
    indices: IntArray,
    blocks: Iterator[Float64Array],
) -> Float64Array:
    """Compute r(b', gold) - r(a', gold) after each swap of values a and b, (n_permutations,).

    With m = (a + b) / 2 and h = (b - a) / 2, the values after a swap are a' = m - e h and
    b' = m + e h, where e of an item is -1 if it is swapped and else 1. A correlation of m + s e h
    with gold, s = 1 or -1, therefore needs only three sums that depend on the swap:
    the sums of e h, of e h gold and of e m h.

    Args:
        first_values: The first encoder's values a with mean 0 and variance 1, (items,).
        second_values: The second encoder's values b, scaled likewise, (items,).
        gold: The gold scores, scaled likewise, (items,).
        indices: The positions of these items among all, (items,).
        blocks: Which of all items are swapped, from ``draw_swaps``.
    """
    n_items = len(gold)
    m = (first_values + second_values) / 2
    h = (second_values - first_values) / 2
    products = np.stack([h * gold, h, m * h], axis=1)
    swapped_sums = np.concatenate([block[:, indices] @ products for block in blocks])
    # A swapped item changes the sign of its products.
    sums_eh_gold, sums_eh, sums_emh = (products.sum(axis=0) - 2 * swapped_sums).T

    def correlate(s: int) -> Float64Array:
        sums_of_squares = np.sum(m * m + h * h) + 2 * s * sums_emh
        squared_deviations = sums_of_squares - (m.sum() + s * sums_eh) ** 2 / n_items
        products_with_gold = m @ gold + s * sums_eh_gold
        is_constant = squared_deviations <= n_items * TIE_TOLERANCE
        # The squared deviations of gold add up to the number of items.
        scale = np.sqrt(n_items * np.where(is_constant, 1.0, squared_deviations))
        return np.where(is_constant, 0.0, products_with_gold / scale)

    return correlate(s=1) - correlate(s=-1)


def permutation_p(observed: float, permuted: Float64Array) -> float:
    """Compute the two-sided p-value of an observed difference among permuted ones.

    It is (1 + k) / (1 + n) if k of n permuted differences are as large: the observed order counts
    as one permutation (Phipson and Smyth 2010).
    """
    n_as_large = np.sum(np.abs(permuted) >= abs(observed) - TIE_TOLERANCE)
    return float((1 + n_as_large) / (1 + len(permuted)))


def permutation_half_width(permuted: Float64Array) -> float:
    """Return the largest difference whose p-value is not below 0.05 among permuted ones.

    It is infinite if there are too few permutations for such a p-value.

    Args:
        permuted: The differences after random swaps, (n_permutations,).
    """
    # The least k at which p, (1 + k) / (1 + n), is not below 0.05: k differences are as large.
    k = math.ceil((1 - LEVEL) * (1 + len(permuted)) - TIE_TOLERANCE) - 1
    if k < 1:
        return math.inf
    kth_largest = float(np.sort(np.abs(permuted))[-k])
    return kth_largest + TIE_TOLERANCE


class PairedShares(NamedTuple):
    """Two encoders' shares of right items among the same n independent items.

    Attributes:
        n: The number of items.
        only_first: The number of items that only the first encoder has right.
        only_second: The number of items that only the second encoder has right.
    """

    n: int
    only_first: int
    only_second: int

    @property
    def n_discordant(self) -> int:
        """The number of items that only one of the two has right."""
        return self.only_first + self.only_second

    @property
    def p(self) -> float:
        """McNemar's two-sided mid-p-value: half of the observed outcome's probability counts."""
        from scipy import stats

        fewer = min(self.only_first, self.only_second)
        tail = stats.binom.cdf(fewer, self.n_discordant, 0.5)
        return min(1.0, float(2 * tail - stats.binom.pmf(fewer, self.n_discordant, 0.5)))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval of the difference, the second share minus the first.

        Tango's statistic (1998) at a difference of 0 is McNemar's, whose normal p-value is smaller
        than the mid-p-value. The normal quantile is therefore multiplied by the ratio of the two,
        so that the interval leaves 0 out exactly if p is below 1 - level. For m discordant items
        it is multiplied by at least 1 + 1 / (2 m) at the bounds that do not decide this, m >= 2:
        benchmarks/shares.py prints how often the interval then holds the true difference.

        Args:
            level: The confidence level.
        """
        from scipy import special

        quantile = float(special.ndtri((1 + level) / 2))
        ratio = 1.0
        if self.only_first != self.only_second:
            statistic = abs(self.only_second - self.only_first) / self.n_discordant**0.5
            quantile_of_p = float(-special.ndtri(self.p / 2))
            ratio = max(statistic / quantile_of_p, 1.0)
        low_ratio = high_ratio = max(ratio, 1 + 1 / (2 * max(self.n_discordant, 2)))
        # If the difference is significant, the bound next to 0 decides whether 0 is left out.
        is_significant = self.p < 1 - level
        if is_significant and self.only_second > self.only_first:
            low_ratio = ratio
        elif is_significant:
            high_ratio = ratio
        low = self._find_bound(quantile * low_ratio, limit=-1.0)
        high = self._find_bound(quantile * high_ratio, limit=1.0)
        return low, high

    def _find_bound(self, quantile: float, limit: float) -> float:
        """Find by bisection the accepted difference of shares that is nearest to a limit.

        Args:
            quantile: A difference is accepted if Tango's statistic for it is at most this large.
            limit: -1 for the low bound, 1 for the high one.
        """
        accepted = (self.only_second - self.only_first) / self.n
        rejected = limit
        for _ in range(BISECTIONS):
            middle = (accepted + rejected) / 2
            if self._is_accepted(middle, quantile):
                accepted = middle
            else:
                rejected = middle
        return accepted

    def _is_accepted(self, difference: float, quantile: float) -> bool:
        """Return whether Tango's statistic for a true difference d is at most a quantile.

        With b and c the numbers of items that only the first and only the second has right, the
        statistic is (c - b - n d) / sqrt(n (2 q + d (1 - d))). Here q, the share that only the
        first has right, is the most likely one under d, the larger root of
        2 n q² + (d (2 n - c + b) - b - c) q - b d (1 - d) = 0.
        """
        n, b, c, d = self.n, self.only_first, self.only_second, difference
        deviation = c - b - n * d
        slope = d * (2 * n - c + b) - (b + c)
        discriminant = slope**2 + 8 * n * b * d * (1 - d)
        q = (math.sqrt(max(discriminant, 0.0)) - slope) / (4 * n)
        variance = n * (2 * q + d * (1 - d))
        return bool(deviation**2 <= quantile**2 * max(variance, 0.0))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's method (1979), in the order given; empty if there are none.

    The k-th smallest of n p-values is multiplied by n - k + 1, and becomes at least the corrected
    one before it, at most 1. All differences whose corrected p-value is below a level are
    significant together at that level.
    """
    n_tests = len(p_values)
    if not n_tests:
        return []
    order = np.argsort(p_values, kind="stable")
    multiplied = np.asarray(p_values, dtype=np.float64)[order] * np.arange(n_tests, 0, -1)
    corrected = np.empty(n_tests)
    corrected[order] = np.minimum(np.maximum.accumulate(multiplied), 1.0)
    return [float(p) for p in corrected]
