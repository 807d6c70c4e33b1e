"""One cell of a table in HTML: its number, its mark, its deviation or the bar of its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from statistics import quantiles
from typing import NamedTuple

from stsbench.leaderboard.tables.layout import BEST, NONE, SECOND, Layout, Shown, TableLine, number
from stsbench.leaderboard.tables.table import STANDINGS, Number, TableColumn

RANKED = {BEST: "b", SECOND: "u"}
LEAST_SPAN = 10.0
"""Points that a column's scale spans at least: a lone narrow interval looks narrow."""
MEANS = ("average", "exact")
"""The kinds of column that stay in sight when a table is scrolled."""
MEASURED = ("task", *MEANS)
"""The kinds of column whose intervals are bars."""


class BarScale(NamedTuple):
    """What the bars of a column span, in points: their two ends."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Where a value lies, in percent; below 0 and above 100 it is off the scale."""
        return 100 * (value - self.low) / (self.high - self.low)

    def holds(self, value: float) -> bool:
        """Whether a value is on the scale."""
        return self.low <= value <= self.high


class Frame(NamedTuple):
    """What all rows of a table share.

    ``notes`` holds for each mark the number of the first legend line that explains it.
    """

    identity: str
    columns: Sequence[TableColumn]
    scales: Mapping[str, BarScale]
    notes: Mapping[str, int]


def bar_scales(layout: Layout) -> dict[str, BarScale]:
    """The scale of each column that has intervals."""
    found = {column.key: _with_intervals(layout, column) for column in layout.columns if column.kind in MEASURED}
    return {key: _scale(numbers) for key, numbers in found.items() if numbers}


def has_outliers(layout: Layout, scales: Mapping[str, BarScale]) -> bool:
    """Whether any score is off its column's scale."""
    return any(
        not scales[column.key].holds(one.value)
        for column in layout.columns
        if column.key in scales
        for one in _with_intervals(layout, column)
    )


def _with_intervals(layout: Layout, column: TableColumn) -> list[Number]:
    lines = (line for block in layout.blocks for line in block.lines)
    found = (number(line.row.cell(column.key), line.side) for line in lines)
    return [one for one in found if one and one.interval]


def _scale(numbers: Sequence[Number]) -> BarScale:
    """From the lowest to the highest end of an interval, without the scores that lie far outside the quartiles.

    Far is one and a half times the distance of the quartiles (Tukey 1977, section 2C), and half the least span at least.
    """
    values = [one.value for one in numbers]
    first, _, third = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    reach = max(1.5 * (third - first), LEAST_SPAN / 2)
    ends = [end for one in numbers if first - reach <= one.value <= third + reach for end in one.interval or ()]
    low, high = min(ends), max(ends)
    spare = max(0.0, LEAST_SPAN - (high - low)) / 2
    return BarScale(low - spare, high + spare)


def cell_html(line: TableLine, column: TableColumn, cell: Shown, frame: Frame) -> str:
    """One cell of a line."""
    text, tag = escape(cell.text), RANKED.get(cell.rank)
    shown = f"<{tag}>{text}</{tag}>" if tag else text
    one = line.row.cell(column.key)
    mark = mark_html(cell.mark, frame, one.misprint) if cell.mark else ""
    deviation = f'<small class="dev">{escape(cell.deviation)}</small>' if cell.deviation else ""
    bar = _bar(number(one, line.side), frame.scales.get(column.key))
    return f"<td{_attributes(cell.text, column)}>{shown}{mark}{deviation}{bar}</td>"


def _attributes(text: str, column: TableColumn) -> str:
    """The classes of a cell, and how many signs a number lacks of its column's decimals: points stand under points."""
    _, point, digits = text.partition(".")
    missing = column.decimals - len(digits) + (not point)
    short = missing > 0 and text != NONE and column.kind not in STANDINGS
    classes = ["mean"] * (column.kind in MEANS) + ["less"] * short
    named = f' class="{" ".join(classes)}"' if classes else ""
    return f'{named} style="--less:{missing}"' if short else named


def mark_html(mark: str, frame: Frame, reason: str = "") -> str:
    """A mark that leads to its note; a reason of its own is its tooltip."""
    title = f' title="{escape(reason)}"' if reason else ""
    return f'<a class="mark" href="#{frame.identity}-note{frame.notes[mark]}"{title}>{mark}</a>'


def _bar(one: Number | None, scale: BarScale | None) -> str:
    """The interval as a bar, open where it leaves the scale; an arrow where the score itself is off it."""
    if one is None or one.interval is None or scale is None:
        return ""
    low, high = one.interval
    states = {
        "low": low < scale.low,
        "high": high > scale.high,
        "under": one.value < scale.low,
        "over": one.value > scale.high,
    }
    classes = " ".join(["ci", *(name for name, there in states.items() if there)])
    seeds = f", over items and {one.seeds} seeds" if one.seeds > 1 else ""
    said = f"95% interval {low:.2f} to {high:.2f}{seeds}" + ("" if scale.holds(one.value) else ", off the scale")
    a, m, b = (min(100.0, max(0.0, scale.place(value))) for value in (low, one.value, high))
    style = f"--a:{a:.1f};--b:{b:.1f};--m:{m:.1f}"
    ends = f'data-low="{low:.2f}" data-high="{high:.2f}"'
    return f'<i class="{classes}" role="img" title="{said}" {ends} style="{style}"></i>'
