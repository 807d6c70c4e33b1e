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


OPENING_BRACKETS_BY_CLOSING = {")": "(", "]": "[", "}": "{"}


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
    """Split a text at the commas outside brackets and quotes, and strip each part of white space.

    A bracket or quotation that is never closed encloses nothing. Brackets are ``()[]{}``;
    ``OPENING_BRACKETS_BY_CLOSING`` holds the opening bracket of each closing one.
    """
    # Where to split.
    comma_positions: list[int] = []
    # Each bracket that is open at the position, with the number of commas before it. When it is
    # closed, the commas since then lie inside it, and are dropped.
    open_brackets: list[tuple[str, int]] = []
    position = 0
    while position < len(text):
        character = text[position]
        # An apostrophe inside a word opens no quotation: only one behind these characters does.
        opens_quotation = character in "'\"" and (position == 0 or text[position - 1] in " =,:([{")
        if opens_quotation:
            # Go on behind the quotation; inside it nothing counts.
            closing_position = text.find(character, position + 1)
            # A quotation that is never closed encloses nothing.
            if closing_position != -1:
                position = closing_position
        elif character in OPENING_BRACKETS_BY_CLOSING.values():
            open_brackets.append((character, len(comma_positions)))
        elif open_brackets and open_brackets[-1][0] == OPENING_BRACKETS_BY_CLOSING.get(character):
            _, n_commas_before = open_brackets.pop()
            del comma_positions[n_commas_before:]
        elif character == ",":
            comma_positions.append(position)
        position += 1
    boundaries = pairwise([-1, *comma_positions, len(text)])
    return [text[start + 1 : end].strip() for start, end in boundaries]


def split_params(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each way to split an encoder's name into a stem and replaced parameters.

    A user replaces parameters of an encoder behind its name: ``minilm+pooling=max``. The name
    itself may also hold such a separator, so all splits are yielded, the longest stem first, and
    the caller takes the first stem that is the name of an encoder.

    Args:
        name: The name of an encoder as a user writes it.

    Yields:
        The stem, and the parsed values by parameter. For the name above these are
        ``("minilm+pooling=max", {})``, then ``("minilm", {"pooling": "max"})``.
    """
    # PARAM_SEPARATOR matches each "+" that a parameter's name and "=" follow.
    separator_positions = [match.start() for match in PARAM_SEPARATOR.finditer(name)]
    for stem_length in [len(name), *reversed(separator_positions)]:
        stem = name[:stem_length]
        # The rest begins with a separator, so the first part is empty.
        _, *assignments = PARAM_SEPARATOR.split(name[stem_length:])
        keys_and_texts = [assignment.partition("=") for assignment in assignments]
        yield stem, {key: _parse_value(text) for key, _, text in keys_and_texts}


def split_all_params(name: str) -> tuple[str, dict[str, Any]]:
    """Return a name's shortest stem, and the values of all parameters behind it by their names."""
    return list(split_params(name))[-1]


def redact_name(name: str) -> str:
    """Return an encoder's name with passwords and keys in it replaced.

    A name may be followed by replaced parameters, as in ``minilm+pooling=max``. A parameter's value
    is replaced if its name or its text is that of a secret.
    """
    # The part before the first parameter, and all values by parameter.
    stem, params = split_all_params(name)
    redacted_params = redact(params)
    if redacted_params == params:
        return redact_text(name)
    assignments = [f"{key}={format_parameter(value)}" for key, value in redacted_params.items()]
    return "+".join([redact_text(stem), *assignments])


def format_parameter(value: object) -> str:
    """Return a value as names print it: text has quotes only if reading it back needs them."""
    if not isinstance(value, str):
        return str(value)
    is_read_as_text = _parse_value(value) == value
    is_one_name = (split_names(value) or [""]) == [value]
    return value if is_read_as_text and is_one_name else repr(value)


def merge_parameters(
    name: str, changes: Mapping[str, Any], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all replaced parameters of an encoder, by key.

    A user can replace a parameter inside the encoder's name, as in ``minilm+pooling=max``, or
    beside it, by the argument ``params``.

    Args:
        name: The name, for the message.
        changes: The values inside the name, by key.
        params: The values beside the name, by key.

    Raises:
        CardError: A key is in both.
    """
    duplicate_keys = changes.keys() & params.keys()
    if duplicate_keys:
        raise CardError(
            f"{name}: its name and `params` both replace '{min(duplicate_keys)}'; "
            "leave out one of them"
        )
    return {**changes, **params}


def _parse_value(text: str) -> Any:  # noqa: ANN401 - any parameter
    """Return the value of a parameter from its text: a number, a truth value, a list or a string.

    A text that is no literal of Python is a string, and needs no quotation marks.
    """
    # Truth values as TOML writes them; Python's literals are True and False.
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def abbreviate_name(
    name: str, numbers: dict[str, str], *, max_length_with_params: int, max_length: int
) -> str:
    """Return an encoder's name short enough for a table, for example ``minilm+…(1)``.

    A name that is short enough is unchanged. In a longer one ``…(1)`` replaces the parameters, if
    that makes it short enough. Otherwise a name of more than ``max_length`` characters is cut and
    ends with ``…(1)``. A key below the table gives the full name of each number.

    Args:
        name: The name, with any replaced parameters (``+pooling=max``) and the tag of its state
            (``[3f2a1b]``).
        numbers: Full name -> its number, such as ``(1)``, so far. A new number is added.
        max_length_with_params: The maximum length of a name with parameters, in characters.
        max_length: The maximum length of any name, in characters.
    """
    # The groups of the pattern: "stem", "settings" (the replaced parameters) and "state" (the tag).
    match = LABEL_PATTERN.fullmatch(name)
    if match and match["settings"] and len(name) > max_length_with_params:
        number = number_text(name, numbers)
        without_state = f"{match['stem']}+…{number}"
        with_state = f"{without_state}{match['state']}"
        # The tag of the state is kept if there is room for it.
        for abbreviation in (with_state, without_state):
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
