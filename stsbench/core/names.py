"""The grammar of names: comma lists, and names with parameters replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from stsbench.core.errors import CardError
from stsbench.core.secrets import redact, redact_text

PARAM_SEPARATOR = re.compile(r"\+(?=[A-Za-z_][\w.]*=)")
"""What stands before each parameter that a name says was replaced."""


LABEL_PATTERN = re.compile(
    r"(?P<stem>.*?)(?P<settings>(\+[A-Za-z_][\w.]*=.*?)?)(?P<state>( \(not the card's\))?( \[[^\[\]]+\])?)"
)
"""What a table calls an encoder: a name, the settings behind it, and what distinguishes one state of it from another."""


MAX_LENGTH_WITH_PARAMS, MAX_NAME_LENGTH = 32, 44
"""So many signs a name may have that ends with settings, beside eight columns in a terminal or on paper, and any other."""


BRACKETS = {")": "(", "]": "[", "}": "{"}


def split_names(text: str) -> list[str]:
    """Split a comma list; a comma inside brackets or quotes is part of a name, as in ``a+views=['x', 'y']``.

    A bracket or quote that nothing closes is a sign like any other.
    """
    return list(filter(None, _parts(text)))


def has_empty_name(text: str) -> bool:
    """Whether a comma list that names anything has nothing between two commas, or before or after one."""
    parts = _parts(text)
    return any(parts) and not all(parts)


def _parts(text: str) -> list[str]:
    found: list[int] = []
    # What is open, each with how many commas stood before it.
    opened: list[tuple[str, int]] = []
    at = 0
    while at < len(text):
        sign = text[at]
        # An apostrophe inside a word opens nothing.
        if sign in "'\"" and (at == 0 or text[at - 1] in " =,:([{"):
            at = max(at, text.find(sign, at + 1))
        elif sign in BRACKETS.values():
            opened.append((sign, len(found)))
        elif sign in BRACKETS and opened and opened[-1][0] == BRACKETS[sign]:
            del found[opened.pop()[1] :]
        elif sign == ",":
            found.append(at)
        at += 1
    return [text[start + 1 : end].strip() for start, end in pairwise([-1, *found, len(text)])]


def split_params(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A name cut at each parameter that it says was replaced, longest first: what is called so, and the rest.

    ``minilm+pooling=max`` is itself with nothing replaced, then ``minilm`` with its pooling.
    """
    cuts = [match.start() for match in PARAM_SEPARATOR.finditer(name)]
    for cut in [len(name), *reversed(cuts)]:
        changes = [part.partition("=") for part in PARAM_SEPARATOR.split(name[cut:])[1:]]
        yield name[:cut], {key: _value(text) for key, _, text in changes}


def redact_name(name: str) -> str:
    """Return a name without secrets among the parameters that it says were replaced."""
    stem, changes = list(split_params(name))[-1]
    redacted = redact(changes)
    if redacted == changes:
        return redact_text(name)
    return "+".join(
        [
            redact_text(stem),
            *(f"{key}={format_parameter(value)}" for key, value in redacted.items()),
        ]
    )


def format_parameter(value: object) -> str:
    """A value as names print it: text bare where it can be read back so, else with quotes."""
    if isinstance(value, str) and (
        _value(value) != value or (split_names(value) or [""]) != [value]
    ):
        return repr(value)
    return str(value)


def merge_parameters(
    name: str, changes: Mapping[str, Any], params: Mapping[str, Any]
) -> dict[str, Any]:
    """The parameters that a name replaces and those that are given beside it; raises CardError for one that both are."""
    if twice := changes.keys() & params.keys():
        raise CardError(
            f"{name}: its name and --set both replace '{min(twice)}'; leave out one of them"
        )
    return {**changes, **params}


def _value(text: str) -> Any:  # noqa: ANN401 - any parameter
    # As TOML writes them.
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def abbreviate_name(name: str, numbers: dict[str, str], *, with_settings: int, longest: int) -> str:
    """A name as a table without a legend has it: ``minilm+…(1)``, where a key below says what (1) is in one piece.

    ``numbers`` are those given already, by whole name; this one's joins them where it needs one. A name with settings
    may have ``with_settings`` signs, any name ``longest``.
    """
    found = LABEL_PATTERN.fullmatch(name)
    if found and found["settings"] and len(name) > with_settings:
        number = number_text(name, numbers)
        for short in (f"{found['stem']}+…{number}{found['state']}", f"{found['stem']}+…{number}"):
            if len(short) <= min(longest, len(name)):
                return short
    return name if len(name) <= longest else truncate_name(name, numbers, longest)


def truncate_name(name: str, numbers: dict[str, str], longest: int) -> str:
    """The beginning of a name, and a number that stands for all of it."""
    number = number_text(name, numbers)
    return f"{name[: longest - len(number) - 1].rstrip()}…{number}"


def number_text(text: str, numbers: dict[str, str]) -> str:
    """The number of a text, the same whenever it comes again."""
    return numbers.setdefault(text, f"({len(numbers) + 1})")
