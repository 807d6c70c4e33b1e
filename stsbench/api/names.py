"""Encoders by any name that is printed: an id or title, a row of a table, a name with a suffix.

Commands and Python find the results of a name alike, by the functions of this module.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from stsbench.boards.tables.table import SYMBOLS
from stsbench.check.lock import LockedCell
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, OutputError, Remedy, StsbenchError
from stsbench.core.files import safe_file_name
from stsbench.core.names import PARAM_SEPARATOR, split_all_params, split_names, split_params
from stsbench.core.settings import find_key_problem
from stsbench.encoders.kinds import ENCODERS, find_cards_of_model
from stsbench.encoders.named import variant_name
from stsbench.encoders.runs import find_run_folders
from stsbench.results.folder import read_folder
from stsbench.results.groups import UNMATCHED_CARD_SUFFIX, EncoderDirectory, matches_name
from stsbench.results.record import MAX_ENCODER_BYTES

STATE_SUFFIX = re.compile(
    rf"(?P<plain>.*?)(?P<state>({re.escape(UNMATCHED_CARD_SUFFIX)})?( \[[^\[\]]+\])?)"
)
SEED_NAME = re.compile(r"(?P<recipe>[^@+]+)@(?P<seed>\d{1,10})(?P<changes>(\+.*)?)")


class NameCandidate(NamedTuple):
    """A name that results may have for an encoder."""

    name: str
    seed: int | None = None
    """The only training seed whose results are meant; None for all seeds."""

    def find_result_ids(self, encoders: EncoderDirectory) -> set[int]:
        """Return the Python ``id`` of each result that this name stands for.

        ``self.seed`` is the only training seed whose results are meant, or None for all seeds.

        Args:
            encoders: The encoders of a results folder, with their results.

        Returns:
            The ids; empty if the folder has no results under this name.
        """
        # resolve returns an encoder's current results, or with a state tag those of that state.
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
        """The ids of the encoders that a title, or a label of a row in papers' tables, means.

        The keys are the titles and labels. A title that several encoders share is no key, unless it
        is also a label. Any other title means its encoder alone, even if it is also the label of
        another one's row. The id ``""`` stands for a row whose encoder has no card.
        """
        # An encoder's id is the name of its card, or of the recipe that trains it. A card and a
        # recipe with the same id may have two titles.
        ids_and_titles = [
            (name, self.catalogue.recipe(name).name) for name in self.catalogue.paths("trainers")
        ]
        ids_and_titles += [
            (name, self.catalogue.encoder(name).name) for name in self.catalogue.paths("baselines")
        ]
        counts = Counter(title for _, title in set(ids_and_titles))
        unique_titles = [(name, title) for name, title in ids_and_titles if counts[title] == 1]
        encoders_by_title = _group_encoders_by_label(dict(unique_titles))
        for name, title in unique_titles:
            encoders_by_title[title] = {name}
        return encoders_by_title

    @cached_property
    def title_part_counts(self) -> dict[str, set[int]]:
        """The numbers of parts of titles and rows with a comma, by their first part."""
        return count_parts_by_first(self.encoders_by_title)

    def join_parts(self, parts: Sequence[str], known_names: Iterable[str] = ()) -> list[str]:
        """Return the names of a comma list; a name with a comma in it is put together again.

        Args:
            parts: The list as it is divided at its commas.
            known_names: Names that may have commas, beside encoders' titles and labels of rows in
                papers' tables, which may have them too.
        """
        known_names = frozenset(known_names)
        # By a part of the list: of how many parts the names with a comma are that begin with it.
        known_part_counts = count_parts_by_first(known_names)
        names = []
        start = 0
        while start < len(parts):
            first_part = parts[start]
            # No title has a slash. So the cards, where titles are, need not be read for a path, nor
            # for a model of the Hub, nor for a part that is the id of a card.
            may_begin_title = "/" not in first_part and not self._is_unambiguous(first_part)
            part_counts = known_part_counts.get(first_part, set())
            if may_begin_title:
                part_counts = part_counts | self.title_part_counts.get(first_part, set())
            # Candidates come from the longest to the first part alone. The loop ends at the first
            # one that is a name; the first part alone always counts as one.
            for candidate in iter_joined_parts(parts, start, part_counts):
                n_parts = candidate.end - start
                if n_parts == 1 or candidate.text in known_names:
                    break
                if may_begin_title and self._is_title(candidate.text, n_parts):
                    break
            names.append(candidate.text)
            start = candidate.end
        return names

    def _is_title(self, text: str, n_parts: int) -> bool:
        """Return whether a text, without its parameters, is a title of so many comma parts."""
        stem = PARAM_SEPARATOR.split(_strip_symbols_and_state(text), maxsplit=1)[0]
        possible_counts = [len(parts) for parts in _divide_at_commas(stem)]
        return stem in self.encoders_by_title and n_parts in possible_counts

    def replace_title_by_id(self, name: str, *, is_of_results: bool) -> str:
        """Return a name with an encoder's id in place of its title.

        The label of a row in papers' tables is replaced by the id of the row's encoder, too. A name
        that begins with neither is returned as it is. So is a path or Hub id: no title has a slash.

        Args:
            name: The name, with or without parameters behind it, as in ``minilm+pooling=max``.
            is_of_results: Whether the name is one that results have. Their encoders have cards, so
                that rows whose encoder has no card are ignored.

        Raises:
            StsbenchError: The name is the label of rows of several encoders, or of an encoder
                without a card.
        """
        # The cards need not be read for a path or Hub id.
        if "/" in name:
            return name
        # First with the whole name as the stem, then with ever more parameters split off.
        for stem, _ in split_params(name):
            if stem in self.ids:
                return name
            if stem in self.encoders_by_title:
                card_id = self._id_of_title(stem, is_of_results=is_of_results)
                return card_id + name.removeprefix(stem)
        return name

    def _id_of_title(self, title: str, *, is_of_results: bool) -> str:
        """Return the id of the encoder that a title, or a label of a row in papers' tables, means.

        Args:
            title: The title or label, a key of ``encoders_by_title``.
            is_of_results: Whether it is part of a name that results have. Rows whose encoder has no
                card are then ignored.

        Raises:
            StsbenchError: It stands for several encoders, or for none with a card.
        """
        # The id is empty for a published row whose encoder has no card.
        encoders = self.encoders_by_title[title]
        ids = sorted(encoders - {""})
        # One label may be that of a row with a card and of another row without a card.
        has_row_without_card = "" in encoders and not is_of_results
        if len(ids) > 1 or (ids and has_row_without_card):
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
            parts: A user's comma list of names, divided at its commas.
            results_folder: The results folder. A name that only its results have cannot be loaded,
                and is refused with a hint.

        Raises:
            CardError: A name holds the secret key of a server.
            StsbenchError: A name stands for results, not for an encoder, or is ambiguous.
        """
        # A name with a comma in it is put together again.
        names = self.join_parts(parts)
        return list(dict.fromkeys(self._resolve_name(name, results_folder) for name in names))

    def resolve_spec(self, name: str) -> str:
        """Return the name by which an encoder or a recipe is loaded.

        A comma in it is an ordinary character. An empty name stays empty.
        """
        return self.resolve_specs([name])[0] if name else ""

    def _is_unambiguous(self, name: str) -> bool:
        """Return whether a name is that of a card, a recipe, a path or code, and nothing else."""
        is_id = re.split("[@+]", name, maxsplit=1)[0] in self.ids
        # Path would raise for a name that is too long for a file.
        return is_id or ":" in name or name.endswith(".toml") or os.path.exists(name)  # noqa: PTH110

    def _resolve_name(self, name: str, results_folder: Path) -> str:
        """Return the name by which an encoder or a recipe is loaded.

        An encoder's title, or the label of its row in a paper's table, is replaced by the encoder's
        id. Any other name is returned as it is.

        Args:
            name: The name as a user wrote it.
            results_folder: The results folder. A name that only its results have cannot be loaded,
                and is refused with a hint.

        Raises:
            CardError: The parameters behind the name hold the secret key of a server.
            StsbenchError: The name stands for results, or has no clear meaning.
        """
        stem, params = split_all_params(name)
        if key_problem := find_key_problem(params):
            raise CardError(f"`encoder={stem}`: {key_problem}")
        # Without the symbols that tables print behind names, and without a tag such as "[3f2a1b]".
        plain_name = _strip_symbols_and_state(name)
        # A registered class of encoders, as of a plug-in, has this name.
        if name in ENCODERS.names():
            return name
        # An id with or without parameters, a path, or a text with a colon, as of ``file:…``.
        if plain_name == name and self._is_unambiguous(name):
            return name
        # Only results have a name with the tag of a state behind it, such as "minilm [3f2a1b]".
        has_state_tag = plain_name != name.rstrip(SYMBOLS)
        spec = self.replace_title_by_id(plain_name, is_of_results=has_state_tag)
        if has_state_tag:
            raise StsbenchError(f"'{name}' names results, not what made them; give '{spec}'")
        # A name that is no title and was not trained here may be one that only results have.
        if spec == name and not find_run_folders(name):
            # Empty if no results have the name, or those of a model of the Hub.
            if problem := _describe_results_name(name, results_folder):
                raise StsbenchError(problem)
        return spec

    def iter_candidates(self, name: str) -> Iterator[NameCandidate]:
        """Yield the names that results may have for an encoder, the most literal one first.

        Args:
            name: The name as a user wrote it: an id, a title, the label of a row in a paper's
                table, a model on the Hub, or a name as tables print it, with symbols and a state
                tag such as ``[3f2a1b]``.

        Yields:
            The names; the last one may also say the only training seed that is meant.

        Raises:
            StsbenchError: The name is the label of rows of several encoders, or of none with a
                card.
        """
        yield NameCandidate(name)
        # An encoder's title is replaced by its id, and symbols are removed; the tag is kept.
        plain_name = _strip_symbols_and_state(name)
        spec = self.replace_title_by_id(plain_name, is_of_results=True)
        state_tag = name.rstrip(SYMBOLS).removeprefix(plain_name)
        yield NameCandidate(f"{spec}{state_tag}")
        # In the names of folders and files of results, "--" stands for the slash of a Hub id.
        yield NameCandidate(name.replace("--", "/"))
        # A model of the Hub may be in results under the names of cards that load it.
        if "/" in name:
            yield from map(NameCandidate, find_cards_of_model(name, self.catalogue))
        # In results, the parameters behind a name are sorted, and each value is written in one way.
        stem, params = split_all_params(spec)
        yield NameCandidate(f"{variant_name(stem, params)}{state_tag}")
        # RECIPE@3+CHANGES: the encoder that was trained with seed 3.
        if match := SEED_NAME.fullmatch(spec):
            yield NameCandidate(match["recipe"] + match["changes"], int(match["seed"]))


def _group_encoders_by_label(title_by_id: dict[str, str]) -> dict[str, set[str]]:
    """Return the encoders whose rows in papers' tables have a label.

    A row of a paper's table has up to five labels: the one in the paper, the title of its encoder,
    each of these followed by the paper's name in brackets, and a label of its own in the tables
    that stsbench prints. Rows of several encoders may share a label.

    Args:
        title_by_id: The titles of encoders by id, without the titles that several encoders share.

    Returns:
        For each label, the ids of the encoders; ``""`` stands for a row whose encoder has no card,
        and so no id.
    """
    encoders_by_label: dict[str, set[str]] = {}
    # The published scores of one encoder in one table of a paper, by "paper/table/row".
    rows = read_published_rows()
    for row in rows.values():
        paper = read_sources().papers[row.paper].name
        label_in_paper = row.row
        title = title_by_id.get(row.encoder, label_in_paper)
        for label in {label_in_paper, title}:
            encoders_by_label.setdefault(label, set()).add(row.encoder)
            encoders_by_label.setdefault(f"{label} ({paper})", set()).add(row.encoder)
    # The cards describe the tables that stsbench prints after the papers' ones.
    for card in map(read_table_card, list_tables()):
        for group in card.groups:
            for row_card in list_rows(group):
                # Such a table may print another label than the paper.
                if row_card.label:
                    published_row_key = f"{card.paper}/{card.table}/{row_card.row}"
                    row = rows[published_row_key]
                    encoders_by_label.setdefault(row_card.label, set()).add(row.encoder)
    return encoders_by_label


def _divide_at_commas(name: str) -> list[list[str]]:
    """Return the two lists of parts that a name may have in a comma list.

    The first is cut at commas outside of brackets and quotes only, the second at every comma.
    """
    return [split_names(name), [part.strip() for part in name.split(",")]]


def count_parts_by_first(names: Iterable[str]) -> dict[str, set[int]]:
    """Return the numbers of parts of those names with a comma in them, by their first part."""
    part_counts: dict[str, set[int]] = {}
    for parts in chain.from_iterable(map(_divide_at_commas, names)):
        if len(parts) > 1:
            part_counts.setdefault(parts[0], set()).add(len(parts))
    return part_counts


class _JoinedParts(NamedTuple):
    """Parts of a comma list that may be one name."""

    text: str
    end: int
    """The index of the part behind the last one."""


def iter_joined_parts(
    parts: Sequence[str], start: int, part_counts: set[int]
) -> Iterator[_JoinedParts]:
    """Yield the names that the parts of a comma list may be if they are joined again.

    A name may itself have a comma, so that a list was divided within it. Longer names come first,
    and the first part alone comes last. Parts are joined with and without a blank behind the comma.

    Args:
        parts: The comma list, divided at its commas.
        start: The index of the first part of the names.
        part_counts: The numbers of parts that may be one name. A single part is always tried.

    Yields:
        The joined ``text``, and in ``end`` the index behind its last part.
    """
    for n_parts in sorted(part_counts | {1}, reverse=True):
        end = start + n_parts
        if end <= len(parts):
            for separator in (", ", ","):
                yield _JoinedParts(separator.join(parts[start:end]), end)


def _strip_symbols_and_state(name: str) -> str:
    """Return a name without the symbols of tables, and without the tag of an encoder's state."""
    match = STATE_SUFFIX.fullmatch(name.rstrip(SYMBOLS))
    return match["plain"] if match else name


def _describe_results_name(name: str, results_folder: Path) -> str:
    """Return why a name cannot be loaded as an encoder if it is only a name in the results.

    Such a name is that of an encoder's folder in the results folder, or of an encoder that was
    scored from a folder, a file or a class.

    Args:
        name: The name.
        results_folder: The results folder.

    Returns:
        A message with what to use instead. Empty if no results have the name, or if they are of a
        model of the Hub, which can be loaded by the same name.
    """
    try:
        # The results folder has a folder per encoder, with this name on disk.
        folder = read_folder(results_folder, safe_file_name(name, MAX_ENCODER_BYTES))
    except (OutputError, DataError):
        return ""
    results = folder.all_results
    # Only results of a model of the Hub have a revision.
    if not results or any(result.revision for result in results):
        return ""
    encoder = results[0].encoder
    if encoder != name:
        return f"'{name}' is a folder of {results_folder}; give '{encoder}'"
    return (
        f"'{name}' is what {results_folder} calls an encoder that no known card has; give "
        "the folder of its card (`catalogue=stsbench.Catalogue(DIR)`), or the encoder's folder, "
        "its class or file:PATH"
    )
