"""Cards: the TOML files that describe tasks, suites, encoders and corpora, read strictly.

A card's id is the stem of its file. An unknown, missing or doubled key, or a value of the wrong
type, stops the run with one line that names file and key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stsbench.core import cards
from stsbench.core.errors import CardError, Remedy, UnknownName
from stsbench.core.parameters import PATHS, validate_arguments
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
        """Check the user's folders; cards are searched once per kind, and read at each request.

        Args:
            folders: A folder of the user's cards, or several.

        Raises:
            CardError: A folder does not exist, or has no folder for cards.
        """
        self.folders = tuple(map(Path, [folders] if isinstance(folders, str | Path) else folders))
        self._paths: dict[str, dict[str, Path]] = {}
        """The files of the cards that were searched, by kind and id."""
        self._digests: dict[str, frozenset[str]] = {}
        """The hashes of encoders' cards and recipes so far, by name; see :meth:`digests`."""
        for folder in self.folders:
            if not folder.is_dir():
                raise CardError(f"cards folder '{folder}' does not exist")
            if not any((folder / kind).is_dir() for kind in CARD_FOLDERS):
                raise CardError(
                    f"cards folder '{folder}' has none of the folders "
                    f"{', '.join(CARD_FOLDERS)} for cards"
                )

    def paths(self, kind: str) -> dict[str, Path]:
        """Return the files of one kind of card (a folder of ``CARD_FOLDERS``) by id, sorted.

        Raises:
            CardError: Two files have the same id.
        """
        if kind not in self._paths:
            paths_by_id: dict[str, Path] = {}
            for folder in self._folders(kind):
                for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem):
                    card_id = path.stem
                    if card_id in RESERVED_IDS:
                        continue
                    # Our cards and a user's may not have one id: which is meant would be unclear.
                    if paths_by_id.setdefault(card_id, path) != path:
                        raise CardError(
                            f"{path}: the id '{card_id}' is taken by {paths_by_id[card_id]}; "
                            "rename one file"
                        )
            self._paths[kind] = paths_by_id
        return self._paths[kind]

    def is_own(self, kind: str, name: str) -> bool:
        """Return whether a card is in one of the user's own folders."""
        path = self.paths(kind).get(name)
        return path is not None and path.parent != card_folder(kind)

    def _folders(self, kind: str) -> list[Path]:
        """Return the folders of one kind of card, the project's first."""
        return [card_folder(kind), *(folder / kind for folder in self.folders)]

    def task(self, name: str) -> cards.TaskCard:
        """Return the card of the task of this id, with its local data folder made absolute.

        A folder that begins with ``.`` or ``..`` is relative to the card's own folder; any other
        is returned as it is written.

        Raises:
            UnknownName: No card has this id.
        """
        path = self._path("task", kind="tasks", name=name)
        card = read_card(path, cards.TaskCard)
        if card.local is None or card.local.folder.split("/")[0] not in (".", ".."):
            return card
        # The path is relative to the card's own folder.
        local = msgspec.structs.replace(
            card.local, folder=str((path.parent / card.local.folder).resolve())
        )
        return msgspec.structs.replace(card, local=local)

    def encoder(self, name: str) -> cards.EncoderCard:
        """Return the encoder of this id; raises UnknownName."""
        return read_card(self._path("encoder", kind="baselines", name=name), cards.EncoderCard)

    def find_encoder(self, name: str, digest: str | None) -> cards.EncoderCard | None:
        """Return the card of the encoder that results call by this name; None if it has none.

        The results must carry the hash of the card, or recipe, of that name: another folder, class
        or card of the same name is not the card's encoder. A recipe's name is that of the encoder
        it trains. An encoder with replaced parameters, which follow a plus in its name, has the
        card under its own name and without published rows.

        Args:
            name: The name in results.
            digest: The hash of a card that results carry; None if they carry none.
        """
        stem, separator, replaced_params = name.partition("+")
        if not separator:
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
        """Return the hashes that results of this name's card and recipe carry."""
        if name not in self._digests:
            digests: set[str] = set()
            if name in self.paths("baselines"):
                digests.add(self.encoder_digest(self.encoder(name)))
            if name in self.paths("trainers"):
                digests.add(cards.recipe_digest(self.recipe(name)))
            self._digests[name] = frozenset(digests)
        return self._digests[name]

    def encoder_digest(self, card: cards.EncoderCard) -> str:
        """Return the hash of an encoder's card, with that of its base; see ``core.cards``."""
        base = card.params.get("base")
        base_digest = None
        if isinstance(base, str) and base in self.paths("baselines"):
            base_card = self.encoder(base)
            # A base has no base itself: encoders fitted on texts are made from those that are not.
            base_digest = cards.encoder_digest(
                base_card.kind, base_card.params, base_card.overlap, base_digest=None
            )
        return cards.encoder_digest(card.kind, card.params, card.overlap, base_digest)

    def _encoder_or_recipe(self, stem: str) -> cards.EncoderCard | None:
        """Return the card of a name, or one composed from the recipe; None if there is neither.

        If there are both, the card also has the published rows of the recipe.
        """
        recipe = self.recipe(stem) if stem in self.paths("trainers") else None
        if stem in self.paths("baselines"):
            card = self.encoder(stem)
            # The published and the trained encoder share the name, so the rows of both apply.
            published = dict.fromkeys([*card.published, *(recipe.published if recipe else [])])
            return msgspec.structs.replace(card, published=list(published))
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
        """Return the file of the card, or else the recipe, of this name.

        Raises:
            KeyError: There is neither.
        """
        stem = name.partition("+")[0]
        return {**self.paths("trainers"), **self.paths("baselines")}[stem]

    def recipe(self, name: str) -> cards.RecipeCard:
        """Return the recipe of this id; raises UnknownName."""
        return read_card(self._path("recipe", kind="trainers", name=name), cards.RecipeCard)

    def _path(self, noun: str, kind: str, name: str) -> Path:
        """Return the file of a card; ``noun`` describes the kind of card in the message."""
        paths = self.paths(kind)
        if name not in paths:
            raise UnknownName(noun, name, paths, remedy=Remedy("list", {"kind": f"{noun}s"}))
        return paths[name]

    def suites(self) -> dict[str, cards.Suite]:
        """Return all suites by id: the project's, the user's, MTEB's; none may have a task's id."""
        suites = self._tables(
            "tasks", file_stem="suites", record=cards.Suite, taken_ids=self.paths("tasks")
        )
        # A file of its own, because a script writes it.
        return suites | self._tables(
            "tasks", file_stem="mteb-suites", record=cards.Suite, taken_ids=self.paths("tasks")
        )

    def families(self) -> dict[str, cards.ModelFamily]:
        """Return all families of checkpoints on the Hub by id, the project's first."""
        return self._tables(
            "baselines", file_stem="families", record=cards.ModelFamily, taken_ids={}
        )

    def corpora(self) -> dict[str, cards.CorpusCard]:
        """Return all corpora by id."""
        return self._tables("trainers", file_stem="corpora", record=cards.CorpusCard, taken_ids={})

    def _tables(
        self, kind: str, file_stem: str, record: type[RecordT], *, taken_ids: Mapping[str, Path]
    ) -> dict[str, RecordT]:
        """Read the records of one kind by id, from files with one table per record.

        Args:
            kind: The folder of the files.
            file_stem: The stem of the files.
            record: The class of the records.
            taken_ids: Ids that no record may have, with the file of each.
        """
        paths_by_id = dict(taken_ids)
        records = {}
        for folder in self._folders(kind):
            path = folder / f"{file_stem}.toml"
            if not path.is_file():
                continue
            for key, table in parse_toml(path).items():
                if paths_by_id.setdefault(key, path) != path:
                    raise CardError(
                        f"{path}: the id '{key}' is taken by {paths_by_id[key]}; rename one"
                    )
                records[key] = convert(table, record, where=f"{path}: [{key}]")
        return records


CARD_FOLDERS = ("tasks", "baselines", "trainers")
RESERVED_IDS = frozenset({"suites", "mteb-suites", "families", "corpora"})
"""Stems of files that hold several records, and are no ids of cards."""


@cache
def _read_cached(path: Path, record: type[RecordT], mtime_ns: int) -> RecordT:
    return convert(parse_toml(path), record, where=str(path))


def read_card(path: Path, record: type[RecordT]) -> RecordT:
    """Read one card; keys that its type does not have are refused.

    It is parsed again only if its file has changed.

    Args:
        path: The card, a TOML file.
        record: The type of the card, such as ``EncoderCard``.

    Raises:
        CardError: There is no such card, or it is not valid.
    """
    if not path.exists():
        raise CardError(f"card '{path}' does not exist")
    card: RecordT = _read_cached(path, record, path.stat().st_mtime_ns)
    return card
