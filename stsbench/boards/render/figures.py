"""Comparisons as text and as figures, tables as figures: dots with their 95% intervals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stsbench.boards.render.text import csv_text, to_latex, to_markdown
from stsbench.boards.tables.layout import DisplayCell, Layout, LayoutBlock, TableLine, build_layout
from stsbench.boards.tables.table import STANDING_KINDS, Show, Table
from stsbench.core.errors import DataError, ProtocolError, look_up
from stsbench.core.wording import escape_controls
from stsbench.plots.draw import DotPoint, draw_dots, draw_panels
from stsbench.significance.comparison import (
    Comparison,
    describe_comparison,
    describe_notes,
    difference_columns,
    label_tasks,
)

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


WRITERS: Mapping[str, Callable[[Comparison], str]] = {
    "markdown": lambda comparison: to_markdown(comparison_layouts(comparison)),
    "latex": lambda comparison: to_latex(comparison_layouts(comparison)),
    "csv": lambda comparison: csv_text(comparison_records(comparison)),
    "json": lambda comparison: (
        json.dumps(
            {**asdict(comparison), "sentences": describe_comparison(comparison)},
            indent=1,
            ensure_ascii=False,
        )
        + "\n"
    ),
}


def render_comparison(comparison: Comparison, fmt: str) -> str:
    """A comparison in one of the formats that are text alone; control characters of names are written out.

    Markdown and LaTeX hold points, as tables do; CSV and JSON hold scores from 0 to 1, as results do.

    Raises:
        UnknownName: no such format.
    """
    return escape_controls(look_up("format", fmt, WRITERS)(comparison))


def comparison_layouts(comparison: Comparison) -> list[Layout]:
    """A table for each pair of encoders with its sentence below, and below the last what the columns mean."""
    made: list[Layout] = []
    pairs = list(comparison.pairs())
    for (first, second, differences), sentence in zip(
        pairs, describe_comparison(comparison), strict=True
    ):
        (_, *heads), rows = difference_columns(differences)
        lines = [
            TableLine(label=task, cells=[DisplayCell(text) for text in texts])
            for task, *texts in rows
        ]
        legend = [sentence, *(describe_notes(comparison) if len(made) == len(pairs) - 1 else [])]
        caption, blocks = f"A = {first}, B = {second}", [LayoutBlock(lines=lines)]
        made.append(
            Layout(caption=caption, label_head="task", heads=heads, blocks=blocks, legend=legend)
        )
    return made


def comparison_records(comparison: Comparison) -> list[dict[str, Any]]:
    """The lines of the CSV: one a difference."""
    return [
        {
            **{name: getattr(one, name) for name in ("first", "second", "task")},
            "tasks": " ".join(one.tasks),
            "split": one.split,
            "protocol": one.protocol["name"],
            "n": one.n,
            **dict(zip(("seeds_first", "seeds_second"), one.seeds, strict=True)),
            **dict(zip(("score_first", "score_second"), one.scores, strict=True)),
            "difference": one.difference,
            **dict(
                zip(("interval_low", "interval_high"), one.interval or (None, None), strict=True)
            ),
            **{name: getattr(one, name) for name in ("p", "p_williams", "p_corrected", "real")},
        }
        for one in comparison.differences
    ]


def comparison_figure(comparison: Comparison) -> Chart:
    """Each difference by task; a ring is one that is not significant.

    Raises:
        DataError: no paired test is known for any. StsbenchError: matplotlib is not installed.
    """
    labels, dots = label_tasks(comparison.differences), []
    for one in comparison.differences:
        if one.interval is not None:
            group, series, ends = (
                labels[one.task, one.split],
                f"{one.second} - {one.first}",
                one.interval,
            )
            interval = 100 * ends[0], 100 * ends[1]
            dots.append(
                DotPoint(
                    group=group,
                    series=series,
                    value=100 * one.difference,
                    interval=interval,
                    filled=one.real,
                )
            )
    if not dots:
        raise DataError(
            "there is no interval to draw: no paired test is known for any of these results"
        )
    title = dots[0].series if len(comparison.encoders) == 2 else ""
    return draw_dots(
        dots,
        x_label="difference × 100, with its 95% interval; ○ not significant",
        title=title,
        has_zero_line=True,
    )


def table_figure(
    tables: Sequence[Table], show: Show | None = None, *, exact: bool = False
) -> Chart:
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
    layout = build_layout(tables[0], show, exact=exact, with_intervals=False)
    drawn = [column for column in layout.columns if column.kind in ("task", "average", "exact")]
    standings = [column for column in layout.columns if column.kind in STANDING_KINDS]
    # Published and measured numbers of a row stand in one line, which says the rank and letters that no panel shows.
    lines = [
        line
        for block in layout.blocks
        for line in block.lines
        if line.number_kind != "difference" or show == line.number_kind
    ]
    rows = {}
    for line in lines:
        if not line.continues_row:
            made = ((column.head, line.row.cell(column.key).measured) for column in standings)
            stands = ", ".join(f"{head} {found.text}" for head, found in made if found)
            rows[str(id(line.row))] = line.label + line.symbols + (f" ({stands})" if stands else "")
    dots = [
        DotPoint(
            str(id(line.row)),
            column.key,
            found.value,
            found.interval,
            filled=line.number_kind != "published",
        )
        for line in lines
        for column in drawn
        if (found := line.row.cell(column.key).number(line.number_kind)) is not None
    ]
    what = (
        "measured minus published"
        if show == "difference"
        else "● measured   ○ published   — 95% interval"
    )
    return draw_panels(
        dots,
        panel_titles={column.key: column.head for column in drawn},
        row_labels=rows,
        x_label=what,
        title=layout.caption,
        notes=layout.legend,
        has_zero_line=show == "difference",
    )
