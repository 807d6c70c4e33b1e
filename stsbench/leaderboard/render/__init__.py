"""Tables as text: markdown, LaTeX, HTML, CSV, JSON; and as pandas frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stsbench.errors import choose, visible
from stsbench.leaderboard.render.data import to_csv, to_json
from stsbench.leaderboard.render.html import to_html
from stsbench.leaderboard.render.latex import to_latex
from stsbench.leaderboard.render.markdown import to_markdown
from stsbench.leaderboard.tables.layout import Show
from stsbench.leaderboard.tables.table import Table
from stsbench.plots import FIGURES

Writer = Callable[[Sequence[Table], Show | None, bool], str]
WRITERS: Mapping[str, Writer] = {
    "markdown": lambda tables, show, exact: to_markdown(tables, show, exact=exact),
    "latex": lambda tables, show, exact: to_latex(tables, show, exact=exact),
    "html": lambda tables, show, exact: to_html(tables, show, exact=exact),
    "csv": lambda tables, show, exact: to_csv(tables, show),
    "json": lambda tables, show, exact: to_json(tables),
}
TERMINAL = "terminal"
"""The format that is no text alone."""


def check_format(name: str) -> str:
    """The same, if it is a format, of text or of a figure; raises UnknownName."""
    choose("format", name, {TERMINAL: None, **WRITERS, **dict.fromkeys(FIGURES)})
    return name


def render(tables: Sequence[Table], fmt: str, *, show: Show | None = None, exact: bool = False) -> str:
    """Tables in one of the formats that are text alone; control characters of names are written out.

    Raises:
        UnknownName: no such format.
    """
    return visible(choose("format", fmt, WRITERS)(tables, show, exact))
