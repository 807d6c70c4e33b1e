"""The intervals of a table's measured means: of averages, and of scores over several seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from stsbench.compare.means import OnRow, mean_intervals, unwatched
from stsbench.leaderboard.tables.known_means import known_means
from stsbench.leaderboard.tables.runs import Wanted, results_of, shows_its_score, wanted_score
from stsbench.leaderboard.tables.table import AVERAGE, EXACT, Row, Table
from stsbench.results.again import NAMED, command_again
from stsbench.results.record import Result

LACKING, UNTOLD = "per-item columns are missing or broken", "the results do not tell which items share a sentence"
"""Why means have no interval."""


def averaged(table: Table) -> list[Wanted]:
    """What the columns of a table's mean take, where each task counts once and is scored as the others; else nothing."""
    by_key = {column.key: column.wanted for column in table.columns if not column.mixed}
    wanted = [one for term in table.terms if isinstance(term, str) and (one := by_key.get(term)) is not None]
    return wanted if len({one.task for one in wanted}) == len(table.terms) else []


def cells_of(row: Row, wanted: Sequence[Wanted]) -> list[list[Result]]:
    """A row's results whose own score the columns take, column by column."""
    return [[result for result in row.results if shows_its_score(result, one)] for one in wanted]


def with_intervals(table: Table, progress: OnRow = unwatched) -> Table:
    """The table with the 95% intervals of averages and of means over seeds, and a note on what has none, and why."""
    columns = {column.key: column.wanted for column in table.columns if column.wanted}
    average = _places(table, list(columns))
    rows: dict[int, list[list[Result]]] = {}
    means: dict[int, dict[str, tuple[int, ...]]] = {}
    for place, row in enumerate(table.rows()):
        cells = [results_of(row.results, one) for one in columns.values()]
        means[place] = _means_of(row, cells, list(columns), average)
        needed = {at for tasks in means[place].values() for at in tasks}
        if needed:
            rows[place] = [cell if at in needed else [] for at, cell in enumerate(cells)]
    names = list(map(wanted_score, columns.values()))
    with known_means() as known:
        found = mean_intervals(
            rows, {place: list(set(means[place].values())) for place in rows}, names, known, progress
        )
    places = iter(range(len(means)))
    groups = [
        replace(group, rows=[_with_ends(row, at := next(places), means[at], found.intervals) for row in group.rows])
        for group in table.groups
    ]
    labels = [row.label for row in table.rows()]
    of_rows = {id(one): labels[place] for place, cells in rows.items() for cell in cells for one in cell}
    notes = [
        _note(list(dict.fromkeys(of_rows[id(one)] for one in results)), why, results)
        for why, results in ((LACKING, found.lacking), (UNTOLD, found.untold))
        if results
    ]
    return replace(table, groups=groups, measured_notes=[*table.measured_notes, *notes])


def _places(table: Table, keys: Sequence[str]) -> tuple[int, ...]:
    """The columns, by place, that a table's mean is over, each as often as it counts; nothing where one is no task's."""
    terms = [[term] if isinstance(term, str) else list(term) for term in table.terms]
    if not all(set(term) <= set(keys) for term in terms):
        return ()
    whole = math.lcm(*map(len, terms))
    return tuple(keys.index(key) for term in terms for key in term for _ in range(whole // len(term)))


def _means_of(
    row: Row, cells: Sequence[Sequence[Result]], keys: Sequence[str], average: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    """The columns of a row that hold means, and the tasks, by place, that each is over."""
    numbers = [row.cell(key).measured for key in keys]
    over_seeds = {
        key: (at,)
        for at, (key, number) in enumerate(zip(keys, numbers, strict=True))
        if number and number.deviation is not None and len(cells[at]) > 1
    }
    whole = bool(average) and row.cell(AVERAGE).measured is not None and all(cells[at] for at in average)
    return over_seeds | (dict.fromkeys((AVERAGE, EXACT), average) if whole else {})


def _note(labels: Sequence[str], why: str, results: Sequence[Result]) -> str:
    more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
    return f"no 95% interval of the mean of {', '.join(labels[:NAMED])}{more}: {why}; run: {command_again(results)}"


def _with_ends(
    row: Row,
    place: int,
    means: Mapping[str, tuple[int, ...]],
    intervals: Mapping[tuple[int, tuple[int, ...]], tuple[float, float]],
) -> Row:
    """A row with the intervals of its means, in points."""
    cells = dict(row.cells)
    for key, tasks in means.items():
        measured, ends = row.cell(key).measured, intervals.get((place, tasks))
        if measured and ends:
            cells[key] = replace(row.cell(key), measured=measured._replace(interval=(100 * ends[0], 100 * ends[1])))
    return replace(row, cells=cells)
