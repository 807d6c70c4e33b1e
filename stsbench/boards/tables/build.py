"""The tables that somebody asks for by the name of a table or a suite, made of results, published and imported rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from stsbench.boards.exports.mteb import PROTOCOL, Imported, fits, with_imported
from stsbench.boards.published import PublishedRow, misprints, published_row, sources
from stsbench.boards.published.specs import (
    AverageFacts,
    BoardFacts,
    RowFacts,
    TableCard,
    column_facts,
    read_table_card,
    row_facts,
)
from stsbench.boards.tables.columns import Filler, baseline_groups, majority_levels, of_columns, plan
from stsbench.boards.tables.intervals import rank_tables, with_intervals
from stsbench.boards.tables.rows import (
    Added,
    added_groups,
    board_groups,
    clean_groups,
    clean_notes,
    lacks,
    not_shown,
    relabelled,
    rows_of,
    traits_of,
)
from stsbench.boards.tables.table import AVERAGE, DELTA, Group, Number, Row, Show, Table, TableCell, has_lines
from stsbench.core.cards import EncoderCard, Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, ProtocolError, UnknownName
from stsbench.results.comparable import side_by_side
from stsbench.results.folder import verified
from stsbench.results.groups import Runs, gather_runs
from stsbench.results.record import Result, protocol_key
from stsbench.significance.means import OnRow, unwatched


def build_table(name: str, results: Sequence[Result] = (), catalogue: Catalogue | None = None) -> Table:
    """Make the table of a name: published numbers as printed, and beside them what results hold for the same encoders.

    Args:
        name: a table's name, or a TOML file of the user's.
        results: any results; those that fit no cell are left out.
        catalogue: cards of the project and of the user.

    Raises:
        UnknownName: no such table.
        CardError: the table's file is wrong.
        ProtocolError: it would mix protocols without saying so.
    """
    return make_table(name, read_table_card(name), results, catalogue or Catalogue())


def make_table(
    name: str,
    card: TableCard,
    results: Sequence[Result],
    catalogue: Catalogue,
    added: Sequence[Added] = (),
    progress: OnRow = unwatched,
) -> Table:
    """Make a table from its card, with the rows that are added to it; for its errors see :func:`build_table`."""
    filler = Filler(card, plan(card, catalogue), catalogue)
    runs = gather_runs(results, catalogue)
    if card.board is not None:
        groups = relabelled(board_groups(filler, card.board, runs), runs, added)
    else:
        groups = [*_paper_groups(filler, _by_row(runs, catalogue)), *added_groups(filler, runs, added)]
    if card.delta:
        groups = _with_distances(groups, f"{card.paper}/{card.table}/{card.delta.row}", card.delta.column or AVERAGE)
    levels = of_columns(majority_levels(results), {column.key: column.wanted for column in filler.plan.tasks})
    groups += baseline_groups(levels, filler.plan.terms)
    groups += clean_groups(filler, runs) if card.board is not None else ()
    made = Table(
        name=name,
        title=card.title,
        paper=sources().papers[card.paper] if card.board is None else None,
        number=number_of(card),
        columns=filler.plan.columns,
        groups=[group for group in groups if group.rows],
        notes=[*([card.note] if card.note else []), *_superseded(filler, catalogue)],
        measured_notes=list(clean_notes(filler, runs)) if card.board is not None else (),
        terms=filler.plan.terms,
    )
    return with_intervals(made, progress)


def _superseded(filler: Filler, catalogue: Catalogue) -> Iterator[str]:
    """A line on each column whose task has a later version, of which other scores may be."""
    tasks = dict.fromkeys(column.wanted.task for column in filler.plan.tasks if column.wanted is not None)
    # Tables of papers have columns that are no task of ours.
    for card in (catalogue.task(task) for task in tasks if task in catalogue.paths("tasks")):
        if card.superseded_by:
            later = catalogue.task(card.superseded_by)
            yield f"{card.name} is version {card.version}; {later.name} ({card.superseded_by}) replaces it, scores differ"


def number_of(card: TableCard) -> str:
    """A paper's own number for its table, or what it is instead: ``table-e.1`` is Table E.1."""
    word, _, number = card.table.partition("-")
    if not any(map(str.isdigit, number)):
        return card.table.replace("-", " ").capitalize()
    return f"{word.capitalize()} {number.upper()}"


def _by_row(runs: Sequence[Runs], catalogue: Catalogue) -> Mapping[str, list[Runs]]:
    """The runs that measured a published row, by its key: its own encoder's, or those of a card that names it."""
    found: dict[str, list[Runs]] = {}
    for one in runs:
        for key in one.card.published if one.card else []:
            try:
                published_row(key)
            except UnknownName as error:
                raise CardError(f"{catalogue.encoder_path(one.encoder)}: key 'published': {error}") from error
            found.setdefault(key, []).append(one)
    return found


def _paper_groups(filler: Filler, runs: Mapping[str, list[Runs]]) -> Iterator[Group]:
    for group in filler.card.groups:
        rows = [row for facts in row_facts(group) for row in _paper_rows(filler, facts, runs, group.protocol)]
        yield Group(title=group.title, section=group.section, rows=rows)


def _paper_rows(
    filler: Filler, facts: RowFacts, runs: Mapping[str, list[Runs]], protocol_of_group: str | None
) -> Iterator[Row]:
    """A published row with what was measured of it; further states of the encoder follow as rows of their own."""
    source = published_row(f"{filler.card.paper}/{filler.card.table}/{facts.row}")
    label, measured = facts.label or facts.row, runs.get(source.key, [])
    printed = filler.published(source, facts.protocol, metric=facts.metric)
    first = filler.measured(measured[0], facts.protocol) if measured else {}
    row = Row(
        label=label,
        cells=filler.cells(source.key, printed, first),
        encoder=measured[0].encoder if measured else source.encoder,
        key=source.key,
        quoted=sources().papers[source.quoted].name if source.quoted else "",
        otherwise=facts.protocol or "" if facts.protocol != protocol_of_group else "",
        overlap=source.overlap,
        misprint=_misprint_of(source),
        metric=facts.metric,
        traits=traits_of(filler.catalogue, _card_of(filler.catalogue, source, measured), source),
        results=measured[0].results if measured else (),
    )
    yield row
    for other in measured[1:]:
        cells = filler.cells("", {}, filler.measured(other, facts.protocol))
        yield replace(
            row,
            label=f"{label} [{other.mark or other.encoder}]",
            cells=cells,
            key="",
            quoted="",
            misprint="",
            results=other.results,
        )


def _card_of(catalogue: Catalogue, source: PublishedRow, measured: Sequence[Runs]) -> EncoderCard | None:
    if measured:
        return measured[0].card
    return catalogue.encoder(source.encoder) if source.encoder in catalogue.paths("baselines") else None


def _misprint_of(row: PublishedRow) -> str:
    found = misprints().get((row.key, ""))
    return found.reason if found else ""


def _with_distances(groups: Sequence[Group], key: str, column: str) -> list[Group]:
    """The same groups with each row's distance to one row's number in a column."""
    aim = next((row for group in groups for row in group.rows if row.key == key), None)
    if aim is None:
        raise CardError(f"[delta]: 'row' names '{key}', which is not a row of the table")
    return [replace(group, rows=[_with_distance(row, aim, column) for row in group.rows]) for group in groups]


def _with_distance(row: Row, aim: Row, column: str) -> Row:
    ours, theirs = row.cell(column), aim.cell(column)
    # Scores of different protocols have no distance.
    if row is aim or row.otherwise != aim.otherwise:
        return row
    cell = TableCell(
        measured=_distance(ours.measured, theirs.measured), published=_distance(ours.published, theirs.published)
    )
    return replace(row, cells={**row.cells, DELTA: cell})


def _distance(ours: Number | None, theirs: Number | None) -> Number | None:
    return Number(ours.value - theirs.value) if ours and theirs else None


NAMED = ("metric", "aggregation")
"""The fields of a protocol that every title names."""


class SuiteBoard(NamedTuple):
    """The card of one board, and the results that may be in it."""

    card: TableCard
    results: Sequence[Result]


def suite_boards(
    results: Sequence[Result],
    name: str,
    suite: Suite,
    *,
    scored: Mapping[str, str],
    protocol: str | None = None,
    published: bool = False,
) -> list[SuiteBoard]:
    """A board for each protocol; scores of different protocols never meet in one.

    Args:
        results: any results.
        name: the suite's key, by which published averages are known.
        suite: its tasks are the columns.
        scored: each task's scored split; results of others do not count.
        protocol: only the protocols of this name.
        published: whether published rows of the protocol stand beside the measured ones.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        wanted = result.task in suite.tasks and result.split == scored[result.task]
        if wanted and protocol in (None, result.protocol["name"]):
            groups.setdefault(protocol_key(result.protocol), []).append(result)
    protocols = {key: json.loads(key) for key in sorted(groups)}
    return [
        SuiteBoard(suite_card(name, suite, fields, list(protocols.values()), published=published), groups[key])
        for key, fields in protocols.items()
    ]


def suite_card(
    name: str, suite: Suite, protocol: dict[str, Any], others: Sequence[Mapping[str, Any]] = (), *, published: bool
) -> TableCard:
    """The card of a suite's board by one protocol; the title tells it from those of the same name among ``others``."""
    namesakes = [other for other in others if other["name"] == protocol["name"]]
    differing = [key for key in protocol if any(other.get(key) != protocol[key] for other in namesakes)]
    lines = [key for key in dict.fromkeys([*NAMED, *differing]) if key in protocol]
    facts = ", ".join(f"{'' if key in NAMED else f'{key} '}{protocol[key]}" for key in lines)
    return TableCard(
        title=f"{suite.name or name}, protocol {protocol['name']}" + (f" ({facts})" if facts else ""),
        protocol=str(protocol["name"]),
        fields=protocol,
        columns=list(suite.tasks),
        average=AverageFacts(task=name, rounding="never") if suite.average else None,
        board=BoardFacts(published=published),
    )


def suite_table(
    board: SuiteBoard,
    suite: Suite,
    name: str,
    catalogue: Catalogue,
    added: Sequence[Added] = (),
    progress: OnRow = unwatched,
) -> Table:
    """The table of a suite's board; rows that are asked for have the labels that are."""
    return make_table(suite.name or name, board.card, board.results, catalogue, added, progress)


class Made(NamedTuple):
    """Tables, a line for each thing that is left out of them, and what would fill or show more."""

    tables: list[Table]
    left_out: list[str]
    advice: list[str]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What tables are made of."""

    catalogue: Catalogue
    results: Sequence[Result] = ()
    where: Path = Path("results")
    protocol: str | None = None
    """Only a suite's boards by the protocol of this name."""
    show: Show | None = None
    imported: Imported | None = None
    ranks: bool = False
    added: Sequence[Added] = ()
    progress: OnRow = unwatched

    def declared(self, name: str) -> Made:
        """The table of a name, or of a TOML file; see :func:`stsbench.boards.tables.build.build_table`.

        Raises:
            DataError: there would be nothing in it to show.
        """
        card = read_table_card(name)
        held, left_out = self._held([*_tasks_of(card, self.catalogue)])
        table = make_table(name, card, held, self.catalogue, self.added, self.progress)
        advice = self._advice([table]) if self.added else self._not_shown(card, table, held)
        (made,) = self._ranked([table])
        made = with_imported(made, self.imported) if self.imported else made
        if not has_lines(made, self.show):
            raise DataError(
                f"table '{made.name}': nothing to show as '{self.show}', for no result fits it; "
                "'stsbench run' measures, --show published prints what papers have"
            )
        return Made([made], [*left_out, *self._of_imported()], advice)

    def boards(self, name: str) -> Made:
        """A suite's boards: one for each protocol that its tasks were scored by, and one for imported rows.

        Raises:
            UnknownName: no such suite. DataError: there would be nothing to show.
            ProtocolError: ranks are asked for, and the suite has no mean to rank by.
        """
        suite = find_suite(name, self.catalogue)
        if self.ranks and not suite.average:
            whole = [one for one, other in self.catalogue.suites().items() if other.average]
            raise ProtocolError(f"suite '{name}' has no mean to rank by", hint=f"suites with one: {', '.join(whole)}")
        held, left_out = self._held(suite.tasks)
        boards = suite_boards(
            held,
            name,
            suite,
            scored={task: self.catalogue.task(task).score_split for task in suite.tasks},
            protocol=self.protocol,
            published=self.show not in (None, "measured"),
        )
        made = [suite_table(board, suite, name, self.catalogue, self.added, self.progress) for board in boards]
        advice = self._advice(made)
        if self.imported and not any(fits(table.columns) for table in made):
            empty = SuiteBoard(suite_card(name, suite, PROTOCOL, published=False), [])
            made.append(suite_table(empty, suite, name, self.catalogue))
        tables = [
            with_imported(one, self.imported) if self.imported and fits(one.columns) else one
            for one in self._ranked(made)
        ]
        tables = [table for table in tables if has_lines(table, self.show)]
        if not tables:
            by = f" by protocol '{self.protocol}'" if self.protocol else ""
            raise DataError(
                f"{self.where}: no results for suite '{name}'{by}; run: stsbench run --tasks {name}{self._others()}"
            )
        return Made(tables, [*left_out, *self._of_imported()], advice)

    def _others(self) -> str:
        """What else the results are of, as it is asked for."""
        held = self.likely_suite()
        return f"; the results here are of others: --suite {held} shows some" if held and not self.protocol else ""

    def likely_suite(self) -> str:
        """The first suite that the results have a task of, else one of their tasks."""
        tasks = {result.task for result in self.results}
        suites = (name for name, suite in self.catalogue.suites().items() if tasks & {*suite.tasks})
        return next(suites, min(tasks, default=""))

    def _advice(self, tables: Sequence[Table]) -> list[str]:
        """What the added rows of tables lack.

        Raises:
            DataError: no result of an encoder that is added fits a column.
        """
        lines: list[str] = []
        for one in self.added:
            rows = [(row, table) for table in tables for row in rows_of(table, one) if row.is_measured]
            if not rows:
                empty = Row(label=one.label or one.name, cells={}, encoder=one.results[0].encoder)
                why = [line for table in tables[:1] for line in lacks(empty, table, self.catalogue, self._given())]
                raise DataError(f"--add {one.name}: no result of it fits the table; {'; '.join(why)}")
            lines += [line for row, table in rows for line in lacks(row, table, self.catalogue, self._given())]
        return lines

    def _given(self) -> str:
        """The folder of results as a command names it; nothing where it is the usual one."""
        return "" if self.where == Path("results") else str(self.where)

    def _not_shown(self, card: TableCard, table: Table, results: Sequence[Result]) -> list[str]:
        """A line on results without a row; a board has a row for each, and published numbers need none."""
        if table.is_board or self.show == "published":
            return []
        filler = Filler(card, plan(card, self.catalogue), self.catalogue)
        return list(filter(None, [not_shown(table, filler, gather_runs(results, self.catalogue))]))

    def _ranked(self, tables: Sequence[Table]) -> list[Table]:
        """The tables, with the ranks of their rows where they are asked for."""
        return rank_tables(tables) if self.ranks else list(tables)

    def _held(self, tasks: Sequence[str]) -> tuple[list[Result], list[str]]:
        """The results of some tasks that may stand side by side, and what is left out; ranks need their per-item columns."""
        mine, left_out = side_by_side((result for result in self.results if result.task in tasks), self.catalogue)
        if not self.ranks:
            return mine, left_out
        held = verified(mine, keep=True)
        return held.results, [*left_out, *(problem.line for problem in held.problems)]

    def _of_imported(self) -> Sequence[str]:
        return self.imported.problems if self.imported else ()


def _tasks_of(card: TableCard, catalogue: Catalogue) -> Iterator[str]:
    """The tasks whose scores are in a table's columns, those of other tables' averages among them."""
    for column in plan(card, catalogue).tasks:
        if column.key in {facts.average_of for facts in column_facts(card)}:
            yield from _tasks_of(read_table_card(column.key), catalogue)
        elif column.wanted is not None:
            yield column.wanted.task


def find_suite(name: str, catalogue: Catalogue) -> Suite:
    """The suite of this name, or a task as a suite of one; raises UnknownName."""
    suites, tasks = catalogue.suites(), catalogue.paths("tasks")
    if name in tasks and name not in suites:
        return Suite(name=catalogue.task(name).name, tasks=[name], average=False)
    if name not in suites:
        hint = "'stsbench list suites' and 'list tasks' show them; cards of your own need --cards DIR"
        raise UnknownName("suite", name, [*suites, *tasks], hint=hint)
    return suites[name]
