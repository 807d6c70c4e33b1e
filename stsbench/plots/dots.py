"""Dots with their 95% intervals, in groups one below the other: scores by task, or differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stsbench.errors import DataError
from stsbench.plots import drawn_name, label_lines, legend_name

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

WIDTH, LINE_HEIGHT, FRAME = 6.5, 0.2, 0.9
"""In inches: of a chart, of one dot's line, and of axis and title."""
SIZE = 5.5
"""Of a dot, in points."""


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One number: in which group it stands, of which series it is, and its interval, if one is known.

    A dot that is not ``filled`` is drawn as a ring.
    """

    group: str
    series: str
    value: float
    interval: tuple[float, float] | None = None
    filled: bool = True

    @classmethod
    def difference(cls, group: str, series: str, value: float, low: float, high: float) -> Dot:
        """A difference with its 95% interval: a ring where it may be 0."""
        return cls(group=group, series=series, value=value, interval=(low, high), filled=low > 0 or high < 0)


def draw_dots(dots: Sequence[Dot], *, axis: str, title: str = "", zero: bool = False) -> Chart:
    """Draw dots, groups and series in the order in which they come first.

    Args:
        dots: at most one for each group and series.
        axis: what the numbers are.
        title: above the chart.
        zero: whether a line stands at 0.

    Raises:
        DataError: there are no dots.
        StsbenchError: matplotlib is not installed.
    """
    if not dots:
        raise DataError("there are no scores to draw")
    from stsbench.plots.chart import new_chart, styled

    groups = list(dict.fromkeys(dot.group for dot in dots))
    series = list(dict.fromkeys(dot.series for dot in dots))
    # As many lines as a group's dots need, or its name.
    height = max(len(series) + 1, *(label_lines(name).count("\n") + 1 for name in groups))
    tops = {name: place * height + (height - len(series)) / 2 for place, name in enumerate(groups)}
    with styled():
        chart = new_chart(WIDTH, FRAME + LINE_HEIGHT * len(groups) * height)
        axes = chart.add_subplot()
        _draw_groups(axes, groups, height)
        if zero:
            axes.axvline(0, color="black", linewidth=0.8)
        for place, name in enumerate(series):
            mine = [dot for dot in dots if dot.series == name]
            _draw_series(axes, mine, name, place, tops)
        axes.set_xlabel(axis)
        axes.set_title(drawn_name(title), fontsize="medium", loc="left")
        if len(series) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return chart


def _draw_groups(axes: Any, groups: Sequence[str], height: int) -> None:  # noqa: ANN401 - matplotlib is not imported for it
    """A band behind every second group, and its name in the middle."""
    from stsbench.plots.chart import BAND

    for place in range(0, len(groups), 2):
        axes.axhspan(place * height - 0.5, (place + 1) * height - 0.5, color=BAND, linewidth=0, zorder=0)
    axes.set_yticks([(place + 0.5) * height - 0.5 for place in range(len(groups))], [*map(label_lines, groups)])
    axes.set_ylim(len(groups) * height - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def _draw_series(
    axes: Any,  # noqa: ANN401 - matplotlib is not imported for it
    dots: Sequence[Dot],
    name: str,
    place: int,
    tops: Mapping[str, float],
) -> None:
    from stsbench.plots.chart import look

    colour, marker = look(place)
    # What stands in the legend is filled, whatever the first dot is.
    axes.plot([], [], marker=marker, markersize=SIZE, linestyle="none", color=colour, label=legend_name(name))
    for dot in dots:
        y = tops[dot.group] + place
        if dot.interval is not None:
            axes.hlines(y, *dot.interval, color=colour, linewidth=1.5)
        axes.plot(
            [dot.value],
            [y],
            marker=marker,
            markersize=SIZE,
            linestyle="none",
            color=colour,
            markerfacecolor=colour if dot.filled else "white",
        )
