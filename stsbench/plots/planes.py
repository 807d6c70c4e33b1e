"""Charts of a plane: coloured cells of rows and columns, and points with densities over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.plots.labels import INK, drawn_name
from stsbench.plots.panels import (
    COLOURS,
    Axes,
    Interval,
    check_not_empty,
    draw_numbered_legend,
    new_chart,
    new_panels,
)

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


CELL_WIDTH, ROW_HEIGHT, WIDTH_BESIDE_CELLS = 0.55, 0.32, 1.9
"""In inches: the width of a cell, the height of a row, and a panel's width beside its cells."""
CHARACTER_WIDTH, MAX_LEVEL_NAME = 0.085, 6
"""The width of a character in inches; longer names of columns, in characters, are upright."""
SHADES = "cividis"
"""A colour map of even lightness, also for the colour-blind; in grey its order is the same."""
DARK_SHARE = 0.55
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
    longest_row_name = max(map(len, row_names))
    longest_column_name = max(map(len, column_names))
    has_upright_names = longest_column_name > MAX_LEVEL_NAME
    width = WIDTH_BESIDE_CELLS + longest_row_name * CHARACTER_WIDTH + CELL_WIDTH * len(column_names)
    panel_height = WIDTH_BESIDE_CELLS / 2 + ROW_HEIGHT * len(row_names)
    height = 0.7
    if has_upright_names:
        height += longest_column_name * CHARACTER_WIDTH
    height += len(panels) * panel_height
    with new_chart(width, height) as chart:
        all_axes = chart.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, panel in zip(all_axes, panels, strict=True):
            panel_cells = [cell for cell in cells if cell.panel == panel]
            image = _draw_cells(
                axes, panel_cells, row_names, column_names, value_range, number_format
            )
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


def _draw_cells(
    axes: Axes,
    cells: Sequence[HeatCell],
    row_names: Sequence[str],
    column_names: Sequence[str],
    value_range: Interval,
    number_format: str,
) -> Any:  # noqa: ANN401 - matplotlib
    """Draw the coloured cells of one panel with their numbers, and return the artist of colours.

    Args:
        axes: The axes of the panel.
        cells: The cells of the panel; one without a number, or with NaN, stays empty.
        row_names: The names of all rows, from the top.
        column_names: The names of all columns.
        value_range: The lowest and the highest number of all panels, the ends of the colour map.
        number_format: The format of the numbers.
    """
    low, high = value_range
    grid = [[float("nan")] * len(column_names) for _ in row_names]
    for cell in cells:
        if math.isnan(cell.value):
            continue
        row_index = row_names.index(cell.row)
        column_index = column_names.index(cell.column)
        grid[row_index][column_index] = cell.value
        share = (cell.value - low) / (high - low) if high > low else 0.0
        style = {"ha": "center", "va": "center", "fontsize": "x-small"}
        style["color"] = "white" if share <= DARK_SHARE else "black"
        axes.text(column_index, row_index, f"{cell.value:{number_format}}", **style)
    return axes.imshow(grid, cmap=SHADES, vmin=low, vmax=high, aspect="auto")


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
    """Draw points in panels, in their order of appearance, with densities over them.

    Points with a name have a number beside them, and the legend has the names by number.

    Args:
        points: The points.
        x_label: A description of the x values.
        y_label: A description of the y values.
        value_label: A description of the values that decide colours, for the scale of colours; it
            is drawn if any point has a value.
        title: The title of the chart.
        same_scale: Whether all panels have the same axes.
        violins: Densities over the points.
    """
    check_not_empty(points, problem="there are no points to draw")
    panels = list(dict.fromkeys(point.panel for point in points))
    names = list(dict.fromkeys(point.name for point in points if point.name))
    colour_values = [point.value for point in points if point.value is not None]
    value_range = (min(colour_values), max(colour_values)) if colour_values else (0.0, 1.0)
    with new_panels(
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
            draw_numbered_legend(chart, names)
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
    """Draw the points of one panel, and return the artist of the points.

    All points have the first colour unless each has a value. If they are more than
    ``MAX_LARGE_POINTS``, they are small, pale, and drawn as a bitmap.

    Args:
        axes: The axes of the panel.
        points: The points of the panel.
        names: The names of points in all panels; the number at a point is the position of its name.
        value_range: The lowest and the highest value of all panels, the ends of the colour map.
    """
    for joined in dict.fromkeys(point.joined for point in points if point.joined):
        line = [(point.x, point.y) for point in points if point.joined == joined]
        axes.plot(*zip(*line, strict=True), color=INK, linewidth=0.6, zorder=1)
    is_large = len(points) > MAX_LARGE_POINTS
    colour_values = [point.value for point in points]
    style: dict[str, Any] = {"s": 40 if names else 9, "edgecolors": "black"}
    if is_large:
        style = {"s": 3, "edgecolors": "none", "alpha": 0.4}
    has_values = None not in colour_values
    if not has_values:
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
