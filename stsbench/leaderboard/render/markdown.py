"""Tables as markdown: best in bold, second best underlined, groups as rows of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stsbench.leaderboard.layout import BEST, SECOND, Block, Layout, Line, Show, Shown, lay_out
from stsbench.leaderboard.table import Table


def to_markdown(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> str:
    """All tables, each under its caption."""
    return "\n\n".join("\n".join(_lines(lay_out(table, show, exact=exact))) for table in tables) + "\n"


def _lines(layout: Layout) -> Iterator[str]:
    yield f"**{_escape(layout.caption)}**\n"
    yield _row(["encoder", *map(_escape, layout.heads)])
    yield _row(["---", *["---:"] * len(layout.heads)])
    above = ""
    for block in layout.blocks:
        yield from _titles(block, above, len(layout.heads))
        above = block.section
        yield from (_row([_label(line), *map(_cell, line.cells)]) for line in block.lines)
    yield from (f"\n{_escape(text)}" for text in layout.legend)


def _titles(block: Block, above: str, columns: int) -> Iterator[str]:
    if block.section and block.section != above:
        yield _row([f"**{_escape(block.section)}**", *[""] * columns])
    if block.title:
        yield _row([f"*{_escape(block.title)}*", *[""] * columns])


def _label(line: Line) -> str:
    return ("&emsp;" if line.further else "") + _escape(line.label + line.marks)


def _cell(cell: Shown) -> str:
    text = cell.text + cell.deviation
    text = {BEST: f"**{text}**", SECOND: f"<u>{text}</u>"}.get(cell.rank, text)
    return text + _escape(cell.mark)


def _escape(text: str) -> str:
    return re.sub(r"[|*<\\]", r"\\\g<0>", text)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
