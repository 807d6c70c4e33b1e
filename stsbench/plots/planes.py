"""Charts of a plane: coloured cells of rows and columns, and points with densities over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.plots.labels import (
    INK_COLOUR,
    LINE_HEIGHT,
    axis_label,
    current_width,
    printable_name,
    text_width,
)
from stsbench.plots.panels import (
    COLOURS,
    Axes,
    Interval,
    check_not_empty,
    new_chart,
    new_panels,
    numbered_legend_artists,
)

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


ROW_HEIGHT, MIN_CELL_WIDTH = 0.19, 0.11
"""In inches: the height of a row of numbers, and the least width of a cell with an upright one."""
COLOUR_MAP = "cividis"
"""A colour map of even lightness, also for the colour-blind; in grey its order is the same."""
MAX_DARK_FRACTION = 0.55
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
    check_not_empty(numbers)
    row_names = list(dict.fromkeys(cell.row for cell in cells))
    column_names = list(dict.fromkeys(cell.column for cell in cells))
    panels = list(dict.fromkeys(cell.panel for cell in cells))
    value_range = (min(numbers), max(numbers))
    row_labels = [*map(axis_label, row_names)]
    # In inches.
    labels_width = text_width("\n".join(row_labels))
    cell_width = (current_width() - labels_width - 0.4) / len(column_names)
    # With a free margin of half a digit on both sides.
    number_width = text_width("\n".join(f"0{number:{number_format}}" for number in numbers))
    column_labels = [*map(axis_label, column_names)]
    names_width = text_width("\n".join(column_labels))
    # Numbers and names that are wider than their cells stand upright.
    number_rotation = 0 if number_width <= cell_width else 90
    name_rotation = 0 if names_width < cell_width else 90
    row_height = max(
        number_width if number_rotation else ROW_HEIGHT,
        LINE_HEIGHT * max(label.count("\n") + 1 for label in row_labels),
    )
    panel_height = 0.3 + row_height * len(row_names)
    height = 0.6 + panel_height * len(panels) + (names_width if name_rotation else 0.1)
    with new_chart(height) as chart:
        all_axes = chart.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
        for axes, panel in zip(all_axes, panels, strict=True):
            panel_cells = [cell for cell in cells if cell.panel == panel]
            image = _draw_cells(
                axes, panel_cells, row_names, column_names, value_range, number_format
            )
            for number in axes.texts:
                number.set(rotation=number_rotation, visible=cell_width >= MIN_CELL_WIDTH)
            axes.set_xticks(range(len(column_names)), column_labels, rotation=name_rotation)
            axes.set_yticks(range(len(row_names)), row_labels)
            axes.set_title(printable_name(panel))
            axes.tick_params(length=0)
        bar = chart.colorbar(image, ax=list(all_axes), location="bottom", aspect=40, pad=0.02)
        bar.set_label(value_label)
        all_axes[-1].set_xlabel(column_label)
        chart.add_texts(title, "", row_label)
    return chart


def _draw_cells(
    axes: Axes,
    cells: Sequence[HeatCell],
    row_names: Sequence[str],
    column_names: Sequence[str],
    value_range: Interval,
    number_format: str,
) -> Any:  # noqa: ANN401 - matplotlib
    """Draw the cells of one panel of a heat map: coloured rectangles with a number in each.

    Args:
        axes: The matplotlib axes of the panel.
        cells: The cells of the panel: the ``value`` of each, and the names of its ``row`` and
            ``column``. A cell with the value NaN stays empty, as does one that is not there.
        row_names: The names of all rows, from the top.
        column_names: The names of all columns.
        value_range: The lowest and the highest number of all panels, the ends of the colour map.
        number_format: The format of the numbers, such as ``.1f``.

    Returns:
        Matplotlib's image of the colours, from which a scale of colours can be drawn.
    """
    low, high = value_range
    # Row by row; NaN is an empty cell.
    grid = [[float("nan")] * len(column_names) for _ in row_names]
    for cell in cells:
        if math.isnan(cell.value):
            continue
        row_index = row_names.index(cell.row)
        column_index = column_names.index(cell.column)
        grid[row_index][column_index] = cell.value
        # Where the number is between the ends of the colour map; up to MAX_DARK_FRACTION the
        # colours are dark.
        fraction = (cell.value - low) / (high - low) if high > low else 0.0
        axes.text(
            column_index,
            row_index,
            f"{cell.value:{number_format}}",
            ha="center",
            va="center",
            color="white" if fraction <= MAX_DARK_FRACTION else "black",
        )
    return axes.imshow(grid, cmap=COLOUR_MAP, vmin=low, vmax=high, aspect="auto")


MAX_LARGE_POINTS = 500
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
    """Draw points in the plane, in panels that are in the order of their first point.

    A point has the attributes ``x``, ``y`` and ``panel``. It may have a ``value``, which decides
    its colour. It may have a ``name``: then a number is beside the point, and the legend says which
    name the number stands for.

    Args:
        points: The points.
        x_label: A description of the x values.
        y_label: A description of the y values.
        value_label: A description of the values that decide colours, for the scale of colours; it
            is drawn if any point has a value.
        title: The title of the chart.
        same_scale: Whether all panels have the same limits of their axes.
        violins: Densities to draw upright in the panel of each: for many numbers along y, how
            frequent each height is.

    Returns:
        The chart, a matplotlib figure.
    """
    check_not_empty(points, problem="there are no points to draw")
    panels = list(dict.fromkeys(point.panel for point in points))
    names = list(dict.fromkeys(point.name for point in points if point.name))
    colour_values = [point.value for point in points if point.value is not None]
    value_range = (min(colour_values), max(colour_values)) if colour_values else (0.0, 1.0)
    with new_panels(len(panels), same_axes=same_scale) as (
        chart,
        all_axes,
    ):
        for axes, panel in zip(all_axes, panels, strict=True):
            panel_points = [point for point in points if point.panel == panel]
            image = _draw_panel(axes, panel_points, names, value_range)
            for violin in violins:
                if violin.panel == panel:
                    _draw_violin(axes, violin)
            # The panel's name; the chart breaks it into lines that fit.
            axes.set_title(printable_name(panel))
            # A fixed number: one that depends on the width would change it, by the labels' room.
            axes.locator_params(axis="x", nbins=3)
            axes.grid()
        if colour_values:
            # All panels have the same colour map, so that of the last one serves.
            chart.colorbar(image, ax=list(all_axes), label=value_label, aspect=30)
        # The entries "1 name", "2 name" and so on, without a sign before them.
        legend = numbered_legend_artists(names)
        chart.add_texts(title, x_label, y_label, legend=legend, handle_length=0)
    return chart


def _draw_violin(axes: Axes, violin: Violin) -> None:
    """Draw the outline of a density and a line at the median."""
    artists = axes.violinplot(
        [violin.values], [violin.x], widths=violin.width, showmedians=True, showextrema=False
    )
    artists["bodies"][0].set(facecolor="none", edgecolor=COLOURS[4], alpha=1.0, linewidth=1.0)
    artists["cmedians"].set(color=COLOURS[4], linewidth=1.5)


def _draw_panel(
    axes: Axes, points: Sequence[ScatterPoint], names: Sequence[str], value_range: Interval
) -> Any:  # noqa: ANN401 - matplotlib
    """Draw the points of one panel, each in the colour of its value.

    If any point has no value, all have one colour. If there are more than ``MAX_LARGE_POINTS``,
    they are small, pale, and drawn as a bitmap, which keeps files small.

    Args:
        axes: The matplotlib axes of the panel.
        points: The points of the panel. Those with the same text ``joined`` are joined by a line,
            in their order; those where it is empty are not.
        names: The names of points in all panels. The number beside a point is the position of its
            name in this list, from 1; a point with an empty name has none.
        value_range: The lowest and the highest value of all panels, the ends of the colour map.

    Returns:
        Matplotlib's object of the points, from which a scale of colours can be drawn.
    """
    lines = dict.fromkeys(point.joined for point in points if point.joined)
    for line in lines:
        coordinates = [(point.x, point.y) for point in points if point.joined == line]
        axes.plot(*zip(*coordinates, strict=True), color=INK_COLOUR, linewidth=0.6, zorder=1)
    has_many_points = len(points) > MAX_LARGE_POINTS
    colour_values = [point.value for point in points]
    # Matplotlib's arguments: "s" is the area of a point, and "c" are the values for its colours.
    style: dict[str, Any] = {"s": 25 if names else 9, "edgecolors": "black"}
    if has_many_points:
        style = {"s": 3, "edgecolors": "none", "alpha": 0.4}
    if None in colour_values:
        style["color"] = COLOURS[0]
    else:
        style |= {"c": colour_values, "cmap": COLOUR_MAP, "clim": value_range}
    x = [point.x for point in points]
    y = [point.y for point in points]
    image = axes.scatter(x, y, rasterized=has_many_points, linewidths=0.3, zorder=2, **style)
    for point in points:
        if point.name:
            number = str(names.index(point.name) + 1)
            axes.annotate(number, (point.x, point.y), (5, 4), textcoords="offset points")
    return image
