"""One table in HTML: rows with the facts that filters ask for, intervals as error bars, marks that lead to notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from stsbench.leaderboard.tables.layout import (
    BEST,
    IMPORTED,
    NONE,
    QUOTED,
    SECOND,
    WRONG,
    Layout,
    LayoutBlock,
    Shown,
    TableLine,
    number,
)
from stsbench.leaderboard.tables.table import Number, Row, Table, TableColumn

RANKED = {BEST: "b", SECOND: "u"}
LEAST_SPAN = 10.0
"""Points that a column's scale spans at least: a lone narrow interval looks narrow."""


class IntervalRange(NamedTuple):
    """What all intervals of a column span, in points: the two ends of its error bars."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Where a value lies, in percent."""
        return 100 * (value - self.low) / (self.high - self.low)


class Frame(NamedTuple):
    """What all rows of a table share.

    ``notes`` holds for each mark the number of the first legend line that explains it.
    """

    identity: str
    columns: Sequence[TableColumn]
    spans: Mapping[str, IntervalRange]
    notes: Mapping[str, int]


def table_lines(table: Table, layout: Layout, identity: str) -> Iterator[str]:
    """The lines of a table and its notes; ``identity`` begins the ids in it."""
    frame = Frame(identity, layout.columns, _spans(layout), _first_notes(layout.legend))
    yield f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{identity}-caption">'
    yield f'<table id="{identity}">\n<caption><span id="{identity}-caption">{escape(layout.caption)}</span></caption>'
    heads = "".join(map(_head, layout.columns, layout.heads))
    yield f'<thead><tr><th scope="col">encoder</th>{heads}</tr></thead>'
    above, width = "", len(layout.heads) + 1
    for block in layout.blocks:
        if block.section and block.section != above:
            yield f'<tbody class="section">{_title(block.section, width)}</tbody>'
        above = block.section
        yield "<tbody>"
        if block.title:
            yield _title(block.title, width, ' class="title"')
        yield from _rows(block, frame)
        yield "</tbody>"
    yield "</table>\n</div>"
    yield from _notes(table, layout, identity)


def _head(column: TableColumn, head: str) -> str:
    task = f' data-task="{escape(column.key)}"' if column.kind == "task" else ""
    better = ' data-better="low"' if column.better == "low" or column.kind == "ranks" else ""
    return f'<th scope="col"{task}{better}>{escape(head)}</th>'


def _title(text: str, width: int, attributes: str = "") -> str:
    return f'<tr{attributes}><th colspan="{width}" scope="rowgroup"><span>{escape(text)}</span></th></tr>'


def _rows(block: LayoutBlock, frame: Frame) -> Iterator[str]:
    for line in block.lines:
        start = f'<tr class="further" data-side="{line.side}">' if line.further else _start(line)
        cells = "".join(
            _cell(line, column, cell, frame) for column, cell in zip(frame.columns, line.cells, strict=True)
        )
        yield f"{start}{_label(line, frame)}{cells}</tr>"


def _start(line: TableLine) -> str:
    traits = line.row.traits
    facts: dict[str, str] = {"encoder": line.row.encoder}
    facts |= {"method": traits.method, "backbone": traits.backbone, "supervision": traits.supervision}
    facts |= {"parameters": str(traits.parameters or ""), "year": str(traits.year or ""), "side": line.side}
    if line.row.imported and line.side == "published":
        facts["side"] = "imported"
    attributes = (f' data-{key}="{escape(value)}"' for key, value in facts.items() if value)
    return f"<tr{''.join(attributes)}>"


def _label(line: TableLine, frame: Frame) -> str:
    if line.further:
        return f'<th scope="row"><span class="of">{escape(line.row.label)}: </span>{escape(line.label)}</th>'
    marks = "".join(_mark(mark, frame, _reason(mark, line.row)) for mark in line.marks)
    return f'<th scope="row">{escape(line.label)}{marks}{_facts(line.row)}</th>'


def _reason(mark: str, row: Row) -> str:
    """What a row's mark says beyond the legend."""
    return {WRONG: row.misprint, QUOTED: row.quoted or row.source, IMPORTED: row.imported}.get(mark, "")


def _facts(row: Row) -> str:
    """What an encoder is, and where its published row is from, in small print below its label."""
    source = "" if not row.key else f"published: {row.key}"
    trained = f"supervision: {row.traits.supervision}" if row.traits.supervision else ""
    encoder = row.encoder if row.encoder != row.label else ""
    facts = [encoder, row.traits.method, row.traits.backbone, trained, source]
    text = " · ".join(dict.fromkeys(filter(None, facts)))
    return f'<span class="facts">{escape(text)}</span>' if text else ""


def _cell(line: TableLine, column: TableColumn, cell: Shown, frame: Frame) -> str:
    text, tag = escape(cell.text), RANKED.get(cell.rank)
    shown = f"<{tag}>{text}</{tag}>" if tag else text
    one = line.row.cell(column.key)
    mark = _mark(cell.mark, frame, one.misprint) if cell.mark else ""
    deviation = f'<small class="dev">{escape(cell.deviation)}</small>' if cell.deviation else ""
    bar = _bar(number(one, line.side), frame.spans.get(column.key))
    return f"<td{_indent(cell.text, column)}>{shown}{mark}{deviation}{bar}</td>"


def _indent(text: str, column: TableColumn) -> str:
    """How many signs a number lacks of its column's decimals, that points stand under points."""
    _, point, digits = text.partition(".")
    missing = column.decimals - len(digits) + (not point)
    short = missing > 0 and text != NONE and column.kind != "ranks"
    return f' class="less" style="--less:{missing}"' if short else ""


def _mark(mark: str, frame: Frame, reason: str = "") -> str:
    title = f' title="{escape(reason)}"' if reason else ""
    return f'<a class="mark" href="#{frame.identity}-note{frame.notes[mark]}"{title}>{mark}</a>'


def _bar(one: Number | None, span: IntervalRange | None) -> str:
    if one is None or one.interval is None or span is None:
        return ""
    low, high = one.interval
    style = f"--a:{span.place(low):.1f};--b:{span.place(high):.1f};--m:{span.place(one.value):.1f}"
    return f'<i class="ci" role="img" title="95% interval {low:.2f} to {high:.2f}" style="{style}"></i>'


def _spans(layout: Layout) -> dict[str, IntervalRange]:
    lines = [line for block in layout.blocks for line in block.lines]
    spans = {}
    for column in (one for one in layout.columns if one.kind != "ranks"):
        numbers = [one for line in lines if (one := number(line.row.cell(column.key), line.side))]
        ends = [end for one in numbers for end in one.interval or ()]
        if ends:
            low, high = min(ends), max(ends)
            spare = max(0.0, LEAST_SPAN - (high - low)) / 2
            spans[column.key] = IntervalRange(low - spare, high + spare)
    return spans


def _first_notes(legend: Sequence[str]) -> dict[str, int]:
    notes: dict[str, int] = {}
    for place, text in enumerate(legend, start=1):
        notes.setdefault(text[0], place)
    return notes


def _notes(table: Table, layout: Layout, identity: str) -> Iterator[str]:
    """The legend, what the type and the bars mean where there are any, and the paper."""
    yield '<ul class="notes">'
    for place, text in enumerate(layout.legend, start=1):
        yield f'<li id="{identity}-note{place}">{escape(text)}</li>'
    lines = [line for block in layout.blocks for line in block.lines]
    if any(cell.rank for line in lines for cell in line.cells):
        several = layout.show == "both" and {"measured", "published"} <= {line.side for line in lines}
        apart = ", measured and published apart" if several else ""
        yield f"<li><b>Bold</b>: best of its group; <u>underlined</u>: second best{apart}.</li>"
    if _spans(layout):
        yield "<li>Bars: 95% intervals, on one scale in each column.</li>"
    if table.paper is not None:
        paper = table.paper
        authors = f"{paper.authors}, {paper.year}" if paper.authors else str(paper.year)
        link = f'<a href="{escape(paper.url)}" rel="noreferrer">{escape(paper.title)}</a>'
        yield f"<li>Source: {escape(authors)}: {link}, {escape(table.number)}</li>"
    yield "</ul>"
