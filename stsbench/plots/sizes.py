"""Numbers over a size on a logarithmic axis, a line a series, with their 95% intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

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
    from stsbench.plots.chart import look, new_chart, styled

    with styled():
        chart = new_chart(WIDTH, HEIGHT)
        axes = chart.add_subplot()
        for place, name in enumerate(dict.fromkeys(point.series for point in points)):
            mine = sorted((point for point in points if point.series == name), key=lambda point: point.size)
            colour, marker = look(place)
            known = [point for point in mine if point.interval is not None]
            axes.vlines(
                [p.size for p in known],
                *zip(*(p.interval for p in known if p.interval), strict=True) or ([], []),
                color=colour,
                linewidth=1.5,
            )
            axes.plot(
                [p.size for p in mine],
                [p.value for p in mine],
                marker=marker,
                markersize=SIZE,
                color=colour,
                label=_text(name),
            )
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


def _text(name: str) -> str:
    shown = cut(visible(one_line(name)))
    return f"\u200b{shown}" if shown.startswith("_") else shown
