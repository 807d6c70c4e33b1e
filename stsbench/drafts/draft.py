"""A draft: files for a user to read and edit, what is unsure in them, and the command that uses them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stsbench.cards.catalogue import KINDS, RESERVED, Catalogue
from stsbench.cards.toml_text import toml, toml_key
from stsbench.errors import OutputError, StsbenchError, cut
from stsbench.files.whole import write_whole

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
"""An id: no sign in it means anything in a comma list, a path or a name with parameters replaced."""
UNKNOWN = "unknown"
"""What a card says where only its owner knows."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Files to write, by path; one line each of what was found and of what is unsure; and what to run next."""

    files: Mapping[Path, str]
    found: Sequence[str]
    unsure: Sequence[str]
    command: str

    def write(self, *, force: bool) -> None:
        """Write all files.

        Raises:
            OutputError: one is there already and ``force`` is not set, or it cannot be written. Then none is changed.
        """
        if not force and (there := [path for path in self.files if path.exists()]):
            raise OutputError(f"{there[0]} exists; --force writes it again, another name leaves it as it is")
        for path, text in self.files.items():
            write_whole(path, text.encode())


@dataclass(frozen=True, kw_only=True)
class Home:
    """Where a card goes: a user's folder of cards, and in it the folder of its kind."""

    cards: Path
    kind: str
    name: str

    @property
    def path(self) -> Path:
        """The card's file."""
        return self.cards / self.kind / f"{self.name}.toml"

    def option(self) -> str:
        """The option by which commands find the card."""
        return f"--cards {shlex.quote(str(self.cards))}"


def find_home(out: Path, kind: str, name: str) -> Home:
    """Return where a card of this name goes.

    Args:
        out: the folder for ``--cards``; or the folder of one kind in it, ``cards/tasks``.
        kind: ``tasks``, ``baselines`` or ``trainers``.
        name: the id.

    Raises:
        StsbenchError: the name can be no id, or is that of another card.
    """
    if not NAME.fullmatch(name) or name in RESERVED:
        raise StsbenchError(
            f"'{cut(name)}' cannot be the name of a card; give letters, digits, '-', '_' and '.' with --name"
        )
    home = Home(cards=out.parent if out.name == kind else out, kind=kind, name=name)
    others = [home.cards] if any((home.cards / one).is_dir() for one in KINDS) else []
    catalogue = Catalogue(others)
    taken = {**catalogue.paths(kind)} | (
        {one: Path("suites.toml") for one in catalogue.suites()} if kind == "tasks" else {}
    )
    if name in taken and taken[name] != home.path:
        raise StsbenchError(f"the name '{name}' is taken by {taken[name]}; give another with --name")
    return home


def name_of(path: Path) -> str:
    """A name made from that of a file or folder."""
    stem = path.resolve().name if path.is_dir() else path.stem
    return re.sub(r"[^a-z0-9._-]+", "-", stem.casefold()).strip("-._")


def lines_of(facts: Mapping[str, object], notes: Mapping[str, str]) -> list[str]:
    """The lines of a table of facts, each with the note of its key above it as a comment."""
    lines: list[str] = []
    for key, value in facts.items():
        lines += [f"# {notes[key]}"] if key in notes else []
        lines.append(f"{toml_key(key)} = {toml(value)}")
    return lines
