"""``stsbench.toml``: what a project's commands are asked for where their options say nothing else."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stsbench.cards.names import split_names
from stsbench.cards.strict import Record, convert, parse_toml
from stsbench.cards.toml_text import toml
from stsbench.cli.options.encoders import RunOptions
from stsbench.cli.options.shared import Given, Options, WithCards, long_name
from stsbench.errors import StsbenchError

if TYPE_CHECKING:
    from stsbench.bench.cells import RunSettings

FILE, PROJECT, TABLE = "stsbench.toml", "pyproject.toml", "[tool.stsbench]"
OptionsT = TypeVar("OptionsT", bound=Options)


class Config(Record, frozen=True, kw_only=True):
    """The keys of the file; paths are relative to its folder."""

    encoders: list[str] | None = None
    names: list[str] | None = None
    tasks: list[str] | None = None
    protocols: list[str] | None = None
    split: str | None = None
    seeds: list[int] | None = None
    set: dict[str, Any] | None = None
    data: str | None = None
    cards: list[str] | None = None
    results: str | None = None


Reader = Callable[[Any, Path], Any]
"""From a key's value and the file's folder to an option's value."""


def _path(value: str, folder: Path) -> Path:
    return folder / Path(value).expanduser()


def _paths(value: Sequence[str], folder: Path) -> list[Path]:
    return [_path(one, folder) for one in value]


def _encoders(value: Sequence[str], folder: Path) -> list[str]:
    """Names, and paths that begin with a dot or end like a card's."""
    return [str(_path(one, folder)) if one.startswith(".") or one.endswith(".toml") else one for one in value]


def _joined(value: Sequence[object], folder: Path) -> str:
    return ",".join(map(str, value))


def _assignments(value: Mapping[str, Any], folder: Path) -> list[str]:
    return [f"{key}={toml(one)}" for key, one in value.items()]


def _plain(value: Any, folder: Path) -> Any:  # noqa: ANN401 - the value as it is
    return value


PLACES: Mapping[str, tuple[str, Reader]] = {
    "data": ("data", _path),
    "cards": ("cards", _paths),
    "results": ("results", _path),
}
"""Keys that every command takes which has an option for them: the option's field, and how it is read."""
OF_RUNS: Mapping[str, tuple[str, Reader]] = {
    "encoders": ("encoder", _encoders),
    "names": ("names", _plain),
    "tasks": ("tasks", _joined),
    "protocols": ("protocol", _joined),
    "split": ("split", _plain),
    "seeds": ("seeds", _joined),
    "set": ("assign", _assignments),
    **PLACES,
}
"""Those of ``stsbench run``."""


def configured(asked: OptionsT, given: Given) -> OptionsT:
    """The options with what the user's file says in the place of those that were not typed.

    Raises:
        StsbenchError: the file cannot be read, has an unknown key, or belongs to another user.
    """
    if not isinstance(asked, WithCards):
        return asked
    path = asked.config or found_config(Path.cwd())
    if path is None:
        return asked
    config, hints = read_config(path), type(asked).hints()
    changes: dict[str, Any] = {}
    for key, (field, read) in (OF_RUNS if isinstance(asked, RunOptions) else PLACES).items():
        value = getattr(config, key)
        if value is not None and field in hints and not _typed(field, hints, given):
            changes[field] = read(value, path.parent)
    return dataclasses.replace(asked, **changes)


def _typed(field: str, hints: Mapping[str, Any], given: Given) -> bool:
    """Whether an option was typed, or another that says the same."""
    alike = {"encoder": ("encoder", "encoders"), "names": ("names", "encoder", "encoders")}.get(field, (field,))
    return any((long_name(hints[one]) or one) in given for one in alike)


@cache
def found_config(folder: Path) -> Path | None:
    """The file of a folder or the nearest above it: ``stsbench.toml``, or a ``pyproject.toml`` that has our table.

    Raises:
        StsbenchError: it belongs to another user.
    """
    for home in (folder, *folder.parents):
        for name in (FILE, PROJECT):
            path = home / name
            if path.is_file() and (name == FILE or TABLE in path.read_text(encoding="utf-8", errors="replace")):
                _check_owner(path)
                return path
    return None


def _check_owner(path: Path) -> None:
    """Refuse what another user has put in the way: the file says which encoders' code is run."""
    if os.name == "posix" and path.stat().st_uid not in (os.geteuid(), 0):
        raise StsbenchError(f"{path} belongs to another user; remove it, or name it by --config if you trust it")


def read_config(path: Path) -> Config:
    """Read the file; raises CardError for what it may not hold."""
    table = parse_toml(path)
    where = str(path)
    if path.name == PROJECT:
        table, where = table.get("tool", {}).get("stsbench", {}), f"{path}: {TABLE}"
    return convert(table, Config, where=where)


def resolved(settings: RunSettings) -> str:
    """What a run was asked for, as the text of a file in its results folder: ``--config`` of it repeats the run."""
    here = settings.out.resolve()
    facts = {
        "encoders": [_relative(one, here) if _is_place(one) else one for one in settings.encoders],
        "names": list(settings.called.values()),
        "tasks": split_names(settings.tasks),
        "protocols": split_names(settings.protocol or ""),
        "split": settings.split,
        "seeds": list(settings.seeds),
        "set": dict(settings.params),
        "data": settings.data and _relative(settings.data, here),
        "cards": [_relative(one, here) for one in settings.catalogue.folders],
        "results": ".",
    }
    lines = [f"{key} = {toml(value)}" for key, value in facts.items() if value]
    return "\n".join(["# The settings of the last run into this folder; --config of this file repeats it.", *lines, ""])


def _is_place(encoder: str) -> bool:
    try:
        return encoder.endswith(".toml") or Path(encoder).is_dir()
    except OSError:
        # Too long for a file's name.
        return False


def _relative(path: str | Path, folder: Path) -> str:
    """A path from a folder, beginning with a dot as encoders that are paths do."""
    found = Path(os.path.relpath(Path(path).resolve(), folder)).as_posix()
    return found if found.startswith(".") else f"./{found}"
