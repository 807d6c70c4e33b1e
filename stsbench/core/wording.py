"""Texts of messages: values, lists, durations and types as people read them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from stsbench.core.secrets import redact_text

MAX_VALUE_LENGTH = 80
"""So many characters of a value are shown in a message."""


_TYPES = {"array": "a list", "object": "a table", "int": "a whole number", "float": "a number", "str": "text",
          "bool": "true or false"}  # fmt: skip


def describe_type_problem(problem: str) -> str:
    """What a checker of types says, with the types as people call them."""
    return re.sub(r"`([a-z]+)`", lambda found: _TYPES.get(found[1], found[0]), problem)


def format_some(names: Sequence[str], max_items: int = 3) -> str:
    """Return the first names as a list, and how many more there are."""
    return ", ".join(names[:max_items]) + (
        f" and {len(names) - max_items} more" if len(names) > max_items else ""
    )


def join_lines(text: object) -> str:
    """Return the text with every run of white space made one blank: errors print as one line."""
    return " ".join(str(text).split())


def format_duration(seconds: float) -> str:
    """A time as people say it: ``0.4 s``, ``42 s``, ``12 min``, ``3.5 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def shorten(text: str, max_length: int = MAX_VALUE_LENGTH) -> str:
    """Return the text as a message shows it: not all of what is long."""
    return text if len(text) <= max_length else f"{text[:max_length]}…"


def format_repr(value: object) -> str:
    """Return a value as a message shows it: in one line, and not all of what is long."""
    try:
        return shorten(join_lines(repr(value)))
    except (ValueError, RecursionError):
        return "a number or list too long to print"


def describe_sentence(sentences: Sequence[str], row: int) -> str:
    """Name a sentence of the data in a message without its text, which may be confidential: its number and its hash."""
    digest = hashlib.sha256(sentences[row].encode("utf-8", "surrogatepass")).hexdigest()
    return f"sentence {row + 1} of {len(sentences)} (its sha256 begins {digest[:8]})"


def escape_controls(text: str) -> str:
    r"""Return the text with control characters written out, as ``\u001b``: a terminal shows them and obeys none.

    These are the control characters but tab and newline, what turns the direction of writing, line and paragraph
    separators, and what is no character: lone surrogates and the two non-characters. Within JSON strings the text
    written out means the same character. Secrets are left out, as :func:`redact_text` finds them.
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", redact_text(text))


_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
