"""Figures, in the one style that all of them have; they need matplotlib, which the extra ``plots`` installs."""

from __future__ import annotations

import re

from stsbench.errors import cut, one_line, visible

FIGURES = ("svg", "png", "pdf")
"""The formats of their files."""
LABEL = 30
"""Signs of a line beside an axis."""


def drawn_name(name: str) -> str:
    """A name as figures show it: in one line, and not all of what is long."""
    return cut(visible(one_line(name)))


def label_lines(name: str) -> str:
    """A name as it stands beside an axis: in lines of about 30 signs, each but the last ended by a joint of the name."""
    lines = [""]
    for piece in re.split(r"(?<=[-_+/,=.: ])", drawn_name(name)):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > LABEL:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def legend_name(name: str) -> str:
    """The same in a legend, which leaves out what begins with an underscore: a sign of no width stands before it."""
    shown = drawn_name(name)
    return f"\u200b{shown}" if shown.startswith("_") else shown
