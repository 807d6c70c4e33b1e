"""Results put together: those of one encoder in one state, and what tables call it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import EncoderCard
from stsbench.errors import DataError, UnknownName
from stsbench.results.checks import OVERLAPS
from stsbench.results.record import Result

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
    """The beginning of the fingerprint where the label has several, else nothing."""
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

    An encoder whose weights, settings or card changed under its name is several.

    Args:
        results: any results.
        catalogue: cards of the project and of the user.
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
        states = [(card, state) for card, group in groups.items() for state in _states(group)]
        marks = _marks([state[0].state for _, state in states])
        made += [
            Runs(encoder, label, mark, cards[encoder, card], state)
            for mark, (card, state) in zip(marks, states, strict=True)
        ]
    return made


def _states(results: Sequence[Result]) -> list[list[Result]]:
    """Results of one name and card by fingerprint; those of training seeds that have one each are one state."""
    prints: dict[str | None, list[Result]] = {}
    of_seed: dict[int | None, set[str | None]] = {}
    for result in results:
        prints.setdefault(result.state, []).append(result)
        of_seed.setdefault(result.train_seed, set()).add(result.state)
    trained = None not in of_seed and all(len(states) == 1 for states in of_seed.values())
    return [list(results)] if trained else list(prints.values())


def _marks(states: Sequence[str | None]) -> list[str]:
    """The beginnings of fingerprints that tell them apart; nothing where there is one alone."""
    if len(states) == 1:
        return [""]
    marks = [state or "none" for state in states]
    longest = max(map(len, marks))
    length = next((n for n in range(MARK, longest) if len({m[:n] for m in marks}) == len(marks)), longest)
    return [mark[:length] for mark in marks]


def called(spec: str, runs: Sequence[Runs]) -> list[Runs]:
    """The runs that a name means: that of this very name; else all of the encoder, or of a mark behind it.

    ``final`` is every encoder of that name, ``final [3f2a1b]`` (or ``final[3f2a1b]``) the one whose fingerprint begins so.
    """
    exact = [one for one in runs if one.name == spec]
    found = [
        one for one in runs if any(is_called(spec, (one.encoder, one.label), result.state) for result in one.results)
    ]
    return exact or found


def results_of(spec: str, results: Sequence[Result], catalogue: Catalogue | None = None) -> Sequence[Result]:
    """The results of the encoder of this name, ``name [fingerprint]`` where a name has several.

    Raises:
        UnknownName: no result is of this encoder.
        DataError: the name's results were made by several encoders.
    """
    runs = gather_runs(results, catalogue)
    mine = called(spec, runs)
    if not mine:
        hint = "give a name of the results folder, or a folder of results"
        raise UnknownName("encoder", spec, [one.name for one in runs], hint=hint)
    return _only(spec, mine)


def of_one_encoder(spec: str, results: Sequence[Result], catalogue: Catalogue | None = None) -> Sequence[Result]:
    """These results, if one encoder made them all; trained with several seeds it is still one.

    Raises:
        DataError: there are none, or several encoders made them; lists them.
    """
    if not results:
        raise DataError(f"'{spec}' holds no results")
    return _only(spec, gather_runs(results, catalogue))


def _only(spec: str, runs: Sequence[Runs]) -> Sequence[Result]:
    """The results of the only one of these encoders."""
    names = sorted({one.encoder for one in runs})
    if len(names) > 1:
        raise DataError(f"'{spec}' holds results of {len(names)} encoders ({', '.join(names[:5])}); name one of them")
    if len(runs) > 1:
        listed = " or ".join(f"'{one.name}'" for one in sorted(runs, key=lambda one: one.name))
        raise DataError(f"'{spec}' names encoders of different fingerprints or cards; say {listed}")
    return runs[0].results


def is_called(spec: str, names: Sequence[str], state: str | None) -> bool:
    """Whether a name, with the beginning of a fingerprint in brackets or without, is one of these."""
    plain, bracket, mark = spec.removesuffix("]").rpartition("[")
    marked = bracket and spec.endswith("]") and len(mark) >= FEWEST and (state or "none").startswith(mark)
    return spec in names or bool(marked and plain.removesuffix(" ") in names)
