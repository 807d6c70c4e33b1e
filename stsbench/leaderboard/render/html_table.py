"""One table in HTML: heads, groups of rows, and the notes below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from stsbench.leaderboard.render.html_cell import MEANS, Frame, bar_scales, cell_html, has_outliers
from stsbench.leaderboard.render.html_row import Apart, row_head, row_start, told_apart
from stsbench.leaderboard.tables.layout import Layout, LayoutBlock
from stsbench.leaderboard.tables.table import STANDINGS, Table, TableColumn


def table_lines(table: Table, layout: Layout, identity: str) -> Iterator[str]:
    """The lines of a table and its notes; ``identity`` begins the ids in it."""
    frame = Frame(identity, layout.columns, bar_scales(layout), _first_notes(layout.legend))
    apart, width = told_apart(table), len(layout.heads) + 1
    yield f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{identity}-caption">'
    yield f'<table id="{identity}" style="--columns:{width}">'
    yield f'<caption><span id="{identity}-caption">{escape(layout.caption)}</span></caption>'
    heads = "".join(map(_head, layout.columns, layout.heads))
    yield f'<thead><tr><th scope="col">encoder</th>{heads}</tr></thead>'
    above = ""
    for block in layout.blocks:
        if block.section and block.section != above:
            yield f'<tbody class="section">{_title(block.section, width)}</tbody>'
        above = block.section
        yield "<tbody>"
        if block.title:
            yield _title(block.title, width, ' class="title"')
        yield from _rows(block, frame, apart)
        yield "</tbody>"
    yield "</table>\n</div>"
    yield from _notes(table, layout, frame)


def _head(column: TableColumn, head: str) -> str:
    better = ' data-better="low"' if column.better == "low" or column.kind in STANDINGS else ""
    mean = ' class="mean"' if column.kind in MEANS else ""
    return (
        f'<th scope="col"{mean} data-key="{escape(column.key)}" data-kind="{column.kind}"{better}>{escape(head)}</th>'
    )


def _title(text: str, width: int, attributes: str = "") -> str:
    return f'<tr{attributes}><th colspan="{width}" scope="rowgroup"><span>{escape(text)}</span></th></tr>'


def _rows(block: LayoutBlock, frame: Frame, apart: Mapping[int, Apart]) -> Iterator[str]:
    for line in block.lines:
        cells = "".join(
            cell_html(line, column, cell, frame) for column, cell in zip(frame.columns, line.cells, strict=True)
        )
        yield f"{row_start(line)}{row_head(line, frame, apart.get(id(line.row)))}{cells}</tr>"


def _first_notes(legend: Sequence[str]) -> dict[str, int]:
    notes: dict[str, int] = {}
    for place, text in enumerate(legend, start=1):
        notes.setdefault(text[0], place)
    return notes


def _notes(table: Table, layout: Layout, frame: Frame) -> Iterator[str]:
    """The legend, what the type and the bars mean where there are any, and the paper."""
    yield '<ul class="notes">'
    for place, text in enumerate(layout.legend, start=1):
        yield f'<li id="{frame.identity}-note{place}">{escape(text)}</li>'
    lines = [line for block in layout.blocks for line in block.lines]
    if any(cell.rank for line in lines for cell in line.cells):
        several = layout.show == "both" and {"measured", "published"} <= {line.side for line in lines}
        apart = ", measured and published apart" if several else ""
        yield f"<li><b>Bold</b>: best of its group; <u>underlined</u>: second best{apart}.</li>"
    if frame.scales:
        arrows = "; an arrow: the score is off the scale" if has_outliers(layout, frame.scales) else ""
        yield f"<li>Bars: 95% intervals, on one scale in each column{arrows}.</li>"
    if table.paper is not None:
        paper = table.paper
        authors = f"{paper.authors}, {paper.year}" if paper.authors else str(paper.year)
        link = f'<a href="{escape(paper.url)}">{escape(paper.title)}</a>'
        yield f"<li>Source: {escape(authors)}: {link}, {escape(table.number)}</li>"
    yield "</ul>"
