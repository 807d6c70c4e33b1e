"""Encoders by any name that is printed: an id or title, a row of a table, a name with a suffix.

Commands and Python find the results of a name alike, by the functions of this module.
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
    list_rows,
    list_tables,
    read_published_rows,
    read_sources,
    read_table_card,
)
from stsbench.boards.tables.rows import AddedRow
from stsbench.boards.tables.table import SYMBOLS
from stsbench.check.lock import CheckSide, LockedCell, lock_cell
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import (
    CardError,
    DataError,
    OutputError,
    Remedy,
    StsbenchError,
    UnknownName,
)
from stsbench.core.files import safe_file_name
from stsbench.core.names import PARAM_SEPARATOR, split_all_params, split_names, split_params
from stsbench.core.settings import find_key_problem
from stsbench.data.task import tasks_in_order
from stsbench.encoders.kinds import ENCODERS, find_cards_of_model
from stsbench.encoders.metadata import is_name
from stsbench.encoders.named import variant_name
from stsbench.encoders.runs import RUN_FILE, find_run_folders
from stsbench.evaluators.belief import believe
from stsbench.results.folder import read_folder
from stsbench.results.groups import UNMATCHED_CARD_SUFFIX, EncoderDirectory, matches_name
from stsbench.results.record import MAX_ENCODER_BYTES, Result

STATE_SUFFIX = re.compile(
    rf"(?P<plain>.*?)(?P<state>({re.escape(UNMATCHED_CARD_SUFFIX)})?( \[[^\[\]]+\])?)"
)
SEED_NAME = re.compile(r"(?P<recipe>[^@+]+)@(?P<seed>\d{1,10})(?P<changes>(\+.*)?)")
MessageCallback = Callable[[str], None]


class NameCandidate(NamedTuple):
    """A name that results may have for an encoder."""

    name: str
    seed: int | None = None
    """The only training seed whose results are meant; None for all seeds."""

    def find_in(self, encoders: EncoderDirectory) -> set[int]:
        """Return the ``id`` of each result in a folder that the name stands for."""
        return {
            id(result)
            for result in encoders.resolve(self.name)
            if self.seed in (None, result.train_seed)
        }

    def matches_cell(self, cell: LockedCell) -> bool:
        """Return whether the name stands for a cell of a lock, which does not name a card."""
        names = (cell.encoder, f"{cell.encoder}{UNMATCHED_CARD_SUFFIX}")
        has_name = matches_name(self.name, names, cell.fingerprint)
        return has_name and self.seed in (None, cell.train_seed)


class NameResolver:
    """Finds encoders of a catalogue by the titles and rows of tables that they have beside ids."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Store the catalogue; cards are read only when a name needs them."""
        self.catalogue = catalogue

    @cached_property
    def ids(self) -> set[str]:
        """The ids of all cards and recipes."""
        return {*self.catalogue.paths("baselines"), *self.catalogue.paths("trainers")}

    @cached_property
    def encoders_by_title(self) -> dict[str, set[str]]:
        """The encoders of each title and of each row of papers' tables.

        A title that several encoders have is omitted. ``""`` stands for a row without a card.
        """
        # A card and a recipe with the same id may have two titles.
        ids_and_titles = [
            (name, self.catalogue.recipe(name).name) for name in self.catalogue.paths("trainers")
        ]
        ids_and_titles += [
            (name, self.catalogue.encoder(name).name) for name in self.catalogue.paths("baselines")
        ]
        counts = Counter(title for _, title in set(ids_and_titles))
        unique_titles = [(name, title) for name, title in ids_and_titles if counts[title] == 1]
        encoders_by_title = _encoders_by_row(dict(unique_titles))
        for name, title in unique_titles:
            encoders_by_title[title] = {name}
        return encoders_by_title

    @cached_property
    def title_lengths(self) -> dict[str, set[int]]:
        """The numbers of parts of titles and rows with a comma, by their first part."""
        return _count_parts(self.encoders_by_title)

    def join_parts(self, parts: Sequence[str], known_names: Iterable[str] = ()) -> list[str]:
        """Return the names of a comma list, joining the parts of those with a comma in them.

        Args:
            parts: The list as it is divided at its commas.
            known_names: Names that may have commas, beside titles and rows of tables.
        """
        known_names = frozenset(known_names)
        known_lengths = _count_parts(known_names)
        names = []
        start = 0
        while start < len(parts):
            # No title has a slash: for a path or a Hub id, the cards need not be read.
            is_clear = "/" in parts[start] or self._is_clear(parts[start])
            lengths = known_lengths.get(parts[start], set())
            if not is_clear:
                lengths = lengths | self.title_lengths.get(parts[start], set())
            for candidate in _join_from(parts, start, lengths):
                n_parts = candidate.end - start
                is_single = n_parts == 1
                is_known = candidate.text in known_names
                if (
                    is_single
                    or is_known
                    or (not is_clear and self._is_title(candidate.text, n_parts))
                ):
                    break
            names.append(candidate.text)
            start = candidate.end
        return names

    def _is_title(self, text: str, n_parts: int) -> bool:
        """Return whether a text is a title, with or without changes, that has so many parts."""
        stem = PARAM_SEPARATOR.split(_strip_suffix(text), maxsplit=1)[0]
        return stem in self.encoders_by_title and n_parts in map(len, _divide_at_commas(stem))

    def to_id(self, name: str, *, measured: bool) -> str:
        """Return a name with an id in place of a title or of a table's row.

        Args:
            name: The name, with or without changes.
            measured: The name is one of results, and so of an encoder with a card.

        Raises:
            StsbenchError: The name is a row of tables of several encoders, or of none.
        """
        for stem, _ in split_params(name):
            if stem in self.ids:
                return name
            if stem in self.encoders_by_title:
                return self._id_of_title(stem, measured=measured) + name.removeprefix(stem)
        return name

    def _id_of_title(self, title: str, *, measured: bool) -> str:
        """Return the id of the encoder that a title or a row of tables stands for.

        Args:
            title: The title or label.
            measured: It is in a name of results. Rows of encoders without a card are then ignored.

        Raises:
            StsbenchError: It stands for several encoders, or for none with a card.
        """
        # The id is empty for a published row whose encoder has no card.
        encoders = self.encoders_by_title[title]
        ids = sorted(encoders - {""})
        if len(ids) > 1 or (len(ids) == 1 and "" in encoders and not measured):
            raise StsbenchError(
                f"'{title}' is a row of papers' tables of several encoders; "
                f"give {' or '.join(map(repr, ids))}"
            )
        if not ids:
            raise StsbenchError(
                f"'{title}' is a row of papers' tables that no card is of",
                hint="only encoders with a card can be named",
                remedy=Remedy("list", {"kind": "encoders"}),
            )
        return ids[0]

    def resolve_specs(
        self, parts: Sequence[str], results_folder: Path = Path("results")
    ) -> list[str]:
        """Return the names by which encoders or recipes are loaded, each once.

        Args:
            parts: A comma list of names as a user wrote it.
            results_folder: The results folder, whose names are refused with a hint.

        Raises:
            StsbenchError: A name stands for some of several results, not for an encoder.
        """
        names = self.join_parts(parts)
        return list(dict.fromkeys(self._resolve_name(name, results_folder) for name in names))

    def resolve_spec(self, name: str) -> str:
        """Return the name by which an encoder or a recipe is loaded.

        A comma in it is an ordinary character. An empty name stays empty.
        """
        return self.resolve_specs([name])[0] if name else ""

    def _is_clear(self, name: str) -> bool:
        """Return whether a name is that of a card, a recipe, a path or code, and nothing else."""
        is_id = re.split("[@+]", name, maxsplit=1)[0] in self.ids
        # Path would raise for a name that is too long for a file.
        return is_id or ":" in name or name.endswith(".toml") or os.path.exists(name)  # noqa: PTH110

    def _resolve_name(self, name: str, results_folder: Path) -> str:
        """Return the name by which an encoder or a recipe is loaded.

        Raises:
            CardError: The name has a secret key among its changes.
            StsbenchError: The name stands for results, or has no clear meaning.
        """
        stem, changes = split_all_params(name)
        if problem := find_key_problem(changes):
            raise CardError(f"`encoder={stem}`: {problem}")
        plain_name = _strip_suffix(name)
        if (plain_name == name and self._is_clear(name)) or name in ENCODERS.names():
            return name
        # A name with a suffix is one of results. No title has a slash, and a Hub id has one.
        has_suffix = plain_name != name.rstrip(SYMBOLS)
        spec = plain_name if "/" in plain_name else self.to_id(plain_name, measured=has_suffix)
        if has_suffix:
            raise StsbenchError(f"'{name}' names results, not what made them; give '{spec}'")
        if spec == name and not find_run_folders(name):
            if problem := _describe_results_name(name, results_folder):
                raise StsbenchError(problem)
        return spec

    def iter_candidates(self, name: str) -> Iterator[NameCandidate]:
        """Yield the names that results may have for an encoder, the most literal one first."""
        yield NameCandidate(name)
        plain_name = _strip_suffix(name)
        spec = plain_name if "/" in plain_name else self.to_id(plain_name, measured=True)
        suffix = name.rstrip(SYMBOLS).removeprefix(plain_name)
        yield NameCandidate(f"{spec}{suffix}")
        yield NameCandidate(name.replace("--", "/"))
        if "/" in name:
            yield from map(NameCandidate, find_cards_of_model(name, self.catalogue))
        # Results sort the parameters, and print each value in one way.
        stem, changes = split_all_params(spec)
        yield NameCandidate(f"{variant_name(stem, changes)}{suffix}")
        if match := SEED_NAME.fullmatch(spec):
            yield NameCandidate(match["recipe"] + match["changes"], int(match["seed"]))


def _encoders_by_row(title_by_id: dict[str, str]) -> dict[str, set[str]]:
    """Return the encoders of the rows of papers' tables, by each label that a row has.

    Args:
        title_by_id: The unique titles of encoders, which are labels of their rows.
    """
    encoders_by_label: dict[str, set[str]] = {}
    rows = read_published_rows()
    for row in rows.values():
        paper = read_sources().papers[row.paper].name
        for label in {row.row, title_by_id.get(row.encoder, row.row)}:
            encoders_by_label.setdefault(label, set()).add(row.encoder)
            encoders_by_label.setdefault(f"{label} ({paper})", set()).add(row.encoder)
    for card in map(read_table_card, list_tables()):
        for group in card.groups:
            for facts in list_rows(group):
                if facts.label:
                    row = rows[f"{card.paper}/{card.table}/{facts.row}"]
                    encoders_by_label.setdefault(facts.label, set()).add(row.encoder)
    return encoders_by_label


def _divide_at_commas(name: str) -> list[list[str]]:
    """Return the parts of a name in a comma list: uncut within brackets and quotes, and cut."""
    return [split_names(name), [part.strip() for part in name.split(",")]]


def _count_parts(names: Iterable[str]) -> dict[str, set[int]]:
    """Return the numbers of parts of those names with a comma in them, by their first part."""
    lengths: dict[str, set[int]] = {}
    for parts in chain.from_iterable(map(_divide_at_commas, names)):
        if len(parts) > 1:
            lengths.setdefault(parts[0], set()).add(len(parts))
    return lengths


class _JoinedParts(NamedTuple):
    """Parts of a comma list that may be one name."""

    text: str
    end: int
    """The index of the part behind the last one."""


def _join_from(parts: Sequence[str], start: int, lengths: set[int]) -> Iterator[_JoinedParts]:
    """Yield the texts that the parts of a comma list may be together, the longest first.

    Args:
        parts: The parts of the list.
        start: The index of the first part.
        lengths: The numbers of parts to join, beside a single one.
    """
    for length in sorted(lengths | {1}, reverse=True):
        end = start + length
        if end <= len(parts):
            for separator in (", ", ","):
                yield _JoinedParts(separator.join(parts[start:end]), end)


def _strip_suffix(name: str) -> str:
    """Return a name without the symbols of tables, and without the tag of an encoder's state."""
    match = STATE_SUFFIX.fullmatch(name.rstrip(SYMBOLS))
    return match["plain"] if match else name


def _describe_results_name(name: str, results_folder: Path) -> str:
    """Return what to use in place of a name that only results have; empty if they have not.

    Args:
        name: The name, which may also be that of a folder of results.
        results_folder: The results folder.
    """
    try:
        folder = read_folder(results_folder, safe_file_name(name, MAX_ENCODER_BYTES))
    except (OutputError, DataError):
        return ""
    results = folder.all_results
    # An encoder with a revision is on the Hub, and can be loaded by its name.
    if not results or any(result.revision for result in results):
        return ""
    encoder = results[0].encoder
    if encoder != name:
        return f"'{name}' is a folder of {results_folder}; give '{encoder}'"
    return (
        f"'{name}' is what {results_folder} calls an encoder that has no card; "
        "give its folder, file or class"
    )


class _NameMatch(NamedTuple):
    """A name as results have it, and the ``id`` of each result or cell that it stands for."""

    name: str
    ids: set[int]


def _match_names(
    specs: Sequence[str],
    catalogue: Catalogue,
    known_names: Sequence[str],
    location: Path,
    find_ids: Callable[[NameCandidate], set[int]],
) -> Iterator[_NameMatch]:
    """Yield the match of each name that a user wrote.

    Args:
        specs: A comma list of names.
        catalogue: The cards of encoders.
        known_names: The names of the encoders in ``location``.
        location: The folder or file that is searched, for the message.
        find_ids: Returns what a candidate stands for there; empty if there is nothing.

    Raises:
        UnknownName: A name stands for nothing there.
    """
    resolver = NameResolver(catalogue)
    for spec in resolver.join_parts(specs, known_names):
        for candidate in resolver.iter_candidates(spec):
            ids = find_ids(candidate)
            if ids or candidate.name in known_names:
                yield _NameMatch(candidate.name, ids)
                break
        else:
            raise _no_results_error(spec, known_names, location)


def _no_results_error(spec: str, known_names: Sequence[str], location: Path) -> UnknownName:
    """Return the error to raise if a name stands for no results at a location."""
    return UnknownName("encoder", spec, known_names, hint=f"{location} has no results of it")


def select_results(
    specs: Sequence[str], encoders: EncoderDirectory, catalogue: Catalogue, location: Path
) -> list[Result]:
    """Return the results of some encoders in their order, or all current ones without names.

    Args:
        specs: A comma list of names; empty for all encoders.
        encoders: The encoders of a results folder.
        catalogue: The cards of encoders.
        location: The folder, for the message.

    Raises:
        UnknownName: There are no results of an encoder.
    """
    if not specs:
        return list(encoders.folder.results)
    known_names = [*encoders.names, *(group.encoder for group in encoders.current)]
    matches = _match_names(
        specs,
        catalogue,
        known_names,
        location,
        find_ids=lambda candidate: candidate.find_in(encoders),
    )
    selected_ids = {result_id for match in matches for result_id in match.ids}
    return [result for result in encoders.folder.all_results if id(result) in selected_ids]


def filter_side(
    specs: Sequence[str], side: CheckSide, catalogue: Catalogue, location: Path
) -> CheckSide:
    """Return one side of a check with the cells of some encoders only.

    Cells of a lock file name no card, and are found by name and fingerprint.

    Args:
        specs: A comma list of names; empty for all encoders.
        side: The side.
        catalogue: The cards of encoders.
        location: The folder or file of the side, for the message.

    Raises:
        UnknownName: There is no cell of an encoder, nor a broken file in a folder of this name.
    """
    if not specs:
        return side
    encoders = side.directory(catalogue)
    all_cells = [*side.cells, *map(lock_cell, side.older)]

    def find_cells(candidate: NameCandidate) -> set[int]:
        """Return the ``id`` of each cell of a meaning: by its Result, or by the row of a lock."""
        result_ids = candidate.find_in(encoders)
        return {
            id(cell)
            for cell in all_cells
            if (id(cell.result) in result_ids if cell.result else candidate.matches_cell(cell))
        }

    matches = list(_match_names(specs, catalogue, side.encoders(), location, find_cells))
    selected_ids = {cell_id for match in matches for cell_id in match.ids}
    cells = [cell for cell in all_cells if id(cell) in selected_ids]
    names = [*(match.name for match in matches), *(cell.encoder for cell in cells)]
    return side._replace(cells=cells, problems=side.select_encoders(names).problems)


def select_compared_results(
    specs: Sequence[str],
    results_folder: Path,
    catalogue: Catalogue,
    *,
    on_problem: MessageCallback,
    on_notice: MessageCallback,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, Sequence[Result]]:
    """Return the results of each encoder that is compared, in the order of the tasks.

    Args:
        specs: Names of encoders in the results folder, or folders of one encoder's results.
        results_folder: The results folder.
        catalogue: The cards of tasks and encoders.
        on_problem: Called with a line on each file that cannot be read, or is not believed.
        on_notice: Called with a line if there are older states of the compared encoders, and with
            one if some results cannot be verified.
        progress: See :func:`believe`.

    Raises:
        StsbenchError: An encoder is listed twice, has no results, or is several encoders.
    """
    if len(set(specs)) < len(specs):
        raise StsbenchError(f"compare was given '{max(specs, key=specs.count)}' twice")
    if not results_folder.is_dir() and not all(Path(spec).is_dir() for spec in specs):
        raise OutputError(
            f"results folder '{results_folder}' does not exist", remedy=Remedy("score")
        )
    reader = _DirectoryReader(catalogue, on_problem)
    results_by_spec = _read_compared(specs, results_folder, reader)
    all_results = [result for results in results_by_spec.values() for result in results]
    for directory in reader.directories.values():
        if notice := directory.describe_omitted(all_results):
            on_notice(notice)
    believed = believe(all_results, catalogue, progress)
    for problem in believed.problems:
        on_problem(problem.message)
    if believed.unverified:
        on_notice(believed.notice)
    return _sort_believed(results_by_spec, believed.results, catalogue)


class _DirectoryReader:
    """Reads each results folder once."""

    def __init__(self, catalogue: Catalogue, on_problem: MessageCallback) -> None:
        self.catalogue = catalogue
        self.on_problem = on_problem
        self.directories: dict[Path, EncoderDirectory] = {}

    def read(self, folder: Path) -> EncoderDirectory:
        """Return the encoders of a folder, and report its broken files the first time."""
        if folder not in self.directories:
            self.directories[folder] = EncoderDirectory(read_folder(folder), self.catalogue)
            for problem in self.directories[folder].folder.problems:
                self.on_problem(problem.message)
        return self.directories[folder]


def _read_compared(
    specs: Sequence[str], results_folder: Path, reader: _DirectoryReader
) -> dict[str, Sequence[Result]]:
    """Return the results of each name or folder, which must be those of one encoder.

    A text that is both a folder and an encoder's name in the results folder is taken as the name.

    Args:
        specs: The names and folders.
        results_folder: The folder in which names are looked up.
        reader: Reads folders of results.
    """
    encoder_names: set[str] = set()
    if results_folder.is_dir():
        encoder_names = {group.encoder for group in reader.read(results_folder).current}
    results_by_spec: dict[str, Sequence[Result]] = {}
    for spec in specs:
        if Path(spec).is_dir() and spec not in encoder_names:
            _check_has_results(spec)
            directory = reader.read(Path(spec))
            results = directory.folder.results
        else:
            directory = reader.read(results_folder)
            results = select_results(
                [spec], encoders=directory, catalogue=reader.catalogue, location=results_folder
            )
        results_by_spec[spec] = directory.require_one_encoder(spec, results)
    return results_by_spec


def _check_has_results(folder: str) -> None:
    """Raise OutputError if a folder holds a trained encoder, not the results of one."""
    if (Path(folder) / RUN_FILE).is_file() and not read_folder(Path(folder)).all_results:
        raise OutputError(
            f"'{folder}' holds a trained encoder and no results",
            hint="score it, then compare what the results call it",
            remedy=Remedy("score", {"encoder": folder}),
        )


def _sort_believed(
    results_by_spec: dict[str, Sequence[Result]],
    believed_results: Sequence[Result],
    catalogue: Catalogue,
) -> dict[str, Sequence[Result]]:
    """Return the believed results of each encoder, in the order of the tasks.

    Args:
        results_by_spec: The results of each encoder, by the name or folder that a user gave.
        believed_results: The results that may be compared, of all encoders.
        catalogue: The cards, which give the order of the tasks. Results of other tasks come last.
    """
    # By id(), because results cannot be in a set.
    believed_ids = {id(result) for result in believed_results}
    positions = {task: position for position, task in enumerate(tasks_in_order(catalogue))}
    sorted_results: dict[str, Sequence[Result]] = {}
    for spec, results in results_by_spec.items():
        sorted_results[spec] = sorted(
            (result for result in results if id(result) in believed_ids),
            key=lambda result: positions.get(result.task, len(positions)),
        )
    return sorted_results


def parse_added_rows(
    parts: Sequence[str], encoders: EncoderDirectory, catalogue: Catalogue, location: Path
) -> list[AddedRow]:
    """Return the rows that a user adds to a table.

    Args:
        parts: A comma list of names, each alone or with a label behind a colon.
        encoders: The encoders of the results folder.
        catalogue: The cards of encoders.
        location: The results folder, for the message.

    Raises:
        UnknownName: There are no results of an encoder.
    """
    resolver = NameResolver(catalogue)
    printed_names = [
        name for group in encoders.groups for name in (group.name, group.encoder, group.label)
    ]
    known_lengths = _count_parts(printed_names)
    added_rows = []
    start = 0
    while start < len(parts):
        lengths = known_lengths.get(parts[start], set())
        if start + 1 < len(parts):
            # The last part cannot be joined to another, so the cards need not be read for it.
            lengths = lengths | resolver.title_lengths.get(parts[start], set())
        for candidate in _join_from(parts, start, lengths):
            if added_row := _parse_added_row(candidate.text, encoders, resolver):
                break
        else:
            name = parts[start].rpartition(":")[0] or parts[start]
            raise _no_results_error(name, encoders.names, location)
        added_rows.append(added_row)
        start = candidate.end
    return added_rows


def _parse_added_row(
    text: str, encoders: EncoderDirectory, resolver: NameResolver
) -> AddedRow | None:
    """Return the row that a text adds; None if it stands for no results.

    Its name is as long as possible, because names and labels may have colons.

    Args:
        text: A name, alone or with a label behind a colon.
        encoders: The encoders of the results folder.
        resolver: Knows what a name may mean.

    Raises:
        StsbenchError: The label is empty.
    """
    colons = [index for index, character in enumerate(text) if character == ":"]
    for name_length in [len(text), *reversed(colons)]:
        name = text[:name_length].strip()
        label = text[name_length + 1 :].strip()
        # A comma in a label would begin the next name of the list.
        if len(split_names(label)) > 1:
            continue
        result_ids = _find_first_match(name, encoders, resolver)
        if not result_ids:
            continue
        has_colon = name_length < len(text)
        if has_colon and not label.strip("'\""):
            raise StsbenchError(
                "no label stands behind the colon; leave it out or write one",
                parameter="add",
                value=text,
            )
        if len(label) > 1 and label[0] == label[-1] and label[0] in "'\"":
            label = label[1:-1]
        results = [result for result in encoders.folder.all_results if id(result) in result_ids]
        return AddedRow(name, label, results)
    return None


def _find_first_match(name: str, encoders: EncoderDirectory, resolver: NameResolver) -> set[int]:
    """Return the Python ``id`` of each result that a name stands for.

    The meanings of the name are tried in order, and the first that has results counts.

    Args:
        name: The name, as a user wrote it.
        encoders: The encoders of the results.
        resolver: Knows what the name may mean.

    Returns:
        The ids; empty if no meaning has results, or if the name is unclear.
    """
    try:
        for candidate in resolver.iter_candidates(name):
            if result_ids := candidate.find_in(encoders):
                return result_ids
    except StsbenchError:
        # The name is the label of rows in papers' tables. These rows are of more than one encoder,
        # or of an encoder without a card, so the label stands for no single one.
        return set()
    return set()


def check_own_name(name: str, catalogue: Catalogue) -> None:
    """Check a name that a user chose for an encoder.

    Raises:
        StsbenchError: The name is not one line of text, has parameters, or is taken.
    """
    if not is_name(name) or "@" in name or "+" in name:
        raise StsbenchError("give a line of text without @ and +", parameter="name", value=name)
    if catalogue.is_taken(name):
        raise StsbenchError(
            f"`name` '{name}' is the name of a card or recipe; give one of your own"
        )
