"""Tables as markdown, LaTeX, CSV, JSON and pandas frames.

The best number is bold and the second best underlined. LaTeX needs booktabs and adjustbox, which
shrinks a table that is wider than the text, and a float that is higher than a page.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.boards.tables.layout import Layout, LayoutBlock, group_by_section, shorten_labels
from stsbench.boards.tables.table import (
    KINDS_BY_SHOW,
    LETTERS,
    RANKS,
    STANDINGS_METHOD,
    Group,
    NumberKind,
    Row,
    Show,
    Table,
    TableCell,
    TableColumn,
    TableNumber,
)
from stsbench.core.names import MAX_NAME_LENGTH
from stsbench.core.wording import as_one_line, escape_controls

if TYPE_CHECKING:
    import pandas as pd

LONG_WORD = re.compile(r"(\S{30,})")
"""A word that a line of a note may end within."""
HTML_ENTITIES = {"<": "&lt;", "&": "&amp;", "@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}
MARKDOWN_SPECIAL = re.compile(
    r"[\\`*\[\]|~$<@]|://|\bwww\."
    # An underscore within a word is an ordinary character; so is an ampersand, unless what
    # follows ends with a semicolon.
    r"|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)"
)
LATEX_ESCAPES = dict(
    line.split()
    # A bracket at the start of a line would be taken for an option of the line break above.
    for line in r"""
    \ \textbackslash{}
    & \&
    % \%
    $ \$
    # \#
    _ \_
    { \{
    } \}
    [ {[}
    ] {]}
    ~ \textasciitilde{}
    ^ \textasciicircum{}
    | \textbar{}
    < \textless{}
    > \textgreater{}
    † \textsuperscript{\dag}
    ‡ \textsuperscript{\ddag}
    § \textsuperscript{\S}
    ‖ \textsuperscript{$\|$}
    ¶ \textsuperscript{\P}
    * \textsuperscript{*}
    ± $\pm$
    − $-$
    – --
    Δ $\Delta$
    ≈ \textsuperscript{$\approx$}
    … \ldots{}
    ° \textsuperscript{$\circ$}
    ↑ \textsuperscript{$\uparrow$}
    ↓ \textsuperscript{$\downarrow$}
    ` \textasciigrave{}
    " \char34{}
    """.strip().splitlines()
)
_LATEX_CHARACTER = re.compile(r"([-',])(?=\1)|.")
"""One character; the group is the first of two that LaTeX would set as another one."""


class MarkupFormat(NamedTuple):
    """How a format writes cells, rows, and titles across the columns."""

    escape: Callable[[str], str]
    """Escapes a text."""
    number: Callable[[str], str]
    """Escapes a number."""
    row: Callable[[Sequence[str]], str]
    """Joins the cells of a row."""
    section: Callable[[str, int], str]
    """Writes the title of a section across the label and a number of columns."""
    title: Callable[[str, int], str]
    """Writes the title of a group across the label and a number of columns."""
    indent: str
    """Stands before the label of a line that continues the row above."""
    best: str
    """The markup of the best number, with ``{}`` for the number."""
    second: str
    """The markup of the second best number."""

    def lines(self, block: LayoutBlock) -> Iterator[str]:
        """Yield the lines of one block of a table in this format, such as Markdown.

        ``self.escape`` and ``self.number`` are functions that escape texts and numbers, and
        ``self.row`` joins the cells of a line. ``self.best`` and ``self.second`` mark the best and
        the second best number of a column, and have ``{}`` in its place. ``self.indent`` is put
        before the label of a line that shows other numbers of the row above it. The symbols of a
        line or cell, such as †, refer to notes; ``deviation`` is a text such as ``±0.31``.
        """
        # By the rank of a cell: 1 is the best, 2 the second best, and 0 all others.
        markup_by_rank = ("{}", self.best, self.second)
        for line in block.lines:
            indent = self.indent if line.continues_row else ""
            cells = [indent + self.escape(line.label + line.symbols)]
            for cell in line.cells:
                number = self.number(cell.text + cell.deviation)
                marked_number = markup_by_rank[cell.rank].replace("{}", number)
                cells.append(marked_number + self.escape(cell.symbol))
            yield self.row(cells)

    def group(self, section: str, block: LayoutBlock, n_columns: int) -> Iterator[str]:
        """Yield the lines of a block, below the title of its section and its own if not empty."""
        if section:
            yield self.section(self.escape(section), n_columns)
        if block.title:
            yield self.title(self.escape(block.title), n_columns)
        yield from self.lines(block)

    def rows(self, layouts: Sequence[Layout]) -> str:
        """Return the rows alone, for a user's own table."""
        blocks = [block for layout in layouts for block in layout.blocks]
        return "".join(f"{line}\n" for block in blocks for line in self.lines(block))


def escape_markdown(text: str) -> str:
    """Return a text in one line, with escapes so that Markdown shows it as it is.

    Nothing in it becomes emphasis, a link, an image, HTML, a formula or a new cell. Most special
    characters get a backslash. HTML entities replace those that not all renderers accept with a
    backslash, and parts of addresses, which would become links by themselves.
    """
    return MARKDOWN_SPECIAL.sub(
        lambda match: HTML_ENTITIES.get(match[0], f"\\{match[0]}"),
        escape_controls(as_one_line(text)),
    )


def escape_latex(text: str) -> str:
    """Return a text in one line, with escapes so that LaTeX prints it as it is."""

    def escape(match: re.Match[str]) -> str:
        """Return the escape of one character, which the pattern has matched, for LaTeX."""
        character = match[0]
        # LaTeX joins "--" and "''" to one character; empty braces between them prevent it. The
        # group of the pattern is set if the same character follows.
        is_followed_by_itself = match[1] is not None
        if is_followed_by_itself:
            return f"{character}{{}}"
        return LATEX_ESCAPES.get(character, character)

    return _LATEX_CHARACTER.sub(escape, escape_controls(as_one_line(text)))


def _escape_latex_number(text: str) -> str:
    """Return a number in LaTeX: a minus before it, or before the second bound of an interval."""
    return re.sub(r"(?:^|(?<= ))-(?=[\d.])", "$-$", escape_latex(text))


MARKDOWN = MarkupFormat(
    escape=escape_markdown,
    number=str,
    row=lambda cells: f"| {' | '.join(cells)} |",
    section=lambda text, n_columns: f"| **{text}** |{'  |' * n_columns}",
    title=lambda text, n_columns: f"| *{text}* |{'  |' * n_columns}",
    indent="&emsp;",
    best="**{}**",
    second="<u>{}</u>",
)
LATEX = MarkupFormat(
    escape=escape_latex,
    number=_escape_latex_number,
    row=lambda cells: " & ".join(cells) + r" \\",
    section=lambda text, n_columns: (
        rf"\multicolumn{{{n_columns + 1}}}{{@{{}}l}}{{\textbf{{{text}}}}} \\"
    ),
    title=lambda text, n_columns: (
        rf"\multicolumn{{{n_columns + 1}}}{{@{{}}l}}{{\textit{{{text}}}}} \\"
    ),
    indent=r"\quad ",
    best=r"\textbf{{}}",
    second=r"\underline{{}}",
)


def to_markdown(layouts: Sequence[Layout]) -> str:
    """Return layouts in markdown, each under its caption."""
    return "\n\n".join("\n".join(_markdown_lines(layout)) for layout in layouts) + "\n"


def _markdown_lines(layout: Layout) -> Iterator[str]:
    """Yield the lines of a printed table (``layout``) in Markdown."""
    # A page scrolls: it has more room than a terminal or paper.
    layout = shorten_labels(layout, max_length=MAX_NAME_LENGTH)
    n_columns = len(layout.heads)
    yield f"**{escape_markdown(layout.caption)}**\n"
    yield MARKDOWN.row([layout.label_head, *map(escape_markdown, layout.heads)])
    yield MARKDOWN.row(["---", *["---:"] * n_columns])
    for section, block in group_by_section(layout.blocks):
        yield from MARKDOWN.group(section, block, n_columns)
    for note in layout.legend:
        yield f"\n{escape_markdown(note)}"


def to_latex(layouts: Sequence[Layout], max_lines: int | None = None) -> str:
    """Return tables in LaTeX, each in a float (a block with a caption) that fits the page.

    The legend is below the table. The first line of the text names the packages of LaTeX it needs.

    Args:
        layouts: The printed tables.
        max_lines: The maximum number of lines of a float; a longer table comes in several. None
            leaves each table whole.
    """
    tables = ["\n".join(_latex_lines(shorten_labels(layout), max_lines)) for layout in layouts]
    comments = (
        "% \\usepackage{booktabs,adjustbox}\n"
        "% table* in place of table takes both columns of a page\n"
    )
    return comments + "\n\n".join(tables) + "\n"


def _latex_lines(layout: Layout, max_lines: int | None) -> Iterator[str]:
    """Yield the LaTeX of a table: one float (a block with a caption), or several for its parts.

    Args:
        layout: The printed table; its notes are below the last part.
        max_lines: The maximum number of lines of a part; None for a table in one part.
    """
    parts = _divide_blocks(layout, max_lines) if max_lines else [layout.blocks]
    for number, blocks in enumerate(parts, start=1):
        caption = layout.caption
        if len(parts) > 1:
            caption = f"{caption}, part {number} of {len(parts)}"
        yield from (r"\begin{table}", rf"\caption{{{escape_latex(caption)}}}")
        # Table and notes shrink together if they are higher than the page.
        yield r"\begin{adjustbox}{max totalheight=0.85\textheight,center}"
        yield r"\begin{minipage}{\linewidth}"
        yield r"\centering"
        yield from _latex_tabular(layout, blocks)
        if layout.legend and number == len(parts):
            yield r"\par\smallskip\footnotesize\raggedright"
            yield from (rf"{_latex_note(note)}\par" for note in layout.legend)
        yield from (r"\end{minipage}", r"\end{adjustbox}", r"\end{table}")


def _latex_tabular(layout: Layout, blocks: Sequence[LayoutBlock]) -> Iterator[str]:
    """Yield the LaTeX of some blocks of lines of a printed table, without caption and notes."""
    n_columns = len(layout.heads)
    yield r"\begin{adjustbox}{max width=\linewidth}"
    yield rf"\begin{{tabular}}{{@{{}}l{'r' * n_columns}@{{}}}}"
    yield r"\toprule"
    yield LATEX.row(["", *map(escape_latex, layout.heads)])
    for section, block in group_by_section(blocks):
        yield r"\midrule"
        yield from LATEX.group(section, block, n_columns)
    yield from (r"\bottomrule", r"\end{tabular}", r"\end{adjustbox}")


def _divide_blocks(layout: Layout, max_lines: int) -> list[list[LayoutBlock]]:
    """Divide a printed table into as few parts of at most ``max_lines`` lines as possible.

    A table consists of blocks of lines with a title. A block that is divided has its title in each
    part. The lines of a row are in one part, also if they are more than ``max_lines``. A part is a
    list of blocks.
    """
    parts: list[list[LayoutBlock]] = [[]]
    lines_left = max_lines
    for block in layout.blocks:
        lines = list(block.lines)
        while lines:
            # A part may end where a row does.
            row_ends = [end for end in range(1, len(lines)) if not lines[end].continues_row]
            row_ends.append(len(lines))
            if row_ends[0] > lines_left and parts[-1]:
                parts.append([])
                lines_left = max_lines
            end = max((end for end in row_ends if end <= lines_left), default=row_ends[0])
            parts[-1].append(replace(block, lines=lines[:end]))
            lines = lines[end:]
            lines_left -= end
    return parts


def _latex_note(note: str) -> str:
    """Return a note in LaTeX, in which a line may also end behind punctuation in a long word.

    Paths and settings are such words: without it they would stick out of the page.
    """
    texts = []
    for index, text in enumerate(LONG_WORD.split(note)):
        # LONG_WORD is a group of 30 or more characters without a blank, so the split yields other
        # text and long words in turn.
        is_long_word = index % 2 == 1
        if is_long_word:
            pieces = re.split(r"(?<=[/+=_.,:-])", text)
            texts.append(r"\allowbreak{}".join(map(escape_latex, pieces)))
            continue
        # Blanks at the ends, which escaping removes, separate the text from long words.
        before = " " if text[:1].isspace() else ""
        after = " " if text[-1:].isspace() else ""
        texts.append(before + escape_latex(text) + after)
    return "".join(texts)


JSON_DIGITS = 6
FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""The beginning of a text that a spreadsheet computes, in characters of either width."""
NUMBER_PATTERN = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
RECORD_KEYS = ("table", "section", "group", "row", "encoder", "published_row", "side")
"""The first columns of the CSV; ``side`` is the kind of the record's numbers."""


def to_csv(tables: Sequence[Table], show: Show | None = None, *, headed: bool = True) -> str:
    """Return tables as CSV.

    A row has a line for its measured numbers, one for the published and one for their difference.

    Args:
        tables: The tables.
        show: The kinds of numbers; None for all three. With ``merged``, a row that is measured has
            no line for its published numbers.
        headed: Begin with a line of column names.
    """
    records = [record for table in tables for record in _make_records(table, show)]
    return records_to_csv(records, RECORD_KEYS, headed=headed)


def records_to_csv(
    records: Sequence[Mapping[str, Any]], first_keys: Sequence[str] = (), *, headed: bool = True
) -> str:
    """Return records as CSV: a line for each record, and a column for each key of any record.

    A value that a record lacks, or that is None, is empty. A text that a spreadsheet would compute
    gets an apostrophe before it.

    Args:
        records: The values of each line by column.
        first_keys: The columns to put before the others.
        headed: Begin with a line of column names.
    """
    # Each key once, in the order of its first occurrence.
    keys = dict.fromkeys([*first_keys, *(key for record in records for key in record)])
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if headed:
        writer.writerow(map(_escape_formula, keys))
    for record in records:
        writer.writerow([_escape_formula(record.get(key, "")) for key in keys])
    return stream.getvalue()


def _escape_formula(value: object) -> object:
    """Return a text that a spreadsheet would compute with an apostrophe before it."""
    if isinstance(value, str) and FORMULA.match(value) and not NUMBER_PATTERN.fullmatch(value):
        return f"'{value}"
    return value


def to_frame(table: Table, show: Show | None = None) -> pd.DataFrame:
    """Return the lines of the CSV as a DataFrame, indexed by section, group, row and side."""
    import pandas as pd

    records = list(_make_records(table, show))
    return pd.DataFrame.from_records(records).set_index(["section", "group", "row", "side"])


def _find_further_fields(table: Table) -> set[str]:
    """Find which columns of a table have more than plain numbers, for the fields of its records.

    Returns:
        The names of the further fields that any row needs, for the column ``sts12``:

        * ``sts12_deviation``, ``sts12_interval``: a number has a deviation or an interval;
        * ``sts12_published_row``: a number was printed in another row than the one it stands in;
        * ``sts12_significance``: a number differs significantly from that of a row;
        * ``sts12_bound``: a published number has a bound of what a test could see.
    """
    names: set[str] = set()
    for row in table.rows():
        for column in table.columns:
            cell = row.cell(column.key)
            numbers = [number for number in (cell.measured, cell.published) if number]
            is_needed = {
                "deviation": any(number.deviation is not None for number in numbers),
                # The exact average has the interval of the average, whose fields hold it.
                "interval": column.kind != "exact" and any(number.interval for number in numbers),
                "published_row": cell.published_key not in ("", row.published_key),
                "significance": bool(cell.significance),
                "bound": cell.bound is not None,
            }
            names |= {f"{column.key}_{name}" for name, is_any in is_needed.items() if is_any}
    return names


def _make_records(table: Table, show: Show | None) -> Iterator[dict[str, Any]]:
    """Yield a flat dict for each row of a table and each kind of its numbers that is shown.

    Args:
        table: The table.
        show: The kinds of numbers; None for measured and published ones and their differences. With
            ``merged``, a row with any measured number has no record of its published ones.
    """
    further_fields = _find_further_fields(table)
    has_signatures = bool(table.signatures)
    for group in table.groups:
        for row in group.rows:
            for number_kind in KINDS_BY_SHOW[show or "both"]:
                if show == "merged" and number_kind == "published" and row.is_measured:
                    continue
                numbers = {
                    column.key: row.cell(column.key).number(number_kind) for column in table.columns
                }
                if not any(numbers.values()):
                    continue
                record = _identify_record(table, group, row, number_kind)
                is_measured = number_kind == "measured"
                for key, number in numbers.items():
                    cell = row.cell(key)
                    record |= _number_fields(key, number, row, further_fields)
                    if f"{key}_published_row" in further_fields:
                        record[f"{key}_published_row"] = "" if is_measured else cell.published_key
                    if f"{key}_significance" in further_fields:
                        record[f"{key}_significance"] = cell.significance if is_measured else ""
                    if f"{key}_bound" in further_fields:
                        has_bound = number_kind == "published" and cell.bound is not None
                        record[f"{key}_bound"] = _round_for_json(cell.bound) if has_bound else None
                        record[f"{key}_is_near"] = cell.is_near if has_bound else None
                if has_signatures:
                    record["signature"] = row.signature if is_measured else ""
                yield record


def _identify_record(
    table: Table, group: Group, row: Row, number_kind: NumberKind
) -> dict[str, Any]:
    """Return the first fields of a record: which table, row and kind of number it is of.

    Their keys are :data:`RECORD_KEYS`.
    """
    # Imported rows have their numbers in the place of published ones.
    is_imported = bool(row.imported) and number_kind == "published"
    return {
        "table": table.name,
        "section": group.section,
        "group": group.title,
        "row": row.label,
        "encoder": row.encoder,
        "published_row": row.published_key,
        "side": "imported" if is_imported else number_kind,
    }


def _number_fields(
    key: str, number: TableNumber | None, row: Row, further_fields: set[str]
) -> dict[str, Any]:
    """Return the fields of a record for one column: its value, deviation and interval.

    The columns of ranks, and of letters that rows without a significant difference share, have
    fields of their own: the interval of the former is the best and worst rank that the row may
    have. ``row.is_best``: no row is significantly better. All fields are None without a number.

    Args:
        key: The key of the column.
        number: The number of the column in the row; None if it has none.
        row: The row.
        further_fields: The names of the further fields, see :func:`_find_further_fields`.
    """
    low, high = number.interval if number and number.interval else (None, None)
    if key == RANKS:
        return {
            "rank_best": None if low is None else int(low),
            "rank_worst": None if high is None else int(high),
            "rank_method": STANDINGS_METHOD if number else None,
        }
    if key == LETTERS:
        return {
            LETTERS: number.text if number else None,
            "tied_with_best": row.is_best if number else None,
        }
    fields = {key: _round_for_json(number.value if number else None)}
    if f"{key}_deviation" in further_fields:
        fields[f"{key}_deviation"] = _round_for_json(number.deviation if number else None)
    if f"{key}_interval" in further_fields:
        fields |= {f"{key}_low": _round_for_json(low), f"{key}_high": _round_for_json(high)}
    return fields


def to_json(tables: Sequence[Table]) -> str:
    """Return tables as JSON with all that they hold, also what the terminal does not show."""
    content = [_table_fields(table) for table in tables]
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _table_fields(table: Table) -> dict[str, Any]:
    """Return a table as a dict for JSON.

    ``paper`` is None for a board of ours; ``signatures`` name how measured scores were made.
    """
    paper_fields = None
    if table.paper is not None:
        paper_fields = {key: getattr(table.paper, key) for key in ("name", "title", "year", "url")}
    groups = [
        {
            "section": group.section,
            "title": group.title,
            "rows": [_row_fields(row) for row in group.rows],
        }
        for group in table.groups
    ]
    return {
        "table": table.name,
        "title": table.title,
        "paper": paper_fields,
        "number": table.paper_number,
        "signatures": list(table.signatures),
        "columns": [_column_fields(column) for column in table.columns],
        "groups": groups,
        "notes": [*table.notes, *table.measured_notes],
    }


def _column_fields(column: TableColumn) -> dict[str, Any]:
    """Return a column of a table as a dict for JSON.

    It has the key, head and kind. A column of a task's scores, which has a ``spec``, also has the
    task, the split as papers name it, the protocol and the metric. The method, of columns of ranks
    and letters, and the signature, a text on how measured scores were made, are there if not empty.
    """
    fields: dict[str, Any] = {"key": column.key, "head": column.head, "kind": column.kind}
    spec = column.spec
    if spec is not None:
        fields |= {
            "task": spec.task,
            "split": spec.published_split,
            "protocol": spec.protocol,
            "metric": spec.metric,
        }
    return fields | _without_empty({"method": column.method, "signature": column.signature})


def _row_fields(row: Row) -> dict[str, Any]:
    """Return a row of a table as a dict for JSON, without empty fields and empty cells.

    ``scored_otherwise`` is its protocol if it is not that of the columns, ``imported`` the origin
    of scores of MTEB's, and ``misprint`` why the row is wrong.
    """
    fields = {
        "encoder": row.encoder,
        "published_row": row.published_key,
        "quoted_from": row.quoted_from,
        "scored_otherwise": row.other_protocol,
        "imported": row.imported,
        "metric": row.metric,
        "overlap": row.overlap,
        "misprint": row.misprint,
        "is_best": row.is_best,
        "signature": row.signature,
    }
    cells = {
        key: _cell_fields(cell, row)
        for key, cell in row.cells.items()
        if cell.measured or cell.published
    }
    return {"label": row.label, **_without_empty(fields), "cells": cells}


def _cell_fields(cell: TableCell, row: Row) -> Mapping[str, Any]:
    """Return a cell of a row as a dict for JSON, without empty fields.

    ``published_row`` is there only if its published number is from another row of a paper than the
    rest of the row. ``bound`` is the least difference to the next better published number that a
    test could see, and ``is_near`` whether the difference is below it.
    """
    is_of_other_row = cell.published_key != row.published_key
    return _without_empty(
        {
            "published_row": cell.published_key if is_of_other_row else "",
            "measured": _number_json(cell.measured) if cell.measured else None,
            "published": _number_json(cell.published) if cell.published else None,
            "difference": _round_for_json(cell.difference.value if cell.difference else None),
            "misprint": cell.misprint,
            "bound": _round_for_json(cell.bound),
            "is_near": cell.is_near,
            "significance": cell.significance,
        }
    )


def _number_json(number: TableNumber) -> dict[str, Any]:
    """Return a number of a table as a dict for JSON, without empty fields.

    ``seeds``, the number of seeds that it is a mean over, is there if there are several. ``text``
    is printed in place of the value; ``interval`` is the 95% interval.
    """
    return _without_empty(
        {
            "value": _round_for_json(number.value),
            "deviation": _round_for_json(number.deviation),
            "interval": [_round_for_json(bound) for bound in number.interval]
            if number.interval
            else None,
            "seeds": number.seeds if number.seeds > 1 else None,
            "text": number.text,
        }
    )


def _without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without those that are None, an empty string or false."""
    return {
        key: value
        for key, value in fields.items()
        if value not in (None, "") and value is not False
    }


def _round_for_json(value: float | None) -> float | None:
    return None if value is None else round(value, JSON_DIGITS)
