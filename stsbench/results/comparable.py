"""Which scores may stand side by side: same split, protocol, data and task card, else the field that differs; and means over tasks."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from stsbench.core.cards import task_digest
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import ProtocolError
from stsbench.results.record import Result


class _Scored(Protocol):
    """What both a Result and a row of a lock file tell of the way a score was made."""

    @property
    def split(self) -> str: ...
    @property
    def protocol(self) -> Mapping[str, Any]: ...
    @property
    def data(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def task_card(self) -> str: ...


def why_not_comparable(first: _Scored, second: _Scored) -> str | None:
    """The first thing that keeps two scores of a task apart, as part of a sentence; None where nothing does."""
    if first.split != second.split:
        return f"split differs: '{first.split}' against '{second.split}'"
    fields = [key for key in dict.fromkeys([*first.protocol, *second.protocol]) if key != "name"]
    # The name only where nothing else differs, for it says least.
    for field in [*fields, "name"]:
        ours, theirs = (_shown(one.protocol, field) for one in (first, second))
        if ours != theirs:
            return f"protocol field '{field}' differs: {ours} against {theirs}"
    return why_another_version(first, second)


def why_another_version(first: _Scored, second: _Scored) -> str | None:
    """The same of two scores of one split that a column may take from different protocols: their data and the task's card."""
    for field, said in (("data", "data hash"), ("n", "number of items"), ("task_card", "task card's hash")):
        ours, theirs = (str(getattr(one, field)) for one in (first, second))
        if ours != theirs:
            return f"{said} differs: {ours[:12]} against {theirs[:12]}"
    return None


def side_by_side(results: Iterable[Result], catalogue: Catalogue) -> tuple[list[Result], list[str]]:
    """The results whose scores may stand in one column, task by task and split by split, and a line on those left out.

    Where some were scored by the task's card as it is here, and others by another version of it, the others are left out.

    Raises:
        ProtocolError: two that are left are of other data, or of cards that are not here; names the field.
    """
    columns: dict[tuple[str, str], list[Result]] = {}
    for result in (given := list(results)):
        columns.setdefault((result.task, result.split), []).append(result)
    left_out: list[str] = []
    away: set[int] = set()
    for (task, _), column in columns.items():
        cards = {result.task_card for result in column}
        if len(cards) > 1 and task in catalogue.paths("tasks") and (ours := task_digest(catalogue.task(task))) in cards:
            others = [result for result in column if result.task_card != ours]
            named = ", ".join(dict.fromkeys(result.encoder for result in others))
            left_out.append(
                f"{task}: {named}: task card's hash differs: {others[0].task_card[:12]} against {ours[:12]} of the card "
                "here; run the task again"
            )
            column = [result for result in column if result.task_card == ours]
            away |= {id(result) for result in others}
        for result in column:
            if (differs := why_another_version(column[0], result)) is not None:
                names = f"'{column[0].encoder}' and '{result.encoder}'"
                raise ProtocolError(
                    f"{task}: the scores of {names} cannot stand in one column: {differs}",
                    hint="run the task again with one of them, or choose encoders",
                )
    return [result for result in given if id(result) not in away], left_out


def _shown(protocol: Mapping[str, Any], field: str) -> str:
    return json.dumps(protocol[field], ensure_ascii=False).replace('"', "'") if field in protocol else "none"


def suite_mean(terms: Sequence[str | Sequence[str]], score: Callable[[str], float | None]) -> float | None:
    """The mean over a suite's tasks, a list of them counting as one; None where the score of one is missing."""
    means = []
    for term in terms:
        scores = [score(task) for task in ([term] if isinstance(term, str) else term)]
        known = [one for one in scores if one is not None]
        if len(known) < len(scores) or not scores:
            return None
        means.append(statistics.fmean(known))
    return statistics.fmean(means) if means else None


def seed_means(tasks: Sequence[Sequence[Result]]) -> list[float]:
    """The mean over tasks of each seed, given the Results of each task; none where not all tasks have the same seeds."""
    scores = [{one.seeds: one.score for one in results} for results in tasks]
    if not scores or any(one.keys() != scores[0].keys() for one in scores):
        return []
    return [statistics.fmean(one[seed] for one in scores) for seed in sorted(scores[0], key=str)]
