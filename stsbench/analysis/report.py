"""Results, comparisons and figures of some encoders as one HTML page.

It needs no other file and no network.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stsbench.analysis.context import Analysis, AnalysisResult, make_analysis, row_texts
from stsbench.boards.render.figures import make_comparison_layouts
from stsbench.boards.render.html import fill_template, render_page, render_tables
from stsbench.boards.tables.layout import Layout
from stsbench.boards.tables.table import Table
from stsbench.significance.comparison import Comparison

MAX_ROWS = 60
"""The maximum number of rows of a figure's table in the page."""
SENTENCE_COLUMNS = frozenset({"sentence", "sentence1", "sentence2", "query"})
"""Columns that hold sentences of a task."""


@dataclass(frozen=True, kw_only=True)
class ReportParts:
    """The content of a report.

    Attributes:
        title: Its title.
        boards: Tables of results.
        comparison: A comparison of encoders; None if there is none.
        figures: The results of analyses.
        missing: A line for each requested part that could not be made, with the reason.
        notice: A line on results that are not verified; empty if all are.
    """

    title: str
    boards: Sequence[Table]
    comparison: Comparison | None
    figures: Sequence[AnalysisResult]
    missing: Sequence[str]
    notice: str = ""


def report_html(report: ReportParts) -> str:
    """Return the whole page, made by the template ``report.html`` beside the board's.

    Sentences of tasks are omitted, because their licences may forbid to pass them on.
    """
    comparisons = []
    if report.comparison is not None:
        layouts = make_comparison_layouts(report.comparison)
        comparisons = [_comparison_table(layout) for layout in layouts]
    body = fill_template(
        "report.html",
        report=report,
        boards="\n".join(render_tables(report.boards)),
        comparisons=comparisons,
        figures=[_figure(result) for result in report.figures],
    )
    return render_page(report.title, [body.removesuffix("\n")], images=True)


def _comparison_table(layout: Layout) -> dict[str, Any]:
    """Return what the template reads of a comparison: layout, heads, and cells as texts."""
    rows = [
        [line.label, *(cell.text for cell in line.cells)]
        for block in layout.blocks
        for line in block.lines
    ]
    return {"layout": layout, "heads": [layout.label_head, *layout.heads], "rows": rows}


def _figure(result: AnalysisResult) -> dict[str, Any]:
    """Return what the template reads of an analysis: texts, tables, and its picture.

    The picture is SVG in base64.
    """
    analysis = make_analysis(result.analysis, result.parameters)
    picture = analysis.draw(result.tables, result.title).to_bytes("svg")
    return {
        "key": f"figure-{result.analysis}",
        "title": result.title,
        "caption": f"{analysis.about}; {result.task}, protocol {result.protocol}",
        "picture": base64.b64encode(picture).decode(),
        "tables": list(_figure_tables(result, analysis)),
    }


def _figure_tables(result: AnalysisResult, analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield the first rows of each printed table, without the sentences of the task.

    A table without rows is omitted.
    """
    for name in analysis.printed:
        rows = [
            {key: value for key, value in row.items() if key not in SENTENCE_COLUMNS}
            for row in result.tables.get(name, [])
        ]
        # The columns of side_by_side are encoders, and hold sentences throughout.
        if rows and name != "side_by_side":
            yield {
                "name": name,
                "n_rows": len(rows),
                "heads": list(rows[0]),
                "rows": [
                    row_texts(row, analysis.score_columns.get(name, ())) for row in rows[:MAX_ROWS]
                ],
            }
