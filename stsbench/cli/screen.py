"""Tables on a terminal, drawn by rich: with short names, words on several lines, or in parts where it is too narrow.

Apart from ``printing``: rich is imported where something is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from stsbench.cli.printing import folded, line_width, say
from stsbench.core import settings
from stsbench.core.errors import LONGEST, WITH_SETTINGS, one_line, short_name, visible

if TYPE_CHECKING:
    from stsbench.boards.tables.table import Layout

GAP, NARROW_GAP = 3, 2
"""Columns between two cells of a plain table, where there is room and where there is not."""
LIMITS = ((WITH_SETTINGS, LONGEST), (24, 24), (16, 16))
"""How many signs a name with settings may have, and any other; less and less."""
MOST_KEYS = 12
"""So many short names are explained below a table, beside those whose settings are long."""
JOINTS = re.compile(r"(\s+|[A-Z]?[a-z]{4,}(?=[A-Z])|[^\s\-_+/,=.:]*[\-_+/,=.:]+(?=\w))")
"""Where lines may end: blanks, the first of several words that are written in one, and signs that join words."""
STYLES = {1: "bold", 2: "underline"}
"""Of the best number of a column, and the second best."""


class Screen(Console):
    """A console on which control characters within names and errors are shown and do nothing."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of what is drawn: rich's own controls pass, those within text do not."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the user says or the terminal is; without one, lines have no end."""
    return Screen(
        stderr=stderr,
        width=line_width(stderr=stderr),
        # Names and errors are text: brackets in them are no markup, colons no emoji.
        highlight=False,
        markup=False,
        emoji=False,
        # rich would take COLUMNS=0 for a width.
        _environ=settings.terminal(),
    )


class Column(NamedTuple):
    """A column as it is drawn; names and numbers are never broken."""

    head: Text
    cells: Sequence[Text]
    is_name: bool = False
    is_number: bool = False
    head_is_name: bool = False

    @property
    def widest(self) -> int:
        """Signs of the longest line."""
        return max(len(line) for cell in (self.head, *self.cells) for line in cell.plain.split("\n"))

    def shortened(self, limits: tuple[int, int], numbers: dict[str, str]) -> Column:
        """The same with short names; ``numbers`` are those given already."""

        def short(name: Text) -> Text:
            return Text(short_name(name.plain, numbers, with_settings=limits[0], longest=limits[1]))

        head = short(self.head) if self.head_is_name else self.head
        return self._replace(head=head, cells=[*map(short, self.cells)] if self.is_name else self.cells)

    def least(self, *, broken: bool) -> int:
        """Signs that it needs where long words may be ``broken`` at their joints, or where none may be."""
        is_whole = self.is_name or self.is_number
        words: list[str] = []
        for text, whole in [(self.head.plain, self.head_is_name), *((cell.plain, is_whole) for cell in self.cells)]:
            words += text.split("\n") if whole else JOINTS.split(text) if broken else text.split()
        return max(1, *map(len, words))

    def wrapped(self, width: int, *, broken: bool) -> Column:
        """The same with each cell in lines, each as long as fits."""
        wrapper = TextWrapper(width, break_on_hyphens=broken)
        # What TextWrapper itself breaks at are hyphens alone.
        wrapper.wordsep_re = JOINTS

        def lines(cell: Text) -> Text:
            return cell if max(map(len, cell.plain.split("\n"))) <= width else Text("\n".join(wrapper.wrap(cell.plain)))

        return self._replace(head=lines(self.head), cells=[*map(lines, self.cells)])


def print_rows(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    names: Sequence[int] = (0,),
    heads: Sequence[int] = (),
    sparse: bool = False,
) -> None:
    """Print a plain table: a rule under the header, numbers to the right; of a ``sparse`` one no column that all rows lack.

    Where it is wider than the terminal, ``names`` and ``heads`` that are names are short, and a key below says them whole.
    """
    screen = console()
    columns = [
        Column(Text(visible(head)), [Text(visible(row[at])) for row in rows], at in names, at in right, at in heads)
        for at, head in enumerate(titles)
        if not sparse or any(row[at] for row in rows)
    ]
    if sum(column.widest for column in columns) + GAP * (len(columns) - 1) <= screen.width:
        _draw(screen, columns, GAP)
        return
    parts, key = _fitted(columns, screen.width)
    for place, part in enumerate(parts):
        if place:
            say("")
        _draw(screen, part, NARROW_GAP)
    if key:
        # A name longer than the terminal is wrapped by it, and copied in one piece.
        say("\n".join(["", *key]))


def print_records(records: Sequence[Mapping[str, object]], right: Sequence[str], **how: Any) -> None:  # noqa: ANN401
    """Print records, if any, by :func:`print_rows`: a column a key, and those named in ``right`` to the right."""
    if records:
        titles = list(records[0])
        rows = [[str(value) for value in record.values()] for record in records]
        print_rows(titles, rows, right=[at for at, title in enumerate(titles) if title in right], **how)


def _fitted(columns: Sequence[Column], room: int) -> tuple[list[list[Column]], list[str]]:
    """Columns with short names and words on several lines, in parts where even so there is no room; and the names' key."""
    short, key = list(columns), list[str]()
    for place, limits in enumerate(LIMITS):
        numbers: dict[str, str] = {}
        tried = [column.shortened(limits, numbers) for column in columns]
        # A key that is as long as a list is no help.
        if place and len(numbers) > MOST_KEYS:
            break
        short, key = tried, [f"{number} {name}" for name, number in numbers.items()]
        for broken in (False, True):
            if _needed(short, NARROW_GAP, broken=broken) <= room:
                return [_wrapped(short, room, broken=broken)], key
    left = len(list(takewhile(lambda column: not column.is_number, short)))
    if left in (0, len(short)) or _needed(short[: left + 1], NARROW_GAP, broken=True) > room:
        left = 1
    return [_wrapped(part, room, broken=True) for part in _parts(short, left, NARROW_GAP, room, broken=True)], key


def _needed(columns: Sequence[Column], gap: int, *, broken: bool) -> int:
    return sum(column.least(broken=broken) for column in columns) + gap * (len(columns) - 1)


def _wrapped(columns: Sequence[Column], room: int, *, broken: bool) -> list[Column]:
    """Columns of the least width, with what is spare shared evenly where it is needed."""
    widths = [column.least(broken=broken) for column in columns]
    spare = room - _needed(columns, NARROW_GAP, broken=broken)
    while spare > 0 and (short := [at for at, column in enumerate(columns) if widths[at] < column.widest]):
        for place in short[:spare]:
            widths[place] += 1
        spare -= len(short[:spare])
    return [column.wrapped(width, broken=broken) for column, width in zip(columns, widths, strict=True)]


def _parts(columns: Sequence[Column], left: int, gap: int, room: int, *, broken: bool) -> list[list[Column]]:
    """As many columns a part as fit behind those that say in each part what its lines are of; at least one."""
    parts = [list(columns[:left])]
    for column in columns[left:]:
        if len(parts[-1]) > left and _needed([*parts[-1], column], gap, broken=broken) > room:
            parts.append(list(columns[:left]))
        parts[-1].append(column)
    return parts


def _draw(
    screen: Console, columns: Sequence[Column], gap: int, widths: Sequence[int] = (), *, head: bool = True
) -> None:
    widths = widths or [column.widest for column in columns]
    padding = (0, min(gap - 1, 1), 0, max(gap - 2, 0))
    made = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=head, header_style="", padding=padding
    )
    for column, width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        # Heads of a board stand on their rule; a plain table's cells are read from their first line on.
        vertical: Literal["top", "bottom"] = "top" if column.cells else "bottom"
        made.add_column(column.head, justify=justify, width=width, overflow="fold", vertical=vertical)
    for row in zip(*(column.cells for column in columns), strict=True):
        made.add_row(*row)
    # What is wider even so the terminal itself wraps: rich would cut numbers.
    width, screen.width = screen.width, max(screen.width, sum(widths) + gap * len(widths))
    screen.print(made, crop=False)
    screen.width = width


SETTINGS = ((2, False), (1, False), (2, True), (1, True))
"""How tightly a board is set, from wide to tight: blanks between columns, and whether deviations have a line of their own."""


def print_table(layout: Layout) -> None:
    """Print a board in as many parts as its columns need, best in bold, second best underlined; then its legend."""
    # Imports numpy, for which no list waits.
    from stsbench.boards.tables.table import short_labels

    # Control characters of names are written out before widths are reckoned.
    blocks = [
        replace(block, lines=[replace(line, label=visible(one_line(line.label))) for line in block.lines])
        for block in layout.blocks
    ]
    screen = console()
    layout = short_labels(replace(layout, blocks=blocks, heads=[visible(head) for head in layout.heads]))
    say("\n".join(folded(layout.caption, screen.width)) + "\n")
    for gap, is_folded in SETTINGS:
        columns = _board(layout, is_folded=is_folded)
        parts = _parts(columns, 1, gap, screen.width, broken=False)
        if len(parts) == 1:
            break
    if len(parts) > 1:
        # About as many columns in each.
        each = -(-(len(columns) - 1) // len(parts))
        parts = [[columns[0], *columns[at : at + each]] for at in range(1, len(columns), each)]
    for part in parts:
        _print_board(screen, layout, part, gap)
        say("")
    for note in layout.legend:
        say("\n".join(folded(note, screen.width, indent="  ")))
    if layout.legend:
        say("")


def _board(layout: Layout, *, is_folded: bool) -> list[Column]:
    lines = [line for block in layout.blocks for line in block.lines]
    labels = [Text(("  " if line.further else "") + line.label + line.marks) for line in lines]
    columns = [Column(Text(layout.label_head), labels, is_name=True)]
    for at, head in enumerate(layout.heads):
        cells = []
        for cell in (line.cells[at] for line in lines):
            below = "\n" if is_folded and cell.deviation else ""
            cells.append(Text(cell.text, style=STYLES.get(cell.rank, "")) + f"{cell.mark}{below}{cell.deviation}")
        columns.append(Column(Text(head), cells, is_number=True))
    return columns


def _print_board(screen: Console, layout: Layout, columns: Sequence[Column], gap: int) -> None:
    widths = [max(one.least(broken=False), 0 if at else len(one.head.plain)) for at, one in enumerate(columns)]
    _draw(screen, [column._replace(cells=[]) for column in columns], gap, widths)
    start, above = 0, ""
    for number, block in enumerate(layout.blocks):
        if number:
            say("")
        section = block.section if block.section != above else ""
        for title, style in ((section, "bold italic"), (block.title, "italic")):
            if title:
                screen.print(Text(title, style=style), no_wrap=True, overflow="ignore", crop=False)
        above, end = block.section, start + len(block.lines)
        _draw(screen, [column._replace(cells=column.cells[start:end]) for column in columns], gap, widths, head=False)
        start = end
