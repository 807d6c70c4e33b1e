"""How far a score, or the difference of two, would move over other items and other seeds.

Items and seeds are crossed: every seed's encoder is scored on the same items. The variance of a mean over seeds is
that over items of the averaged encoder, and that over seeds beyond what items explain (the two-way layout of random
effects; Searle, Casella and McCulloch 1992, chapter 4). Degrees of freedom are Satterthwaite's (1946).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.intervals import StandardError, standard_error
from stsbench.numbers.sharing import Sharing

ROUNDING = 1e-12
FARTHEST = 2.0
"""Two correlations are never farther apart."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One encoder's score by each of s seeds, (s,), and how much each item moves it, (s, n).

    ``drift`` holds the errors of means over seeds that are averaged already.
    """

    scores: Float64Array
    shares: Float64Array
    seeds: tuple[Hashable, ...]
    drift: tuple[StandardError, ...] = ()

    @property
    def score(self) -> float:
        """The mean over seeds."""
        return float(self.scores.mean())


class Contrast(NamedTuple):
    """A difference, its standard error, and the degrees of freedom of that."""

    difference: float
    error: float
    df: float

    @property
    def p(self) -> float:
        """The two-sided p-value by Student's t."""
        from scipy import special

        if abs(self.difference) <= ROUNDING:
            return 1.0
        return float(2 * special.stdtr(self.df, -abs(self.difference) / self.error)) if self.error else 0.0

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The interval of the difference by Student's t."""
        from scipy import special

        reach = float(special.stdtrit(self.df, (1 + level) / 2)) * self.error
        return max(self.difference - reach, -FARTHEST), min(self.difference + reach, FARTHEST)


def over_seeds(sample: Sample, sharing: Sharing) -> StandardError | None:
    """The error of a mean over seeds that items do not explain; None of a single seed."""
    count = len(sample.scores)
    if count < 2:
        return None
    apart = sample.shares - sample.shares.mean(axis=0)
    explained = sum(map(sharing.variance, apart)) / (count - 1)
    variance = (float(np.var(sample.scores, ddof=1)) - explained) / count
    return StandardError(max(variance, 0.0) ** 0.5, count - 1)


def difference_of(first: Sample, second: Sample, sharing: Sharing, weights: Float64Array) -> Contrast:
    """The difference of two encoders on the same items: second minus first.

    Args:
        first: one encoder's.
        second: the other's.
        sharing: which items share sentences.
        weights: the items' shares of the score, (n,).
    """
    items = standard_error(second.shares.mean(axis=0) - first.shares.mean(axis=0), sharing, weights)
    found = [over_seeds(first, sharing), over_seeds(second, sharing), *first.drift, *second.drift]
    return _total(second.score - first.score, [items, *(one for one in found if one is not None)])


def estimate(sample: Sample, sharing: Sharing, weights: Float64Array) -> Contrast:
    """One encoder's score against 0; see :func:`difference_of`."""
    items = standard_error(sample.shares.mean(axis=0), sharing, weights)
    found = [over_seeds(sample, sharing), *sample.drift]
    return _total(sample.score, [items, *(one for one in found if one is not None)])


def _total(difference: float, parts: Sequence[StandardError]) -> Contrast:
    variances = np.array([part.error**2 for part in parts])
    doubt = float(np.sum(variances**2 / np.array([part.df for part in parts])))
    total = float(variances.sum())
    if np.isnan(total):
        # Too few items tell nothing of how a score varies.
        return Contrast(difference, float("inf"), 1.0)
    return Contrast(difference, total**0.5, total**2 / doubt if doubt > 0 else parts[0].df)


def mean_sample(
    samples: Sequence[Sample], sharings: Sequence[Sharing], weights: Sequence[float] | None = None
) -> Sample:
    """One encoder's mean over several tasks, whose items follow each other.

    Where every task has the same seeds, the mean is taken seed by seed, for a seed may be good or bad on all tasks;
    else each task's seeds are averaged first.

    Args:
        samples: the encoder's on each of k tasks.
        sharings: which items of each share sentences.
        weights: the tasks' shares of the mean, (k,), with the sum 1; without any, all alike.
    """
    shares = [1 / len(samples)] * len(samples) if weights is None else list(weights)
    of_tasks = list(zip(samples, shares, strict=True))
    if len({sample.seeds for sample in samples}) == 1:
        scores: Float64Array = np.sum([share * sample.scores for sample, share in of_tasks], axis=0)
        return Sample(scores, np.concatenate([share * s.shares for s, share in of_tasks], axis=1), samples[0].seeds)
    spreads = [over_seeds(sample, sharing) for sample, sharing in zip(samples, sharings, strict=True)]
    return Sample(
        np.array([np.sum([share * sample.score for sample, share in of_tasks])]),
        np.concatenate([share * sample.shares.mean(axis=0) for sample, share in of_tasks])[None],
        (),
        tuple(StandardError(share * one.error, one.df) for one, share in zip(spreads, shares, strict=True) if one),
    )


def joint_draws(
    samples: Sequence[Sample],
    sharing: Sharing,
    *,
    draws: int,
    rng: np.random.Generator,
    owners: Sequence[int] | None = None,
) -> Float64Array:
    """Scores that encoders would have on other items and with other seeds, (k, draws), by the normal law.

    Args:
        samples: k of them, on the same items.
        sharing: which items share sentences.
        draws: how many.
        rng: what they are drawn by.
        owners: the encoder that each sample is of, whose seeds are as good or bad in all of its samples; each its own by default.
    """
    covariance = sharing.covariance(np.array([sample.shares.mean(axis=0) for sample in samples]))
    values, vectors = np.linalg.eigh(covariance)
    known = values > ROUNDING * values[-1]
    root = vectors[:, known] * np.sqrt(values[known])
    found = root @ rng.standard_normal((root.shape[1], draws))
    noise: dict[int, Float64Array] = {}
    for at, (owner, sample) in enumerate(zip(owners or range(len(samples)), samples, strict=True)):
        apart = [one for one in (over_seeds(sample, sharing), *sample.drift) if one is not None]
        if owner not in noise:
            noise[owner] = rng.standard_normal(draws)
        found[at] += sample.score + np.sqrt(sum(one.error**2 for one in apart)) * noise[owner]
    # Rounded, so that encoders whose items are the same have the same score in every draw.
    rounded: Float64Array = np.round(found, 9)
    return rounded
