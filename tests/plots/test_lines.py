"""Numbers over sizes: points where they are, a line a series, and words that say what is drawn."""

from __future__ import annotations

import pytest

from stsbench.core.errors import DataError
from stsbench.plots.draw import Curve, CurvePoint, LinePoint, draw_curves, draw_lines

pytest.importorskip("matplotlib", reason="the extra plots is not installed")

POINTS = [
    LinePoint("float32", 1536, 82.0),
    LinePoint("float32", 512, 80.5, (79.9, 81.1)),
    LinePoint("_bits $x$", 48, 79.0, (78.0, 80.0)),
]


def test_points_stand_over_their_sizes():
    chart = draw_lines(POINTS, sizes="bytes", values="score", title="mine", scale="log2")
    (axes,) = chart.axes
    drawn = [list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.lines]
    assert drawn == [[(512, 80.5), (1536, 82.0)], [(48, 79.0)]]
    ends = [tuple(segment[:, 1]) for lines in axes.collections for segment in lines.get_segments()]
    assert ends == [(79.9, 81.1), (78.0, 80.0)]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["48", "512", "1536"]
    assert (axes.get_xscale(), chart.get_supxlabel(), chart.get_supylabel()) == ("log", "bytes", "score")
    assert [text.get_text() for text in chart.legends[0].get_texts()] == ["float32", "\u200b_bits $x$"]


def test_the_same_points_give_the_same_bytes():
    first, second = (draw_lines(POINTS, sizes="bytes", values="score").to_bytes("svg") for _ in range(2))
    assert first == second
    assert b"1536" in first


def test_panels_share_their_axes_and_one_legend():
    points = [
        LinePoint(name, size, size * 10.0, panel=panel) for name in "ab" for size in (1, 100) for panel in ("p", "q")
    ]
    chart = draw_lines(points, sizes="k", values="score", value_scale="log10")
    assert [axes.get_title() for axes in chart.axes] == ["p", "q"]
    assert [axes.get_yscale() for axes in chart.axes] == ["log", "log"]
    assert [text.get_text() for text in chart.legends[0].get_texts()] == ["a", "b"]
    assert b"mathdefault" not in chart.to_bytes("svg")


# --- training curves ---

VALIDATED = [CurvePoint(0, 60.0, None), CurvePoint(10, 70.0, 2.5), CurvePoint(20, 65.0, 1.5)]


def test_scores_stand_above_losses_and_the_kept_step_has_a_ring():
    chart = draw_curves(
        [Curve(name="one", points=VALIDATED, kept=10), Curve(name="_two", points=VALIDATED[:2])], score="stsb dev"
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
