"""The tables that somebody asks for by the name of a table or a suite: of results, published and imported rows; intervals, ranks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.boards.published.rows import (
    AverageFacts,
    BoardFacts,
    TableCard,
    read_table_card,
    sources,
)
from stsbench.boards.tables.columns import (
    MTEB_PROTOCOL,
    TableFiller,
    fits_column,
    is_scored_as_mteb,
    published_protocol,
    select_column_results,
)
from stsbench.boards.tables.rows import (
    AddedRow,
    all_groups,
    describe_clean_scores,
    describe_gaps,
    describe_hidden,
)
from stsbench.boards.tables.table import (
    AVERAGE,
    DELTA,
    EXACT,
    OVERLAP_SYMBOLS,
    Row,
    Show,
    Table,
    TableCell,
    add_standings,
    subtract,
)
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, ProtocolError, UnknownName
from stsbench.core.files import cached_values
from stsbench.core.wording import format_some
from stsbench.results.folder import describe_missing_columns, format_rerun_command
from stsbench.results.groups import group_by_encoder, select_comparable
from stsbench.results.record import Result, protocol_key

if TYPE_CHECKING:
    from stsbench.boards.exports.mteb import ImportedScores
    from stsbench.significance.comparison import TestSettings
    from stsbench.significance.means import ProgressCallback


def build_table(
    name: str,
    results: Sequence[Result] = (),
    catalogue: Catalogue | None = None,
    card: TableCard | None = None,
    added: Sequence[AddedRow] = (),
    progress: ProgressCallback | None = None,
) -> Table:
    """Make the table of a name, of a TOML file, or of a card; published numbers as printed, beside them what results hold.

    Results that fit no cell are left out; encoders that are ``added`` have rows whether or not the card names them.

    Raises:
        UnknownName: no such table.
        CardError: the table's file is wrong.
        ProtocolError: it would mix protocols without saying so.
    """
    card, catalogue = card or read_table_card(name), catalogue or Catalogue()
    filler = TableFiller.from_card(card, catalogue)
    runs = group_by_encoder(results, catalogue)
    notes = [card.note] if card.note else []
    # Tables of papers have columns that are no task of ours.
    for task in {
        column.spec.task: None for column in filler.task_columns if column.spec is not None
    }:
        if task in catalogue.paths("tasks") and (old := catalogue.task(task)).superseded_by:
            later = catalogue.task(old.superseded_by)
            notes.append(
                f"{old.name} is version {old.version}; {later.name} ({old.superseded_by}) replaces it, scores differ"
            )
    groups = all_groups(filler, results, runs, added)
    measured_notes = list(describe_clean_scores(filler, runs)) if card.board else []
    rows = [row for group in groups for row in group.rows]
    if (
        not filler.has_sts_tests
        and any(row.source for row in rows)
        and any(row.overlap in OVERLAP_SYMBOLS for row in rows)
    ):
        marks = " and ".join(OVERLAP_SYMBOLS.values())
        measured_notes.append(
            f"{marks} are on measured rows alone: for published rows, only the overlap with tests of STS is known"
        )
    made = Table(
        name=name,
        title=card.title,
        paper=None if card.board else sources().papers[card.paper],
        paper_number=format_table_number(card),
        columns=filler.columns,
        groups=groups,
        notes=notes,
        measured_notes=measured_notes,
        terms=filler.terms,
    )
    if card.delta:
        made = _with_distances(
            made, f"{card.paper}/{card.table}/{card.delta.row}", card.delta.column or AVERAGE
        )
    if not results:
        return made

    return add_intervals(made, progress)


def format_table_number(card: TableCard) -> str:
    """A paper's own number for its table, or what it is instead: ``table-e.1`` is Table E.1."""
    word, _, number = card.table.partition("-")
    if not any(map(str.isdigit, number)):
        return card.table.replace("-", " ").capitalize()
    return f"{word.capitalize()} {number.upper()}"


def _with_distances(table: Table, key: str, column: str) -> Table:
    aim = next((row for row in table.rows() if row.published_key == key), None)
    if aim is None:
        raise CardError(f"[delta]: 'row' names '{key}', which is not a row of the table")
    theirs = aim.cell(column)

    def changed(row: Row) -> Row:
        # Scores of different protocols have no distance.
        if row is aim or row.is_baseline or row.other_protocol != aim.other_protocol:
            return row
        ours = row.cell(column)
        cell = TableCell(
            measured=subtract(ours.measured, theirs.measured),
            published=subtract(ours.published, theirs.published),
        )
        return replace(row, cells={**row.cells, DELTA: cell})

    return table.map_rows(changed)


TITLE_FIELDS = ("metric", "aggregation")
"""The fields of a protocol that every title names."""


class TableSet(NamedTuple):
    """Tables, a line for each thing that is left out of them, and what would fill or show more."""

    tables: list[Table]
    omitted: list[str]
    advice: list[str]


@dataclass(frozen=True, kw_only=True)
class TableRequest:
    """What tables are made of; of a suite's boards only those by ``protocol``."""

    catalogue: Catalogue
    results: Sequence[Result] = ()
    results_folder: Path = Path("results")
    protocol: str | None = None
    show: Show | None = None
    imported: ImportedScores | None = None
    ranks: bool = False
    added: Sequence[AddedRow] = ()
    progress: ProgressCallback | None = None
    select_trusted: Callable[[Iterable[Result]], Iterable[Result]] = list
    """Selects the believed ones of the results that a table is made of; all, if they are already."""

    def make_table(self, name: str) -> TableSet:
        """The table of a name, or of a TOML file; see :func:`build_table`.

        Raises:
            DataError: there would be nothing in it to show.
        """
        card = read_table_card(name)
        filler = TableFiller.from_card(card, self.catalogue)
        held, left_out = self._of_tasks(filler.all_tasks())
        table = build_table(name, held, self.catalogue, card, self.added, self.progress)
        unseen = ""
        # A board has a row for each result, and published numbers need none.
        if held and not self.added and not table.is_board and self.show != "published":
            unseen = describe_hidden(table, filler, group_by_encoder(held, self.catalogue))
        why = (
            f"table '{table.name}': nothing to show as '{self.show}', for no result fits it; "
            "'stsbench run' measures, --show published prints what papers have"
        )
        return self._made([table], left_out, why, unseen)

    def make_boards(self, name: str) -> TableSet:
        """A suite's boards: one for each protocol that its tasks were scored by, and one for imported rows.

        Raises:
            UnknownName: no such suite. DataError: there would be nothing to show.
            ProtocolError: ranks are asked for, and the suite has no mean to rank by.
        """
        suite = find_suite(name, self.catalogue)
        if self.ranks and not suite.average:
            whole = [one for one, other in self.catalogue.suites().items() if other.average]
            raise ProtocolError(
                f"suite '{name}' has no mean to rank by",
                hint=f"suites with one: {', '.join(whole)}",
            )
        held, left_out = self._of_tasks(suite.tasks)
        scored = {task: self.catalogue.task(task).score_split for task in suite.tasks}
        made = replace(self, results=held).make_suite_boards(name, suite, scored)
        if self.imported and not any(is_scored_as_mteb(table.columns) for table in made):
            card = _suite_card(name, suite, MTEB_PROTOCOL, [], BoardFacts(published=False))
            made.append(build_table(suite.name or name, [], self.catalogue, card))
        held_of = "" if self.protocol else self.guess_suite()
        by = f" by protocol '{self.protocol}'" if self.protocol else ""
        others = (
            f"; the results here are of others: --suite {held_of} shows some" if held_of else ""
        )
        why = f"{self.results_folder}: no results for suite '{name}'{by}; run: stsbench run --tasks {name}{others}"
        return self._made(made, left_out, why)

    def make_suite_boards(self, name: str, suite: Suite, scored: Mapping[str, str]) -> list[Table]:
        """A board for each protocol, or those of one name; scores of different protocols never meet in one.

        ``name`` is the suite's key, by which published averages are known; ``scored`` each task's scored split: results of others
        do not count. Where published numbers are shown, the published rows of the protocol stand beside the measured ones.
        """
        groups: dict[str, list[Result]] = {}
        for result in self.results:
            wanted = result.task in suite.tasks and result.split == scored[result.task]
            if wanted and self.protocol in (None, result.protocol["name"]):
                groups.setdefault(protocol_key(result.protocol), []).append(result)
        ways = {key: json.loads(key) for key in sorted(groups)}
        board = BoardFacts(published=self.show not in (None, "measured"))
        made = []
        for key, one in ways.items():
            card = _suite_card(name, suite, one, ways.values(), board)
            made.append(
                build_table(
                    suite.name or name, groups[key], self.catalogue, card, self.added, self.progress
                )
            )
        return made

    def _made(
        self, tables: list[Table], left_out: list[str], why: str, unseen: str = ""
    ) -> TableSet:
        advice = [*self._advice(tables), *filter(None, [unseen])]
        if self.ranks:
            tables = rank_tables(tables)
        if self.imported:
            from stsbench.boards.exports.mteb import add_imported_rows

            # A table asked for by name is refused where it does not fit.
            imported, alone = self.imported, len(tables) == 1
            tables = [
                add_imported_rows(one, imported) if alone or is_scored_as_mteb(one.columns) else one
                for one in tables
            ]
            left_out = [*left_out, *imported.problems]
        tables = [table for table in tables if table.has_numbers(self.show)]
        if not tables:
            raise DataError(why)
        return TableSet(tables, left_out, advice)

    def guess_suite(self) -> str:
        """The first suite that the results have a task of, else one of their tasks."""
        tasks = {result.task for result in self.results}
        suites = (name for name, suite in self.catalogue.suites().items() if tasks & {*suite.tasks})
        return next(suites, min(tasks, default=""))

    def _advice(self, tables: Sequence[Table]) -> list[str]:
        """What the added rows of tables lack; raises DataError where no result of an encoder that is added fits a column."""
        lines: list[str] = []
        where = "" if self.results_folder == Path("results") else str(self.results_folder)
        every = [
            (row, table)
            for table in tables
            for row in table.rows()
            if row.is_added and row.is_measured
        ]
        for one in self.added:
            rows = [(row, table) for row, table in every if one.has_any_of(row.results)]
            if not rows:
                empty = Row(label=one.label or one.name, cells={}, encoder=one.results[0].encoder)
                why = [
                    line
                    for table in tables[:1]
                    for line in describe_gaps(empty, table, self.catalogue, where)
                ]
                raise DataError(
                    f"--add {one.name}: no result of it fits the table; {'; '.join(why)}"
                )
            lines += [
                line
                for row, table in rows
                for line in describe_gaps(row, table, self.catalogue, where)
            ]
        return lines

    def _of_tasks(self, tasks: Iterable[str]) -> tuple[list[Result], list[str]]:
        tasks = set(tasks)
        results = self.select_trusted(result for result in self.results if result.task in tasks)
        return select_comparable(results, self.catalogue)


def _suite_card(
    name: str,
    suite: Suite,
    protocol: dict[str, Any],
    others: Iterable[Mapping[str, Any]],
    board: BoardFacts,
) -> TableCard:
    """The card of a suite's board by one protocol; the title tells it from those of the same name among ``others``."""
    namesakes = [other for other in others if other["name"] == protocol["name"]]
    differing = [
        key for key in protocol if any(other.get(key) != protocol[key] for other in namesakes)
    ]
    lines = [key for key in dict.fromkeys([*TITLE_FIELDS, *differing]) if key in protocol]
    facts = ", ".join(f"{'' if key in TITLE_FIELDS else f'{key} '}{protocol[key]}" for key in lines)
    return TableCard(
        title=f"{suite.name or name}, protocol {protocol['name']}"
        + (f" ({facts})" if facts else ""),
        protocol=str(protocol["name"]),
        fields=protocol,
        columns=list(suite.tasks),
        average=AverageFacts(task=name, rounding="never") if suite.average else None,
        board=board,
    )


def find_suite(name: str, catalogue: Catalogue) -> Suite:
    """The suite of this name, or a task as a suite of one; raises UnknownName."""
    suites, tasks = catalogue.suites(), catalogue.paths("tasks")
    if name in tasks and name not in suites:
        return Suite(name=catalogue.task(name).name, tasks=[name], average=False)
    if name not in suites:
        hint = (
            "'stsbench list suites' and 'list tasks' show them; cards of your own need --cards DIR"
        )
        raise UnknownName("suite", name, [*suites, *tasks], hint=hint)
    return suites[name]


def add_intervals(table: Table, progress: ProgressCallback | None = None) -> Table:
    """The table with the 95% intervals of averages and of means over seeds, and a note on what has none, and why."""
    columns = {column.key: column.spec for column in table.columns if column.spec}
    keys = list(columns)
    average = _places(table, keys)
    # What results call the score that a column takes; nothing where it is their own.
    names = [
        ""
        if one.protocol_fields
        else ".".join(filter(None, (one.metric, published_protocol(one.protocol).aggregation)))
        for one in columns.values()
    ]
    asked = []
    for row in table.rows():
        cells = [select_column_results(row.results, one) for one in columns.values()]
        if means := _means_of(row, cells, keys, average):
            asked.append((row, means, cells))
    if not asked:
        return table
    # What computes intervals and ranks is imported where something is measured.
    from stsbench.significance.means import compute_mean_intervals

    made: dict[int, Row] = {}
    lacking, silent = list[tuple[str, Result]](), list[tuple[str, Result]]()
    with cached_values("means.json", dict[str, tuple[float, float]]) as known:
        for done, (row, means, cells) in enumerate(asked, start=1):
            found = compute_mean_intervals(cells, set(means.values()), names, known)
            lacking += [(row.label, one) for one in found.results_without_columns]
            silent += [(row.label, one) for one in found.results_without_sentences]
            shown = dict(row.cells)
            for key, ends in ((key, found.intervals.get(tasks)) for key, tasks in means.items()):
                if ends and (number := shown[key].measured):
                    number = number._replace(interval=(100 * ends[0], 100 * ends[1]))
                    shown[key] = replace(shown[key], measured=number)
            made[id(row)] = replace(row, cells=shown)
            if progress:
                progress(done, len(asked))
    notes = [
        f"no 95% interval of the mean of {format_some(list(dict.fromkeys(label for label, _ in rows)))}: {why}; "
        f"run: {format_rerun_command([one for _, one in rows])}"
        for why, rows in (
            ("per-item columns are missing or broken", lacking),
            ("the results do not tell which items share a sentence", silent),
        )
        if rows
    ]
    made_table = table.map_rows(lambda row: made.get(id(row), row))
    return replace(made_table, measured_notes=[*table.measured_notes, *notes])


def _places(table: Table, keys: Sequence[str]) -> tuple[int, ...]:
    """The columns, by place, that a table's mean is over, each as often as it counts; nothing where one is no task's."""
    if not all(set(term) <= set(keys) for term in table.terms):
        return ()
    whole = math.lcm(*map(len, table.terms))
    return tuple(
        keys.index(key) for term in table.terms for key in term for _ in range(whole // len(term))
    )


def _means_of(
    row: Row, cells: Sequence[Sequence[Result]], keys: Sequence[str], average: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    found = {}
    for at, key in enumerate(keys):
        number = row.cell(key).measured
        if number and number.deviation is not None and len(cells[at]) > 1:
            found[key] = (at,)
    whole = (
        bool(average)
        and row.cell(AVERAGE).measured is not None
        and all(cells[at] for at in average)
    )
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


def rank_table(table: Table, effort: TestSettings | None = None) -> Table:
    """The table with the rank intervals and letters of all rows that were measured on averaged tasks.

    Raises:
        ProtocolError: the table has no mean over single tasks; see also :func:`standings`.
        DataError: nothing can be ranked: no row is measured, or per-item columns are missing or broken.
    """
    by_key = {column.key: column.spec for column in table.columns if not column.is_mixed}
    wanted = [
        one for term in table.terms if len(term) == 1 and (one := by_key.get(term[0])) is not None
    ]
    if not wanted or len({one.task for one in wanted}) != len(table.terms):
        raise ProtocolError(
            f"'{table.name}' has no mean to rank by, in which each task counts once"
        )
    rows = {
        place: [[result for result in row.results if fits_column(result, one)] for one in wanted]
        for place, row in enumerate(table.rows())
    }
    from stsbench.significance.means import rank_rows

    found = rank_rows({place: cells for place, cells in rows.items() if any(cells)}, effort=effort)
    if not found.rows:
        if not found.results_without_columns:
            raise DataError(f"'{table.name}' has no measured row to rank; 'stsbench run' measures")
        raise DataError(
            f"{describe_missing_columns(found.results_without_columns)}, which ranks need; run: {format_rerun_command(found.results_without_columns)}"
        )
    labels = [row.label for row in table.rows()]
    lacking_notes = []
    if found.results_without_columns:
        lacking_notes = [
            f"Rank: {describe_missing_columns(found.results_without_columns)}; run: {format_rerun_command(found.results_without_columns)}"
        ]
    if len(found.rows) == 1:
        (place,) = found.rows
        alone = f"no ranks: they are among the rows measured here, and '{labels[place]}' is the only one to rank"
        return replace(table, measured_notes=[*table.measured_notes, alone, *lacking_notes])
    pairs = f"{found.tests} {'pair' if found.tests == 1 else 'pairs'}"
    notes = [
        "Rank: by the mean, among the rows measured here; the 95% interval over other items and seeds",
        "Ties: rows that share a letter are not significantly different by the mean "
        f"(paired tests, Holm's correction over {pairs}, level {found.level:g})",
    ]
    if gaps := [labels[place] for place, one in found.rows.items() if len(one.tasks) < len(wanted)]:
        notes.append(
            f"{', '.join(gaps)}: not all tasks can be used; compared with each other row on the tasks that both have, "
            "so that a gap neither lowers nor raises a rank"
        )
    if once := ", ".join(labels[place] for place in found.single_seed_rows):
        notes.append(f"{once}: one training seed, so the rank says nothing of the recipe")
    notes += lacking_notes
    if found.results_without_sentences:
        tasks = ", ".join(dict.fromkeys(one.task for one in found.results_without_sentences))
        notes.append(
            f"Rank: items of {tasks} are taken as independent, for the results do not tell which share a sentence; "
            f"run: {format_rerun_command(found.results_without_sentences)}"
        )
    return replace(add_standings(table, found.rows), measured_notes=[*table.measured_notes, *notes])
