"""The columns of a table: what each takes from an encoder's results and from published rows, averages, the baseline."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stsbench.boards.published import METRICS, Metric, PublishedRow, Score, misprints, sources
from stsbench.boards.published.specs import (
    UNKNOWN,
    AverageFacts,
    ColumnFacts,
    ProtocolFacts,
    TableCard,
    column_facts,
    protocols,
    read_table_card,
    row_facts,
)
from stsbench.boards.tables.table import (
    AVERAGE,
    DELTA,
    EXACT,
    Group,
    Number,
    Row,
    TableCell,
    TableColumn,
    Terms,
    Wanted,
)
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, ProtocolError, choose, did_you_mean
from stsbench.numbers.statistics import spread
from stsbench.results.comparable import suite_mean
from stsbench.results.groups import Runs
from stsbench.results.record import Result, score_name

Seeds = tuple[int | None, int]
Series = Mapping[Seeds, float]
"""A score a seed."""


def series(runs: Runs, wanted: Wanted) -> Series:
    """One score a seed, in points; a result of another protocol gives none."""
    scores = ((result, _score(result, wanted)) for result in results_of(runs.results, wanted))
    return {(one.train_seed, one.eval_seed): 100 * score for one, score in scores if score is not None}


def shows_its_score(result: Result, wanted: Wanted) -> bool:
    """Whether a column takes a result's own score, and not one that the result holds beside it."""
    if (result.task, result.split) != (wanted.task, wanted.split) or _score(result, wanted) != result.score:
        return False
    facts = protocols().get(wanted.protocol, ProtocolFacts(metric=""))
    way = result.protocol.get("metric"), result.protocol.get("aggregation")
    return not facts.aggregation or way == (wanted.metric, facts.aggregation)


def wanted_score(wanted: Wanted) -> str:
    """What results call the score that a column takes; nothing where it is their own."""
    facts = protocols().get(wanted.protocol, ProtocolFacts(metric=""))
    if wanted.fields:
        return ""
    return f"{wanted.metric}.{facts.aggregation}" if facts.aggregation else wanted.metric


def results_of(runs: Sequence[Result], wanted: Wanted) -> list[Result]:
    """The results that a column takes a score of, one a seed as :func:`series` has them."""
    found: dict[Seeds, Result] = {}
    for result in runs:
        if (result.task, result.split) == (wanted.task, wanted.split) and _score(result, wanted) is not None:
            found.setdefault((result.train_seed, result.eval_seed), result)
    return list(found.values())


def _score(result: Result, wanted: Wanted) -> float | None:
    if wanted.fields:
        return result.score if result.protocol == wanted.fields else None
    facts = protocols().get(wanted.protocol)
    if facts is None:
        return None
    if facts.aggregation:
        if "aggregation" not in result.protocol:
            return None
        score = result.scores.get(f"{wanted.metric}.{facts.aggregation}")
        return result.scores.get(f"{wanted.metric}.all") if score is None and wanted.whole else score
    if result.protocol["name"] != wanted.protocol:
        return None
    required = facts.fields.get(wanted.evaluator, {})
    same = all(result.protocol.get(key) == value for key, value in required.items())
    return result.scores.get(wanted.metric) if same else None


class Plan(NamedTuple):
    """A table's columns that hold tasks, those made of them, and the average's terms."""

    tasks: Sequence[TableColumn]
    made: Sequence[TableColumn]
    terms: Terms

    @property
    def columns(self) -> list[TableColumn]:
        """All columns, in order."""
        return [*self.tasks, *self.made]


def plan(card: TableCard, catalogue: Catalogue) -> Plan:
    """The columns of a table.

    Raises:
        CardError: a suite that does not exist; an average over columns that are scored in different ways and not declared a composite.
    """
    facts = column_facts(card) or [ColumnFacts(task=task) for task in _tasks_of(card.suite, catalogue)]
    tasks = [_column(one, card, catalogue) for one in facts]
    terms: Terms = (card.average.of or [column.key for column in tasks]) if card.average else []
    if card.average:
        _check_average(card.average, terms, tasks)
    if card.delta and card.delta.column not in ("", *(column.key for column in tasks)):
        raise CardError(f"[delta]: 'column' is '{card.delta.column}', which is not a column")
    return Plan(tasks, list(_made(card)), terms)


def _tasks_of(suite: str, catalogue: Catalogue) -> Sequence[str]:
    suites = catalogue.suites()
    if suite not in suites:
        raise CardError(f"key 'suite': '{suite}' is not a suite{did_you_mean(suite, suites)}")
    if not suites[suite].tasks:
        raise CardError(f"key 'suite': '{suite}' has no tasks")
    return suites[suite].tasks


def _column(facts: ColumnFacts, card: TableCard, catalogue: Catalogue) -> TableColumn:
    if facts.average_of:
        other = read_table_card(facts.average_of)
        if other.average is None:
            raise CardError(f"columns: table '{facts.average_of}' has no average")
        metric = "mixed" if other.average.composite else protocols()[other.protocol].metric
        protocol = "" if metric == "mixed" else other.protocol
        wanted = Wanted(other.average.task, facts.split, facts.split, protocol, metric, "", True)
        head = facts.head or card.heads.get(wanted.task, other.title)
        mixed = other.average.composite
        return TableColumn(key=facts.average_of, head=head, wanted=wanted, decimals=card.decimals, mixed=mixed)
    protocol = card.protocol if facts.protocol is None else facts.protocol
    usual = protocols()[protocol].metric if protocol in protocols() else _metric_of_rows(card)
    if card.fields:
        usual = score_name(card.fields).partition(".")[0]
    metric = facts.metric or usual
    if not metric:
        raise CardError(f"columns: '{facts.task}' has neither a metric nor a protocol")
    key = facts.task if metric == usual and facts.split == "test" else f"{facts.task}.{facts.metric or facts.split}"
    # A result's own score is the better the higher it is, whatever a user's evaluator calls it.
    kind = Metric() if card.fields else METRICS[metric]
    wanted, name = wanted_of(facts, protocol, metric, catalogue)
    return TableColumn(
        key=key,
        head=facts.head or card.heads.get(key, name),
        wanted=wanted._replace(fields=card.fields),
        better=kind.better,
        points=kind.points,
        decimals=card.decimals,
    )


def wanted_of(facts: ColumnFacts, protocol: str, metric: str, catalogue: Catalogue) -> tuple[Wanted, str]:
    """What to look for, and what the task is called."""
    if facts.task in sources().extras or facts.task in catalogue.suites():
        return Wanted(facts.task, facts.split, facts.split, protocol, metric, "", True), facts.task
    card = catalogue.task(facts.task)
    # Published scores say "test" where a task is scored on its only split.
    split = card.score_split if facts.split == "test" else facts.split
    whole = not any(one.subsets for one in card.splits.values())
    return Wanted(facts.task, split, facts.split, protocol, metric, card.evaluator, whole), card.name


def _metric_of_rows(card: TableCard) -> str:
    """The metric of the first row that says its own; nothing where none does."""
    return next((facts.metric for group in card.groups for facts in row_facts(group) if facts.metric), "")


def _made(card: TableCard) -> Iterator[TableColumn]:
    facts, decimals = card.average, card.decimals
    if facts:
        yield TableColumn(key=AVERAGE, head=facts.head, kind="average", decimals=decimals, mixed=facts.composite)
    if card.delta:
        yield TableColumn(key=DELTA, head="Δ", kind="delta", better="", decimals=decimals)
    if facts:
        head = f"{facts.head} (exact)"
        yield TableColumn(key=EXACT, head=head, kind="exact", decimals=decimals + 4, mixed=facts.composite)


def _check_average(facts: AverageFacts, terms: Terms, tasks: Sequence[TableColumn]) -> None:
    by_key = {column.key: column for column in tasks}
    used = [key for term in terms for key in ([term] if isinstance(term, str) else term)]
    for key in used:
        if key not in by_key:
            raise CardError(f"[average]: 'of' names '{key}', which is not a column")
    ways = {(w.protocol, w.metric) for key in used if (w := by_key[key].wanted)}
    if len(ways) > 1 and not facts.composite:
        listed = " and ".join(sorted(" ".join(filter(None, way)) for way in ways))
        raise CardError(f"[average]: over columns scored by {listed}; say composite = true if the paper does so")


def published_average(terms: Terms, numbers: Mapping[str, Number]) -> float | None:
    """The exact mean of printed cells."""
    return suite_mean(terms, lambda key: numbers[key].value if key in numbers else None)


ROUNDINGS: Mapping[str, Callable[[Terms, Mapping[str, float], int], float | None]] = {
    "cells": lambda terms, means, d: _rounded(suite_mean(terms, lambda key: round(means[key], d)), d),
    "once": lambda terms, means, d: _rounded(suite_mean(terms, means.get), d),
    "never": lambda terms, means, d: suite_mean(terms, means.get),
}
"""How papers round the average of a row: columns, their values and the decimals to what is shown."""


def _rounded(value: float | None, decimals: int) -> float | None:
    return None if value is None else round(value, decimals)


def measured_averages(
    terms: Terms, columns: Mapping[str, Series], facts: AverageFacts, decimals: int
) -> tuple[Number, Number] | None:
    """The average as the paper rounds it, and the exact one; None where a cell is missing.

    The deviation is that of the averages of single seeds, where every cell has the same seeds.
    """
    means = {key: statistics.fmean(one.values()) for key, one in columns.items() if one}
    exact = suite_mean(terms, means.get)
    if exact is None:
        return None
    shown = choose("rounding", facts.rounding, ROUNDINGS)(terms, means, decimals) or 0.0
    used = [key for term in terms for key in ([term] if isinstance(term, str) else term)]
    deviation = _deviation(terms, [columns[key] for key in used], columns)
    seeds = max(len(columns[key]) for key in used)
    return Number(shown, deviation, seeds=seeds), Number(exact, deviation, seeds=seeds)


def _deviation(terms: Terms, used: Sequence[Series], columns: Mapping[str, Series]) -> float | None:
    seeds = set(used[0])
    if len(seeds) < 2 or any(set(one) != seeds for one in used):
        return None
    by_seed = [suite_mean(terms, lambda key, seed=seed: columns[key].get(seed)) for seed in seeds]  # type: ignore[misc]
    return spread([mean for mean in by_seed if mean is not None]).deviation


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


SECTION, LABEL = "Baseline", "majority class"
Levels = Mapping[tuple[str, str], float]
"""Points by task and split."""


def majority_levels(results: Sequence[Result]) -> Levels:
    """The share of the most frequent class in points, as the results of any encoder hold it."""
    return {(r.task, r.split): 100 * r.scores["majority"] for r in results if "majority" in r.scores}


def of_columns(levels: Levels, columns: Mapping[str, Wanted | None]) -> dict[str, float]:
    """The levels of these columns by key; none where another metric than accuracy is wanted."""
    return {
        key: levels[wanted.task, wanted.split]
        for key, wanted in columns.items()
        if wanted is not None and wanted.metric == "accuracy" and (wanted.task, wanted.split) in levels
    }


def baseline_groups(levels: Mapping[str, float], average: Terms) -> list[Group]:
    """One group of one row, so that it is never ranked with encoders; none where no level is known.

    Args:
        levels: by column key, in points.
        average: the columns that are averaged, if any.
    """
    if not levels:
        return []
    numbers = {key: Number(value) for key, value in levels.items()}
    mean = suite_mean(average, levels.get)
    if mean is not None:
        numbers |= dict.fromkeys((AVERAGE, EXACT), Number(mean))
    cells = {key: TableCell(measured=number) for key, number in numbers.items()}
    return [Group(section=SECTION, rows=[Row(label=LABEL, cells=cells, is_baseline=True)])]
