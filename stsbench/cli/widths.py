"""Columns of a table that is wider than its terminal: words stay whole, long ones break at their joints."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from textwrap import TextWrapper
from typing import NamedTuple

GAP, NARROW_GAP = 3, 2
"""Columns between two cells, as rich draws them with spaces on both sides of a cell or on one."""
JOINTS = re.compile(r"([^\s\-_+/,=.:]*[\-_+/,=.:]+)")
"""A piece of a name, with the signs that end it."""
HUMPS = re.compile(r"([A-Z]?[a-z]{4,}(?=[A-Z])|[^\s\-_+/,=.:]*[\-_+/,=.:]+)")
"""The same, and the words of a name that is written in one."""


class Breaks(NamedTuple):
    """Where cells may be broken beside their spaces, and whether those of names may be, too."""

    at: re.Pattern[str] | None
    names: bool

    def pieces(self, cell: str, *, is_name: bool) -> list[str]:
        """What of a cell stays whole."""
        if is_name and not self.names:
            return cell.split("\n")
        words = cell.split()
        return words if self.at is None else [piece for word in words for piece in self.at.split(word) if piece]

    def lines(self, cell: str, width: int) -> str:
        """The cell in lines, each as long as fits; only a word that is longer than a line is broken."""
        lines = TextWrapper(width, break_long_words=False, break_on_hyphens=False).wrap(cell)
        if self.at is None:
            return "\n".join(lines)
        wrapper = TextWrapper(width, break_long_words=False)
        wrapper.wordsep_re = re.compile(rf"(\s+)|{self.at.pattern}")
        return "\n".join(part for line in lines for part in (wrapper.wrap(line) if len(line) > width else [line]))


ORDER = (Breaks(None, False), Breaks(JOINTS, False), Breaks(HUMPS, False), Breaks(JOINTS, True), Breaks(HUMPS, True))
"""The first that makes a table fit is taken."""


def too_wide(columns: Sequence[Sequence[str]], room: int) -> bool:
    """Whether columns side by side are wider than the terminal."""
    return sum(max(map(len, cells)) for cells in columns) + GAP * (len(columns) - 1) > room


def fitted(
    columns: Sequence[Sequence[str]], room: int, *, names: Collection[int], numbers: Collection[int]
) -> list[list[str]] | None:
    """The cells of columns, the head first, in lines that fit side by side; None where they cannot.

    Args:
        columns: the cells of each.
        room: columns of the terminal.
        names: which columns are broken last.
        numbers: which are never broken.
    """
    room -= NARROW_GAP * (len(columns) - 1)
    natural = [max(len(line) for cell in cells for line in cell.split("\n")) for cells in columns]
    for breaks in ORDER:
        least = [
            natural[at]
            if at in numbers
            else max(len(piece) for cell in cells for piece in [*breaks.pieces(cell, is_name=at in names), ""])
            for at, cells in enumerate(columns)
        ]
        if sum(least) <= room:
            widths = _shared(least, natural, room - sum(least), names)
            return [
                [cell if at in numbers or len(cell) <= width else breaks.lines(cell, width) for cell in cells]
                for at, (cells, width) in enumerate(zip(columns, widths, strict=True))
            ]
    return None


def _shared(least: Sequence[int], natural: Sequence[int], spare: int, names: Collection[int]) -> list[int]:
    """Widths of columns: the least they need, and what is spare where it is needed, first for names, then evenly."""
    widths = list(least)
    while spare and (short := [at for at, width in enumerate(widths) if width < natural[at]]):
        first = [at for at in short if at in names] or short
        for at in first[:spare]:
            widths[at] += 1
        spare -= len(first[:spare])
    return widths
