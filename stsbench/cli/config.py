"""``stsbench.toml``: what a project's commands are asked for where their options say nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.core.cards import StrictRecord, convert, parse_toml, toml
from stsbench.core.errors import CardError, StsbenchError, translate_errors
from stsbench.core.names import redact_name, split_names
from stsbench.core.secrets import REDACTED, redact

if TYPE_CHECKING:
    from stsbench.bench.plan import RunPlan

FILE, PROJECT, TABLE = "stsbench.toml", "pyproject.toml", "[tool.stsbench]"


class ProjectConfig(StrictRecord, frozen=True, kw_only=True):
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


def defaults(given: Path | None, *, of_run: bool) -> dict[str, Any]:
    """What stands in the place of options that are not typed, by the names of a command's parameters.

    It is read from the ``given`` file, else the one of this folder or above; only ``run`` takes all keys, others folders alone.

    Raises:
        StsbenchError: the file cannot be read, has an unknown key, or belongs to another user.
    """
    path = given or found_config(Path.cwd())
    if path is None:
        return {}
    found = read_config(path)
    places: dict[str, Any] = {
        "data": found.data and _path(found.data, path, "data"),
        "results": found.results and _path(found.results, path, "results"),
        "cards": [_path(one, path, "cards") for one in found.cards or ()],
    }
    named = found.encoders or ()
    # Of encoders a path begins with a dot or ends like a card's.
    moved = {
        one: str(_path(one, path, "encoders"))
        for one in named
        if one.startswith(".") or one.endswith(".toml")
    }
    runs: dict[str, Any] = {
        "encoder": [moved.get(one, one) for one in named],
        "names": found.names,
        "tasks": _joined(found.tasks),
        "protocol": _joined(found.protocols),
        "split": found.split,
        "seeds": _joined(found.seeds),
        "assign": [f"{key}={toml(value)}" for key, value in (found.set or {}).items()],
    }
    return {name: value for name, value in (places | runs if of_run else places).items() if value}


def _path(value: str, file: Path, key: str) -> Path:
    """Return what a path in the file names; raises CardError: nothing can have that name."""
    with translate_errors(
        f"{file}: key '{key}': {value!r} is no path", CardError, RuntimeError, ValueError
    ):
        if "\0" in value:
            raise ValueError("it holds a NUL byte")
        return file.parent / Path(value).expanduser()


def _joined(value: Sequence[object] | None) -> str:
    return ",".join(map(str, value or ()))


@cache
def found_config(folder: Path) -> Path | None:
    """The file of a folder or the nearest above it: ``stsbench.toml``, or a ``pyproject.toml`` that has our table."""
    for path in (home / name for home in (folder, *folder.parents) for name in (FILE, PROJECT)):
        # A folder or pipe of the name is refused when it is read.
        is_own = path.name == FILE and path.exists()
        if is_own or (
            path.is_file() and TABLE in path.read_text(encoding="utf-8", errors="replace")
        ):
            # The file says which encoders' code is run.
            if os.name == "posix" and path.stat().st_uid not in (os.geteuid(), 0):
                what = f"{path} belongs to another user"
                raise StsbenchError(f"{what}; remove it, or name it by --config if you trust it")
            return path
    return None


def read_config(path: Path) -> ProjectConfig:
    """Read the file; raises CardError for what it may not hold."""
    table = parse_toml(path)
    where = str(path)
    if path.name == PROJECT:
        table, where = table.get("tool", {}).get("stsbench", {}), f"{path}: {TABLE}"
    return convert(table, ProjectConfig, where=where)


def format_settings(settings: RunPlan) -> str:
    """What a run was asked for, as the text of a file in its results folder: ``--config`` of it repeats the run."""
    here = settings.results_folder.resolve()
    # No folder has a name that is too long for one, which Path would raise.
    places = {one for one in settings.encoders if one.endswith(".toml") or os.path.isdir(one)}  # noqa: PTH112
    facts: Mapping[str, object] = {
        "encoders": [
            _relative(one, here) if one in places else redact_name(one) for one in settings.encoders
        ],
        "names": list(settings.names.values()),
        "tasks": split_names(str(settings.tasks)),
        "protocols": split_names(str(settings.protocol or "")),
        "split": settings.split,
        "seeds": list(settings.seeds),
        "set": redact(settings.params),
        "data": settings.data and _relative(settings.data, here),
        "cards": [_relative(one, here) for one in settings.catalogue.folders],
        "results": ".",
    }
    lines = [f"{key} = {toml(value)}" for key, value in facts.items() if value]
    head = ["# The settings of the last run into this folder; --config of this file repeats it."]
    if any(REDACTED in line for line in lines):
        head.append(
            f"# {REDACTED} stands for a secret: type that parameter again beside --config, by --set KEY=VALUE."
        )
    return "\n".join([*head, *lines, ""])


def join_assignments(typed: Sequence[str], filed: Sequence[str]) -> list[str]:
    """Return the ``key=value`` texts of ``--set``, and of a file with secrets left out those whose keys are not typed."""
    if not any(REDACTED in text for text in filed):
        return list(typed)
    keys = {text.partition("=")[0].strip() for text in typed}
    return [*(text for text in filed if text.partition("=")[0] not in keys), *typed]


def _relative(path: str | Path, folder: Path) -> str:
    """A path from a folder, beginning with a dot as encoders that are paths do."""
    found = Path(os.path.relpath(Path(path).resolve(), folder)).as_posix()
    return found if found.startswith(".") else f"./{found}"
