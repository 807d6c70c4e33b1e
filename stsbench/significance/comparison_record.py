"""The settings of comparisons of encoders, and the records of what they find."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from stsbench.numbers.intervals import StandardError
from stsbench.results.signature import ComparedPart, format_compared
from stsbench.significance.differences import EstimatedDifference
from stsbench.significance.items import Dependence, TaskItems
from stsbench.significance.margins import MarginVerdict


@dataclass(frozen=True, kw_only=True)
class TestSettings:
    """The settings of tests.

    Attributes:
        n_permutations: How many permutations to draw for a permutation test.
        seed: The seed of all permutations.
        level: The corrected p-value below which a difference counts as real.
        dependence: Which items are taken to vary together.
        margin: The largest difference that does not matter, never times 100; None if differences
            are not to be judged by a margin.
        plan: The difference to plan items and seeds for, never times 100; None if there is none.
        all_pairs: Compare every two encoders; otherwise every other one with the first.
    """

    n_permutations: int = 9999
    seed: int = 0
    level: float = 0.05
    dependence: Dependence = "sentences"
    margin: float | None = None
    plan: float | None = None
    all_pairs: bool = False

    def rng(self, task: str) -> np.random.Generator:
        """Return the generator of a task's draws, which depend on no other task."""
        return np.random.default_rng([self.seed, zlib.crc32(task.encode())])


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference of two encoders on one task or on the mean of several, never times 100.

    ``interval``, ``p`` and ``p_corrected`` are None if the results' per-item columns allow no such
    test, or if one encoder has one training seed and the other several (:attr:`lacks_seeds`).

    Attributes:
        first: The name of the encoder whose score is subtracted.
        second: The name of the other encoder.
        task: The task's name, or the label of the mean.
        tasks: The tasks that the mean is over, or the only one.
        split: The split that was scored.
        protocol: The protocol by which it was scored.
        n: The number of items.
        seeds: The numbers of seeds of the first and the second encoder.
        scores: Their scores.
        deviations: Their deviations over seeds; None if one of them has a single seed, and for a
            mean over tasks.
        difference: The second score minus the first.
        compared: The first part of the scores' signature for each task, which both encoders share.
        interval: The 95% interval of the difference over other items and other seeds, by the
            procedure of ``method``. It leaves 0 out exactly if ``p`` is below 0.05.
        error: Its standard error; None if unknown, or if there are too few items to estimate it.
        df: The degrees of freedom of the error, over items if there are seeds too; None if unknown
            or infinite.
        seed_error: The error over seeds alone, a part of ``error``; None if there is none.
        seed_df: The degrees of freedom of the error over seeds; None if there is none.
        other_error: The error by the other estimate of the variance over items, which has a
            narrower interval but may have a larger p-value; None if there is only one.
        p: The p-value by the procedure of ``method``.
        method: The procedure that gives interval and p-value: Student's t, or, for one task with
            one seed per encoder if no items share a sentence, McNemar's mid-p-value for items that
            are right or wrong, and permutations if these have a wider interval for few items.
        discordant: The numbers of items that only the first and only the second encoder has right;
            None for another method than McNemar's.
        training_seeds: The numbers of training seeds of both, 0 for an encoder that names none;
            for a mean those of the task that has most.
        one_run: The names of those of the two that were trained with a single seed: their
            difference says nothing about the recipe.
        p_corrected: ``p`` after Holm's correction over ``family`` tests.
        real: The corrected p-value is below the level.
        family: The number of tests that the correction is over.
        smallest_detectable: The smallest true difference that is real in 80% of samples, by
            Student's t and at the first level of Holm's correction, which is the level divided by
            ``family``; None if unknown, or if no difference could be found.
        margin_verdict: The judgement by the margin of the comparison, without a correction; None
            if there is no margin.
        required_items: How many items like these the planned difference needs with one seed per
            encoder, by Student's t at the first level of Holm's correction; None if there is no
            plan, if an encoder has several seeds, or if no number of items is enough.
        required_seeds: How many seeds per encoder it needs on these items; None if there is no
            plan, if an encoder has one seed, or if no number of seeds is enough.
    """

    first: str
    second: str
    task: str
    tasks: Sequence[str]
    split: str
    protocol: Mapping[str, Any]
    n: int
    seeds: tuple[int, int]
    scores: tuple[float, float]
    deviations: tuple[float, float] | None
    difference: float
    compared: tuple[ComparedPart, ...] = ()
    interval: tuple[float, float] | None = None
    error: float | None = None
    df: float | None = None
    seed_error: float | None = None
    seed_df: float | None = None
    other_error: StandardError | None = None
    p: float | None = None
    method: str | None = None
    discordant: tuple[int, int] | None = None
    training_seeds: tuple[int, int] = (0, 0)
    one_run: Sequence[str] = ()
    p_corrected: float | None = None
    real: bool = False
    family: int = 0
    smallest_detectable: float | None = None
    margin_verdict: MarginVerdict | None = None
    required_items: int | None = None
    required_seeds: int | None = None

    @property
    def estimate(self) -> EstimatedDifference | None:
        """The difference with its error over items and seeds, as one object for computations.

        It is None if there is no interval, and so no error. The error is infinite if there are too
        few items. Degrees of freedom of None are infinite. ``other_error`` is the error by another
        estimate of the variance over items; None if there is only one.
        """
        if self.interval is None:
            return None
        return EstimatedDifference(
            self.difference,
            error=math.inf if self.error is None else self.error,
            df=math.inf if self.df is None else self.df,
            seed_error=self.seed_error or 0.0,
            seed_df=math.inf if self.seed_df is None else self.seed_df,
            other_error=self.other_error,
        )

    @property
    def lacks_seeds(self) -> bool:
        """True if one of the two has one training seed and the other one several.

        How trainings of the former vary is unknown, so that there is no verdict.
        """
        return min(self.training_seeds) == 1 < max(self.training_seeds)

    @property
    def is_average(self) -> bool:
        """True if this is a mean over tasks."""
        return len(self.tasks) > 1

    @property
    def signature(self) -> str:
        """The compared part of the signature of both scores."""
        return format_compared(self.compared)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences of pairs of encoders.

    Attributes:
        encoders: The names of the encoders; the others are compared with the first.
        differences: The differences by task, then those of means.
        level: The corrected p-value below which a difference counts as real.
        dependence: Which items were taken to vary together.
        margin: The largest difference that does not matter, by which each one was judged, never
            times 100; None if there is none.
        plan: The difference that items and seeds were planned for, never times 100; None if there
            is none.
        all_pairs: Every two encoders were compared.
        notes: Messages for the user, for example on tasks that were skipped.
        titles: The titles of tasks, by their names, for tables of papers.
    """

    encoders: Sequence[str]
    differences: Sequence[Difference]
    level: float
    dependence: Dependence = "sentences"
    margin: float | None = None
    plan: float | None = None
    all_pairs: bool = False
    notes: Sequence[str] = field(default_factory=list)
    titles: Mapping[str, str] = field(default_factory=dict)

    def pairs(self) -> Iterator[tuple[str, str, list[Difference]]]:
        """Yield each pair of encoders that is compared: both names, and all their differences.

        Pairs are those with the first encoder, or all if ``all_pairs`` is set. The differences are
        those on single tasks and of means over tasks.
        """
        for first, second in pair_names(self.encoders, all_pairs=self.all_pairs):
            differences = [
                difference
                for difference in self.differences
                if (difference.first, difference.second) == (first, second)
            ]
            yield first, second, differences


def pair_names(encoders: Sequence[str], *, all_pairs: bool) -> list[tuple[str, str]]:
    """Return the pairs of encoders to compare: all of them, or those with the first encoder."""
    pairs = list(itertools.combinations(encoders, 2))
    return pairs if all_pairs else pairs[: len(encoders) - 1]


class MeasuredDifference(NamedTuple):
    """A pair's difference on one task, with all that a mean over tasks needs.

    Attributes:
        difference: The difference, before any correction.
        items: The items of the task, or of each task of a mean; empty if no paired test is known.
    """

    difference: Difference
    items: Sequence[TaskItems[str]] = ()
