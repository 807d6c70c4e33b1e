from __future__ import annotations

import sys
from xml.etree import ElementTree

import pytest

from stsbench.core.errors import DataError, StsbenchError
from stsbench.plots.draw import Dot, draw_dots, draw_heat, draw_lines, draw_panels, draw_spots

DOTS = [
    Dot(group="stsb", series="minilm", value=82.03, interval=(80.1, 83.7)),
    Dot(group="stsb", series="_my $x^2$ <b>", value=70.0, filled=False),
    Dot(group="sickr", series="minilm", value=77.58, interval=(76.4, 78.7)),
]


def luminance(colour: str) -> float:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_without_matplotlib_one_line_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("matplotlib", "stsbench.plots.chart"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(StsbenchError) as caught:
        draw_dots(DOTS, axis="points")
    assert str(caught.value) == ("figures need matplotlib; install the extra 'plots': pip install 'stsbench[plots]'")


NOTHING = {
    "dots": lambda: draw_dots([], axis="points"),
    "panels": lambda: draw_panels([], panels=[], rows=[], axis="points"),
    "lines": lambda: draw_lines([], sizes="bytes", values="score"),
    "cells": lambda: draw_heat([], rows="pooling", columns="layer", values="score"),
    "spots": lambda: draw_spots([], across="x", up="y"),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_nothing_is_no_figure(kind):
    with pytest.raises(DataError, match="there are no (scores|points) to draw"):
        NOTHING[kind]()


def test_dots_stand_where_their_numbers_are():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    (axes,) = draw_dots(DOTS, axis="points", title="two encoders", zero=True).axes
    drawn = [line for line in axes.lines if len(line.get_xdata()) == 1]
    assert sorted(float(line.get_xdata()[0]) for line in drawn) == [70.0, 77.58, 82.03]
    ends = sorted(tuple(part[:, 0]) for bars in axes.collections for part in bars.get_segments())
    assert ends == [(76.4, 78.7), (80.1, 83.7)]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["stsb", "sickr"]
    assert [text.get_text().lstrip("\u200b") for text in axes.get_legend().get_texts()] == ["minilm", "_my $x^2$ <b>"]
    assert (axes.get_xlabel(), axes.get_title(loc="left")) == ("points", "two encoders")
    rings = [line for line in drawn if line.get_markerfacecolor() == "white"]
    assert [float(line.get_xdata()[0]) for line in rings] == [70.0]


def test_files_are_whole_and_the_same_each_time():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    from stsbench.plots.chart import FORMATS

    for fmt, begins in {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}.items():
        first, again = (draw_dots(DOTS, axis="points").to_bytes(fmt) for _ in range(2))
        assert first == again
        assert first.startswith(begins)
    assert {*FORMATS} == {"svg", "png", "pdf"}
    texts = {
        "".join(node.itertext())
        for node in ElementTree.fromstring(draw_dots(DOTS, axis="points").to_bytes("svg")).iter()
    }
    assert {"stsb", "sickr", "minilm"} <= texts
    assert any("_my $x^2$ <b>" in text for text in texts)


def test_the_users_own_settings_stay():
    matplotlib = pytest.importorskip("matplotlib", reason="needs the extra plots")
    before = dict(matplotlib.rcParams)
    draw_dots(DOTS, axis="points").to_bytes("png")
    assert dict(matplotlib.rcParams) == before


def test_series_differ_in_colour_in_mark_and_in_grey():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    from stsbench.plots.draw import COLOURS, MARKERS, look

    first = [look(place) for place in range(len(COLOURS))]
    assert len({one.colour for one in first}) == len({one.marker for one in first}) == len(COLOURS)
    assert len({look(place) for place in range(49)}) == len(COLOURS) * len(MARKERS)
    greys = [luminance(one.colour) for one in first[:3]]
    assert min(abs(a - b) for at, a in enumerate(greys) for b in greys[at + 1 :]) > 0.2
    assert max(luminance(one.colour) for one in first) < 0.7


def test_a_long_name_is_in_lines_that_have_room():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    name = "minilm-l4-mlm+model=/data/models/minilm-l4-mlm+pooling=cls_before_pooler"
    dots = [Dot(group=group, series="", value=1.0) for group in (name, "minilm")]
    axes = draw_dots(dots, axis="points").axes[0]
    long, short = (tick.get_text() for tick in axes.get_yticklabels())
    assert long.replace("\n", "") == name and max(map(len, long.split("\n"))) <= 30 and short == "minilm"
    # A line of type is lower than a line of the chart, and dots stand in the middle of their bands.
    assert axes.get_ylim()[0] + 0.5 == 2 * len(long.split("\n"))
    assert [line.get_ydata()[0] for line in axes.lines if len(line.get_xdata()) == 1] == list(axes.get_yticks())
