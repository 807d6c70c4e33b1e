"""Figures, in the one style that all of them have; they need matplotlib, which the extra ``plots`` installs."""

from __future__ import annotations

from stsbench.errors import cut, one_line, visible

FIGURES = ("svg", "png", "pdf")
"""The formats of their files."""


def drawn_name(name: str) -> str:
    """A name as matplotlib draws it: one that begins with a line would be left out of the legend."""
    shown = cut(visible(one_line(name)))
    return f"\u200b{shown}" if shown.startswith("_") else shown
