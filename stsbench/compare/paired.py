"""Paired statistics: encoders compared over the same items, in which sentences recur.

How much each item moves each encoder's score (its share, :mod:`stsbench.numbers.influence`) tells how scores,
their differences and their means vary together: by sums of products over items that share a sentence
(:mod:`stsbench.numbers.sharing`). That gives intervals, ranks and, by Student's t, tests (:mod:`stsbench.compare.variance`).
Of items that share none the p-value of one task, one seed a side, is of the permutation test, which swaps the two
encoders' values of single items; for items right or wrong it is the exact one of McNemar (1947), which is the
permutation test without its draws, and for correlations there is Williams' test beside it (Steiger 1980,
Psychological Bulletin 87, equation 7).

What may be swapped. A swap is fair where, under the null hypothesis, an item's two values could as well
have come the other way round. Raw cosines could not: one encoder's lie around 0.3, another's around 0.8,
and a mixture of the two correlates with nothing. So each encoder's values are first put on one scale,
ranks for Spearman, values for Pearson, both then with mean 0 and variance 1 within each part that has a
correlation of its own; these are swapped, and the correlation of the mixtures is taken. To first order
in 1/n the difference of two equal correlations then only changes its sign with each item's share in it:
the test holds its level for encoders of unlike shape too, not only for exchangeable ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.intervals import correlation_shares, item_weights
from stsbench.numbers.statistics import CORRELATIONS, Parts

BLOCK = 256
ROUNDING = 1e-12
"""Two statistics this close are one: sums in another order differ by as much."""


class Williams(NamedTuple):
    """Williams' test: the difference of two correlations, its standard error, and the two-sided p-value."""

    difference: float
    error: float
    p: float


class Paired(Protocol):
    """The per-item values of k encoders on one task, over the same n items; seeds may be several an encoder."""

    @property
    def weights(self) -> Float64Array:
        """What share of the score each item is, (n,)."""
        ...

    def scores(self, encoder: int) -> Float64Array:
        """An encoder's score by each seed, (s,)."""
        ...

    def shares(self, encoder: int) -> Float64Array:
        """How much each item moves an encoder's score, by each seed, (s, n)."""
        ...

    def permuted(self, first: int, second: int, *, permutations: int, rng: np.random.Generator) -> Float64Array | None:
        """The difference of the first seeds, second minus first, (permutations,), after random swaps of items."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Correlated:
    """Values whose correlation with gold scores is the score.

    ``values`` holds for each encoder (s, n) for s seeds; ``gold`` is (n,). ``parts`` are the items that are
    correlated together, and their shares of the score: one part for the aggregation ``all``, one a subset for
    ``mean`` and ``wmean``. ``metric`` is a name of ``CORRELATIONS``.
    """

    values: Sequence[Float64Array]
    gold: Float64Array
    parts: Parts
    metric: str

    @property
    def weights(self) -> Float64Array:
        """What share of the score each item is, (n,)."""
        return item_weights(self.parts, len(self.gold))

    def scores(self, encoder: int) -> Float64Array:
        """An encoder's correlation by each seed, (s,); 0 where all its values are one."""
        return np.array([self._score(row) for row in self.values[encoder]])

    def _score(self, values: Float64Array) -> float:
        metric, parts = CORRELATIONS[self.metric], zip(*self.parts, strict=True)
        known = [w * metric(values[at], self.gold[at]) for at, w in parts if np.ptp(values[at]) > 0]
        return float(sum(known))

    def shares(self, encoder: int) -> Float64Array:
        """How much each item moves an encoder's correlation, by each seed, (s, n)."""
        rows = [correlation_shares(self.metric, row, self.gold, self.parts) for row in self.values[encoder]]
        return np.array(rows)

    def permuted(self, first: int, second: int, *, permutations: int, rng: np.random.Generator) -> Float64Array | None:
        """The difference after random swaps, (permutations,); None where the correlation has no common scale."""
        if CORRELATIONS[self.metric].scale is None:
            return None
        swaps = Swaps(len(self.gold), permutations, rng)
        found = np.zeros(permutations)
        for at, share in zip(*self.parts, strict=True):
            a, b, gold = (self._scaled(row[at]) for row in (self.values[first][0], self.values[second][0], self.gold))
            found += share * _swapped(a, b, gold, at, swaps)
        return found

    def williams(self, first: int, second: int) -> Williams | None:
        """Williams' test of second minus first, items independent; None for several seeds, or fewer than four a part.

        Of several parts the differences are added up by weight, and their variances by squared weight.
        """
        seeds = max(len(self.values[first]), len(self.values[second]))
        if seeds > 1 or CORRELATIONS[self.metric].scale is None or min(map(len, self.parts.indices)) < 4:
            return None
        tests = []
        for at in self.parts.indices:
            a, b, gold = (self._scaled(row[at]) for row in (self.values[first][0], self.values[second][0], self.gold))
            tests.append(williams(*(float(u @ v) / len(at) for u, v in ((a, gold), (b, gold), (a, b))), n=len(at)))
        return tests[0] if len(tests) == 1 else combine(tests, self.parts.shares)

    def _scaled(self, x: Float64Array) -> Float64Array:
        """Ranks or values with mean 0 and variance 1, (n,); zeros where all are the same."""
        scale = CORRELATIONS[self.metric].scale
        assert scale is not None, f"{self.metric} has no scale"
        x = scale(x)
        centred = x - x.mean()
        spread = np.sqrt(np.mean(centred**2))
        return centred / spread if spread > 0 else np.zeros_like(centred)


@dataclass(frozen=True, kw_only=True, eq=False)
class Averaged:
    """Values whose mean is the score: whether an item is right, or its recall; for each encoder (s, n)."""

    values: Sequence[Float64Array]

    @property
    def weights(self) -> Float64Array:
        """What share of the score each item is, (n,)."""
        n = self.values[0].shape[1]
        return np.full(n, 1 / n)

    def scores(self, encoder: int) -> Float64Array:
        """An encoder's mean by each seed, (s,)."""
        found: Float64Array = self.values[encoder].mean(axis=1)
        return found

    def shares(self, encoder: int) -> Float64Array:
        """How much each item moves an encoder's mean, by each seed, (s, n)."""
        values = self.values[encoder]
        found: Float64Array = (values - values.mean(axis=1, keepdims=True)) / values.shape[1]
        return found

    def permuted(self, first: int, second: int, *, permutations: int, rng: np.random.Generator) -> Float64Array | None:
        """The difference after random swaps, (permutations,)."""
        items = self.values[second][0] - self.values[first][0]
        swapped = [swaps @ items for swaps in Swaps(len(items), permutations, rng)]
        found: Float64Array = (items.sum() - 2 * np.concatenate(swapped)) / len(items)
        return found

    def mcnemar(self, first: int, second: int) -> float | None:
        """McNemar's exact p-value of independent items; None where items are not simply right or wrong."""
        a, b = self.values[first][0], self.values[second][0]
        if not np.isin([a, b], (0.0, 1.0)).all():
            return None
        return mcnemar(a > b, b > a)


class Swaps:
    """Which items are swapped: blocks (<= BLOCK, n) of zeros and ones, each as likely, the same each time."""

    def __init__(self, n: int, permutations: int, rng: np.random.Generator) -> None:
        """Draw the seed of all blocks."""
        self._n, self._permutations, self._seed = n, permutations, int(rng.integers(2**63))

    def __iter__(self) -> Iterator[Float64Array]:
        """Draw the blocks one after another."""
        rng = np.random.default_rng(self._seed)
        for start in range(0, self._permutations, BLOCK):
            rows = min(BLOCK, self._permutations - start)
            eights = rng.integers(0, 256, size=(rows, -(-self._n // 8)), dtype=np.uint8)
            yield np.unpackbits(eights, axis=1, count=self._n).astype(np.float64)


def _swapped(
    a: Float64Array, b: Float64Array, gold: Float64Array, at: npt.NDArray[np.int64], swaps: Swaps
) -> Float64Array:
    """r(b', gold) - r(a', gold) for swapped a', b'; all scaled and (m,), those of the items ``at``.

    With m and h half the sum and half the difference, a' = m - e h and b' = m + e h for signs e: all that
    the two correlations need of a swap is three sums, of e h gold, e h and e m h.
    """
    m, h = (a + b) / 2, (b - a) / 2
    columns = np.stack([h * gold, h, m * h], axis=1)
    swapped = np.concatenate([block[:, at] @ columns for block in swaps])
    with_gold, sums, squares = (columns.sum(axis=0) - 2 * swapped).T

    def correlation(sign: int) -> Float64Array:
        variance = np.sum(m * m + h * h) + 2 * sign * squares - (m.sum() + sign * sums) ** 2 / len(m)
        covariance = m @ gold + sign * with_gold
        flat = variance <= len(m) * ROUNDING
        found: Float64Array = np.where(flat, 0.0, covariance / np.sqrt(len(m) * np.where(flat, 1.0, variance)))
        return found

    return correlation(1) - correlation(-1)


def permutation_p(observed: float, permuted: Float64Array) -> float:
    """The two-sided p-value; the observed order counts as one permutation (Phipson and Smyth 2010)."""
    return float((1 + np.sum(np.abs(permuted) >= abs(observed) - ROUNDING)) / (1 + len(permuted)))


def williams(r_first: float, r_second: float, r_between: float, *, n: int) -> Williams:
    """Williams' test of two correlations with the same variable (Steiger 1980, equation 7).

    Args:
        r_first: correlation of the first encoder with gold scores.
        r_second: likewise of the second.
        r_between: of the two encoders' values.
        n: the number of items, at least 4.
    """
    from scipy import stats

    determinant = 1 - r_first**2 - r_second**2 - r_between**2 + 2 * r_first * r_second * r_between
    middle = (r_first + r_second) / 2
    above = 2 * (n - 1) / (n - 3) * max(determinant, 0.0) + middle**2 * (1 - r_between) ** 3
    difference, error = r_second - r_first, float(np.sqrt(max(above, 0.0) / ((n - 1) * (1 + r_between))))
    if abs(difference) <= ROUNDING:
        return Williams(0.0, error, 1.0)
    return Williams(difference, error, float(2 * stats.t.sf(abs(difference) / error, n - 3)) if error else 0.0)


def combine(tests: Sequence[Williams], weights: Float64Array) -> Williams:
    """Williams' tests of independent parts as one: the weighted sum of their differences, by the normal law."""
    from scipy import stats

    difference = float(sum(w * t.difference for w, t in zip(weights, tests, strict=True)))
    error = float(np.sqrt(sum((w * t.error) ** 2 for w, t in zip(weights, tests, strict=True))))
    if abs(difference) <= ROUNDING:
        return Williams(0.0, error, 1.0)
    return Williams(difference, error, float(2 * stats.norm.sf(abs(difference) / error)) if error else 0.0)


def mcnemar(only_first: npt.NDArray[np.bool_], only_second: npt.NDArray[np.bool_]) -> float:
    """McNemar's exact two-sided p-value, from which items, (n,), one encoder alone has right."""
    from scipy import stats

    first, second = int(only_first.sum()), int(only_second.sum())
    return float(stats.binomtest(first, first + second, 0.5).pvalue) if first + second else 1.0


def holm(p: Sequence[float]) -> list[float]:
    """Holm's (1979) corrected p-values: below a level, all such differences are significant at once at that level."""
    order = np.argsort(p, kind="stable")
    steps = np.asarray(p, dtype=np.float64)[order] * np.arange(len(p), 0, -1)
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0) if len(p) else steps
    return [float(value) for value in corrected]


def rank_intervals_of_draws(drawn: Float64Array, *, level: float = 0.95) -> list[tuple[int, int]]:
    """Each encoder's interval of ranks, 1 the best, from its score in each draw, (k, draws).

    In a draw an encoder's rank is one more than the number of those above it (Goldstein and Spiegelhalter 1996).
    """
    from scipy import stats

    ranks = stats.rankdata(-drawn, method="min", axis=0)
    tail = (1 - level) / 2
    low = np.quantile(ranks, tail, axis=1, method="inverted_cdf")
    high = np.quantile(ranks, 1 - tail, axis=1, method="inverted_cdf")
    return [(int(a), int(b)) for a, b in zip(low, high, strict=True)]
