"""Tables as markdown: best in bold, second best underlined, groups as rows of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stsbench.cards.names import LONGEST
from stsbench.errors import one_line, visible
from stsbench.leaderboard.tables.layout import BEST, SECOND, Layout, LayoutBlock, Show, Shown, TableLine, lay_out
from stsbench.leaderboard.tables.short import short_labels
from stsbench.leaderboard.tables.table import Table


def to_markdown(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> str:
    """All tables, each under its caption."""
    return layouts_to_markdown([lay_out(table, show, exact=exact) for table in tables])


def layouts_to_markdown(layouts: Sequence[Layout]) -> str:
    """All that is laid out, each under its caption."""
    # A page scrolls: it has more room than a terminal or paper.
    short = (short_labels(layout, with_settings=LONGEST) for layout in layouts)
    return "\n\n".join("\n".join(_lines(layout)) for layout in short) + "\n"


def markdown_rows(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> str:
    """The rows of all tables alone, to be put into a table that there is."""
    lines = (
        line
        for table in tables
        for block in lay_out(table, show, exact=exact, ends=False).blocks
        for line in block.lines
    )
    return "".join(f"{_row([_label(line), *map(_cell, line.cells)])}\n" for line in lines)


def _lines(layout: Layout) -> Iterator[str]:
    yield f"**{escape_markdown(layout.caption)}**\n"
    yield _row([layout.label_head, *map(escape_markdown, layout.heads)])
    yield _row(["---", *["---:"] * len(layout.heads)])
    above = ""
    for block in layout.blocks:
        yield from _titles(block, above, len(layout.heads))
        above = block.section
        yield from (_row([_label(line), *map(_cell, line.cells)]) for line in block.lines)
    yield from (f"\n{escape_markdown(text)}" for text in layout.legend)


def _titles(block: LayoutBlock, above: str, columns: int) -> Iterator[str]:
    if block.section and block.section != above:
        yield _row([f"**{escape_markdown(block.section)}**", *[""] * columns])
    if block.title:
        yield _row([f"*{escape_markdown(block.title)}*", *[""] * columns])


def _label(line: TableLine) -> str:
    return ("&emsp;" if line.further else "") + escape_markdown(line.label + line.marks)


def _cell(cell: Shown) -> str:
    text = cell.text + cell.deviation
    text = {BEST: f"**{text}**", SECOND: f"<u>{text}</u>"}.get(cell.rank, text)
    return text + escape_markdown(cell.mark)


def escape_markdown(text: str) -> str:
    """Text of others as it reads: no emphasis, link, image, HTML, formula or new cell, and all in one line.

    What stands for a character in HTML is taken where a backslash is not understood by all, and where addresses
    become links by themselves.
    """
    return _SIGNS.sub(_escaped, visible(one_line(text)))


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    return ENTITIES.get(sign, f"\\{sign}")


ENTITIES = {"<": "&lt;", "&": "&amp;", "@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}
_SIGNS = re.compile(
    r"[\\`*\[\]|~$<@]|://|\bwww\."
    # Within a word an underscore is one; an ampersand is one but before what ends with a semicolon.
    r"|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)"
)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
