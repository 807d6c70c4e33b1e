"""Training curves as matplotlib holds them."""

from __future__ import annotations

import pytest

from stsbench.errors import DataError
from stsbench.plots.curves import Curve, CurvePoint, draw_curves

pytest.importorskip("matplotlib", reason="the extra plots is not installed")

POINTS = [CurvePoint(0, 60.0, None), CurvePoint(10, 70.0, 2.5), CurvePoint(20, 65.0, 1.5)]


def test_scores_stand_above_losses_and_the_kept_step_has_a_ring():
    chart = draw_curves(
        [Curve(name="one", points=POINTS, kept=10), Curve(name="_two", points=POINTS[:2])], score="stsb dev"
    )
    above, below = chart.axes
    assert (above.get_ylabel(), below.get_ylabel(), below.get_xlabel()) == ("stsb dev", "loss", "step")
    one, ring, two = above.lines
    assert [*map(tuple, one.get_xydata())] == [(0, 60), (10, 70), (20, 65)]
    assert [*map(tuple, ring.get_xydata())] == [(10, 70)] and ring.get_markerfacecolor() == "none"
    assert len(two.get_xydata()) == 2
    assert [*map(tuple, below.lines[0].get_xydata())] == [(10, 2.5), (20, 1.5)]
    assert [text.get_text().strip("\u200b") for text in above.get_legend().get_texts()] == ["one", "_two"]


def test_without_losses_there_is_one_panel_and_without_points_none():
    chart = draw_curves([Curve(name="one", points=[CurvePoint(1, 50.0, None)])], score="dev")
    assert len(chart.axes) == 1 and chart.axes[0].get_xlabel() == "step"
    with pytest.raises(DataError, match="nothing was validated"):
        draw_curves([Curve(name="one", points=[])], score="dev")
