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
from stsbench.significance.comparison_record import Comparison

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
    """Return a report as one HTML page, filled into the template ``report.html``.

    It has the tables of results, the comparison of encoders and the figures of analyses. Sentences
    of tasks are omitted, because their licences may forbid to pass them on.

    Args:
        report: The title and the content of the page, with the parts that could not be made and
            the notice of unverified results, which the template reads itself.
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
        figures=[_template_figure(result) for result in report.figures],
    )
    # Its pictures are in the page itself; images=True lets the page's security policy show them.
    return render_page(report.title, [body.removesuffix("\n")], images=True)


def _comparison_table(layout: Layout) -> dict[str, Any]:
    """Return what the HTML template reads of a comparison.

    Returns:
        ``layout`` -> the layout itself, for title and notes; ``heads`` -> the heads of the columns;
        ``rows`` -> the texts of each row, its label first.
    """
    # A layout has blocks of lines; a line has a label and a cell for each column.
    rows = [
        [line.label, *(cell.text for cell in line.cells)]
        for block in layout.blocks
        for line in block.lines
    ]
    return {"layout": layout, "heads": [layout.label_head, *layout.heads], "rows": rows}


def _template_figure(result: AnalysisResult) -> dict[str, Any]:
    """Return what the HTML template reads of an analysis.

    Args:
        result: The tables of the analysis, with its name, parameters, task and protocol.

    Returns:
        ``key`` -> the identifier of the figure in the page; ``title`` and ``caption`` -> texts;
        ``picture`` -> the picture as SVG in base64; ``tables`` -> its printed tables, each a dict.
        The caption is the analysis's own line on what it shows, ``about``, the task and protocol.
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
    """Yield the printed tables of an analysis, without the sentences of the task.

    A table without rows is omitted.

    Args:
        result: Has the tables.
        analysis: Says which tables are printed, and which of their columns are scores.

    Yields:
        ``name`` -> the table's name; ``n_rows`` -> its number of rows; ``heads`` -> the names of
        its columns; ``rows`` -> the texts of its first ``MAX_ROWS`` rows.
    """
    for name in analysis.printed:
        rows = [
            {key: value for key, value in row.items() if key not in SENTENCE_COLUMNS}
            for row in result.tables.get(name, [])
        ]
        score_columns = analysis.score_columns.get(name, ())
        # The columns of the table side_by_side are encoders, and hold sentences throughout.
        if rows and name != "side_by_side":
            yield {
                "name": name,
                "n_rows": len(rows),
                "heads": list(rows[0]),
                # Scores times 100 with two decimals, other floats with four.
                "rows": [row_texts(row, score_columns) for row in rows[:MAX_ROWS]],
            }
