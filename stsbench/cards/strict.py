"""TOML read strictly: every mistake is one line naming file, key and the nearest right name."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from stsbench.errors import CardError, did_you_mean, in_plain_words, one_line


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A strict, frozen record."""


StructT = TypeVar("StructT", bound=msgspec.Struct)


def parse_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; a doubled key is an error in TOML itself."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CardError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CardError(f"{path}: not valid UTF-8 (byte {error.start})") from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise CardError(f"{path}: {_doubled(text, error) or f'not valid TOML: {one_line(error)}'}") from error


def _doubled(text: str, error: Exception) -> str:
    """Name the key that TOML's parser found twice; nothing where that is not what it found."""
    said = str(error)
    if not said.startswith(("Cannot overwrite", "Cannot declare", "Duplicate inline table key")):
        return ""
    line = re.search(r"at line (\d+)", said)
    lines = text.splitlines()[: int(line[1]) if line else None]
    # The parser stands behind the value, which may have begun lines above.
    keys = (re.match(r"\s*\[*\s*([\w.\"' -]+?)\s*[\]=]", one) for one in reversed(lines))
    key = re.search(r"table key '(.*?)'", said) or next(filter(None, keys), None)
    return f"key '{key[1]}' is given twice (line {len(lines)})" if key else ""


def convert(table: dict[str, Any], record: type[StructT], *, where: str) -> StructT:
    """Turn a parsed table into its record, naming the key of the first thing wrong."""
    if key := _endless(table):
        raise CardError(f"{where}: key '{key}': nan and inf are not allowed; give a number, or leave the key out")
    try:
        return msgspec.convert(table, record)
    except msgspec.ValidationError as error:
        raise CardError(f"{where}: {_explain(str(error), record)}") from error


def _endless(value: Any, key: str = "") -> str:  # noqa: ANN401 - any TOML value
    """The first key whose value is no finite number; TOML has words for such, and no fact is one."""
    if isinstance(value, dict):
        found = (_endless(inner, f"{key}.{name}".lstrip(".")) for name, inner in value.items())
    elif isinstance(value, list):
        found = (_endless(inner, key) for inner in value)
    else:
        return key if isinstance(value, float) and not math.isfinite(value) else ""
    return next(filter(None, found), "")


_PROBLEM = re.compile(r"^(?P<what>.*?)(?: - at `\$?\.?(?P<where>.*)`)?$", re.S)


def _explain(message: str, record: type[msgspec.Struct]) -> str:
    """Reword msgspec's message: which key, in which table, and the nearest right name."""
    # TOML has no null: what may be None is left out.
    match = _PROBLEM.match(message.replace(" | null", ""))
    what, place = (match["what"], match["where"] or "") if match else (message, "")
    inside = f" in [{place}]" if place else ""
    if unknown := re.match(r"Object contains unknown field `(.*)`", what):
        key = unknown[1]
        return f"unknown key '{key}'{inside}{did_you_mean(key, sorted(set(_keys(record))))}"
    if missing := re.match(r"Object missing required field `(.*)`", what):
        return f"key '{missing[1]}' is missing{inside}"
    key = f"key '{place}': " if place else ""
    if wrong := re.match(r"Invalid enum value (.*)", what):
        choices = list(map(str, get_args(_hint(place, record))))
        near = did_you_mean(wrong[1].strip("'"), choices)
        return f"{key}{wrong[1]} is not one of {', '.join(choices)}{near}"
    return f"{key}{in_plain_words(what[0].lower() + what[1:])}"


def _hint(place: str, record: type[msgspec.Struct]) -> Any:  # noqa: ANN401 - a type of any make
    """The type of a key in a record, or of one in the records inside it: ``table.key``."""
    hint: Any = record
    for key in place.split("."):
        hint = get_type_hints(hint).get(key) if isinstance(hint, type) else None
    return hint


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
