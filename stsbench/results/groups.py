"""Results put together: those of one encoder in one state, and what tables call it.

A state is weights, settings, and the versions of the packages that compute.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from stsbench.core.cards import EncoderCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, and_more
from stsbench.core.provenance import versions_in, without_versions
from stsbench.results.folder import ResultFolder
from stsbench.results.record import OVERLAPS, Result

MARK = 6
"""So many signs of a fingerprint tell encoders apart, or more where they begin alike."""
FEWEST = 4
"""A mark of fewer signs is taken for a part of the name."""
NOT_THE_CARDS = " (not the card's)"
"""Behind a card's or recipe's name: results that carry another hash than the card's, or none."""


class Runs(NamedTuple):
    """All results of one encoder in one state of its weights and settings; several training seeds are one state."""

    encoder: str
    label: str
    """The encoder's name, marked where a card has this name and the results are not the card's."""
    mark: str
    """What tells it from others of its label: the beginning of its fingerprint, or a package's version; else nothing."""
    card: EncoderCard | None
    """What is known of it, None where no card or recipe is its."""
    results: Sequence[Result]

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.label} [{self.mark}]" if self.mark else self.label

    @property
    def overlap(self) -> str:
        """Whether its training text overlaps the test sentences of any task: the worst of all results."""
        return max((result.overlap for result in self.results), key=OVERLAPS.index)


def gather_runs(results: Iterable[Result], catalogue: Catalogue | None = None) -> list[Runs]:
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
        label = result.encoder if known else f"{result.encoder}{NOT_THE_CARDS}"
        found.setdefault((result.encoder, label), {}).setdefault(result.encoder_card, []).append(result)
    made: list[Runs] = []
    for (encoder, label), groups in found.items():
        states = [state for card, group in groups.items() for state in _states(card, group)]
        made += [
            Runs(encoder, label, mark, cards[encoder, state.card], state.results)
            for mark, state in zip(_marks(states), states, strict=True)
        ]
    return made


class _State(NamedTuple):
    """Results that stand together, and what tells them from others: card, fingerprint without versions, versions."""

    card: str | None
    weights: str
    versions: dict[str, str]
    results: list[Result]


def _states(card: str | None, results: Sequence[Result]) -> list[_State]:
    return [
        _State(card, without_versions(group[0].state or "none"), versions_in(alike[0].state or ""), alike)
        for group in _apart(results, lambda result: without_versions(result.state or "none"))
        for alike in _apart(group, lambda result: tuple(versions_in(result.state or "").items()))
    ]


def _apart(results: Sequence[Result], fact: Callable[[Result], Hashable]) -> list[list[Result]]:
    """Results by a fact of theirs; together where each training seed has one of its own."""
    groups: dict[Hashable, list[Result]] = {}
    of_seed: dict[int | None, set[Hashable]] = {}
    for result in results:
        groups.setdefault(fact(result), []).append(result)
        of_seed.setdefault(result.train_seed, set()).add(fact(result))
    together = None not in of_seed and all(len(facts) == 1 for facts in of_seed.values())
    return [list(results)] if together else list(groups.values())


def _marks(states: Sequence[_State]) -> list[str]:
    weights = [state.weights for state in states]
    length = _enough(set(weights))
    marks = []
    for state in states:
        same = [other for other in states if other.weights == state.weights]
        of_card = [other for other in same if other.card == state.card]
        digests = {other.card or "none" for other in same}
        words = [state.weights[:length]] if len(set(weights)) > 1 else []
        words += [f"card {(state.card or 'none')[: _enough(digests)]}"] if len(digests) > 1 else []
        words += _telling([other.versions for other in of_card], state.versions)
        marks.append(", ".join(words))
    return marks


def _enough(texts: Collection[str]) -> int:
    longest = max(map(len, texts))
    return next((n for n in range(MARK, longest) if len({text[:n] for text in texts}) == len(texts)), longest)


def _telling(all_versions: Sequence[Mapping[str, str]], versions: Mapping[str, str]) -> list[str]:
    names = sorted({name for one in all_versions for name in one})
    different = {name: len({one.get(name) for one in all_versions}) for name in names}
    alone = [name for name in names if different[name] == len(all_versions) > 1]
    shown = alone[-1:] or [name for name in names if different[name] > 1]
    return [f"{name} {versions.get(name, 'unknown')}" for name in shown]


class Encoders:
    """The encoders of a results folder by the names that tables have for them, those of older states among them."""

    def __init__(self, found: ResultFolder, catalogue: Catalogue | None = None) -> None:
        """Put the folder's results together."""
        self.found = found
        self.current = gather_runs(found.results, catalogue)
        self.all = gather_runs(found.states, catalogue) if found.older else self.current

    @property
    def names(self) -> list[str]:
        """What tables of the current results call them."""
        return [one.name for one in self.current]

    def called(self, spec: str) -> list[Result]:
        """The results that a name means: the current ones of an encoder, or all of the state that a mark behind it tells.

        ``final`` is every current result of that name, ``final [3f2a1b]`` (or ``final[3f2a1b]``) those whose fingerprint begins so.
        """
        runs = (
            [one for one in self.current if one.label == spec]
            or [one for one in self.current if one.encoder == spec]
            or [one for one in self.all if one.name == spec]
            or [one for one in self.all if any(is_called(spec, (one.encoder, one.label), r.state) for r in one.results)]
        )
        return [result for one in runs for result in one.results]

    def of_one(self, spec: str, results: Sequence[Result]) -> Sequence[Result]:
        """Some of the results, if one encoder made them all; trained with several seeds it is still one.

        Raises:
            DataError: there are none, or several encoders made them; lists them.
        """
        wanted = {id(result) for result in results}
        runs = [one for one in self.all if not wanted.isdisjoint(map(id, one.results))]
        names = sorted({one.encoder for one in runs})
        if not runs:
            raise DataError(f"'{spec}' holds no results")
        if len(names) > 1:
            raise DataError(
                f"'{spec}' holds results of {len(names)} encoders ({', '.join(names[:5])}); name one of them"
            )
        if len(runs) > 1:
            listed = " or ".join(f"'{one.name}'" for one in sorted(runs, key=lambda one: one.name))
            raise DataError(f"'{spec}' names encoders of different fingerprints or cards; say {listed}")
        return results

    def older_line(self, shown: Iterable[Result]) -> str:
        """What is left out beside the results that are shown: their cells' older states, by name; nothing where there are none."""
        wanted = {id(result) for result in shown}
        places = {result.place for result in self.found.results if id(result) in wanted}
        left = {id(one) for one in self.found.older if one.place in places and id(one) not in wanted}
        counts = {one.name: sum(id(result) in left for result in one.results) for one in self.all}
        named = [f"'{name}' ({count})" for name, count in counts.items() if count]
        left_out = "1 result of an older state" if len(left) == 1 else f"{len(left)} results of older states"
        line = f"{left_out} left out: {and_more(named)}; what 'stsbench run' made or reused last counts"
        return line if left else ""


def is_called(spec: str, names: Sequence[str], state: str | None) -> bool:
    """Whether a name is one of these; what it has in brackets is to be of the fingerprint: its beginning, or a version."""
    plain, bracket, mark = spec.removesuffix("]").rpartition("[")
    if not bracket or not spec.endswith("]"):
        return spec in names
    known = [f"{name} {version}" for name, version in versions_in(state or "").items()]
    begun = [word for word in mark.split(", ") if word not in known]
    marked = all(len(word) >= FEWEST and (state or "none").startswith(word) for word in begun)
    return spec in names or (marked and plain.removesuffix(" ") in names)
