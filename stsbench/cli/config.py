"""``stsbench.toml``: a project's defaults for the options of commands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.core.errors import CardError, StsbenchError, translate_errors
from stsbench.core.names import redact_name, split_names, split_params
from stsbench.core.secrets import REDACTED, redact
from stsbench.core.toml import StrictRecord, convert, parse_toml, toml

if TYPE_CHECKING:
    from stsbench.bench.plan import RunPlan

CONFIG_FILE, PYPROJECT_FILE, PYPROJECT_TABLE = "stsbench.toml", "pyproject.toml", "[tool.stsbench]"


class ProjectConfig(StrictRecord):
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


def read_defaults(file: Path | None, *, is_run: bool) -> dict[str, Any]:
    """Return the defaults of a command's options from the project's settings file.

    The file is ``stsbench.toml``, or a table in ``pyproject.toml``.

    Args:
        file: The file to read; None means the one in this folder or the nearest above it.
        is_run: Whether the command is ``stsbench run``, which reads all keys. Other commands read
            only those of folders: data, results and cards.

    Returns:
        Values by the names of the parameters of the command's function. Keys that the file does not
        set are omitted. Without a file there are no values.

    Raises:
        StsbenchError: The file cannot be read, has an unknown key, or belongs to another user.
    """
    path = file or find_config(Path.cwd())
    if path is None:
        return {}
    # A key that the file does not set is None.
    config = read_config(path)
    # Paths in the file are relative to its folder.
    results = _resolve_path(config.results, path, key="results") if config.results else None
    values: dict[str, Any] = {
        "data": _resolve_path(config.data, path, key="data") if config.data else None,
        "results": results,
        # The results that ``stsbench check`` compares with older ones.
        "new": results,
        "cards": [_resolve_path(folder, path, key="cards") for folder in config.cards or ()],
    }
    if is_run:
        # The keys are the parameters of ``run_command``, whose values are typed as texts: comma
        # lists, and KEY=VALUE for parameters of encoders.
        values |= {
            "encoder": [_resolve_encoder(spec, path) for spec in config.encoders or ()],
            "names": config.names,
            "tasks": _join_by_commas(config.tasks),
            "protocol": _join_by_commas(config.protocols),
            "split": config.split,
            "seeds": _join_by_commas(config.seeds),
            "assign": [f"{key}={toml(value)}" for key, value in (config.set or {}).items()],
        }
    return {name: value for name, value in values.items() if value}


def _resolve_encoder(spec: str, file: Path) -> str:
    """Return an encoder's spec with an absolute path if it is one: begins with a dot, or is a card.

    Parameters may follow the path, and ``file:`` or ``similarities:`` may precede it.
    """
    kind, path = _split_kind(spec)
    if path.startswith(".") or path.endswith(".toml"):
        return f"{kind}{_resolve_path(path, file, key='encoders')}"
    return spec


def _split_kind(spec: str) -> tuple[str, str]:
    """Return the kind of encoder that precedes a path, ``file:`` for example, and the rest."""
    kind, _, path = spec.partition(":")
    return (f"{kind}:", path) if kind in ("file", "similarities") else ("", spec)


def _resolve_path(value: str, file: Path, key: str) -> Path:
    """Return the path that a value of a settings file stands for, relative to the file's folder.

    Args:
        value: The path as it is written in the file; ``~`` is the user's home.
        file: The path of the settings file.
        key: The key that has the value, for the message.

    Raises:
        CardError: The value can be no path.
    """
    problem = f"{file}: key '{key}': {value!r} is no path"
    # In the block, RuntimeError and ValueError become a CardError with this message.
    with translate_errors(problem, CardError, RuntimeError, ValueError):
        if "\0" in value:
            raise ValueError("it holds a NUL byte")
        return file.parent / Path(value).expanduser()


def _join_by_commas(values: Sequence[object] | None) -> str:
    return ",".join(map(str, values or ()))


@cache
def find_config(folder: Path) -> Path | None:
    """Return the settings file in a folder, or else in the nearest folder above it.

    It is a ``stsbench.toml``, or a ``pyproject.toml`` with a table ``[tool.stsbench]``. None if
    there is no such file.

    Raises:
        StsbenchError: The file belongs to another user.
    """
    paths = (
        parent / name
        for parent in (folder, *folder.parents)
        for name in (CONFIG_FILE, PYPROJECT_FILE)
    )
    for path in paths:
        # A folder or pipe of this name counts too: reading it raises an error.
        is_config = path.name == CONFIG_FILE and path.exists()
        if is_config or _has_our_table(path):
            # The file decides which encoders' code is run, so that it must be the user's or root's.
            if os.name == "posix" and path.stat().st_uid not in (os.geteuid(), 0):
                raise StsbenchError(
                    f"{path} belongs to another user; remove it, or name it by --config if you "
                    "trust it"
                )
            return path
    return None


def _has_our_table(path: Path) -> bool:
    # Without the closing bracket: a table within ours, [tool.stsbench.set], makes ours too.
    start = PYPROJECT_TABLE.removesuffix("]")
    return path.is_file() and start in path.read_text(encoding="utf-8", errors="replace")


def read_config(path: Path) -> ProjectConfig:
    """Return the settings of a file; raise CardError for a key or value that it may not have."""
    table = parse_toml(path)
    if path.name != PYPROJECT_FILE:
        return convert(table, ProjectConfig, where=str(path))
    own_table = table.get("tool", {}).get("stsbench", {})
    return convert(own_table, ProjectConfig, where=f"{path}: {PYPROJECT_TABLE}")


def format_settings(plan: RunPlan) -> str:
    """Return a run's settings as the TOML text of a settings file.

    The file is written into the results folder, so paths are relative to that. The same run can be
    started by ``--config`` with this file. Secrets, such as a server's key, are replaced by the
    text ``REDACTED``.

    Args:
        plan: The encoders, tasks and other settings of the run.
    """
    folder = plan.results_folder.resolve()
    settings: Mapping[str, object] = {
        # Paths relative to the folder, other names without secrets.
        "encoders": [_portable_spec(spec, folder) for spec in plan.encoders],
        # The user's own name of each encoder; there are none if he gave none.
        "names": list(plan.names.values()),
        "tasks": split_names(str(plan.tasks)),
        "protocols": split_names(str(plan.protocol or "")),
        "split": plan.split,
        "seeds": list(plan.seeds),
        "set": redact(plan.params),
        "data": plan.data and _relative_path(plan.data, folder),
        "cards": [_relative_path(cards, folder) for cards in plan.catalogue.folders],
        "results": ".",
    }
    # Settings without a value are left out.
    lines = [f"{key} = {toml(value)}" for key, value in settings.items() if value]
    comments = [
        "# The settings of the last run into this folder; --config of this file repeats it."
    ]
    if any(REDACTED in line for line in lines):
        comments.append(
            f"# {REDACTED} stands for a secret: type that parameter again beside --config, "
            "by --set KEY=VALUE."
        )
    return "\n".join([*comments, *lines, ""])


def _portable_spec(spec: str, folder: Path) -> str:
    """Return a spec without secrets; a path becomes relative to the folder."""
    kind, path = _split_kind(spec)
    # Parameters may stand behind a path: the longest stem that is one counts.
    for stem, _ in split_params(path):
        # Unlike Path.exists, os.path.exists raises nothing for a spec too long to be a path.
        if stem.endswith(".toml") or (os.path.isfile if kind else os.path.isdir)(stem):
            return f"{kind}{_relative_path(stem, folder)}{redact_name(path.removeprefix(stem))}"
    return redact_name(spec)


def join_assignments(typed: Sequence[str], from_file: Sequence[str]) -> list[str]:
    """Return the ``key=value`` texts of ``--set`` that a run uses.

    * Usually the texts that the user typed replace all of the settings file's.
    * If the file has placeholders for secrets, the user types these again. Then a typed text
      replaces only the file's text with the same key.

    Args:
        typed: The texts that the user typed; those of the settings file if none were typed.
        from_file: The texts of the settings file.
    """
    if not any(REDACTED in text for text in from_file):
        return list(typed)
    typed_keys = {text.partition("=")[0].strip() for text in typed}
    file_texts = [text for text in from_file if text.partition("=")[0] not in typed_keys]
    return [*file_texts, *typed]


def _relative_path(path: str | Path, folder: Path) -> str:
    """Return a path from a folder, beginning with a dot as specs that are paths do."""
    relative = Path(os.path.relpath(Path(path).resolve(), folder)).as_posix()
    return relative if relative.startswith(".") else f"./{relative}"
