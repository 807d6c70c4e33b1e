"""Dots with their 95% intervals in panels side by side: encoders in rows, a panel a column of a table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.errors import DataError, visible
from stsbench.plots import drawn_name

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

LABELS, PANEL, LINE_HEIGHT, FRAME = 2.2, 1.15, 0.19, 1.0
"""In inches: of the rows' names, of a panel, of a row, and of titles and axis."""
NOTE_HEIGHT, SIGNS = 0.13, 15
"""Of a line of notes in inches, and how many signs it has to the inch."""
SIZE = 4.5
"""Of a dot, in points."""


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
    from stsbench.plots.chart import new_chart, styled

    with styled():
        width = LABELS + PANEL * len(panels)
        below = [line for note in notes for line in textwrap.wrap(visible(note), round(width * SIGNS))]
        chart = new_chart(width, FRAME + LINE_HEIGHT * len(rows) + NOTE_HEIGHT * len(below))
        all_axes = chart.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for place, (axes, head) in enumerate(zip(all_axes, panels, strict=True)):
            axes.set_title(drawn_name(head), fontsize="small")
            _draw(axes, [dot for dot in dots if dot.panel == place], len(rows), zero=zero)
        all_axes[0].set_yticks(range(len(rows)), [*map(drawn_name, rows)])
        all_axes[0].set_ylim(len(rows) - 0.5, -0.5)
        chart.supxlabel("\n".join([axis, *below]), fontsize="small")
        chart.suptitle(drawn_name(title), fontsize="medium")
    return chart


def _draw(axes: Any, dots: Sequence[PanelDot], rows: int, *, zero: bool) -> None:  # noqa: ANN401 - matplotlib is not imported for it
    from stsbench.plots.chart import BAND, look

    colour, marker = look(0)
    for row in range(0, rows, 2):
        axes.axhspan(row - 0.5, row + 0.5, color=BAND, linewidth=0, zorder=0)
    if zero:
        axes.axvline(0, color="black", linewidth=0.8)
    for dot in dots:
        if dot.interval is not None:
            axes.hlines(dot.row, *dot.interval, color=colour, linewidth=1.2)
        face = colour if dot.filled else "white"
        axes.plot([dot.value], [dot.row], marker=marker, markersize=SIZE, color=colour, markerfacecolor=face)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize="x-small")
    axes.locator_params(axis="x", nbins=3)
    axes.grid(axis="x")
