"""Charts of dots, of lines, and of training curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stsbench.core.wording import escape_controls
from stsbench.plots.labels import (
    BAND_COLOUR,
    LINE_HEIGHT,
    TEXT_SIZE,
    axis_label,
    current_width,
    legend_name,
    printable_name,
    text_width,
    wrap_text,
)
from stsbench.plots.panels import (
    Axes,
    Interval,
    check_not_empty,
    colour_and_marker,
    legend_artists,
    new_chart,
    new_panels,
)

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

MARKER_SIZE = 4
"""The size of a dot in points."""
DOT_HEIGHT = 0.09
"""The height of a dot's line in inches."""
FRAME_HEIGHT = 0.25
"""The height of the ticks of an axis, with their labels, in inches."""


class DotPoint(NamedTuple):
    """One number of a chart of dots: its group, its series, and its interval, None if unknown.

    A dot that is not ``filled`` is drawn as a ring. The ``symbol`` stands beside it.
    """

    group: str
    series: str
    value: float
    interval: Interval | None = None
    filled: bool = True
    symbol: str = ""

    @classmethod
    def difference(cls, group: str, series: str, value: float, low: float, high: float) -> DotPoint:
        """Return a difference with its 95% interval: a ring if the interval contains 0."""
        excludes_zero = low > 0 or high < 0
        return cls(group, series, value, interval=(low, high), filled=excludes_zero)


def draw_dots(
    dots: Sequence[DotPoint], *, x_label: str, title: str = "", has_zero_line: bool = False
) -> Chart:
    """Draw numbers as dots along x: one row per group, and one colour and marker per series.

    A dot has the attributes ``group``, ``series`` and ``value``, and ``interval``, which may be
    None. A group has at most one dot of each series. Groups, from the top, and series are in the
    order of their first dot.

    Args:
        dots: The numbers.
        x_label: A description of the numbers.
        title: The title of the chart.
        has_zero_line: Whether a line is drawn at 0.

    Returns:
        The chart, a matplotlib figure.

    Raises:
        DataError: There are no dots.
        StsbenchError: Matplotlib is not installed.
    """
    check_not_empty(dots)
    groups = list(dict.fromkeys(dot.group for dot in dots))
    series_names = list(dict.fromkeys(dot.series for dot in dots))
    labels = [*map(axis_label, groups)]
    # The height of each group in inches: enough for its dots and for the lines of its label.
    heights = [
        max(DOT_HEIGHT * len(series_names), LINE_HEIGHT * (label.count("\n") + 1)) + DOT_HEIGHT
        for label in labels
    ]
    with new_chart(FRAME_HEIGHT + sum(heights)) as chart:
        axes = chart.add_subplot()
        # The y axis is in inches from the top.
        middles = _draw_bands(axes, heights, labels, has_zero_line=has_zero_line)
        for series_index, series_name in enumerate(series_names):
            colour, marker = colour_and_marker(series_index)
            # This draws no dot, only the entry of the legend, which is filled even if the first
            # dot is a ring.
            axes.plot(
                [],
                [],
                color=colour,
                label=legend_name(series_name),
                marker=marker,
                markersize=MARKER_SIZE,
                linestyle="none",
            )
            # The dots of a group lie below each other, around its middle.
            from_middle = DOT_HEIGHT * (series_index - (len(series_names) - 1) / 2)
            for dot in dots:
                if dot.series == series_name:
                    y = middles[groups.index(dot.group)] + from_middle
                    _draw_dot(axes, dot, y, (colour, marker))
        legend = legend_artists([axes]) if len(series_names) > 1 else []
        chart.add_texts(title, x_label, legend=legend)
    return chart


def _draw_bands(
    axes: Axes, heights: Sequence[float], labels: Sequence[str], *, has_zero_line: bool
) -> list[float]:
    """Draw the background of rows: labels, grid lines and a grey band behind every second row.

    Args:
        axes: The matplotlib axes of the panel. Its y axis is set to the unit of the heights, with 0
            at the top.
        heights: The height of each row, from the top.
        labels: The label of each row, drawn beside it.
        has_zero_line: Whether a vertical line is drawn at 0 of the x axis.

    Returns:
        The middle of each row on the y axis.
    """
    ends = list(accumulate(heights))
    middles = [end - height / 2 for end, height in zip(ends, heights, strict=True)]
    for end, height in list(zip(ends, heights, strict=True))[::2]:
        # With zorder 0 the band lies behind everything else.
        axes.axhspan(end - height, end, color=BAND_COLOUR, linewidth=0, zorder=0)
    axes.set_yticks(middles, labels)
    axes.set_ylim(ends[-1], 0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    if has_zero_line:
        axes.axvline(0, color="black", linewidth=0.8)
    return middles


def _draw_dot(axes: Axes, dot: DotPoint, y: float, dot_look: tuple[str, str]) -> None:
    """Draw a number as a dot, or a ring, and its interval as a horizontal line.

    Args:
        axes: The matplotlib axes of the panel.
        dot: The number ``value``; its ``interval`` (lower and upper end, None if unknown);
            ``filled``, which is False for a ring; and its ``symbol``, which may be empty.
        y: The position of the dot on the y axis.
        dot_look: The colour, and matplotlib's code of the marker, such as ``"o"``.
    """
    colour, marker = dot_look
    if dot.interval is not None:
        axes.hlines(y, *dot.interval, color=colour, linewidth=1.2)
    axes.plot(
        [dot.value],
        [y],
        linestyle="none",
        color=colour,
        marker=marker,
        markersize=MARKER_SIZE,
        markerfacecolor=colour if dot.filled else "white",
    )
    if dot.symbol:
        axes.annotate(dot.symbol, (dot.value, y), (2, 0), textcoords="offset points")


MIN_PANEL_WIDTH = 0.55
"""The minimum width of a panel of dots, in inches."""


def draw_panels(
    dots: Sequence[DotPoint],
    *,
    panel_titles: Mapping[str, str],
    row_labels: Mapping[str, str],
    x_label: str,
    title: str = "",
    notes: Sequence[str] = (),
    group_titles: Mapping[str, str] = {},
    has_zero_line: bool = False,
) -> Chart:
    """Draw numbers as dots in panels that have the same rows, in one or more lines of panels.

    Args:
        dots: The numbers. The ``series`` of a dot names its panel, and its ``group`` its row.
        panel_titles: Series -> title of its panel.
        row_labels: Group -> label beside its row, from the top.
        x_label: A description of the numbers.
        title: The title of the chart.
        notes: Lines of text below the panels.
        group_titles: Bold titles over groups of rows: first row of the group -> title.
        has_zero_line: Whether a line is drawn at 0.
    """
    check_not_empty(dots)
    # The label of each row, in lines. A title is a row without dots: no dot's group is its key.
    labels: dict[str, str] = {}
    for row, label in row_labels.items():
        if row in group_titles:
            labels[f"title of {row}"] = axis_label(group_titles[row])
        labels[row] = axis_label(label)
    # All sizes are in inches.
    heights = [LINE_HEIGHT * (label.count("\n") + 1) + 0.03 for label in labels.values()]
    width_of_panels = current_width() - text_width("\n".join(labels.values()))
    # The titles of panels, broken wherever they can be.
    narrow_titles = wrap_text(" ".join(panel_titles.values()), 0)
    min_width = max(MIN_PANEL_WIDTH, text_width(narrow_titles) + 0.1)
    n_fitting = max(1, int(width_of_panels / min_width))
    n_panel_lines = math.ceil(len(panel_titles) / n_fitting)
    n_columns = math.ceil(len(panel_titles) / n_panel_lines)
    row_indices = {row: index for index, row in enumerate(labels)}
    with new_chart(n_panel_lines * (sum(heights) + FRAME_HEIGHT + 2 * LINE_HEIGHT)) as chart:
        all_axes = chart.subplots(n_panel_lines, n_columns, sharey=True, squeeze=False).ravel()
        # The last line may have fewer panels than columns.
        for axes in all_axes[len(panel_titles) :]:
            axes.remove()
        for axes, (panel, panel_title) in zip(all_axes, panel_titles.items(), strict=False):
            axes.set_title(printable_name(panel_title))
            middles = _draw_bands(axes, heights, list(labels.values()), has_zero_line=has_zero_line)
            # Each panel is one series, so all dots have the colour and marker of the first series.
            for dot in dots:
                if dot.series == panel:
                    _draw_dot(axes, dot, middles[row_indices[dot.group]], colour_and_marker(0))
            axes.margins(x=0.15)
            axes.locator_params(axis="x", nbins=2, steps=(1, 2, 5, 10))
            # Labels of more than two ticks would run together.
            low, high = axes.get_xlim()
            ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
            axes.set_xticks([ticks[0], ticks[-1]])
        # The first panel of each line has the labels of the rows; titles are bold.
        for axes in all_axes[::n_columns]:
            for tick_label, row in zip(axes.get_yticklabels(), labels, strict=True):
                tick_label.set_weight("normal" if row in row_labels else "bold")
        chart.add_texts(title, x_label, notes=[escape_controls(note) for note in notes])
    return chart


SERIES_DISTANCE = 2.5
"""The distance in points of series at the same size, so that their intervals are apart."""
MAX_TICKED_SIZES, MAX_MARKED_POINTS = 12, 40
"""The maximum number of sizes with a tick each, and of points of a line with a dot each."""
Scale = Literal["linear", "log2", "log10", "log2p1"]
"""``log2p1`` includes 0: from 1 on it is a logarithm to base 2."""
SCALE_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
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
    """Draw numbers over sizes: in each panel one line per series.

    A point has the attributes ``series``, ``size`` (its x), ``value`` (its y), ``panel``, and
    ``interval``, which may be None. Series and panels are in the order of their first point.

    Args:
        points: The numbers.
        x_label: A description of the sizes.
        y_label: A description of the numbers.
        title: The title of the chart.
        x_scale: The scale of the sizes: ``linear``, ``log2``, ``log10``, or ``log2p1``, which
            is ``log2`` from 1 on and includes 0.
        y_scale: The scale of the numbers, as ``x_scale``.

    Returns:
        The chart, a matplotlib figure.
    """
    check_not_empty(points)
    series_names = list(dict.fromkeys(point.series for point in points))
    panels = list(dict.fromkeys(point.panel for point in points))
    sizes = sorted({point.size for point in points})
    # Series are drawn a little beside each other, so that their intervals do not overlap.
    has_intervals = any(point.interval for point in points)
    series_distance = SERIES_DISTANCE if has_intervals else 0
    with new_panels(len(panels)) as (chart, all_axes):
        for axes, panel in zip(all_axes, panels, strict=True):
            panel_points = [point for point in points if point.panel == panel]
            for index, name in enumerate(series_names):
                series_points = sorted(
                    (point for point in panel_points if point.series == name),
                    key=lambda point: point.size,
                )
                if series_points:
                    shift = series_distance * (index - (len(series_names) - 1) / 2)
                    _draw_series(axes, name, series_points, colour_and_marker(index), shift)
            # SCALE_ARGUMENTS has matplotlib's arguments for each logarithmic scale.
            if x_scale in SCALE_ARGUMENTS:
                axes.set_xscale(**SCALE_ARGUMENTS[x_scale])
                axes.xaxis.set_major_formatter("{x:g}")
            if y_scale in SCALE_ARGUMENTS:
                axes.set_yscale(**SCALE_ARGUMENTS[y_scale])
                axes.yaxis.set_major_formatter("{x:g}")
            # A few sizes have a tick each; with more, matplotlib chooses the ticks.
            if len(sizes) <= MAX_TICKED_SIZES:
                size_labels = [f"{size:g}" for size in sizes]
                axes.set_xticks(sizes, size_labels)
                axes.minorticks_off()
                # Labels that would run together stand upright.
                positions = axes.transData.transform([(size, 1) for size in sizes])[:, 0]
                # With a free margin of half a digit on both sides.
                label_width = text_width("\n".join(f"0{label}" for label in size_labels))
                if any(b - a < label_width for a, b in pairwise(positions / chart.dpi)):
                    axes.tick_params(axis="x", rotation=90)
            axes.grid(axis="y")
            axes.set_title(printable_name(panel))
        legend = legend_artists(all_axes) if len(series_names) > 1 else []
        chart.add_texts(title, x_label, y_label, legend=legend)
    return chart


def _draw_series(
    axes: Axes,
    name: str,
    points: Sequence[LinePoint],
    series_look: tuple[str, str],
    shift: float,
) -> None:
    """Draw a line through the points of a series, with an interval at each point that has one.

    A line of more than ``MAX_MARKED_POINTS`` points has markers at about eight of them only.

    Args:
        axes: The matplotlib axes of the panel.
        name: The name of the series, for the legend.
        points: The points, sorted by size: ``size`` is the x of a point, ``value`` its y, and
            ``interval`` the lower and upper end along y, or None.
        series_look: The colour, and matplotlib's code of the marker, such as ``"o"``.
        shift: How far to the right everything is drawn, in points of 1/72 inch.
    """
    from matplotlib.transforms import ScaledTranslation

    colour, marker = series_look
    shift_by_inches = ScaledTranslation(shift / 72, 0, axes.figure.dpi_scale_trans)
    artists = [
        axes.vlines(point.size, *point.interval, color=colour, linewidth=1)
        for point in points
        if point.interval is not None
    ]
    marker_distance = max(1, len(points) // 8) if len(points) > MAX_MARKED_POINTS else 1
    artists += axes.plot(
        [point.size for point in points],
        [point.value for point in points],
        label=legend_name(name),
        marker=marker,
        markevery=marker_distance,
        markersize=MARKER_SIZE,
        color=colour,
        linewidth=1.2,
    )
    # Shift only after all is drawn: so the limits of the axes are computed from the numbers.
    for artist in artists:
        artist.set_transform(axes.transData + shift_by_inches)


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


CURVE_HEIGHT = 1.6
"""The height of a panel of training curves, in inches."""


def draw_curves(curves: Sequence[Curve], *, score_label: str) -> Chart:
    """Draw how scores and losses changed during trainings, one line per training.

    The upper panel has the scores on development data, over the steps of the training. The lower
    panel, if any loss is known, has the losses. A ring marks the step whose weights were kept.

    Args:
        curves: The trainings: the ``name`` of each, its ``points`` with ``step``, ``score`` and
            ``loss``, and its ``kept_step``.
        score_label: A description of the scores.

    Returns:
        The chart, a matplotlib figure.

    Raises:
        DataError: There are no points.
    """
    points = [point for curve in curves for point in curve.points]
    check_not_empty(
        points, problem="there is no curve to draw: nothing was validated while it was trained"
    )
    # Field of a point -> label of the panel that shows it.
    label_by_field = {"score": score_label}
    if any(point.loss is not None for point in points):
        label_by_field["loss"] = "loss"
    with new_chart(CURVE_HEIGHT * len(label_by_field) + FRAME_HEIGHT) as chart:
        all_axes = chart.subplots(len(label_by_field), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (field_name, label) in zip(all_axes, label_by_field.items(), strict=True):
            for index, curve in enumerate(curves):
                _draw_curve(axes, curve, field_name, colour_and_marker(index))
            axes.grid(axis="both")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.set_ylabel(wrap_text(label, CURVE_HEIGHT, TEXT_SIZE))
        legend = legend_artists(all_axes) if len(curves) > 1 else []
        chart.add_texts("", "step", legend=legend)
    return chart


def _draw_curve(axes: Axes, curve: Curve, field_name: str, curve_look: tuple[str, str]) -> None:
    """Draw the scores or the losses of one training over its steps, with a ring at the kept step.

    Args:
        axes: The matplotlib axes of the panel.
        curve: The training: its validations (``points``), and the step whose weights were kept
            (``kept_step``, None if unknown).
        field_name: ``score`` or ``loss``; validations where this field is None are omitted.
        curve_look: The colour, and matplotlib's code of the marker, such as ``"o"``.
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
