"""The intervals of a table's measured means: of averages, and of scores over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stsbench.compare.means import mean_intervals
from stsbench.leaderboard.tables.runs import Wanted, shows_its_score
from stsbench.leaderboard.tables.table import AVERAGE, EXACT, Number, Row, Table, TableCell
from stsbench.results.again import NAMED, command_again
from stsbench.results.record import Result


def averaged(table: Table) -> list[Wanted]:
    """What the columns of a table's mean take, where each task counts once and is scored as the others; else nothing."""
    by_key = {column.key: column.wanted for column in table.columns if not column.mixed}
    wanted = [one for term in table.terms if isinstance(term, str) and (one := by_key.get(term)) is not None]
    return wanted if len({one.task for one in wanted}) == len(table.terms) else []


def cells_of(row: Row, wanted: Sequence[Wanted]) -> list[list[Result]]:
    """A row's results whose own score the columns take, column by column."""
    return [[result for result in row.results if shows_its_score(result, one)] for one in wanted]


def with_intervals(table: Table) -> Table:
    """The table with the 95% intervals of averages and of means over seeds, and a note on what has none, and why."""
    of_average = averaged(table)
    columns = {column.key: column.wanted for column in table.columns if column.wanted and not column.mixed}
    keys, wanted = list(columns), list(columns.values())
    average = tuple(wanted.index(one) for one in of_average)
    rows: dict[int, list[list[Result]]] = {}
    means: dict[int, list[tuple[int, ...]]] = {}
    for place, row in enumerate(table.rows()):
        cells = cells_of(row, wanted)
        several = [(at,) for at, key in enumerate(keys) if len(cells[at]) > 1 and _has_seeds(row.cell(key).measured)]
        whole = [average] if average and row.cell(AVERAGE).measured and all(cells[at] for at in average) else []
        needed = {at for tasks in (*several, *whole) for at in tasks}
        if needed:
            rows[place] = [cell if at in needed else [] for at, cell in enumerate(cells)]
            means[place] = [*several, *whole]
    found = mean_intervals(rows, means)
    ends = {
        place: {
            key: found.intervals.get((place, tasks)) for tasks in means[place] for key in _keys(tasks, average, keys)
        }
        for place in rows
    }
    of_rows = {id(one): place for place, cells in rows.items() for cell in cells for one in cell}
    labels = [row.label for row in table.rows()]
    notes = [
        _note([labels[at] for at in dict.fromkeys(of_rows[id(one)] for one in results)], why, results)
        for why, results in (("hold no per-item columns", found.lacking), ("do not tell which items share a sentence", found.untold))
        if results
    ]  # fmt: skip
    places = iter(range(len(labels)))
    groups = [
        replace(group, rows=[_with_ends(row, ends.get(next(places), {})) for row in group.rows])
        for group in table.groups
    ]
    return replace(table, groups=groups, measured_notes=[*table.measured_notes, *notes])


def _has_seeds(number: Number | None) -> bool:
    return number is not None and number.deviation is not None


def _keys(tasks: tuple[int, ...], average: tuple[int, ...], keys: Sequence[str]) -> list[str]:
    """The columns that a mean over tasks stands in."""
    return [AVERAGE, EXACT] if tasks == average else [keys[at] for at in tasks]


def _note(labels: Sequence[str], why: str, results: Sequence[Result]) -> str:
    more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
    return (
        f"no 95% interval of the mean of {', '.join(labels[:NAMED])}{more}: the results {why}; "
        f"run: {command_again(results)}"
    )


def _with_ends(row: Row, ends: Mapping[str, tuple[float, float] | None]) -> Row:
    cells = {key: _with_interval(row.cell(key), found) for key, found in ends.items() if found is not None}
    return replace(row, cells={**row.cells, **cells})


def _with_interval(cell: TableCell, ends: tuple[float, float]) -> TableCell:
    measured = cell.measured and cell.measured._replace(interval=(100 * ends[0], 100 * ends[1]))
    return replace(cell, measured=measured)
