"""Tests of falls: by the scores of training seeds, else by items, else by intervals.

Two trainings of one recipe differ by chance. Given the items, the scores of its seeds are
exchangeable, so Student's t with a pooled deviation is exact for them (a test that adds the chance
of the items fails in the far tail, which many looks reach). With one seed on each side nothing
shows how far trainings differ: then only the items are tested, unless that deviation is known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from stsbench.check.lock import LockedCell, unpack
from stsbench.check.verdicts import CellPool
from stsbench.core.errors import DataError
from stsbench.core.provenance import is_same_encoder
from stsbench.core.wording import format_count
from stsbench.numbers.statistics import Float64Array
from stsbench.results.folder import read_item_columns
from stsbench.results.record import Result
from stsbench.significance.comparison import (
    MeasuredDifference,
    TestSettings,
    compare_on_task,
    mean_difference,
)
from stsbench.significance.differences import MAX_DIFFERENCE, EstimatedDifference
from stsbench.significance.margins import smallest_detectable

SCORE_TOLERANCE = 1e-9
"""Scores, and deviations of scores, this small a distance apart are equal."""


@dataclass(frozen=True, kw_only=True)
class FallSettings:
    """The settings of tests of falls.

    Attributes:
        tests: The settings of tests by items, with the level of one look and the margin.
        seed_deviation: The known deviation of scores over training seeds, never times 100; None if
            it is estimated from the seeds.
    """

    tests: TestSettings
    seed_deviation: float | None = None


class FallTest(NamedTuple):
    """The test of whether a score, or a mean over tasks, fell.

    Attributes:
        p: The p-value; 1 if there is no test.
        method: The name of the test.
        estimate: The difference, new minus old, with its error; None if there is no test.
        tails: 1 if ``p`` is one-sided, 2 if it is two-sided.
        covers_training: Whether the test covers that two trainings of one recipe differ, or both
            sides have the same encoder, so that there is no training between them.
        problem: Why there is no paired test, so that a fall without significance may still be
            real; empty if there is one.
    """

    p: float
    method: str
    estimate: EstimatedDifference | None
    tails: Literal[1, 2] = 2
    covers_training: bool = True
    problem: str = ""

    def smallest_fall(self, level: float) -> float | None:
        """Compute the smallest true fall that the test finds in 80% of looks at this level.

        Returns:
            The fall, never times 100; None if there is no test, or if no score can fall so far.
        """
        if self.estimate is None:
            return None
        # A one-sided test finds as much as a two-sided one of twice the level.
        two_sided_level = level if self.tails == 2 else 2 * level
        smallest = smallest_detectable(self.estimate.standard_error, two_sided_level)
        return smallest if smallest <= MAX_DIFFERENCE else None


def fall_test(pools: Sequence[CellPool], settings: FallSettings) -> FallTest:
    """Test whether the score of a pool of cells fell, or the mean over several pools.

    If the encoder changed, the scores of the training seeds are tested, if a side has two or the
    deviation over seeds is known. In all other cases the items are tested, if both sides have them.
    Without items the test is made from the intervals: it is weak, so that a fall that it does not
    find may still be real, and ``problem`` then says why there is no better test.

    Args:
        pools: The cells to compare: those of one task, or one pool for each task of a suite. All
            have the same seeds on the new side, and on the old side.
        settings: The settings of the tests.
    """
    is_retrained = any(map(_has_other_encoder, pools))
    if is_retrained:
        # The score of each seed, (s,); of several pools its mean over the tasks.
        new_scores = np.mean([[cell.score for cell in pool.new] for pool in pools], axis=0)
        old_scores = np.mean([[cell.score for cell in pool.old] for pool in pools], axis=0)
        estimate = estimate_by_seeds(new_scores, old_scores, settings.seed_deviation)
        if estimate is not None:
            n_new, n_old = len(new_scores), len(old_scores)
            seeds = f"{format_count(n_new, 'seed')} against {n_old}"
            # A known deviation has no degrees of freedom that are used up.
            source = "known deviation" if math.isinf(estimate.df) else "Student's t"
            return FallTest(fall_p(estimate), f"{source}, {seeds}", estimate, tails=1)
    item_test = _test_items(pools, settings.tests)
    # Items say nothing about how trainings differ.
    return item_test._replace(covers_training=not is_retrained)


def _has_other_encoder(pool: CellPool) -> bool:
    """Return whether a new cell of a pool has other weights or settings than an old one."""
    cell_pairs = itertools.product(pool.new, pool.old)
    return not all(is_same_encoder(new.fingerprint, old.fingerprint) for new, old in cell_pairs)


def estimate_by_seeds(
    new_scores: Float64Array, old_scores: Float64Array, known_deviation: float | None = None
) -> EstimatedDifference | None:
    """Estimate how far a recipe's mean score moved, from the scores of its training seeds.

    The standard error is the deviation over seeds times sqrt(1 / s + 1 / t), for s new and t old
    seeds. The deviation is pooled from both sides: the root of the sum of all squared distances
    from the own side's mean, divided by the degrees of freedom s + t - 2. A known deviation takes
    its place, with infinite degrees of freedom.

    Args:
        new_scores: The scores of the new seeds, (s,).
        old_scores: The scores of the old seeds, (t,).
        known_deviation: The deviation of scores over seeds; None if it is unknown.

    Returns:
        New minus old; None if both sides have a single seed and no deviation is known.
    """
    n_new, n_old = len(new_scores), len(old_scores)
    df = float(n_new + n_old - 2)
    if known_deviation is not None:
        deviation = known_deviation
        df = math.inf
    elif df:
        squares = sum(
            float(np.sum((scores - scores.mean()) ** 2)) for scores in (new_scores, old_scores)
        )
        deviation = math.sqrt(squares / df)
    else:
        return None
    difference = float(new_scores.mean() - old_scores.mean())
    error = deviation * math.sqrt(1 / n_new + 1 / n_old)
    return EstimatedDifference(difference, error, df)


def fall_p(estimate: EstimatedDifference) -> float:
    """Compute the one-sided p-value of a fall; 1 if the score did not fall.

    Args:
        estimate: The difference, new minus old. If its error is 0, every fall has a p-value of 0.
    """
    if estimate.difference >= -SCORE_TOLERANCE:
        return 1.0
    if estimate.error <= SCORE_TOLERANCE:
        return 0.0
    return estimate.standard_error.upper_tail(-estimate.difference)


def _test_items(pools: Sequence[CellPool], settings: TestSettings) -> FallTest:
    """Test the difference of one cell on each side, or of the means over several such pools.

    The test is paired if both sides have their items, which may share sentences between tasks.
    Otherwise it is made from the intervals, and ``problem`` says why. If per-item columns are
    broken there is no test.

    Args:
        pools: Pools of one new and one old cell, each on its own task.
        settings: The settings of the paired test: its permutations, level and seed.
    """
    pairs = [(pool.new[0], pool.old[0]) for pool in pools]
    differences: list[MeasuredDifference] = []
    try:
        for new, old in pairs:
            new_result = _result_with_items(new, old)
            old_result = _result_with_items(old, new)
            if new_result is not None and old_result is not None:
                differences += compare_on_task({"old": [old_result], "new": [new_result]}, settings)
    except DataError as error:
        return FallTest(p=1.0, method="none", estimate=None, problem=str(error))
    have_all_items = len(differences) == len(pairs)
    if have_all_items:
        difference = differences[0].difference
        if len(differences) > 1:
            difference = mean_difference(differences)
        if difference.p is not None:
            return FallTest(difference.p, f"paired test, {difference.method}", difference.estimate)
    estimate = _estimate_from_intervals(pools)
    problem = _why_no_paired_test(pairs)
    return FallTest(estimate.p, "from the intervals", estimate, problem=problem)


def _why_no_paired_test(pairs: Sequence[tuple[LockedCell, LockedCell]]) -> str:
    """Return why the items of pairs of a new and an old cell have no paired test."""
    # Rows of lock files are the cells without a Result.
    locked_cells = [cell for pair in pairs for cell in pair if cell.result is None]
    if any(cell.paired is None for cell in locked_cells):
        return "the lock holds no per-item values; lock again beside them"
    are_two_locks = len(locked_cells) > len(pairs)
    if are_two_locks:
        return "two locks hold no gold scores"
    return "no paired test is known"


def _estimate_from_intervals(pools: Sequence[CellPool]) -> EstimatedDifference:
    """Estimate the mean difference of independent normal scores from their 95% intervals.

    The standard error of a score is the width of its interval over twice 1.96, the normal
    distribution's 97.5% point. That of the mean over k pools is the root of the sum of the squared
    errors of all new and old scores, over k. This ignores that both sides have the same items.

    Args:
        pools: Pools of one new and one old cell.
    """
    from scipy import special

    pairs = [(pool.new[0], pool.old[0]) for pool in pools]
    intervals = [cell.interval for pair in pairs for cell in pair]
    normal_quantile = special.ndtri(0.975)
    variance_of_sum = sum(((high - low) / (2 * normal_quantile)) ** 2 for low, high in intervals)
    error = float(variance_of_sum**0.5) / len(pairs)
    difference = sum(new.score - old.score for new, old in pairs) / len(pairs)
    return EstimatedDifference(difference, error, df=math.inf)


def _result_with_items(cell: LockedCell, counterpart: LockedCell) -> Result | None:
    """Return the Result of a cell, with its per-item columns; None if neither side has items.

    Args:
        cell: The cell. For a row of a lock the Result is composed of the locked column, and of the
            columns of its counterpart, whose data are the same: a lock holds no gold scores.
        counterpart: The other side's cell.
    """
    if cell.result is not None:
        return cell.result
    if cell.paired is None or counterpart.result is None:
        return None
    columns = {
        **read_item_columns(counterpart.result),
        cell.paired.column: unpack(cell.paired, cell.n),
    }
    return msgspec.structs.replace(
        counterpart.result, score=cell.score, interval=cell.interval, per_item=columns, path=None
    )
