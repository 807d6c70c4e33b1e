"""Results, comparisons and figures of some encoders as one HTML page that needs no other file and no network."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stsbench.analysis.context import AnalysisResult, make_analysis, value_text
from stsbench.boards.render.figures import comparison_layouts
from stsbench.boards.render.html import fill_template, html_page, table_body
from stsbench.boards.tables.table import Table
from stsbench.significance.comparison import Comparison

MOST = 60
"""So many rows of a figure's table stand in the page."""
TEXTS = frozenset({"sentence", "sentence1", "sentence2", "query"})
"""Columns that hold sentences of a task."""


@dataclass(frozen=True, kw_only=True)
class ReportParts:
    """What stands in a report, a line for all that was asked for and could not be had, and one on what is not verified."""

    title: str
    boards: Sequence[Table]
    comparison: Comparison | None
    figures: Sequence[AnalysisResult]
    missing: Sequence[str]
    notice: str = ""


def report_html(report: ReportParts) -> str:
    """The whole page, by the template ``report.html`` in the folder of the board's.

    Sentences of tasks are left out, whose licences may forbid that they are passed on.
    """
    pairs = []
    for layout in comparison_layouts(report.comparison) if report.comparison is not None else []:
        rows = [
            [line.label, *(one.text for one in line.cells)]
            for block in layout.blocks
            for line in block.lines
        ]
        pairs.append((layout, [layout.label_head, *layout.heads], rows))
    figures, boards = [_figure(one) for one in report.figures], "\n".join(table_body(report.boards))
    body = fill_template("report.html", report=report, boards=boards, pairs=pairs, figures=figures)
    return html_page(report.title, [body.removesuffix("\n")], images=True)


def _figure(found: AnalysisResult) -> dict[str, Any]:
    analysis = make_analysis(found.analysis, found.parameters)
    return {
        "key": f"figure-{found.analysis}",
        "title": found.title,
        "said": f"{analysis.about}; {found.task}, protocol {found.protocol}",
        "picture": base64.b64encode(
            analysis.draw(found.tables, found.title).to_bytes("svg")
        ).decode(),
        "tables": list(_tables(found, analysis.printed)),
    }


def _tables(
    found: AnalysisResult, names: Sequence[str]
) -> Iterator[tuple[str, int, list[str], list[list[str]]]]:
    """Name, number of rows, heads and first rows of each table that is printed, without sentences."""
    for name in names:
        rows = [
            {key: row[key] for key in row if key not in TEXTS} for row in found.tables.get(name, [])
        ]
        if rows and name != "side_by_side":
            yield (
                name,
                len(rows),
                list(rows[0]),
                [[*map(value_text, row.values())] for row in rows[:MOST]],
            )
