"""Numbers over a size on a logarithmic axis, a line a series, with their 95% intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.errors import DataError, cut, one_line, visible

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

WIDTH, HEIGHT = 6.5, 4.0
"""In inches."""
SIZE = 5.5
"""Of a dot, in points."""


class SizePoint(NamedTuple):
    """One number: of which series it is, over which size, and its interval, if one is known."""

    series: str
    size: float
    value: float
    interval: tuple[float, float] | None = None


def draw_sizes(points: Sequence[SizePoint], *, sizes: str, values: str, title: str = "") -> Chart:
    """Draw a line a series, in the order in which they come first, its points by their size.

    Args:
        points: the numbers.
        sizes: what sizes are, on the axis below.
        values: what numbers are, on the axis beside.
        title: above the chart.

    Raises:
        DataError: there are no points.
        StsbenchError: matplotlib is not installed.
    """
    if not points:
        raise DataError("there are no scores to draw")
    from stsbench.plots.chart import new_chart, styled

    with styled():
        chart = new_chart(WIDTH, HEIGHT)
        axes = chart.add_subplot()
        for place, name in enumerate(dict.fromkeys(point.series for point in points)):
            _draw_series(axes, name, [point for point in points if point.series == name], place)
        axes.set_xscale("log", base=2)
        ticks = sorted({point.size for point in points})
        axes.set_xticks(ticks, [f"{size:g}" for size in ticks], rotation=90 if len(ticks) > 8 else 0)
        axes.minorticks_off()
        axes.set_xlabel(sizes)
        axes.set_ylabel(values)
        axes.set_title(_text(title), fontsize="medium", loc="left")
        axes.grid(axis="y")
        axes.legend(loc="best", frameon=False)
    return chart


def _draw_series(axes: Any, name: str, points: Sequence[SizePoint], place: int) -> None:  # noqa: ANN401 - matplotlib is not imported for it
    from stsbench.plots.chart import look

    colour, marker = look(place)
    points = sorted(points, key=lambda point: point.size)
    for point in points:
        if point.interval is not None:
            axes.vlines(point.size, *point.interval, color=colour, linewidth=1.5)
    sizes, values = [point.size for point in points], [point.value for point in points]
    axes.plot(sizes, values, marker=marker, markersize=SIZE, color=colour, label=_text(name))


def _text(name: str) -> str:
    shown = cut(visible(one_line(name)))
    return f"\u200b{shown}" if shown.startswith("_") else shown
