"""The tables that a user requests: a declared table, or a suite's boards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.boards.published.rows import (
    AverageFacts,
    BoardFacts,
    TableCard,
    list_tables,
    read_table_card,
)
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.column_scores import MTEB_PROTOCOL, is_scored_as_mteb
from stsbench.boards.tables.columns import TableFiller
from stsbench.boards.tables.detectable import mark_undetectable
from stsbench.boards.tables.filters import RowFilter
from stsbench.boards.tables.rows import AddedRow, describe_gaps, describe_hidden
from stsbench.boards.tables.table import Row, Show, Table
from stsbench.boards.tables.uncertainty import rank_tables
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, ProtocolError, Remedy, StsbenchError, UnknownName
from stsbench.core.grouping import group_by
from stsbench.core.names import split_names
from stsbench.core.wording import format_some
from stsbench.data.task import DEFAULT_SUITE, expand_names
from stsbench.data.task_names import find_task_or_suite_ids, known_names
from stsbench.results.groups import ComparableResults, group_by_encoder, select_comparable
from stsbench.results.record import Result, protocol_key
from stsbench.results.signature import protocol_part

if TYPE_CHECKING:
    from stsbench.boards.mteb.scores import MtebResults
    from stsbench.significance.rows import ProgressCallback

DEFAULT_FOLDER = Path("results")
TITLE_FIELDS = ("metric", "aggregation")
"""The fields of a protocol that every title names."""


class TableSet(NamedTuple):
    """The tables of a request, and notices on them."""

    tables: list[Table]
    omitted: list[str]
    """A notice on each thing that the tables omit."""
    advice: list[DataError | str]
    """Notices on what would fill columns or show more rows."""


@dataclass(frozen=True, kw_only=True)
class TableRequest:
    """The content of the tables that a user wants to see."""

    catalogue: Catalogue
    results: Sequence[Result] = ()
    results_folder: Path = DEFAULT_FOLDER
    protocol: str | None = None
    """The protocol of a suite's boards; None for a board for each protocol."""
    show: Show | None = None
    imported: MtebResults | None = None
    """The results of a user's files of MTEB's."""
    mean_intervals: bool = True
    """Compute 95% intervals of means over seeds and tasks."""
    ranks: bool = False
    detectable: bool = False
    """Mark published scores of a table that are too near to the next better one."""
    row_filter: RowFilter = RowFilter()
    added: Sequence[AddedRow] = ()
    reference: AddedRow | None = None
    """The encoder that other rows are tested against; None for no tests."""
    progress: ProgressCallback | None = None
    select_trusted: Callable[[Iterable[Result]], Iterable[Result]] = list
    """Selects the results whose scores their items make; all, if they were checked before."""

    def make_table(self, name: str) -> TableSet:
        """Make the table that a user requests by its name, from the results that fit it.

        ``self`` holds the user's choices: ``show``, the kinds of numbers to show; ``added``, the
        encoders to add as rows; and others.

        Args:
            name: The name of a table, or the path of its TOML file.

        Raises:
            DataError: The table has no number to show.
            UnknownName, CardError, ProtocolError: As :func:`build_table` raises them.
        """
        card = read_table_card(name)
        filler = TableFiller.from_card(card, self.catalogue)
        # Results on its tasks that are trusted and may share a table; ``omitted`` are notices on
        # the others.
        selected = self._select_results(filler.all_tasks())
        results = selected.results
        table = self._build_table(name, results, card)
        advice = []
        # A board of ours has a row for each measured encoder; a paper's table may lack some. The
        # user gets a notice on these, unless he adds rows or wants published numbers only.
        may_lack_encoders = not table.is_board and not self.added and self.show != "published"
        if results and may_lack_encoders:
            hidden = describe_hidden(table, filler, group_by_encoder(results, self.catalogue))
            if hidden:
                advice.append(hidden)
        # Raised only if the table turns out to have no number to show.
        no_number = DataError(
            f"table '{table.name}': nothing to show as '{self.show}', for no result fits it",
            hint="`show=published` prints what papers have",
            remedy=Remedy("score"),
        )
        return self._complete_tables([table], selected.omitted, no_number, advice=advice)

    def make_boards(self, name: str) -> TableSet:
        """Make the boards of a suite, a list of tasks: one table for each protocol of its results.

        ``self.imported`` are results of a user's files of the benchmark MTEB, or None. They join a
        board that is scored as MTEB scores; if there is none, they get a board of their own.
        ``self.show`` are the kinds of numbers to show, and ``self.ranks`` is whether rows are to be
        ranked.

        Args:
            name: The name of the suite, or of a task, or a comma list of tasks.

        Raises:
            UnknownName: There is no such suite.
            DataError: The boards have no number to show.
            ProtocolError: Ranks are requested, and the suite has no mean to rank by.
        """
        name = find_suite_id(name, self.catalogue)
        suite = find_suite(name, self.catalogue)
        if self.ranks and not suite.average:
            suites_with_mean = [
                key for key, candidate in self.catalogue.suites().items() if candidate.average
            ]
            raise ProtocolError(
                f"suite '{name}' has no mean to rank by",
                hint=f"suites with one: {format_some(suites_with_mean)}; for tasks of your own, "
                "write a suite in suites.toml beside their cards; on one task, compare the "
                "encoders with each other",
            )
        # Results on its tasks that may share a table; ``omitted`` are notices on the others.
        selected = self._select_results(suite.tasks)
        if is_mteb_board(suite, self.show, has_imported=bool(self.imported)):
            return self._make_mteb_board(name, suite, selected)
        split_by_task = {task: self.catalogue.task(task).score_split for task in suite.tasks}
        request = replace(self, results=selected.results)
        boards = request.make_suite_boards(name, suite, split_by_task)
        if self.imported and not any(is_scored_as_mteb(board.columns) for board in boards):
            card = _make_board_card(
                name, suite, MTEB_PROTOCOL, all_protocols=[], board=BoardFacts(published=False)
            )
            # It is empty until imported rows are added.
            boards.append(
                build_table(suite.name or name, results=[], catalogue=self.catalogue, card=card)
            )
        # Without results there is no board of a suite, but a table of ours may have its name.
        if self.show == "published" and not boards and name in list_tables():
            return self.make_table(name)
        # This adds the imported rows to the boards, too.
        return self._complete_tables(boards, selected.omitted, self._no_results_error(name))

    def _make_mteb_board(self, name: str, suite: Suite, selected: ComparableResults) -> TableSet:
        """Make the board of a benchmark of MTEB's, with MTEB's public results on it.

        ``self.imported`` are results of a user's files of MTEB, or None. Public results are left
        out if ``self.show``, the kinds of numbers to show, is None.

        Args:
            name: The key of the suite.
            suite: The suite of its tasks, which names the benchmark.
            selected: Results on its tasks that were measured here, and notices on omitted ones.

        Raises:
            DataError: The board has no number to show.
            StsbenchError: The user asks for what such a board does not have.
        """
        requested = {
            "ranks": self.ranks,
            "add": self.added,
            "significance_against": self.reference,
        }
        for parameter in filter(requested.get, requested):
            raise StsbenchError(
                f"`{parameter}` has no effect on a board with MTEB's scores; leave it out"
            )
        from stsbench.boards.mteb.board import MtebBoard
        from stsbench.boards.mteb.noise import estimate_errors, mark_near_rows

        board = MtebBoard(benchmark=suite.mteb, catalogue=self.catalogue)
        table = board.build(
            name,
            suite.name,
            [
                result
                for result in selected.results
                if self.protocol in (None, result.protocol["name"])
            ],
            self.imported.results if self.imported else (),
            has_public=self.show is not None,
        )
        problems = self.imported.problems if self.imported else ()
        if not table.has_numbers(self.show):
            kind = "public" if self.show else "measured or imported"
            raise DataError(f"there are no {kind} results of suite '{name}'")
        tables = self._filter_rows([table])
        if self.detectable:
            # Scores nearer to the next better one than a test on the items can see are marked. The
            # errors of a task were measured here, or are estimated from its number of pairs.
            errors = estimate_errors(board.tasks, self.catalogue)
            tables = [mark_near_rows(table, errors) for table in tables]
        return TableSet(tables, [*selected.omitted, *problems], advice=[])

    def _filter_rows(self, tables: Sequence[Table]) -> list[Table]:
        """Return the tables with the rows only that fit the user's filter (``self.row_filter``).

        Tables without a row are omitted.

        Raises:
            DataError: No row is chosen.
        """
        # Groups without a row are omitted by the filter.
        filtered_tables = [
            self.row_filter.apply(table, self.show, self.results) for table in tables
        ]
        tables_with_rows = [table for table in filtered_tables if table.groups]
        if not tables_with_rows:
            # The filter has added the last note, on how many rows do not fit.
            notes = [table.notes[-1] for table in filtered_tables]
            # An AdvisingNote has these attributes; most notes have no remedy.
            reasons = [getattr(note, "reason", note) for note in notes]
            remedy = getattr(notes[0], "remedy", None)
            hint = ""
            if self.row_filter.max_parameters is not None:
                hint = "the key 'parameters' of an encoder's card is its number of parameters"
            raise DataError(
                f"no row fits: {'; '.join(dict.fromkeys(reasons))}", hint=hint, remedy=remedy
            )
        return tables_with_rows

    def _no_results_error(self, suite_name: str) -> DataError:
        """Return the error for a user who requests the board of a suite without results.

        ``self.protocol`` is the protocol that the user asks for, or None. ``self.show`` is
        ``published`` if only numbers of papers are to be shown.
        """
        if self.show == "published":
            return self._no_published_error(suite_name)
        with_protocol = f" by protocol '{self.protocol}'" if self.protocol else ""
        other_suite = "" if self.protocol else self.guess_suite()
        hint = f"the results here are of others: `suite={other_suite}` shows some"
        return DataError(
            f"{self.results_folder}: no results for suite '{suite_name}'{with_protocol}",
            hint=hint if other_suite else "",
            remedy=Remedy("score", {"tasks": suite_name}),
        )

    def _no_published_error(self, suite_name: str) -> DataError:
        """Return the error for a user who requests published scores of a suite that has none.

        Its hint names suites of MTEB's benchmarks with some of the same tasks, which have some.
        """
        tasks = {*find_suite(suite_name, self.catalogue).tasks}
        related = [
            f"`suite={key}`"
            for key, suite in self.catalogue.suites().items()
            if suite.mteb and tasks & {*suite.tasks}
        ]
        hint = f"MTEB's benchmarks with some of its tasks have them: {format_some(related)}"
        return DataError(
            f"no published scores of suite '{suite_name}' come with the package",
            hint=hint if related else "",
            remedy=None if related else Remedy("list", {"kind": "tables"}),
        )

    def make_suite_boards(
        self, name: str, suite: Suite, split_by_task: Mapping[str, str]
    ) -> list[Table]:
        """Make a board for each protocol (way of scoring) of the results; no board mixes protocols.

        If the user asks for published numbers (``self.show``), the published rows of a protocol are
        on its board too.

        Args:
            name: The key of the suite, by which published averages are found.
            suite: The suite, a list of tasks.
            split_by_task: Task -> split of its data that is shown.

        Returns:
            The boards; empty if no result is of the suite, these splits and the requested protocol.
        """
        suite_results = [
            result
            for result in self.results
            if result.task in suite.tasks
            and result.split == split_by_task[result.task]
            and self.protocol in (None, result.protocol["name"])
        ]
        # By the part of the protocol that is equal if and only if scores are comparable.
        results_by_protocol = group_by(suite_results, lambda result: protocol_part(result.protocol))
        # In the order of the protocols' fields as text.
        groups = sorted(
            results_by_protocol.values(), key=lambda results: protocol_key(results[0].protocol)
        )
        protocols = [results[0].protocol for results in groups]
        # By default a suite's boards show measured rows only.
        board_facts = BoardFacts(published=self.show not in (None, "measured"))
        boards = []
        for results, protocol in zip(groups, protocols, strict=True):
            card = _make_board_card(
                name, suite, protocol, all_protocols=protocols, board=board_facts
            )
            boards.append(self._build_table(suite.name or name, results, card))
        return boards

    def _build_table(self, name: str, results: Sequence[Result], card: TableCard) -> Table:
        """Build a table or board by its card, with the rows that the user adds.

        Args:
            name: The name that messages call it by.
            results: The results that it may show.
            card: Its rows and columns.
        """
        return build_table(
            name,
            results,
            self.catalogue,
            card,
            self.added,
            self.progress,
            mean_intervals=self.mean_intervals,
        )

    def _complete_tables(
        self,
        tables: list[Table],
        omitted: list[str],
        no_number: DataError,
        advice: Sequence[str] = (),
    ) -> TableSet:
        """Change tables as the user requests: ranks, imported rows, filters and marks.

        Tables without a number to show are dropped. Attributes of ``self`` are the user's requests.

        Args:
            tables: The tables.
            omitted: Notices on what the tables omit; the problems of imported files are added.
            no_number: The error to raise if no table has a number to show.
            advice: Notices on what would show more rows. Those on columns that added rows have no
                number for are put before them.

        Raises:
            DataError: No table has a number to show, no result of an added encoder fits a table, or
                no row can be ranked or marked.
        """
        all_advice: list[DataError | str] = [*self._advise(tables), *advice]
        # Two columns are added: the ranks that each row may have, and letters of tied rows.
        tables = rank_tables(tables, self.progress) if self.ranks else list(tables)
        if self.imported:
            from stsbench.boards.mteb.board import add_imported_rows

            # If imported rows do not fit a table, it stays as it is; but if it is the only table,
            # add_imported_rows raises an error.
            is_single = len(tables) == 1
            for index, table in enumerate(tables):
                if is_single or is_scored_as_mteb(table.columns):
                    tables[index] = add_imported_rows(table, self.imported.results, self.catalogue)
            omitted = [*omitted, *self.imported.problems]
        tables = [table for table in tables if table.has_numbers(self.show)]
        if not tables:
            raise no_number
        tables = self._filter_rows(tables)
        if self.detectable:
            tables = list(map(mark_undetectable, tables))
        if self.reference is not None:
            # Here, because the module imports numpy, which takes long.
            from stsbench.boards.tables.significant import mark_significant

            shown_tasks = {
                column.spec.task for table in tables for column in table.columns if column.spec
            }
            # The results whose scores are what their values per item give.
            trusted = self.select_trusted(
                result for result in self.reference.results if result.task in shown_tasks
            )
            tables = mark_significant(tables, self.reference._replace(results=list(trusted)))
        return TableSet(tables, omitted, all_advice)

    def guess_suite(self) -> str:
        """Guess from the results (``self.results``) which suite a user may want to see.

        Returns:
            The key of the first suite that the results have a task of. If there is none, a comma
            list of all tasks of the results, which is empty if there are no results.
        """
        tasks = {result.task for result in self.results}
        for name, suite in self.catalogue.suites().items():
            if tasks & {*suite.tasks}:
                return name
        return ",".join(sorted(tasks))

    def own_tasks_beside(self, name: str) -> str:
        """Return the user's own tasks that the results have, and that a board does not show.

        Args:
            name: The suite of the board, or its comma list of tasks.

        Returns:
            A comma list of tasks; empty if there are none.
        """
        tasks = _own_tasks({result.task for result in self.results}, self.catalogue)
        return ",".join(sorted(tasks - {*find_suite(name, self.catalogue).tasks}))

    def _advise(self, tables: Sequence[Table]) -> list[DataError]:
        """Return notices on columns in which the user's added rows (``self.added``) have no number.

        Raises:
            DataError: No result of an added encoder fits a column.
        """
        advice: list[DataError] = []
        # Notices name the results folder only if it is not the default one.
        folder = "" if self.results_folder == DEFAULT_FOLDER else str(self.results_folder)
        for added in self.added:
            gaps_by_row = [
                describe_gaps(row, table, self.catalogue, folder)
                for table in tables
                for row in table.rows()
                if row.is_added and row.is_measured and added.has_any_of(row.results)
            ]
            if not gaps_by_row:
                raise self._no_fitting_result(added, tables, folder)
            advice += chain(*gaps_by_row)
        return advice

    def _no_fitting_result(
        self, added: AddedRow, tables: Sequence[Table], results_folder: str
    ) -> DataError:
        """Return the error for a user who adds an encoder to tables that no result of it fits.

        Args:
            added: The encoder, with its results.
            tables: The tables. The message names the columns of the first one that could be filled.
            results_folder: The results folder, for the message.
        """
        message = f"`add={added.name}`: no result of it fits the table"
        if not tables:
            return DataError(message)
        empty_row = Row(label=added.label or added.name, cells={}, encoder=added.results[0].encoder)
        gaps = list(describe_gaps(empty_row, tables[0], self.catalogue, results_folder))
        return DataError(
            "; ".join([message, *(gap.problem for gap in gaps)]),
            remedy=gaps[0].remedy if gaps else None,
        )

    def _select_results(self, tasks: Iterable[str]) -> ComparableResults:
        """Return the results of some tasks that are trusted and may share a table."""
        tasks = set(tasks)
        results = self.select_trusted(result for result in self.results if result.task in tasks)
        return select_comparable(results, self.catalogue)


def _make_board_card(
    name: str,
    suite: Suite,
    protocol: dict[str, Any],
    all_protocols: Iterable[Mapping[str, Any]],
    board: BoardFacts,
) -> TableCard:
    """Make the card of a board: a table of a suite's tasks, scored by one protocol.

    If other protocols have the same name, the title has the fields that distinguish it from them.

    Args:
        name: The name of the suite; published scores have its average under this name.
        suite: The suite, whose tasks are the columns.
        protocol: The fields of the protocol, the way of scoring.
        all_protocols: The fields of all protocols that have a board.
        board: What the board shows.
    """
    namesakes = [namesake for namesake in all_protocols if namesake["name"] == protocol["name"]]
    differing_fields = [
        key for key in protocol if any(namesake.get(key) != protocol[key] for namesake in namesakes)
    ]
    # Metric and aggregation, which stand in every title by their value alone, then the others.
    title_fields = dict.fromkeys([*TITLE_FIELDS, *differing_fields])
    details = ", ".join(
        str(protocol[key]) if key in TITLE_FIELDS else f"{key} {protocol[key]}"
        for key in title_fields
        if key in protocol
    )
    title = f"{suite.name or name}, protocol {protocol['name']}"
    return TableCard(
        title=f"{title} ({details})" if details else title,
        protocol=str(protocol["name"]),
        fields=protocol,
        columns=list(suite.tasks),
        average=AverageFacts(task=name, rounding="never") if suite.average else None,
        board=board,
    )


def is_mteb_board(suite: Suite, show: Show | None, *, has_imported: bool) -> bool:
    """Return whether the board of a suite shows a benchmark of MTEB, with MTEB's own scores.

    It does if the suite is such a benchmark, and the user asks for published numbers, which are
    MTEB's public results, or has files of MTEB's and asks for no kind of numbers.

    Args:
        suite: The suite; ``suite.mteb`` is the name of the benchmark, or empty.
        show: The kinds of numbers to show; None if the user does not say.
        has_imported: Whether the user has result files of MTEB's to show.
    """
    has_mteb_rows = show in ("published", "both", "merged") or (show is None and has_imported)
    return bool(suite.mteb) and has_mteb_rows


def find_suite_id(name: str, catalogue: Catalogue) -> str:
    """Return the id of the suite or task that a user has named, in upper or lower case.

    For a comma list of names the result is a comma list of ids.

    Raises:
        UnknownName: There is no such suite or task, or the name stands for several tasks.
    """
    names = split_names(name)
    if len(names) > 1:
        return ",".join(find_suite_id(single_name, catalogue) for single_name in names)
    # Empty if there is none; several for a name of MTEB's that several tasks of ours share.
    ids = find_task_or_suite_ids(name, catalogue)
    if len(ids) == 1:
        return ids[0]
    raise UnknownName(
        "suite",
        name,
        known_names(catalogue),
        hint="cards of your own need `catalogue=stsbench.Catalogue(DIR)`",
        remedy=Remedy("list", {"kind": "suites"}),
    )


def needs_own_results(
    table: str | None,
    suite: str | None,
    catalogue: Catalogue,
    show: Show | None,
    *,
    has_imported: bool,
    detectable: bool,
) -> bool:
    """Return whether a requested table is empty without results that were measured here.

    A paper's table needs none, nor does a board that shows published numbers or files of MTEB's.
    The name of the table or suite is checked first.

    Args:
        table: The name or file of a table; None for the boards of a suite.
        suite: The name of the suite; None for the default one.
        catalogue: The cards of suites and tasks.
        show: The kinds of numbers to show; None if the user does not say.
        has_imported: Whether there are files of MTEB's to show.
        detectable: Whether to mark published scores that are too near to the next better one.

    Raises:
        UnknownName: There is no such table, suite or task.
        StsbenchError: The boards have no published scores to mark.
    """
    if table is not None:
        read_table_card(table)
        return False
    requested_suite = find_suite(suite or DEFAULT_SUITE, catalogue)
    # A suite of MTEB's shows MTEB's columns if published numbers or files of MTEB's are shown.
    has_mteb_columns = is_mteb_board(requested_suite, show, has_imported=has_imported)
    if detectable and not has_mteb_columns:
        raise StsbenchError(
            "`detectable` has no effect without `table`, or a suite of MTEB's with "
            "`show=published`; leave it out"
        )
    return not (has_mteb_columns or has_imported or show == "published")


def find_suite(name: str, catalogue: Catalogue) -> Suite:
    """Return the suite, a list of tasks, that a user has named.

    Args:
        name: The name of a suite. The name of a task, or a comma list of tasks and suites, makes a
            suite of all these tasks, which has no mean.
        catalogue: The cards of suites and tasks.

    Raises:
        UnknownName: There is no such suite or task.
    """
    # The id of a suite or a task, or a comma list of them.
    ids = find_suite_id(name, catalogue)
    suites = catalogue.suites()
    if ids in suites:
        return suites[ids]
    # The ids of the tasks, with suites replaced by their tasks.
    tasks = expand_names(ids, catalogue)
    # A task in no suite is the user's own. If all of several are, the title does not name them: the
    # heads of the columns do.
    title = "Own tasks"
    if len(tasks) == 1 or {*tasks} != _own_tasks(tasks, catalogue):
        title = format_some([catalogue.task(task).name for task in tasks], max_items=7)
    return Suite(name=title, tasks=tasks, average=False)


def _own_tasks(tasks: Iterable[str], catalogue: Catalogue) -> set[str]:
    """Return those of some tasks that are the user's own: that are in no suite."""
    suites = catalogue.suites().values()
    return {*tasks}.difference(*(suite.tasks for suite in suites))
