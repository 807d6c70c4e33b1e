"""The parts that all charts share: the looks of series, empty charts with panels, and legends.

Colours are those of Okabe and Ito, which the colour-blind can distinguish. Each series also has
its own marker, so that a figure printed in grey can be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

from stsbench.core.errors import DataError
from stsbench.plots.labels import drawn_name

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


Axes = Any
"""Matplotlib's axes, which have no type annotations."""
Interval = tuple[float, float]
COLOURS = ("#0072B2", "#E69F00", "#000000", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LOOKS = sorted(
    product(range(len(COLOURS)), range(len(MARKERS))),
    key=lambda indices: (indices[1] - indices[0]) % len(MARKERS),
)
"""Indices of a colour and a marker; among the first looks no two share either."""


def series_look(index: int) -> tuple[str, str]:
    """Return the colour and the marker of a series by its index; they repeat after 49 series."""
    colour, marker = LOOKS[index % len(LOOKS)]
    return COLOURS[colour], MARKERS[marker]


def check_not_empty(
    numbers: Sequence[object], problem: str = "there are no scores to draw"
) -> None:
    """Raise DataError with this problem if there is nothing to draw."""
    if not numbers:
        raise DataError(problem)


@contextmanager
def new_chart(width: float, height: float) -> Iterator[Chart]:
    """Yield an empty chart of this size in inches, and apply the style while it is drawn."""
    from stsbench.plots.chart import Chart, styled

    with styled():
        yield Chart(width, height)


@contextmanager
def new_panels(
    n_panels: int,
    *,
    single_size: tuple[float, float],
    panel_size: float,
    max_columns: int,
    same_axes: bool = True,
) -> Iterator[tuple[Chart, list[Axes]]]:
    """Yield an empty chart and the axes of its panels, row by row, as :func:`new_chart` does.

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
    with new_chart(width, height) as chart:
        grid = chart.subplots(n_rows, n_columns, squeeze=False, sharex=same_axes, sharey=same_axes)
        all_axes = grid.ravel().tolist()
        for unused_axes in all_axes[n_panels:]:
            unused_axes.remove()
        for bottom_axes in all_axes[max(0, n_panels - n_columns) : n_panels]:
            # A panel without another one below it needs labels at its own ticks.
            bottom_axes.tick_params(labelbottom=True)
        yield chart, all_axes[:n_panels]


def draw_legend(chart: Chart, all_axes: Sequence[Axes]) -> None:
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


def draw_numbered_legend(chart: Chart, names: Sequence[str]) -> None:
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
