"""The scores that fit a column of a table: those of results, and those that papers print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stsbench.boards.published.rows import (
    UNKNOWN,
    ColumnFacts,
    ProtocolFacts,
    PublishedRow,
    PublishedScore,
    read_published_protocols,
    read_sources,
)
from stsbench.boards.tables.table import ColumnSpec, TableColumn
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import ProtocolError
from stsbench.results.groups import EncoderResults
from stsbench.results.record import Result, score_name
from stsbench.results.signature import ComparedPart, compared_part, protocol_part

Seeds = tuple[int | None, int]
"""The seeds of training and of evaluation."""
ScoreBySeed = Mapping[Seeds, float]
UNKNOWN_PROTOCOL = ProtocolFacts(metric="")


def scores_by_seed(encoder_group: EncoderResults, spec: ColumnSpec) -> ScoreBySeed:
    """Return an encoder's scores for a column, in points; results of other protocols have none."""
    return {
        result.seeds: 100 * (_find_column_score(result, spec) or 0.0)
        for result in select_column_results(encoder_group.results, spec)
    }


def takes_own_score(result: Result, spec: ColumnSpec) -> bool:
    """Return whether a column of a table shows the main score of a result.

    The main score is ``result.score``. A result also holds scores by other metrics and aggregations
    (``result.scores``), which a column may show instead. But its interval and its values per item
    are of the main score only.

    Args:
        result: The result.
        spec: The scores that the column shows: task, split, protocol and metric.
    """
    is_of_task = (result.task, result.split) == (spec.task, spec.split)
    if not is_of_task or _find_column_score(result, spec) != result.score:
        return False
    # The aggregation is empty for a protocol that has no choice of one. Where there is a choice,
    # two aggregations may give the same number, so the score's name, ``metric.aggregation``, must
    # agree too.
    aggregation = read_published_protocols().get(spec.protocol, UNKNOWN_PROTOCOL).aggregation
    return not aggregation or score_name(result.protocol) == f"{spec.metric}.{aggregation}"


def select_column_results(results: Sequence[Result], spec: ColumnSpec) -> list[Result]:
    """Return the results whose scores a column of a table shows: one for each pair of seeds.

    Args:
        results: The results of one encoder. Of several with the same pair of training seed and
            evaluation seed (``result.seeds``), the first counts.
        spec: The scores that the column shows: task, split, protocol and metric.
    """
    result_by_seeds: dict[Seeds, Result] = {}
    for result in results:
        is_of_task = (result.task, result.split) == (spec.task, spec.split)
        # A result by another protocol than the column's has no such score.
        if is_of_task and _find_column_score(result, spec) is not None:
            result_by_seeds.setdefault(result.seeds, result)
    return list(result_by_seeds.values())


def _find_column_score(result: Result, spec: ColumnSpec) -> float | None:
    """Return the score of a result that belongs in a column of a table.

    There are two kinds of columns. One has ``spec.protocol_fields``, all fields of a protocol, and
    shows the main score of results with a comparable one. The other names a protocol that
    papers use (``spec.protocol``), and shows the score by that protocol's metric and aggregation,
    the way of combining subsets of a task.

    Args:
        result: The result, on the column's task and split; these are not compared here.
        spec: The scores that the column shows.

    Returns:
        The score, from -1 to 1; None if the result has no such score.
    """
    if spec.protocol_fields:
        # The part is equal for two protocols if and only if their scores are comparable.
        has_protocol = protocol_part(result.protocol) == protocol_part(spec.protocol_fields)
        return result.score if has_protocol else None
    protocol_facts = read_published_protocols().get(spec.protocol)
    if protocol_facts is None:
        return None
    # Fields with the values that they must have in the protocol of a result by this evaluator.
    required_fields = dict(protocol_facts.fields.get(spec.evaluator, {}))
    # Published protocols of STS differ only in aggregation, and each STS result holds the scores
    # by all aggregations, whichever its own is.
    has_aggregations = bool(protocol_facts.aggregation)
    if not has_aggregations:
        required_fields["name"] = spec.protocol
    elif "aggregation" not in result.protocol:
        # It is no result of STS.
        return None
    has_other_fields = any(
        result.protocol.get(key) != value for key, value in required_fields.items()
    )
    if has_other_fields:
        return None
    if not has_aggregations:
        return result.scores.get(spec.metric)
    score = result.scores.get(f"{spec.metric}.{protocol_facts.aggregation}")
    if score is None and spec.has_no_subsets:
        # Without subsets, all aggregations give the same score, which is stored only once.
        return result.scores.get(f"{spec.metric}.all")
    return score


def column_part(result: Result, spec: ColumnSpec) -> ComparedPart:
    """Return what two scores must have in common to be compared, for a score in a column.

    A result is stored with one protocol and metric, but also holds scores by others, which a column
    may show. The returned part of the result's signature names those of the column.

    Args:
        result: The result that holds the score.
        spec: The scores that the column shows.
    """
    # Task, split, number of items, hashes of the task's card and data, and the protocol's fields.
    part = compared_part(result)
    if spec.protocol_fields:
        # Such a column shows the result's own score.
        return part
    fields = {"name": spec.protocol, "metric": spec.metric}
    # How the protocol combines subsets of a task; empty if it has no such choice.
    aggregation = published_protocol(spec.protocol).aggregation
    if aggregation:
        fields["aggregation"] = aggregation
    return part.with_protocol(**fields)


def make_column_spec(
    facts: ColumnFacts, protocol: str, metric: str, catalogue: Catalogue
) -> ColumnSpec:
    """Describe which scores a column of a table shows.

    Args:
        facts: The column as the table's card has it. Its task may also be a suite (a list of
            tasks), or a task that only papers have; these have no evaluator.
        protocol: The name of the protocol, the way of scoring.
        metric: The name of the metric.
        catalogue: The cards of tasks and suites.

    Returns:
        Task, split, protocol, metric, and the name of the code that scores the task (evaluator).
        ``published_split`` and ``published_aggregation`` are what published scores of the column
        name; an aggregation of None is that of the protocol.
    """
    if is_extra_or_suite(facts.task, catalogue):
        return ColumnSpec(
            facts.task,
            split=facts.split,
            published_split=facts.split,
            protocol=protocol,
            metric=metric,
            evaluator="",
            has_no_subsets=True,
            published_aggregation=facts.aggregation,
        )
    card = catalogue.task(facts.task)
    # Published scores say "test" also if a task is scored on its only split.
    split = card.score_split if facts.split == "test" else facts.split
    return ColumnSpec(
        facts.task,
        split=split,
        published_split=facts.split,
        protocol=protocol,
        metric=metric,
        evaluator=card.evaluator,
        has_no_subsets=not any(split_card.subsets for split_card in card.splits.values()),
        published_aggregation=facts.aggregation,
    )


def is_extra_or_suite(task: str, catalogue: Catalogue) -> bool:
    """Return whether a column's task has no card: a task of a paper only, or a suite."""
    return task in read_sources().extras or task in catalogue.suites()


def find_printed_score(
    row: PublishedRow, spec: ColumnSpec | None, other_protocol: str | None, *, lenient: bool
) -> PublishedScore | None:
    """Return the score that a row of a paper's table prints for a column of our table.

    Args:
        row: The row, with all its published scores.
        spec: The scores that the column shows: task, split, protocol and metric; None if it shows
            no scores.
        other_protocol: The protocol to look for; None for the column's own.
        lenient: Return None, instead of raising an error, if the row has scores by other protocols
            only. This is also done if the spec names an aggregation of published scores.

    Returns:
        The score; None if the row has none for this column.

    Raises:
        ProtocolError: The row has scores of other protocols only, unless ``lenient``.
    """
    if spec is None:
        return None
    # The name and aggregation that published scores of the protocol have: no name if it is UNKNOWN.
    protocol = published_protocol(spec.protocol if other_protocol is None else other_protocol)
    if spec.published_aggregation is not None:
        protocol = protocol._replace(aggregation=spec.published_aggregation)
        lenient = True
    candidates = [
        score
        for score in row.scores
        if (score.task, score.split, score.metric) == (spec.task, spec.published_split, spec.metric)
    ]
    for score in candidates:
        if (score.protocol, score.aggregation) == (protocol.name, protocol.aggregation):
            return score
    if candidates and not lenient:
        raise ProtocolError(
            f"published row '{row.key}': {spec.task} is scored by "
            f"'{candidates[0].protocol or UNKNOWN}', its column by '{protocol.name or UNKNOWN}'; "
            "the table must say so in the row"
        )
    return None


class PublishedProtocol(NamedTuple):
    """How published scores name a protocol of ours."""

    name: str
    aggregation: str


def published_protocol(protocol: str) -> PublishedProtocol:
    """Return the name and aggregation that published scores of a protocol have."""
    if protocol == UNKNOWN:
        return PublishedProtocol(name="", aggregation="unknown")
    return PublishedProtocol(
        protocol, read_published_protocols().get(protocol, UNKNOWN_PROTOCOL).aggregation
    )


MTEB_PROTOCOL = {
    "name": "mteb",
    "metric": "spearman",
    "aggregation": "all",
    "similarity": "cosine",
}
"""How MTEB scores STS: one correlation for each task or language, with its prompts for a model."""


def is_scored_as_mteb(columns: Sequence[TableColumn]) -> bool:
    """Return whether MTEB computes the scores of such columns, whatever the protocol's name."""
    return all(_is_mteb_spec(column.spec) for column in columns if column.spec is not None)


def _is_mteb_spec(spec: ColumnSpec) -> bool:
    """Return whether MTEB computes the scores of a column; the protocol's name does not matter."""
    if spec.protocol_fields:
        return {**spec.protocol_fields, "name": MTEB_PROTOCOL["name"]} == MTEB_PROTOCOL
    return spec.metric == "spearman" and published_protocol(spec.protocol).aggregation == "all"
