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
from stsbench.significance.differences import TIE_TOLERANCE

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
        """Compute the difference of two encoders' scores after random swaps of their values.

        Args:
            first: The index of the encoder whose score is subtracted.
            second: The index of the other encoder.
            n_permutations: The number of permutations.
            rng: The generator that draws them.

        Returns:
            The differences, (n_permutations,); None if the kind of score, as here by default, has
            no such test.
        """
        return None

    def exact_test(
        self, first: int, second: int, *, n_permutations: int, rng: np.random.Generator
    ) -> PairedTest | None:
        """Test the difference of two encoders by permutations, without assuming a distribution.

        In each permutation both encoders' values are swapped on a random half of the items. The
        scores of each encoder's first seed are compared. Items must be independent.

        Args:
            first: The index of the encoder whose score is subtracted.
            second: The index of the other encoder.
            n_permutations: The number of permutations.
            rng: The generator that draws them.

        Returns:
            The p-value and the 95% interval of the difference, second minus first. None if values
            cannot be swapped, or with ``MAX_PERMUTED_ITEMS`` or more items: then Student's t test
            is as good.
        """
        # There is a weight for each item.
        if len(self.weights) >= MAX_PERMUTED_ITEMS:
            return None
        permuted = self.permuted_differences(first, second, n_permutations=n_permutations, rng=rng)
        if permuted is None:
            return None
        first_seed = 0
        difference = float(self.scores(second)[first_seed] - self.scores(first)[first_seed])
        half_width = permutation_half_width(permuted)
        interval = difference - half_width, difference + half_width
        return PairedTest(PERMUTATIONS, permutation_p(difference, permuted), interval)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedCorrelation(Paired):
    """Values whose correlation with gold scores is the score.

    Attributes:
        values: For each encoder the values of the n items that are correlated with gold scores,
            such as similarities of pairs, by seed, (s, n).
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
        """Return the score of one encoder with one seed: a weighted mean of correlations.

        Each subset of items has a correlation with gold scores, which is 0 if all values are equal.
        ``self.subset_weights`` has the indices of the items of each subset, and its weight; the
        weights add up to 1.

        Args:
            values: The encoder's values of all items, (n,).
        """
        correlate = CORRELATIONS[self.metric]
        weighted_correlations = [
            weight * correlate(values[indices], self.gold[indices])
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
        """Compute the difference of two encoders' scores after random swaps of their values.

        In each permutation each item's values are swapped between the encoders with probability
        1/2. The values are those of each encoder's first seed, standardised as the correlation
        does.

        Args:
            first: The index of the encoder whose score is subtracted.
            second: The index of the other encoder.
            n_permutations: The number of permutations.
            rng: The generator that draws them.

        Returns:
            The differences, (n_permutations,). None for a correlation such as Kendall's that is no
            Pearson correlation of transformed values, so that nothing can be swapped.
        """
        if CORRELATIONS[self.metric].to_pearson is None:
            return None
        # All subsets draw by this seed, so that they agree on which items are swapped.
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
        """Put the values of two encoders, and the gold scores, on a common scale.

        Their Pearson correlation is then the metric. For Spearman they become ranks, for Pearson
        they stay; then they are centred and scaled to mean 0 and variance 1. The values of an
        encoder are those of its first seed.

        Args:
            first: The index of the first encoder.
            second: The index of the second encoder.
            indices: The indices of the subset's m items.

        Yields:
            Three arrays, (m,): the first encoder's values, the second's, and the gold scores; zeros
            if all values are equal.
        """
        # The function from values to the numbers whose Pearson correlation is the metric. Other
        # metrics, such as Kendall's, have none, but this method is not called for them.
        to_pearson = CORRELATIONS[self.metric].to_pearson
        assert to_pearson is not None, f"{self.metric} has no scale"
        first_seed = 0
        for values in (self.values[first][first_seed], self.values[second][first_seed], self.gold):
            transformed = to_pearson(values[indices])
            centred = transformed - transformed.mean()
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
        """Compute the difference of two encoders' means after random swaps of their values.

        In each permutation each item's values are swapped between the encoders with probability
        1/2. A swapped item changes the sign of its difference, so the sum of the swapped
        items' differences is subtracted twice from the sum of all.

        Args:
            first: The index of the encoder whose mean is subtracted.
            second: The index of the other encoder.
            n_permutations: The number of permutations.
            rng: The generator that draws them.

        Returns:
            The differences, (n_permutations,).
        """
        first_seed = 0
        item_differences = self.values[second][first_seed] - self.values[first][first_seed]
        n_items = len(item_differences)
        blocks = draw_swaps(n_items, n_permutations, int(rng.integers(2**63)))
        swapped_sums = np.concatenate([block @ item_differences for block in blocks])
        return np.asarray((item_differences.sum() - 2 * swapped_sums) / n_items)

    def exact_test(
        self, first: int, second: int, *, n_permutations: int, rng: np.random.Generator
    ) -> PairedTest | None:
        """Test the difference of two encoders' means without assuming a distribution.

        If each item is right or wrong, it is McNemar's test: only items count that one encoder has
        right and the other wrong. Otherwise it is the permutation test of other scores. The values
        are those of each encoder's first seed, ``self.values[encoder][seed]``.

        Args:
            first: The index of the encoder whose mean is subtracted.
            second: The index of the other encoder.
            n_permutations: The number of permutations; not used by McNemar's test.
            rng: The generator that draws them.

        Returns:
            The p-value and the 95% interval of the difference. None if a permutation test would be
            over ``MAX_PERMUTED_ITEMS`` items or more.
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
        hits, positives = self._hits_and_positives(encoder)
        return np.asarray(2 * hits.sum(axis=1) / np.maximum(positives.sum(axis=1), 1))

    def influences(self, encoder: int) -> Float64Array:
        """Compute how much each item moves an encoder's F1, by each seed, (s, n)."""
        hits, positives = self._hits_and_positives(encoder)
        first_order_terms = 2 * hits - self.scores(encoder)[:, None] * positives
        return np.asarray(first_order_terms / np.maximum(positives.sum(axis=1, keepdims=True), 1))

    def _hits_and_positives(self, encoder: int) -> tuple[Float64Array, Float64Array]:
        """Count what F1 of class 1 is computed from, for each item and seed.

        Args:
            encoder: The index of the encoder.

        Returns:
            Two arrays, (s, n), by seed and item. The first is 1 for a hit: the item is of class 1
            and predicted so. The second is the number of times that class 1 occurs as prediction or
            truth: 0, 1 or 2. F1 is 2 * (sum of the first) / (sum of the second).
        """
        # The predicted classes, and 1 where they are right, (s, n) each.
        is_predicted = self.predicted[encoder] == 1
        # There are two classes, so the truth of a wrong prediction is the other class.
        is_true = np.where(self.correct[encoder] == 1, is_predicted, ~is_predicted)
        hits = (is_predicted & is_true).astype(np.float64)
        positives = is_predicted.astype(np.float64) + is_true
        return hits, positives


def draw_swaps(n_items: int, n_permutations: int, seed: int) -> Iterator[Float64Array]:
    """Draw which items are swapped in each permutation.

    Each item is swapped with probability 1/2. The permutations are drawn in blocks, because all of
    them may not fit the memory.

    Args:
        n_items: The number of items.
        n_permutations: The number of permutations.
        seed: The seed of the generator.

    Yields:
        Blocks of at most ``PERMUTATION_BLOCK`` permutations, (rows, n_items): 1 if the item is
        swapped, otherwise 0.
    """
    rng = np.random.default_rng(seed)
    for start in range(0, n_permutations, PERMUTATION_BLOCK):
        n_rows = min(PERMUTATION_BLOCK, n_permutations - start)
        # A random byte has a bit for each of eight items.
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
    """Compute how two encoders' correlations with gold scores differ after random swaps.

    In each permutation the values a of the first and b of the second encoder are swapped on some
    items. With m = (a + b) / 2 and h = (b - a) / 2, they become a' = m - e h and b' = m + e h,
    where e of an item is -1 if it is swapped and otherwise 1. A correlation of m + s e h with gold
    scores, s = 1 or -1, therefore needs only three sums that depend on the permutation: those of
    e h, of e h gold and of e m h.

    Args:
        first_values: The first encoder's values a with mean 0 and variance 1, (items,).
        second_values: The second encoder's values b, scaled likewise, (items,).
        gold: The gold scores, scaled likewise, (items,).
        indices: The positions of these items among all items of the task, (items,).
        blocks: Which of all items are swapped, from :func:`draw_swaps`.

    Returns:
        For each permutation the correlation of b' less that of a', (n_permutations,).
    """
    n_items = len(gold)
    m = (first_values + second_values) / 2
    h = (second_values - first_values) / 2
    products = np.stack([h * gold, h, m * h], axis=1)
    swapped_sums = np.concatenate([block[:, indices] @ products for block in blocks])
    # A swapped item changes the sign of its products.
    sums_eh_gold, sums_eh, sums_emh = (products.sum(axis=0) - 2 * swapped_sums).T

    def correlate(s: int) -> Float64Array:
        """Return the correlation of m + s e h with gold scores in each permutation.

        It is 0 if all values are equal. From the outer function: m and h are half the sum and half
        the difference of two encoders' values, (items,); e is -1 for a swapped item, otherwise 1.
        ``sums_eh``, ``sums_emh`` and ``sums_eh_gold`` are sums over items, by permutation.
        """
        sums_of_squares = np.sum(m * m + h * h) + 2 * s * sums_emh
        squared_deviations = sums_of_squares - (m.sum() + s * sums_eh) ** 2 / n_items
        products_with_gold = m @ gold + s * sums_eh_gold
        is_constant = squared_deviations <= n_items * TIE_TOLERANCE
        # The squared deviations of the scaled gold scores add up to the number of items.
        scale = np.sqrt(n_items * np.where(is_constant, 1.0, squared_deviations))
        return np.where(is_constant, 0.0, products_with_gold / scale)

    return correlate(s=1) - correlate(s=-1)


def permutation_p(observed: float, permuted: Float64Array) -> float:
    """Compute the two-sided p-value of an observed difference among permuted ones.

    It is (1 + k) / (1 + n) if k of n permuted differences are at least as large in absolute value:
    the observed difference counts as one permutation (Phipson and Smyth 2010).

    Args:
        observed: The difference of the two encoders.
        permuted: The differences after random swaps of their values, (n,).
    """
    n_as_large = np.sum(np.abs(permuted) >= abs(observed) - TIE_TOLERANCE)
    return float((1 + n_as_large) / (1 + len(permuted)))


def permutation_half_width(permuted: Float64Array) -> float:
    """Return half the width of the 95% interval of a difference, by a permutation test.

    It is the largest difference whose p-value among permuted ones is not below 0.05; infinite if
    there are too few permutations for a p-value below 0.05.

    Args:
        permuted: The differences after random swaps, (n,).
    """
    # The p-value is (1 + k) / (1 + n) if k permuted differences are as large. This is the least k
    # at which it is not below 0.05; LEVEL is the confidence level, 0.95.
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
        """The two-sided p-value of McNemar's test that two encoders have equal shares right.

        Only discordant items count: those that one encoder alone has right. It is the mid-p-value,
        in which half of the observed outcome's probability counts.
        """
        from scipy import stats

        fewer = min(self.only_first, self.only_second)
        tail = stats.binom.cdf(fewer, self.n_discordant, 0.5)
        return min(1.0, float(2 * tail - stats.binom.pmf(fewer, self.n_discordant, 0.5)))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the interval of the difference of two shares, the second minus the first.

        Discordant items are those that one encoder alone has right. The interval has all
        differences for which Tango's statistic (1998) is at most a quantile. It is made to exclude
        0 exactly if McNemar's p-value ``self.p`` is below 1 - level: at a difference of 0 the
        statistic is McNemar's, whose normal p-value is smaller, so the normal quantile is
        multiplied by the ratio of the two. At bounds that do not decide whether 0 is excluded, the
        factor is at least 1 + 1 / (2 m) for m discordant items (at least 2): benchmarks/shares.py
        prints how often the interval then contains the true difference.

        Args:
            level: The confidence level.
        """
        from scipy import special

        quantile = float(special.ndtri((1 + level) / 2))
        ratio = 1.0
        if self.only_first != self.only_second:
            # McNemar's statistic, and the normal quantile that belongs to the p-value.
            statistic = abs(self.only_second - self.only_first) / self.n_discordant**0.5
            quantile_of_p = float(-special.ndtri(self.p / 2))
            ratio = max(statistic / quantile_of_p, 1.0)
        low_ratio = high_ratio = max(ratio, 1 + 1 / (2 * max(self.n_discordant, 2)))
        # If the difference is significant, the bound next to 0 decides whether 0 is excluded.
        is_significant = self.p < 1 - level
        if is_significant and self.only_second > self.only_first:
            low_ratio = ratio
        elif is_significant:
            high_ratio = ratio
        low = self._find_bound(quantile * low_ratio, limit=-1.0)
        high = self._find_bound(quantile * high_ratio, limit=1.0)
        return low, high

    def _find_bound(self, quantile: float, limit: float) -> float:
        """Find one bound of the interval of a difference of shares, by bisection.

        It is the difference nearest to a limit for which Tango's statistic is at most a quantile.
        Of ``self.n`` items, ``self.only_first`` and ``self.only_second`` are the numbers that only
        the first and only the second encoder has right.

        Args:
            quantile: The quantile of the normal distribution, times a factor of at least 1.
            limit: -1 for the lower bound, 1 for the upper one.
        """
        # The observed difference is always accepted.
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
        """Return whether an assumed difference of shares is compatible with the observed one.

        It is if the absolute value of Tango's statistic (1998) is at most a quantile. With b and c
        the numbers of n items that only the first and only the second encoder has right, and d the
        assumed difference, the statistic is (c - b - n d) / sqrt(n (2 q + d (1 - d))). Here q is
        the most likely share that only the first has right, the larger root of
        2 n q² + (d (2 n - c + b) - b - c) q - b d (1 - d) = 0.

        Args:
            difference: The assumed true difference d, the second share minus the first.
            quantile: The quantile of the normal distribution, times a factor of at least 1.
        """
        n, b, c, d = self.n, self.only_first, self.only_second, difference
        deviation = c - b - n * d
        slope = d * (2 * n - c + b) - (b + c)
        discriminant = slope**2 + 8 * n * b * d * (1 - d)
        q = (math.sqrt(max(discriminant, 0.0)) - slope) / (4 * n)
        variance = n * (2 * q + d * (1 - d))
        return bool(deviation**2 <= quantile**2 * max(variance, 0.0))


def correct_by_holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests by Holm's method (1979).

    Among many tests some p-values are small by chance. After the correction, the tests whose
    p-value is below a level are significant together: the probability that any of them is wrong is
    at most this level. The k-th smallest of n p-values is multiplied by n - k + 1, but is at least
    the corrected one before it, and at most 1.

    Returns:
        The corrected p-values in the order of the arguments; empty if there are none.
    """
    n_tests = len(p_values)
    if not n_tests:
        return []
    # The positions of the p-values, the smallest first.
    order = np.argsort(p_values, kind="stable")
    multiplied = np.asarray(p_values, dtype=np.float64)[order] * np.arange(n_tests, 0, -1)
    corrected = np.empty(n_tests)
    corrected[order] = np.minimum(np.maximum.accumulate(multiplied), 1.0)
    return [float(p) for p in corrected]
