"""Numbers in rows and columns as coloured cells with the number in each, in panels where there are several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.errors import DataError
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
