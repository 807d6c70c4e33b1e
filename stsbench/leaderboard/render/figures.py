"""Comparisons and tables as figures: dots with their 95% intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stsbench.compare.comparison import Comparison
from stsbench.compare.sentences import task_labels
from stsbench.errors import DataError, ProtocolError
from stsbench.leaderboard.tables.layout import Layout, Show, lay_out, number
from stsbench.leaderboard.tables.table import STANDINGS, Row, Table
from stsbench.plots.dots import Dot, draw_dots
from stsbench.plots.panels import PanelDot, draw_panels

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

DRAWN = ("task", "average", "exact")
"""The kinds of columns that hold scores."""


def comparison_figure(comparison: Comparison) -> Chart:
    """Each difference by task; a ring is one that is not significant.

    Raises:
        DataError: no paired test is known for any. StsbenchError: matplotlib is not installed.
    """
    labels = task_labels(comparison.differences)
    dots = [
        Dot(
            group=labels[one.task, one.split],
            series=f"{one.second} - {one.first}",
            value=100 * one.difference,
            interval=(100 * one.interval[0], 100 * one.interval[1]),
            filled=one.real,
        )
        for one in comparison.differences
        if one.interval is not None
    ]
    if not dots:
        raise DataError("there is no interval to draw: no paired test is known for any of these results")
    title = dots[0].series if len(comparison.encoders) == 2 else ""
    return draw_dots(dots, axis="difference × 100, with its 95% interval; ○ not significant", title=title, zero=True)


def table_figure(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> Chart:
    """One table with a panel a column: a dot is a measured number or a difference, a ring a published number.

    Raises:
        ProtocolError: there are several tables, which are scored in different ways.
        DataError: there is nothing to draw. StsbenchError: matplotlib is not installed.
    """
    if len(tables) > 1:
        captions = " and ".join(f"'{table.caption}'" for table in tables)
        raise ProtocolError(
            f"one figure shows one table, here are {len(tables)}: {captions}; choose one by its protocol"
        )
    layout = lay_out(tables[0], show, exact=exact, ends=False)
    columns = [column for column in layout.columns if column.kind in DRAWN]
    # Published and measured numbers of a row stand in one line.
    lines = [line for block in layout.blocks for line in block.lines if line.side != "difference" or show == line.side]
    rows = {id(line.row): line.label + line.marks + _standing(line.row, layout) for line in lines if not line.further}
    places = {row: place for place, row in enumerate(rows)}
    dots = [
        PanelDot(panel, places[id(line.row)], found.value, found.interval, filled=line.side != "published")
        for line in lines
        if id(line.row) in places
        for panel, column in enumerate(columns)
        if (found := number(line.row.cell(column.key), line.side)) is not None
    ]
    what = "measured minus published" if show == "difference" else "● measured   ○ published   — 95% interval"
    return draw_panels(
        dots,
        panels=[column.head for column in columns],
        rows=list(rows.values()),
        axis=what,
        title=layout.caption,
        notes=layout.legend,
        zero=show == "difference",
    )


def _standing(row: Row, layout: Layout) -> str:
    """A row's rank and letters, which no panel shows; nothing where they were not asked for."""
    made = [(column.head, row.cell(column.key).measured) for column in layout.columns if column.kind in STANDINGS]
    told = [f"{head} {found.text}" for head, found in made if found]
    return f" ({', '.join(told)})" if told else ""
