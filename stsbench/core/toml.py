"""Strict reading of TOML files into records, and writing of records as TOML.

Each mistake in a file becomes one line with file, key and the nearest valid name.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform, get_args, get_type_hints

import msgspec

from stsbench.core.errors import CardError, suggest
from stsbench.core.files import check_is_file
from stsbench.core.wording import describe_type_problem, join_lines

StructT = TypeVar("StructT", bound=msgspec.Struct)


class _StrictMeta(msgspec.StructMeta):
    """Makes records whose fields are keywords and never change, and which refuse other fields."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        /,
        **settings: Any,  # noqa: ANN401 - those of msgspec
    ) -> _StrictMeta:
        """Return the class of a record; ``settings`` are further ones of ``msgspec.Struct``."""
        settings |= {"frozen": True, "kw_only": True, "forbid_unknown_fields": True}
        return super().__new__(cls, name, bases, namespace, **settings)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class StrictRecord(msgspec.Struct, frozen=True, kw_only=True, metaclass=_StrictMeta):
    """A frozen record with keyword fields that refuses unknown ones, as do its subclasses."""


def parse_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file, in which a duplicate key is an error.

    Raises:
        CardError: The file is not readable, not UTF-8 or not TOML.
    """
    check_is_file(path, CardError)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CardError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CardError(f"{path}: not valid UTF-8 (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise CardError(f"{path}: not valid TOML: {join_lines(error)}") from error


def convert(table: dict[str, Any], record: type[StructT], *, where: str) -> StructT:
    """Convert a parsed table to its record.

    Args:
        table: The table as TOML values.
        record: The class of the record.
        where: The card and its table, for messages.

    Raises:
        CardError: A key is unknown, missing or wrong; the message names the first one.
    """
    if key := _first_non_finite_key(table):
        raise CardError(
            f"{where}: key '{key}': nan and inf are not allowed; "
            "give a number, or leave the key out"
        )
    try:
        return msgspec.convert(table, record)
    except msgspec.ValidationError as error:
        raise CardError(f"{where}: {_explain(str(error), record)}") from error


def _first_non_finite_key(value: Any, key: str = "") -> str:  # noqa: ANN401 - any TOML value
    """Return the first dotted key whose value is infinite or NaN; empty if there is none.

    TOML allows such numbers, but none is valid in a card.
    """
    if isinstance(value, float):
        return "" if math.isfinite(value) else key
    if isinstance(value, dict):
        for name, nested_value in value.items():
            dotted_key = f"{key}.{name}" if key else name
            if wrong_key := _first_non_finite_key(nested_value, dotted_key):
                return wrong_key
    if isinstance(value, list):
        for nested_value in value:
            if wrong_key := _first_non_finite_key(nested_value, key):
                return wrong_key
    return ""


def _explain(message: str, record: type[msgspec.Struct]) -> str:
    """Return the message of msgspec in the words of cards, with suggestions.

    Args:
        message: The message, such as ``Expected `int`, got `str` - at `$.loop.epochs` ``.
        record: The class of the record that was converted, whose keys are suggested.
    """
    # TOML has no null: a key that may be None is left out there.
    problem, _, location = message.replace(" | null", "").partition(" - at `")
    location = location.removesuffix("`").removeprefix("$").removeprefix(".")
    location_text = f" in [{location}]" if location else ""
    if unknown_key := re.match(r"Object contains unknown field `(.*)`", problem):
        suggestion = suggest(unknown_key[1], sorted(set(_keys(record))))
        return f"unknown key '{unknown_key[1]}'{location_text}{suggestion}"
    if missing_key := re.match(r"Object missing required field `(.*)`", problem):
        return f"key '{missing_key[1]}' is missing{location_text}"
    key = f"key '{location}': " if location else ""
    if wrong_value := re.match(r"Invalid enum value (.*)", problem):
        # The annotation of the key, a Literal, is found by following its path into the record.
        hint: Any = record
        for name in location.split("."):
            hint = get_type_hints(hint).get(name) if isinstance(hint, type) else None
        choices = list(map(str, get_args(hint)))
        suggestion = suggest(wrong_value[1].strip("'"), choices)
        return f"{key}{wrong_value[1]} is not one of {', '.join(choices)}{suggestion}"
    return f"{key}{describe_type_problem(problem[0].lower() + problem[1:])}"


def _keys(record: type[msgspec.Struct]) -> Iterator[str]:
    """Yield all keys of a record and of the records inside it."""
    for key, hint in get_type_hints(record).items():
        yield key
        # An annotation such as dict[str, A] | None has records among its arguments.
        annotations = [hint]
        while annotations:
            annotation = annotations.pop()
            if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
                yield from _keys(annotation)
            annotations.extend(get_args(annotation))


def toml(value: object) -> str:
    """Return a value as TOML in one line; a table is an inline table."""
    if isinstance(value, Mapping):
        assignments = [
            f"{toml_key(str(key))} = {toml(nested_value)}" for key, nested_value in value.items()
        ]
        return f"{{{', '.join(assignments)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    # A JSON string is a TOML string, except for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def card_lines(values: Mapping[str, object], notes: Mapping[str, str]) -> list[str]:
    """Return the lines of a TOML table, one per key.

    Args:
        values: The values by key, in the order of the lines.
        notes: Comments by key, each a line above that of its key; other keys are not used.
    """
    lines: list[str] = []
    for key, value in values.items():
        if key in notes:
            lines.append(f"# {notes[key]}")
        lines.append(f"{toml_key(key)} = {toml(value)}")
    return lines


def toml_tables(table: Mapping[str, object], notes: Mapping[str, str] = {}) -> str:
    """Return a record as the text of a TOML file: plain keys first, then each table.

    Values that are None, which TOML cannot express, or empty are left out. Each table in a table of
    tables has its own heading.

    Args:
        table: The record's values by key.
        notes: Comments by key; see :func:`card_lines`.
    """
    plain_values: dict[str, object] = {}
    tables_by_heading: dict[str, Mapping[str, object]] = {}
    for key, value in table.items():
        if value in (None, "", [], {}):
            continue
        if not isinstance(value, Mapping):
            plain_values[key] = value
        elif all(isinstance(inner, Mapping) for inner in value.values()):
            for name, inner in value.items():
                tables_by_heading[f"{toml_key(key)}.{toml_key(name)}"] = inner
        else:
            tables_by_heading[key] = value
    lines = card_lines(plain_values, notes)
    for heading, values in tables_by_heading.items():
        values_with_content = {name: value for name, value in values.items() if value is not None}
        lines += ["", f"[{heading}]", *card_lines(values_with_content, notes)]
    return "\n".join(lines) + "\n"


def toml_key(key: str) -> str:
    """Return a key as TOML, with quotes if it needs them."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key)
