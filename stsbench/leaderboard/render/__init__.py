"""Tables as text: markdown, LaTeX, HTML, CSV, JSON; and as pandas frames."""

from __future__ import annotations

from collections.abc import Sequence

from stsbench.errors import UnknownName
from stsbench.leaderboard.layout import Show
from stsbench.leaderboard.render.data import to_csv, to_json
from stsbench.leaderboard.render.html import to_html
from stsbench.leaderboard.render.latex import to_latex
from stsbench.leaderboard.render.markdown import to_markdown
from stsbench.leaderboard.table import Table

FORMATS = ("terminal", "markdown", "latex", "html", "csv", "json")


def check_format(name: str) -> str:
    """The same, if it is a format; raises UnknownName."""
    if name not in FORMATS:
        raise UnknownName("format", name, FORMATS, hint=f"one of {', '.join(FORMATS)}")
    return name


def render(tables: Sequence[Table], fmt: str, *, show: Show | None = None, exact: bool = False) -> str:
    """Tables in one of the formats that are text alone."""
    if fmt == "markdown":
        return to_markdown(tables, show, exact=exact)
    if fmt == "latex":
        return to_latex(tables, show, exact=exact)
    if fmt == "html":
        return to_html(tables, show, exact=exact)
    if fmt == "csv":
        return to_csv(tables, show)
    return to_json(tables)
