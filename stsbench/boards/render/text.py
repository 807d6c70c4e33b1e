"""Tables as markdown and LaTeX, best in bold, second best underlined; as CSV and pandas, a line for each side of a row; as JSON, whole.

LaTeX needs booktabs and adjustbox, which makes a table smaller that is wider than the text; a long one comes in parts.
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
    Row,
    Show,
    Table,
    TableCell,
    TableColumn,
)
from stsbench.core.names import MAX_NAME_LENGTH
from stsbench.core.wording import escape_controls, join_lines

LONG_WORD = re.compile(r"(\S{30,})")
"""A word that a note's line may end within."""
MAX_LINES, MAX_NOTES = 50, 8
"""So many lines a part of a LaTeX table has, and so many of notes a float holds beside them."""
HTML_ENTITIES = {"<": "&lt;", "&": "&amp;", "@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}
MARKDOWN_SPECIAL = re.compile(
    r"[\\`*\[\]|~$<@]|://|\bwww\."
    # Within a word an underscore is one; an ampersand is one but before what ends with a semicolon.
    r"|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)"
)
LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    # A bracket at the start of a line would be taken for an option of the line break above.
    "[": "{[}",
    "]": "{]}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "†": r"\textsuperscript{\dag}",
    "‡": r"\textsuperscript{\ddag}",
    "§": r"\textsuperscript{\S}",
    "¶": r"\textsuperscript{\P}",
    "*": r"\textsuperscript{*}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "Δ": r"$\Delta$",
    "≈": r"\textsuperscript{$\approx$}",
    "…": r"\ldots{}",
    "°": r"\textsuperscript{$\circ$}",
    "`": r"\textasciigrave{}",
    '"': r"\char34{}",
}
_SIGN = re.compile(r"([-',])(?=\1)|.")
"""One sign; the first is one of two that would be set as one other."""


class MarkupFormat(NamedTuple):
    """How a format writes a row, a title across the columns, and what stands in them."""

    escape: Callable[[str], str]
    number: Callable[[str], str]
    row: Callable[[Sequence[str]], str]
    section: Callable[[str, int], str]
    title: Callable[[str, int], str]
    indent: str
    best: str
    second: str

    def lines(self, block: LayoutBlock) -> Iterator[str]:
        """The rows of a group."""
        for line in block.lines:
            label = (self.indent if line.continues_row else "") + self.escape(
                line.label + line.symbols
            )
            cells = []
            for cell in line.cells:
                text = self.number(cell.text + cell.deviation)
                text = ("{}", self.best, self.second)[cell.rank].replace("{}", text)
                cells.append(text + self.escape(cell.symbol))
            yield self.row([label, *cells])

    def group(self, section: str, block: LayoutBlock, columns: int) -> Iterator[str]:
        """The rows of a group below its section and its title."""
        if section:
            yield self.section(self.escape(section), columns)
        if block.title:
            yield self.title(self.escape(block.title), columns)
        yield from self.lines(block)

    def rows(self, layouts: Sequence[Layout]) -> str:
        """The rows alone, to be put into a table that there is."""
        return "".join(
            f"{line}\n"
            for layout in layouts
            for block in layout.blocks
            for line in self.lines(block)
        )


def escape_markdown(text: str) -> str:
    """Text of others as it reads: no emphasis, link, image, HTML, formula or new cell, and all in one line.

    What stands for a character in HTML is taken where a backslash is not understood by all, and where addresses
    become links by themselves.
    """
    return MARKDOWN_SPECIAL.sub(
        lambda found: HTML_ENTITIES.get(found[0], f"\\{found[0]}"),
        escape_controls(join_lines(text)),
    )


def escape_latex(text: str) -> str:
    """Text in one line with every sign, or pair of signs, that LaTeX would take for its own replaced."""
    return _SIGN.sub(
        lambda found: f"{found[0]}{{}}" if found[1] else LATEX_ESCAPES.get(found[0], found[0]),
        escape_controls(join_lines(text)),
    )


MARKDOWN = MarkupFormat(
    escape=escape_markdown,
    number=str,
    row=lambda cells: f"| {' | '.join(cells)} |",
    section=lambda text, columns: f"| **{text}** |{'  |' * columns}",
    title=lambda text, columns: f"| *{text}* |{'  |' * columns}",
    indent="&emsp;",
    best="**{}**",
    second="<u>{}</u>",
)
LATEX = MarkupFormat(
    escape=escape_latex,
    # A minus before a number, also before the second end of an interval, is no hyphen.
    number=lambda text: re.sub(r"(?:^|(?<= ))-(?=[\d.])", "$-$", escape_latex(text)),
    row=lambda cells: " & ".join(cells) + r" \\",
    section=lambda text, columns: (
        rf"\multicolumn{{{columns + 1}}}{{@{{}}l}}{{\textbf{{{text}}}}} \\"
    ),
    title=lambda text, columns: rf"\multicolumn{{{columns + 1}}}{{@{{}}l}}{{\textit{{{text}}}}} \\",
    indent=r"\quad ",
    best=r"\textbf{{}}",
    second=r"\underline{{}}",
)


def to_markdown(layouts: Sequence[Layout]) -> str:
    """All that is laid out, each under its caption."""
    return "\n\n".join("\n".join(_markdown(layout)) for layout in layouts) + "\n"


def _markdown(layout: Layout) -> Iterator[str]:
    # A page scrolls: it has more room than a terminal or paper.
    layout = shorten_labels(layout, max_length=MAX_NAME_LENGTH)
    yield f"**{escape_markdown(layout.caption)}**\n"
    yield MARKDOWN.row([layout.label_head, *map(escape_markdown, layout.heads)])
    yield MARKDOWN.row(["---", *["---:"] * len(layout.heads)])
    for section, block in group_by_section(layout.blocks):
        yield from MARKDOWN.group(section, block, len(layout.heads))
    yield from (f"\n{escape_markdown(text)}" for text in layout.legend)


def to_latex(layouts: Sequence[Layout]) -> str:
    """All that is laid out, no wider than the text, and the legend below; the first line names the packages."""
    texts = ("\n".join(_latex(shorten_labels(layout))) for layout in layouts)
    return "% \\usepackage{booktabs,adjustbox}\n" + "\n\n".join(texts) + "\n"


def _latex(layout: Layout) -> Iterator[str]:
    parts = _parts(layout)
    notes = [
        r"\par\smallskip\footnotesize\raggedright",
        *(rf"{_note(text)}\par" for text in layout.legend),
    ]
    # Notes that a page may end within stand outside of what floats as a whole.
    is_apart = sum(1 + len(text) // 90 for text in layout.legend) > MAX_NOTES
    for place, blocks in enumerate(parts, start=1):
        caption = (
            layout.caption if len(parts) == 1 else f"{layout.caption}, part {place} of {len(parts)}"
        )
        yield from (r"\begin{table}", r"\centering", rf"\caption{{{escape_latex(caption)}}}")
        yield r"\begin{adjustbox}{max width=\linewidth,max totalheight=0.75\textheight}"
        yield from (rf"\begin{{tabular}}{{@{{}}l{'r' * len(layout.heads)}@{{}}}}", r"\toprule")
        yield LATEX.row(["", *map(escape_latex, layout.heads)])
        for section, block in group_by_section(blocks):
            yield r"\midrule"
            yield from LATEX.group(section, block, len(layout.heads))
        yield from (r"\bottomrule", r"\end{tabular}", r"\end{adjustbox}")
        yield from notes if layout.legend and place == len(parts) and not is_apart else ()
        yield r"\end{table}"
    yield from ("{", *notes, "}") if is_apart else ()


def _parts(layout: Layout) -> list[list[LayoutBlock]]:
    """The groups of each part of a table, as few as hold all lines; a group that is cut has its title in both."""
    parts: list[list[LayoutBlock]] = [[]]
    room = MAX_LINES
    for block in layout.blocks:
        lines = list(block.lines)
        while lines:
            if room < 1:
                parts.append([])
                room = MAX_LINES
            parts[-1].append(replace(block, lines=lines[:room]))
            lines, room = lines[room:], room - len(lines[:room])
    return parts


def _note(text: str) -> str:
    """A note in which lines may end after signs of a long word too: paths and settings have no blanks."""
    # Long words stand between the parts that have none.
    parts = LONG_WORD.split(text)
    words = (
        re.split(r"(?<=[/+=_.,:-])", part) if at % 2 else [part] for at, part in enumerate(parts)
    )
    return "".join(r"\allowbreak{}".join(map(escape_latex, pieces)) for pieces in words)


if TYPE_CHECKING:
    import pandas as pd

DIGITS = 6
FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""How text begins that a spreadsheet computes, in signs of either width."""
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
RECORD_KEYS = ("table", "section", "group", "row", "encoder", "published_row", "side")


def to_csv(tables: Sequence[Table], show: Show | None = None, *, headed: bool = True) -> str:
    """One line for the measured numbers of a row, one for the published ones, one for the difference."""
    return csv_text(
        [record for table in tables for record in _records(table, show)], RECORD_KEYS, headed=headed
    )


def csv_text(
    records: Sequence[Mapping[str, Any]], first: Sequence[str] = (), *, headed: bool = True
) -> str:
    """Records as CSV, the heads in ``first`` before the others; what a record lacks is empty."""
    heads = dict.fromkeys([*first, *(key for record in records for key in record)])
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if headed:
        writer.writerow(map(_safe, heads))
    writer.writerows([_safe(record.get(head, "")) for head in heads] for record in records)
    return stream.getvalue()


def _safe(value: object) -> object:
    """Text that a spreadsheet would take for a formula gets an apostrophe before it; a number stays a number."""
    return (
        f"'{value}"
        if isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value)
        else value
    )


def to_frame(table: Table, show: Show | None = None) -> pd.DataFrame:
    """The table as a DataFrame: the same lines as the CSV, indexed by section, group, row and side."""
    import pandas as pd

    return pd.DataFrame.from_records(list(_records(table, show))).set_index(
        ["section", "group", "row", "side"]
    )


def _records(table: Table, show: Show | None) -> Iterator[dict[str, Any]]:
    rows = table.rows()
    keys = [column.key for column in table.columns]
    cells = [(column, row, row.cell(column.key)) for column in table.columns for row in rows]
    both = [
        (column.key, one)
        for column, _, cell in cells
        for one in (cell.measured, cell.published)
        if one
    ]
    spread = {key for key, one in both if one.deviation is not None}
    ends = {
        c.key
        for c, _, cell in cells
        if c.kind != "exact" and cell.measured and cell.measured.interval
    }
    # Numbers that were printed in another row than the one that their own row names.
    sourced = {
        column.key
        for column, row, cell in cells
        if cell.published_key not in ("", row.published_key)
    }
    for group, row, side in (
        (g, row, side)
        for g in table.groups
        for row in g.rows
        for side in KINDS_BY_SHOW[show or "both"]
    ):
        if show == "merged" and side == "published" and row.is_measured:
            continue
        numbers = {key: row.cell(key).number(side) for key in keys}
        if not any(numbers.values()):
            continue
        said = "imported" if row.imported and side == "published" else side
        facts = (
            table.name,
            group.section,
            group.title,
            row.label,
            row.encoder,
            row.published_key,
            said,
        )
        record: dict[str, Any] = dict(zip(RECORD_KEYS, facts, strict=True))
        for key, one in numbers.items():
            low, high = one.interval if one and one.interval else (None, None)
            if key == RANKS:
                record |= {"rank_best": low and int(low), "rank_worst": high and int(high)}
            elif key == LETTERS:
                record |= {
                    LETTERS: one.text if one else None,
                    "tied_with_best": row.is_best if one else None,
                }
            else:
                record[key] = _plain(one and one.value)
                record |= (
                    {f"{key}_deviation": _plain(one and one.deviation)} if key in spread else {}
                )
                record |= (
                    {f"{key}_low": _plain(low), f"{key}_high": _plain(high)} if key in ends else {}
                )
            if key in sourced:
                record[f"{key}_published_row"] = (
                    row.cell(key).published_key if side != "measured" else ""
                )
        yield record


def to_json(tables: Sequence[Table]) -> str:
    """All tables with all they hold: measured, published, difference, intervals, and what is wrong in print."""
    made = [
        {
            "table": table.name,
            "title": table.title,
            "paper": table.paper
            and {key: getattr(table.paper, key) for key in ("name", "title", "year", "url")},
            "number": table.paper_number,
            "columns": [_column(column) for column in table.columns],
            "groups": [
                {
                    "section": group.section,
                    "title": group.title,
                    "rows": [_row(row) for row in group.rows],
                }
                for group in table.groups
            ],
            "notes": [*table.notes, *table.measured_notes],
        }
        for table in tables
    ]
    return json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _column(column: TableColumn) -> dict[str, Any]:
    facts: dict[str, Any] = {"key": column.key, "head": column.head, "kind": column.kind}
    if (wanted := column.spec) is not None:
        facts |= {
            "task": wanted.task,
            "split": wanted.published_split,
            "protocol": wanted.protocol,
            "metric": wanted.metric,
        }
    return facts


def _row(row: Row) -> dict[str, Any]:
    facts = {
        "encoder": row.encoder,
        "published_row": row.published_key,
        "quoted_from": row.quoted_from,
    }
    facts |= {"scored_otherwise": row.other_protocol}
    facts |= {
        key: getattr(row, key) for key in ("imported", "metric", "overlap", "misprint", "is_best")
    }
    cells = {
        key: _cell(cell, row.published_key)
        for key, cell in row.cells.items()
        if cell.measured or cell.published
    }
    return {"label": row.label, **_known(facts), "cells": cells}


def _cell(cell: TableCell, of_row: str) -> Mapping[str, Any]:
    facts: dict[str, Any] = {
        "published_row": cell.published_key if cell.published_key != of_row else ""
    }
    for side, one in (("measured", cell.measured), ("published", cell.published)):
        facts[side] = one and _known(
            {
                "value": _plain(one.value),
                "deviation": _plain(one.deviation),
                "interval": [_plain(end) for end in one.interval] if one.interval else None,
                "seeds": one.seeds if one.seeds > 1 else None,
                "text": one.text,
            }
        )
    return _known(
        {
            **facts,
            "difference": _plain(cell.difference and cell.difference.value),
            "misprint": cell.misprint,
        }
    )


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in facts.items() if value not in (None, "") and value is not False
    }


def _plain(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
