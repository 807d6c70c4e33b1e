"""Results put together: those of one encoder in one state, and what tables call it.

A state is weights and settings. Packages of other versions make another row only where a score comes out otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import EncoderCard
from stsbench.errors import DataError
from stsbench.provenance.identity import versions_in, without_versions
from stsbench.results.checks import OVERLAPS
from stsbench.results.comparable import protocol_key
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
    """What tells it from others of its label: the beginning of its fingerprint, or a package's version; else nothing."""
    card: EncoderCard | None
    """What is known of it, None where no card or recipe is its."""
    results: Sequence[Result]
    """One a cell: of versions that score alike the newest."""

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

    An encoder whose weights, settings or card changed under its name is several. So is one whose score differs, as
    printed, between versions of the packages that compute it, or of which no score tells whether it does.

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
    """Results of one name and card by fingerprint; those of training seeds that have one each are one state."""
    prints: dict[str, list[Result]] = {}
    of_seed: dict[int | None, set[str]] = {}
    for result in results:
        weights = without_versions(result.state or "none")
        prints.setdefault(weights, []).append(result)
        of_seed.setdefault(result.train_seed, set()).add(weights)
    if None not in of_seed and all(len(states) == 1 for states in of_seed.values()):
        prints = {next(iter(prints)): list(results)}
    return [
        _State(card, weights, versions_in(alike[0].state or ""), alike)
        for weights, group in prints.items()
        for alike in _by_versions(group)
    ]


def _by_versions(results: Sequence[Result]) -> list[list[Result]]:
    """Results of the same weights, by versions that score differently; the newest of those that score alike."""
    by_versions: dict[tuple[tuple[str, str], ...], dict[_Cell, Result]] = {}
    newest_first = sorted(results, key=lambda result: str(result.run.get("created", "")), reverse=True)
    for result in newest_first:
        versions = tuple(versions_in(result.state or "").items())
        by_versions.setdefault(versions, {}).setdefault(_cell(result), result)
    alike: list[dict[_Cell, Result]] = []
    for cells in by_versions.values():
        same = next((one for one in alike if _score_alike(one, cells)), None)
        if same is None:
            alike.append(cells)
        else:
            same.update({cell: result for cell, result in cells.items() if cell not in same})
    places = {id(result): place for place, result in enumerate(results)}
    return [sorted(one.values(), key=lambda result: places[id(result)]) for one in alike]


_Cell = tuple[str, str, str, str, int | None, int]


def _cell(result: Result) -> _Cell:
    """What two results of the same weights share where their scores are to be the same."""
    return (result.task, result.split, protocol_key(result.protocol), result.data, *result.seeds)


def _score_alike(ones: Mapping[_Cell, Result], others: Mapping[_Cell, Result]) -> bool:
    """Whether cells of both are there and print the same scores; of other training seeds, none can be."""
    shared = ones.keys() & others.keys()
    if not shared:
        return not {one.train_seed for one in ones.values()} & {other.train_seed for other in others.values()}
    return all(_printed(ones[cell]) == _printed(others[cell]) for cell in shared)


def _printed(result: Result) -> dict[str, str]:
    """Scores in points, as tables print them."""
    return {name: f"{100 * score:.2f}" for name, score in {**result.scores, "": result.score}.items()}


def _marks(states: Sequence[_State]) -> list[str]:
    """The fewest words that tell states apart: of fingerprint, card, and versions; nothing where there is one alone."""
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
    """So many signs from the beginning tell texts apart."""
    longest = max(map(len, texts))
    return next((n for n in range(MARK, longest) if len({text[:n] for text in texts}) == len(texts)), longest)


def _telling(all_versions: Sequence[Mapping[str, str]], versions: Mapping[str, str]) -> list[str]:
    """The package whose version tells some apart, or all that differ where no one does; nothing where there is one."""
    names = sorted({name for one in all_versions for name in one})
    different = {name: len({one.get(name) for one in all_versions}) for name in names}
    alone = [name for name in names if different[name] == len(all_versions) > 1]
    shown = alone[-1:] or [name for name in names if different[name] > 1]
    return [f"{name} {versions.get(name, 'unknown')}" for name in shown]


def called(spec: str, runs: Sequence[Runs]) -> list[Runs]:
    """The runs that a name means: that of this very name; else all of the encoder, or of a mark behind it.

    ``final`` is every encoder of that name, ``final [3f2a1b]`` (or ``final[3f2a1b]``) the one whose fingerprint begins so.
    """
    exact = [one for one in runs if one.name == spec]
    found = [
        one for one in runs if any(is_called(spec, (one.encoder, one.label), result.state) for result in one.results)
    ]
    return exact or found


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
    """Whether a name is one of these; what it has in brackets is to be of the fingerprint: its beginning, or a version."""
    plain, bracket, mark = spec.removesuffix("]").rpartition("[")
    if not bracket or not spec.endswith("]"):
        return spec in names
    told = [f"{name} {version}" for name, version in versions_in(state or "").items()]
    begun = [word for word in mark.split(", ") if word not in told]
    marked = all(len(word) >= FEWEST and (state or "none").startswith(word) for word in begun)
    return spec in names or (marked and plain.removesuffix(" ") in names)
