"""Training curves: the development score and the loss by step, of one run or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.errors import DataError
from stsbench.plots import legend_name

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

WIDTH, HEIGHT = 6.5, 2.2
"""Of a panel, in inches."""


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
        chart = new_chart(WIDTH, HEIGHT * (1 + with_loss) + 0.4)
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
