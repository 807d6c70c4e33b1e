"""Tables for notebooks: plain HTML that takes its colours from the page, light or dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from stsbench.errors import one_line, visible
from stsbench.interface.grid import GridCell, GridColumn, GridRow
from stsbench.leaderboard.tables.layout import Layout

RIGHT, LEFT = "text-align: right; white-space: nowrap", "text-align: left"
SMALL = "font-size: 85%; opacity: 0.75"


def html_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = (), *, title: str = ""
) -> str:
    """A table of texts; a line break within a cell stands before its small print.

    Args:
        heads: of the columns; the first stands to the left, the others are numbers.
        rows: a text a column.
        notes: below the table.
        title: above it.
    """
    lines = [f"<div><strong>{_text(title)}</strong></div>"] if title else []
    lines += ["<table>", "<thead>", _row("th", heads), "</thead>", "<tbody>", *(_row("td", row) for row in rows)]
    return "\n".join([*lines, "</tbody>", "</table>", *map(html_note, notes)])


def html_note(text: str) -> str:
    """A line of small print."""
    return f'<div style="{SMALL}">{_text(text)}</div>'


def _row(tag: str, cells: Sequence[str]) -> str:
    styles = [RIGHT if at else LEFT for at in range(len(cells))]
    made = (f'<{tag} style="{style}">{_cell(cell)}</{tag}>' for cell, style in zip(cells, styles, strict=True))
    return f"<tr>{''.join(made)}</tr>"


def _cell(text: str) -> str:
    first, *small = text.split("\n")
    return _text(first) + "".join(f'<br><span style="{SMALL}">{_text(line)}</span>' for line in small)


def _text(text: str) -> str:
    # A dollar sign would begin a formula in a notebook.
    return escape(visible(one_line(text))).replace("$", "&#36;")


def grid_html(columns: Sequence[GridColumn], rows: Sequence[GridRow], notes: Sequence[str]) -> str:
    """Encoders by tasks, in points with their intervals below."""
    heads = ["encoder", *(column.head for column in columns)]
    return html_table(heads, [[one_line(row.name), *map(_points, row.cells)] for row in rows], notes)


def _points(cell: GridCell | None) -> str:
    return "–" if cell is None else "\n".join(_lines(cell))


def _lines(cell: GridCell) -> Iterator[str]:
    yield f"{100 * cell.score:.2f}" + (f"±{100 * cell.deviation:.2f}" if cell.deviation is not None else "")
    if cell.interval is not None:
        low, high = cell.interval
        yield f"{100 * low:.2f} to {100 * high:.2f}"


def layout_html(layout: Layout) -> str:
    """A table for a notebook: its caption, sections and groups as lines of their own."""
    rows: list[list[str]] = []
    above = ""
    for block in layout.blocks:
        titles = [block.section if block.section != above else "", block.title]
        rows += [[title, *[""] * len(layout.heads)] for title in filter(None, titles)]
        above = block.section
        for line in block.lines:
            cells = [cell.text + cell.mark + cell.deviation for cell in line.cells]
            rows.append([one_line(line.label) + line.marks, *cells])
    return html_table([layout.label_head, *layout.heads], rows, layout.legend, title=layout.caption)
