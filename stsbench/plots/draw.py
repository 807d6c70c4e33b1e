"""Charts of dots, lines, training curves, coloured cells, and points in a plane.

Colours are those of Okabe and Ito, which the colour-blind can distinguish. Each series also has
its own marker, so that a figure printed in grey can be read.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stsbench.core.errors import DataError
from stsbench.core.wording import escape_controls
from stsbench.plots.labels import BAND, INK, drawn_name, label_lines, legend_name

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

Axes = Any
"""Matplotlib's axes, which have no type annotations."""
Interval = tuple[float, float]
COLOURS = ("#0072B2", "#E69F00", "#000000", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
WIDTH = 6.5
"""The width of a chart in inches."""
MARKER_SIZE = 5.5
"""The size of a dot in points."""


LOOKS = sorted(
    product(range(len(COLOURS)), range(len(MARKERS))),
    key=lambda indices: (indices[1] - indices[0]) % len(MARKERS),
)
"""Indices of a colour and a marker; among the first looks no two share either."""


def series_look(index: int) -> tuple[str, str]:
    """Return the colour and the marker of a series by its index; they repeat after 49 series."""
    colour, marker = LOOKS[index % len(LOOKS)]
    return COLOURS[colour], MARKERS[marker]


def _check_not_empty(
    numbers: Sequence[object], problem: str = "there are no scores to draw"
) -> None:
    if not numbers:
        raise DataError(problem)


@contextmanager
def _new_chart(width: float, height: float) -> Iterator[Chart]:
    from stsbench.plots.chart import Chart, styled

    with styled():
        yield Chart(width, height)


@contextmanager
def _new_panels(
    n_panels: int,
    *,
    single_size: tuple[float, float],
    panel_size: float,
    max_columns: int,
    same_axes: bool = True,
) -> Iterator[tuple[Chart, list[Any]]]:
    """Make an empty chart with axes for some panels, row by row.

    Args:
        n_panels: The number of panels.
        single_size: Width and height in inches of a chart with one panel.
        panel_size: The width, and the height, in inches of each of several panels.
        max_columns: The maximum number of panels in a row.
        same_axes: Whether all panels have the same axes.
    """
    n_rows = math.ceil(n_panels / max_columns)
    n_columns = math.ceil(n_panels / n_rows)
    width, height = single_size
    if n_panels > 1:
        width = panel_size * n_columns + 1.4
        height = panel_size * n_rows + 0.8
    with _new_chart(width, height) as chart:
        grid = chart.subplots(n_rows, n_columns, squeeze=False, sharex=same_axes, sharey=same_axes)
        all_axes = grid.ravel().tolist()
        for unused_axes in all_axes[n_panels:]:
            unused_axes.remove()
        for bottom_axes in all_axes[max(0, n_panels - n_columns) : n_panels]:
            # A panel without another one below it needs labels at its own ticks.
            bottom_axes.tick_params(labelbottom=True)
        yield chart, all_axes[:n_panels]


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


LINE_HEIGHT, FRAME = 0.2, 0.9
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
    _check_not_empty(dots)
    groups = list(dict.fromkeys(dot.group for dot in dots))
    series = list(dict.fromkeys(dot.series for dot in dots))
    # A group is as high as its dots or the lines of its name need.
    height = max(len(series) + 1, *(label_lines(name).count("\n") + 1 for name in groups))
    tops = {name: index * height + (height - len(series)) / 2 for index, name in enumerate(groups)}
    with _new_chart(WIDTH, FRAME + LINE_HEIGHT * len(groups) * height) as chart:
        axes = chart.add_subplot()
        _draw_bands(axes, len(groups), height, has_zero_line=has_zero_line)
        axes.set_yticks(
            [(index + 0.5) * height - 0.5 for index in range(len(groups))],
            [*map(label_lines, groups)],
        )
        axes.set_ylim(len(groups) * height - 0.5, -0.5)
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
                        tops[dot.group] + series_index,
                        series_look(series_index),
                        MARKER_SIZE,
                        width=1.5,
                    )
        axes.set_xlabel(x_label)
        axes.set_title(drawn_name(title), fontsize="medium", loc="left")
        if len(series) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return chart


def _draw_bands(axes: Axes, n_rows: int, height: float = 1, *, has_zero_line: bool) -> None:
    """Draw a band behind every second row, from the top, and remove the rows' ticks."""
    for index in range(0, n_rows, 2):
        axes.axhspan(
            index * height - 0.5, (index + 1) * height - 0.5, color=BAND, linewidth=0, zorder=0
        )
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    if has_zero_line:
        axes.axvline(0, color="black", linewidth=0.8)


def _draw_dot(
    axes: Axes, dot: DotPoint, y: float, dot_look: tuple[str, str], size: float, width: float
) -> None:
    """Draw a dot, or a ring, and its interval along x; ``size`` and ``width`` are in points."""
    colour, marker = dot_look
    if dot.interval is not None:
        axes.hlines(y, *dot.interval, color=colour, linewidth=width)
    shape = {
        "marker": marker,
        "markersize": size,
        "markerfacecolor": colour if dot.filled else "white",
    }
    axes.plot([dot.value], [y], linestyle="none", color=colour, **shape)


LABELS, PANEL, ROW_HEIGHT, PANEL_FRAME = 2.2, 1.15, 0.19, 1.0
"""Sizes in inches: of row names beside panels, a panel, a row, and titles with axis."""
NOTE_HEIGHT, SIGNS = 0.13, 15
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
    _check_not_empty(dots)
    width = LABELS + PANEL * len(panel_titles)
    note_lines = [
        line
        for note in notes
        for line in textwrap.wrap(escape_controls(note), round(width * SIGNS))
    ]
    with _new_chart(
        width, PANEL_FRAME + ROW_HEIGHT * len(row_labels) + NOTE_HEIGHT * len(note_lines)
    ) as chart:
        all_axes = chart.subplots(1, len(panel_titles), sharey=True, squeeze=False)[0]
        row_indices = {row: index for index, row in enumerate(row_labels)}
        for axes, (panel, panel_title) in zip(all_axes, panel_titles.items(), strict=True):
            axes.set_title(drawn_name(panel_title), fontsize="small")
            _draw_bands(axes, len(row_labels), has_zero_line=has_zero_line)
            for dot in dots:
                if dot.series == panel:
                    _draw_dot(
                        axes, dot, row_indices[dot.group], series_look(0), size=4.5, width=1.2
                    )
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
    """Draw one line per series, in their order of appearance, through its points by size.

    Args:
        points: The numbers.
        x_label: A description of the sizes.
        y_label: A description of the numbers.
        title: The title of the chart.
        x_scale: The scale of the sizes.
        y_scale: The scale of the numbers.
    """
    _check_not_empty(points)
    series = list(dict.fromkeys(point.series for point in points))
    panels = list(dict.fromkeys(point.panel for point in points))
    ticks = sorted({point.size for point in points})
    with _new_panels(len(panels), single_size=(WIDTH, 4.0), panel_size=2.6, max_columns=3) as (
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
            if len(ticks) <= MAX_TICKED_SIZES:
                axes.set_xticks(
                    ticks, [f"{size:g}" for size in ticks], rotation=90 if len(ticks) > 8 else 0
                )
                axes.minorticks_off()
            axes.grid(axis="y")
            axes.set_title(drawn_name(panel), fontsize="small")
        chart.set_labels(title, x_label, y_label)
        if len(series) > 1:
            _draw_legend(chart, all_axes)
    return chart


def _draw_legend(chart: Chart, all_axes: Sequence[Axes]) -> None:
    """Draw one legend for all panels, with each series once."""
    handles = {}
    for axes in all_axes:
        for handle in axes.get_legend_handles_labels()[0]:
            handles[handle.get_label()] = handle
    chart.legend(
        handles=list(handles.values()),
        loc="outside right upper",
        frameon=False,
        fontsize="small",
    )


def _draw_series(
    axes: Axes, name: str, points: Sequence[LinePoint], series_look: tuple[str, str]
) -> None:
    """Draw a line through the points of a series, with an interval at each point that has one."""
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
    _check_not_empty(
        points, problem="there is no curve to draw: nothing was validated while it was trained"
    )
    label_by_field = {"score": score_label}
    if any(point.loss is not None for point in points):
        label_by_field["loss"] = "loss"
    with _new_chart(WIDTH, CURVE_HEIGHT * len(label_by_field) + 0.4) as chart:
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
    """Draw one field of a run's validations, with a ring at the kept step."""
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


CELL, LINE, BESIDE = 0.55, 0.32, 1.9
"""In inches: the width of a cell, the height of a row, and a panel's width beside its cells."""
SIGN, LONG = 0.085, 6
"""The width of a character in inches; longer names of columns, in characters, are upright."""
SHADES = "cividis"
"""A colour map of even lightness, also for the colour-blind; in grey its order is the same."""
DARK = 0.55
"""The share of the colour map, from the dark end, on which numbers are white."""


class HeatCell(NamedTuple):
    """One number, with the names of its row, its column and its panel."""

    row: str
    column: str
    value: float
    panel: str = ""


def draw_heat(
    cells: Sequence[HeatCell],
    *,
    row_label: str,
    column_label: str,
    value_label: str,
    title: str = "",
    number_format: str = ".1f",
) -> Chart:
    """Draw coloured cells in panels below each other, with one colour scale.

    Rows, columns and panels have their order of appearance. A cell without a number, or with NaN,
    is empty.

    Args:
        cells: The numbers.
        row_label: A description of the rows.
        column_label: A description of the columns.
        value_label: A description of the numbers.
        title: The title of the chart.
        number_format: The format of the numbers in the cells.
    """
    numbers = [cell.value for cell in cells if not math.isnan(cell.value)]
    _check_not_empty(numbers)
    row_names = list(dict.fromkeys(cell.row for cell in cells))
    column_names = list(dict.fromkeys(cell.column for cell in cells))
    panels = list(dict.fromkeys(cell.panel for cell in cells))
    low, high = min(numbers), max(numbers)
    has_upright_names = max(map(len, column_names)) > LONG
    width = BESIDE + max(map(len, row_names)) * SIGN + CELL * len(column_names)
    names_height = max(map(len, column_names)) * SIGN * has_upright_names
    with _new_chart(
        width, 0.7 + names_height + len(panels) * (BESIDE / 2 + LINE * len(row_names))
    ) as chart:
        all_axes = chart.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, panel in zip(all_axes, panels, strict=True):
            grid = [[float("nan")] * len(column_names) for _ in row_names]
            for cell in cells:
                if cell.panel != panel:
                    continue
                row_index = row_names.index(cell.row)
                column_index = column_names.index(cell.column)
                grid[row_index][column_index] = cell.value
                if not math.isnan(cell.value):
                    share = (cell.value - low) / (high - low) if high > low else 0.0
                    style = {"ha": "center", "va": "center", "fontsize": "x-small"}
                    style["color"] = "white" if share <= DARK else "black"
                    axes.text(column_index, row_index, f"{cell.value:{number_format}}", **style)
            image = axes.imshow(grid, cmap=SHADES, vmin=low, vmax=high, aspect="auto")
            axes.set_xticks(
                range(len(column_names)),
                [*map(drawn_name, column_names)],
                rotation=90 if has_upright_names else 0,
            )
            axes.set_yticks(range(len(row_names)), [*map(drawn_name, row_names)])
            axes.set_title(drawn_name(panel), fontsize="small", loc="left")
            axes.set_ylabel(row_label)
            axes.tick_params(length=0)
        all_axes[-1].set_xlabel(column_label)
        chart.colorbar(image, ax=list(all_axes), label=value_label, shrink=0.8)
        chart.suptitle(drawn_name(title), fontsize="medium")
    return chart


MANY = 500
"""With more points a panel draws them small, pale and as a bitmap, so that files stay small."""


class ScatterPoint(NamedTuple):
    """One point of a plane.

    ``value`` decides its colour. ``name`` is in the legend, under the number beside the point.
    Points of a panel with the same ``joined`` are joined by a line in their order.
    """

    x: float
    y: float
    panel: str = ""
    value: float | None = None
    name: str = ""
    joined: str = ""


class Violin(NamedTuple):
    """The density of some numbers, drawn upright: its panel, the x of its middle, and its width."""

    panel: str
    x: float
    width: float
    values: Sequence[float]


def draw_scatter(
    points: Sequence[ScatterPoint],
    *,
    x_label: str,
    y_label: str,
    value_label: str = "",
    title: str = "",
    same_scale: bool = True,
    violins: Sequence[Violin] = (),
) -> Chart:
    """Draw points in panels, in their order of appearance, with densities over them.

    Args:
        points: The points.
        x_label: A description of the x values.
        y_label: A description of the y values.
        value_label: A description of the values that decide colours.
        title: The title of the chart.
        same_scale: Whether all panels have the same axes.
        violins: Densities over the points.
    """
    _check_not_empty(points, problem="there are no points to draw")
    panels = list(dict.fromkeys(point.panel for point in points))
    names = list(dict.fromkeys(point.name for point in points if point.name))
    colour_values = [point.value for point in points if point.value is not None]
    value_range = (min(colour_values), max(colour_values)) if colour_values else (0.0, 1.0)
    with _new_panels(
        len(panels), single_size=(6.0, 4.4), panel_size=2.4, max_columns=3, same_axes=same_scale
    ) as (chart, all_axes):
        for axes, panel in zip(all_axes, panels, strict=True):
            panel_points = [point for point in points if point.panel == panel]
            image = _draw_panel(axes, panel_points, names, value_range)
            for violin in violins:
                if violin.panel == panel:
                    _draw_violin(axes, violin)
            axes.set_title(drawn_name(panel), fontsize="small")
            axes.grid()
        if colour_values:
            chart.colorbar(image, ax=list(all_axes), label=value_label, shrink=0.8)
        chart.set_labels(title, x_label, y_label)
        if names:
            _draw_numbered_legend(chart, names)
    return chart


def _draw_numbered_legend(chart: Chart, names: Sequence[str]) -> None:
    """Draw a legend of the names behind the numbers at points, from 1."""
    from matplotlib.lines import Line2D

    labels = [f"{number} {drawn_name(name)}" for number, name in enumerate(names, 1)]
    handles = [Line2D([], [], linestyle="none", label=label) for label in labels]
    chart.legend(
        handles=handles,
        loc="outside right upper",
        handlelength=0,
        frameon=False,
        fontsize="small",
    )


def _draw_violin(axes: Axes, violin: Violin) -> None:
    artists = axes.violinplot(
        [violin.values], [violin.x], widths=violin.width, showmedians=True, showextrema=False
    )
    artists["bodies"][0].set(facecolor="none", edgecolor=COLOURS[4], alpha=1.0, linewidth=1.0)
    artists["cmedians"].set(color=COLOURS[4], linewidth=1.5)


def _draw_panel(
    axes: Axes, points: Sequence[ScatterPoint], names: Sequence[str], value_range: Interval
) -> Any:  # noqa: ANN401 - matplotlib
    """Draw the points of one panel, and return the artist of the points."""
    for joined in dict.fromkeys(point.joined for point in points if point.joined):
        line = [(point.x, point.y) for point in points if point.joined == joined]
        axes.plot(*zip(*line, strict=True), color=INK, linewidth=0.6, zorder=1)
    is_large = len(points) > MANY
    colour_values = [point.value for point in points]
    style: dict[str, Any] = {"s": 40 if names else 9, "edgecolors": "black"}
    if is_large:
        style = {"s": 3, "edgecolors": "none", "alpha": 0.4}
    if None in colour_values:
        style["color"] = COLOURS[0]
    else:
        style |= {
            "c": colour_values,
            "cmap": SHADES,
            "vmin": value_range[0],
            "vmax": value_range[1],
        }
    x = [point.x for point in points]
    y = [point.y for point in points]
    image = axes.scatter(x, y, rasterized=is_large, linewidths=0.3, zorder=2, **style)
    for point in points:
        if point.name:
            number = str(names.index(point.name) + 1)
            axes.annotate(
                number,
                (point.x, point.y),
                xytext=(5, 4),
                textcoords="offset points",
                fontsize="small",
            )
    return image
