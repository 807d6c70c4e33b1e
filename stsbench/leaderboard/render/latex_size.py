"""How large a table is set in LaTeX: as large as fits an article's text, or in several parts where nothing fits.

No LaTeX is asked: widths are those of Computer Modern, in classes of signs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stsbench.leaderboard.tables.layout import Layout, Shown, TableLine

TEXT_WIDTH, TEXT_HEIGHT = 345.0, 550.0
"""Points: the text of an article in one column, in 10 pt; as high as on letter paper, which is lower than A4."""
WIDTHS = {
    "ijl.,:;'|!` ": 0.34,
    'Ift()[]-/rs{}"': 0.4,
    "0123456789acegoz–†‡§¶*°": 0.5,
    "S": 0.56,
    "BCEFLPTZ": 0.73,
    "mwMOQ%+=<>~@&±…": 0.94,
    "W": 1.03,
}
"""Of an em, by the widest of the signs; upper-case letters and all others follow."""
UPPER, USUAL, BOLD = 0.79, 0.56, 1.15
SIGN_WIDTHS = {sign: width for signs, width in WIDTHS.items() for sign in signs}
CAPTION_LINES, RULE, NOTE = 2, 8.0, 9.5


class Size(NamedTuple):
    """A size of type: its command, an em and a line in points, and the blank on each side of a column."""

    command: str
    em: float
    line: float
    blank: float


class LatexSetting(NamedTuple):
    """How a table is set: the size, whether heads may be of several lines, and deviations below their numbers."""

    size: Size
    stacked: bool = False
    folded: bool = False


# The smaller the type, the broader are its letters: an em is wider than the size says.
NORMAL, SMALL = Size("", 10, 12, 6), Size(r"\small", 9.25, 11, 4)
FOOTNOTE, SCRIPT = Size(r"\footnotesize", 8.5, 9.5, 3), Size(r"\scriptsize", 8, 8, 2)
SETTINGS = (
    LatexSetting(NORMAL),
    LatexSetting(NORMAL, stacked=True),
    LatexSetting(SMALL, stacked=True),
    LatexSetting(FOOTNOTE, stacked=True),
    LatexSetting(FOOTNOTE, stacked=True, folded=True),
    LatexSetting(SCRIPT, stacked=True),
    LatexSetting(SCRIPT, stacked=True, folded=True),
)
"""From large to small."""
IN_PARTS = LatexSetting(FOOTNOTE, stacked=True, folded=True)


class LatexFit(NamedTuple):
    """How a table fits: its setting, and the places of the columns in each of its parts."""

    setting: LatexSetting
    parts: Sequence[Sequence[int]]


def fit_page(layout: Layout) -> LatexFit:
    """The largest setting in which a table is no wider than the text, or as few parts as fit beside the labels."""
    places = range(len(layout.heads))
    for setting in SETTINGS:
        if _label_width(layout, setting) + sum(_column_width(layout, at, setting) for at in places) <= TEXT_WIDTH:
            return LatexFit(setting, [places])
    parts = list(_filled(layout, len(places)))
    return LatexFit(IN_PARTS, list(_filled(layout, -(-len(places) // len(parts)))))


def _filled(layout: Layout, most: int) -> Iterator[list[int]]:
    part: list[int] = []
    label = used = _label_width(layout, IN_PARTS)
    for at in range(len(layout.heads)):
        needed = _column_width(layout, at, IN_PARTS)
        if part and (used + needed > TEXT_WIDTH or len(part) == most):
            yield part
            part, used = [], label
        part.append(at)
        used += needed
    yield part


def is_long(layout: Layout, setting: LatexSetting) -> bool:
    """Whether a table is higher than a page, so that no float can hold it."""
    lines = sum(1 + (setting.folded and any(cell.deviation for cell in line.cells)) for line in _lines(layout))
    titles = sum(bool(block.title) + bool(block.section) for block in layout.blocks)
    heads = max((len(head_lines(layout, at, setting)) for at in range(len(layout.heads))), default=1)
    body = (lines + titles + heads) * setting.size.line + (len(layout.blocks) + 2) * RULE
    notes = sum(1 + _width(text) * FOOTNOTE.em // TEXT_WIDTH for text in layout.legend) * NOTE
    return CAPTION_LINES * NORMAL.line + body + notes > TEXT_HEIGHT


def _lines(layout: Layout) -> list[TableLine]:
    return [line for block in layout.blocks for line in block.lines]


def _label_width(layout: Layout, setting: LatexSetting) -> float:
    labels = (("  " if line.further else "") + line.label + line.marks for line in _lines(layout))
    return max(map(_width, labels), default=0) * setting.size.em + setting.size.blank


def head_lines(layout: Layout, at: int, setting: LatexSetting) -> list[str]:
    """A column's head: where heads are stacked in lines no wider than its cells, or than its longest word."""
    head = layout.heads[at]
    if not setting.stacked:
        return [head]
    room = max([_cells_width(layout, at, setting), *map(_width, head.split())])
    lines: list[str] = []
    for word in head.split():
        if lines and _width(f"{lines[-1]} {word}") <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _column_width(layout: Layout, at: int, setting: LatexSetting) -> float:
    widths = [_cells_width(layout, at, setting), *map(_width, head_lines(layout, at, setting))]
    return max(widths) * setting.size.em + 2 * setting.size.blank


def _cells_width(layout: Layout, at: int, setting: LatexSetting) -> float:
    return max((_cell_width(line.cells[at], setting) for line in _lines(layout)), default=0.0)


def _cell_width(cell: Shown, setting: LatexSetting) -> float:
    number = _width(cell.text + cell.mark) * (BOLD if cell.rank else 1)
    return max(number, _width(cell.deviation)) if setting.folded else number + _width(cell.deviation)


def _width(text: str) -> float:
    return sum(SIGN_WIDTHS.get(sign, UPPER if sign.isupper() else USUAL) for sign in text)
