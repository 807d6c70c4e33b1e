"""A table's columns of rank intervals and of letters, which tell what cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stsbench.compare.comparison import Effort
from stsbench.compare.ties import RowStanding, Standings, standings
from stsbench.errors import DataError, ProtocolError
from stsbench.leaderboard.tables.intervals import averaged, cells_of
from stsbench.leaderboard.tables.runs import Wanted
from stsbench.leaderboard.tables.table import LETTERS, RANKS, Number, Row, Table, TableCell, TableColumn
from stsbench.results.again import command_again, lacking_said

RANK_NOTE = "Rank: by the mean; the 95% interval over other items and seeds"
RowStandings = Mapping[int, RowStanding]
"""How a row stands, by its place in the table."""


def rank_tables(tables: Sequence[Table]) -> list[Table]:
    """The tables with the ranks of their rows; a note says why one of several has none.

    Raises:
        ProtocolError: a table has no mean over single tasks. DataError: none can have any ranks.
    """
    ranked, refused = [], []
    for table in tables:
        try:
            ranked.append(rank_table(table))
        except DataError as error:
            refused.append(error)
            ranked.append(replace(table, measured_notes=[*table.measured_notes, f"Rank: {error}"]))
    if refused and len(refused) == len(tables):
        raise refused[0]
    return ranked


def rank_table(table: Table, effort: Effort | None = None) -> Table:
    """The table with the rank intervals and letters of all rows that were measured on averaged tasks.

    Raises:
        ProtocolError: the table has no mean over single tasks; see also :func:`standings`.
        DataError: nothing can be ranked: no row is measured, or per-item columns are missing or broken.
    """
    wanted = averaged(table)
    if not wanted:
        raise ProtocolError(f"'{table.name}' has no mean to rank by, in which each task counts once")
    rows = {place: cells_of(row, wanted) for place, row in enumerate(table.rows()) if row.results}
    rows = {place: cells for place, cells in rows.items() if any(cells)}
    found = standings(rows, effort=effort)
    if not found.rows:
        if not found.lacking:
            raise DataError(f"'{table.name}' has no measured row to rank; 'stsbench run' measures")
        raise DataError(f"{lacking_said(found.lacking)}, which ranks need; run: {command_again(found.lacking)}")
    return replace(
        with_standings(table, found.rows), measured_notes=[*table.measured_notes, *_notes(table, found, wanted)]
    )


def with_standings(table: Table, rows: RowStandings) -> Table:
    """The same table with a column of rank intervals, one of letters, and those marked that may be the best."""
    columns = [
        TableColumn(key=RANKS, head="Rank", kind="ranks", better="", points=False, decimals=0),
        TableColumn(key=LETTERS, head="Ties", kind="letters", better="", points=False, decimals=0),
    ]
    places = iter(range(len(table.rows())))
    groups = []
    for group in table.groups:
        standing = [(rows.get(next(places)), row) for row in group.rows]
        if table.is_board and not any(row.is_published for row in group.rows):
            # A row that lacks a task has no mean, but a rank.
            standing.sort(key=lambda pair: pair[0].rank if pair[0] else len(standing) + 1)
        groups.append(replace(group, rows=[_with_standing(row, one) for one, row in standing]))
    return replace(table, columns=[*table.columns, *columns], groups=groups)


def _with_standing(row: Row, one: RowStanding | None) -> Row:
    if one is None:
        return row
    low, high = one.ranks
    shown = str(low) if low == high else f"{low}–{high}"
    cells = {
        RANKS: TableCell(measured=Number(one.rank, interval=one.ranks, text=shown)),
        LETTERS: TableCell(measured=Number(one.rank, text=one.letters)),
    }
    return replace(row, cells={**row.cells, **cells}, is_best=one.is_best)


def _notes(table: Table, found: Standings[int], wanted: list[Wanted]) -> Iterator[str]:
    yield RANK_NOTE
    pairs = f"{found.tests} {'pair' if found.tests == 1 else 'pairs'}"
    yield (
        "Ties: rows that share a letter are not significantly different by the mean "
        f"(paired tests, Holm's correction over {pairs}, level {found.level:g})"
    )
    labels = [row.label for row in table.rows()]
    gaps = [labels[place] for place, one in found.rows.items() if len(one.tasks) < len(wanted)]
    if gaps:
        yield (
            f"{', '.join(gaps)}: not all tasks can be used; compared with each other row on the tasks that both have, "
            "so that a gap neither lowers nor raises a rank"
        )
    if found.lacking:
        yield f"Rank: {lacking_said(found.lacking)}; run: {command_again(found.lacking)}"
    if found.untold:
        tasks = ", ".join(dict.fromkeys(one.task for one in found.untold))
        yield (
            f"Rank: items of {tasks} are taken as independent, for the results do not tell which share a sentence; "
            f"run: {command_again(found.untold)}"
        )
