"""Tables that are wider than their terminal: names become short, words stay whole, long ones break at their joints.

What does not fit even so is set in parts below each other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from textwrap import TextWrapper
from typing import NamedTuple

from stsbench.cards.names import LONGEST, WITH_SETTINGS, short_name

GAP, NARROW_GAP = 3, 2
"""Columns between two cells, as rich draws them with spaces on both sides of a cell or on one."""
JOINTS = re.compile(r"([^\s\-_+/,=.:]*[\-_+/,=.:]+)")
"""A piece of a long word, with the signs that end it."""
HUMPS = re.compile(r"([A-Z]?[a-z]{4,}(?=[A-Z])|[^\s\-_+/,=.:]*[\-_+/,=.:]+)")
"""The same, and the words of one that is written in one."""
BREAKS = (None, JOINTS, HUMPS)
"""Where words may be broken beside their spaces."""
LIMITS = ((WITH_SETTINGS, LONGEST), (24, 24), (16, 16))
"""So many signs a name with settings may have, and any other; less and less."""
MOST_KEYS = 12
"""So many names a key says beside those whose settings are long."""


class PlainColumn(NamedTuple):
    """A column, and what stands in it; names and numbers are never broken."""

    head: str
    cells: Sequence[str]
    is_name: bool = False
    is_number: bool = False
    head_is_name: bool = False

    @property
    def width(self) -> int:
        """Signs of the longest line."""
        return max(len(line) for cell in (self.head, *self.cells) for line in cell.split("\n"))

    def shortened(self, limits: tuple[int, int], numbers: dict[str, str]) -> PlainColumn:
        """The same with short names; ``numbers`` are those given already."""

        def short(name: str) -> str:
            return short_name(name, numbers, with_settings=limits[0], longest=limits[1])

        head = short(self.head) if self.head_is_name else self.head
        return self._replace(head=head, cells=[*map(short, self.cells)] if self.is_name else self.cells)

    def least(self, at: re.Pattern[str] | None) -> int:
        """Signs that it needs where words may be broken so."""
        is_whole = self.is_name or self.is_number
        cells = [(self.head, self.head_is_name), *((cell, is_whole) for cell in self.cells)]
        pieces = (piece for cell, whole in cells for piece in ([cell] if whole else _pieces(cell, at)))
        return max(1, *map(len, pieces))

    def lines(self, width: int, at: re.Pattern[str] | None) -> PlainColumn:
        """The same with each cell in lines, each as long as fits."""
        return self._replace(head=_lines(self.head, width, at), cells=[_lines(cell, width, at) for cell in self.cells])


class Fitted(NamedTuple):
    """A table as it is printed."""

    parts: Sequence[Sequence[PlainColumn]]
    """Below each other, where there is no room for all columns."""
    gap: int
    key: Sequence[str]
    """What the numbers in short names stand for, one each."""


def fit_columns(columns: Sequence[PlainColumn], room: int) -> Fitted:
    """Fit columns into a terminal: as they are, with short names, with broken words or in parts, in that order."""
    if sum(column.width for column in columns) + GAP * (len(columns) - 1) <= room:
        return Fitted([columns], GAP, ())
    tries = [_shortened(columns, limits) for limits in LIMITS]
    # A key that is as long as a list is no help: its names stay, and it is set in parts.
    tries = [tries[0], *(one for one in tries[1:] if len(one[1]) <= MOST_KEYS)]
    fits = (([made], key) for short, key in tries for at in BREAKS if (made := fitted(short, room, at)))
    short, key = tries[-1]
    parts, key = next(fits, (_parts(short, room), key))
    return Fitted(parts, NARROW_GAP, key)


def _shortened(columns: Sequence[PlainColumn], limits: tuple[int, int]) -> tuple[Sequence[PlainColumn], Sequence[str]]:
    """Columns with short names, and what their numbers stand for."""
    numbers: dict[str, str] = {}
    short = [column.shortened(limits, numbers) for column in columns]
    return short, [f"{number} {name}" for name, number in numbers.items()]


def fitted(columns: Sequence[PlainColumn], room: int, at: re.Pattern[str] | None) -> Sequence[PlainColumn] | None:
    """Columns with their cells in lines that fit side by side, words broken at spaces and ``at``; None where they cannot."""
    spare = room - _needed(columns, at)
    if spare < 0:
        return None
    widths = _shared([column.least(at) for column in columns], columns, spare)
    return [column.lines(width, at) for column, width in zip(columns, widths, strict=True)]


def _needed(columns: Sequence[PlainColumn], at: re.Pattern[str] | None) -> int:
    return sum(column.least(at) for column in columns) + NARROW_GAP * (len(columns) - 1)


def _shared(least: Sequence[int], columns: Sequence[PlainColumn], spare: int) -> list[int]:
    """Widths of columns: the least they need, and what is spare evenly where it is needed."""
    widths = list(least)
    while spare and (short := [at for at, column in enumerate(columns) if widths[at] < column.width]):
        for at in short[:spare]:
            widths[at] += 1
        spare -= len(short[:spare])
    return widths


def _parts(columns: Sequence[PlainColumn], room: int) -> list[Sequence[PlainColumn]]:
    """As many columns a part as fit; those left of the first number say in each part what its lines are of."""
    left = list(takewhile(lambda column: not column.is_number, columns))
    if len(left) in (0, len(columns)) or _needed(columns[: len(left) + 1], HUMPS) > room:
        left = list(columns[:1])
    parts = [left]
    for column in columns[len(left) :]:
        if len(parts[-1]) > len(left) and _needed([*parts[-1], column], HUMPS) > room:
            parts.append(left)
        parts[-1] = [*parts[-1], column]
    # Where not even one column fits, a part is wider than the terminal, which wraps its lines.
    return [found for part in parts if (found := fitted(part, max(room, _needed(part, HUMPS)), HUMPS))]


def _pieces(cell: str, at: re.Pattern[str] | None) -> list[str]:
    """What of a cell stays whole."""
    words = cell.split()
    return words if at is None else [piece for word in words for piece in at.split(word) if piece]


def _lines(cell: str, width: int, at: re.Pattern[str] | None) -> str:
    """A cell in lines, each as long as fits; only a word that is longer than a line is broken."""
    if len(cell) <= width:
        return cell
    lines = TextWrapper(width, break_long_words=False, break_on_hyphens=False).wrap(cell)
    if at is None:
        return "\n".join(lines)
    wrapper = TextWrapper(width, break_long_words=False)
    wrapper.wordsep_re = re.compile(rf"(\s+)|{at.pattern}")
    return "\n".join(part for line in lines for part in (wrapper.wrap(line) if len(line) > width else [line]))
