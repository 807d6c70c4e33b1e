"""Tables as text: markdown, LaTeX, HTML, CSV and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stsbench.boards.render.html import to_html
from stsbench.boards.render.text import LATEX, MARKDOWN, to_csv, to_json, to_latex, to_markdown
from stsbench.boards.tables.layout import Intervals, Layout, build_layout, check_intervals
from stsbench.boards.tables.table import Show, Table
from stsbench.core.errors import StsbenchError, look_up
from stsbench.core.wording import escape_controls


class RenderOptions(NamedTuple):
    """A user's choices of what is shown of tables."""

    show: Show | None = None
    """The numbers to show, see :func:`stsbench.boards.tables.layout.build_layout`."""
    exact: bool = False
    """Show exact averages instead of those rounded as in the paper."""
    intervals: Intervals = "average"
    """The intervals to show as text."""
    max_lines: int | None = None
    """The maximum number of lines of a float of LaTeX; None leaves each table whole."""

    def layouts(self, tables: Sequence[Table]) -> list[Layout]:
        """Return a layout for each table."""
        return [
            build_layout(table, self.show, exact=self.exact, intervals=self.intervals)
            for table in tables
        ]


Writer = Callable[[Sequence[Table], RenderOptions], str]
WRITERS: Mapping[str, Writer] = {
    "markdown": lambda tables, options: to_markdown(options.layouts(tables)),
    "latex": lambda tables, options: to_latex(options.layouts(tables), options.max_lines),
    "html": lambda tables, options: to_html(tables, options.show, exact=options.exact),
    "csv": lambda tables, options: to_csv(tables, options.show),
    "json": lambda tables, options: to_json(tables),
}
ROWS: Mapping[str, Writer] = {
    "markdown": lambda tables, options: MARKDOWN.rows(options.layouts(tables)),
    "latex": lambda tables, options: LATEX.rows(options.layouts(tables)),
    "csv": lambda tables, options: to_csv(tables, options.show, headed=False),
}
"""The formats in which rows can stand alone too, without captions, heads and legends."""
TERMINAL = "terminal"
"""The format that is printed, not written as text."""


def render(
    tables: Sequence[Table],
    fmt: str,
    *,
    show: Show | None = None,
    exact: bool = False,
    rows_only: bool = False,
    intervals: str = "average",
    max_lines: int | None = None,
) -> str:
    """Return tables as text, with control characters in names escaped.

    Args:
        tables: The tables.
        fmt: The format, a key of :data:`WRITERS`: ``markdown``, ``latex``, ``csv`` ...
        show: ``published``, ``measured``, ``both`` or ``merged`` numbers, or ``difference``, the
            measured minus the published ones. None is ``both``, but ``merged`` for a board of
            ours in Markdown and LaTeX. JSON has all numbers, whatever the options are.
        exact: Show exact averages instead of those rounded as in the paper.
        rows_only: Omit captions, heads and legends. Only formats in :data:`ROWS` can do so.
        intervals: The intervals to show as text in Markdown and LaTeX: of the ``average``, of
            ``all`` numbers or ``none``.
        max_lines: The maximum number of lines of a table in LaTeX; a longer one is divided. None
            leaves each table whole.

    Raises:
        UnknownName: There is no such format, or no such choice of intervals.
        StsbenchError: Rows cannot stand alone in this format.
    """
    writer = look_up("format", fmt, WRITERS)
    options = RenderOptions(show, exact, check_intervals(intervals), max_lines)
    if rows_only:
        if fmt not in ROWS:
            *first_formats, last_format = ROWS
            raise StsbenchError(
                f"rows do not stand alone as {fmt}; "
                f"choose {', '.join(first_formats)} or {last_format}"
            )
        writer = ROWS[fmt]
        # A column of intervals would not be in the user's own table.
        options = options._replace(intervals="none")
    return escape_controls(writer(tables, options))
