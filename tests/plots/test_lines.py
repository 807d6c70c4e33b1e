"""Numbers over sizes: points where they are, a line a series, and words that say what is drawn."""

from __future__ import annotations

import pytest

from stsbench.errors import DataError
from stsbench.plots.lines import LinePoint, draw_lines

POINTS = [
    LinePoint("float32", 1536, 82.0),
    LinePoint("float32", 512, 80.5, (79.9, 81.1)),
    LinePoint("_bits $x$", 48, 79.0, (78.0, 80.0)),
]


def test_nothing_is_no_figure():
    with pytest.raises(DataError, match="there are no scores to draw"):
        draw_lines([], sizes="bytes", values="score")


def test_points_stand_over_their_sizes():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
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
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    first, second = (draw_lines(POINTS, sizes="bytes", values="score").to_bytes("svg") for _ in range(2))
    assert first == second
    assert b"1536" in first


def test_panels_share_their_axes_and_one_legend():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    points = [
        LinePoint(name, size, size * 10.0, panel=panel) for name in "ab" for size in (1, 100) for panel in ("p", "q")
    ]
    chart = draw_lines(points, sizes="k", values="score", value_scale="log10")
    assert [axes.get_title() for axes in chart.axes] == ["p", "q"]
    assert [axes.get_yscale() for axes in chart.axes] == ["log", "log"]
    assert [text.get_text() for text in chart.legends[0].get_texts()] == ["a", "b"]
    assert b"mathdefault" not in chart.to_bytes("svg")
