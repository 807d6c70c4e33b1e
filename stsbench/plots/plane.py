"""Numbers in a plane, in panels: as coloured cells with the number in each, or as points.

Points are coloured by a number or by series, joined where they belong together, numbered where named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.core.errors import DataError
from stsbench.plots import drawn_name

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


CELL, LINE, FRAME = 0.55, 0.32, 1.9
"""In inches: the width of a cell, the height of a row, and what a panel has beside its cells."""
SIGN, LONG = 0.085, 6
"""Of a sign in inches; columns' names of more signs stand upright."""
COLOURS = "cividis"
"""Even in lightness and the same to the colour-blind; printed in grey it keeps its order."""
DARK = 0.55
"""Up to this share of the colours numbers are white."""
ALONE, SIDE, ACROSS = (6.0, 4.4), 2.4, 3
"""In inches: a lone panel, and the side of one of several; so many panels go side by side."""
MANY = 500
"""Points of a panel beyond which they are drawn small, pale and as a picture: a file of text would be too large."""


class HeatCell(NamedTuple):
    """One number, by the names of its row, its column and its panel."""

    row: str
    column: str
    value: float
    panel: str = ""


def draw_heat(
    cells: Sequence[HeatCell], *, rows: str, columns: str, values: str, title: str = "", form: str = ".1f"
) -> Chart:
    """Draw cells, rows and columns in the order in which they come first, panels below each other on one scale.

    Args:
        cells: the numbers; a place without one, or with NaN, stays empty.
        rows: what rows are.
        columns: what columns are.
        values: what numbers are.
        title: above the chart.
        form: how numbers are written.

    Raises:
        DataError: there are no cells.
        StsbenchError: matplotlib is not installed.
    """
    known = [cell.value for cell in cells if not math.isnan(cell.value)]
    if not known:
        raise DataError("there are no scores to draw")
    low, high = min(known), max(known)
    from stsbench.plots.chart import new_chart, styled

    row_names, column_names, panels = (
        list(dict.fromkeys(column)) for column in zip(*((c.row, c.column, c.panel) for c in cells), strict=True)
    )
    with styled():
        steep = max(map(len, column_names)) > LONG
        beside, below = max(map(len, row_names)) * SIGN, max(map(len, column_names)) * SIGN * steep
        chart = new_chart(
            FRAME + beside + CELL * len(column_names), 0.7 + below + len(panels) * (FRAME / 2 + LINE * len(row_names))
        )
        all_axes = chart.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, panel in zip(all_axes, panels, strict=True):
            grid = [[float("nan")] * len(column_names) for _ in row_names]
            for cell in cells:
                if cell.panel == panel:
                    grid[row_names.index(cell.row)][column_names.index(cell.column)] = cell.value
            image = axes.imshow(grid, cmap=COLOURS, vmin=low, vmax=high, aspect="auto")
            _write_numbers(axes, grid, low, high, form)
            axes.set_xticks(range(len(column_names)), [*map(drawn_name, column_names)], rotation=90 if steep else 0)
            axes.set_yticks(range(len(row_names)), [*map(drawn_name, row_names)])
            axes.set_title(drawn_name(panel), fontsize="small", loc="left")
            axes.set_ylabel(rows)
            axes.tick_params(length=0)
        all_axes[-1].set_xlabel(columns)
        chart.colorbar(image, ax=list(all_axes), label=values, shrink=0.8)
        chart.suptitle(drawn_name(title), fontsize="medium")
    return chart


def _write_numbers(axes: Any, grid: Sequence[Sequence[float]], low: float, high: float, form: str) -> None:  # noqa: ANN401 - matplotlib
    for at, row in enumerate(grid):
        for place, value in enumerate(row):
            if not math.isnan(value):
                share = (value - low) / (high - low) if high > low else 0.0
                axes.text(
                    place, at, f"{value:{form}}", ha="center", va="center", fontsize="x-small",
                    color="white" if share <= DARK else "black",
                )  # fmt: skip


class Spot(NamedTuple):
    """One point.

    ``value`` colours it; ``name`` numbers it and stands in the legend; those of one ``joined`` in a panel are joined by a line
    in their order.
    """

    x: float
    y: float
    panel: str = ""
    value: float | None = None
    name: str = ""
    joined: str = ""


class Violin(NamedTuple):
    """The density of some numbers, drawn upright: in which panel, where its middle stands, and how wide it is."""

    panel: str
    place: float
    width: float
    values: Sequence[float]


def draw_spots(
    spots: Sequence[Spot],
    *,
    across: str,
    up: str,
    values: str = "",
    title: str = "",
    same_scale: bool = True,
    violins: Sequence[Violin] = (),
) -> Chart:
    """Draw points, panels in the order in which they come first.

    Args:
        spots: the points.
        across: what stands on the axes below.
        up: what stands on the axes beside.
        values: what their colours are.
        title: above the chart.
        same_scale: whether all panels have the same axes.
        violins: densities over the points.

    Raises:
        DataError: there are no points.
        StsbenchError: matplotlib is not installed.
    """
    if not spots:
        raise DataError("there are no points to draw")
    from stsbench.plots.chart import panel_axes, styled

    panels = list(dict.fromkeys(spot.panel for spot in spots))
    names = list(dict.fromkeys(spot.name for spot in spots if spot.name))
    known = [spot.value for spot in spots if spot.value is not None]
    ends = (min(known), max(known)) if known else (0.0, 1.0)
    with styled():
        chart, all_axes = panel_axes(len(panels), alone=ALONE, side=SIDE, across=ACROSS, shared=same_scale)
        for axes, panel in zip(all_axes, panels, strict=True):
            image = _draw_panel(axes, [spot for spot in spots if spot.panel == panel], names, ends)
            _draw_violins(axes, [violin for violin in violins if violin.panel == panel])
            axes.set_title(drawn_name(panel), fontsize="small")
            axes.grid()
        if known:
            chart.colorbar(image, ax=list(all_axes), label=values, shrink=0.8)
        chart.name(title, across, up)
        if names:
            from matplotlib.lines import Line2D

            handles = [
                Line2D([], [], linestyle="none", label=f"{at} {drawn_name(name)}") for at, name in enumerate(names, 1)
            ]
            chart.legend(handles=handles, loc="outside right upper", handlelength=0, frameon=False, fontsize="small")
    return chart


def _draw_panel(axes: Any, spots: Sequence[Spot], names: Sequence[str], ends: tuple[float, float]) -> Any:  # noqa: ANN401 - matplotlib
    from stsbench.plots.chart import COLOURS as SERIES
    from stsbench.plots.chart import INK

    for joined in dict.fromkeys(spot.joined for spot in spots if spot.joined):
        line = [(spot.x, spot.y) for spot in spots if spot.joined == joined]
        axes.plot(*zip(*line, strict=True), color=INK, linewidth=0.6, zorder=1)
    many = len(spots) > MANY
    colours = [spot.value for spot in spots]
    coloured = (
        {"c": colours, "cmap": COLOURS, "vmin": ends[0], "vmax": ends[1]}
        if None not in colours
        else {"color": SERIES[0]}
    )
    image = axes.scatter(
        [spot.x for spot in spots], [spot.y for spot in spots], s=3 if many else 40 if names else 9,
        alpha=0.4 if many else 1.0, rasterized=many, edgecolors="none" if many else "black", linewidths=0.3, zorder=2, **coloured,
    )  # fmt: skip
    for spot in spots:
        if spot.name:
            number = str(names.index(spot.name) + 1)
            axes.annotate(number, (spot.x, spot.y), xytext=(5, 4), textcoords="offset points", fontsize="small")
    return image


def _draw_violins(axes: Any, violins: Sequence[Violin]) -> None:  # noqa: ANN401 - matplotlib
    from stsbench.plots.chart import COLOURS as SERIES

    for violin in violins:
        drawn = axes.violinplot(
            [violin.values], [violin.place], widths=violin.width, showmedians=True, showextrema=False
        )
        drawn["bodies"][0].set(facecolor="none", edgecolor=SERIES[4], alpha=1.0, linewidth=1.0)
        drawn["cmedians"].set(color=SERIES[4], linewidth=1.5)
