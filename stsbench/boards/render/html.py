"""Tables as one HTML page without other files or network, which its reader sorts and filters.

The page, its tables, style and script are files of the folder ``board``, which jinja2 puts
together. Without script the page has plain tables.
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

from stsbench.boards.published.encoder_facts import format_parameters
from stsbench.boards.published.rows import read_sources
from stsbench.boards.tables.filters import read_languages
from stsbench.boards.tables.layout import NO_NUMBER, Layout, build_layout, group_by_section
from stsbench.boards.tables.table import (
    STANDING_KINDS,
    EncoderTraits,
    Row,
    Show,
    Table,
    TableColumn,
)
from stsbench.core.grouping import group_by
from stsbench.core.wording import as_one_line, escape_controls

if TYPE_CHECKING:
    import jinja2

SCRIPTS = (
    "tables",
    "order",
    "filters",
    "best",
    "columns",
    "comparison",
    "download",
    "theme",
    "address",
    "start",
)
"""The parts of the script, each using those before it; functions may use all."""
MIN_SPAN = 10.0
"""The minimum span of a column's scale in points, so that a single narrow interval looks narrow."""
AVERAGE_KINDS = ("average", "exact")
"""The kinds of column that stay in sight if a table is scrolled."""


def to_html(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> str:
    """Return an HTML page of tables, each with its legend below.

    Args:
        tables: The tables.
        show: The kinds of numbers on the page, for example ``measured``. None for measured and
            published ones and their differences, of which the page's reader chooses.
        exact: Show exact averages instead of those rounded as in the paper.
    """
    title = tables[0].caption if len(tables) == 1 else "Leaderboard"
    return render_page(title, render_tables(tables, show, exact=exact))


def render_tables(
    tables: Sequence[Table], show: Show | None = None, *, exact: bool = False
) -> Iterator[str]:
    """Yield the HTML of each table, without the page around it.

    Args:
        tables: The tables.
        show: The kinds of numbers in them, for example ``measured``; None for measured and
            published ones and their differences.
        exact: Show exact averages instead of those rounded as in the paper.
    """
    for number, table in enumerate(tables, start=1):
        # The table as it is printed: lines of texts, heads and legend.
        # The page draws the intervals as bars, so they are no texts in it.
        layout = build_layout(table, show=show or "both", exact=exact, intervals="none")
        yield _render_table(table, layout, element_id=f"t{number}")


def render_page(title: str, body: Iterable[str], *, images: bool = False) -> str:
    """Return an HTML page with the style and the script that all our pages of tables have.

    Args:
        title: The title of the page.
        body: The lines of HTML in it.
        images: Allow images in it that are part of the page (a report has some).
    """
    # SCRIPTS are the names of files. They are put into one function, so that no name in them is
    # seen outside.
    script_parts = "\n".join(_read_asset(f"{name}.js") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script_parts}}})();\n'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # By this policy browsers run no other script than the one of this hash, and load nothing.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return fill_template(
        "page.html",
        title=title,
        policy=policy + ("; img-src data:" if images else ""),
        style=_read_asset("page.css"),
        body="\n".join(body),
        script=script,
    )


def render_notebook_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    notes: Iterable[str],
    *,
    title: str = "",
) -> str:
    """Return the HTML of a table of texts for a notebook.

    Args:
        heads: The heads of the columns; empty for notes without a table.
        rows: The texts of each row. The first one is aligned left, the others right, as numbers.
            What follows a line break within a text is in small print.
        notes: Lines below the table, in small print.
        title: A line above the table; empty for none.
    """
    html = fill_template("notebook.html", heads=heads, rows=rows, notes=notes, title=title)
    return html.removesuffix("\n")


def render_notebook_layout(layout: Layout) -> str:
    """Return the HTML of a table for a notebook.

    Titles of sections, and of blocks of lines in them, are rows of their own above these.

    Args:
        layout: The table as it is printed: its heads, blocks of lines, legend and caption.
    """
    rows: list[list[str]] = []
    # group_by_section yields an empty section if the block above is of the same one.
    for new_section, block in group_by_section(layout.blocks):
        for title in (new_section, block.title):
            if title:
                rows.append([title, *[""] * len(layout.heads)])
        for line in block.lines:
            cells = [cell.text + cell.symbol + cell.deviation for cell in line.cells]
            rows.append([as_one_line(line.label) + line.symbols, *cells])
    return render_notebook_table(
        [layout.label_head, *layout.heads], rows, layout.legend, title=layout.caption
    )


@cache
def _template_environment() -> jinja2.Environment:
    """Return the settings with which the library Jinja fills templates of HTML pages.

    Templates are files of the package. In a template ``{{ text | plain }}`` passes a text through
    the function of the filter's name; the four filters below are ours.
    """
    import jinja2
    import markupsafe

    def break_before_parameters(text: str) -> markupsafe.Markup:
        # A long name may be broken before the "+" of each parameter.
        return markupsafe.Markup(escape(text).replace("+", "<wbr>+"))

    def escape_plain(text: str) -> markupsafe.Markup:
        # A dollar sign would begin a formula in a notebook.
        plain_text = escape(escape_controls(as_one_line(text)))
        return markupsafe.Markup(plain_text.replace("$", "&#36;"))

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read_asset),
        autoescape=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["in_millions"] = format_parameters
    environment.filters["language_names"] = _name_languages
    environment.filters["breaking"] = break_before_parameters
    environment.filters["plain"] = escape_plain
    return environment


def _name_languages(traits: EncoderTraits) -> str:
    """Return the names of an encoder's languages, in a row, for the search of the page."""
    languages = read_languages()
    return " ".join(
        languages[code].name if code in languages else code for code in traits.languages
    )


def fill_template(template: str, **variables: Any) -> str:  # noqa: ANN401 - those of the template
    """Return a template of the folder ``board`` with its variables filled in."""
    return _template_environment().get_template(template).render(**variables)


def _read_asset(name: str) -> str:
    """Return the text of a file of the folder ``board``."""
    return (resources.files(__package__) / "board" / name).read_text(encoding="utf-8")


def _render_table(table: Table, layout: Layout, element_id: str) -> str:
    """Return the HTML of one table, by filling the template ``table.html``.

    Args:
        table: The table.
        layout: The table as it is printed: lines of texts, heads and legend.
        element_id: The id of the table in the page.
    """
    lines = [line for block in layout.blocks for line in block.lines]
    number_kinds = {line.number_kind for line in lines}
    # Symbol -> number of the note that explains it, to which its cells link. A note on a symbol
    # begins with the symbol; the first one counts.
    note_numbers: dict[str, int] = {}
    for number, note in enumerate(layout.legend, start=1):
        note_numbers.setdefault(note[0], number)
    scales = _find_scales(layout)
    html = fill_template(
        "table.html",
        id=element_id,
        table=table,
        layout=layout,
        blocks=list(group_by_section(layout.blocks)),
        note_numbers=note_numbers,
        papers=read_sources().papers,
        distinctions=distinguish_rows(table),
        row_id=id,
        count_missing_decimals=_count_missing_decimals,
        average_kinds=AVERAGE_KINDS,
        standing_kinds=STANDING_KINDS,
        # Whether any number is marked as the best or second best of its group; and whether measured
        # and published ones are ranked apart.
        has_ranks=any(cell.rank for line in lines for cell in line.cells),
        ranks_by_kind=layout.show == "both" and {"measured", "published"} <= number_kinds,
        scales=scales,
        has_outliers=_has_outliers(layout, scales),
    )
    return html.removesuffix("\n")


def _count_missing_decimals(text: str, column: TableColumn) -> int:
    """Return how many characters a number lacks to be aligned at its decimal point."""
    if text == NO_NUMBER or column.kind in (*STANDING_KINDS, "fact"):
        return 0
    _, point, digits = text.partition(".")
    n_missing = column.decimals - len(digits) + (0 if point else 1)
    return max(0, n_missing)


Scale = tuple[float, float]
"""The values at the left and the right end of the bars of a column, in points."""


def _find_scales(layout: Layout) -> dict[str, Scale]:
    """Return the limits between which the intervals of each column are drawn as small bars.

    The limits of a column enclose the 95% intervals of all its scores but outliers. A score is an
    outlier if it lies outside the quartiles of the column by more than one and a half times the
    distance of the quartiles (Tukey 1977, section 2C), and by more than half of ``MIN_SPAN``, the
    least distance that the limits may have.

    Args:
        layout: The printed table.

    Returns:
        Key of a column -> lower and upper limit, in points. Columns without intervals are missing.
    """
    scales = {}
    for column in layout.columns:
        if column.kind not in ("task", *AVERAGE_KINDS):
            continue
        numbers = layout.numbers_with_interval(column.key)
        if not numbers:
            continue
        values = [number.value for number in numbers]
        first_quartile = third_quartile = values[0]
        if len(values) > 1:
            first_quartile, _, third_quartile = quantiles(values, n=4, method="inclusive")
        reach = max(1.5 * (third_quartile - first_quartile), MIN_SPAN / 2)
        interval_ends: list[float] = []
        for number in numbers:
            # At least one value lies between these bounds.
            if first_quartile - reach <= number.value <= third_quartile + reach:
                interval_ends += number.interval or ()
        low, high = min(interval_ends), max(interval_ends)
        # A narrow scale is widened to the minimum span, by the same on both sides.
        margin = max(0.0, MIN_SPAN - (high - low)) / 2
        scales[column.key] = low - margin, high + margin
    return scales


def _has_outliers(layout: Layout, scales: Mapping[str, Scale]) -> bool:
    """Return whether any score with an interval lies outside the limits of its column's bars.

    Args:
        layout: The printed table.
        scales: Key of a column -> the lower and upper limit between which intervals are drawn.
    """
    return any(
        not low <= number.value <= high
        for key, (low, high) in scales.items()
        for number in layout.numbers_with_interval(key)
    )


class RowDistinction(NamedTuple):
    """What distinguishes a row from others of the same label."""

    text: str
    """Empty for a row that differs from the others by having no such text."""
    is_group_title: bool
    """Whether the text is the title of the row's group, which is printed above it already."""


def distinguish_rows(table: Table) -> Mapping[int, RowDistinction]:
    """Find texts that distinguish rows of a table with the same label from each other.

    Returns:
        Python's ``id(row)`` -> text, for example the row's paper. Rows whose label no other row
        has are missing.
    """
    # Python's id of a row -> texts that may distinguish it, of the same kinds for each row.
    texts_by_row_id: dict[int, list[str]] = {}
    for group in table.groups:
        title = " ".join(filter(None, (group.section, group.title)))
        for row in group.rows:
            texts_by_row_id[id(row)] = [title, *_describe_row(row)]
    distinctions: dict[int, RowDistinction] = {}
    for rows in group_by(table.rows(), lambda row: row.label).values():
        if len(rows) > 1:
            row_distinctions = _distinguish([texts_by_row_id[id(row)] for row in rows])
            for row, distinction in zip(rows, row_distinctions, strict=True):
                distinctions[id(row)] = distinction
    return distinctions


def _describe_row(row: Row) -> Iterator[str]:
    """Yield texts that may distinguish a row from another row with the same label.

    They are always seven, of the same kinds: backbone, method, supervision, year, paper with table,
    label in the paper, and name of the encoder. A text that the row does not have is empty.
    """
    # The facts of the row's encoder.
    traits = row.traits
    # The key is "paper/table/label", or empty for a row without published numbers.
    key_parts = row.published_key.split("/", 2)
    paper_id, table_id, printed_label = [*key_parts, "", "", ""][:3]
    paper = read_sources().papers.get(paper_id)
    yield traits.backbone
    yield traits.method
    yield f"supervision {traits.supervision}" if traits.supervision else ""
    yield str(traits.year or "")
    yield f"{paper.name} {paper.year}, {table_id.replace('-', ' ')}" if paper else ""
    yield printed_label
    yield row.encoder


def _distinguish(texts_by_row: Sequence[Sequence[str]]) -> list[RowDistinction]:
    """Choose a text for each row that no other row has, among texts of several kinds.

    The first of these that distinguishes all rows is chosen:

    1. one kind of text that differs in every row;
    2. all kinds that differ in some rows, joined with commas;
    3. the same with a number behind it.

    Args:
        texts_by_row: For each row, a text of each kind; the first kind is the title of the row's
            group.

    Returns:
        The text of each row, empty for one at most, and whether it is the title of its group.
    """
    n_rows = len(texts_by_row)
    # For each kind, the texts of all rows.
    texts_by_kind = list(zip(*texts_by_row, strict=True))
    titles = texts_by_kind[0]
    # The kinds of text that are not the same in all rows.
    differing = [texts for texts in texts_by_kind if len(set(texts)) > 1]
    for texts in differing:
        if len(set(texts)) == n_rows:
            return [RowDistinction(text, is_group_title=texts == titles) for text in texts]
    joined_texts = []
    for row in range(n_rows):
        row_texts = [texts[row] for texts in differing if texts[row]]
        joined_texts.append(", ".join(dict.fromkeys(row_texts)))
    if len(set(joined_texts)) < n_rows:
        joined_texts = [
            f"{text}, no. {number}" if text else f"no. {number}"
            for number, text in enumerate(joined_texts, start=1)
        ]
    return [RowDistinction(text, is_group_title=False) for text in joined_texts]
