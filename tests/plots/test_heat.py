"""Cells where their rows and columns say, each with its number, readable on its colour."""

from __future__ import annotations

import pytest

from stsbench.errors import DataError
from stsbench.plots.heat import HeatCell, draw_heat

CELLS = [HeatCell("cls", "0", 10.0), HeatCell("cls", "1", 20.0), HeatCell("mean", "1", 55.55)]


def test_nothing_is_no_figure():
    with pytest.raises(DataError, match="there are no scores to draw"):
        draw_heat([], rows="pooling", columns="layer", values="score")


def test_numbers_stand_in_their_places_and_an_empty_place_stays_empty():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
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
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    chart = draw_heat([*CELLS, HeatCell("cls", "0", 90.0, "b")], rows="pooling", columns="layer", values="score")
    images = [axes.images[0] for axes in chart.axes if axes.images]
    assert [image.get_clim() for image in images] == [(10.0, 90.0)] * 2
