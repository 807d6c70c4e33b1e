"""Names as users give them: comma lists, and names that say which parameters were replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from stsbench.core.errors import CardError

_CHANGE = re.compile(r"\+(?=[A-Za-z_][\w.]*=)")
LABEL = re.compile(
    r"(?P<stem>.*?)(?P<settings>(\+[A-Za-z_][\w.]*=.*?)?)(?P<state>( \(not the card's\))?( \[[^\[\]]+\])?)"
)
"""What a table calls an encoder: a name, the settings behind it, and what distinguishes one state of it from another."""
WITH_SETTINGS, LONGEST = 32, 44
"""So many signs a name may have that ends with settings, beside eight columns in a terminal or on paper, and any other."""
PAIRS = {")": "(", "]": "[", "}": "{"}


def split_names(text: str) -> list[str]:
    """Split a comma list; a comma inside brackets or quotes is part of a name, as in ``a+views=['x', 'y']``.

    A bracket or quote that nothing closes is a sign like any other.
    """
    return list(filter(None, _parts(text)))


def has_gap(text: str) -> bool:
    """Whether a comma list that names anything has nothing between two commas, or before or after one."""
    parts = _parts(text)
    return any(parts) and not all(parts)


def _parts(text: str) -> list[str]:
    cuts = [-1, *_commas(text), len(text)]
    return [text[start + 1 : end].strip() for start, end in pairwise(cuts)]


def _commas(text: str) -> list[int]:
    """Where commas stand that no bracket or quote holds."""
    found: list[int] = []
    # What is open, each with how many commas stood before it.
    opened: list[tuple[str, int]] = []
    at = 0
    while at < len(text):
        sign = text[at]
        # An apostrophe inside a word opens nothing.
        if sign in "'\"" and (at == 0 or text[at - 1] in " =,:([{"):
            at = max(at, text.find(sign, at + 1))
        elif sign in PAIRS.values():
            opened.append((sign, len(found)))
        elif sign in PAIRS and opened and opened[-1][0] == PAIRS[sign]:
            del found[opened.pop()[1] :]
        elif sign == ",":
            found.append(at)
        at += 1
    return found


def variants(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A name cut at each parameter that it says was replaced, longest first: what is called so, and the rest.

    ``minilm+pooling=max`` is itself with nothing replaced, then ``minilm`` with its pooling.
    """
    cuts = [match.start() for match in _CHANGE.finditer(name)]
    for cut in [len(name), *reversed(cuts)]:
        changes = [part.partition("=") for part in _CHANGE.split(name[cut:])[1:]]
        yield name[:cut], {key: _value(text) for key, _, text in changes}


def printed(value: object) -> str:
    """A value as names print it: text bare where it can be read back so, else with quotes."""
    if isinstance(value, str) and (_value(value) != value or (split_names(value) or [""]) != [value]):
        return repr(value)
    return str(value)


def replaced_once(name: str, changes: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a name replaces and those that are given beside it; raises CardError for one that both are."""
    if twice := changes.keys() & given.keys():
        raise CardError(f"{name}: its name and --set both replace '{min(twice)}'; leave out one of them")
    return {**changes, **given}


def _value(text: str) -> Any:  # noqa: ANN401 - any parameter
    """A value as names print it: Python's own way, or bare text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def short_name(
    name: str, numbers: dict[str, str], *, with_settings: int = WITH_SETTINGS, longest: int = LONGEST
) -> str:
    """A name as a table without a legend has it: ``minilm+…(1)``, where a key below says what (1) is in one piece.

    Args:
        name: the whole name.
        numbers: those given already, by whole name; this one's joins them where it needs one.
        with_settings: so many signs a name with settings may have.
        longest: so many signs any name may have.
    """
    found = LABEL.fullmatch(name)
    if found and found["settings"] and len(name) > with_settings:
        number = numbered(name, numbers)
        for short in (f"{found['stem']}+…{number}{found['state']}", f"{found['stem']}+…{number}"):
            if len(short) <= min(longest, len(name)):
                return short
    return name if len(name) <= longest else cut_name(name, numbers, longest)


def cut_name(name: str, numbers: dict[str, str], longest: int) -> str:
    """The beginning of a name, and a number that stands for all of it."""
    number = numbered(name, numbers)
    return f"{name[: longest - len(number) - 1].rstrip()}…{number}"


def numbered(text: str, numbers: dict[str, str]) -> str:
    """The number of a text, the same whenever it comes again."""
    return numbers.setdefault(text, f"({len(numbers) + 1})")
