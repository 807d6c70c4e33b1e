"""Cards: the TOML files of facts about tasks, suites, encoders and corpora, read strictly.

A card's id is its file's stem. An unknown, missing or doubled key, or a value of the wrong
type, stops the run with one line naming file and key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stsbench.core import cards
from stsbench.core.errors import CardError, UnknownName
from stsbench.core.parameters import PATHS, validate_arguments

RecordT = TypeVar("RecordT", bound=cards.StrictRecord)


def card_folder(kind: str) -> Path:
    """The folder of one kind of card: inside an installed wheel, or beside the package in a checkout."""
    here = Path(__file__).parent.parent
    packaged = here / "_cards" / kind
    return packaged if packaged.is_dir() else here.parent / kind


class Catalogue:
    """All cards of the project, and those of a user's own folders, by id; an id taken twice is an error.

    A user's folder has the shape of the project's: ``tasks/``, ``baselines/``, ``trainers/``, one of them at least.
    """

    @validate_arguments(folders=PATHS)
    def __init__(self, folders: str | Path | Sequence[str | Path] = ()) -> None:
        """Note the user's folders, or only one; cards are looked for once, and read when asked for."""
        self.folders = tuple(map(Path, [folders] if isinstance(folders, str | Path) else folders))
        self._paths: dict[str, dict[str, Path]] = {}
        self._digests: dict[str, frozenset[str]] = {}
        for folder in self.folders:
            if not folder.is_dir():
                raise CardError(f"cards folder '{folder}' does not exist")
            if not any((folder / kind).is_dir() for kind in CARD_FOLDERS):
                raise CardError(
                    f"cards folder '{folder}' has none of the folders {', '.join(CARD_FOLDERS)} for cards"
                )

    def paths(self, kind: str) -> dict[str, Path]:
        """The files of one kind of card (``tasks``, ``baselines``, ``trainers``) by id, sorted."""
        if kind not in self._paths:
            found: dict[str, Path] = {}
            for folder in self._homes(kind):
                for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem):
                    if path.stem not in RESERVED and found.setdefault(path.stem, path) != path:
                        raise CardError(
                            f"{path}: the id '{path.stem}' is taken by {found[path.stem]}; rename one file"
                        )
            self._paths[kind] = found
        return self._paths[kind]

    def _homes(self, kind: str) -> list[Path]:
        return [card_folder(kind), *(folder / kind for folder in self.folders)]

    def task(self, name: str) -> cards.TaskCard:
        """The task of this id; raises UnknownName."""
        path = self._path("task", "tasks", name)
        card = read_card(path, cards.TaskCard)
        if card.local is None or card.local.folder.split("/")[0] not in (".", ".."):
            return card
        # Seen from the card's own folder.
        local = msgspec.structs.replace(
            card.local, folder=str((path.parent / card.local.folder).resolve())
        )
        return msgspec.structs.replace(card, local=local)

    def encoder(self, name: str) -> cards.EncoderCard:
        """The encoder of this id; raises UnknownName."""
        return read_card(self._path("encoder", "baselines", name), cards.EncoderCard)

    def known_encoder(self, name: str, digest: str | None) -> cards.EncoderCard | None:
        """What is known of the encoder that results call by this name; None where nothing is.

        Known is what carries the hash of the card, or of the recipe, that has this name: another folder, class or
        card of the same name is not. A recipe's name is that of the encoder it trains. Parameters replaced stand
        behind a plus: such an encoder is called so, and none of the published rows is its.
        """
        stem, plus, changes = name.partition("+")
        if not plus:
            return (
                self._encoder_or_recipe(stem)
                if cards.card_digest_part(digest) in self.digests(stem)
                else None
            )
        card = self._encoder_or_recipe(stem)
        return card and msgspec.structs.replace(card, name=f"{card.name}+{changes}", published=[])

    def is_taken(self, name: str) -> bool:
        """Whether a card or a recipe has this name, or that before the parameters it says were replaced."""
        stem = name.partition("+")[0]
        return stem in self.paths("baselines") or stem in self.paths("trainers")

    def digests(self, name: str) -> frozenset[str]:
        """The hashes that results of this name's card and recipe carry."""
        if name not in self._digests:
            found = (
                {self.digest_of(self.encoder(name))} if name in self.paths("baselines") else set()
            )
            if name in self.paths("trainers"):
                found.add(cards.recipe_digest(self.recipe(name)))
            self._digests[name] = frozenset(found)
        return self._digests[name]

    def digest_of(self, card: cards.EncoderCard) -> str:
        """The hash of what decides an encoder, see :mod:`stsbench.core.cards`."""
        base = card.params.get("base")
        over = (
            self.encoder(base)
            if isinstance(base, str) and base in self.paths("baselines")
            else None
        )
        # No base has a base: what is fitted on texts is made over what is not.
        of_base = cards.encoder_digest(over.kind, over.params, over.overlap, None) if over else None
        return cards.encoder_digest(card.kind, card.params, card.overlap, of_base)

    def _encoder_or_recipe(self, stem: str) -> cards.EncoderCard | None:
        recipe = self.recipe(stem) if stem in self.paths("trainers") else None
        if stem in self.paths("baselines"):
            card = self.encoder(stem)
            # One name for what is published and what is trained here: the rows of both are its.
            rows = dict.fromkeys([*card.published, *(recipe.published if recipe else [])])
            return msgspec.structs.replace(card, published=list(rows))
        if recipe is None:
            return None
        shared = ("name", "backbone", "supervision", "paper", "note", "reproducible", "published")
        facts: dict[str, Any] = {"kind": "transformer", "overlap": "unknown", "license": ""}
        facts |= {key: getattr(recipe, key) for key in shared}
        return cards.EncoderCard(method=recipe.label or recipe.method, **facts)

    def encoder_path(self, name: str) -> Path:
        """The card or recipe of a known encoder."""
        stem = name.partition("+")[0]
        return {**self.paths("trainers"), **self.paths("baselines")}[stem]

    def recipe(self, name: str) -> cards.RecipeCard:
        """The recipe of this id; raises UnknownName."""
        return read_card(self._path("recipe", "trainers", name), cards.RecipeCard)

    def _path(self, word: str, kind: str, name: str) -> Path:
        paths = self.paths(kind)
        if name not in paths:
            raise UnknownName(word, name, paths, hint=f"'stsbench list {word}s' lists them")
        return paths[name]

    def suites(self) -> dict[str, cards.Suite]:
        """All suites by id, the project's first; a task's id is no suite's."""
        return self._tables("tasks", "suites", cards.Suite, taken=self.paths("tasks"))

    def corpora(self) -> dict[str, cards.CorpusCard]:
        """All corpora by id."""
        return self._tables("trainers", "corpora", cards.CorpusCard, taken={})

    def _tables(
        self, kind: str, stem: str, record: type[RecordT], *, taken: Mapping[str, Path]
    ) -> dict[str, RecordT]:
        homes, found = dict(taken), {}
        for path in filter(Path.is_file, (folder / f"{stem}.toml" for folder in self._homes(kind))):
            for key, table in cards.parse_toml(path).items():
                if homes.setdefault(key, path) != path:
                    raise CardError(f"{path}: the id '{key}' is taken by {homes[key]}; rename one")
                found[key] = cards.convert(table, record, where=f"{path}: [{key}]")
        return found


CARD_FOLDERS = ("tasks", "baselines", "trainers")
RESERVED = frozenset({"suites", "corpora"})
"""Stems that hold many small records in one file."""


@cache
def _read(path: Path, record: type[RecordT], mtime: int) -> RecordT:
    return cards.convert(cards.parse_toml(path), record, where=str(path))


def read_card(path: Path, record: type[RecordT]) -> RecordT:
    """Read one card strictly."""
    if not path.exists():
        raise CardError(f"card '{path}' does not exist")
    card: RecordT = _read(path, record, path.stat().st_mtime_ns)
    return card
