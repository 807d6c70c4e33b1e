"""Which differences of neighbouring published scores are too small for a test on their items.

Published scores have no items. The error of a difference is estimated by the errors of encoders
that were measured here: by kappa, the error of a correlation on Fisher's scale, and by c, the
correlation of the errors of two encoders (``benchmarks/spread.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise

import msgspec

from stsbench.boards.published.rows import FOLDER
from stsbench.boards.tables.column_scores import published_protocol
from stsbench.boards.tables.table import AVERAGE, UNDETECTABLE, Group, Row, Table, TableColumn
from stsbench.core.errors import DataError
from stsbench.core.toml import StrictRecord, parse_toml

MEAN = "mean"
"""The column of the mean of the seven tasks."""
NORMAL_QUANTILE = 1.959964
"""The quantile of the normal distribution for a two-sided test at 5%."""


class ColumnSpread(StrictRecord):
    """The errors of scores of one task, or of the mean of all; each is a median."""

    kappa: float
    """The error of a correlation on Fisher's scale, over encoders."""
    kappas: tuple[float, float]
    """The least and the greatest one."""
    c: float
    """The correlation of two encoders' errors, over pairs of encoders of different families."""
    c_range: tuple[float, float]
    """Its quantiles of 10 and 90%."""
    c_relatives: float
    """Its median over pairs of encoders of one family."""
    ratio: tuple[float, float]
    """The bound by kappa and c over that of the test: quantiles of 10 and 90% over pairs of
    different families."""
    pairs: int
    """The number of pairs of different families."""


class MeasuredSpread(StrictRecord):
    """The errors of all columns, as ``benchmarks/spread.py`` has measured them."""

    encoders: int
    families: int
    columns: dict[str, ColumnSpread]
    """By task, and ``MEAN`` for the mean of all of these tasks."""

    @property
    def tasks(self) -> set[str]:
        """The tasks that errors are known of."""
        return self.columns.keys() - {MEAN}


@cache
def read_spread() -> MeasuredSpread:
    """Read the measured errors that come with the package."""
    return msgspec.convert(parse_toml(FOLDER / "spread.toml"), MeasuredSpread)


def detectable_gap(first: float, second: float, kappa: float, c: float) -> float:
    """Compute how far two encoders' scores must be apart for a test to call them different.

    The test is two-sided, at the level 5%. Two numbers describe the errors that scores have because
    a task has only so many pairs: ``kappa`` and ``c``.

    Args:
        first: A correlation, or a mean of correlations, in points.
        second: The same of another encoder.
        kappa: The standard error of a correlation on the scale of Fisher's z.
        c: The correlation of the two encoders' errors, from -1 to 1.

    Returns:
        The least significant difference in points: 1.96 times its standard error.
    """
    # Rounding may make the variance of equal scores slightly negative.
    variance = max(difference_variance(first, second, kappa, c), 0.0)
    return 100 * NORMAL_QUANTILE * math.sqrt(variance)


def difference_variance(first: float, second: float, kappa: float, c: float) -> float:
    """Compute the variance of the difference of two encoders' scores, on the scale up to 1.

    The standard error of a correlation r is ``kappa (1 - r²)``. The variance of a difference is
    the sum of both squared errors, less twice their product times the correlation of the errors.
    Rounding may make it slightly negative for equal scores.

    Args:
        first: A correlation, or a mean of correlations, in points.
        second: The same of another encoder.
        kappa: The standard error of a correlation on the scale of Fisher's z.
        c: The correlation of the two encoders' errors, from -1 to 1.
    """
    first_error = kappa * (1 - (first / 100) ** 2)
    second_error = kappa * (1 - (second / 100) ** 2)
    return (
        first_error * first_error + second_error * second_error - 2 * c * first_error * second_error
    )


def mark_undetectable(table: Table) -> Table:
    """Return the table with each published score marked that is too near to the next better one.

    The cell gets ``is_near``, for which a symbol is printed. A score is too near if a test on the
    task's pairs could not tell the two apart. Scores are compared within their group of rows and
    their column; misprints and rows by another protocol are not. A note explains the symbol and
    what is assumed.

    Raises:
        DataError: The errors of no column have been measured.
    """
    # Key of a column -> ``kappa`` and ``c``, the measured errors of scores on its task, or of the
    # mean of all measured tasks; see detectable_gap. Other columns are missing.
    spread_by_key = {}
    for column in table.columns:
        is_mean = column.key == AVERAGE and is_mean_of_tasks(table)
        # Empty if no errors of such scores were measured.
        spread_name = MEAN if is_mean else _measured_task(column)
        if spread_name:
            spread_by_key[column.key] = read_spread().columns[spread_name]
    if not spread_by_key:
        tasks = ", ".join(sorted(read_spread().tasks))
        raise DataError(
            f"table '{table.name}': what a test could see is known only of Spearman's correlation "
            f"over all subsets on {tasks}, and of their mean"
        )
    groups = list(table.groups)
    for key, spread in spread_by_key.items():
        # A function of two rows: the least difference of their scores that a test could see.
        find_bound = partial(score_gap_bound, key=key, kappa=spread.kappa, c=spread.c)
        groups = [mark_gaps(group, key, find_bound) for group in groups]
    correlations = sorted(spread.c for spread in spread_by_key.values())
    note = (
        f"{UNDETECTABLE} nearer to the next better published score of its group than a test at 5% "
        "on these items can see. Assumed: fixed seeds; "
        f"c = {_format_range(correlations)}, the correlation of the errors of unlike encoders; "
        f"the errors of {read_spread().encoders} encoders that were measured here. "
        "No items of these rows are at hand."
    )
    return replace(table, groups=groups, notes=[*table.notes, note])


def _format_range(values: Sequence[float]) -> str:
    """Return the first and last of sorted values as text; a single number if they are equal."""
    return f"{values[0]:g}" if values[0] == values[-1] else f"{values[0]:g} to {values[-1]:g}"


def _measured_task(column: TableColumn) -> str:
    """Return the task of a column if the errors of such scores were measured; else empty.

    They were measured for Spearman's correlation over all pairs of a test set, on a few tasks.
    """
    spec = column.spec
    if column.kind != "task" or spec is None or spec.task not in read_spread().tasks:
        return ""
    aggregation = published_protocol(spec.protocol).aggregation
    is_measured = (spec.published_split, spec.metric, aggregation) == ("test", "spearman", "all")
    return spec.task if is_measured else ""


def is_mean_of_tasks(table: Table) -> bool:
    """Return whether a table's average is the plain mean of the tasks whose errors were measured.

    It must be over all these tasks and no others. ``table.average_terms`` are lists of column keys:
    the average is the mean over the lists, each with the mean of its columns.
    """
    columns = {column.key: column for column in table.columns}
    # A column of another task has an empty name. There are as many columns as terms if each term is
    # a single column.
    names = [_measured_task(columns[key]) for term in table.average_terms for key in term]
    return len(names) == len(table.average_terms) and {*names} == read_spread().tasks


def comparable_values(group: Group, key: str) -> dict[int, float]:
    """Return the published numbers of a column in a group of rows: index of the row -> value.

    Misprints are omitted, and so are rows by another protocol or metric than the column's: the
    attributes of a row or cell with these are texts, which are empty for all other rows.

    Args:
        group: The rows.
        key: The key of the column.
    """
    values = {}
    for index, row in enumerate(group.rows):
        cell = row.cell(key)
        is_comparable = not (row.other_protocol or row.metric or row.misprint or cell.misprint)
        if cell.published is not None and is_comparable:
            values[index] = cell.published.value
    return values


def published_score(row: Row, key: str) -> float:
    """Return the published number of a row in a column, which it must have, in points."""
    number = row.cells[key].published
    assert number is not None
    return number.value


def score_gap_bound(row: Row, better_row: Row, *, key: str, kappa: float, c: float) -> float:
    """Compute the least difference of two rows' published numbers that a test could see."""
    return detectable_gap(published_score(row, key), published_score(better_row, key), kappa, c)


def mark_gaps(group: Group, key: str, find_bound: Callable[[Row, Row], float]) -> Group:
    """Mark the published numbers of a group of rows that are too near to the next better one.

    The cell of each number gets ``bound``, the least difference from the next better number that a
    test could see, and ``is_near``, whether the difference is below it. The best number, misprints
    and numbers by another protocol get neither.

    Args:
        group: The rows.
        key: The key of the column.
        find_bound: A function that computes the bound, in points, from a row and the row with the
            next better number.
    """
    rows = list(group.rows)
    values = comparable_values(group, key)
    # Indices of rows, the best number first; then each pair of neighbours.
    indices = sorted(values, key=values.__getitem__, reverse=True)
    for better, index in pairwise(indices):
        bound = find_bound(rows[index], rows[better])
        is_near = values[better] - values[index] < bound
        cell = replace(rows[index].cell(key), bound=bound, is_near=is_near)
        rows[index] = replace(rows[index], cells={**rows[index].cells, key: cell})
    return replace(group, rows=rows)
