"""Results put together: those of one encoder in one state, what tables call it, and which scores may stand side by side.

A state is weights, settings, and the versions of the packages that compute.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from stsbench.core.cards import EncoderCard, task_digest
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, ProtocolError
from stsbench.core.provenance import read_versions, strip_versions
from stsbench.core.wording import format_some
from stsbench.results.folder import ResultFolder
from stsbench.results.record import OVERLAPS, Result

TAG_LENGTH = 6
"""So many signs of a fingerprint tell encoders apart, or more where they begin alike."""
MIN_TAG_LENGTH = 4
"""A mark of fewer signs is taken for a part of the name."""
UNMATCHED_CARD_SUFFIX = " (not the card's)"
"""Behind a card's or recipe's name: results that carry another hash than the card's, or none."""


class EncoderResults(NamedTuple):
    """All results of one encoder in one state of its weights and settings; several training seeds are one state."""

    encoder: str
    label: str
    """The encoder's name, marked where a card has this name and the results are not the card's."""
    state_tag: str
    """What tells it from others of its label: the beginning of its fingerprint, or a package's version; else nothing."""
    card: EncoderCard | None
    """What is known of it, None where no card or recipe is its."""
    results: Sequence[Result]

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.label} [{self.state_tag}]" if self.state_tag else self.label

    @property
    def overlap(self) -> str:
        """Whether its training text overlaps the test sentences of any task: the worst of all results."""
        return max((result.overlap for result in self.results), key=OVERLAPS.index)


def group_by_encoder(
    results: Iterable[Result], catalogue: Catalogue | None = None
) -> list[EncoderResults]:
    """Put the results of one encoder together, by name, card and fingerprint: nothing else is averaged as seeds.

    Results of an encoder whose weights, settings or card changed under its name, or the versions of the packages that
    compute it, are of several states, each of them a row. The current results of a folder are so where only some tasks
    were run again.
    """
    catalogue = catalogue or Catalogue()
    cards: dict[tuple[str, str | None], EncoderCard | None] = {}
    found: dict[tuple[str, str], dict[str | None, list[Result]]] = {}
    for result in results:
        key = result.encoder, result.encoder_card
        if key not in cards:
            cards[key] = catalogue.known_encoder(*key)
        known = cards[key] is not None or not catalogue.is_taken(result.encoder)
        label = result.encoder if known else f"{result.encoder}{UNMATCHED_CARD_SUFFIX}"
        found.setdefault((result.encoder, label), {}).setdefault(result.encoder_card, []).append(
            result
        )
    made: list[EncoderResults] = []
    for (encoder, label), groups in found.items():
        states: list[tuple[str | None, _Facts, list[Result]]] = []
        for card, group in groups.items():
            for weights in _apart(group, lambda result: strip_versions(result.state or "none")):
                for alike in _apart(
                    weights, lambda result: tuple(read_versions(result.state or "").items())
                ):
                    state, versions = (
                        strip_versions(weights[0].state or "none"),
                        read_versions(alike[0].state or ""),
                    )
                    states.append((card, {"": state, "card": card or "none", **versions}, alike))
        marks = _marks([facts for _, facts, _ in states])
        for mark, (card, _, alike) in zip(marks, states, strict=True):
            made.append(EncoderResults(encoder, label, mark, cards[encoder, card], alike))
    return made


_Facts = Mapping[str, str]
"""What tells a state from others: under no name its fingerprint without versions, its ``card``, and packages' versions."""


def _apart(results: Sequence[Result], fact: Callable[[Result], Hashable]) -> list[list[Result]]:
    """Results by a fact of theirs; together where each training seed has one of its own."""
    groups: dict[Hashable, list[Result]] = {}
    of_seed: dict[int | None, set[Hashable]] = {}
    for result in results:
        groups.setdefault(fact(result), []).append(result)
        of_seed.setdefault(result.train_seed, set()).add(fact(result))
    together = None not in of_seed and all(len(facts) == 1 for facts in of_seed.values())
    return [list(results)] if together else list(groups.values())


def _marks(states: Sequence[_Facts]) -> list[str]:
    marks = []
    for state in states:
        words, alike = list[str](), list(states)
        for fact in ("", "card"):
            values = {one[fact] for one in alike}
            longest = max(map(len, values))
            enough = (
                n
                for n in range(TAG_LENGTH, longest)
                if len({value[:n] for value in values}) == len(values)
            )
            words += (
                [f"{fact} {state[fact][: next(enough, longest)]}".lstrip()]
                if len(values) > 1
                else []
            )
            alike = [one for one in alike if one[fact] == state[fact]]
        names = sorted({name for one in alike for name in one} - {"", "card"})
        different = {name: len({one.get(name) for one in alike}) for name in names}
        # One package that tells all apart is enough.
        alone = [name for name in names if different[name] == len(alike) > 1]
        shown = alone[-1:] or [name for name in names if different[name] > 1]
        marks.append(
            ", ".join([*words, *(f"{name} {state.get(name, 'unknown')}" for name in shown)])
        )
    return marks


class EncoderDirectory:
    """The encoders of a results folder by the names that tables have for them, those of older states among them."""

    def __init__(self, folder: ResultFolder, catalogue: Catalogue | None = None) -> None:
        """Put the folder's results together."""
        self.folder = folder
        self.current = group_by_encoder(folder.results, catalogue)
        self.groups = (
            group_by_encoder(folder.all_results, catalogue) if folder.older else self.current
        )

    @property
    def names(self) -> list[str]:
        """What tables of the current results call them."""
        return [one.name for one in self.current]

    def resolve(self, spec: str) -> list[Result]:
        """The results that a name means: the current ones of an encoder, or all of the state that a mark behind it tells.

        ``final`` is every current result of that name, ``final [3f2a1b]`` (or ``final[3f2a1b]``) those whose fingerprint begins so.
        """
        runs = (
            [one for one in self.current if one.label == spec]
            or [one for one in self.current if one.encoder == spec]
            or [one for one in self.groups if one.name == spec]
            or [
                one
                for one in self.groups
                if any(matches_name(spec, (one.encoder, one.label), r.state) for r in one.results)
            ]
        )
        return [result for one in runs for result in one.results]

    def require_one_encoder(self, spec: str, results: Sequence[Result]) -> Sequence[Result]:
        """Some of the results, if one encoder made them all; trained with several seeds it is still one.

        Raises DataError: there are none, or several encoders made them; lists them.
        """
        wanted = {id(result) for result in results}
        runs = [one for one in self.groups if not wanted.isdisjoint(map(id, one.results))]
        names = sorted({one.encoder for one in runs})
        if not runs:
            raise DataError(f"'{spec}' holds no results")
        if len(names) > 1:
            known = ", ".join(names[:5])
            raise DataError(
                f"'{spec}' holds results of {len(names)} encoders ({known}); name one of them"
            )
        if len(runs) > 1:
            listed = " or ".join(f"'{one.name}'" for one in sorted(runs, key=lambda one: one.name))
            raise DataError(
                f"'{spec}' names encoders of different fingerprints or cards; say {listed}"
            )
        return results

    def describe_omitted(self, shown: Iterable[Result]) -> str:
        """What is left out beside the results that are shown: their cells' older states, by name; nothing where there are none."""
        wanted = {id(result) for result in shown}
        places = {result.cell_key for result in self.folder.results if id(result) in wanted}
        left = {
            id(one) for one in self.folder.older if one.cell_key in places and id(one) not in wanted
        }
        counts = {
            one.name: sum(id(result) in left for result in one.results) for one in self.groups
        }
        named = [f"'{name}' ({count})" for name, count in counts.items() if count]
        left_out = (
            "1 result of an older state"
            if len(left) == 1
            else f"{len(left)} results of older states"
        )
        line = f"{left_out} left out: {format_some(named)}; what 'stsbench run' made or reused last counts"
        return line if left else ""


def matches_name(spec: str, names: Sequence[str], state: str | None) -> bool:
    """Whether a name is one of these; what it has in brackets is to be of the fingerprint: its beginning, or a version."""
    plain, bracket, mark = spec.removesuffix("]").rpartition("[")
    if not bracket or not spec.endswith("]"):
        return spec in names
    known = [f"{name} {version}" for name, version in read_versions(state or "").items()]
    begun = [word for word in mark.split(", ") if word not in known]
    marked = all(
        len(word) >= MIN_TAG_LENGTH and (state or "none").startswith(word) for word in begun
    )
    return spec in names or (marked and plain.removesuffix(" ") in names)


class _ScoreConditions(Protocol):
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


def describe_mismatch(first: _ScoreConditions, second: _ScoreConditions) -> str | None:
    """The first thing that keeps two scores of a task apart, as part of a sentence; None where nothing does."""
    if first.split != second.split:
        return f"split differs: '{first.split}' against '{second.split}'"
    fields = [key for key in dict.fromkeys([*first.protocol, *second.protocol]) if key != "name"]
    # The name only where nothing else differs, for it says least.
    for field in [*fields, "name"]:
        ours, theirs = (_shown(one.protocol, field) for one in (first, second))
        if ours != theirs:
            return f"protocol field '{field}' differs: {ours} against {theirs}"
    return describe_version_mismatch(first, second)


def describe_version_mismatch(first: _ScoreConditions, second: _ScoreConditions) -> str | None:
    """The same of two scores of one split that a column may take from different protocols: their data and the task's card."""
    for field, said in (
        ("data", "data hash"),
        ("n", "number of items"),
        ("task_card", "task card's hash"),
    ):
        ours, theirs = (str(getattr(one, field)) for one in (first, second))
        if ours != theirs:
            return f"{said} differs: {ours[:12]} against {theirs[:12]}"
    return None


def select_comparable(
    results: Iterable[Result], catalogue: Catalogue
) -> tuple[list[Result], list[str]]:
    """The results whose scores may stand in one column, task by task and split by split, and a line on those left out.

    Where some were scored by the task's card as it is here, and others by another version of it, the others are left out.
    Raises ProtocolError: two that are left are of other data, or of cards that are not here; names the field.
    """
    columns: dict[tuple[str, str], list[Result]] = {}
    for result in (given := list(results)):
        columns.setdefault((result.task, result.split), []).append(result)
    left_out: list[str] = []
    away: set[int] = set()
    for (task, _), column in columns.items():
        cards = {result.task_card for result in column}
        if (
            len(cards) > 1
            and task in catalogue.paths("tasks")
            and (ours := task_digest(catalogue.task(task))) in cards
        ):
            others = [result for result in column if result.task_card != ours]
            named = ", ".join(dict.fromkeys(result.encoder for result in others))
            left_out.append(
                f"{task}: {named}: task card's hash differs: {others[0].task_card[:12]} against {ours[:12]} of the card "
                "here; run the task again"
            )
            column = [result for result in column if result.task_card == ours]
            away |= {id(result) for result in others}
        for result in column:
            if (differs := describe_version_mismatch(column[0], result)) is not None:
                names = f"'{column[0].encoder}' and '{result.encoder}'"
                raise ProtocolError(
                    f"{task}: the scores of {names} cannot stand in one column: {differs}",
                    hint="run the task again with one of them, or choose encoders",
                )
    return [result for result in given if id(result) not in away], left_out


def _shown(protocol: Mapping[str, Any], field: str) -> str:
    return (
        json.dumps(protocol[field], ensure_ascii=False).replace('"', "'")
        if field in protocol
        else "none"
    )


def suite_mean(
    terms: Sequence[str | Sequence[str]], score: Callable[[str], float | None]
) -> float | None:
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
