"""Tests of falls: by the scores of training seeds, else by items, else by intervals.

Two trainings of one recipe differ by chance. Given the items, the scores of its seeds are
exchangeable, so Student's t with a pooled deviation is exact for them (a test that adds the chance
of the items fails in the far tail, which many checks reach). With one seed on each side nothing
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

from stsbench.check.lock import LockedCell, unpack_column
from stsbench.check.verdicts import CellPool
from stsbench.core.errors import DataError
from stsbench.core.provenance import is_same_encoder
from stsbench.core.wording import format_count
from stsbench.numbers.statistics import Float64Array
from stsbench.results.folder import read_item_columns
from stsbench.results.record import Result
from stsbench.significance.comparison import compare_on_task, mean_difference
from stsbench.significance.comparison_record import MeasuredDifference, TestSettings
from stsbench.significance.differences import MAX_CORRELATION_DIFFERENCE, EstimatedDifference
from stsbench.significance.margins import smallest_detectable

SCORE_TOLERANCE = 1e-9
"""Scores, and deviations of scores, this small a distance apart are equal."""


@dataclass(frozen=True, kw_only=True)
class FallSettings:
    """The settings of tests of falls.

    Attributes:
        tests: The settings of tests by items, with the level of one check and the margin.
        seed_deviation: The known deviation of scores over training seeds, on the scale of scores
            (not in points); None if it is estimated from the seeds.
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
        """Compute the smallest true fall of a score that this test finds in 80% of cases.

        If the score had truly fallen so far, and were measured many times, 80% of the tests would
        find the fall significant. A smaller fall is often overlooked.

        ``self.estimate`` has the standard error of the difference of the two scores, and is None if
        there is no test. ``self.tails`` is 2 if the test also finds a rise, and 1 if it finds falls
        only.

        Args:
            level: The level of significance: the test finds a fall if its p-value is below it.

        Returns:
            The fall, on the scale of scores (not in points); None if there is no test, or if the
            fall would be more than ``MAX_CORRELATION_DIFFERENCE``, by which no scores can differ.
        """
        if self.estimate is None:
            return None
        # A one-sided test finds as much as a two-sided one of twice the level.
        two_sided_level = level if self.tails == 2 else 2 * level
        # There are one or two estimates of the error: the fall must be found with each.
        smallest = max(
            smallest_detectable(error, two_sided_level) for error in self.estimate.errors
        )
        return smallest if smallest <= MAX_CORRELATION_DIFFERENCE else None


def fall_test(pools: Sequence[CellPool], settings: FallSettings) -> FallTest:
    """Test whether a new score is lower than an old one by more than chance.

    There are three tests, and the first that is possible is made:

    1. If the encoder was trained again, the scores of its training seeds are compared. This needs
       two seeds on a side, or a known deviation of scores over seeds.
    2. The values per item (sentence or pair) of the two scores are compared, in pairs. This needs
       the items of both sides.
    3. The 95% intervals of the two scores are compared. This test is weak: a fall that it does not
       find may still be real. ``problem`` of the result says why there is no better test.

    Args:
        pools: The scores to compare, one pool for each task; of several tasks the means are
            compared. ``new`` and ``old`` of a pool are lists of cells, scores of one encoder on one
            task, one per training seed. All pools have the same seeds on the new side, and on the
            old side.
        settings: The settings of the tests. ``seed_deviation`` is the known deviation of scores
            over training seeds, or None; ``tests`` are the settings of the second test.

    Returns:
        The p-value, the name of the test, and the estimated difference, new minus old.
    """
    # Whether any new cell is of other weights or settings than an old one.
    is_retrained = any(map(_has_other_encoder, pools))
    if is_retrained:
        # The score of each seed, (n_seeds,), as the mean over the tasks.
        new_scores = np.mean([[cell.score for cell in pool.new] for pool in pools], axis=0)
        old_scores = np.mean([[cell.score for cell in pool.old] for pool in pools], axis=0)
        estimate = estimate_by_seeds(new_scores, old_scores, settings.seed_deviation)
        if estimate is not None:
            n_new, n_old = len(new_scores), len(old_scores)
            seeds = f"{format_count(n_new, 'seed')} against {n_old}"
            # The degrees of freedom (df) are infinite if the deviation is known, not estimated.
            source = "known deviation" if math.isinf(estimate.df) else "Student's t"
            return FallTest(fall_p(estimate), f"{source}, {seeds}", estimate, tails=1)
    item_test = _test_items(pools, settings.tests)
    # Two trainings differ by chance too, which tests 2 and 3 do not count.
    return item_test._replace(covers_training=not is_retrained)


def _has_other_encoder(pool: CellPool) -> bool:
    """Return whether a new cell of a pool has other weights or settings than an old one."""
    cell_pairs = itertools.product(pool.new, pool.old)
    return not all(is_same_encoder(new.fingerprint, old.fingerprint) for new, old in cell_pairs)


def estimate_by_seeds(
    new_scores: Float64Array, old_scores: Float64Array, known_deviation: float | None = None
) -> EstimatedDifference | None:
    """Estimate how far the mean score of a training recipe moved, from several trainings.

    Each training has another random seed, and so another score. The estimate is the difference of
    the mean scores. Its standard error is the deviation of scores over seeds times
    sqrt(1 / n_new + 1 / n_old).

    If the deviation is not known, it is estimated from both sides: the root of the sum of all
    squared distances from the own side's mean, divided by the degrees of freedom
    df = n_new + n_old - 2. If it is known, df is infinite.

    Args:
        new_scores: The scores of the new seeds, (n_new,).
        old_scores: The scores of the old seeds, (n_old,).
        known_deviation: The deviation of scores over seeds; None if it is unknown.

    Returns:
        The difference, new minus old, its standard error and df. None if both sides have a single
        seed and no deviation is known.
    """
    n_new, n_old = len(new_scores), len(old_scores)
    df = float(n_new + n_old - 2)
    if known_deviation is not None:
        deviation = known_deviation
        df = math.inf
    elif df:
        sum_of_squares = sum(
            float(np.sum((scores - scores.mean()) ** 2)) for scores in (new_scores, old_scores)
        )
        deviation = math.sqrt(sum_of_squares / df)
    else:
        return None
    difference = float(new_scores.mean() - old_scores.mean())
    error = deviation * math.sqrt(1 / n_new + 1 / n_old)
    return EstimatedDifference(difference, error, df)


def fall_p(estimate: EstimatedDifference) -> float:
    """Compute how probable a fall of a score as large as this one is, if nothing truly changed.

    This is the one-sided p-value. It is 1 if the score did not fall, and 0 if it fell and the
    standard error is 0.

    Args:
        estimate: ``difference``, the new minus the old score, and ``error``, its standard error.
    """
    # SCORE_TOLERANCE is a tiny number for errors of rounding.
    if estimate.difference >= -SCORE_TOLERANCE:
        return 1.0
    if estimate.error <= SCORE_TOLERANCE:
        return 0.0
    # The probability, by Student's t, that chance alone moves a score further than this.
    return estimate.standard_error.upper_tail(-estimate.difference)


def _test_items(pools: Sequence[CellPool], settings: TestSettings) -> FallTest:
    """Test whether a new and an old score differ, from their values per item (sentence or pair).

    If both sides have values per item, these are compared in pairs. Otherwise the 95% intervals of
    the scores are compared, and ``problem`` of the result says why. If the files of values per item
    are broken there is no test: the p-value is 1 and ``estimate`` is None.

    Args:
        pools: One pool for each task, whose ``new`` and ``old`` are one cell each: a score of one
            encoder on the task. Of several tasks the mean scores are tested.
        settings: The settings of the paired test: its permutations, level and seed.
    """
    pairs = [(pool.new[0], pool.old[0]) for pool in pools]
    differences: list[MeasuredDifference] = []
    try:
        for new, old in pairs:
            new_result = _result_with_items(new, old)
            old_result = _result_with_items(old, new)
            if new_result is not None and old_result is not None:
                # One difference, new minus old.
                differences += compare_on_task({"old": [old_result], "new": [new_result]}, settings)
    except DataError as error:
        return FallTest(p=1.0, method="none", estimate=None, problem=str(error))
    have_all_items = len(differences) == len(pairs)
    if have_all_items:
        difference = differences[0].difference
        if len(differences) > 1:
            difference = mean_difference(differences)
        # The p-value is None if no paired test of these scores is known.
        if difference.p is not None:
            return FallTest(difference.p, f"paired test, {difference.method}", difference.estimate)
    estimate = _estimate_from_intervals(pools)
    problem = _why_no_paired_test(pairs)
    return FallTest(estimate.p, "from the intervals", estimate, problem=problem)


def _why_no_paired_test(pairs: Sequence[tuple[LockedCell, LockedCell]]) -> str:
    """Return the reason why scores cannot be compared item by item (by sentence or pair).

    A cell is one score of an encoder on a task. It is either a row of a lock file, a file of
    accepted scores, or has a Result of its own, with its values per item. A row may hold the values
    that a paired test needs, but never the gold scores, which come from the other side's Result.

    Args:
        pairs: A new and an old cell for each task.
    """
    # Rows of lock files are the cells without a Result.
    locked_cells = [cell for pair in pairs for cell in pair if cell.result is None]
    # The field "paired" holds a row's values per item.
    if any(cell.paired is None for cell in locked_cells):
        return "the lock holds no per-item values; lock again beside them"
    if any(new.result is None and old.result is None for new, old in pairs):
        return "two locks hold no gold scores"
    return "no paired test is known"


def _estimate_from_intervals(pools: Sequence[CellPool]) -> EstimatedDifference:
    """Estimate the mean difference of new and old scores, and its error, from their 95% intervals.

    The standard error of one score is the width of its interval divided by twice 1.96, the normal
    distribution's 97.5% point. The standard error of the mean difference over k tasks is the root
    of the sum of the squared errors of all new and old scores, divided by k. This takes the scores
    as independent, although both sides have the same items.

    Args:
        pools: One pool for each task, whose ``new`` and ``old`` are one cell each, a score with its
            ``interval`` (lower and upper end).

    Returns:
        The difference, new minus old, its standard error, and infinite degrees of freedom.
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
    """Return the Result of a score, whose values per item (sentence or pair) can be tested.

    There are three cases:

    * The cell has a Result, which is returned.
    * The cell is a row of a lock file, a file of accepted scores. The row holds one column of
      values per item (``paired``), but no gold scores. The Result of the counterpart has these, as
      its data are the same. So a copy of that Result is returned, with the row's score, interval
      and column.
    * The row has no such column, or the counterpart has no Result: None is returned.

    Args:
        cell: The score.
        counterpart: The score on the other side of the check, of the same task.
    """
    if cell.result is not None:
        return cell.result
    if cell.paired is None or counterpart.result is None:
        return None
    columns = {
        **read_item_columns(counterpart.result),
        cell.paired.column: unpack_column(cell.paired, cell.n),
    }
    return msgspec.structs.replace(
        counterpart.result, score=cell.score, interval=cell.interval, per_item=columns, path=None
    )
