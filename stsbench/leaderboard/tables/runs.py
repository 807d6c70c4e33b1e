"""One encoder's results, and the numbers that a column takes from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stsbench.leaderboard.published.specs import ProtocolFacts, protocols
from stsbench.results.groups import Runs
from stsbench.results.record import Result

Seeds = tuple[int | None, int]
Series = Mapping[Seeds, float]
"""A score a seed."""


class Wanted(NamedTuple):
    """The scores that a column takes: of which task and split, scored how.

    ``printed`` is the split as published scores name it: ``test`` also where a task has one split only.
    """

    task: str
    split: str
    printed: str
    protocol: str
    metric: str
    evaluator: str
    whole: bool
    """Whether the task has no subsets, so that all aggregations are the same."""
    fields: Mapping[str, Any] = {}
    """All fields of the results' protocol; none where ``protocol`` and ``metric`` say enough."""


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
