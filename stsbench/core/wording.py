"""Texts of messages: values, lists, durations and types as people read them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from stsbench.core.secrets import redact_text

MAX_VALUE_LENGTH = 80
"""The maximum number of characters of a value in a message."""


_TYPES = {
    "array": "a list",
    "object": "a table",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
}


def describe_type_problem(problem: str) -> str:
    """Return the message of a type checker with its type names in plain English."""
    return re.sub(r"`([a-z]+)`", lambda match: _TYPES.get(match[1], f"'{match[1]}'"), problem)


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun in the right number, for example ``1 row`` or ``2,000 rows``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_some(names: Sequence[str], max_items: int = 3) -> str:
    """Return the first names as a list, and how many more there are."""
    first_names = ", ".join(names[:max_items])
    if len(names) <= max_items:
        return first_names
    return f"{first_names} and {len(names) - max_items} more"


def as_one_line(text: object) -> str:
    """Return a text, or the message of an exception, as one line.

    Each run of white space, such as a line end, becomes one blank. In an exception of another
    library, backticks become apostrophes: in stsbench's own messages backticks mark a parameter,
    which the command line prints as its option.

    Args:
        text: A text or an exception; any other object is converted by ``str``.
    """
    line = " ".join(str(text).split())
    # stsbench's own errors have this attribute.
    is_foreign_exception = isinstance(text, BaseException) and not hasattr(text, "remedy")
    return line.replace("`", "'") if is_foreign_exception else line


def format_duration(seconds: float) -> str:
    """Return a duration as text: ``0.4 s``, ``42 s``, ``12 min``, ``3.5 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def shorten(text: str, max_length: int = MAX_VALUE_LENGTH) -> str:
    """Return the first ``max_length`` characters of a text, with an ellipsis if it is longer."""
    return text if len(text) <= max_length else f"{text[:max_length]}…"


def format_repr(value: object) -> str:
    """Return the repr of a value in one line, shortened if it is long."""
    try:
        return shorten(as_one_line(repr(value)))
    except (ValueError, RecursionError):
        return "a number or list too long to print"


PAIR_MARK = "\x1e"
"""The first character of two sentences that are joined to one text."""


def describe_sentence(sentences: Sequence[str], row: int) -> str:
    """Return a description of a sentence for a message: ``sentence 3 of 9 (its sha256 begins …)``.

    Its text, which may be confidential, is left out.

    Args:
        sentences: All sentences of a file. One that begins with the control character ``PAIR_MARK``
            is a pair of two sentences that were joined to one text.
        row: The index of the sentence in the list, from 0.
    """
    digest = hashlib.sha256(sentences[row].encode("utf-8", "surrogatepass")).hexdigest()
    unit = "pair" if sentences[row].startswith(PAIR_MARK) else "sentence"
    return f"{unit} {row + 1} of {len(sentences)} (its sha256 begins {digest[:8]})"


def escape_controls(text: str) -> str:
    r"""Return a text that is safe to print: control characters become escapes such as ``\u001b``.

    A terminal would obey a control character, for example erase its screen; an escape it prints.
    Escaped are the control characters except tab and newline, characters that turn the direction of
    writing, line and paragraph separators, lone surrogates and the non-characters U+FFFE and
    U+FFFF. In a JSON string the escape means the same character.

    Passwords and keys that :func:`redact_text` recognises in the text are replaced too.
    """
    without_secrets = redact_text(text)
    return _CONTROL_CHARACTER.sub(lambda match: f"\\u{ord(match[0]):04x}", without_secrets)


_CONTROL_CHARACTER = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    r"\ud800-\udfff\ufeff\ufffe\uffff]"
)
