"""Tables as text: markdown, LaTeX, HTML, CSV, JSON; and as pandas frames."""

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


def _layouts(
    tables: Sequence[Table], show: Show | None, exact: bool, *, ends: bool = True
) -> list[Layout]:
    return [build_layout(one, show, exact=exact, with_intervals=ends) for one in tables]


WRITERS: Mapping[str, Writer] = {
    "markdown": lambda *asked: to_markdown(_layouts(*asked)),
    "latex": lambda *asked: to_latex(_layouts(*asked)),
    "html": lambda tables, show, exact: to_html(tables, show, exact=exact),
    "csv": lambda tables, show, exact: to_csv(tables, show),
    "json": lambda tables, show, exact: to_json(tables),
}
ROWS: Mapping[str, Writer] = {
    "markdown": lambda *asked: MARKDOWN.rows(_layouts(*asked, ends=False)),
    "latex": lambda *asked: LATEX.rows(_layouts(*asked, ends=False)),
    "csv": lambda tables, show, exact: to_csv(tables, show, headed=False),
}
"""The formats in which rows stand alone too, without captions, heads and legends."""
TERMINAL = "terminal"
"""The format that is no text alone."""


def check_format(name: str) -> str:
    """The same, if it is a format, of text or of a figure; raises UnknownName."""
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
    """Tables in one of the formats that are text alone; control characters of names are written out.

    ``show`` and ``exact`` are as in :func:`stsbench.boards.tables.table.build_layout`; ``rows_only``: without captions, heads and legends.

    Raises:
        UnknownName: no such format.
        StsbenchError: rows do not stand alone in this format.
    """
    written = look_up("format", fmt, WRITERS)
    if rows_only:
        if fmt not in ROWS:
            *most, last = ROWS
            raise StsbenchError(
                f"rows do not stand alone as {fmt}; choose {', '.join(most)} or {last}"
            )
        written = ROWS[fmt]
    return escape_controls(written(tables, show, exact))
