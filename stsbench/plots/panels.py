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
from stsbench.plots.labels import current_width, printable_name

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
MIN_PANEL_WIDTH = 1.6
"""In inches."""
MAX_PANELS_IN_ROW = 3
MAX_PANEL_HEIGHT = 2.8
"""The maximum height of a panel of lines or points, in inches."""


def colour_and_marker(index: int) -> tuple[str, str]:
    """Return the colour and the marker of a series by its index; they repeat after 49 series."""
    colour, marker = LOOKS[index % len(LOOKS)]
    return COLOURS[colour], MARKERS[marker]


def check_not_empty(
    numbers: Sequence[object], problem: str = "there are no scores to draw"
) -> None:
    """Raise DataError with this problem if there is nothing to draw.

    Raises:
        StsbenchError: Matplotlib is not installed.
    """
    # The import says in one line what to install.
    import stsbench.plots.chart  # noqa: F401

    if not numbers:
        raise DataError(problem)


@contextmanager
def new_chart(height: float) -> Iterator[Chart]:
    """Yield an empty chart to a ``with`` block that draws it.

    The block is run with the fonts and colours that all charts have in matplotlib's settings.

    Args:
        height: The height of the panels in inches. Title, labels and legend are added to it, see
            :meth:`Chart.add_texts`.
    """
    # Here, because matplotlib is only needed to draw.
    from stsbench.plots.chart import Chart, styled

    with styled():
        yield Chart(height)


@contextmanager
def new_panels(n_panels: int, *, same_axes: bool = True) -> Iterator[tuple[Chart, list[Axes]]]:
    """Yield an empty chart with panels to a ``with`` block that draws them.

    Args:
        n_panels: The number of panels.
        same_axes: Whether all panels have the same limits of their x axes and of their y axes.

    Yields:
        The chart, a matplotlib figure, and the matplotlib axes of its panels, row by row.
    """
    n_fitting = max(1, int(current_width() / MIN_PANEL_WIDTH))
    n_rows = math.ceil(n_panels / min(MAX_PANELS_IN_ROW, n_fitting))
    n_columns = math.ceil(n_panels / n_rows)
    panel_height = min(0.65 * current_width() / n_columns + 0.3, MAX_PANEL_HEIGHT)
    with new_chart(panel_height * n_rows) as chart:
        grid = chart.subplots(n_rows, n_columns, squeeze=False, sharex=same_axes, sharey=same_axes)
        all_axes = grid.ravel().tolist()
        for unused_axes in all_axes[n_panels:]:
            unused_axes.remove()
        for bottom_axes in all_axes[max(0, n_panels - n_columns) : n_panels]:
            # A panel without another one below it needs labels at its own ticks.
            bottom_axes.tick_params(labelbottom=True)
        yield chart, all_axes[:n_panels]


def legend_artists(all_axes: Sequence[Axes]) -> list[Any]:
    """Return the artists of one legend for all panels, with each series once."""
    artists = [artist for axes in all_axes for artist in axes.get_legend_handles_labels()[0]]
    return list({artist.get_label(): artist for artist in artists}.values())


def numbered_legend_artists(names: Sequence[str]) -> list[Any]:
    """Return the artists of a legend of the names behind the numbers at points, from 1."""
    from matplotlib.lines import Line2D

    labels = [f"{number} {printable_name(name)}" for number, name in enumerate(names, 1)]
    return [Line2D([], [], linestyle="none", label=label) for label in labels]
