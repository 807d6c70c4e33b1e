"""Cards: the TOML files that describe tasks, suites, encoders and corpora, read strictly.

A card's id is the stem of its file. An unknown, missing or doubled key, or a value of the wrong
type, stops the run with one line that names file and key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stsbench.core import cards
from stsbench.core.errors import CardError, Remedy, UnknownName
from stsbench.core.parameters import PATHS, ArgumentKind, validate_arguments
from stsbench.core.toml import StrictRecord, convert, parse_toml

RecordT = TypeVar("RecordT", bound=StrictRecord)


def card_folder(kind: str) -> Path:
    """Return the folder of one kind of card: in the package, or beside it in a checkout."""
    package_folder = Path(__file__).parent.parent
    packaged_folder = package_folder / "_cards" / kind
    return packaged_folder if packaged_folder.is_dir() else package_folder.parent / kind


class Catalogue:
    """The cards of the project and of a user's own folders, by id; a duplicate id is an error.

    A user's folder has at least one of the folders ``tasks/``, ``baselines/`` and ``trainers/``.
    """

    @validate_arguments(folders=PATHS)
    def __init__(self, folders: str | Path | Sequence[str | Path] = ()) -> None:
        """Check the user's folders of cards, the TOML files of tasks, encoders and recipes.

        No card is read yet. The files of each kind of card are searched for once, at the first
        request; a card is read when it is requested.

        Args:
            folders: A folder of the user's cards, or several. Each must have a subfolder for at
                least one kind of card (``CARD_FOLDERS``: tasks, baselines, trainers).

        Raises:
            CardError: A folder does not exist, or has no folder for cards.
        """
        self.folders = tuple(map(Path, [folders] if isinstance(folders, str | Path) else folders))
        self._paths: dict[str, dict[str, Path]] = {}
        """Kind of card -> id of the card -> its file, for the kinds searched so far."""
        self._digests: dict[str, frozenset[str]] = {}
        """Name of an encoder -> hashes of its card and recipe, so far; see :meth:`digests`."""
        for folder in self.folders:
            if not folder.is_dir():
                raise CardError(f"cards folder '{folder}' does not exist")
            if not any((folder / kind).is_dir() for kind in CARD_FOLDERS):
                raise CardError(
                    f"cards folder '{folder}' has none of the folders "
                    f"{', '.join(CARD_FOLDERS)} for cards"
                )

    def paths(self, kind: str) -> dict[str, Path]:
        """Return the files of one kind of card by id, the project's first, each folder sorted.

        The id of a card is the name of its file without ``.toml``. The files are searched for once
        and then kept in ``self._paths``.

        Args:
            kind: ``tasks``, ``baselines`` (encoders) or ``trainers`` (recipes).

        Raises:
            CardError: Two files have the same id.
        """
        if kind not in self._paths:
            paths_by_id: dict[str, Path] = {}
            for folder in self._card_folders(kind):
                for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem):
                    card_id = path.stem
                    # Files of these names, such as suites.toml, hold several records and no card.
                    if card_id in RESERVED_IDS:
                        continue
                    # Our cards and a user's may not have one id: which is meant would be unclear.
                    path_of_id = paths_by_id.setdefault(card_id, path)
                    if path_of_id != path:
                        raise CardError(
                            f"{path}: the id '{card_id}' is taken by {path_of_id}; rename one file"
                        )
            self._paths[kind] = paths_by_id
        return self._paths[kind]

    def is_own(self, kind: str, name: str) -> bool:
        """Return whether a card is in one of the user's own folders."""
        path = self.paths(kind).get(name)
        return path is not None and path.parent != card_folder(kind)

    def _card_folders(self, kind: str) -> list[Path]:
        """Return the folders of one kind of card, the project's first, each once.

        In a checkout, a user may name the project's own folder of cards too.
        """
        folders = [card_folder(kind), *(folder / kind for folder in self.folders)]
        folder_by_real_path: dict[Path, Path] = {}
        for folder in folders:
            folder_by_real_path.setdefault(folder.resolve(), folder)
        return list(folder_by_real_path.values())

    def task(self, name: str) -> cards.TaskCard:
        """Return the card of the task of this id, with the folder of its local data made absolute.

        ``card.local`` is the table of the task's local data files, or None if it has none. A folder
        in it that begins with ``.`` or ``..`` is relative to the folder of the card's file, and is
        made absolute. Any other folder is returned as it is written.

        Raises:
            UnknownName: No card has this id.
        """
        path = self._path("task", kind="tasks", name=name)
        card = read_card(path, cards.TaskCard)
        if card.local is None:
            return card
        is_relative_to_card = card.local.folder.split("/")[0] in (".", "..")
        if not is_relative_to_card:
            return card
        absolute_folder = (path.parent / card.local.folder).resolve()
        local = msgspec.structs.replace(card.local, folder=str(absolute_folder))
        return msgspec.structs.replace(card, local=local)

    def encoder(self, name: str) -> cards.EncoderCard:
        """Return the encoder of this id; raises UnknownName."""
        return read_card(self._path("encoder", kind="baselines", name=name), cards.EncoderCard)

    def find_encoder(self, name: str, digest: str | None) -> cards.EncoderCard | None:
        """Return the card of the encoder that stored results are of; None if it has none.

        A name without a plus has the card, or recipe, of that name. Its hash must be the one in the
        results: an encoder from another card, folder or class of the same name is not the card's.

        In a name such as ``minilm+pooling=max`` parameters that replace those of the card follow
        the plus. The result is then the card of ``minilm`` with the longer name and without
        published rows, as no paper has this encoder. The hash is not compared.

        Args:
            name: The name of the encoder in results.
            digest: The hash that the results carry: ``A`` of a card, or ``A started from B`` with
                that of a recipe as ``A``. With None, a name without a plus has no card.
        """
        stem, separator, replaced_params = name.partition("+")
        has_replaced_params = separator == "+"
        if not has_replaced_params:
            is_card_of_results = cards.card_digest_part(digest) in self.digests(stem)
            return self._encoder_or_recipe(stem) if is_card_of_results else None
        card = self._encoder_or_recipe(stem)
        if card is None:
            return None
        name_with_params = f"{card.name}+{replaced_params}"
        return msgspec.structs.replace(card, name=name_with_params, published=[])

    def is_taken(self, name: str) -> bool:
        """Return whether a card or recipe has this name, or its part before replaced parameters."""
        stem = name.partition("+")[0]
        return stem in self.paths("baselines") or stem in self.paths("trainers")

    def digests(self, name: str) -> frozenset[str]:
        """Return the hashes of the card and of the recipe of this name, as results store them.

        The set is empty if there is neither, and has two hashes if there are both. Hashes are
        computed once and then kept in ``self._digests``.
        """
        if name not in self._digests:
            digests: set[str] = set()
            if name in self.paths("baselines"):
                digests.add(self.encoder_digest(self.encoder(name)))
            if name in self.paths("trainers"):
                digests.add(cards.recipe_digest(self.recipe(name)))
            self._digests[name] = frozenset(digests)
        return self._digests[name]

    def encoder_digest(self, card: cards.EncoderCard) -> str:
        """Return the sha256 of an encoder's card, in which the hash of its base's card is included.

        An encoder with a base, such as whitened embeddings, transforms those of another encoder,
        whose name is its parameter ``base``. The hash of a base without a card is not included.
        """
        base = card.params.get("base")
        base_digest = None
        if isinstance(base, str) and base in self.paths("baselines"):
            base_card = self.encoder(base)
            # A base has no base itself: only encoders that are not fitted on texts can be one.
            base_digest = cards.encoder_digest(
                base_card.kind, base_card.params, base_card.overlap, base_digest=None
            )
        return cards.encoder_digest(card.kind, card.params, card.overlap, base_digest)

    def _encoder_or_recipe(self, stem: str) -> cards.EncoderCard | None:
        """Return the encoder's card of this name, or one composed from the recipe of this name.

        A recipe says how an encoder is trained, and has the name of that encoder. If there are a
        card and a recipe, the result is the card with the published rows of both. If there is
        neither, the result is None.

        Args:
            stem: The name of an encoder without replaced parameters.
        """
        recipe = self.recipe(stem) if stem in self.paths("trainers") else None
        if stem in self.paths("baselines"):
            card = self.encoder(stem)
            # The published and the trained encoder share the name, so the rows of both apply.
            rows_of_recipe = recipe.published if recipe else []
            # Without duplicates, in this order.
            published = list(dict.fromkeys([*card.published, *rows_of_recipe]))
            return msgspec.structs.replace(card, published=published)
        if recipe is None:
            return None
        shared_keys = (
            "name", "backbone", "supervision", "paper", "note", "reproducible", "published",
        )  # fmt: skip
        shared_values: dict[str, Any] = {key: getattr(recipe, key) for key in shared_keys}
        return cards.EncoderCard(
            kind="transformer",
            method=recipe.label or recipe.method,
            # A recipe does not say these.
            overlap="unknown",
            license="",
            **shared_values,
        )

    def encoder_path(self, name: str) -> Path:
        """Return the file of an encoder's card, or of its recipe if it has no card.

        Args:
            name: The name of the encoder; parameters after a plus, which replace those of the card,
                are ignored.

        Raises:
            KeyError: There is neither a card nor a recipe.
        """
        stem = name.partition("+")[0]
        # The later mapping wins, so a card comes before a recipe of the same name.
        return {**self.paths("trainers"), **self.paths("baselines")}[stem]

    def recipe(self, name: str) -> cards.RecipeCard:
        """Return the recipe of this id; raises UnknownName."""
        return read_card(self._path("recipe", kind="trainers", name=name), cards.RecipeCard)

    def _path(self, noun: str, kind: str, name: str) -> Path:
        """Return the file of a card; ``noun`` describes the kind of card in the message."""
        paths = self.paths(kind)
        if name not in paths:
            raise UnknownName(
                noun,
                name,
                paths,
                hint="cards of your own need `catalogue=stsbench.Catalogue(DIR)`",
                remedy=Remedy("list", {"kind": f"{noun}s"}),
            )
        return paths[name]

    def suites(self) -> dict[str, cards.Suite]:
        """Return all suites, lists of tasks with a name, by id.

        The project's come first, then the user's (both from ``suites.toml``), then those of the
        benchmark MTEB (from ``mteb-suites.toml``).

        Raises:
            CardError: A suite has the id of a task or of another suite.
        """
        # MTEB's suites have a file of their own, because a script writes it.
        return self._read_records(
            "tasks", "suites", "mteb-suites", record=cards.Suite, taken_ids=self.paths("tasks")
        )

    def families(self) -> dict[str, cards.ModelFamily]:
        """Return all families of checkpoints on the Hub by id, the project's first."""
        return self._read_records("baselines", "families", record=cards.ModelFamily, taken_ids={})

    def corpora(self) -> dict[str, cards.CorpusCard]:
        """Return all corpora by id."""
        return self._read_records("trainers", "corpora", record=cards.CorpusCard, taken_ids={})

    def _read_records(
        self, kind: str, *file_stems: str, record: type[RecordT], taken_ids: Mapping[str, Path]
    ) -> dict[str, RecordT]:
        """Read files that hold several records: each TOML table is one, and its name is the id.

        Args:
            kind: The kind of card beside which the files lie, such as ``tasks``. The project and
                each folder of the user may have one file of each name.
            *file_stems: The names of the files without ``.toml``, in the order of their records.
            record: The class of the records.
            taken_ids: Ids that no record may have -> the file that has each.

        Returns:
            The records by id; empty if there is no such file.

        Raises:
            CardError: An id is taken, a file is no TOML, or a table is not valid.
        """
        paths_by_id = dict(taken_ids)
        records = {}
        for file_stem, folder in product(file_stems, self._card_folders(kind)):
            path = folder / f"{file_stem}.toml"
            if not path.is_file():
                continue
            for record_id, table in parse_toml(path).items():
                path_of_id = paths_by_id.setdefault(record_id, path)
                if path_of_id != path:
                    raise CardError(
                        f"{path}: the id '{record_id}' is taken by {path_of_id}; rename one"
                    )
                records[record_id] = convert(table, record, where=f"{path}: [{record_id}]")
        return records


CATALOGUE = ArgumentKind(
    lambda value: isinstance(value, Catalogue),
    expected="a Catalogue, such as stsbench.Catalogue('DIR')",
)
"""The kind of the argument ``catalogue`` of functions for programs."""


CARD_FOLDERS = ("tasks", "baselines", "trainers")
RESERVED_IDS = frozenset({"suites", "mteb-suites", "families", "corpora"})
"""Stems of files that hold several records, and are no ids of cards."""


@cache
def _read_cached_card(path: Path, record: type[RecordT], mtime_ns: int) -> RecordT:
    return convert(parse_toml(path), record, where=str(path))


def read_card(path: Path, record: type[RecordT]) -> RecordT:
    """Read one card, a TOML file that describes a task, an encoder or a recipe.

    A card is parsed again only if its file has changed since the last call.

    Args:
        path: The file of the card.
        record: The class of the card, such as ``EncoderCard``; it says which keys are valid.

    Raises:
        CardError: There is no such file, or it is no valid card of this class.
    """
    if not path.exists():
        raise CardError(f"card '{path}' does not exist")
    # The time of the last change is part of the cache's key.
    card: RecordT = _read_cached_card(path, record, path.stat().st_mtime_ns)
    return card
