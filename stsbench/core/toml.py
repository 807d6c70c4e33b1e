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
from stsbench.core.files import refuse_special_file
from stsbench.core.wording import as_one_line, describe_type_problem

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
        """Make the class of a record that refuses unknown fields; Python calls this per class.

        Args:
            name: The name of the class.
            bases: The classes that it inherits from.
            namespace: Its attributes and methods by name.
            **settings: Further settings of ``msgspec.Struct``, such as ``rename``.
        """
        # Fields cannot be assigned, must be passed by name, and are the only keys of a file.
        settings |= {"frozen": True, "kw_only": True, "forbid_unknown_fields": True}
        return super().__new__(cls, name, bases, namespace, **settings)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class StrictRecord(msgspec.Struct, frozen=True, kw_only=True, metaclass=_StrictMeta):
    """A frozen record with keyword fields that refuses unknown ones, as do its subclasses."""


def parse_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file and return its keys and tables as nested dicts.

    Raises:
        CardError: The file is not readable, is a device or pipe, is not UTF-8, or is not TOML. A
            key that is there twice is an error too.
    """
    refuse_special_file(path, CardError)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CardError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CardError(f"{path}: not valid UTF-8 (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise CardError(f"{path}: not valid TOML: {as_one_line(error)}") from error


def convert(table: dict[str, Any], record: type[StructT], *, where: str) -> StructT:
    """Convert the parsed table of a TOML file to an object of a class, after checking its keys.

    Args:
        table: The values by key, as the TOML parser returns them.
        record: The class; its fields are the keys of the table, and their annotations the types.
        where: The file and the table's name, for the beginning of messages.

    Raises:
        CardError: A key is unknown, missing or wrong; the message names the first one.
    """
    # The first problem is reported.
    for key in _non_finite_keys(table):
        raise CardError(
            f"{where}: key '{key}': nan and inf are not allowed; "
            "give a number, or leave the key out"
        )
    try:
        return msgspec.convert(table, record)
    except msgspec.ValidationError as error:
        raise CardError(f"{where}: {_reword_error(str(error), record)}") from error


def _non_finite_keys(value: Any, key: str = "") -> Iterator[str]:  # noqa: ANN401 - any TOML value
    """Yield the keys in a TOML value whose own values are infinite or NaN.

    TOML allows such numbers, but no card may have one. Keys are dotted, such as ``loop.epochs``.

    Args:
        value: Any TOML value; tables and lists are searched.
        key: The dotted key of the value; empty for a whole file.
    """
    if isinstance(value, float) and not math.isfinite(value):
        yield key
    if isinstance(value, dict):
        for name, nested_value in value.items():
            yield from _non_finite_keys(nested_value, f"{key}.{name}" if key else name)
    if isinstance(value, list):
        for nested_value in value:
            yield from _non_finite_keys(nested_value, key)


def _reword_error(message: str, record: type[msgspec.Struct]) -> str:
    """Return an error message of the library msgspec as a user of TOML files understands it.

    Names that may have been meant are suggested.

    Args:
        message: The message, such as ``Expected `int`, got `str` - at `$.loop.epochs` ``.
        record: The class to which a table was converted; its fields are the valid keys.
    """
    # TOML has no null: a key that may be None is left out there.
    problem, _, path = message.replace(" | null", "").partition(" - at `")
    # The path is "$.loop.epochs`"; "$" stands for the file.
    dotted_key = path.removesuffix("`").removeprefix("$").removeprefix(".")
    table_text = f" in [{dotted_key}]" if dotted_key else ""
    # Follow the dotted key, such as ``groups[0].rows``, into the class: to the record inside the
    # annotation, or to an annotation without one, such as a Literal of the choices.
    hint: Any = record
    for name in re.findall(r"(?:^|\.)(\w+)", dotted_key):
        hint = get_type_hints(hint).get(name) if isinstance(hint, type) else None
        hint = next(_inner_records(hint), hint)
    unknown_field = re.match(r"Object contains unknown field `(.*)`", problem)
    if unknown_field:
        unknown_key = unknown_field[1]
        # The valid keys of all tables of the file: the key may be in the wrong one.
        keys_text = suggest(unknown_key, sorted(set(_all_keys(record)))) or (
            f"; known: {', '.join(get_type_hints(hint))}"
        )
        return f"unknown key '{unknown_key}'{table_text}{keys_text}"
    missing_field = re.match(r"Object missing required field `(.*)`", problem)
    if missing_field:
        return f"key '{missing_field[1]}' is missing{table_text}"
    key_text = f"key '{dotted_key}': " if dotted_key else ""
    wrong_choice = re.match(r"Invalid enum value (.*)", problem)
    if wrong_choice:
        quoted_value = wrong_choice[1]
        choices = list(map(str, get_args(hint)))
        suggestion = suggest(quoted_value.strip("'"), choices)
        return f"{key_text}{quoted_value} is not one of {', '.join(choices)}{suggestion}"
    # Names of types, such as `int`, become plain English.
    return f"{key_text}{describe_type_problem(problem[0].lower() + problem[1:])}"


def _all_keys(record: type[msgspec.Struct]) -> Iterator[str]:
    """Yield the names of all fields of a record's class and of the records inside it.

    The record stands for a TOML file, and its fields for the keys of the file.
    """
    for key, hint in get_type_hints(record).items():
        yield key
        for inner_record in _inner_records(hint):
            yield from _all_keys(inner_record)


def _inner_records(annotation: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 - any type
    """Yield the classes of records in an annotation, such as ``A`` in ``dict[str, A] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for argument in get_args(annotation):
        yield from _inner_records(argument)


def toml(value: object) -> str:
    """Return a value as TOML text in one line; a mapping becomes an inline table ``{a = 1}``.

    Dates raise TypeError. None becomes ``null``, which TOML does not have.
    """
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
    """Return lines ``key = value`` in TOML, without a heading, one per key.

    Args:
        values: The values by key, in the order of the lines.
        notes: Comments by key; each is written in a line above that of its key. Comments of keys
            that are not among the values are ignored.
    """
    lines: list[str] = []
    for key, value in values.items():
        if key in notes:
            lines.append(f"# {notes[key]}")
        lines.append(f"{toml_key(key)} = {toml(value)}")
    return lines


def toml_tables(table: Mapping[str, object], notes: Mapping[str, str] = {}) -> str:
    """Return the text of a TOML file: plain keys first, then each table under its heading.

    Values that are None, which TOML cannot express, or empty are left out; inside a table None
    alone is. If all values of a table are tables themselves, each of these has a heading of its
    own, ``[outer.inner]``.

    Args:
        table: The values of the file by key.
        notes: Comments by key; each is written above the line of its key.
    """
    plain_values: dict[str, object] = {}
    tables_by_heading: dict[str, Mapping[str, object]] = {}
    for key, value in table.items():
        if value in (None, "", [], {}):
            continue
        if not isinstance(value, Mapping):
            plain_values[key] = value
        elif all(isinstance(inner_table, Mapping) for inner_table in value.values()):
            for name, inner_table in value.items():
                tables_by_heading[f"{toml_key(key)}.{toml_key(name)}"] = inner_table
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
