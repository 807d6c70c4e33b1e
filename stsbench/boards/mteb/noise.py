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
    Z,
    difference_variance,
    mark_gaps,
    published_score,
    read_spread,
    score_gap_bound,
)
from stsbench.boards.tables.table import AVERAGE, UNDETECTABLE, Row, Table
from stsbench.core.catalogue import Catalogue
from stsbench.data.mteb.facts import BenchmarkTask, PairCounts, count_pairs

MEASURED_AS = {
    "STS12": "sts12",
    "STS13": "sts13",
    "STS14": "sts14",
    "STS15": "sts15",
    "STS16": "sts16",
    "STSBenchmark": "stsb",
}
"""Tasks of ours with the same pairs, whose errors were measured, by tasks of MTEB's."""
LARGEST_TASK = 10_000
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
    """Estimate how far scores on each task of a benchmark may be wrong.

    Args:
        tasks: The subsets and splits of each task, by MTEB's name of the task.
        catalogue: The cards, which have the numbers of pairs.
    """
    counts = count_pairs(catalogue)
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
    """Return the measured error of a task; without one, estimate that of the mean of its parts.

    Args:
        task: MTEB's name of the task.
        benchmark_task: The subsets and splits that the benchmark takes.
        counts: The number of pairs of each part.
        least_scaled_kappa: The least of the measured kappa · sqrt(n).
    """
    columns = read_spread().columns
    if task in MEASURED_AS and benchmark_task.splits == ["test"]:
        column = columns[MEASURED_AS[task]]
        return TaskError(column.kappa, column.c, column.c_relatives)
    variances = [
        least_scaled_kappa**2 / counts.get((task, part), LARGEST_TASK)
        for part in benchmark_task.parts
    ]
    kappa = math.sqrt(sum(variances)) / len(variances)
    return TaskError(kappa, columns[MEAN].c, columns[MEAN].c_relatives)


def mean_gap_bound(first: Row, second: Row, *, errors: TaskErrors, are_relatives: bool) -> float:
    """Compute the least difference of two means that a two-sided test at 5% calls significant.

    Args:
        first: A row with a published score of every task.
        second: Another such row.
        errors: The errors of the tasks.
        are_relatives: Take the correlation of the errors of two models of one family.

    Returns:
        The difference in points, if the errors of tasks are independent.
    """
    variance = 0.0
    for task, error in errors.items():
        c = error.c_relatives if are_relatives else error.c_unlike
        first_score = published_score(first, task)
        second_score = published_score(second, task)
        variance += difference_variance(first_score, second_score, error.kappa, c)
    return 100 * Z * math.sqrt(variance) / len(errors)


def compare_neighbours(rows: Sequence[Row], errors: TaskErrors) -> list[Neighbours]:
    """Return the gaps between neighbours among the rows that have a mean, best first.

    Args:
        rows: The rows of a group of published scores.
        errors: The errors of all tasks of the board.
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
    """Return how many neighbours are nearer than a test could see; empty without neighbours."""
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
    """Return a board with each published number marked that is too near to the next better one.

    Scores of tasks and means are compared within their group. A note explains the mark.

    Args:
        table: A board of a benchmark.
        errors: The errors of its tasks.
    """
    groups = []
    for group in table.groups:
        for task, error in errors.items():
            find_bound = partial(score_gap_bound, key=task, kappa=error.kappa, c=error.c_unlike)
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
