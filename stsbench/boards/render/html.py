"""Tables as one HTML page that needs no other file and no network: sorted and filtered by the reader.

The page, its tables, style and script stand in the folder ``board`` and are put together by jinja2. Without script the page is
plain tables.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
from statistics import quantiles
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.boards.published.rows import sources
from stsbench.boards.tables.layout import NO_NUMBER, Layout, build_layout, group_by_section
from stsbench.boards.tables.table import STANDING_KINDS, Row, Show, Table, TableColumn
from stsbench.core.wording import escape_controls, join_lines

if TYPE_CHECKING:
    import jinja2

SCRIPTS = (
    "tables",
    "order",
    "filters",
    "columns",
    "comparison",
    "download",
    "theme",
    "address",
    "start",
)
"""The parts of the script, each using those before it; functions may use all."""
MIN_SPAN = 10.0
"""Points that a column's scale spans at least: a lone narrow interval looks narrow."""
MEANS = ("average", "exact")
"""The kinds of column that stay in sight when a table is scrolled."""


def to_html(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> str:
    """All tables, each with its legend below.

    Unless ``show`` says otherwise, measured and published numbers are both there: the reader picks.
    """
    title = tables[0].caption if len(tables) == 1 else "Leaderboard"
    return html_page(title, table_body(tables, show, exact=exact))


def table_body(
    tables: Sequence[Table], show: Show | None = None, *, exact: bool = False
) -> Iterator[str]:
    """The tables within a page."""
    for place, table in enumerate(tables, start=1):
        yield _table(
            table,
            build_layout(table, show or "both", exact=exact, with_intervals=False),
            f"t{place}",
        )


def html_page(title: str, body: Iterable[str], *, images: bool = False) -> str:
    """A page of some lines of HTML, with the style and the script of the board; ``images`` may stand in it as data."""
    # The parts of the script in one function, so that nothing of it is seen outside. Browsers run no other, and load nothing.
    parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}}})();\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return fill_template(
        "page.html",
        title=title,
        policy=policy + ("; img-src data:" if images else ""),
        style=_asset("page.css"),
        body="\n".join(body),
        script=script,
    )


def notebook_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    notes: Iterable[str] = (),
    *,
    title: str = "",
) -> str:
    """A table of texts for a notebook: the first column stands to the left, the others are numbers.

    A line break within a cell stands before its small print, as which ``notes`` are shown below. Without heads there is no table.
    """
    return fill_template(
        "notebook.html", heads=heads, rows=rows, notes=notes, title=title
    ).removesuffix("\n")


def notebook_layout(layout: Layout) -> str:
    """A table for a notebook: its caption, sections and groups as lines of their own."""
    rows: list[list[str]] = []
    for section, block in group_by_section(layout.blocks):
        rows += [[title, *[""] * len(layout.heads)] for title in (section, block.title) if title]
        for line in block.lines:
            cells = [cell.text + cell.symbol + cell.deviation for cell in line.cells]
            rows.append([join_lines(line.label) + line.symbols, *cells])
    return notebook_table(
        [layout.label_head, *layout.heads], rows, layout.legend, title=layout.caption
    )


@cache
def _templates() -> jinja2.Environment:
    import jinja2
    import markupsafe

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    # A long name breaks before a parameter that it says.
    made.filters["in_millions"] = format_parameters
    made.filters["breaking"] = lambda text: markupsafe.Markup(escape(text).replace("+", "<wbr>+"))
    # A dollar sign would begin a formula in a notebook.
    made.filters["plain"] = lambda text: markupsafe.Markup(
        escape(escape_controls(join_lines(text))).replace("$", "&#36;")
    )
    return made


def fill_template(template: str, **facts: Any) -> str:  # noqa: ANN401 - what the template asks for
    """A template of the folder ``board`` with these facts."""
    return _templates().get_template(template).render(**facts)


def _asset(name: str) -> str:
    return (resources.files(__package__) / "board" / name).read_text(encoding="utf-8")


def _table(table: Table, layout: Layout, identity: str) -> str:
    lines = [line for block in layout.blocks for line in block.lines]
    scales = _scales(layout)
    beyond = (
        not a <= one.value <= b
        for key, (a, b) in scales.items()
        for one in layout.numbers_with_interval(key)
    )
    return fill_template(
        "table.html",
        id=identity,
        table=table,
        layout=layout,
        blocks=list(group_by_section(layout.blocks)),
        notes={text[0]: place for place, text in reversed([*enumerate(layout.legend, start=1)])},
        papers=sources().papers,
        apart=distinguish_rows(table),
        place_of=id,
        lacks_decimals=_lacks_decimals,
        means=MEANS,
        standings=STANDING_KINDS,
        ranked=any(cell.rank for line in lines for cell in line.cells),
        ranked_apart=layout.show == "both"
        and {"measured", "published"} <= {line.number_kind for line in lines},
        scales=scales,
        outliers=any(beyond),
    ).removesuffix("\n")


def format_parameters(count: int) -> str:
    """A number of parameters in millions, to three digits: 109M, 22.7M."""
    return f"{count / 1e6:.0f}M" if count >= 99.95e6 else f"{count / 1e6:.3g}M"


def _lacks_decimals(text: str, column: TableColumn) -> int:
    """How many decimals a number lacks, so that points stand under points."""
    _, point, digits = text.partition(".")
    lacks = column.decimals - len(digits) + (not point)
    return lacks if lacks > 0 and text != NO_NUMBER and column.kind not in STANDING_KINDS else 0


def _scales(layout: Layout) -> dict[str, tuple[float, float]]:
    """The scale of each column that has intervals: the two ends of what its bars span, in points.

    From the lowest to the highest end of an interval, without the scores that lie far outside the quartiles: one and a half
    times the distance of the quartiles (Tukey 1977, section 2C), and half the least span at least.
    """
    found = {}
    for column in layout.columns:
        numbers = (
            layout.numbers_with_interval(column.key) if column.kind in ("task", *MEANS) else []
        )
        if numbers:
            values = [one.value for one in numbers]
            first, _, third = (
                quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
            )
            reach = max(1.5 * (third - first), MIN_SPAN / 2)
            ends = [
                end
                for one in numbers
                if first - reach <= one.value <= third + reach
                for end in one.interval or ()
            ]
            spare = max(0.0, MIN_SPAN - (max(ends) - min(ends))) / 2
            found[column.key] = min(ends) - spare, max(ends) + spare
    return found


class RowDistinction(NamedTuple):
    """What tells a row from others of its label; ``by_group``: the title of its group says it already."""

    text: str
    by_group: bool


def distinguish_rows(table: Table) -> Mapping[int, RowDistinction]:
    """For each row that shares its label with others what tells it from them, by the row's ``id``."""
    alike: dict[str, list[tuple[Row, list[str]]]] = {}
    for group in table.groups:
        title = " ".join(filter(None, (group.section, group.title)))
        for row in group.rows:
            alike.setdefault(row.label, []).append((row, [title, *_facts(row)]))
    found: dict[int, RowDistinction] = {}
    for rows in alike.values():
        if len(rows) > 1:
            tellings = _telling([facts for _, facts in rows])
            found |= {id(row): apart for (row, _), apart in zip(rows, tellings, strict=True)}
    return found


def _facts(row: Row) -> Iterator[str]:
    """What may tell a row from another, first what says most to a reader."""
    traits, (paper, number, printed) = (
        row.traits,
        [*row.published_key.split("/", 2), "", "", ""][:3],
    )
    source = sources().papers.get(paper)
    yield from (
        traits.backbone,
        traits.method,
        f"supervision {traits.supervision}" if traits.supervision else "",
    )
    yield str(traits.year or "")
    yield f"{source.name} {source.year}, {number.replace('-', ' ')}" if source else ""
    yield from (printed, row.encoder)


def _telling(rows: Sequence[Sequence[str]]) -> list[RowDistinction]:
    """The first fact that is another in every row, or as many facts as it takes; numbers where no facts do."""
    differing = [facts for facts in zip(*rows, strict=True) if len(set(facts)) > 1]
    for facts in differing:
        if len(set(facts)) == len(rows) and all(facts):
            return [RowDistinction(text, facts == tuple(row[0] for row in rows)) for text in facts]
    texts = [
        ", ".join(dict.fromkeys(filter(None, (row[at] for row in differing))))
        for at in range(len(rows))
    ]
    if len(set(texts)) < len(rows) or not all(texts):
        texts = [
            ", ".join(filter(None, (text, f"no. {place}"))) for place, text in enumerate(texts, 1)
        ]
    return [RowDistinction(text, by_group=False) for text in texts]
