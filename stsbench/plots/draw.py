"""Charts of dots, of lines, and of training curves."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stsbench.core.wording import escape_controls
from stsbench.plots.labels import BAND, drawn_name, label_lines, legend_name
from stsbench.plots.panels import (
    Axes,
    Interval,
    check_not_empty,
    draw_legend,
    new_chart,
    new_panels,
    series_look,
)

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

WIDTH = 6.5
"""The width of a chart in inches."""
MARKER_SIZE = 5.5
"""The size of a dot in points."""


class DotPoint(NamedTuple):
    """One number of a chart of dots: its group, its series, and its interval, None if unknown.

    A dot that is not ``filled`` is drawn as a ring.
    """

    group: str
    series: str
    value: float
    interval: Interval | None = None
    filled: bool = True

    @classmethod
    def difference(cls, group: str, series: str, value: float, low: float, high: float) -> DotPoint:
        """Return a difference with its 95% interval: a ring if the interval contains 0."""
        excludes_zero = low > 0 or high < 0
        return cls(group, series, value, interval=(low, high), filled=excludes_zero)


LINE_HEIGHT, FRAME_HEIGHT = 0.2, 0.9
"""The height in inches of a dot's line in a chart of groups, and of axis and title."""


def draw_dots(
    dots: Sequence[DotPoint], *, x_label: str, title: str = "", has_zero_line: bool = False
) -> Chart:
    """Draw dots in groups, at most one for each group and series, in their order of appearance.

    Args:
        dots: The numbers.
        x_label: A description of the numbers.
        title: The title of the chart.
        has_zero_line: Whether a line is drawn at 0.

    Raises:
        DataError: There is nothing to draw; all functions that draw raise it.
        StsbenchError: Matplotlib is not installed.
    """
    check_not_empty(dots)
    groups = list(dict.fromkeys(dot.group for dot in dots))
    series = list(dict.fromkeys(dot.series for dot in dots))
    # All groups have the same number of lines: those of their dots, or of the longest name. On the
    # y axis, lines are counted from 0 at the top, and line i reaches from i - 1/2 to i + 1/2.
    name_lines = [label_lines(name).count("\n") + 1 for name in groups]
    lines_per_group = max(len(series) + 1, *name_lines)
    n_lines = len(groups) * lines_per_group
    # The dots of a group are in its middle.
    lines_above_dots = (lines_per_group - len(series)) / 2
    first_dot_lines = {
        name: index * lines_per_group + lines_above_dots for index, name in enumerate(groups)
    }
    group_middles = [(index + 0.5) * lines_per_group - 0.5 for index in range(len(groups))]
    with new_chart(WIDTH, FRAME_HEIGHT + LINE_HEIGHT * n_lines) as chart:
        axes = chart.add_subplot()
        _draw_bands(axes, len(groups), lines_per_group, has_zero_line=has_zero_line)
        axes.set_yticks(group_middles, [*map(label_lines, groups)])
        axes.set_ylim(n_lines - 0.5, -0.5)
        for series_index, name in enumerate(series):
            colour, marker = series_look(series_index)
            # Markers in the legend are filled, even if the first dot is not.
            shape = {"marker": marker, "markersize": MARKER_SIZE, "linestyle": "none"}
            axes.plot([], [], color=colour, label=legend_name(name), **shape)
            for dot in dots:
                if dot.series == name:
                    _draw_dot(
                        axes,
                        dot,
                        y=first_dot_lines[dot.group] + series_index,
                        dot_look=(colour, marker),
                        size=MARKER_SIZE,
                        width=1.5,
                    )
        axes.set_xlabel(x_label)
        axes.set_title(drawn_name(title), fontsize="medium", loc="left")
        if len(series) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return chart


def _draw_bands(axes: Axes, n_rows: int, lines_per_row: float = 1, *, has_zero_line: bool) -> None:
    """Draw a band behind every second row, from the top, vertical grid lines, and no ticks of rows.

    Args:
        axes: The axes, on whose y axis lines are counted from 0, line 0 from -1/2 to 1/2.
        n_rows: The number of rows.
        lines_per_row: The height of a row in lines.
        has_zero_line: Whether a line is drawn at 0 of the x axis.
    """
    for index in range(0, n_rows, 2):
        top = index * lines_per_row - 0.5
        axes.axhspan(top, top + lines_per_row, color=BAND, linewidth=0, zorder=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    if has_zero_line:
        axes.axvline(0, color="black", linewidth=0.8)


def _draw_dot(
    axes: Axes, dot: DotPoint, y: float, dot_look: tuple[str, str], size: float, width: float
) -> None:
    """Draw a dot, or a ring, and its interval along x.

    Args:
        axes: The axes.
        dot: The number.
        y: The place of the dot on the y axis.
        dot_look: The colour and the marker.
        size: The size of the dot in points.
        width: The width of the interval's line in points.
    """
    colour, marker = dot_look
    if dot.interval is not None:
        axes.hlines(y, *dot.interval, color=colour, linewidth=width)
    shape = {
        "marker": marker,
        "markersize": size,
        "markerfacecolor": colour if dot.filled else "white",
    }
    axes.plot([dot.value], [y], linestyle="none", color=colour, **shape)


LABELS_WIDTH, PANEL_WIDTH, ROW_HEIGHT, PANEL_FRAME = 2.2, 1.15, 0.19, 1.0
"""Sizes in inches: of row names beside panels, a panel, a row, and titles with axis."""
NOTE_HEIGHT, CHARACTERS_PER_INCH = 0.13, 15
"""The height of a line of notes in inches, and its characters per inch."""


def draw_panels(
    dots: Sequence[DotPoint],
    *,
    panel_titles: Mapping[str, str],
    row_labels: Mapping[str, str],
    x_label: str,
    title: str = "",
    notes: Sequence[str] = (),
    has_zero_line: bool = False,
) -> Chart:
    """Draw dots in panels that share their rows.

    Args:
        dots: The numbers: the series of each is its panel, the group its row.
        panel_titles: The titles of the panels by series.
        row_labels: The labels beside the panels by group, from the top.
        x_label: A description of the numbers.
        title: The title of the chart.
        notes: Notes below the panels.
        has_zero_line: Whether a line is drawn at 0.
    """
    check_not_empty(dots)
    width = LABELS_WIDTH + PANEL_WIDTH * len(panel_titles)
    characters_per_line = round(width * CHARACTERS_PER_INCH)
    note_lines: list[str] = []
    for note in notes:
        note_lines += textwrap.wrap(escape_controls(note), characters_per_line)
    height = PANEL_FRAME + ROW_HEIGHT * len(row_labels) + NOTE_HEIGHT * len(note_lines)
    with new_chart(width, height) as chart:
        all_axes = chart.subplots(1, len(panel_titles), sharey=True, squeeze=False)[0]
        row_indices = {row: index for index, row in enumerate(row_labels)}
        for axes, (panel, panel_title) in zip(all_axes, panel_titles.items(), strict=True):
            axes.set_title(drawn_name(panel_title), fontsize="small")
            _draw_bands(axes, len(row_labels), has_zero_line=has_zero_line)
            # Each panel is one series, so all dots have the look of the first.
            for dot in dots:
                if dot.series == panel:
                    row_index = row_indices[dot.group]
                    _draw_dot(axes, dot, row_index, series_look(0), size=4.5, width=1.2)
            axes.tick_params(axis="x", labelsize="x-small")
            axes.locator_params(axis="x", nbins=3)
        all_axes[0].set_yticks(range(len(row_labels)), [*map(drawn_name, row_labels.values())])
        all_axes[0].set_ylim(len(row_labels) - 0.5, -0.5)
        chart.supxlabel("\n".join([x_label, *note_lines]), fontsize="small")
        chart.suptitle(drawn_name(title), fontsize="medium")
    return chart


MAX_TICKED_SIZES, MAX_MARKED_POINTS = 12, 40
"""The maximum number of sizes with a tick each, and of points of a line with a dot each."""
Scale = Literal["linear", "log2", "log10", "log2p1"]
"""``log2p1`` includes 0: from 1 on it is a logarithm to base 2."""
SCALES: Mapping[str, Mapping[str, Any]] = {
    "log2": {"value": "log", "base": 2},
    "log10": {"value": "log", "base": 10},
    "log2p1": {"value": "symlog", "base": 2, "linthresh": 1},
}


class LinePoint(NamedTuple):
    """One number of a line: its series, its size, its interval (None if unknown), and its panel."""

    series: str
    size: float
    value: float
    interval: Interval | None = None
    panel: str = ""


def draw_lines(
    points: Sequence[LinePoint],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    x_scale: Scale = "linear",
    y_scale: Scale = "linear",
) -> Chart:
    """Draw one line per series in each panel, through the points in the order of their sizes.

    Series and panels have their order of appearance.

    Args:
        points: The numbers.
        x_label: A description of the sizes.
        y_label: A description of the numbers.
        title: The title of the chart.
        x_scale: The scale of the sizes.
        y_scale: The scale of the numbers.
    """
    check_not_empty(points)
    series = list(dict.fromkeys(point.series for point in points))
    panels = list(dict.fromkeys(point.panel for point in points))
    sizes = sorted({point.size for point in points})
    with new_panels(len(panels), single_size=(WIDTH, 4.0), panel_size=2.6, max_columns=3) as (
        chart,
        all_axes,
    ):
        for axes, panel in zip(all_axes, panels, strict=True):
            for index, name in enumerate(series):
                series_points = [
                    point for point in points if point.panel == panel and point.series == name
                ]
                series_points.sort(key=lambda point: point.size)
                if series_points:
                    _draw_series(axes, name, series_points, series_look(index))
            if x_scale in SCALES:
                axes.set_xscale(**SCALES[x_scale])
                axes.xaxis.set_major_formatter("{x:g}")
            if y_scale in SCALES:
                axes.set_yscale(**SCALES[y_scale])
                axes.yaxis.set_major_formatter("{x:g}")
            # A few sizes have a tick each; with more, matplotlib chooses the ticks.
            if len(sizes) <= MAX_TICKED_SIZES:
                rotation = 90 if len(sizes) > 8 else 0
                axes.set_xticks(sizes, [f"{size:g}" for size in sizes], rotation=rotation)
                axes.minorticks_off()
            axes.grid(axis="y")
            axes.set_title(drawn_name(panel), fontsize="small")
        chart.set_labels(title, x_label, y_label)
        if len(series) > 1:
            draw_legend(chart, all_axes)
    return chart


def _draw_series(
    axes: Axes, name: str, points: Sequence[LinePoint], series_look: tuple[str, str]
) -> None:
    """Draw a line through the points of a series, with an interval at each point that has one.

    Not all points of a long line have a marker.

    Args:
        axes: The axes.
        name: The name of the series, for the legend.
        points: The points, sorted by size.
        series_look: The colour and the marker.
    """
    colour, marker = series_look
    for point in points:
        if point.interval is not None:
            axes.vlines(point.size, *point.interval, color=colour, linewidth=1.5)
    marker_distance = max(1, len(points) // 8) if len(points) > MAX_MARKED_POINTS else 1
    shape = {
        "marker": marker,
        "markevery": marker_distance,
        "markersize": MARKER_SIZE,
        "color": colour,
        "linewidth": 1.2,
    }
    axes.plot(
        [point.size for point in points],
        [point.value for point in points],
        label=legend_name(name),
        **shape,
    )


class CurvePoint(NamedTuple):
    """One validation: the step, the score in points, and the mean loss since the previous one."""

    step: float
    score: float | None
    loss: float | None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The validations of one training run, and the step of its kept weights (None if unknown)."""

    name: str
    points: Sequence[CurvePoint]
    kept_step: float | None = None


CURVE_HEIGHT = 2.2
"""The height of a panel of training curves, in inches."""


def draw_curves(curves: Sequence[Curve], *, score_label: str) -> Chart:
    """Draw development scores above losses, with a ring at the kept step of each run.

    Args:
        curves: The runs.
        score_label: A description of the scores.
    """
    points = [point for curve in curves for point in curve.points]
    check_not_empty(
        points, problem="there is no curve to draw: nothing was validated while it was trained"
    )
    label_by_field = {"score": score_label}
    if any(point.loss is not None for point in points):
        label_by_field["loss"] = "loss"
    with new_chart(WIDTH, CURVE_HEIGHT * len(label_by_field) + 0.4) as chart:
        all_axes = chart.subplots(len(label_by_field), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (field_name, label) in zip(all_axes, label_by_field.items(), strict=True):
            for index, curve in enumerate(curves):
                _draw_curve(axes, curve, field_name, series_look(index))
            axes.grid(axis="both")
            axes.set_ylabel(label)
        all_axes[-1].set_xlabel("step")
        if len(curves) > 1:
            all_axes[0].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return chart


def _draw_curve(axes: Axes, curve: Curve, field_name: str, curve_look: tuple[str, str]) -> None:
    """Draw one field of a run's validations, with a ring at the kept step.

    Args:
        axes: The axes.
        curve: The run.
        field_name: ``score`` or ``loss``; a validation without it is no point.
        curve_look: The colour and the marker.
    """
    value_by_step = {}
    for point in curve.points:
        value = getattr(point, field_name)
        if value is not None:
            value_by_step[point.step] = value
    colour, marker = curve_look
    axes.plot(
        list(value_by_step),
        list(value_by_step.values()),
        label=legend_name(curve.name),
        marker=marker,
        markersize=3,
        linewidth=1.2,
        color=colour,
    )
    if curve.kept_step in value_by_step:
        axes.plot(
            [curve.kept_step],
            [value_by_step[curve.kept_step]],
            marker="o",
            markersize=9,
            markerfacecolor="none",
            color=colour,
        )
