"""Tables as one HTML page that needs no other file and no network: sorted and filtered by the reader.

The page, its style and its script stand in the folder ``board`` and are put together here. Without script the page is
plain tables.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
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
    script = page_script()
    layouts = [lay_out(table, show or "both", exact=exact, ends=False) for table in tables]
    lines = (
        line
        for number, (table, layout) in enumerate(zip(tables, layouts, strict=True), start=1)
        for line in table_lines(table, layout, f"t{number}")
    )
    return Template(_asset("page.html")).substitute(
        title=escape(tables[0].caption if len(tables) == 1 else "Leaderboard"),
        policy=_policy(script),
        style=_asset("page.css"),
        body="\n".join(lines),
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
