"""Figures, in the one style that all of them have; they need matplotlib, which the extra ``plots`` installs."""

from __future__ import annotations

from stsbench.errors import cut, one_line, visible

FIGURES = ("svg", "png", "pdf")
"""The formats of their files."""


def drawn_name(name: str) -> str:
    """A name as figures show it: in one line, and not all of what is long."""
    return cut(visible(one_line(name)))


def legend_name(name: str) -> str:
    """The same in a legend, which leaves out what begins with an underscore: a sign of no width stands before it."""
    shown = drawn_name(name)
    return f"\u200b{shown}" if shown.startswith("_") else shown
