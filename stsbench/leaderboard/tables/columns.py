"""The columns of a declared table, with all that is needed to fill them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.errors import CardError, did_you_mean
from stsbench.leaderboard.published.metrics import METRICS, Metric
from stsbench.leaderboard.published.rows import sources
from stsbench.leaderboard.published.specs import (
    AverageFacts,
    ColumnFacts,
    TableCard,
    column_facts,
    protocols,
    read_table_card,
    row_facts,
)
from stsbench.leaderboard.tables.runs import Wanted
from stsbench.leaderboard.tables.table import AVERAGE, DELTA, EXACT, TableColumn, Terms
from stsbench.results.checks import score_name


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
