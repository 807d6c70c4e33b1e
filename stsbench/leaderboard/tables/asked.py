"""The tables that somebody asks for by the name of a table or a suite: made of results, published and imported rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import Suite
from stsbench.compare.means import OnRow, unwatched
from stsbench.errors import DataError, ProtocolError, UnknownName
from stsbench.leaderboard.exports.imported import PROTOCOL, Imported, fits, with_imported
from stsbench.leaderboard.published.specs import TableCard, read_table_card
from stsbench.leaderboard.tables.added import Added, lacks, not_shown, rows_of
from stsbench.leaderboard.tables.build import make_table
from stsbench.leaderboard.tables.columns import plan
from stsbench.leaderboard.tables.fill import Filler
from stsbench.leaderboard.tables.layout import Show, has_lines
from stsbench.leaderboard.tables.ranks import rank_tables
from stsbench.leaderboard.tables.suite import SuiteBoard, suite_boards, suite_card, suite_table
from stsbench.leaderboard.tables.table import Row, Table
from stsbench.results.folder import ResultFolder, verified
from stsbench.results.groups import gather_runs
from stsbench.results.record import Result


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
        """The table of a name, or of a TOML file; see :func:`stsbench.leaderboard.tables.build.build_table`.

        Raises:
            DataError: there would be nothing in it to show.
        """
        card = read_table_card(name)
        tasks = [column.wanted.task for column in plan(card, self.catalogue).tasks if column.wanted is not None]
        held = self._held(tasks)
        table = make_table(name, card, held.results, self.catalogue, self.added, self.progress)
        advice = self._advice([table]) if self.added else self._not_shown(card, table, held.results)
        (made,) = self._ranked([table])
        made = with_imported(made, self.imported) if self.imported else made
        if not has_lines(made, self.show):
            raise DataError(
                f"table '{made.name}': nothing to show as '{self.show}', for no result fits it; "
                "'stsbench run' measures, --show published prints what papers have"
            )
        return Made([made], self._left_out(held), advice)

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
        held = self._held(suite.tasks)
        boards = suite_boards(
            held.results,
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
        return Made(tables, self._left_out(held), advice)

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
        told: list[str] = []
        for one in self.added:
            rows = [(row, table) for table in tables for row in rows_of(table, one) if row.is_measured]
            if not rows:
                empty = Row(label=one.label or one.name, cells={}, encoder=one.results[0].encoder)
                why = [line for table in tables[:1] for line in lacks(empty, table, self.catalogue, self._given())]
                raise DataError(f"--add {one.name}: no result of it fits the table; {'; '.join(why)}")
            told += [line for row, table in rows for line in lacks(row, table, self.catalogue, self._given())]
        return told

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

    def _held(self, tasks: Sequence[str]) -> ResultFolder:
        """The results; for ranks, drawn from per-item columns, without those that their columns do not make."""
        if not self.ranks:
            return ResultFolder(list(self.results), [])
        return verified((result for result in self.results if result.task in tasks), keep=True)

    def _left_out(self, held: ResultFolder) -> list[str]:
        return [*(problem.line for problem in held.problems), *(self.imported.problems if self.imported else ())]


def find_suite(name: str, catalogue: Catalogue) -> Suite:
    """The suite of this name, or a task as a suite of one; raises UnknownName."""
    suites, tasks = catalogue.suites(), catalogue.paths("tasks")
    if name in tasks and name not in suites:
        return Suite(name=catalogue.task(name).name, tasks=[name], average=False)
    if name not in suites:
        hint = "'stsbench list suites' and 'list tasks' show them; cards of your own need --cards DIR"
        raise UnknownName("suite", name, [*suites, *tasks], hint=hint)
    return suites[name]
