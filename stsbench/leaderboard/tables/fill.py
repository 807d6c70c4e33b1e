"""Numbers for a row's columns: those printed in a published row, and those measured in an encoder's runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.errors import ProtocolError
from stsbench.leaderboard.published.rows import PublishedRow, Score, misprints
from stsbench.leaderboard.published.specs import UNKNOWN, TableCard, protocols, read_table_card
from stsbench.leaderboard.tables.averages import measured_averages, published_average
from stsbench.leaderboard.tables.columns import Plan, plan
from stsbench.leaderboard.tables.runs import Series, Wanted, series
from stsbench.leaderboard.tables.table import AVERAGE, EXACT, Number, TableCell, TableColumn
from stsbench.numbers.spread import spread
from stsbench.results.groups import Runs

Numbers = dict[str, Number]


class Filler(NamedTuple):
    """What a table's cells are filled by."""

    card: TableCard
    plan: Plan
    catalogue: Catalogue

    def published(
        self, row: PublishedRow, otherwise: str | None = None, *, metric: str = "", lenient: bool = False
    ) -> Numbers:
        """The printed numbers of a row, and its average.

        Args:
            row: the published row.
            otherwise: the protocol of a row that is not scored as the columns say.
            metric: that of a row which measures something else than its columns say.
            lenient: leave out scores of other protocols without a word, as boards do.

        Raises:
            ProtocolError: a score of another protocol than the column's, in a row not declared so.
        """
        found: Numbers = {}
        for column, other in zip(self.plan.tasks, self._other_tables(), strict=True):
            wanted = column.wanted._replace(metric=metric) if column.wanted and metric else column.wanted
            score = _printed(row, wanted, otherwise, lenient=lenient)
            if score is not None and (not lenient or not other or row.encoder or self._fills(other, row)):
                found[column.key] = Number(score.value, score.deviation, score.decimals)
        return found | self._averages(row, found, otherwise)

    def _averages(self, row: PublishedRow, numbers: Numbers, otherwise: str | None) -> Numbers:
        facts = self.card.average
        if facts is None:
            return {}
        first = self.plan.tasks[0].wanted
        metric = "mixed" if facts.composite or first is None else first.metric
        protocol = "" if metric == "mixed" else self.card.protocol
        wanted = Wanted(facts.task, "test", "test", protocol, metric, "", True)
        printed = _printed(row, wanted, otherwise, lenient=True)
        exact = published_average(self.plan.terms, numbers) if otherwise != UNKNOWN else None
        made: Numbers = {}
        if printed is not None:
            made[AVERAGE] = Number(printed.value, printed.deviation, printed.decimals)
        elif exact is not None:
            made[AVERAGE] = Number(round(exact, self.card.decimals))
        return made if exact is None else {**made, EXACT: Number(exact)}

    def measured(self, runs: Runs, otherwise: str | None = None) -> Numbers:
        """The measured numbers of an encoder: means over seeds with their deviations, and the average."""
        columns = {column.key: self._series(runs, column, otherwise) for column in self.plan.tasks}
        found = {c.key: _number(columns[c.key], runs, c.wanted) for c in self.plan.tasks if columns[c.key]}
        for column, facts in zip(self.plan.tasks, self._other_tables(), strict=True):
            if facts and (other := self._other(facts).measured(runs).get(EXACT)):
                found[column.key] = other
        if self.card.average is None:
            return found
        averages = measured_averages(self.plan.terms, columns, self.card.average, self.card.decimals)
        return found if averages is None else {**found, AVERAGE: averages[0], EXACT: averages[1]}

    def _series(self, runs: Runs, column: TableColumn, otherwise: str | None) -> Series:
        wanted = column.wanted
        if wanted is None or not column.points or otherwise == UNKNOWN:
            return {}
        return series(runs, wanted if otherwise is None else wanted._replace(protocol=otherwise))

    def _other_tables(self) -> list[str]:
        named = [c.average_of if not isinstance(c, str) else "" for c in self.card.columns]
        return named or [""] * len(self.plan.tasks)

    def _other(self, name: str) -> Filler:
        card = read_table_card(name)
        return Filler(card, plan(card, self.catalogue), self.catalogue)

    def _fills(self, name: str, row: PublishedRow) -> bool:
        """Whether a row prints every task of another table, and not only an average: ablations do not."""
        return EXACT in self._other(name).published(row, lenient=True)

    def cells(
        self, printed_in: Mapping[str, str] | str, published: Numbers, measured: Numbers
    ) -> Mapping[str, TableCell]:
        """Cells with both numbers, and what is wrong in print.

        Args:
            printed_in: the key of the published row that all published numbers are of, or that of each by column.
            published: the printed numbers by column.
            measured: the measured ones.
        """
        wrong = misprints()
        made = {}
        for column in self.plan.columns:
            key = printed_in if isinstance(printed_in, str) else printed_in.get(column.key, "")
            task = self._task(column)
            misprint = wrong.get((key, task)) if task and column.key in published else None
            made[column.key] = TableCell(
                measured=measured.get(column.key),
                published=published.get(column.key),
                printed_in=key if column.key in published else "",
                misprint=misprint.reason if misprint and column.kind != "exact" else "",
            )
        return made

    def _task(self, column: TableColumn) -> str:
        if column.wanted is not None:
            return column.wanted.task
        return self.card.average.task if self.card.average and column.kind == "average" else ""


def _number(one: Series, runs: Runs, wanted: Wanted | None) -> Number:
    """The mean over seeds with its deviation; of a single seed the interval, where that is the result's own score."""
    values = list(one.values())
    if len(values) > 1:
        return Number(*spread(values), seeds=len(values))
    mine = [r for r in runs.results if wanted and (r.task, r.split) == (wanted.task, wanted.split)]
    interval = next((r.interval for r in mine if 100 * r.score == values[0]), None)
    return Number(values[0], interval=interval and (100 * interval[0], 100 * interval[1]))


def _printed(row: PublishedRow, wanted: Wanted | None, otherwise: str | None, *, lenient: bool) -> Score | None:
    if wanted is None:
        return None
    way = expected(wanted.protocol if otherwise is None else otherwise)
    candidates = [s for s in row.scores if (s.task, s.split, s.metric) == (wanted.task, wanted.printed, wanted.metric)]
    fitting = next((s for s in candidates if (s.protocol, s.aggregation) == way), None)
    if fitting is None and candidates and not lenient:
        other = candidates[0]
        raise ProtocolError(
            f"published row '{row.key}': {wanted.task} is scored by '{other.protocol or UNKNOWN}', "
            f"its column by '{way[0] or UNKNOWN}'; the table must say so in the row"
        )
    return fitting


def expected(protocol: str) -> tuple[str, str]:
    """The protocol and aggregation that published scores of a protocol say."""
    if protocol == UNKNOWN:
        return "", "unknown"
    return protocol, protocols()[protocol].aggregation if protocol in protocols() else ""
