"""Points where they are, joined, numbered and coloured as is said."""

from __future__ import annotations

import pytest

from stsbench.errors import DataError
from stsbench.plots.spots import MANY, Spot, Violin, draw_spots

SPOTS = [
    Spot(1, 2, "p", 80.0, "_one"),
    Spot(3, 4, "p", 90.0, "two"),
    Spot(5, 6, "q", 85.0, joined="j"),
    Spot(7, 8, "q", 86.0, joined="j"),
]


def test_nothing_is_no_figure():
    with pytest.raises(DataError, match="there are no points to draw"):
        draw_spots([], across="x", up="y")


def test_names_are_numbers_beside_the_points_and_in_the_legend():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    chart = draw_spots(SPOTS, across="x", up="y", values="score")
    first, second = chart.axes[:2]
    assert [(text.get_text(), text.xy) for text in first.texts] == [("1", (1, 2)), ("2", (3, 4))]
    assert [text.get_text() for text in chart.legends[0].get_texts()] == ["1 _one", "2 two"]
    assert [point.tolist() for point in second.collections[0].get_offsets()] == [[5, 6], [7, 8]]
    assert list(second.lines[0].get_xydata().ravel()) == [5, 6, 7, 8]
    assert first.collections[0].get_clim() == (80.0, 90.0)


def test_many_points_are_a_picture_in_the_file():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    chart = draw_spots([Spot(x, x) for x in range(MANY + 1)], across="x", up="y")
    assert chart.axes[0].collections[0].get_rasterized()
    assert len(chart.to_bytes("svg")) < 60_000


def test_a_density_stands_at_its_place():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    chart = draw_spots([Spot(0, 0), Spot(1, 1)], across="x", up="y", violins=[Violin("", 0.5, 0.8, [0, 0.5, 1])])
    median = chart.axes[0].collections[-1].get_segments()[0]
    assert median[:, 1].tolist() == [0.5, 0.5] and median[:, 0].mean() == pytest.approx(0.5)


@pytest.mark.parametrize(("count", "places"), [(3, (1, 3)), (4, (2, 2)), (5, (2, 3))])
def test_panels_fill_their_rows_and_the_lowest_of_each_column_says_its_numbers(count, places):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    chart = draw_spots([Spot(0, 0, str(at)) for at in range(count)], across="x", up="y")
    grid = chart.axes[0].get_subplotspec().get_gridspec()
    assert (grid.nrows, grid.ncols, len(chart.axes)) == (*places, count)
    said = [axes.xaxis.get_tick_params()["labelbottom"] for axes in chart.axes]
    assert said == [at >= count - places[1] for at in range(count)]
