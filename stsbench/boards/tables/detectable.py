"""Which differences of neighbouring published scores are too small for a test on their items.

Published scores have no items. The error of a difference is estimated by the errors of encoders
that were measured here: by kappa, the error of a correlation on Fisher's scale, and by c, the
correlation of the errors of two encoders (``benchmarks/spread.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

import msgspec

from stsbench.boards.published.rows import FOLDER
from stsbench.boards.tables.column_scores import published_protocol
from stsbench.boards.tables.table import AVERAGE, UNDETECTABLE, Group, Table, TableColumn
from stsbench.core.errors import DataError
from stsbench.core.toml import StrictRecord, parse_toml

MEAN = "mean"
"""The column of the mean of the seven tasks."""
Z = 1.959964
"""The quantile of the normal distribution for a two-sided test at 5%."""


class ColumnSpread(StrictRecord, frozen=True, kw_only=True):
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


class MeasuredSpread(StrictRecord, frozen=True, kw_only=True):
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
    """Compute the least difference of two scores that a two-sided test at 5% calls significant.

    Args:
        first: A correlation, or a mean of some, in points.
        second: That of another encoder.
        kappa: The error of a correlation on Fisher's scale.
        c: The correlation of the two encoders' errors.

    Returns:
        The difference in points: 1.96 sqrt(a² + b² - 2 c a b), with a = kappa (1 - first²) and b
        the same for the second score.
    """
    a, b = (kappa * (1 - (score / 100) ** 2) for score in (first, second))
    return 100 * Z * math.sqrt(max(a * a + b * b - 2 * c * a * b, 0.0))


def mark_undetectable(table: Table) -> Table:
    """Mark each published score that is too near to the next better one of its group.

    Rows that are scored otherwise and misprints are not compared.

    Raises:
        DataError: The errors of no column have been measured.
    """
    spread_by_key = {
        column.key: read_spread().columns[name]
        for column in table.columns
        if (name := _spread_name(table, column))
    }
    if not spread_by_key:
        tasks = ", ".join(sorted(read_spread().tasks))
        raise DataError(
            f"table '{table.name}': what a test could see is known only of Spearman's correlation "
            f"over all subsets on {tasks}, and of their mean"
        )
    groups = []
    for group in table.groups:
        rows = list(group.rows)
        for key, spread in spread_by_key.items():
            gaps = _gaps_to_next_better(group, key)
            for index, (value, better) in gaps.items():
                bound = detectable_gap(value, better, spread.kappa, spread.c)
                cell = replace(rows[index].cell(key), bound=bound, is_near=better - value < bound)
                rows[index] = replace(rows[index], cells={**rows[index].cells, key: cell})
        groups.append(replace(group, rows=rows))
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
    return f"{values[0]:g}" if values[0] == values[-1] else f"{values[0]:g} to {values[-1]:g}"


def _spread_name(table: Table, column: TableColumn) -> str:
    """Return the key of a column among the measured errors; empty if they are not known."""
    spec = column.spec
    if column.key == AVERAGE and is_mean_of_tasks(table):
        return MEAN
    is_task = column.kind == "task" and spec is not None and spec.task in read_spread().tasks
    return spec.task if spec is not None and is_task and _is_known(column) else ""


def _is_known(column: TableColumn) -> bool:
    """Return whether a column's scores are of the protocol whose errors are known."""
    spec = column.spec
    if spec is None or spec.published_split != "test" or spec.metric != "spearman":
        return False
    return published_protocol(spec.protocol).aggregation == "all"


def is_mean_of_tasks(table: Table) -> bool:
    """Return whether a table's average is the mean of all tasks whose errors are known."""
    columns = {column.key: column for column in table.columns}
    averaged = [columns[key] for term in table.average_terms for key in term]
    tasks = [column.spec.task for column in averaged if column.spec and _is_known(column)]
    has_single_terms = all(len(term) == 1 for term in table.average_terms)
    return has_single_terms and len(averaged) == len(tasks) and {*tasks} == read_spread().tasks


def mean_values(group: Group) -> Iterator[float]:
    """Yield the published averages of a group's rows that may be compared."""
    yield from _comparable_values(group, AVERAGE).values()


def _comparable_values(group: Group, key: str) -> dict[int, float]:
    """Return the published numbers of a column that may be compared, by the index of the row."""
    values = {}
    for index, row in enumerate(group.rows):
        cell = row.cell(key)
        is_comparable = not (row.other_protocol or row.metric or row.misprint or cell.misprint)
        if cell.published is not None and is_comparable and not row.imported:
            values[index] = cell.published.value
    return values


def _gaps_to_next_better(group: Group, key: str) -> Mapping[int, tuple[float, float]]:
    """Return each number with the next better one, by the index of the row; the best has none."""
    ordered = sorted(_comparable_values(group, key).items(), key=lambda pair: -pair[1])
    return {
        index: (value, better)
        for (_, better), (index, value) in zip(ordered, ordered[1:], strict=False)
    }
