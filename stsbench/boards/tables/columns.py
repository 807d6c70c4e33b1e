"""The columns of a table: what each takes from an encoder's results and from published rows, averages, the baseline."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from stsbench.boards.published.rows import (
    METRICS,
    UNKNOWN,
    AverageFacts,
    ColumnFacts,
    Metric,
    ProtocolFacts,
    PublishedRow,
    PublishedScore,
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
    AverageTerms,
    ColumnSpec,
    TableCell,
    TableColumn,
    TableNumber,
)
from stsbench.core.cards import Overlap
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, ProtocolError, look_up, suggest
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.results.groups import EncoderResults, suite_mean
from stsbench.results.record import Result, score_name

Seeds = tuple[int | None, int]
ScoreBySeed = Mapping[Seeds, float]
"""A score a seed."""
Numbers = dict[str, TableNumber]
UNKNOWN_PROTOCOL = ProtocolFacts(metric="")
STS_EVALUATORS = ("sts", "relatedness")
"""The evaluators of tasks whose test sentences are those of STS and SICK."""


def scores_by_seed(runs: EncoderResults, wanted: ColumnSpec) -> ScoreBySeed:
    """One score a seed, in points; a result of another protocol gives none."""
    return {
        one.seeds: 100 * (_score(one, wanted) or 0.0)
        for one in select_column_results(runs.results, wanted)
    }


def fits_column(result: Result, wanted: ColumnSpec) -> bool:
    """Whether a column takes a result's own score, and not one that the result holds beside it."""
    aggregation = protocols().get(wanted.protocol, UNKNOWN_PROTOCOL).aggregation
    is_own = not aggregation or score_name(result.protocol) == f"{wanted.metric}.{aggregation}"
    return (
        is_own
        and bool(select_column_results([result], wanted))
        and _score(result, wanted) == result.score
    )


def select_column_results(results: Sequence[Result], wanted: ColumnSpec) -> list[Result]:
    """The results that a column takes a score of, one a seed as :func:`scores_by_seed` has them."""
    found: dict[Seeds, Result] = {}
    for result in results:
        if (result.task, result.split) == (wanted.task, wanted.split) and _score(
            result, wanted
        ) is not None:
            found.setdefault(result.seeds, result)
    return list(found.values())


def _score(result: Result, wanted: ColumnSpec) -> float | None:
    if wanted.protocol_fields:
        return result.score if result.protocol == wanted.protocol_fields else None
    facts = protocols().get(wanted.protocol)
    if facts is None:
        return None
    if facts.aggregation:
        if "aggregation" not in result.protocol:
            return None
        score = result.scores.get(f"{wanted.metric}.{facts.aggregation}")
        return (
            result.scores.get(f"{wanted.metric}.all")
            if score is None and wanted.has_no_subsets
            else score
        )
    required = {"name": wanted.protocol, **facts.fields.get(wanted.evaluator, {})}
    same = all(result.protocol.get(key) == value for key, value in required.items())
    return result.scores.get(wanted.metric) if same else None


def make_column_spec(
    facts: ColumnFacts, protocol: str, metric: str, catalogue: Catalogue
) -> tuple[ColumnSpec, str]:
    """What to look for, and what the task is called."""
    if facts.task in sources().extras or facts.task in catalogue.suites():
        return ColumnSpec(
            facts.task, facts.split, facts.split, protocol, metric, "", True
        ), facts.task
    card = catalogue.task(facts.task)
    # Published scores say "test" where a task is scored on its only split.
    split = card.score_split if facts.split == "test" else facts.split
    whole = not any(one.subsets for one in card.splits.values())
    return ColumnSpec(
        facts.task, split, facts.split, protocol, metric, card.evaluator, whole
    ), card.name


ROUNDINGS: Mapping[str, Callable[[AverageTerms, Mapping[str, float], int], float]] = {
    "cells": lambda terms, means, d: round(
        suite_mean(terms, lambda key: round(means[key], d)) or 0.0, d
    ),
    "once": lambda terms, means, d: round(suite_mean(terms, means.get) or 0.0, d),
    "never": lambda terms, means, d: suite_mean(terms, means.get) or 0.0,
}
"""How papers round the average of a row: columns, their values and the decimals to what is shown."""


def add_average(terms: AverageTerms, numbers: Mapping[str, float]) -> Numbers:
    """Numbers by column, and the cells of both average columns; without these where a term lacks one."""
    mean, found = (
        suite_mean(terms, numbers.get),
        {key: TableNumber(value) for key, value in numbers.items()},
    )
    return (
        found if mean is None else {**found, AVERAGE: TableNumber(mean), EXACT: TableNumber(mean)}
    )


@dataclass(frozen=True, kw_only=True)
class TableFiller:
    """The columns of a table and what fills their cells.

    ``tasks`` are the columns that hold tasks, ``others`` for each the table whose average it is, if it is one. ``terms`` are
    the average's.
    """

    card: TableCard
    catalogue: Catalogue
    task_columns: Sequence[TableColumn]
    averaged_tables: Sequence[TableFiller | None]
    terms: AverageTerms

    @classmethod
    def from_card(cls, card: TableCard, catalogue: Catalogue) -> TableFiller:
        """The columns of a table.

        Raises:
            CardError: a suite that does not exist; an average over columns that are scored in different ways and not declared a
                composite.
        """
        suites = catalogue.suites()
        if card.suite and card.suite not in suites:
            raise CardError(
                f"key 'suite': '{card.suite}' is not a suite{suggest(card.suite, suites)}"
            )
        facts = column_facts(card) or [ColumnFacts(task=task) for task in suites[card.suite].tasks]
        tasks = [_column(one, card, catalogue) for one in facts]
        others = [
            TableFiller.from_card(read_table_card(f.average_of), catalogue)
            if f.average_of
            else None
            for f in facts
        ]
        averaged = (card.average.of or [column.key for column in tasks]) if card.average else []
        terms = [[term] if isinstance(term, str) else term for term in averaged]
        keys, by_key = list(chain(*terms)), {column.key: column.spec for column in tasks}
        if missing := [key for key in keys if key not in by_key]:
            raise CardError(f"[average]: 'of' names '{missing[0]}', which is not a column")
        ways = {(wanted.protocol, wanted.metric) for key in keys if (wanted := by_key[key])}
        if card.average and len(ways) > 1 and not card.average.composite:
            listed = " and ".join(sorted(" ".join(filter(None, way)) for way in ways))
            raise CardError(
                f"[average]: over columns scored by {listed}; say composite = true if the paper does so"
            )
        if card.delta and card.delta.column not in ("", *by_key):
            raise CardError(f"[delta]: 'column' is '{card.delta.column}', which is not a column")
        return cls(
            card=card, catalogue=catalogue, task_columns=tasks, averaged_tables=others, terms=terms
        )

    @property
    def columns(self) -> list[TableColumn]:
        """All columns: those of tasks, the average, distances, and the exact average."""
        facts, decimals = self.card.average, self.card.decimals
        made = []
        if facts:
            mean = TableColumn(
                key=AVERAGE,
                head=facts.head,
                kind="average",
                decimals=decimals,
                is_mixed=facts.composite,
            )
            made = [
                mean,
                replace(
                    mean,
                    key=EXACT,
                    head=f"{facts.head} (exact)",
                    kind="exact",
                    decimals=decimals + 4,
                ),
            ]
        if self.card.delta:
            made.insert(
                1, TableColumn(key=DELTA, head="Δ", kind="delta", better="", decimals=decimals)
            )
        return [*self.task_columns, *made]

    @cached_property
    def has_sts_tests(self) -> bool:
        """Whether any score is of a test of STS, also by way of a suite or another table."""
        names, suites = set(self.all_tasks()), self.catalogue.suites()
        tasks = names.union(*(suites[name].tasks for name in names if name in suites))
        cards = map(self.catalogue.task, sorted(tasks & self.catalogue.paths("tasks").keys()))
        return any(card.evaluator in STS_EVALUATORS for card in cards)

    def row_overlap(self, row: PublishedRow) -> Overlap:
        """Return whether a published row's training text overlaps the table's tests.

        The catalogue knows this of the STS tests alone, so it is unknown if no column is of one.
        """
        return row.overlap if self.has_sts_tests else "unknown"

    def all_tasks(self) -> Iterator[str]:
        """The tasks that it takes scores of, also by way of other tables."""
        for column, other in zip(self.task_columns, self.averaged_tables, strict=True):
            if other is not None:
                yield from other.all_tasks()
            elif column.spec is not None and column.in_points:
                yield column.spec.task

    def published_numbers(
        self,
        row: PublishedRow,
        otherwise: str | None = None,
        *,
        metric: str = "",
        lenient: bool = False,
    ) -> Numbers:
        """The printed numbers of a row, and its average.

        ``otherwise`` is the protocol of a row that is not scored as the columns say, ``metric`` that of one which measures something
        else. A score of another protocol than the column's, in a row not declared so, raises ProtocolError; ``lenient`` leaves it
        out, as boards do.
        """
        found: Numbers = {}
        for column, other in zip(self.task_columns, self.averaged_tables, strict=True):
            wanted = column.spec._replace(metric=metric) if column.spec and metric else column.spec
            score = _printed(row, wanted, otherwise, lenient=lenient)
            # A row without an encoder fills the column of another table that it prints whole: ablations do not.
            fills = (
                not lenient
                or other is None
                or row.encoder
                or EXACT in other.published_numbers(row, lenient=True)
            )
            if score is not None and fills:
                found[column.key] = TableNumber(
                    score.value, score.deviation, score.decimals, published_key=row.key
                )
        if (facts := self.card.average) is None:
            return found
        exact = suite_mean(self.terms, lambda key: found[key].value if key in found else None)
        if exact is not None and otherwise != UNKNOWN:
            shown = TableNumber(round(exact, self.card.decimals), published_key=row.key)
            found |= {AVERAGE: shown, EXACT: TableNumber(exact, published_key=row.key)}
        first = self.task_columns[0].spec
        wanted = _of_average(
            self.card, facts, first.metric if first and not facts.composite else "mixed"
        )
        if printed := _printed(row, wanted, otherwise, lenient=True):
            found[AVERAGE] = TableNumber(
                printed.value, printed.deviation, printed.decimals, published_key=row.key
            )
        return found

    def measured_numbers(self, runs: EncoderResults, otherwise: str | None = None) -> Numbers:
        """The measured numbers of an encoder: means over seeds with their deviations, and the average."""
        found: Numbers = {}
        columns: dict[str, ScoreBySeed] = {}
        for column, other in zip(self.task_columns, self.averaged_tables, strict=True):
            wanted, mine = column.spec, dict[Seeds, float]()
            if wanted is not None and column.in_points and otherwise != UNKNOWN:
                mine = dict(
                    scores_by_seed(
                        runs, wanted if otherwise is None else wanted._replace(protocol=otherwise)
                    )
                )
            columns[column.key] = mine
            if mine:
                found[column.key] = _number(mine, runs, wanted)
            if other and (mean := other.measured_numbers(runs).get(EXACT)):
                found[column.key] = mean
        return found | (self._averages(columns, self.card.average) if self.card.average else {})

    def _averages(self, columns: Mapping[str, ScoreBySeed], facts: AverageFacts) -> Numbers:
        """The average as the paper rounds it, and the exact one; a deviation where every cell has the same seeds."""
        means = {key: statistics.fmean(one.values()) for key, one in columns.items() if one}
        exact = suite_mean(self.terms, means.get)
        if exact is None:
            return {}
        used = {key: columns[key] for key in chain(*self.terms)}
        seeds, deviation = set(next(iter(used.values()))), None
        if len(seeds) > 1 and all(set(one) == seeds for one in used.values()):
            by_seed = [
                suite_mean(self.terms, {key: one[seed] for key, one in used.items()}.get)
                for seed in seeds
            ]
            deviation = mean_and_deviation([mean for mean in by_seed if mean is not None]).deviation
        shown = look_up("rounding", facts.rounding, ROUNDINGS)(
            self.terms, means, self.card.decimals
        )
        most = max(map(len, used.values()))
        return {
            AVERAGE: TableNumber(shown, deviation, seeds=most),
            EXACT: TableNumber(exact, deviation, seeds=most),
        }

    def make_cells(self, published: Numbers, measured: Numbers) -> Mapping[str, TableCell]:
        """Cells with both numbers by column, and what is wrong in print."""
        made = {}
        for column in self.columns:
            task = column.spec.task if column.spec else ""
            if self.card.average and column.kind == "average":
                task = self.card.average.task
            cell = TableCell(measured=measured.get(column.key), published=published.get(column.key))
            wrong = misprints().get((cell.published_key, task)) if task else None
            made[column.key] = replace(cell, misprint=wrong.reason) if wrong else cell
        return made


def _of_average(card: TableCard, facts: AverageFacts, metric: str) -> ColumnSpec:
    """Where published scores have the average of a table."""
    protocol = "" if facts.composite else card.protocol
    return ColumnSpec(facts.task, "test", "test", protocol, metric, "", True)


def _column(facts: ColumnFacts, card: TableCard, catalogue: Catalogue) -> TableColumn:
    if facts.average_of:
        other = read_table_card(facts.average_of)
        if other.average is None:
            raise CardError(f"columns: table '{facts.average_of}' has no average")
        mixed = other.average.composite
        wanted = _of_average(
            other, other.average, "mixed" if mixed else protocols()[other.protocol].metric
        )
        head = facts.head or card.heads.get(wanted.task, other.title)
        return TableColumn(
            key=facts.average_of, head=head, spec=wanted, decimals=card.decimals, is_mixed=mixed
        )
    protocol = card.protocol if facts.protocol is None else facts.protocol
    # Without a protocol it is the metric of the first row that says its own.
    of_rows = (row.metric for group in card.groups for row in row_facts(group) if row.metric)
    usual = protocols()[protocol].metric if protocol in protocols() else next(of_rows, "")
    if card.fields:
        usual = score_name(card.fields).partition(".")[0]
    metric = facts.metric or usual
    if not metric:
        raise CardError(f"columns: '{facts.task}' has neither a metric nor a protocol")
    key = (
        facts.task
        if metric == usual and facts.split == "test"
        else f"{facts.task}.{facts.metric or facts.split}"
    )
    # A result's own score is the better the higher it is, whatever a user's evaluator calls it.
    kind = Metric() if card.fields else METRICS[metric]
    wanted, name = make_column_spec(facts, protocol, metric, catalogue)
    return TableColumn(
        key=key,
        head=facts.head or card.heads.get(key, name),
        spec=wanted._replace(protocol_fields=card.fields),
        better=kind.better,
        in_points=kind.in_points,
        decimals=card.decimals,
    )


def _number(one: ScoreBySeed, runs: EncoderResults, wanted: ColumnSpec | None) -> TableNumber:
    values = list(one.values())
    if len(values) > 1:
        return TableNumber(*mean_and_deviation(values), seeds=len(values))
    # A single seed has the interval of its result, where that is of the result's own score.
    mine = [r for r in runs.results if wanted and (r.task, r.split) == (wanted.task, wanted.split)]
    interval = next((r.interval for r in mine if 100 * r.score == values[0]), None)
    return TableNumber(values[0], interval=interval and (100 * interval[0], 100 * interval[1]))


def _printed(
    row: PublishedRow, wanted: ColumnSpec | None, otherwise: str | None, *, lenient: bool
) -> PublishedScore | None:
    if wanted is None:
        return None
    way = published_protocol(wanted.protocol if otherwise is None else otherwise)
    candidates = [
        s
        for s in row.scores
        if (s.task, s.split, s.metric) == (wanted.task, wanted.published_split, wanted.metric)
    ]
    fitting = next((s for s in candidates if (s.protocol, s.aggregation) == way), None)
    if fitting is None and candidates and not lenient:
        raise ProtocolError(
            f"published row '{row.key}': {wanted.task} is scored by '{candidates[0].protocol or UNKNOWN}', "
            f"its column by '{way[0] or UNKNOWN}'; the table must say so in the row"
        )
    return fitting


def published_protocol(protocol: str) -> tuple[str, str]:
    """The protocol and aggregation that published scores of a protocol say."""
    return (
        ("", "unknown")
        if protocol == UNKNOWN
        else (protocol, protocols().get(protocol, UNKNOWN_PROTOCOL).aggregation)
    )


MTEB_PROTOCOL = {"name": "mteb", "metric": "spearman", "aggregation": "all", "similarity": "cosine"}
"""How MTEB scores STS: one correlation a task or language. Prompts are those MTEB has for a model."""


def is_scored_as_mteb(columns: Sequence[TableColumn]) -> bool:
    """Whether a table's scores are made as MTEB makes them, whatever the protocol is called."""
    return all(
        {**one.protocol_fields, "name": MTEB_PROTOCOL["name"]} == MTEB_PROTOCOL
        if one.protocol_fields
        else (one.metric, published_protocol(one.protocol)[1]) == ("spearman", "all")
        for one in (column.spec for column in columns)
        if one is not None
    )
