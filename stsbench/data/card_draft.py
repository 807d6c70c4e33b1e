"""Drafts of cards: the files to write, what is unsure in them, and the folder of the card."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stsbench.core.catalogue import CARD_FOLDERS, RESERVED_IDS, Catalogue
from stsbench.core.errors import OutputError, StsbenchError
from stsbench.core.files import write_atomically
from stsbench.core.wording import shorten

CARD_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
"""A valid id: none of its characters has a meaning in a comma list, a path or a name with
parameters."""
UNKNOWN = "unknown"
"""The value of keys in a card that only its owner can fill in."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A card and perhaps further files for a user to read and edit."""

    files: Mapping[Path, str]
    """The text of each file to write."""
    findings: Sequence[str]
    """What the draft is made of, one line each."""
    doubts: Sequence[str]
    """What is unsure in the draft, one line each."""
    problems: Sequence[str] = ()
    """What is wrong with a task's data, one line each."""

    def write(self, *, force: bool) -> None:
        """Write the files of the draft, in folders that are made if missing.

        ``self.files`` holds the text of each file by its path.

        Args:
            force: Replace files that exist; else none is written if one of them exists.

        Raises:
            OutputError: A file exists, or cannot be written.
        """
        for path in self.files:
            if path.exists() and not force:
                raise OutputError(
                    f"{path} exists; `force` writes it again, another name leaves it as it is"
                )
        for path, text in self.files.items():
            write_atomically(path, text.encode())


@dataclass(frozen=True, kw_only=True)
class CardLocation:
    """The location of a card: a user's folder of cards, and in it the folder of its kind."""

    cards: Path
    kind: str
    """The folder of its kind: ``tasks``, ``baselines`` or ``trainers``."""
    name: str

    @property
    def path(self) -> Path:
        """The card's file."""
        return self.cards / self.kind / f"{self.name}.toml"


def locate_card(folder: Path, kind: str, name: str) -> CardLocation:
    """Return where a new card is to be written, if its name is free.

    Args:
        folder: The user's folder of cards, or in it the folder of this kind of card.
        kind: The name of that inner folder: ``tasks``, ``baselines`` or ``trainers``.
        name: The id of the card, which is also the name of its file without ``.toml``.

    Raises:
        StsbenchError: The name cannot be an id, or is that of another card or suite.
    """
    # Reserved are names of files that hold several records, such as ``suites``.
    if not CARD_NAME.fullmatch(name) or name in RESERVED_IDS:
        raise StsbenchError(
            f"'{shorten(name)}' cannot be the name of a card; "
            "give letters, digits, - _ . with `name`"
        )
    cards_folder = folder.parent if folder.name == kind else folder
    location = CardLocation(cards=cards_folder, kind=kind, name=name)
    has_cards = any((cards_folder / card_folder).is_dir() for card_folder in CARD_FOLDERS)
    # The project's cards, and the user's own if there are any.
    catalogue = Catalogue([cards_folder] if has_cards else [])
    path_by_name = {**catalogue.paths(kind)}
    if kind == "tasks":
        # A task and a suite of tasks are named alike in commands, so their names must differ.
        for suite_name in catalogue.suites():
            path_by_name.setdefault(suite_name, Path("suites.toml"))
    # A draft may replace the user's own card of this name in this folder.
    existing_path = path_by_name.get(name, location.path)
    if existing_path.resolve() != location.path.resolve():
        raise StsbenchError(
            f"the name '{name}' is taken by {existing_path}; give another with `name`"
        )
    return location


def suggest_card_name(path: Path) -> str:
    """Return a valid id that is made from the name of a file or folder."""
    stem = path.resolve().name if path.is_dir() else path.stem
    return re.sub(r"[^a-z0-9._-]+", "-", stem.casefold()).strip("-._")


def relative_path(folder: Path, start: Path) -> str:
    """Return the path of a folder as a card in another folder writes it.

    It begins with ``./`` or ``../``. It is absolute if the two folders share no parent except the
    root.

    Args:
        folder: The folder that the card names.
        start: The folder of the card.
    """
    absolute_folder = folder.resolve()
    absolute_start = start.resolve()
    shared_parent = os.path.commonpath([absolute_folder, absolute_start])
    if shared_parent in ("", "/"):
        return str(absolute_folder)
    path = Path(os.path.relpath(absolute_folder, absolute_start)).as_posix()
    return path if path.startswith(".") else f"./{path}"
