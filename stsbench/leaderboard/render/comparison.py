"""A comparison of encoders as text: markdown and LaTeX as tables are, CSV with a line for each difference, JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from stsbench.compare.comparison import Comparison, Difference
from stsbench.compare.sentences import columns, notes_below, sentences
from stsbench.errors import choose, visible
from stsbench.leaderboard.render.data import csv_text
from stsbench.leaderboard.render.latex import layouts_to_latex
from stsbench.leaderboard.render.markdown import layouts_to_markdown
from stsbench.leaderboard.tables.layout import Layout, LayoutBlock, Shown, TableLine
from stsbench.leaderboard.tables.table import Row, TableColumn

WRITERS: Mapping[str, Callable[[Comparison], str]] = {
    "markdown": lambda comparison: layouts_to_markdown(comparison_layouts(comparison)),
    "latex": lambda comparison: layouts_to_latex(comparison_layouts(comparison)),
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
