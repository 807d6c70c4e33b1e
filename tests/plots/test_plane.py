"""Cells where their rows and columns say, each with its number, readable on its colour."""

from __future__ import annotations

import pytest

from stsbench.plots.draw import MANY, HeatCell, Spot, Violin, draw_heat, draw_spots

pytest.importorskip("matplotlib", reason="the extra plots is not installed")

CELLS = [HeatCell("cls", "0", 10.0), HeatCell("cls", "1", 20.0), HeatCell("mean", "1", 55.55)]


def test_numbers_stand_in_their_places_and_an_empty_place_stays_empty():
    axes = draw_heat(CELLS, rows="pooling", columns="layer", values="score").axes[0]
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0, 0): "10.0",
        (1, 0): "20.0",
        (1, 1): "55.5",
    }
    assert [text.get_color() for text in axes.texts] == ["white", "white", "black"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cls", "mean"]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("pooling", "layer")


def test_panels_have_one_scale():
    chart = draw_heat([*CELLS, HeatCell("cls", "0", 90.0, "b")], rows="pooling", columns="layer", values="score")
    images = [axes.images[0] for axes in chart.axes if axes.images]
    assert [image.get_clim() for image in images] == [(10.0, 90.0)] * 2


SPOTS = [
    Spot(1, 2, "p", 80.0, "_one"),
    Spot(3, 4, "p", 90.0, "two"),
    Spot(5, 6, "q", 85.0, joined="j"),
    Spot(7, 8, "q", 86.0, joined="j"),
]


def test_names_are_numbers_beside_the_points_and_in_the_legend():
    chart = draw_spots(SPOTS, across="x", up="y", values="score")
    first, second = chart.axes[:2]
    assert [(text.get_text(), text.xy) for text in first.texts] == [("1", (1, 2)), ("2", (3, 4))]
    assert [text.get_text() for text in chart.legends[0].get_texts()] == ["1 _one", "2 two"]
    assert [point.tolist() for point in second.collections[0].get_offsets()] == [[5, 6], [7, 8]]
    assert list(second.lines[0].get_xydata().ravel()) == [5, 6, 7, 8]
    assert first.collections[0].get_clim() == (80.0, 90.0)


def test_many_points_are_a_picture_in_the_file():
    chart = draw_spots([Spot(x, x) for x in range(MANY + 1)], across="x", up="y")
    assert chart.axes[0].collections[0].get_rasterized()
    assert len(chart.to_bytes("svg")) < 60_000


def test_a_density_stands_at_its_place():
    chart = draw_spots([Spot(0, 0), Spot(1, 1)], across="x", up="y", violins=[Violin("", 0.5, 0.8, [0, 0.5, 1])])
    median = chart.axes[0].collections[-1].get_segments()[0]
    assert median[:, 1].tolist() == [0.5, 0.5] and median[:, 0].mean() == pytest.approx(0.5)


@pytest.mark.parametrize(("count", "places"), [(3, (1, 3)), (4, (2, 2)), (5, (2, 3))])
def test_panels_fill_their_rows_and_the_lowest_of_each_column_says_its_numbers(count, places):
    chart = draw_spots([Spot(0, 0, str(at)) for at in range(count)], across="x", up="y")
    grid = chart.axes[0].get_subplotspec().get_gridspec()
    assert (grid.nrows, grid.ncols, len(chart.axes)) == (*places, count)
    said = [axes.xaxis.get_tick_params()["labelbottom"] for axes in chart.axes]
    assert said == [at >= count - places[1] for at in range(count)]
