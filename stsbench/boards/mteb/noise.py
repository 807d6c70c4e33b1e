"""How large a difference on a board of MTEB's must be for a test on its items to see it.

Public scores have no items. The errors of a score and of a difference are taken as kappa and c,
which ``benchmarks/spread.py`` has measured; for other tasks kappa is the least of the measured
kappa · sqrt(n), divided by sqrt(n), and c that of means. Tasks, subsets and splits are taken as
independent, though some share pairs, which makes the bounds smaller than they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from stsbench.boards.tables.detectable import (
    MEAN,
    NORMAL_QUANTILE,
    difference_variance,
    mark_gaps,
    published_score,
    read_spread,
    score_gap_bound,
)
from stsbench.boards.tables.table import AVERAGE, UNDETECTABLE, Row, Table
from stsbench.core.catalogue import Catalogue
from stsbench.data.mteb.facts import BenchmarkTask, PairCounts, count_pairs

OUR_TASK_BY_MTEB_TASK = {
    "STS12": "sts12",
    "STS13": "sts13",
    "STS14": "sts14",
    "STS15": "sts15",
    "STS16": "sts16",
    "STSBenchmark": "stsb",
}
"""Tasks of ours with the same pairs, whose errors were measured, by tasks of MTEB's."""
ASSUMED_PAIRS = 10_000
"""The number of pairs that is assumed of a part of which no card says it."""


class TaskError(NamedTuple):
    """How far scores of a task, and of two models on it, may be wrong."""

    kappa: float
    """The error of a score on Fisher's scale."""
    c_unlike: float
    """The correlation of the errors of two models of different families."""
    c_relatives: float
    """The same for two models of one family."""


TaskErrors = Mapping[str, TaskError]
"""The errors of the tasks of a benchmark, by MTEB's name of the task."""


class Neighbours(NamedTuple):
    """Two models beside each other on a board, by their means over all tasks."""

    gap: float
    """The difference of their means in points."""
    bound: float
    """The least difference that a test could see, if they are of different families."""
    relatives_bound: float
    """The same if they are of one family."""


def estimate_errors(tasks: Mapping[str, BenchmarkTask], catalogue: Catalogue) -> TaskErrors:
    """Estimate the standard errors of scores on each task of a benchmark.

    A score has an error because a task has only so many pairs of sentences. For some tasks errors
    were measured here. For others they are estimated from the number of pairs n: ``kappa``, the
    error of a score (on the scale of Fisher's z), falls with 1 / sqrt(n), so the least measured
    kappa · sqrt(n) is used for them.

    Args:
        tasks: MTEB's name of a task -> the splits and subsets of it that the benchmark takes.
        catalogue: The cards of tasks, which have the numbers of pairs.

    Returns:
        MTEB's name of a task -> its errors.
    """
    # (MTEB's name of a task, split and subset) -> number of pairs.
    counts = count_pairs(catalogue)
    # Our name of a task -> its measured errors. The cards of all these tasks have n.
    columns = read_spread().columns
    least_scaled_kappa = min(
        columns[task].kappa * math.sqrt(catalogue.task(task).splits["test"].n or 0)
        for task in read_spread().tasks
    )
    return {
        task: _estimate_error(task, benchmark_task, counts, least_scaled_kappa)
        for task, benchmark_task in tasks.items()
    }


def _estimate_error(
    task: str, benchmark_task: BenchmarkTask, counts: PairCounts, least_scaled_kappa: float
) -> TaskError:
    """Return how far scores on a task of MTEB may be wrong because it has only so many pairs.

    If the errors of a task of ours with the same pairs were measured, they are returned. Otherwise
    the error of the mean over the task's parts (splits and subsets) is estimated from their numbers
    of pairs.

    Args:
        task: MTEB's name of the task.
        benchmark_task: The splits and subsets (``parts``) that the benchmark takes.
        counts: (task, part) -> number of pairs.
        least_scaled_kappa: The least measured kappa · sqrt(n), for n pairs.

    Returns:
        ``kappa``, the standard error of a score on the scale of Fisher's z, and the correlations
        of the errors of two unlike models, and of two related ones.
    """
    # Our name of a task, or MEAN for the mean of all of them -> the measured errors. ``c`` is the
    # correlation of the errors of two unlike models. They were measured on the splits "test".
    columns = read_spread().columns
    if task in OUR_TASK_BY_MTEB_TASK and benchmark_task.splits == ["test"]:
        column = columns[OUR_TASK_BY_MTEB_TASK[task]]
        return TaskError(column.kappa, column.c, column.c_relatives)
    # ASSUMED_PAIRS is taken for parts whose number of pairs is not known. Errors of parts are
    # taken as independent, so their variances are added.
    variances = [
        least_scaled_kappa**2 / counts.get((task, part), ASSUMED_PAIRS)
        for part in benchmark_task.parts
    ]
    kappa = math.sqrt(sum(variances)) / len(variances)
    # The correlations are those that were measured for the mean of several tasks.
    return TaskError(kappa, columns[MEAN].c, columns[MEAN].c_relatives)


def mean_gap_bound(first: Row, second: Row, *, errors: TaskErrors, are_relatives: bool) -> float:
    """Compute how far two models' mean scores must be apart for a test to call them different.

    The test is two-sided, at the level 5%, and takes the errors of tasks as independent.

    Args:
        first: The row of a model, with a published score of every task.
        second: The row of the other model.
        errors: Task -> how far scores on it may be wrong. ``kappa`` is the standard error of a
            score on the scale of Fisher's z. ``c_relatives`` and ``c_unlike`` are the correlations
            of the errors of two models.
        are_relatives: Whether the two models are of one family, so that their errors are alike.

    Returns:
        The least significant difference, in points: 1.96 (``NORMAL_QUANTILE``) times its error.
    """
    # Of the difference of the two sums over tasks, with scores up to 1.
    variance = 0.0
    for task, error in errors.items():
        c = error.c_relatives if are_relatives else error.c_unlike
        first_score = published_score(first, task)
        second_score = published_score(second, task)
        variance += difference_variance(first_score, second_score, error.kappa, c)
    return 100 * NORMAL_QUANTILE * math.sqrt(variance) / len(errors)


def compare_neighbours(rows: Sequence[Row], errors: TaskErrors) -> list[Neighbours]:
    """Compare each model of a board with the next one, in the order of their averages.

    Args:
        rows: The rows of models with published scores; those without an average are left out.
        errors: Task -> how far scores on it may be wrong.

    Returns:
        For each pair of neighbours, the best first: the difference of their averages, and the least
        difference that is significant in a test at 5%, if their errors correlate as those of unlike
        and as those of related models (two bounds); all in points.
    """
    averaged_rows = [row for row in rows if row.cell(AVERAGE).published]
    averaged_rows.sort(key=lambda row: published_score(row, AVERAGE), reverse=True)
    return [
        Neighbours(
            published_score(first, AVERAGE) - published_score(second, AVERAGE),
            bound=mean_gap_bound(first, second, errors=errors, are_relatives=False),
            relatives_bound=mean_gap_bound(first, second, errors=errors, are_relatives=True),
        )
        for first, second in pairwise(averaged_rows)
    ]


def describe_noise(rows: Sequence[Row], errors: TaskErrors) -> str:
    """Return a note on how many models of a board are too near to the next one for a test to see.

    Args:
        rows: The rows of models with published scores.
        errors: Task -> how far scores on it may be wrong.

    Returns:
        The note; empty if fewer than two rows have an average.
    """
    # For two rows that follow each other: ``gap``, the difference of their averages, and ``bound``,
    # the least difference of unlike models that is significant at 5%, both in points.
    neighbours = compare_neighbours(rows, errors)
    if not neighbours:
        return ""
    n_near = sum(pair.gap < pair.bound for pair in neighbours)
    median_bound = median(pair.bound for pair in neighbours)
    return (
        f"noise: a test on these items sees about {median_bound:.2f} points between the means of "
        f"two unlike models; {n_near} of {len(neighbours)} gaps between neighbours are smaller "
        "(docs/published.md)"
    )


def mark_near_rows(table: Table, errors: TaskErrors) -> Table:
    """Return a board with a symbol behind each number that is too near to the next better one.

    Scores on a task, and averages, are compared with those of the other rows of their group. They
    are too near if a statistical test on the task's pairs could not tell them apart. A note
    explains the symbol.

    Args:
        table: The board of a benchmark, with published scores.
        errors: Task -> how far scores on it may be wrong.
    """
    groups = []
    for group in table.groups:
        for task, error in errors.items():
            # A function of two rows: the least difference of their scores that a test could see.
            find_bound = partial(score_gap_bound, key=task, kappa=error.kappa, c=error.c_unlike)
            # A row's cell gets the bound, and whether the next better number is nearer than it.
            group = mark_gaps(group, task, find_bound)
        find_bound = partial(mean_gap_bound, errors=errors, are_relatives=False)
        groups.append(mark_gaps(group, AVERAGE, find_bound))
    note = (
        f"{UNDETECTABLE} nearer to the next better published score of its group than a test at 5% "
        "on these items can see. Assumed: unlike models, fixed seeds; "
        f"the errors of {read_spread().encoders} encoders that were measured here, and for other "
        "tasks such errors by the number of pairs. No items of these rows are at hand."
    )
    return replace(table, groups=groups, notes=[*table.notes, note])
