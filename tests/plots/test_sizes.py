"""Numbers over sizes: points where they are, a line a series, and words that say what is drawn."""

from __future__ import annotations

import pytest

from stsbench.errors import DataError
from stsbench.plots.sizes import SizePoint, draw_sizes

POINTS = [
    SizePoint("float32", 1536, 82.0),
    SizePoint("float32", 512, 80.5, (79.9, 81.1)),
    SizePoint("_bits $x$", 48, 79.0, (78.0, 80.0)),
]


def test_nothing_is_no_figure():
    with pytest.raises(DataError, match="there are no scores to draw"):
        draw_sizes([], sizes="bytes", values="score")


def test_points_stand_over_their_sizes():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    (axes,) = draw_sizes(POINTS, sizes="bytes", values="score", title="mine").axes
    drawn = [list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.lines]
    assert drawn == [[(512, 80.5), (1536, 82.0)], [(48, 79.0)]]
    ends = [tuple(segment[:, 1]) for lines in axes.collections for segment in lines.get_segments()]
    assert ends == [(79.9, 81.1), (78.0, 80.0)]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["48", "512", "1536"]
    assert (axes.get_xscale(), axes.get_xlabel(), axes.get_ylabel()) == ("log", "bytes", "score")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["float32", "\u200b_bits $x$"]


def test_the_same_points_give_the_same_bytes():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    first, second = (draw_sizes(POINTS, sizes="bytes", values="score").to_bytes("svg") for _ in range(2))
    assert first == second
    assert b"1536" in first
