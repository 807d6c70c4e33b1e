"""Tables on the terminal: best in bold, second best underlined, in parts where the terminal is too narrow."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from stsbench.cli.printing import console, folded, say
from stsbench.errors import one_line, visible
from stsbench.leaderboard.tables.layout import BEST, SECOND, Layout, LayoutBlock, Shown, TableLine
from stsbench.leaderboard.tables.short import short_labels

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {BEST: "bold", SECOND: "underline"}


class Setting(NamedTuple):
    """How tightly a table is set: blanks between columns, and whether deviations have a line of their own."""

    gap: int
    folded: bool


SETTINGS = (Setting(2, False), Setting(1, False), Setting(2, True), Setting(1, True))
"""From wide to tight."""


def print_table(layout: Layout) -> None:
    """Print a table in as many parts as its columns need, then its legend."""
    screen, layout = console(), short_labels(_visible(layout))
    say("\n".join(folded(layout.caption, screen.width)) + "\n")
    setting = next((s for s in SETTINGS if len(_parts(layout, screen.width, s)) == 1), SETTINGS[-1])
    for part in _parts(layout, screen.width, setting):
        for text in _lines(layout, part, setting):
            screen.print(text, no_wrap=True, overflow="ignore", crop=False)
        say("")
    for note in layout.legend:
        say("\n".join(folded(note, screen.width, indent="  ")))
    if layout.legend:
        say("")


def _visible(layout: Layout) -> Layout:
    """The same with control characters of names written out, before widths are reckoned."""
    blocks = [
        replace(block, lines=[replace(line, label=visible(one_line(line.label))) for line in block.lines])
        for block in layout.blocks
    ]
    return replace(layout, blocks=blocks, heads=[visible(head) for head in layout.heads])


def _parts(layout: Layout, width: int, setting: Setting) -> list[list[int]]:
    """Columns that fit beside the labels, by place; where they need several parts, about as many in each."""
    parts = list(_filled(layout, width, setting, len(layout.heads)))
    return list(_filled(layout, width, setting, -(-len(layout.heads) // len(parts))))


def _filled(layout: Layout, width: int, setting: Setting, most: int) -> Iterator[list[int]]:
    part: list[int] = []
    label = used = _label_width(layout)
    for place in range(len(layout.heads)):
        needed = setting.gap + _width(layout, place, setting)
        if part and (used + needed > width or len(part) == most):
            yield part
            part, used = [], label
        part.append(place)
        used += needed
    yield part


def _all(layout: Layout) -> Iterator[TableLine]:
    return (line for block in layout.blocks for line in block.lines)


def _label_width(layout: Layout) -> int:
    return max([len(layout.label_head), *(len(_label(line)) for line in _all(layout))])


def _width(layout: Layout, place: int, setting: Setting) -> int:
    cells = (line.cells[place] for line in _all(layout))
    words = layout.heads[place].split()
    return max([*map(len, words), *(max(map(len, _texts(cell, setting.folded))) for cell in cells)])


def _texts(cell: Shown, folded: bool) -> tuple[str, str]:
    """What a cell holds in its line, and in the line below it."""
    if folded:
        return cell.text + cell.mark, cell.deviation
    return cell.text + cell.mark + cell.deviation, ""


def _lines(layout: Layout, part: Sequence[int], setting: Setting) -> Iterator[Text]:
    from rich.text import Text

    label, widths = _label_width(layout), [_width(layout, place, setting) for place in part]
    blanks = " " * setting.gap
    heads = [
        textwrap.wrap(layout.heads[place], width, break_on_hyphens=False)
        for place, width in zip(part, widths, strict=True)
    ]
    for row in range(depth := max(map(len, heads))):
        words = [([""] * (depth - len(head)) + head)[row] for head in heads]
        first = layout.label_head if row == depth - 1 else ""
        cells = [f"{word:>{width}}" for word, width in zip(words, widths, strict=True)]
        yield Text(blanks.join([f"{first:<{label}}", *cells]))
    yield Text("─" * (label + sum(widths) + len(widths) * setting.gap))
    above = ""
    for number, block in enumerate(layout.blocks):
        if number:
            yield Text("")
        yield from _titles(block, above)
        above = block.section
        for line in block.lines:
            shown = [(line.cells[place], width) for place, width in zip(part, widths, strict=True)]
            yield Text(blanks).join([Text(f"{_label(line):<{label}}"), *(_cell(c, w, setting) for c, w in shown)])
            if setting.folded and any(cell.deviation for cell, _ in shown):
                yield Text(blanks.join([" " * label, *(f"{cell.deviation:>{width}}" for cell, width in shown)]))


def _titles(block: LayoutBlock, above: str) -> Iterator[Text]:
    from rich.text import Text

    if block.section and block.section != above:
        yield Text(block.section, style="bold italic")
    if block.title:
        yield Text(block.title, style="italic")


def _label(line: TableLine) -> str:
    return ("  " if line.further else "") + line.label + line.marks


def _cell(cell: Shown, width: int, setting: Setting) -> Text:
    from rich.text import Text

    whole, _ = _texts(cell, setting.folded)
    made = Text(" " * (width - len(whole)))
    made.append(cell.text, style=STYLES.get(cell.rank, ""))
    return made.append(whole[len(cell.text) :])
