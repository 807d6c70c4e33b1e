"""Texts and colours that all figures share; this module does not need matplotlib."""

from __future__ import annotations

import re

from stsbench.core.wording import escape_controls, join_lines, shorten

FIGURES = ("svg", "png", "pdf")
"""The formats of figures' files."""
LABEL = 30
"""The maximum number of characters in a line beside an axis."""
INK, LINE, BAND = "#222222", "#BBBBBB", "#F4F4F4"
"""The colours of text, of thin lines, and of the bands behind every second group."""
JOINTS = re.compile(r"(?<=[-_+/,=.:])")


def drawn_name(name: str) -> str:
    """Return a name as figures show it: in one line, and shortened if it is long."""
    return shorten(escape_controls(join_lines(name)))


def label_lines(name: str) -> str:
    """Return a name as it is shown beside an axis: in lines of at most about 30 characters.

    Lines end between words, or at separators within long words.
    """
    lines = [""]
    words = (f"{word} " for word in drawn_name(name).split(" "))
    for segment in (
        part for word in words for part in ([word] if len(word) <= LABEL else JOINTS.split(word))
    ):
        if lines[-1] and len(lines[-1]) + len(segment.rstrip()) > LABEL:
            lines.append("")
        lines[-1] += segment
    return "\n".join(line.rstrip() for line in lines)


def legend_name(name: str) -> str:
    """Return a name as it is shown in a legend.

    Matplotlib omits labels that begin with an underscore: a character of no width precedes it.
    """
    label = drawn_name(name)
    return f"\u200b{label}" if label.startswith("_") else label
