"""Tables for notebooks: plain HTML that takes its colours from the page, light or dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from stsbench.errors import one_line, visible
from stsbench.interface.grid import GridCell, GridColumn, GridRow

RIGHT, LEFT = "text-align: right; white-space: nowrap", "text-align: left"
SMALL = "font-size: 85%; opacity: 0.75"


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = (), *, left: int = 1) -> str:
    """A table of texts, with notes below it; a line break within a cell stands before its small print.

    Args:
        heads: of the columns.
        rows: a text a column.
        notes: below the table.
        left: so many columns stand to the left, the others are numbers.
    """
    lines = ["<table>", "<thead>", _row("th", heads, left), "</thead>", "<tbody>"]
    lines += [_row("td", row, left) for row in rows]
    lines += ["</tbody>", "</table>"]
    lines += [f'<div style="{SMALL}">{_text(note)}</div>' for note in notes]
    return "\n".join(lines)


def _row(tag: str, cells: Sequence[str], left: int) -> str:
    styles = [LEFT if at < left else RIGHT for at in range(len(cells))]
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
        yield f"{100 * low:.2f}–{100 * high:.2f}"
