"""Comparisons as text and as figures, tables as figures: dots with their 95% intervals."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stsbench.boards.render.data import csv_text
from stsbench.boards.render.text import to_latex, to_markdown
from stsbench.boards.tables.table import (
    STANDINGS,
    Layout,
    LayoutBlock,
    Row,
    Show,
    Shown,
    Table,
    TableColumn,
    TableLine,
    lay_out,
)
from stsbench.core.errors import DataError, ProtocolError, choose, visible
from stsbench.plots.draw import Dot, PanelDot, draw_dots, draw_panels
from stsbench.significance.comparison import Comparison, Difference, columns, notes_below, sentences, task_labels

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


WRITERS: Mapping[str, Callable[[Comparison], str]] = {
    "markdown": lambda comparison: to_markdown(comparison_layouts(comparison)),
    "latex": lambda comparison: to_latex(comparison_layouts(comparison)),
    "csv": lambda comparison: csv_text(comparison_records(comparison)),
    "json": lambda comparison: json.dumps(comparison_as_dict(comparison), indent=1, ensure_ascii=False) + "\n",
}


def render_comparison(comparison: Comparison, fmt: str) -> str:
    """A comparison in one of the formats that are text alone; control characters of names are written out.

    Markdown and LaTeX hold points, as tables do; CSV and JSON hold scores from 0 to 1, as results do.

    Raises:
        UnknownName: no such format.
    """
    return visible(choose("format", fmt, WRITERS)(comparison))


def comparison_as_dict(comparison: Comparison) -> dict[str, Any]:
    """All of a comparison as plain values."""
    return {**dataclasses.asdict(comparison), "sentences": sentences(comparison)}


def comparison_layouts(comparison: Comparison) -> list[Layout]:
    """A table for each pair of encoders with its sentence below, and below the last what the columns mean."""
    pairs = list(zip(comparison.pairs(), sentences(comparison), strict=True))
    return [
        _layout(first, second, columns(differences), [sentence, *(notes_below(comparison) if last else [])])
        for last, ((first, second, differences), sentence) in (
            (place == len(pairs), pair) for place, pair in enumerate(pairs, start=1)
        )
    ]


def _layout(first: str, second: str, cells: tuple[list[str], list[list[str]]], legend: list[str]) -> Layout:
    (_, *heads), rows = cells
    lines = [
        TableLine(
            label=task, marks="", side="measured", cells=[Shown(text) for text in texts], row=Row(label=task, cells={}),
            further=False,
        )
        for task, *texts in rows
    ]  # fmt: skip
    return Layout(
        show="measured",
        caption=f"A = {first}, B = {second}",
        label_head="task",
        columns=[TableColumn(key=head, head=head) for head in heads],
        heads=heads,
        blocks=[LayoutBlock(section="", title="", lines=lines)],
        legend=legend,
    )


def comparison_records(comparison: Comparison) -> list[dict[str, Any]]:
    """The lines of the CSV: one a difference."""
    return [_record(one) for one in comparison.differences]


def _record(one: Difference) -> dict[str, Any]:
    """A difference as a line of CSV."""
    low, high = one.interval or (None, None)
    return {
        "first": one.first,
        "second": one.second,
        "task": one.task,
        "tasks": " ".join(one.tasks),
        "split": one.split,
        "protocol": one.protocol["name"],
        "n": one.n,
        "seeds_first": one.seeds[0],
        "seeds_second": one.seeds[1],
        "score_first": one.scores[0],
        "score_second": one.scores[1],
        "difference": one.difference,
        "interval_low": low,
        "interval_high": high,
        "p": one.p,
        "p_williams": one.p_williams,
        "p_corrected": one.p_corrected,
        "real": one.real,
    }


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
        if (found := line.row.cell(column.key).number(line.side)) is not None
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
    parts = [f"{head} {found.text}" for head, found in made if found]
    return f" ({', '.join(parts)})" if parts else ""
