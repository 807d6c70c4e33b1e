"""A table's column of rank intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stsbench.compare.comparison import Effort
from stsbench.compare.ranks import rank_intervals
from stsbench.errors import ProtocolError
from stsbench.leaderboard.tables.runs import Wanted, shows_its_score
from stsbench.leaderboard.tables.table import RANKS, Number, Row, Table, TableCell, TableColumn

NOTE = "Rank: by the mean; the 95% interval over other items and seeds, of the rows that have one"
RankIntervals = Mapping[int, tuple[int, int]]
"""The interval of a row's rank, by the row's place in the table."""


def rank_table(table: Table, effort: Effort | None = None) -> Table:
    """The table with the rank intervals of all rows that were measured on every averaged task.

    Raises:
        ProtocolError: the table has no mean over single tasks; see also :func:`rank_intervals`.
        DataError: per-item columns are missing or broken.
    """
    wanted = _averaged(table)
    rows = {
        place: [result for result in row.results if any(shows_its_score(result, one) for one in wanted)]
        for place, row in enumerate(table.rows())
        if row.results
    }
    return with_ranks(table, rank_intervals(rows, [one.task for one in wanted], effort=effort))


def _averaged(table: Table) -> list[Wanted]:
    """What the averaged columns take, one task each."""
    by_key = {column.key: column.wanted for column in table.columns if not column.mixed}
    wanted = [one for term in table.terms if isinstance(term, str) and (one := by_key.get(term)) is not None]
    if not wanted or len({one.task for one in wanted}) < len(table.terms):
        raise ProtocolError(f"'{table.name}' has no mean to rank by, in which each task counts once")
    return wanted


def with_ranks(table: Table, ranks: RankIntervals) -> Table:
    """The same table with a column of rank intervals."""
    column = TableColumn(key=RANKS, head="Rank", kind="ranks", better="", points=False, decimals=0)
    places = iter(range(len(table.rows())))
    groups = [
        replace(group, rows=[_with_rank(row, ranks.get(next(places))) for row in group.rows]) for group in table.groups
    ]
    return replace(table, columns=[*table.columns, column], groups=groups, notes=[*table.notes, NOTE])


def _with_rank(row: Row, ends: tuple[int, int] | None) -> Row:
    if ends is None:
        return row
    return replace(row, cells={**row.cells, RANKS: TableCell(measured=Number(ends[0], interval=ends))})
