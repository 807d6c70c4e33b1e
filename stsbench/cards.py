"""Cards: the TOML files of facts about tasks, suites, encoders and corpora, read strictly.

A card's id is its file's stem. An unknown, missing or doubled key, or a value of the wrong
type, stops the run with one line naming file and key.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import msgspec

from stsbench.errors import CardError, UnknownName, did_you_mean, one_line

Scalar = bool | int | float | str
Overlap = Literal["none", "text", "gold", "unknown"]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A strict, frozen record."""


class FileFacts(Record, frozen=True, kw_only=True):
    """One data file: where it is below its source, how many rows it has, and its sha256."""

    path: str
    rows: int | None = None
    sha256: str = ""
    subset: str = ""
    label: str = ""


class SplitFacts(Record, frozen=True, kw_only=True):
    """What must be found in a split: counts, characters of each column, mean gold score."""

    n: int
    characters: list[int] = []
    mean: float | None = None
    subsets: dict[str, int] = {}
    labels: dict[str, int] = {}


class FileSource(Record, frozen=True, kw_only=True):
    """A source made of files: a folder below the data folder, or files shipped in the package."""

    reader: str
    files: dict[str, list[FileFacts]]
    folder: str = ""
    params: dict[str, Any] = {}


class HubSource(Record, frozen=True, kw_only=True):
    """A dataset on the Hub: its splits there, its columns, and what cannot be had from it."""

    repo: str
    revision: str
    splits: dict[str, str] = {}
    columns: dict[str, str] = {}
    config: str = ""
    scale: float = 1.0
    archive: str = ""
    """A tar file in the repository that holds the local files, ``archive_folder`` being its top."""
    archive_folder: str = ""


class TaskCard(Record, frozen=True, kw_only=True):
    """A task: a dataset with the way it is scored."""

    name: str
    evaluator: str
    languages: list[str]
    paper: str
    license: str
    splits: dict[str, SplitFacts]
    gold_range: tuple[float, float] | None = None
    note: str = ""
    options: dict[str, Scalar | list[Scalar]] = {}
    score_split: str = "test"
    local: FileSource | None = None
    hub: HubSource | None = None
    package: FileSource | None = None


class Composite(Record, frozen=True, kw_only=True):
    """A mean that a paper takes over tasks scored in different ways."""

    source: str
    protocols: dict[str, str]


class Suite(Record, frozen=True, kw_only=True):
    """A named set of tasks reported with an average."""

    name: str
    tasks: list[str]
    average: bool = True
    note: str = ""
    composite: Composite | None = None


class EncoderCard(Record, frozen=True, kw_only=True):
    """An encoder worth comparing with: what it is and where its checkpoint lies."""

    name: str
    kind: str
    method: str
    backbone: str
    supervision: Literal["none", "nli", "sts", "pairs", "translation"]
    overlap: Overlap
    paper: str
    license: str
    note: str = ""
    params: dict[str, Any] = {}


class Corpus(Record, frozen=True, kw_only=True):
    """Training text known by a logical name: its file in a corpora folder, and on the Hub."""

    name: str
    file: str
    license: str
    source: str
    rows: int | None = None
    columns: list[str] = []
    sha256: str = ""
    repo: str = ""
    revision: str = "unpinned"
    note: str = ""


RecordT = TypeVar("RecordT", bound=Record)


def card_folder(kind: str) -> Path:
    """The folder of one kind of card: inside an installed wheel, or beside the package in a checkout."""
    here = Path(__file__).parent
    packaged = here / "_cards" / kind
    return packaged if packaged.is_dir() else here.parent / kind


class Catalogue:
    """All cards of the project, and those of a user's own folders, by id.

    A user's folder has the shape of the project's (``tasks/``, ``baselines/``, ``trainers/``)
    or holds task and encoder cards side by side; an id taken twice is an error.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        """Note the user's folders; cards are looked for once, and read when asked for."""
        self.folders = tuple(folders)
        self._paths: dict[str, dict[str, Path]] = {}
        for folder in self.folders:
            if not folder.is_dir():
                raise CardError(f"cards folder '{folder}' does not exist")

    def paths(self, kind: str) -> dict[str, Path]:
        """The files of one kind of card (``tasks``, ``baselines``, ``trainers``) by id, sorted."""
        if kind not in self._paths:
            self._paths[kind] = self._find(kind)
        return self._paths[kind]

    def _find(self, kind: str) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for folder in [card_folder(kind), *(f / kind for f in self.folders)]:
            for name in sorted(path.stem for path in folder.glob("*.toml")):
                path = folder / f"{name}.toml"
                if name in RESERVED:
                    continue
                if name in found:
                    raise CardError(f"{path}: the id '{name}' is taken by {found[name]}; rename one file")
                found[name] = path
        return found

    def task(self, name: str) -> TaskCard:
        """The task of this id; raises UnknownName."""
        return read_card(self._path("task", "tasks", name), TaskCard)

    def encoder(self, name: str) -> EncoderCard:
        """The encoder of this id; raises UnknownName."""
        return read_card(self._path("encoder", "baselines", name), EncoderCard)

    def _path(self, word: str, kind: str, name: str) -> Path:
        paths = self.paths(kind)
        if name not in paths:
            raise UnknownName(word, name, paths, hint=f"'stsbench list {word}s' lists them")
        return paths[name]

    def suites(self) -> dict[str, Suite]:
        """All suites by id, the project's first."""
        return self._tables("tasks", "suites", Suite)

    def corpora(self) -> dict[str, Corpus]:
        """All corpora by id."""
        return self._tables("trainers", "corpora", Corpus)

    def _tables(self, kind: str, stem: str, record: type[RecordT]) -> dict[str, RecordT]:
        found: dict[str, RecordT] = {}
        for folder in [card_folder(kind), *(f / kind for f in self.folders)]:
            path = folder / f"{stem}.toml"
            if path.is_file():
                for key, table in parse_toml(path).items():
                    found[key] = convert(table, record, where=f"{path}: [{key}]")
        return found


RESERVED = frozenset({"suites", "corpora"})
"""Stems that hold many small records in one file."""


def parse_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; a doubled key is an error in TOML itself."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(f"{path}: cannot be read: {one_line(error)}") from error
    except tomllib.TOMLDecodeError as error:
        text = one_line(error).replace("Cannot overwrite a value", "a key is given twice")
        raise CardError(f"{path}: not valid TOML: {text}") from error


@cache
def _read(path: Path, record: type[RecordT], mtime: int) -> RecordT:
    return convert(parse_toml(path), record, where=str(path))


def read_card(path: Path, record: type[RecordT]) -> RecordT:
    """Read one card strictly."""
    if not path.is_file():
        raise CardError(f"card '{path}' does not exist")
    card: RecordT = _read(path, record, path.stat().st_mtime_ns)
    return card


def card_digest(path: Path) -> str:
    """The sha256 of a card's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def convert(table: dict[str, Any], record: type[RecordT], *, where: str) -> RecordT:
    """Turn a parsed table into its record, naming the key of the first thing wrong."""
    try:
        return msgspec.convert(table, record)
    except msgspec.ValidationError as error:
        raise CardError(f"{where}: {_explain(str(error), record)}") from error


_PROBLEM = re.compile(r"^(?P<what>.*?)(?: - at `\$?\.?(?P<where>.*)`)?$", re.S)


def _explain(message: str, record: type[msgspec.Struct]) -> str:
    """Reword msgspec's message: which key, in which table, and the nearest right name."""
    match = _PROBLEM.match(message)
    what, place = (match["what"], match["where"] or "") if match else (message, "")
    inside = f" in [{place}]" if place else ""
    if unknown := re.match(r"Object contains unknown field `(.*)`", what):
        key = unknown[1]
        return f"unknown key '{key}'{inside}{did_you_mean(key, sorted(set(_keys(record))))}"
    if missing := re.match(r"Object missing required field `(.*)`", what):
        return f"key '{missing[1]}' is missing{inside}"
    key = f"key '{place}': " if place else ""
    return f"{key}{what[0].lower()}{what[1:]}"


def _keys(record: type[msgspec.Struct]) -> Iterator[str]:
    """All keys of a record and of the records inside it."""
    for key, hint in get_type_hints(record).items():
        yield key
        stack = [hint]
        while stack:
            inner = stack.pop()
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                yield from _keys(inner)
            stack.extend(get_args(inner))
