"""Tables as one HTML page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from stsbench.leaderboard.layout import BEST, SECOND, Block, Layout, Line, Show, Shown, lay_out
from stsbench.leaderboard.table import Table

STYLE = (
    "body{font:14px/1.4 sans-serif;margin:2em}"
    "table{border-collapse:collapse;margin:1em 0;border-top:2px solid;border-bottom:2px solid}"
    "caption{font-weight:bold;text-align:left;padding:.3em 0}"
    "th,td{padding:.15em .6em;text-align:right;white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}"
    "thead,tbody+tbody{border-top:1px solid #999}"
    "thead{border-bottom:1px solid}"
    ".further td:first-child{padding-left:2em}"
    ".further{color:#555}"
)


def to_html(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> str:
    """All tables, each with its legend below."""
    title = escape(tables[0].caption if len(tables) == 1 else "Leaderboard")
    body = "\n".join(line for table in tables for line in _lines(lay_out(table, show, exact=exact)))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _lines(layout: Layout) -> Iterator[str]:
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in layout.heads)
    yield f"<table>\n<caption>{escape(layout.caption)}</caption>"
    yield f'<thead><tr><th scope="col">encoder</th>{heads}</tr></thead>'
    above = ""
    for block in layout.blocks:
        yield "<tbody>"
        yield from _titles(block, above, len(layout.heads) + 1)
        above = block.section
        yield from map(_row, block.lines)
        yield "</tbody>"
    yield "</table>"
    yield from (f"<p>{escape(text)}</p>" for text in layout.legend)


def _titles(block: Block, above: str, width: int) -> Iterator[str]:
    if block.section and block.section != above:
        yield f'<tr><th colspan="{width}">{escape(block.section)}</th></tr>'
    if block.title:
        yield f'<tr><td colspan="{width}"><i>{escape(block.title)}</i></td></tr>'


def _row(line: Line) -> str:
    start = '<tr class="further">' if line.further else "<tr>"
    cells = "".join(f"<td>{_cell(cell)}</td>" for cell in line.cells)
    return f"{start}<td>{escape(line.label + line.marks)}</td>{cells}</tr>"


def _cell(cell: Shown) -> str:
    text = escape(cell.text + cell.deviation)
    return {BEST: f"<b>{text}</b>", SECOND: f"<u>{text}</u>"}.get(cell.rank, text) + escape(cell.mark)
