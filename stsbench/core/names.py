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
"""The separator before each replaced parameter of a name, as in ``minilm+pooling=max``."""


MODEL_PARAMETERS = frozenset({"model", "package", "file", "base", "layers"})
"""Parameters of a card that define its network: with another value it is not the card's."""


LABEL_PATTERN = re.compile(
    r"(?P<stem>.*?)"
    r"(?P<settings>(\+[A-Za-z_][\w.]*=.*?)?)"
    r"(?P<state>( \(not the card's\))?( \[[^\[\]]+\])?)"
)
"""An encoder's label in a table: a name, its replaced parameters, and a tag of its state."""


MAX_LENGTH_WITH_PARAMS = 32
"""The maximum length of a name with parameters, in characters: eight columns fit beside it."""
MAX_NAME_LENGTH = 44
"""The maximum length of any other name, in characters."""


BRACKETS = {")": "(", "]": "[", "}": "{"}


def split_names(text: str) -> list[str]:
    """Split a comma list; a comma inside brackets or quotes is part of a name.

    For example ``a+views=['x', 'y'],b`` has two names. A bracket or quote that is never closed is
    an ordinary character.
    """
    return list(filter(None, _split_at_commas(text)))


def replaces_network(name: str) -> bool:
    """Return whether a name has a parameter that replaces the network, as in ``minilm+model=…``."""
    _, *settings = PARAM_SEPARATOR.split(name)
    return any(setting.partition("=")[0] in MODEL_PARAMETERS for setting in settings)


def has_empty_name(text: str) -> bool:
    """Return whether a comma list that has any name also has an empty one, as in ``a,,b``."""
    parts = _split_at_commas(text)
    return any(parts) and not all(parts)


def _split_at_commas(text: str) -> list[str]:
    """Split a text at the commas outside brackets and quotes, and strip each part.

    A bracket that is never closed encloses nothing.
    """
    comma_positions: list[int] = []
    # Each opening bracket with the number of commas before it. When the bracket is closed, later
    # commas lie inside it, and are dropped.
    open_brackets: list[tuple[str, int]] = []
    position = 0
    while position < len(text):
        character = text[position]
        # An apostrophe inside a word opens no quotation.
        opens_quotation = character in "'\"" and (position == 0 or text[position - 1] in " =,:([{")
        if opens_quotation:
            closing_position = text.find(character, position + 1)
            # A quotation that is never closed encloses nothing.
            if closing_position != -1:
                position = closing_position
        elif character in BRACKETS.values():
            open_brackets.append((character, len(comma_positions)))
        elif open_brackets and open_brackets[-1][0] == BRACKETS.get(character):
            _, n_commas_before = open_brackets.pop()
            del comma_positions[n_commas_before:]
        elif character == ",":
            comma_positions.append(position)
        position += 1
    boundaries = pairwise([-1, *comma_positions, len(text)])
    return [text[start + 1 : end].strip() for start, end in boundaries]


def split_params(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each way to split a name into a stem and replaced parameters, longest stem first.

    ``minilm+pooling=max`` yields ``("minilm+pooling=max", {})``, then ``("minilm", {"pooling":
    "max"})``. A stem may hold the separator itself, and the caller takes the first it knows.

    Args:
        name: The name of an encoder as a user gives it.
    """
    # Where a parameter may begin: at each "+" that PARAM_SEPARATOR accepts.
    separator_positions = [match.start() for match in PARAM_SEPARATOR.finditer(name)]
    for stem_length in [len(name), *reversed(separator_positions)]:
        # What is before the first separator is empty, so it is left out.
        assignments = [
            part.partition("=") for part in PARAM_SEPARATOR.split(name[stem_length:])[1:]
        ]
        yield name[:stem_length], {key: _value(text) for key, _, text in assignments}


def split_all_params(name: str) -> tuple[str, dict[str, Any]]:
    """Return a name's shortest stem, and the values of all parameters behind it by their names."""
    return list(split_params(name))[-1]


def redact_name(name: str) -> str:
    """Return a name without the secrets in it, and without those among its replaced parameters."""
    stem, changes = split_all_params(name)
    redacted = redact(changes)
    if redacted == changes:
        return redact_text(name)
    assignments = [f"{key}={format_parameter(value)}" for key, value in redacted.items()]
    return "+".join([redact_text(stem), *assignments])


def format_parameter(value: object) -> str:
    """Return a value as names print it: text has quotes only if reading it back needs them."""
    if not isinstance(value, str):
        return str(value)
    is_read_as_text = _value(value) == value
    is_one_name = (split_names(value) or [""]) == [value]
    return value if is_read_as_text and is_one_name else repr(value)


def merge_parameters(
    name: str, changes: Mapping[str, Any], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all parameters of a call: those within a name, as "+key=value", and those beside it.

    Args:
        name: The name, for the message.
        changes: The values of the parameters within the name, by key.
        params: The values of the parameters beside the name, by key.

    Raises:
        CardError: A parameter is in both.
    """
    if duplicate_keys := changes.keys() & params.keys():
        raise CardError(
            f"{name}: its name and `params` both replace '{min(duplicate_keys)}'; "
            "leave out one of them"
        )
    return {**changes, **params}


def _value(text: str) -> Any:  # noqa: ANN401 - any parameter
    """Return the value of a parameter as it is typed: a number, a truth value, a list or a text.

    What is no literal of Python's is a text and needs no quotation marks.
    """
    # TOML's spelling, which is not Python's.
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def abbreviate_name(
    name: str, numbers: dict[str, str], *, max_length_with_params: int, max_length: int
) -> str:
    """Return a name as a table without a legend prints it, for example ``minilm+…(1)``.

    Args:
        name: The name, with any parameters and the tag of its state.
        numbers: The numbers used so far, such as ``(1)``, by the name that each stands for. A new
            number is added; a key below the table explains it.
        max_length_with_params: The maximum length of a name with parameters, in characters.
        max_length: The maximum length of any name, in characters.
    """
    match = LABEL_PATTERN.fullmatch(name)
    if match and match["settings"] and len(name) > max_length_with_params:
        number = number_text(name, numbers)
        # With the tag of its state if there is room for it.
        for abbreviation in (
            f"{match['stem']}+…{number}{match['state']}",
            f"{match['stem']}+…{number}",
        ):
            if len(abbreviation) <= min(max_length, len(name)):
                return abbreviation
    return name if len(name) <= max_length else truncate_name(name, numbers, max_length)


def truncate_name(name: str, numbers: dict[str, str], max_length: int) -> str:
    """Return the beginning of a name, and a number that stands for all of it.

    The result has at most ``max_length`` characters; a new number is added to ``numbers``.
    """
    number = number_text(name, numbers)
    return f"{name[: max_length - len(number) - 1].rstrip()}…{number}"


def number_text(text: str, numbers: dict[str, str]) -> str:
    """Return the number of a text, such as ``(1)``; a text without one gets the next number."""
    return numbers.setdefault(text, f"({len(numbers) + 1})")
