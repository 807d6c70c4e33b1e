"""A table's intervals of means, kept from one run to the next, and its ranks and letters that tell ties."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from stsbench.boards.tables.columns import expected, results_of, shows_its_score
from stsbench.boards.tables.table import (
    AVERAGE,
    EXACT,
    LETTERS,
    RANKS,
    Number,
    Row,
    Table,
    TableCell,
    TableColumn,
)
from stsbench.core import settings
from stsbench.core.errors import DataError, ProtocolError, StsbenchError
from stsbench.core.files import write_whole
from stsbench.results.folder import NAMED, command_again, lacking_said
from stsbench.results.record import Result
from stsbench.significance.comparison import Effort
from stsbench.significance.means import OnRow, RowStanding, mean_intervals, standings, unwatched

MeansByHash = dict[str, tuple[float, float]]
MOST = 50_000
"""So many are kept, the newest."""


@contextmanager
def known_means() -> Iterator[MeansByHash]:
    """Intervals by a hash of what they were computed from; what is added is kept in the cache folder, if there is one."""
    try:
        file = settings.cache_folder() / "means.json"
    except StsbenchError:
        yield {}
        return
    known = _read(file)
    before = len(known)
    yield known
    if len(known) > before:
        # Another process may have written meanwhile.
        kept = list((_read(file) | known).items())[-MOST:]
        with suppress(StsbenchError):
            write_whole(file, msgspec.json.encode(dict(kept)))


def _read(file: Path) -> MeansByHash:
    try:
        return msgspec.json.decode(file.read_bytes(), type=MeansByHash)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def with_intervals(table: Table, progress: OnRow | None = None) -> Table:
    """The table with the 95% intervals of averages and of means over seeds, and a note on what has none, and why."""
    columns = {column.key: column.wanted for column in table.columns if column.wanted}
    average, keys = _places(table, list(columns)), list(columns)
    cells: dict[int, list[list[Result]]] = {}
    means: dict[int, dict[str, tuple[int, ...]]] = {}
    for row in table.rows():
        mine = [results_of(row.results, one) for one in columns.values()]
        means[id(row)] = _means_of(row, mine, keys, average)
        if needed := {at for tasks in means[id(row)].values() for at in tasks}:
            cells[id(row)] = [cell if at in needed else [] for at, cell in enumerate(mine)]
    # What results call the score that a column takes; nothing where it is their own.
    names = [
        "" if one.fields else ".".join(filter(None, (one.metric, expected(one.protocol)[1])))
        for one in columns.values()
    ]
    wanted = {row: list(set(means[row].values())) for row in cells}
    with known_means() as known:
        found = mean_intervals(cells, wanted, names, known, progress or unwatched)

    def changed(row: Row) -> Row:
        row_cells = dict(row.cells)
        for key, tasks in means[id(row)].items():
            one, ends = row.cell(key), found.intervals.get((id(row), tasks))
            if one.measured and ends:
                row_cells[key] = replace(one, measured=one.measured._replace(interval=(100 * ends[0], 100 * ends[1])))
        return replace(row, cells=row_cells)

    of_rows = {id(one): row.label for row in table.rows() for cell in cells.get(id(row), ()) for one in cell}
    notes = []
    for why, results in (
        ("per-item columns are missing or broken", found.lacking),
        ("the results do not tell which items share a sentence", found.without_texts),
    ):
        if labels := list(dict.fromkeys(of_rows[id(one)] for one in results)):
            more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
            listed = ", ".join(labels[:NAMED]) + more
            notes.append(f"no 95% interval of the mean of {listed}: {why}; run: {command_again(results)}")
    return replace(table.with_rows(changed), measured_notes=[*table.measured_notes, *notes])


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
    found = {}
    for at, key in enumerate(keys):
        number = row.cell(key).measured
        if number and number.deviation is not None and len(cells[at]) > 1:
            found[key] = (at,)
    whole = bool(average) and row.cell(AVERAGE).measured is not None and all(cells[at] for at in average)
    return found | (dict.fromkeys((AVERAGE, EXACT), average) if whole else {})


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
    by_key = {column.key: column.wanted for column in table.columns if not column.mixed}
    wanted = [one for term in table.terms if isinstance(term, str) and (one := by_key.get(term)) is not None]
    if not wanted or len({one.task for one in wanted}) != len(table.terms):
        raise ProtocolError(f"'{table.name}' has no mean to rank by, in which each task counts once")
    rows = {
        place: [[result for result in row.results if shows_its_score(result, one)] for one in wanted]
        for place, row in enumerate(table.rows())
    }
    found = standings({place: cells for place, cells in rows.items() if any(cells)}, effort=effort)
    if not found.rows:
        if not found.lacking:
            raise DataError(f"'{table.name}' has no measured row to rank; 'stsbench run' measures")
        raise DataError(f"{lacking_said(found.lacking)}, which ranks need; run: {command_again(found.lacking)}")
    pairs = f"{found.tests} {'pair' if found.tests == 1 else 'pairs'}"
    notes = [
        "Rank: by the mean; the 95% interval over other items and seeds",
        "Ties: rows that share a letter are not significantly different by the mean "
        f"(paired tests, Holm's correction over {pairs}, level {found.level:g})",
    ]
    labels = [row.label for row in table.rows()]
    if gaps := [labels[place] for place, one in found.rows.items() if len(one.tasks) < len(wanted)]:
        notes.append(
            f"{', '.join(gaps)}: not all tasks can be used; compared with each other row on the tasks that both have, "
            "so that a gap neither lowers nor raises a rank"
        )
    if once := ", ".join(labels[place] for place in found.one_run):
        notes.append(f"{once}: one training seed, so the rank says nothing of the recipe")
    if found.lacking:
        notes.append(f"Rank: {lacking_said(found.lacking)}; run: {command_again(found.lacking)}")
    if found.without_texts:
        tasks = ", ".join(dict.fromkeys(one.task for one in found.without_texts))
        notes.append(
            f"Rank: items of {tasks} are taken as independent, for the results do not tell which share a sentence; "
            f"run: {command_again(found.without_texts)}"
        )
    return replace(with_standings(table, found.rows), measured_notes=[*table.measured_notes, *notes])


def with_standings(table: Table, rows: Mapping[int, RowStanding]) -> Table:
    """The same table with a column of rank intervals, one of letters, and those marked that may be the best.

    ``rows`` says how rows stand, by their place in the table.
    """
    rank = TableColumn(key=RANKS, head="Rank", kind="ranks", better="", points=False, decimals=0)
    columns = [rank, replace(rank, key=LETTERS, head="Ties", kind="letters")]
    places = iter(range(len(table.rows())))
    groups = []
    for group in table.groups:
        standing = [(rows.get(next(places)), row) for row in group.rows]
        if table.is_board and not any(cell.published for row in group.rows for cell in row.cells.values()):
            # A row that lacks a task has no mean, but a rank.
            standing.sort(key=lambda pair: pair[0].rank if pair[0] else len(standing) + 1)
        for at, (one, row) in enumerate(standing):
            if one is not None:
                shown = "–".join(map(str, dict.fromkeys(one.ranks)))
                cells = {
                    RANKS: TableCell(measured=Number(one.rank, interval=one.ranks, text=shown)),
                    LETTERS: TableCell(measured=Number(one.rank, text=one.letters)),
                }
                standing[at] = one, replace(row, cells={**row.cells, **cells}, is_best=one.is_best)
        groups.append(replace(group, rows=[row for _, row in standing]))
    return replace(table, columns=[*table.columns, *columns], groups=groups)
