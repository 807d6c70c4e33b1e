"""Tables as one HTML page that needs no other file and no network: sorted and filtered by the reader.

The page, its style and its script stand in the folder ``board`` and are put together here. Without script the page is
plain tables.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources
from string import Template

from stsbench.leaderboard.render.html_table import table_lines
from stsbench.leaderboard.tables.layout import Show, lay_out
from stsbench.leaderboard.tables.table import Table

SCRIPTS = ("tables", "order", "filters", "columns", "comparison", "download", "theme", "address", "start")
"""The parts of the script, each using those before it; functions may use all."""


def to_html(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> str:
    """All tables, each with its legend below.

    Unless ``show`` says otherwise, measured and published numbers are both there: the reader picks.
    """
    title = tables[0].caption if len(tables) == 1 else "Leaderboard"
    return html_page(title, table_body(tables, show, exact=exact))


def table_body(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> Iterator[str]:
    """The lines of all tables within a page."""
    for number, table in enumerate(tables, start=1):
        yield from table_lines(table, lay_out(table, show or "both", exact=exact, ends=False), f"t{number}")


def html_page(title: str, body: Iterable[str], *, images: bool = False) -> str:
    """A page of some lines, with the style and the script of the board; ``images`` may stand in it as data."""
    script = page_script()
    return Template(_asset("page.html")).substitute(
        title=escape(title),
        policy=_policy(script) + ("; img-src data:" if images else ""),
        style=_asset("page.css"),
        body="\n".join(body),
        script=script,
    )


def page_script() -> str:
    """The script of the page: its parts in one function, so that nothing of it is seen outside."""
    parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


def _policy(script: str) -> str:
    """What browsers may do with the page: nothing is loaded, and no script runs but ours."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _asset(name: str) -> str:
    return (resources.files(__package__) / "board" / name).read_text(encoding="utf-8")
