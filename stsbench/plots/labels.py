"""Texts and colours that all figures share; this module does not need matplotlib."""

from __future__ import annotations

import re

from stsbench.core.wording import escape_controls, join_lines, shorten

FIGURES = ("svg", "png", "pdf")
"""The formats of figures' files."""
MAX_LINE_LENGTH = 30
"""The maximum number of characters in a line beside an axis."""
INK, LINE, BAND = "#222222", "#BBBBBB", "#F4F4F4"
"""The colours of text, of thin lines, and of the bands behind every second group."""
JOINTS = re.compile(r"(?<=[-_+/,=.:])")
"""The positions behind separators, at which a long word may be broken."""


def drawn_name(name: str) -> str:
    """Return a name as figures show it: in one line, and shortened if it is long."""
    return shorten(escape_controls(join_lines(name)))


def label_lines(name: str) -> str:
    """Return a name for an axis: divided into lines of at most about 30 characters.

    Lines end between words, or at separators within long words.
    """
    lines = [""]
    segments: list[str] = []
    for word in drawn_name(name).split(" "):
        word_with_blank = f"{word} "
        is_long = len(word_with_blank) > MAX_LINE_LENGTH
        segments += JOINTS.split(word_with_blank) if is_long else [word_with_blank]
    for segment in segments:
        if lines[-1] and len(lines[-1]) + len(segment.rstrip()) > MAX_LINE_LENGTH:
            lines.append("")
        lines[-1] += segment
    return "\n".join(line.rstrip() for line in lines)


def legend_name(name: str) -> str:
    """Return a name as it is shown in a legend.

    Matplotlib omits labels that begin with an underscore: a character of no width precedes it.
    """
    label = drawn_name(name)
    return f"\u200b{label}" if label.startswith("_") else label
