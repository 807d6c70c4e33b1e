"""Encoders by any name that is printed: a card's id or title, a row of a table, a name with changes or a mark.

Which results a name means is decided here, for commands and for Python alike.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from stsbench.boards.published.rows import (
    published_rows,
    read_table_card,
    row_facts,
    sources,
    table_names,
)
from stsbench.boards.tables.rows import AddedRow
from stsbench.boards.tables.table import SYMBOLS
from stsbench.check.lock import CheckSide, LockedCell, lock_cell
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, OutputError, StsbenchError, UnknownName
from stsbench.core.files import safe_file_name
from stsbench.core.names import PARAM_SEPARATOR, split_names, split_params
from stsbench.core.settings import key_among
from stsbench.data.task import tasks_in_order
from stsbench.encoders.kinds import ENCODERS, cards_of_model
from stsbench.encoders.metadata import is_name
from stsbench.encoders.named import variant_name
from stsbench.encoders.runs import RUN_FILE, run_folders
from stsbench.evaluators.belief import believe
from stsbench.results.folder import read_folder
from stsbench.results.groups import UNMATCHED_CARD_SUFFIX, EncoderDirectory, matches_name
from stsbench.results.record import MAX_ENCODER_BYTES, Result

STATE_SUFFIX = re.compile(
    rf"(?P<plain>.*?)(?P<state>({re.escape(UNMATCHED_CARD_SUFFIX)})?( \[[^\[\]]+\])?)"
)
SEED_NAME = re.compile(r"(?P<recipe>[^@+]+)@(?P<seed>\d{1,10})(?P<changes>(\+.*)?)")
Say = Callable[[str], None]


class NameCandidate(NamedTuple):
    """A name as results may have it, and the training seed that is meant alone."""

    name: str
    seed: int | None = None

    def find_in(self, encoders: EncoderDirectory) -> set[int]:
        """The results that it means, by their identity in this process."""
        return {
            id(result)
            for result in encoders.resolve(self.name)
            if self.seed in (None, result.train_seed)
        }

    def matches_cell(self, cell: LockedCell) -> bool:
        """Whether it means a row of a lock, which tells no card."""
        named = matches_name(
            self.name, (cell.encoder, f"{cell.encoder}{UNMATCHED_CARD_SUFFIX}"), cell.fingerprint
        )
        return named and self.seed in (None, cell.train_seed)


class NameResolver:
    """What the cards and recipes of a catalogue are called beside their ids."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Note the catalogue; nothing is read before it is asked for."""
        self.catalogue = catalogue

    @cached_property
    def ids(self) -> set[str]:
        """What cards and recipes are called in the first place."""
        return {*self.catalogue.paths("baselines"), *self.catalogue.paths("trainers")}

    @cached_property
    def encoders_by_title(self) -> dict[str, set[str]]:
        """The encoder of each title that one has, and those of each row of papers' tables; ``""`` is one that no card is of."""
        # A card and a recipe of one id may have two titles.
        titles = [
            (name, self.catalogue.recipe(name).name) for name in self.catalogue.paths("trainers")
        ]
        titles += [
            (name, self.catalogue.encoder(name).name) for name in self.catalogue.paths("baselines")
        ]
        counts = Counter(title for _, title in set(titles))
        own = {name: title for name, title in titles if counts[title] == 1}
        found: dict[str, set[str]] = {}
        rows = published_rows()
        for row in rows.values():
            for label in {row.row, own.get(row.encoder, row.row)}:
                for text in (label, f"{label} ({sources().papers[row.paper].name})"):
                    found.setdefault(text, set()).add(row.encoder)
        for card in map(read_table_card, table_names()):
            for facts in (
                facts for group in card.groups for facts in row_facts(group) if facts.label
            ):
                found.setdefault(facts.label, set()).add(
                    rows[f"{card.paper}/{card.table}/{facts.row}"].encoder
                )
        return found | {title: {name} for name, title in titles if counts[title] == 1}

    @cached_property
    def title_lengths(self) -> dict[str, set[int]]:
        """The lengths of titles and rows that have a comma in them, as :func:`_lengths` has them."""
        return _lengths(self.encoders_by_title)

    def join_parts(self, parts: Sequence[str], known: Iterable[str] = ()) -> list[str]:
        """Names of a comma list; those are put together again that have a comma in them: titles, rows, or ``known``."""

        def is_one(text: str, length: int) -> bool:
            stem = PARAM_SEPARATOR.split(_plain(text), maxsplit=1)[0]
            is_title = (
                not clear
                and stem in self.encoders_by_title
                and length in map(len, _comma_parts(stem))
            )
            return is_title or text in known_names

        known_names, known_lengths = frozenset(known), _lengths(known)
        names, at = [], 0
        while at < len(parts):
            # No title has a slash: a path or a Hub id is waited for by no reading of all cards.
            clear = "/" in parts[at] or self._is_clear(parts[at])
            lengths = known_lengths.get(parts[at], set())
            if not clear:
                lengths = lengths | self.title_lengths.get(parts[at], set())
            joined = _joined(parts, at, lengths)
            at, name = next(
                (end, text) for end, text in joined if end == at + 1 or is_one(text, end - at)
            )
            names.append(name)
        return names

    def to_id(self, name: str, *, measured: bool) -> str:
        """The same name with an id in the place of a title or of a table's row; ``measured`` ones are of a card.

        Raises:
            StsbenchError: a row of tables of which it is not clear what encoder it is; says which it may be.
        """
        for stem, _ in split_params(name):
            if stem in self.ids:
                return name
            if stem in self.encoders_by_title:
                known = sorted(self.encoders_by_title[stem] - {""})
                if len(known) != 1 or not (measured or self.encoders_by_title[stem] == {*known}):
                    several = f"of several encoders; give {' or '.join(map(repr, known))}"
                    none = "that no card is of; 'stsbench list encoders' shows what can be named"
                    raise StsbenchError(
                        f"'{stem}' is a row of papers' tables {several if known else none}"
                    )
                return known[0] + name.removeprefix(stem)
        return name

    def resolve_specs(self, parts: Sequence[str], results: Path = Path("results")) -> list[str]:
        """Names as an encoder or a recipe is loaded by them; one that tells some of several results is refused."""
        return list(dict.fromkeys(self._to_load(name, results) for name in self.join_parts(parts)))

    def resolve_spec(self, name: str) -> str:
        """The same of one name, in which a comma is a sign like any other; nothing is nothing."""
        return self.resolve_specs([name])[0] if name else ""

    def _is_clear(self, name: str) -> bool:
        # A card's or recipe's, a path or code: no other meaning is looked for.
        is_card = re.split("[@+]", name, maxsplit=1)[0] in self.ids
        # No file has a name that is too long for one, which Path would raise.
        return is_card or ":" in name or name.endswith(".toml") or os.path.exists(name)  # noqa: PTH110

    def _to_load(self, name: str, results: Path) -> str:
        stem, changes = list(split_params(name))[-1]
        if problem := key_among(changes):
            raise CardError(f"--encoder {stem}: {problem}")
        plain = _plain(name)
        if (plain == name and self._is_clear(name)) or name in ENCODERS.names():
            return name
        # No title has a slash, and a Hub id has one.
        of_results = plain != name.rstrip(SYMBOLS)
        meant = plain if "/" in plain else self.to_id(plain, measured=of_results)
        if of_results:
            raise StsbenchError(f"'{name}' names results, not what made them; give '{meant}'")
        if meant == name and not run_folders(name) and (of := _held_name(name, results)):
            raise StsbenchError(of)
        return meant

    def iter_candidates(self, name: str) -> Iterator[NameCandidate]:
        """What results may call the encoder of a name, nearest first."""
        yield NameCandidate(name)
        plain = _plain(name)
        meant = plain if "/" in plain else self.to_id(plain, measured=True)
        state = name.rstrip(SYMBOLS).removeprefix(plain)
        others = [
            f"{meant}{state}",
            name.replace("--", "/"),
            *(cards_of_model(name, self.catalogue) if "/" in name else ()),
        ]
        # Results sort the parameters, and print each value in one way.
        sorted_name = variant_name(*list(split_params(meant))[-1])
        yield from map(NameCandidate, [*others, f"{sorted_name}{state}"])
        if found := SEED_NAME.fullmatch(meant):
            yield NameCandidate(found["recipe"] + found["changes"], int(found["seed"]))


def _comma_parts(name: str) -> list[list[str]]:
    """The parts of a name as a comma list cuts it, and cut at commas inside brackets and quotes too."""
    return [split_names(name), [part.strip() for part in name.split(",")]]


def _lengths(names: Iterable[str]) -> dict[str, set[int]]:
    """Return into how many parts names with a comma in them are cut, by the first part."""
    lengths: dict[str, set[int]] = {}
    for parts in chain.from_iterable(map(_comma_parts, names)):
        if len(parts) > 1:
            lengths.setdefault(parts[0], set()).add(len(parts))
    return lengths


def _joined(parts: Sequence[str], at: int, lengths: set[int]) -> Iterator[tuple[int, str]]:
    """What the parts of a comma list from a place on may be together, the longest first, and where it ends."""
    for length in sorted(lengths | {1}, reverse=True):
        if at + length <= len(parts):
            yield from ((at + length, comma.join(parts[at : at + length])) for comma in (", ", ","))


def _plain(name: str) -> str:
    """A name without the marks of tables, and without what tells one state of an encoder from another."""
    found = STATE_SUFFIX.fullmatch(name.rstrip(SYMBOLS))
    return found["plain"] if found else name


def _held_name(name: str, results: Path) -> str:
    """What to give in the place of a name that only results have: of a folder, a file or a class."""
    try:
        held = read_folder(results, safe_file_name(name, MAX_ENCODER_BYTES)).all_results
    except (OutputError, DataError):
        return ""
    if not held or any(one.revision for one in held):
        return ""
    if held[0].encoder != name:
        return f"'{name}' is a folder of {results}; give '{held[0].encoder}'"
    return f"'{name}' is what {results} calls an encoder that has no card; give its folder, file or class"


def _chosen(
    given: Sequence[str],
    catalogue: Catalogue,
    known: Sequence[str],
    where: Path,
    meant: Callable[[NameCandidate], set[int]],
) -> Iterator[tuple[str, set[int]]]:
    """For each name how ``where`` spells it, and what is meant; raises UnknownName for one that it has not."""
    names = NameResolver(catalogue)
    for name in names.join_parts(given, known):
        for one in names.iter_candidates(name):
            if (mine := meant(one)) or one.name in known:
                yield one.name, mine
                break
        else:
            raise UnknownName("encoder", name, known, hint=f"{where} has no results of it")


def select_results(
    given: Sequence[str], encoders: EncoderDirectory, catalogue: Catalogue, where: Path
) -> list[Result]:
    """The results of the encoders named, or all current ones where none is, in their order.

    Raises:
        UnknownName: ``where`` has no results of one.
    """
    if not given:
        return list(encoders.folder.results)
    known = [*encoders.names, *(one.encoder for one in encoders.current)]
    found = _chosen(given, catalogue, known, where, lambda one: one.find_in(encoders))
    chosen = {result for _, mine in found for result in mine}
    return [result for result in encoders.folder.all_results if id(result) in chosen]


def filter_side(
    given: Sequence[str], side: CheckSide, catalogue: Catalogue, where: Path
) -> CheckSide:
    """The same of one side of a check; a lock file's cells tell no card, and are chosen by name and fingerprint.

    Raises:
        UnknownName: ``where`` has no cell of one, nor a file that cannot be read in a folder of this name.
    """
    if not given:
        return side
    encoders = side.directory(catalogue)
    every = [*side.cells, *map(lock_cell, side.older)]

    def meant(one: NameCandidate) -> set[int]:
        picked = one.find_in(encoders)
        return {
            id(cell)
            for cell in every
            if (id(cell.result) in picked if cell.result else one.matches_cell(cell))
        }

    found = list(_chosen(given, catalogue, side.encoders(), where, meant))
    chosen = {cell for _, mine in found for cell in mine}
    cells = [cell for cell in every if id(cell) in chosen]
    names = [*(name for name, _ in found), *(cell.encoder for cell in cells)]
    return side._replace(cells=cells, problems=side.select_encoders(names).problems)


def select_compared_results(
    given: Sequence[str],
    folder: Path,
    catalogue: Catalogue,
    *,
    on_problem: Say,
    on_notice: Say,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Sequence[Result]]:
    """The results of each encoder that is compared: of the results ``folder`` by name, or of a folder of its own.

    ``on_problem`` is called with a line for each file that cannot be read, or is not believed;
    ``on_notice`` with a line if there are older states of what is compared, and with one on what is
    not verified. For ``progress`` see :func:`believe`.

    Raises:
        StsbenchError: one is given twice, has no results, or is not one encoder.
    """
    if len(set(given)) < len(given):
        raise StsbenchError(f"compare was given '{max(given, key=given.count)}' twice")
    if not folder.is_dir() and not all(Path(spec).is_dir() for spec in given):
        raise OutputError(
            f"results folder '{folder}' does not exist", hint="'stsbench run' makes it"
        )
    held: dict[Path, EncoderDirectory] = {}

    def read(place: Path) -> EncoderDirectory:
        if place not in held:
            held[place] = EncoderDirectory(read_folder(place), catalogue)
            for problem in held[place].folder.problems:
                on_problem(problem.message)
        return held[place]

    known = {one.encoder for one in read(folder).current} if folder.is_dir() else {}
    found: dict[str, Sequence[Result]] = {}
    for spec in given:
        of_folder = Path(spec).is_dir() and spec not in known
        if (
            of_folder
            and (Path(spec) / RUN_FILE).is_file()
            and not read_folder(Path(spec)).all_results
        ):
            raise OutputError(
                f"'{spec}' holds a trained encoder and no results",
                hint=f"'stsbench run --encoder {spec}' scores it; then compare what the results call it",
            )
        there = read(Path(spec) if of_folder else folder)
        chosen = (
            there.folder.results if of_folder else select_results([spec], there, catalogue, folder)
        )
        found[spec] = there.require_one_encoder(spec, chosen)
    every = [one for mine in found.values() for one in mine]
    for line in filter(None, (there.describe_omitted(every) for there in held.values())):
        on_notice(line)
    believed = believe(every, catalogue, progress)
    for problem in believed.problems:
        on_problem(problem.message)
    if believed.unverified:
        on_notice(believed.notice)
    kept = {id(result) for result in believed.results}
    places = {task: place for place, task in enumerate(tasks_in_order(catalogue))}
    for spec, results in found.items():
        mine = (result for result in results if id(result) in kept)
        found[spec] = sorted(mine, key=lambda one: places.get(one.task, len(places)))
    return found


def parse_added_rows(
    given: Sequence[str], encoders: EncoderDirectory, catalogue: Catalogue, where: Path
) -> list[AddedRow]:
    """The encoders to be added by names, each alone or before a colon and a label, as a comma list is cut."""
    names, found, at = NameResolver(catalogue), list[AddedRow](), 0
    known = _lengths(
        name for runs in encoders.groups for name in (runs.name, runs.encoder, runs.label)
    )
    while at < len(given):
        lengths = known.get(given[at], set())
        if at + 1 < len(given):
            # Not for the last, which no reading of all cards could join to anything.
            lengths = lengths | names.title_lengths.get(given[at], set())
        whole = (
            (end, one)
            for end, text in _joined(given, at, lengths)
            if (one := _added(text, encoders, names))
        )
        at, one = next(whole, (at, None))
        if one is None:
            name = given[at].rpartition(":")[0] or given[at]
            raise UnknownName("encoder", name, encoders.names, hint=f"{where} has no results of it")
        found.append(one)
    return found


def _added(text: str, encoders: EncoderDirectory, names: NameResolver) -> AddedRow | None:
    """What a text adds, of which the name is as long as it can be: names may have colons, and so may labels."""
    for cut in [len(text), *reversed([place for place, sign in enumerate(text) if sign == ":"])]:
        name, label = text[:cut].strip(), text[cut + 1 :].strip()
        if len(split_names(label)) > 1:
            # It is the next one's name.
            continue
        try:
            mine = next(
                filter(None, (one.find_in(encoders) for one in names.iter_candidates(name))), set()
            )
        except StsbenchError:
            # It is not clear what it means.
            continue
        if mine:
            if cut < len(text) and not label.strip("'\""):
                raise StsbenchError(
                    f"--add '{text}': no label stands behind the colon; leave it out or write one"
                )
            is_quoted = len(label) > 1 and label[0] == label[-1] and label[0] in "'\""
            results = [result for result in encoders.folder.all_results if id(result) in mine]
            return AddedRow(name, label[1:-1] if is_quoted else label, results)
    return None


def check_own_name(name: str, catalogue: Catalogue) -> None:
    """Refuse a name that nothing of the user's own can have; raises StsbenchError."""
    if not is_name(name) or "@" in name or "+" in name:
        raise StsbenchError(f"--name '{name}': give a line of text without @ and +")
    if catalogue.is_taken(name):
        raise StsbenchError(
            f"--name '{name}' is the name of a card or recipe; give one of your own"
        )
