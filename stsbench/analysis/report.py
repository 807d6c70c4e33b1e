"""Results, comparisons and figures of some encoders as one HTML page that needs no other file and no network."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from stsbench.analysis.run import Findings, make_analysis
from stsbench.boards.render.figures import comparison_layouts
from stsbench.boards.render.html import html_page, table_body
from stsbench.boards.tables.table import Table
from stsbench.core.errors import one_line, visible
from stsbench.significance.comparison import Comparison

MOST = 60
"""So many rows of a figure's table stand in the page."""
TEXTS = frozenset({"sentence", "sentence1", "sentence2", "query"})
"""Columns that hold sentences of a task."""


@dataclass(frozen=True, kw_only=True)
class ReportParts:
    """What stands in a report, and a line for all that was asked for and could not be had."""

    title: str
    boards: Sequence[Table]
    comparison: Comparison | None
    figures: Sequence[Findings]
    missing: Sequence[str]


def report_html(report: ReportParts) -> str:
    """The whole page.

    Sentences of tasks are left out, whose licences may forbid that they are passed on.
    """
    return html_page(report.title, _lines(report), images=True)


def _lines(report: ReportParts) -> Iterator[str]:
    parts = [("results", "Results", bool(report.boards)), ("comparisons", "Comparisons", report.comparison is not None)]
    parts += [(f"figure-{one.analysis}", one.title, True) for one in report.figures]
    parts += [("missing", "Not in this report", bool(report.missing))]
    yield f"<h1>{_text(report.title)}</h1>"
    links = (f'<li><a href="#{key}">{_text(title)}</a></li>' for key, title, there in parts if there)
    yield f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>'
    if report.boards:
        yield from (_head("results", "Results"), *table_body(report.boards), "</section>")
    if report.comparison is not None:
        yield _head("comparisons", "Comparisons")
        for layout in comparison_layouts(report.comparison):
            rows = [[line.label, *(one.text for one in line.cells)] for block in layout.blocks for line in block.lines]
            yield from _table([layout.label_head, *layout.heads], rows, layout.caption)
            yield from _notes(layout.legend)
        yield "</section>"
    for one in report.figures:
        yield from _figure(one)
    if report.missing:
        yield from (_head("missing", "Not in this report"), *_notes(report.missing), "</section>")


def _head(key: str, title: str) -> str:
    return f'<section aria-labelledby="{key}"><h2 id="{key}">{_text(title)}</h2>'


def _notes(lines: Sequence[str]) -> Iterator[str]:
    yield from ('<ul class="notes">', *(f"<li>{_text(line)}</li>" for line in lines), "</ul>")


def _figure(found: Findings) -> Iterator[str]:
    analysis, key = make_analysis(found.analysis, found.parameters), f"figure-{found.analysis}"
    picture = base64.b64encode(analysis.draw(found.tables, found.title).to_bytes("svg")).decode()
    said = f"{analysis.about}; {found.task}, protocol {found.protocol}"
    yield f"{_head(key, found.title)}<figure>"
    yield f'<img src="data:image/svg+xml;base64,{picture}" alt="{_text(said)}. The numbers are in the tables below.">'
    yield f"<figcaption>{_text(said)}</figcaption></figure>"
    for name in analysis.printed:
        rows = [{key: row[key] for key in row if key not in TEXTS} for row in found.tables.get(name, [])]
        if rows and name != "side_by_side":
            yield f"<details><summary>{_text(name.replace('_', ' '))}: {len(rows)} rows</summary>"
            yield from _table(list(rows[0]), [[*map(_value, row.values())] for row in rows[:MOST]], name)
            yield "</details>"
    yield "</section>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Iterator[str]:
    yield f'<div class="wide" role="region" tabindex="0" aria-label="{_text(caption)}"><table>'
    yield f"<caption>{_text(caption.replace('_', ' '))}</caption>"
    named = (f'<th scope="col">{_text(head.replace("_", " "))}</th>' for head in heads)
    yield f"<thead><tr>{''.join(named)}</tr></thead><tbody>"
    for first, *others in rows:
        cells = (f"<td>{_text(cell)}</td>" for cell in others)
        yield f'<tr><th scope="row">{_text(first)}</th>{"".join(cells)}</tr>'
    yield "</tbody></table></div>"


def _value(value: object) -> str:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _text(text: str) -> str:
    return escape(visible(one_line(text)))
