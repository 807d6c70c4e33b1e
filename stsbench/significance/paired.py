"""Paired statistics: encoders compared over the same items, in which sentences recur, and over seeds.

How much each item moves each encoder's score (its share, the influence of :mod:`stsbench.numbers.statistics`) says how scores,
their differences and their means vary together: by sums of products over items that share a sentence
(:mod:`stsbench.numbers.statistics`). That gives intervals, ranks and, by Student's t, tests. Of items that share none the p-value
of one task, one seed a side, is of the permutation test, which swaps the two encoders' values of single items; for items right
or wrong it is the exact one of McNemar (1947), which is the permutation test without its draws, and for correlations there is
Williams' test beside it (Steiger 1980, Psychological Bulletin 87, equation 7).

Seeds. Items and seeds are crossed: every seed's encoder is scored on the same items. The variance of a mean over seeds is
that over items of the averaged encoder, and that over seeds beyond what items explain (the two-way layout of random
effects; Searle, Casella and McCulloch 1992, chapter 4). Degrees of freedom are Satterthwaite's (1946).

A seed may be good or bad on all tasks at once. The seeds' part of a mean over tasks t with weights w_t is therefore
the sum over all t and u of w_t w_u n_tu / (n_t n_u) C_tu, where n_t is the number of seeds of task t, n_tu of those that t
and u share, and C_tu the covariance of their scores over these, less what items explain. Where all tasks have the same seeds
that is the variance of the mean taken seed by seed; where no two share any, that of independent tasks.

What may be swapped. A swap is fair where, under the null hypothesis, an item's two values could as well
have come the other way round. Raw cosines could not: one encoder's lie around 0.3, another's around 0.8,
and a mixture of the two correlates with nothing. So each encoder's values are first put on one scale,
ranks for Spearman, values for Pearson, both then with mean 0 and variance 1 within each part that has a
correlation of its own; these are swapped, and the correlation of the mixtures is taken. To first order
in 1/n the difference of two equal correlations then only changes its sign with each item's share in it:
the test holds its level for encoders of unlike shape too, not only for exchangeable ones.
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
"""So many permutations are drawn at once."""
TIE_TOLERANCE = 1e-12
"""Two statistics this close are one: sums in another order differ by as much."""
MAX_DIFFERENCE = 2.0
"""Two correlations are never farther apart."""


@dataclass(frozen=True, eq=False)
class ScoreSample:
    """One encoder's score by each of s seeds, (s,), and how much each item moves it, (s, n).

    ``drift`` holds the errors of means over seeds that are averaged already.
    """

    scores: Float64Array
    influences: Float64Array
    seeds: tuple[Hashable, ...]
    seed_errors: tuple[StandardError, ...] = ()

    @property
    def score(self) -> float:
        """The mean over seeds."""
        return float(self.scores.mean())


class EstimatedDifference(NamedTuple):
    """A difference, its standard error, and the degrees of freedom of that."""

    difference: float
    error: float
    df: float

    @property
    def p(self) -> float:
        """The two-sided p-value by Student's t."""
        from scipy import special

        if abs(self.difference) <= TIE_TOLERANCE:
            return 1.0
        return (
            float(2 * special.stdtr(self.df, -abs(self.difference) / self.error))
            if self.error
            else 0.0
        )

    def interval(self) -> tuple[float, float]:
        """The 95% interval of the difference by Student's t."""
        from scipy import special

        reach = float(special.stdtrit(self.df, (1 + LEVEL) / 2)) * self.error
        return max(self.difference - reach, -MAX_DIFFERENCE), min(
            self.difference + reach, MAX_DIFFERENCE
        )

    @classmethod
    def estimate(
        cls,
        first: ScoreSample | None,
        second: ScoreSample,
        dependence: ItemDependence,
        weights: Float64Array,
    ) -> EstimatedDifference:
        """The difference of two encoders on the same items: second minus first, or against 0 where there is no first.

        ``weights`` are the items' shares of the score, (n,).
        """
        sides = [second] if first is None else [first, second]
        difference, shares = second.score, second.influences.mean(axis=0)
        if first is not None:
            difference, shares = difference - first.score, shares - first.influences.mean(axis=0)
        of_seeds = [
            *(seed_error(side, dependence) for side in sides),
            *(one for side in sides for one in side.seed_errors),
        ]
        parts = [
            standard_error(shares, dependence, weights),
            *(one for one in of_seeds if one is not None),
        ]
        variances = np.array([part.error**2 for part in parts])
        doubt = float(np.sum(variances**2 / np.array([part.df for part in parts])))
        total = float(variances.sum())
        if np.isnan(total):
            # Too few items tell nothing of how a score varies.
            return cls(difference, float("inf"), 1.0)
        return cls(difference, total**0.5, total**2 / doubt if doubt > 0 else parts[0].df)


def seed_error(sample: ScoreSample, dependence: ItemDependence) -> StandardError | None:
    """The error of a mean over seeds that items do not explain; None of a single seed."""
    count = len(sample.scores)
    if count < 2:
        return None
    apart = sample.influences - sample.influences.mean(axis=0)
    explained = sum(map(dependence.variance, apart)) / (count - 1)
    variance = (float(np.var(sample.scores, ddof=1)) - explained) / count
    return StandardError(max(variance, 0.0) ** 0.5, count - 1)


def average_samples(
    samples: Sequence[ScoreSample],
    dependence: ItemDependence,
    weights: Sequence[float] | None = None,
) -> ScoreSample:
    """One encoder's mean over several tasks, whose items follow each other.

    Where every task has the same seeds, the mean is taken seed by seed; else each task's seeds are averaged first, and
    their error is that of the head of this file. ``weights`` are the tasks' shares of the mean, (k,), with the sum 1; without any,
    all alike.
    """
    shares = [1 / len(samples)] * len(samples) if weights is None else list(weights)
    of_tasks = list(zip(samples, shares, strict=True))
    if len({sample.seeds for sample in samples}) == 1:
        scores: Float64Array = np.sum([share * sample.scores for sample, share in of_tasks], axis=0)
        return ScoreSample(
            scores,
            np.concatenate([share * s.influences for s, share in of_tasks], axis=1),
            samples[0].seeds,
        )
    apart = _error_of_unequal_seeds(samples, dependence, np.array(shares))
    return ScoreSample(
        np.array([np.sum([share * sample.score for sample, share in of_tasks])]),
        np.concatenate([share * sample.influences.mean(axis=0) for sample, share in of_tasks])[
            None
        ],
        (),
        () if apart is None else (apart,),
    )


def _error_of_unequal_seeds(
    samples: Sequence[ScoreSample], dependence: ItemDependence, weights: Float64Array
) -> StandardError | None:
    """The seeds' error of a mean over k tasks of which not all have the same seeds; None where no task has two.

    One seed alone that two tasks share tells no covariance: then they are taken to move together entirely. A task of
    one seed varies as the others do on average. The degrees of freedom are Satterthwaite's of the quadratic form in the
    seeds, tr(B)² / tr(B²), as if a seed were as good or bad on every task: fewer there are not.
    """
    seeds = list(dict.fromkeys(seed for one in samples for seed in one.seeds))
    has = np.array([[seed in one.seeds for seed in seeds] for one in samples], dtype=np.float64)
    counts = has.sum(axis=1)
    if counts.max(initial=0) < 2:
        return None
    both = has[:, None, :] * has[None, :, :]
    shared = both.sum(axis=2)
    parts = np.outer(weights, weights) * shared / np.maximum(np.outer(counts, counts), 1)
    # (k, k, s, s): takes the mean over the shared seeds from the scores of two tasks.
    centring = (
        both[..., None] * np.eye(len(seeds))
        - both[..., None] * both[:, :, None] / np.maximum(shared, 1)[..., None, None]
    )
    centring /= np.maximum(shared - 1, 1)[..., None, None]
    # Products of the scores of every two tasks and seeds, less what items explain of them, (k, s, k, s).
    k, s, start = len(samples), len(seeds), 0
    scores, shares = np.zeros((k, s)), np.zeros((k, s, len(dependence)))
    for task, one in enumerate(samples):
        at, n = [seeds.index(seed) for seed in one.seeds], one.influences.shape[1]
        if at:
            scores[task, at] = one.scores - one.score
            shares[task, at, start : start + n] = one.influences - one.influences.mean(axis=0)
        start += n
    products = np.outer(scores, scores) - dependence.covariance(shares.reshape(k * s, -1))
    covariances = np.einsum("tusv,tsuv->tu", centring, products.reshape(k, s, k, s))
    variances = np.where(counts > 1, np.maximum(np.diag(covariances), 0.0), 0.0)
    variances[counts == 1] = variances[counts > 1].mean()
    deviations = np.sqrt(variances)
    bounds = np.outer(deviations, deviations)
    variance = float(np.sum(parts * np.where(shared > 1, covariances, bounds)))
    form = np.einsum("tu,tusv->sv", parts * bounds, centring)
    df = np.trace(form) ** 2 / np.sum(form**2) if form.any() else counts[counts > 1].min() - 1
    return StandardError(max(variance, 0.0) ** 0.5, float(df))


def draw_scores(
    samples: Sequence[ScoreSample],
    dependence: ItemDependence,
    *,
    draws: int,
    rng: np.random.Generator,
    owners: Sequence[int] = (),
) -> Float64Array:
    """Scores that encoders would have on other items and with other seeds, (k, draws), by the normal law.

    ``owners`` are the encoders that each of k samples is of, whose seeds are as good or bad in all of its samples; each its own
    by default.
    """
    covariance = dependence.covariance(
        np.array([sample.influences.mean(axis=0) for sample in samples])
    )
    values, vectors = np.linalg.eigh(covariance)
    known = values > TIE_TOLERANCE * values[-1]
    root = vectors[:, known] * np.sqrt(values[known])
    found = root @ rng.standard_normal((root.shape[1], draws))
    noise: dict[int, Float64Array] = {}
    for at, (owner, sample) in enumerate(zip(owners or range(len(samples)), samples, strict=True)):
        apart = [
            one for one in (seed_error(sample, dependence), *sample.seed_errors) if one is not None
        ]
        if owner not in noise:
            noise[owner] = rng.standard_normal(draws)
        found[at] += sample.score + np.sqrt(sum(one.error**2 for one in apart)) * noise[owner]
    # Rounded, so that encoders whose items are the same have the same score in every draw.
    return np.asarray(np.round(found, 9))


class Williams(NamedTuple):
    """Williams' test: the difference of two correlations, its standard error, and the two-sided p-value."""

    difference: float
    error: float
    p: float


class Paired(ABC):
    """The per-item values of k encoders on one task, over the same n items; seeds may be several an encoder."""

    is_proportion = True
    """Whether scores lie between 0 and 1, as shares of right items do."""

    @property
    def weights(self) -> Float64Array:
        """What share of the score each item is, (n,)."""
        n = self.influences(0).shape[1]
        return np.full(n, 1 / n)

    @abstractmethod
    def scores(self, encoder: int) -> Float64Array:
        """An encoder's score by each seed, (s,)."""

    @abstractmethod
    def influences(self, encoder: int) -> Float64Array:
        """How much each item moves an encoder's score, by each seed, (s, n)."""

    def permuted_differences(
        self, first: int, second: int, *, permutations: int, rng: np.random.Generator
    ) -> Float64Array | None:
        """The difference of the first seeds, second minus first, (permutations,), after random swaps of items; None: unknown."""
        return None

    def exact_p(
        self, first: int, second: int, *, permutations: int, rng: np.random.Generator
    ) -> float | None:
        """The p-value of the first seeds that takes no law for granted, of independent items; None where there is no such test."""
        permuted = self.permuted_differences(first, second, permutations=permutations, rng=rng)
        observed = float(self.scores(second)[0] - self.scores(first)[0])
        return None if permuted is None else permutation_p(observed, permuted)

    def williams(self, first: int, second: int) -> Williams | None:
        """Williams' test of second minus first, of independent items; None where scores are no correlations."""
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedCorrelation(Paired):
    """Values whose correlation with gold scores is the score.

    ``values`` holds for each encoder (s, n) for s seeds; ``gold`` is (n,). ``parts`` are the items that are
    correlated together, and their shares of the score: one part for the aggregation ``all``, one a subset for
    ``mean`` and ``wmean``. ``metric`` is a name of ``CORRELATIONS``.
    """

    values: Sequence[Float64Array]
    gold: Float64Array
    subset_weights: SubsetWeights
    metric: str
    is_proportion = False

    @property
    def weights(self) -> Float64Array:
        """What share of the score each item is, (n,)."""
        return item_weights(self.subset_weights, len(self.gold))

    def scores(self, encoder: int) -> Float64Array:
        """An encoder's correlation by each seed, (s,); 0 where all its values are one."""
        metric, parts = CORRELATIONS[self.metric], list(zip(*self.subset_weights, strict=True))
        rows = (
            [w * metric(x[at], self.gold[at]) for at, w in parts if np.ptp(x[at]) > 0]
            for x in self.values[encoder]
        )
        return np.array([float(sum(row)) for row in rows])

    def influences(self, encoder: int) -> Float64Array:
        """How much each item moves an encoder's correlation, by each seed, (s, n)."""
        return np.array(
            [
                correlation_influences(self.metric, row, self.gold, self.subset_weights)
                for row in self.values[encoder]
            ]
        )

    def permuted_differences(
        self, first: int, second: int, *, permutations: int, rng: np.random.Generator
    ) -> Float64Array | None:
        """The difference after random swaps, (permutations,); None where the correlation has no common scale."""
        if CORRELATIONS[self.metric].scale is None:
            return None
        seed, found = int(rng.integers(2**63)), np.zeros(permutations)
        for at, share in zip(*self.subset_weights, strict=True):
            a, b, gold = self._scaled(first, second, at)
            found += share * _swapped(
                a, b, gold, at, draw_swaps(len(self.gold), permutations, seed)
            )
        return found

    def williams(self, first: int, second: int) -> Williams | None:
        """Williams' test of second minus first, items independent; None for several seeds, or fewer than four a part.

        Of several parts the differences are added up by weight, and their variances by squared weight.
        """
        seeds = max(len(self.values[first]), len(self.values[second]))
        if (
            seeds > 1
            or CORRELATIONS[self.metric].scale is None
            or min(map(len, self.subset_weights.indices)) < 4
        ):
            return None
        tests = []
        for at in self.subset_weights.indices:
            a, b, gold = self._scaled(first, second, at)
            tests.append(
                williams(
                    *(float(u @ v) / len(at) for u, v in ((a, gold), (b, gold), (a, b))), n=len(at)
                )
            )
        return tests[0] if len(tests) == 1 else combine_williams(tests, self.subset_weights.weights)

    def _scaled(self, first: int, second: int, at: npt.NDArray[np.int64]) -> Iterator[Float64Array]:
        """Two encoders' and gold's ranks or values with mean 0 and variance 1, (m,); zeros where all are the same."""
        scale = CORRELATIONS[self.metric].scale
        assert scale is not None, f"{self.metric} has no scale"
        for row in (self.values[first][0], self.values[second][0], self.gold):
            centred = scale(row[at]) - scale(row[at]).mean()
            spread = np.sqrt(np.mean(centred**2))
            yield centred / spread if spread > 0 else np.zeros_like(centred)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedMean(Paired):
    """Values whose mean is the score: whether an item is right, or its recall; for each encoder (s, n)."""

    values: Sequence[Float64Array]

    def scores(self, encoder: int) -> Float64Array:
        """An encoder's mean by each seed, (s,)."""
        return np.asarray(self.values[encoder].mean(axis=1))

    def influences(self, encoder: int) -> Float64Array:
        """How much each item moves an encoder's mean, by each seed, (s, n)."""
        values = self.values[encoder]
        return np.asarray((values - values.mean(axis=1, keepdims=True)) / values.shape[1])

    def permuted_differences(
        self, first: int, second: int, *, permutations: int, rng: np.random.Generator
    ) -> Float64Array | None:
        """The difference after random swaps, (permutations,)."""
        items = self.values[second][0] - self.values[first][0]
        swapped = [
            block @ items
            for block in draw_swaps(len(items), permutations, int(rng.integers(2**63)))
        ]
        return np.asarray((items.sum() - 2 * np.concatenate(swapped)) / len(items))

    def exact_p(
        self, first: int, second: int, *, permutations: int, rng: np.random.Generator
    ) -> float | None:
        """McNemar's where all items are simply right or wrong, else that of random swaps."""
        a, b = self.values[first][0], self.values[second][0]
        if np.isin([a, b], (0.0, 1.0)).all():
            return mcnemar(a > b, b > a)
        return super().exact_p(first, second, permutations=permutations, rng=rng)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedF1(Paired):
    """Predictions whose F1 is the score, which is no sum over items: swaps do not add up.

    F1 is a ratio of two sums over items, 2 TP / (predicted + true): a share is the item's part in the ratio's first
    order (delta method; Cochran 1977, Sampling Techniques, section 6.3), (2 tp - F1 (predicted + true)) / (predicted + true).

    ``predicted`` are the classes and ``correct`` whether they are right, of each encoder (s, n) for s seeds.
    """

    predicted: Sequence[Float64Array]
    correct: Sequence[Float64Array]

    def scores(self, encoder: int) -> Float64Array:
        """An encoder's F1 by each seed, (s,); 0 where nothing is predicted or true."""
        hits, marked = self._counts(encoder)
        return np.asarray(2 * hits.sum(axis=1) / np.maximum(marked.sum(axis=1), 1))

    def influences(self, encoder: int) -> Float64Array:
        """How much each item moves an encoder's F1, by each seed, (s, n)."""
        hits, marked = self._counts(encoder)
        parts = 2 * hits - self.scores(encoder)[:, None] * marked
        return np.asarray(parts / np.maximum(marked.sum(axis=1, keepdims=True), 1))

    def _counts(self, encoder: int) -> tuple[Float64Array, Float64Array]:
        """Of each item whether it is a hit, and how often it is marked as class 1, by prediction and by truth."""
        predicted = self.predicted[encoder] == 1
        # A wrong answer of two classes is the other class.
        true = np.where(self.correct[encoder] == 1, predicted, ~predicted)
        return (predicted & true).astype(np.float64), predicted.astype(np.float64) + true


def draw_swaps(n: int, permutations: int, seed: int) -> Iterator[Float64Array]:
    """Which items are swapped: blocks (<= BLOCK, n) of zeros and ones, each as likely, drawn one after another."""
    rng = np.random.default_rng(seed)
    for start in range(0, permutations, PERMUTATION_BLOCK):
        rows = min(PERMUTATION_BLOCK, permutations - start)
        eights = rng.integers(0, 256, size=(rows, -(-n // 8)), dtype=np.uint8)
        yield np.unpackbits(eights, axis=1, count=n).astype(np.float64)


def _swapped(
    a: Float64Array,
    b: Float64Array,
    gold: Float64Array,
    at: npt.NDArray[np.int64],
    blocks: Iterator[Float64Array],
) -> Float64Array:
    """r(b', gold) - r(a', gold) for swapped a', b'; all scaled and (m,), those of the items ``at``.

    With m and h half the sum and half the difference, a' = m - e h and b' = m + e h for signs e: all that
    the two correlations need of a swap is three sums, of e h gold, e h and e m h.
    """
    m, h = (a + b) / 2, (b - a) / 2
    columns = np.stack([h * gold, h, m * h], axis=1)
    swapped = np.concatenate([block[:, at] @ columns for block in blocks])
    with_gold, sums, squares = (columns.sum(axis=0) - 2 * swapped).T

    def correlation(sign: int) -> Float64Array:
        variance = (
            np.sum(m * m + h * h) + 2 * sign * squares - (m.sum() + sign * sums) ** 2 / len(m)
        )
        covariance = m @ gold + sign * with_gold
        flat = variance <= len(m) * TIE_TOLERANCE
        return np.where(flat, 0.0, covariance / np.sqrt(len(m) * np.where(flat, 1.0, variance)))

    return correlation(1) - correlation(-1)


def permutation_p(observed: float, permuted: Float64Array) -> float:
    """The two-sided p-value; the observed order counts as one permutation (Phipson and Smyth 2010)."""
    return float(
        (1 + np.sum(np.abs(permuted) >= abs(observed) - TIE_TOLERANCE)) / (1 + len(permuted))
    )


def williams(r_first: float, r_second: float, r_between: float, *, n: int) -> Williams:
    """Williams' test of two encoders' correlations with gold scores (Steiger 1980, equation 7).

    ``r_between`` is the correlation of the two encoders' values, ``n`` the number of items, at least 4.
    """
    from scipy import stats

    determinant = 1 - r_first**2 - r_second**2 - r_between**2 + 2 * r_first * r_second * r_between
    middle = (r_first + r_second) / 2
    above = 2 * (n - 1) / (n - 3) * max(determinant, 0.0) + middle**2 * (1 - r_between) ** 3
    error = float(np.sqrt(max(above, 0.0) / ((n - 1) * (1 + r_between))))
    return _williams(r_second - r_first, error, lambda t: stats.t.sf(t, n - 3))


def combine_williams(tests: Sequence[Williams], weights: Float64Array) -> Williams:
    """Williams' tests of independent parts as one: the weighted sum of their differences, by the normal law."""
    from scipy import stats

    difference = float(sum(w * t.difference for w, t in zip(weights, tests, strict=True)))
    error = float(np.sqrt(sum((w * t.error) ** 2 for w, t in zip(weights, tests, strict=True))))
    return _williams(difference, error, stats.norm.sf)


def _williams(difference: float, error: float, beyond: Callable[[float], float]) -> Williams:
    if abs(difference) <= TIE_TOLERANCE:
        return Williams(0.0, error, 1.0)
    return Williams(difference, error, float(2 * beyond(abs(difference) / error)) if error else 0.0)


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
