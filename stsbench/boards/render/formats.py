"""Tables as text: markdown, LaTeX, HTML, CSV and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stsbench.boards.render.html import to_html
from stsbench.boards.render.text import LATEX, MARKDOWN, to_csv, to_json, to_latex, to_markdown
from stsbench.boards.tables.layout import Layout, build_layout
from stsbench.boards.tables.table import Show, Table
from stsbench.core.errors import StsbenchError, look_up
from stsbench.core.wording import escape_controls
from stsbench.plots.labels import FIGURES

Writer = Callable[[Sequence[Table], Show | None, bool], str]
"""Writes tables; called with the numbers to show, and with whether to show exact averages."""


def _build_layouts(
    tables: Sequence[Table], show: Show | None, exact: bool, *, with_intervals: bool = True
) -> list[Layout]:
    """Return a layout for each table; the arguments are those of :func:`build_layout`."""
    return [
        build_layout(table, show, exact=exact, with_intervals=with_intervals) for table in tables
    ]


WRITERS: Mapping[str, Writer] = {
    "markdown": lambda tables, show, exact: to_markdown(_build_layouts(tables, show, exact)),
    "latex": lambda tables, show, exact: to_latex(_build_layouts(tables, show, exact)),
    "html": lambda tables, show, exact: to_html(tables, show, exact=exact),
    "csv": lambda tables, show, exact: to_csv(tables, show),
    "json": lambda tables, show, exact: to_json(tables),
}
ROWS: Mapping[str, Writer] = {
    "markdown": lambda tables, show, exact: MARKDOWN.rows(
        _build_layouts(tables, show, exact, with_intervals=False)
    ),
    "latex": lambda tables, show, exact: LATEX.rows(
        _build_layouts(tables, show, exact, with_intervals=False)
    ),
    "csv": lambda tables, show, exact: to_csv(tables, show, headed=False),
}
"""The formats in which rows can stand alone too, without captions, heads and legends."""
TERMINAL = "terminal"
"""The format that is printed, not written as text."""


def check_format(name: str) -> str:
    """Return the name of a format, of text or of a figure.

    Raises:
        UnknownName: There is no such format.
    """
    look_up("format", name, {TERMINAL: None, **WRITERS, **dict.fromkeys(FIGURES)})
    return name


def render(
    tables: Sequence[Table],
    fmt: str,
    *,
    show: Show | None = None,
    exact: bool = False,
    rows_only: bool = False,
) -> str:
    """Return tables in a format of text, with control characters of names written out.

    Args:
        tables: The tables.
        fmt: A key of :data:`WRITERS`.
        show: The numbers to show, see :func:`stsbench.boards.tables.layout.build_layout`.
        exact: Show exact averages instead of those rounded as in the paper.
        rows_only: Omit captions, heads and legends.

    Raises:
        UnknownName: There is no such format.
        StsbenchError: Rows cannot stand alone in this format.
    """
    writer = look_up("format", fmt, WRITERS)
    if rows_only:
        if fmt not in ROWS:
            *first_formats, last_format = ROWS
            raise StsbenchError(
                f"rows do not stand alone as {fmt}; "
                f"choose {', '.join(first_formats)} or {last_format}"
            )
        writer = ROWS[fmt]
    return escape_controls(writer(tables, show, exact))
