"""A table's intervals of means, kept from one run to the next, and its ranks and letters that tell ties."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from stsbench.boards.tables.columns import results_of, shows_its_score, wanted_score
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
    Wanted,
)
from stsbench.core import settings
from stsbench.core.errors import DataError, ProtocolError, StsbenchError
from stsbench.core.files import write_whole
from stsbench.results.folder import NAMED, command_again, lacking_said
from stsbench.results.record import Result
from stsbench.significance.comparison import Effort
from stsbench.significance.means import OnRow, RowStanding, Standings, mean_intervals, standings, unwatched

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


LACKING, WITHOUT_TEXTS = (
    "per-item columns are missing or broken",
    "the results do not tell which items share a sentence",
)
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
        for why, results in ((LACKING, found.lacking), (WITHOUT_TEXTS, found.without_texts))
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
    if found.one_run:
        once = ", ".join(labels[place] for place in found.one_run)
        yield f"{once}: one training seed, so the rank says nothing of the recipe"
    if found.lacking:
        yield f"Rank: {lacking_said(found.lacking)}; run: {command_again(found.lacking)}"
    if found.without_texts:
        tasks = ", ".join(dict.fromkeys(one.task for one in found.without_texts))
        yield (
            f"Rank: items of {tasks} are taken as independent, for the results do not tell which share a sentence; "
            f"run: {command_again(found.without_texts)}"
        )
