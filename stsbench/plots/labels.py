"""Figures, in the one style that all of them have; they need matplotlib, which the extra ``plots`` installs."""

from __future__ import annotations

import re

from stsbench.core.wording import escape_controls, join_lines, shorten

FIGURES = ("svg", "png", "pdf")
"""The formats of their files."""
LABEL = 30
"""Signs of a line beside an axis."""
INK, LINE, BAND = "#222222", "#BBBBBB", "#F4F4F4"
"""The colours of text, of thin lines, and of the bands behind every second group."""
JOINTS = re.compile(r"(?<=[-_+/,=.:])")


def drawn_name(name: str) -> str:
    """A name as figures show it: in one line, and not all of what is long."""
    return shorten(escape_controls(join_lines(name)))


def label_lines(name: str) -> str:
    """A name as it stands beside an axis: in lines of about 30 signs that end between words, or at joints of long ones."""
    lines = [""]
    words = (f"{word} " for word in drawn_name(name).split(" "))
    for piece in (
        part for word in words for part in ([word] if len(word) <= LABEL else JOINTS.split(word))
    ):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > LABEL:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def legend_name(name: str) -> str:
    """The same in a legend, which leaves out what begins with an underscore: a sign of no width stands before it."""
    shown = drawn_name(name)
    return f"\u200b{shown}" if shown.startswith("_") else shown
