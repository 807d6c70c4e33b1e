"""Lines: numbers over a size or a setting, with their intervals, in panels where there are several; and training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stsbench.core.errors import DataError
from stsbench.plots import drawn_name, legend_name

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

WIDTH, HEIGHT, SIDE, ACROSS = 6.5, 4.0, 2.6, 3
"""In inches: of a lone panel, and the side of one of several; so many panels go side by side."""
CURVE_HEIGHT = 2.2
"""Of a panel of training curves, in inches."""
SIZE = 5.5
"""Of a dot, in points."""
TICKED, DOTTED = 12, 40
"""Up to so many sizes each has a tick; a line of more points has no dots."""
Scale = Literal["linear", "log2", "log10", "log2p1"]
"""``log2p1`` has a place for 0 too: from 1 on it is a logarithm to base 2."""
SCALES: Mapping[str, Mapping[str, Any]] = {
    "log2": {"value": "log", "base": 2},
    "log10": {"value": "log", "base": 10},
    "log2p1": {"value": "symlog", "base": 2, "linthresh": 1},
}


class LinePoint(NamedTuple):
    """One number: of which series it is, over which size, its interval, if one is known, and the panel it stands in."""

    series: str
    size: float
    value: float
    interval: tuple[float, float] | None = None
    panel: str = ""


def draw_lines(
    points: Sequence[LinePoint],
    *,
    sizes: str,
    values: str,
    title: str = "",
    scale: Scale = "linear",
    value_scale: Scale = "linear",
) -> Chart:
    """Draw a line a series, in the order in which they come first, its points by their size.

    Args:
        points: the numbers.
        sizes: what sizes are, on the axes below.
        values: what numbers are, on the axes beside.
        title: above the chart.
        scale: of sizes.
        value_scale: of numbers.

    Raises:
        DataError: there are no points.
        StsbenchError: matplotlib is not installed.
    """
    if not points:
        raise DataError("there are no scores to draw")
    from stsbench.plots.chart import panel_axes, styled

    series = list(dict.fromkeys(point.series for point in points))
    panels = list(dict.fromkeys(point.panel for point in points))
    with styled():
        chart, all_axes = panel_axes(len(panels), alone=(WIDTH, HEIGHT), side=SIDE, across=ACROSS)
        for axes, panel in zip(all_axes, panels, strict=True):
            mine = [point for point in points if point.panel == panel]
            for place, name in enumerate(series):
                _draw_series(axes, name, [point for point in mine if point.series == name], place)
            _set_axes(axes, [point.size for point in points], scale, value_scale)
            axes.set_title(drawn_name(panel), fontsize="small")
        chart.name(title, sizes, values)
        if len(series) > 1:
            handles = {one.get_label(): one for axes in all_axes for one in axes.get_legend_handles_labels()[0]}
            chart.legend(handles=list(handles.values()), loc="outside right upper", frameon=False, fontsize="small")
    return chart


def _set_axes(axes: Any, sizes: Sequence[float], scale: Scale, value_scale: Scale) -> None:  # noqa: ANN401 - matplotlib
    if scale in SCALES:
        axes.set_xscale(**SCALES[scale])
        axes.xaxis.set_major_formatter("{x:g}")
    if value_scale in SCALES:
        axes.set_yscale(**SCALES[value_scale])
        axes.yaxis.set_major_formatter("{x:g}")
    ticks = sorted(set(sizes))
    if len(ticks) <= TICKED:
        axes.set_xticks(ticks, [f"{size:g}" for size in ticks], rotation=90 if len(ticks) > 8 else 0)
        axes.minorticks_off()
    axes.grid(axis="y")


def _draw_series(axes: Any, name: str, points: Sequence[LinePoint], place: int) -> None:  # noqa: ANN401 - matplotlib is not imported for it
    from stsbench.plots.chart import look

    if not points:
        return
    colour, marker = look(place)
    points = sorted(points, key=lambda point: point.size)
    for point in points:
        if point.interval is not None:
            axes.vlines(point.size, *point.interval, color=colour, linewidth=1.5)
    sizes, values = [point.size for point in points], [point.value for point in points]
    every = max(1, len(points) // 8) if len(points) > DOTTED else 1
    shape = {"marker": marker, "markevery": every, "markersize": SIZE}
    axes.plot(sizes, values, linewidth=1.2, color=colour, label=legend_name(name), **shape)


class CurvePoint(NamedTuple):
    """One validation: the step, the score in points, and the mean loss since the validation before."""

    step: float
    score: float | None
    loss: float | None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The validations of one run, and the step whose weights were kept."""

    name: str
    points: Sequence[CurvePoint]
    kept: float | None = None


def draw_curves(curves: Sequence[Curve], *, score: str) -> Chart:
    """Draw development scores above losses, the kept step of each run as a ring.

    Args:
        curves: one a run.
        score: what the scores are of.

    Raises:
        DataError: no run was validated.
        StsbenchError: matplotlib is not installed.
    """
    if not any(curve.points for curve in curves):
        raise DataError("there is no curve to draw: nothing was validated while it was trained")
    from stsbench.plots.chart import new_chart, styled

    with_loss = any(point.loss is not None for curve in curves for point in curve.points)
    with styled():
        chart = new_chart(WIDTH, CURVE_HEIGHT * (1 + with_loss) + 0.4)
        above, *below = chart.subplots(1 + with_loss, 1, sharex=True, squeeze=False)[:, 0]
        for place, curve in enumerate(curves):
            _draw_line(above, curve, place, [(p.step, p.score) for p in curve.points if p.score is not None])
            for axes in below:
                _draw_line(axes, curve, place, [(p.step, p.loss) for p in curve.points if p.loss is not None])
        above.set_ylabel(score)
        for axes in below:
            axes.set_ylabel("loss")
        [*below, above][0].set_xlabel("step")
        if len(curves) > 1:
            above.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return chart


def _draw_line(axes: Any, curve: Curve, place: int, points: Sequence[tuple[float, float]]) -> None:  # noqa: ANN401 - matplotlib
    from stsbench.plots.chart import look

    colour, marker = look(place)
    steps, values = [step for step, _ in points], [value for _, value in points]
    axes.plot(steps, values, color=colour, marker=marker, markersize=3, linewidth=1.2, label=legend_name(curve.name))
    for step, value in points:
        if step == curve.kept:
            axes.plot([step], [value], marker="o", markersize=9, markerfacecolor="none", color=colour)
    axes.grid(axis="both")
