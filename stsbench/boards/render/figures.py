"""Comparisons as text and figures, and tables as figures: dots with their 95% intervals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from stsbench.boards.render.text import records_to_csv, to_latex, to_markdown
from stsbench.boards.tables.layout import (
    DisplayCell,
    Layout,
    LayoutBlock,
    TableLine,
    build_layout,
    group_by_section,
)
from stsbench.boards.tables.table import STANDING_KINDS, Show, Table, TableColumn
from stsbench.core.errors import DataError, ProtocolError, look_up
from stsbench.core.wording import escape_controls
from stsbench.plots.draw import DotPoint, draw_dots, draw_panels
from stsbench.significance.comparison_record import Comparison, Difference
from stsbench.significance.descriptions import (
    describe_comparison,
    describe_notes,
    difference_columns,
    label_tasks,
)

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


PANEL_KINDS = ("task", "average", "exact")
"""The kinds of columns that become panels of a figure."""
RECORD_COLUMNS = (
    "first second task tasks split protocol n seeds_first seeds_second score_first score_second "
    "difference interval_low interval_high error df seed_error seed_df p method p_corrected real "
    "smallest_detectable margin_verdict required_items required_seeds signature"
).split()
"""The columns of the CSV of a comparison."""


def _use_titles(comparison: Comparison) -> Comparison:
    """Return a copy whose differences have the titles of tasks in place of their names."""
    differences = [
        replace(difference, task=comparison.titles.get(difference.task, difference.task))
        for difference in comparison.differences
    ]
    return replace(comparison, differences=differences)


def _comparison_to_json(comparison: Comparison) -> str:
    """Return a comparison of encoders as JSON: all its fields, and sentences that sum it up.

    Each difference has its signature, a text that names how its scores were measured.
    """
    fields = {**asdict(comparison), "sentences": describe_comparison(comparison)}
    differences = zip(fields["differences"], comparison.differences, strict=True)
    for difference_fields, difference in differences:
        # The signature says the same as this field, in one text.
        del difference_fields["compared"]
        # The p-value is the larger one by both errors; the interval is by ``error``.
        del difference_fields["other_error"]
        difference_fields["signature"] = difference.signature
    return json.dumps(fields, indent=1, ensure_ascii=False) + "\n"


def make_comparison_layouts(comparison: Comparison) -> list[Layout]:
    """Return a table for each pair of encoders, ready to be printed.

    A table has a line for each task. Below it is a sentence that sums it up. Below the last table
    are notes on what the columns mean.
    """
    layouts: list[Layout] = []
    pairs = list(comparison.pairs())
    # One text for each pair, in the same order.
    sentences = describe_comparison(comparison)
    for index, (first, second, differences) in enumerate(pairs):
        # The first column is the task, which is the label of a line.
        all_heads, rows = difference_columns(differences, comparison.level)
        lines = [
            TableLine(label=task, cells=[DisplayCell(text) for text in texts])
            for task, *texts in rows
        ]
        is_last = index == len(pairs) - 1
        layout = Layout(
            caption=f"A = {first}, B = {second}",
            label_head="task",
            heads=all_heads[1:],
            blocks=[LayoutBlock(lines=lines)],
            legend=[sentences[index], *(describe_notes(comparison) if is_last else [])],
        )
        layouts.append(layout)
    return layouts


def make_comparison_records(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the lines of the CSV: one record for each difference."""
    return [_difference_record(difference) for difference in comparison.differences]


def _difference_record(difference: Difference) -> dict[str, Any]:
    """Return the difference of two encoders' scores as a line of a table: column -> value.

    Scores, differences, errors and intervals are on the scale of scores, not in points.
    """
    # The number of training seeds of each encoder.
    seeds_first, seeds_second = difference.seeds
    score_first, score_second = difference.scores
    low, high = difference.interval or (None, None)
    # The columns that are no attributes of a difference; all others of RECORD_COLUMNS are.
    values = {
        "tasks": " ".join(difference.tasks),
        "protocol": difference.protocol["name"],
        "seeds_first": seeds_first,
        "seeds_second": seeds_second,
        "score_first": score_first,
        "score_second": score_second,
        "interval_low": low,
        "interval_high": high,
    }
    return {
        column: values[column] if column in values else getattr(difference, column)
        for column in RECORD_COLUMNS
    }


WRITERS: Mapping[str, Callable[[Comparison], str]] = {
    "markdown": lambda comparison: to_markdown(make_comparison_layouts(comparison)),
    "latex": lambda comparison: to_latex(make_comparison_layouts(_use_titles(comparison))),
    "csv": lambda comparison: records_to_csv(make_comparison_records(comparison)),
    "json": _comparison_to_json,
}


def render_comparison(comparison: Comparison, fmt: str) -> str:
    """Return a comparison of encoders as text, with control characters in names escaped.

    Args:
        comparison: The differences between the scores of encoders.
        fmt: ``markdown`` or ``latex``, which have scores in points, as tables do; or ``csv`` or
            ``json``, which have scores from -1 to 1, as results do.

    Raises:
        UnknownName: There is no such format.
    """
    write_comparison = look_up("format", fmt, WRITERS)
    return escape_controls(write_comparison(comparison))


def draw_comparison(comparison: Comparison) -> Chart:
    """Draw the differences between encoders, in points, with their 95% intervals: a row per task.

    A dot is a significant difference, and a ring one that is not.

    Args:
        comparison: The differences; those without an interval are left out.

    Raises:
        DataError: No paired test is known for any of the results.
        StsbenchError: matplotlib is not installed.
    """
    # The differences have the titles of tasks in place of their names.
    comparison = _use_titles(comparison)
    label = label_tasks(comparison.differences)
    dots = []
    for difference in comparison.differences:
        if difference.interval is None:
            continue
        low, high = difference.interval
        dot = DotPoint(
            group=label(difference),
            series=f"{difference.second} - {difference.first}",
            value=100 * difference.difference,
            interval=(100 * low, 100 * high),
            filled=difference.real,
        )
        dots.append(dot)
    if not dots:
        raise DataError(
            "there is no interval to draw: no paired test is known for any of these results"
        )
    return draw_dots(
        dots,
        x_label="difference × 100, with its 95% interval; ○ not significant",
        title=dots[0].series if len(comparison.encoders) == 2 else "",
        has_zero_line=True,
    )


def draw_table(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> Chart:
    """Draw a table of scores: a panel for each column of a task or average, a dot for each row.

    A dot is a measured number or a difference, a ring a published number.

    Args:
        tables: The table, in a list of its own.
        show: ``published``, ``measured``, ``both`` or ``merged`` numbers, or ``difference``. None
            is ``merged`` for a board of ours, and ``both`` for a paper's table.
        exact: Show exact averages instead of those rounded as in the paper.

    Raises:
        ProtocolError: There are several tables, which are scored in different ways.
        DataError: There is nothing to draw.
        StsbenchError: matplotlib is not installed.
    """
    if len(tables) > 1:
        captions = " and ".join(f"'{table.caption}'" for table in tables)
        raise ProtocolError(
            f"one figure shows one table, here are {len(tables)}: {captions}; "
            "choose one by its protocol"
        )
    layout = build_layout(tables[0], show, exact=exact, intervals="none")
    # Published and measured numbers share a row. Differences are shown only if they are asked for.
    lines = [
        line
        for block in layout.blocks
        for line in block.lines
        if line.number_kind != "difference" or show == "difference"
    ]
    dots = list(_make_dots(lines, layout.columns))
    # Each sign, and whether it is drawn: only then it is explained.
    is_drawn = {
        "● measured": any(dot.filled for dot in dots),
        "○ published": not all(dot.filled for dot in dots),
        "— 95% interval": any(dot.interval for dot in dots),
    }
    x_label = "   ".join(sign for sign, drawn in is_drawn.items() if drawn)
    if show == "difference":
        x_label = "measured minus published"
    group_titles = {}  # First row of a group -> its title.
    for section, block in group_by_section(layout.blocks):
        group_title = ": ".join(filter(None, (section, block.title)))
        if group_title:
            group_titles[_row_key(block.lines[0])] = group_title
    return draw_panels(
        dots,
        group_titles=group_titles,
        panel_titles={
            column.key: head
            for column, head in zip(layout.columns, layout.heads, strict=True)
            if column.kind in PANEL_KINDS
        },
        row_labels={
            _row_key(line): _row_label(line, layout) for line in lines if not line.continues_row
        },
        x_label=x_label,
        title=layout.caption,
        notes=_figure_notes(layout),
        has_zero_line=show == "difference",
    )


def _figure_notes(layout: Layout) -> list[str]:
    """Return the notes below a figure of a printed table: those on what the figure shows.

    A figure has scores alone. Columns of facts, such as the size of an encoder, are only in tables:
    the last note names them, and notes that explain them, "HEAD: …", are left out.
    """
    omitted_heads = [
        head
        for column, head in zip(layout.columns, layout.heads, strict=True)
        if column.kind not in (*PANEL_KINDS, *STANDING_KINDS)
    ]
    explanations = tuple(f"{head}: " for head in omitted_heads)
    # A figure has the reason of an AdvisingNote, and not its advice.
    notes = [
        getattr(note, "reason", note) for note in layout.legend if not note.startswith(explanations)
    ]
    if omitted_heads:
        notes.append(f"only in tables: {', '.join(omitted_heads)}")
    return notes


def _make_dots(lines: Sequence[TableLine], columns: Sequence[TableColumn]) -> Iterator[DotPoint]:
    """Yield a dot for each number in a table. Its ``group`` is the row, its ``series`` the column.

    Args:
        lines: The printed lines. Each has the ``row`` of the table that it is of, and the kind of
            the row's numbers that it shows (``number_kind``: ``measured``, ``published`` ...).
        columns: The printed columns. Those of tasks and averages (``PANEL_KINDS``) become panels.
    """
    for line in lines:
        for column, cell in zip(columns, line.cells, strict=True):
            number = line.row.cell(column.key).number(line.number_kind)
            if number is not None and column.kind in PANEL_KINDS:
                yield DotPoint(
                    group=_row_key(line),
                    series=column.key,
                    value=number.value,
                    interval=number.interval,
                    filled=line.number_kind != "published",
                    symbol=cell.symbol,
                )


def _row_key(line: TableLine) -> str:
    """Return the same key for all lines of a row, and another for each row."""
    return str(id(line.row))


def _row_label(line: TableLine, layout: Layout) -> str:
    """Return the label of a row of a figure, with the row's rank and letters in brackets.

    Letters say which rows do not differ significantly. Ranks and letters are columns of the table,
    but no panels of the figure.

    Args:
        line: A printed line of the row.
        layout: The printed table.
    """
    standings = []
    for column in layout.columns:
        # The rank or the letters of the row; None if it has none.
        number = line.row.cell(column.key).measured
        if column.kind in STANDING_KINDS and number is not None:
            standings.append(f"{column.head} {number.text}")
    suffix = f" ({', '.join(standings)})" if standings else ""
    return line.label + line.symbols + suffix
