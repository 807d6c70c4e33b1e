"""Dots with their 95% intervals: in groups one below the other, or in panels side by side that share their rows."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stsbench.core.errors import DataError, visible
from stsbench.plots import drawn_name, label_lines, legend_name

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

WIDTH, LINE_HEIGHT, FRAME = 6.5, 0.2, 0.9
"""In inches: of a chart of groups, of one dot's line, and of axis and title."""
LABELS, PANEL, ROW_HEIGHT, PANEL_FRAME = 2.2, 1.15, 0.19, 1.0
"""In inches: of the rows' names beside panels, of a panel, of a row, and of titles and axis."""
NOTE_HEIGHT, SIGNS = 0.13, 15
"""Of a line of notes in inches, and how many signs it has to the inch."""
SIZE, PANEL_SIZE = 5.5, 4.5
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
    from stsbench.plots.chart import draw_bands, draw_dot, look, new_chart, styled

    groups = list(dict.fromkeys(dot.group for dot in dots))
    series = list(dict.fromkeys(dot.series for dot in dots))
    # As many lines as a group's dots need, or its name.
    height = max(len(series) + 1, *(label_lines(name).count("\n") + 1 for name in groups))
    tops = {name: place * height + (height - len(series)) / 2 for place, name in enumerate(groups)}
    with styled():
        chart = new_chart(WIDTH, FRAME + LINE_HEIGHT * len(groups) * height)
        axes = chart.add_subplot()
        draw_bands(axes, len(groups), height)
        axes.set_yticks([(place + 0.5) * height - 0.5 for place in range(len(groups))], [*map(label_lines, groups)])
        axes.set_ylim(len(groups) * height - 0.5, -0.5)
        if zero:
            axes.axvline(0, color="black", linewidth=0.8)
        for place, name in enumerate(series):
            drawn = look(place)
            # What stands in the legend is filled, whatever the first dot is.
            axes.plot(
                [],
                [],
                marker=drawn.marker,
                markersize=SIZE,
                linestyle="none",
                color=drawn.colour,
                label=legend_name(name),
            )
            for dot in dots:
                if dot.series == name:
                    at = dot.value, tops[dot.group] + place
                    draw_dot(axes, at, dot.interval, drawn, size=SIZE, width=1.5, filled=dot.filled)
        axes.set_xlabel(axis)
        axes.set_title(drawn_name(title), fontsize="medium", loc="left")
        if len(series) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return chart


class PanelDot(NamedTuple):
    """One number: the place of its panel and of its row, and its interval, if one is known.

    A dot that is not ``filled`` is drawn as a ring.
    """

    panel: int
    row: int
    value: float
    interval: tuple[float, float] | None = None
    filled: bool = True


def draw_panels(
    dots: Sequence[PanelDot],
    *,
    panels: Sequence[str],
    rows: Sequence[str],
    axis: str,
    title: str = "",
    notes: Sequence[str] = (),
    zero: bool = False,
) -> Chart:
    """Draw dots in panels that share their rows.

    Args:
        dots: the numbers.
        panels: the titles of the panels.
        rows: the names of the rows, from the top.
        axis: what the numbers are.
        title: above all panels.
        notes: below them.
        zero: whether a line stands at 0.

    Raises:
        DataError: there are no dots.
        StsbenchError: matplotlib is not installed.
    """
    if not dots:
        raise DataError("there are no scores to draw")
    from stsbench.plots.chart import draw_bands, draw_dot, look, new_chart, styled

    with styled():
        width = LABELS + PANEL * len(panels)
        below = [line for note in notes for line in textwrap.wrap(visible(note), round(width * SIGNS))]
        chart = new_chart(width, PANEL_FRAME + ROW_HEIGHT * len(rows) + NOTE_HEIGHT * len(below))
        all_axes = chart.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for place, (axes, head) in enumerate(zip(all_axes, panels, strict=True)):
            axes.set_title(drawn_name(head), fontsize="small")
            draw_bands(axes, len(rows))
            if zero:
                axes.axvline(0, color="black", linewidth=0.8)
            for dot in dots:
                if dot.panel == place:
                    at = dot.value, dot.row
                    draw_dot(axes, at, dot.interval, look(0), size=PANEL_SIZE, width=1.2, filled=dot.filled)
            axes.tick_params(axis="x", labelsize="x-small")
            axes.locator_params(axis="x", nbins=3)
        all_axes[0].set_yticks(range(len(rows)), [*map(drawn_name, rows)])
        all_axes[0].set_ylim(len(rows) - 0.5, -0.5)
        chart.supxlabel("\n".join([axis, *below]), fontsize="small")
        chart.suptitle(drawn_name(title), fontsize="medium")
    return chart
