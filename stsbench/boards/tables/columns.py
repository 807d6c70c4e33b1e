"""The columns of a table: what each takes from an encoder's results and from published rows, averages, the baseline."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stsbench.boards.published import (
    METRICS,
    UNKNOWN,
    AverageFacts,
    ColumnFacts,
    Metric,
    ProtocolFacts,
    PublishedRow,
    Score,
    TableCard,
    column_facts,
    misprints,
    protocols,
    read_table_card,
    row_facts,
    sources,
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
Numbers = dict[str, Number]
NO_FACTS = ProtocolFacts(metric="")


def series(runs: Runs, wanted: Wanted) -> Series:
    """One score a seed, in points; a result of another protocol gives none."""
    return {one.seeds: 100 * (_score(one, wanted) or 0.0) for one in results_of(runs.results, wanted)}


def shows_its_score(result: Result, wanted: Wanted) -> bool:
    """Whether a column takes a result's own score, and not one that the result holds beside it."""
    if (result.task, result.split) != (wanted.task, wanted.split) or _score(result, wanted) != result.score:
        return False
    aggregation = protocols().get(wanted.protocol, NO_FACTS).aggregation
    way = result.protocol.get("metric"), result.protocol.get("aggregation")
    return not aggregation or way == (wanted.metric, aggregation)


def results_of(results: Sequence[Result], wanted: Wanted) -> list[Result]:
    """The results that a column takes a score of, one a seed as :func:`series` has them."""
    found: dict[Seeds, Result] = {}
    for result in results:
        if (result.task, result.split) == (wanted.task, wanted.split) and _score(result, wanted) is not None:
            found.setdefault(result.seeds, result)
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
    required = {"name": wanted.protocol, **facts.fields.get(wanted.evaluator, {})}
    same = all(result.protocol.get(key) == value for key, value in required.items())
    return result.scores.get(wanted.metric) if same else None


class Plan(NamedTuple):
    """A table's columns, first those that hold tasks; these alone; and the average's terms."""

    columns: Sequence[TableColumn]
    tasks: Sequence[TableColumn]
    terms: Terms


def plan(card: TableCard, catalogue: Catalogue) -> Plan:
    """The columns of a table.

    Raises:
        CardError: a suite that does not exist; an average over columns that are scored in different ways and not declared a composite.
    """
    suites = catalogue.suites()
    if card.suite and card.suite not in suites:
        raise CardError(f"key 'suite': '{card.suite}' is not a suite{did_you_mean(card.suite, suites)}")
    facts = column_facts(card) or [ColumnFacts(task=task) for task in suites[card.suite].tasks]
    tasks = [_column(one, card, catalogue) for one in facts]
    terms: Terms = (card.average.of or [column.key for column in tasks]) if card.average else []
    if card.average:
        by_key = {column.key: column for column in tasks}
        if missing := [key for key in _keys(terms) if key not in by_key]:
            raise CardError(f"[average]: 'of' names '{missing[0]}', which is not a column")
        ways = {(w.protocol, w.metric) for key in _keys(terms) if (w := by_key[key].wanted)}
        if len(ways) > 1 and not card.average.composite:
            listed = " and ".join(sorted(" ".join(filter(None, way)) for way in ways))
            raise CardError(f"[average]: over columns scored by {listed}; say composite = true if the paper does so")
    if card.delta and card.delta.column not in ("", *(column.key for column in tasks)):
        raise CardError(f"[delta]: 'column' is '{card.delta.column}', which is not a column")
    return Plan([*tasks, *_made(card)], tasks, terms)


def _keys(terms: Terms) -> list[str]:
    return [key for term in terms for key in ([term] if isinstance(term, str) else term)]


def _column(facts: ColumnFacts, card: TableCard, catalogue: Catalogue) -> TableColumn:
    if facts.average_of:
        other = read_table_card(facts.average_of)
        if other.average is None:
            raise CardError(f"columns: table '{facts.average_of}' has no average")
        mixed = other.average.composite
        protocol, metric = ("", "mixed") if mixed else (other.protocol, protocols()[other.protocol].metric)
        wanted = Wanted(other.average.task, facts.split, facts.split, protocol, metric, "", True)
        head = facts.head or card.heads.get(wanted.task, other.title)
        return TableColumn(key=facts.average_of, head=head, wanted=wanted, decimals=card.decimals, mixed=mixed)
    protocol = card.protocol if facts.protocol is None else facts.protocol
    # Without a protocol it is the metric of the first row that says its own.
    of_rows = (row.metric for group in card.groups for row in row_facts(group) if row.metric)
    usual = protocols()[protocol].metric if protocol in protocols() else next(of_rows, "")
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


def _made(card: TableCard) -> Iterator[TableColumn]:
    facts, decimals = card.average, card.decimals
    if facts:
        yield TableColumn(key=AVERAGE, head=facts.head, kind="average", decimals=decimals, mixed=facts.composite)
    if card.delta:
        yield TableColumn(key=DELTA, head="Δ", kind="delta", better="", decimals=decimals)
    if facts:
        head = f"{facts.head} (exact)"
        yield TableColumn(key=EXACT, head=head, kind="exact", decimals=decimals + 4, mixed=facts.composite)


ROUNDINGS: Mapping[str, Callable[[Terms, Mapping[str, float], int], float]] = {
    "cells": lambda terms, means, d: round(suite_mean(terms, lambda key: round(means[key], d)) or 0.0, d),
    "once": lambda terms, means, d: round(suite_mean(terms, means.get) or 0.0, d),
    "never": lambda terms, means, d: suite_mean(terms, means.get) or 0.0,
}
"""How papers round the average of a row: columns, their values and the decimals to what is shown."""


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
    shown = choose("rounding", facts.rounding, ROUNDINGS)(terms, means, decimals)
    used = [columns[key] for key in _keys(terms)]
    seeds, deviation = set(used[0]), None
    if len(seeds) > 1 and all(set(one) == seeds for one in used):
        by_seed = [suite_mean(terms, {key: columns[key].get(seed) for key in _keys(terms)}.get) for seed in seeds]
        deviation = spread([mean for mean in by_seed if mean is not None]).deviation
    most = max(map(len, used))
    return Number(shown, deviation, seeds=most), Number(exact, deviation, seeds=most)


class Filler(NamedTuple):
    """What a table's cells are filled by."""

    card: TableCard
    plan: Plan
    catalogue: Catalogue

    def published(
        self, row: PublishedRow, otherwise: str | None = None, *, metric: str = "", lenient: bool = False
    ) -> Numbers:
        """The printed numbers of a row, and its average.

        ``otherwise`` is the protocol of a row that is not scored as the columns say, ``metric`` that of one which measures something
        else. A score of another protocol than the column's, in a row not declared so, raises ProtocolError; ``lenient`` leaves it
        out, as boards do.
        """
        found: Numbers = {}
        for column, other in self._columns():
            wanted = column.wanted._replace(metric=metric) if column.wanted and metric else column.wanted
            score = _printed(row, wanted, otherwise, lenient=lenient)
            # A row without an encoder fills the column of another table that it prints whole: ablations do not.
            if score is not None and (
                not lenient or not other or row.encoder or EXACT in self._other(other).published(row, lenient=True)
            ):
                found[column.key] = Number(score.value, score.deviation, score.decimals)
        return found | self._averages(row, found, otherwise)

    def _averages(self, row: PublishedRow, numbers: Numbers, otherwise: str | None) -> Numbers:
        facts, first = self.card.average, self.plan.tasks[0].wanted
        if facts is None:
            return {}
        way = ("", "mixed") if facts.composite or first is None else (self.card.protocol, first.metric)
        printed = _printed(row, Wanted(facts.task, "test", "test", *way, "", True), otherwise, lenient=True)
        values = {key: number.value for key, number in numbers.items()}
        exact = suite_mean(self.plan.terms, values.get) if otherwise != UNKNOWN else None
        made: Numbers = (
            {} if exact is None else {AVERAGE: Number(round(exact, self.card.decimals)), EXACT: Number(exact)}
        )
        if printed is not None:
            made[AVERAGE] = Number(printed.value, printed.deviation, printed.decimals)
        return made

    def measured(self, runs: Runs, otherwise: str | None = None) -> Numbers:
        """The measured numbers of an encoder: means over seeds with their deviations, and the average."""
        found: Numbers = {}
        columns: dict[str, Series] = {}
        for column, other in self._columns():
            wanted, mine = column.wanted, dict[Seeds, float]()
            if wanted is not None and column.points and otherwise != UNKNOWN:
                mine = dict(series(runs, wanted if otherwise is None else wanted._replace(protocol=otherwise)))
            columns[column.key] = mine
            if mine:
                found[column.key] = _number(mine, runs, wanted)
            if other and (mean := self._other(other).measured(runs).get(EXACT)):
                found[column.key] = mean
        averages = self.card.average and measured_averages(
            self.plan.terms, columns, self.card.average, self.card.decimals
        )
        return {**found, AVERAGE: averages[0], EXACT: averages[1]} if averages else found

    def _columns(self) -> Iterator[tuple[TableColumn, str]]:
        named = [one.average_of for one in column_facts(self.card)] or [""] * len(self.plan.tasks)
        return zip(self.plan.tasks, named, strict=True)

    def _other(self, name: str) -> Filler:
        card = read_table_card(name)
        return Filler(card, plan(card, self.catalogue), self.catalogue)

    def cells(
        self, printed_in: Mapping[str, str] | str, published: Numbers, measured: Numbers
    ) -> Mapping[str, TableCell]:
        """Cells with both numbers by column, and what is wrong in print.

        ``printed_in`` is the key of the published row that all published numbers are of, or that of each by column.
        """
        made = {}
        for column in self.plan.columns:
            source = printed_in if isinstance(printed_in, str) else printed_in.get(column.key, "")
            key = source if column.key in published else ""
            task = column.wanted.task if column.wanted else ""
            if self.card.average and column.kind == "average":
                task = self.card.average.task
            wrong = misprints().get((key, task)) if task else None
            made[column.key] = TableCell(
                measured=measured.get(column.key),
                published=published.get(column.key),
                printed_in=key,
                misprint=wrong.reason if wrong else "",
            )
        return made


def _number(one: Series, runs: Runs, wanted: Wanted | None) -> Number:
    values = list(one.values())
    if len(values) > 1:
        return Number(*spread(values), seeds=len(values))
    # A single seed has the interval of its result, where that is of the result's own score.
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
        raise ProtocolError(
            f"published row '{row.key}': {wanted.task} is scored by '{candidates[0].protocol or UNKNOWN}', "
            f"its column by '{way[0] or UNKNOWN}'; the table must say so in the row"
        )
    return fitting


def expected(protocol: str) -> tuple[str, str]:
    """The protocol and aggregation that published scores of a protocol say."""
    return ("", "unknown") if protocol == UNKNOWN else (protocol, protocols().get(protocol, NO_FACTS).aggregation)


def baseline_group(results: Sequence[Result], made: Plan) -> Group:
    """A group of one row, so that it is never ranked with encoders: the share of the most frequent class, as results hold it.

    It has numbers in the columns of accuracies alone.
    """
    levels = {(r.task, r.split): 100 * r.scores["majority"] for r in results if "majority" in r.scores}
    found = {
        column.key: levels[wanted.task, wanted.split]
        for column in made.tasks
        if (wanted := column.wanted) and wanted.metric == "accuracy" and (wanted.task, wanted.split) in levels
    }
    mean = suite_mean(made.terms, found.get)
    found |= {} if mean is None else dict.fromkeys((AVERAGE, EXACT), mean)
    cells = {key: TableCell(measured=Number(value)) for key, value in found.items()}
    return Group(section="Baseline", rows=[Row(label="majority class", cells=cells, is_baseline=True)] if cells else [])
