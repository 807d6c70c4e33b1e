"""Figures: numbers where they are, marks that tell series apart, files that are the same each time."""

from __future__ import annotations

import io
import sys
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from stsbench.core.errors import DataError, StsbenchError
from stsbench.plots.draw import (
    Curve,
    CurvePoint,
    DotPoint,
    LinePoint,
    draw_curves,
    draw_dots,
    draw_lines,
    draw_panels,
)
from stsbench.plots.labels import LINE_HEIGHT, WIDTHS, figure_width
from stsbench.plots.planes import (
    MAX_LARGE_POINTS,
    HeatCell,
    ScatterPoint,
    Violin,
    draw_heat,
    draw_scatter,
)

pytest.importorskip("matplotlib", reason="the extra plots is not installed")

DOTS = [
    DotPoint(group="stsb", series="minilm", value=82.03, interval=(80.1, 83.7)),
    DotPoint(group="stsb", series="_my $x^2$ <b>", value=70.0, filled=False),
    DotPoint(group="sickr", series="minilm", value=77.58, interval=(76.4, 78.7)),
]


def luminance(colour: str) -> float:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_without_matplotlib_one_line_names_the_extra(monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith(("matplotlib", "stsbench.plots.chart"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(StsbenchError) as caught:
        draw_dots(DOTS, x_label="points")
    assert str(caught.value) == (
        "figures need matplotlib; install the extra 'plots': pip install 'stsbench[plots]'"
    )


NOTHING = {
    "dots": lambda: draw_dots([], x_label="points"),
    "panels": lambda: draw_panels(
        [], panel_titles={}, row_labels={}, group_titles={}, x_label="points"
    ),
    "lines": lambda: draw_lines([], x_label="bytes", y_label="score"),
    "cells": lambda: draw_heat([], row_label="pooling", column_label="layer", value_label="score"),
    "spots": lambda: draw_scatter([], x_label="x", y_label="y"),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_nothing_is_no_figure(kind):
    with pytest.raises(DataError, match="there are no (scores|points) to draw"):
        NOTHING[kind]()


def test_dots_stand_where_their_numbers_are():

    chart = draw_dots(DOTS, x_label="points", title="two encoders", has_zero_line=True)
    (axes,) = chart.axes
    drawn = [line for line in axes.lines if len(line.get_xdata()) == 1]
    assert sorted(float(line.get_xdata()[0]) for line in drawn) == [70.0, 77.58, 82.03]
    ends = sorted(tuple(part[:, 0]) for bars in axes.collections for part in bars.get_segments())
    assert ends == [(76.4, 78.7), (80.1, 83.7)]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["stsb", "sickr"]
    assert [text.get_text().lstrip("\u200b") for text in chart.legends[0].get_texts()] == [
        "minilm",
        "_my $x^2$ <b>",
    ]
    assert (chart.get_supxlabel(), chart.get_suptitle()) == ("points", "two encoders")
    rings = [line for line in drawn if line.get_markerfacecolor() == "white"]
    assert [float(line.get_xdata()[0]) for line in rings] == [70.0]


def test_files_are_whole_and_the_same_each_time():

    from stsbench.plots.chart import FORMATS

    for fmt, begins in {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}.items():
        first, again = (draw_dots(DOTS, x_label="points").to_bytes(fmt) for _ in range(2))
        assert first == again
        assert first.startswith(begins)
    assert {*FORMATS} == {"svg", "png", "pdf"}
    texts = {
        "".join(node.itertext())
        for node in ElementTree.fromstring(draw_dots(DOTS, x_label="points").to_bytes("svg")).iter()
    }
    assert {"stsb", "sickr", "minilm"} <= texts
    assert any("_my $x^2$ <b>" in text for text in texts)


def test_the_users_own_settings_stay():
    matplotlib = pytest.importorskip("matplotlib", reason="needs the extra plots")
    before = dict(matplotlib.rcParams)
    draw_dots(DOTS, x_label="points").to_bytes("png")
    assert dict(matplotlib.rcParams) == before


def test_series_differ_in_colour_in_mark_and_in_grey():

    from stsbench.plots.panels import COLOURS, MARKERS, colour_and_marker

    first = [colour_and_marker(place) for place in range(len(COLOURS))]
    assert [len(set(each)) for each in zip(*first, strict=True)] == [len(COLOURS)] * 2
    assert len({colour_and_marker(place) for place in range(49)}) == len(COLOURS) * len(MARKERS)
    greys = [luminance(one[0]) for one in first[:3]]
    assert min(abs(a - b) for at, a in enumerate(greys) for b in greys[at + 1 :]) > 0.2
    assert max(luminance(one[0]) for one in first) < 0.7


def test_a_long_name_is_in_lines_that_have_room():

    name = "minilm-l4-mlm+model=/data/models/minilm-l4-mlm+pooling=cls_before_pooler"
    dots = [DotPoint(group=group, series="", value=1.0) for group in (name, "minilm")]
    axes = draw_dots(dots, x_label="points").axes[0]
    long, short = (tick.get_text() for tick in axes.get_yticklabels())
    assert (
        long.replace("\n", "") == name
        and max(map(len, long.split("\n"))) <= 30
        and short == "minilm"
    )
    # Rows are as high as their lines of type, and dots stand in the middle of their rows.
    first, second = axes.get_yticks()
    assert axes.get_ylim()[0] == pytest.approx(2 * first + 2 * (second - 2 * first))
    assert 2 * first > LINE_HEIGHT * len(long.split("\n")) > 2 * (second - 2 * first)
    assert [line.get_ydata()[0] for line in axes.lines if len(line.get_xdata()) == 1] == list(
        axes.get_yticks()
    )


POINTS = [
    LinePoint("float32", 1536, 82.0),
    LinePoint("float32", 512, 80.5, (79.9, 81.1)),
    LinePoint("_bits $x$", 48, 79.0, (78.0, 80.0)),
]


def test_points_stand_over_their_sizes():
    chart = draw_lines(POINTS, x_label="bytes", y_label="score", title="mine", x_scale="log2")
    (axes,) = chart.axes
    drawn = [list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.lines]
    assert drawn == [[(512, 80.5), (1536, 82.0)], [(48, 79.0)]]
    ends = [tuple(segment[:, 1]) for lines in axes.collections for segment in lines.get_segments()]
    assert ends == [(79.9, 81.1), (78.0, 80.0)]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["48", "512", "1536"]
    assert (axes.get_xscale(), chart.get_supxlabel(), chart.get_supylabel()) == (
        "log",
        "bytes",
        "score",
    )
    assert [text.get_text() for text in chart.legends[0].get_texts()] == [
        "float32",
        "\u200b_bits $x$",
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("sizes", "are_upright"),
    [
        ((48, 96, 192, 384, 512, 768, 1024, 1536), True),
        ((32, 1024, 1536), True),
        ((64, 256, 1024), False),
        ((1536,), False),
    ],
)
def test_labels_of_sizes_do_not_run_together(sizes, are_upright, width):
    points = [LinePoint("float32", size, 80.0 + place) for place, size in enumerate(sizes)]
    with figure_width(width):
        chart = draw_lines(points, x_label="bytes", y_label="score", x_scale="log2")
    chart.canvas.draw()
    labels = chart.axes[0].get_xticklabels()
    assert [label.get_text() for label in labels] == list(map(str, sizes))
    boxes = [label.get_window_extent() for label in labels]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    if width == "column":
        assert {label.get_rotation() for label in labels} == {90 if are_upright else 0}


def test_panels_share_their_axes_and_one_legend():
    points = [
        LinePoint(name, size, size * 10.0, panel=panel)
        for name in "ab"
        for size in (1, 100)
        for panel in ("p", "q")
    ]
    chart = draw_lines(points, x_label="k", y_label="score", y_scale="log10")
    assert [axes.get_title() for axes in chart.axes] == ["p", "q"]
    assert [axes.get_yscale() for axes in chart.axes] == ["log", "log"]
    assert [text.get_text() for text in chart.legends[0].get_texts()] == ["a", "b"]
    assert b"mathdefault" not in chart.to_bytes("svg")


# --- training curves ---

VALIDATED = [CurvePoint(0, 60.0, None), CurvePoint(10, 70.0, 2.5), CurvePoint(20, 65.0, 1.5)]


def test_scores_stand_above_losses_and_the_kept_step_has_a_ring():
    chart = draw_curves(
        [
            Curve(name="one", points=VALIDATED, kept_step=10),
            Curve(name="_two", points=VALIDATED[:2]),
        ],
        score_label="stsb dev",
    )
    above, below = chart.axes
    assert (above.get_ylabel(), below.get_ylabel(), chart.get_supxlabel()) == (
        "stsb dev",
        "loss",
        "step",
    )
    one, ring, two = above.lines
    assert [*map(tuple, one.get_xydata())] == [(0, 60), (10, 70), (20, 65)]
    assert [*map(tuple, ring.get_xydata())] == [(10, 70)] and ring.get_markerfacecolor() == "none"
    assert len(two.get_xydata()) == 2
    assert [*map(tuple, below.lines[0].get_xydata())] == [(10, 2.5), (20, 1.5)]
    assert [text.get_text().strip("\u200b") for text in chart.legends[0].get_texts()] == [
        "one",
        "_two",
    ]


def test_without_losses_there_is_one_panel_and_without_points_none():
    chart = draw_curves([Curve(name="one", points=[CurvePoint(1, 50.0, None)])], score_label="dev")
    assert len(chart.axes) == 1 and chart.get_supxlabel() == "step"
    with pytest.raises(DataError, match="nothing was validated"):
        draw_curves([Curve(name="one", points=[])], score_label="dev")


CELLS = [HeatCell("cls", "0", 10.0), HeatCell("cls", "1", 20.0), HeatCell("mean", "1", 55.55)]


def test_numbers_stand_in_their_places_and_an_empty_place_stays_empty():
    chart = draw_heat(CELLS, row_label="pooling", column_label="layer", value_label="score")
    axes = chart.axes[0]
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0, 0): "10.0",
        (1, 0): "20.0",
        (1, 1): "55.5",
    }
    assert [text.get_color() for text in axes.texts] == ["white", "white", "black"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cls", "mean"]
    assert (chart.get_supylabel(), axes.get_xlabel()) == ("pooling", "layer")


def test_panels_have_one_scale():
    chart = draw_heat(
        [*CELLS, HeatCell("cls", "0", 90.0, "b")],
        row_label="pooling",
        column_label="layer",
        value_label="score",
    )
    images = [axes.images[0] for axes in chart.axes if axes.images]
    assert [image.get_clim() for image in images] == [(10.0, 90.0)] * 2


SPOTS = [
    ScatterPoint(1, 2, "p", 80.0, "_one"),
    ScatterPoint(3, 4, "p", 90.0, "two"),
    ScatterPoint(5, 6, "q", 85.0, joined="j"),
    ScatterPoint(7, 8, "q", 86.0, joined="j"),
]


def test_names_are_numbers_beside_the_points_and_in_the_legend():
    chart = draw_scatter(SPOTS, x_label="x", y_label="y", value_label="score")
    first, second = chart.axes[:2]
    assert [(text.get_text(), text.xy) for text in first.texts] == [("1", (1, 2)), ("2", (3, 4))]
    assert [text.get_text() for text in chart.legends[0].get_texts()] == ["1 _one", "2 two"]
    assert [point.tolist() for point in second.collections[0].get_offsets()] == [[5, 6], [7, 8]]
    assert list(second.lines[0].get_xydata().ravel()) == [5, 6, 7, 8]
    assert first.collections[0].get_clim() == (80.0, 90.0)


def test_many_points_are_a_picture_in_the_file():
    chart = draw_scatter(
        [ScatterPoint(x, x) for x in range(MAX_LARGE_POINTS + 1)], x_label="x", y_label="y"
    )
    assert chart.axes[0].collections[0].get_rasterized()
    assert len(chart.to_bytes("svg")) < 60_000


def test_a_density_stands_at_its_place():
    chart = draw_scatter(
        [ScatterPoint(0, 0), ScatterPoint(1, 1)],
        x_label="x",
        y_label="y",
        violins=[Violin("", 0.5, 0.8, [0, 0.5, 1])],
    )
    median = chart.axes[0].collections[-1].get_segments()[0]
    assert median[:, 1].tolist() == [0.5, 0.5] and median[:, 0].mean() == pytest.approx(0.5)


@pytest.mark.parametrize(("count", "places"), [(3, (1, 3)), (4, (2, 2)), (5, (2, 3))])
def test_panels_fill_their_rows_and_the_lowest_of_each_column_says_its_numbers(count, places):
    chart = draw_scatter(
        [ScatterPoint(0, 0, str(at)) for at in range(count)], x_label="x", y_label="y"
    )
    grid = chart.axes[0].get_subplotspec().get_gridspec()
    assert (grid.nrows, grid.ncols, len(chart.axes)) == (*places, count)
    said = [axes.xaxis.get_tick_params()["labelbottom"] for axes in chart.axes]
    assert said == [at >= count - places[1] for at in range(count)]


LONG = "glove-6b+file=glove.6B.100d.top.txt+pooling=cls_before_pooler"
TITLE = "a title of a figure that is much wider than a column of a paper with two of them"
LAYERS = [
    LinePoint(name, size, 50 + size, (48 + size, 53 + size), panel)
    for name in ("cls", LONG, "mean")
    for size in range(13)
    for panel in ("minilm", LONG)
]
KINDS = {
    "dots": lambda: draw_dots(
        [DotPoint(f"task {row}", name, 70 + row, (60, 80 + row)) for row in range(9) for name in ("minilm", LONG, "b")],
        x_label="points lost if all pairs cost as much, with 95% interval; ○ it may be 0",
        title=TITLE,
    ),
    "panels": lambda: draw_panels(
        [DotPoint(str(row), f"t{task}", 70 + row, (60, 80)) for row in range(5) for task in range(9)],
        panel_titles={f"t{task}": f"STS{task}" for task in range(9)},
        row_labels={str(row): LONG if row == 1 else f"encoder {row}" for row in range(5)},
        group_titles={"0": "Unsupervised: word vectors", "3": "Supervised"},
        x_label="● measured   ○ published   — 95% interval",
        title=TITLE,
        notes=["a note that is as long as notes are: " + LONG, "another"],
    ),
    "lines": lambda: draw_lines(LAYERS, x_label="layer (0: word embeddings)", y_label="score × 100", title=TITLE),
    "curves": lambda: draw_curves(
        [Curve(name=name, points=VALIDATED) for name in ("one", LONG)], score_label="stsb validation"
    ),
    "heat": lambda: draw_heat(
        [HeatCell(row, str(column), 50.25 + column, panel) for row in ("cls", LONG) for column in range(13) for panel in ("a", LONG)],
        row_label="pooling",
        column_label="layer",
        value_label="score × 100",
        title=TITLE,
    ),
    "points": lambda: draw_scatter(
        [ScatterPoint(at, at, panel, 80.0 + at, LONG if at else "minilm") for at in range(4) for panel in ("", LONG)],
        x_label="uniformity (lower: more even)",
        y_label="alignment (lower: closer)",
        value_label="score × 100",
        title=TITLE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_is_as_wide_as_asked_for_and_its_type_can_be_read(kind: str, width: str) -> None:
    matplotlib_text = pytest.importorskip("matplotlib.text", reason="needs the extra plots")
    with figure_width(width):
        chart = KINDS[kind]()
    assert chart.get_size_inches()[0] == WIDTHS[width]
    texts = [text for text in chart.findobj(matplotlib_text.Text) if text.get_text().strip()]
    assert {text.get_fontsize() for text in texts} <= {7, 8}
    # Nothing is cut off, and neither the legend nor the title hides a label.
    chart.canvas.draw()
    box, page = chart.get_tightbbox(), chart.get_size_inches()
    assert box.x0 >= -0.01 and box.x1 <= page[0] + 0.01
    assert box.y0 >= -0.01 and box.y1 <= page[1] + 0.01
    below = [text.get_window_extent() for text in texts if text.get_text() == chart.get_supxlabel()]
    for legend in chart.legends:
        for label in below:
            assert not legend.get_window_extent().overlaps(label)
    for axes in chart.axes:
        ticks = [tick.get_window_extent() for tick in axes.get_xticklabels() if tick.get_text()]
        assert not any(tick.overlaps(label) for tick in ticks for label in below)


CROWDED = {
    "panels": lambda: draw_panels(
        [DotPoint("a", title, score) for title in ("sts", "en", "es") for score in (12, 92)],
        panel_titles={"sts": "STS-B", "en": "Quickstart English", "es": "Quickstart Spanish-English"},
        row_labels={"a": "minilm+pooling=cls"},
        group_titles={},
        x_label="● measured",
    ),
    "points": lambda: draw_scatter(
        [ScatterPoint(x / 4, x / 8, panel) for x in (-1, 1) for panel in ("minilm", "glove-6b+file=glove.6B.100d.top.txt")],
        x_label="first main direction",
        y_label="second main direction",
        same_scale=False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", CROWDED)
def test_titles_and_ticks_of_panels_do_not_touch(kind: str, width: str) -> None:
    with figure_width(width):
        chart = CROWDED[kind]()
    # The resolution of bitmaps, which changes the layout a little.
    chart.set_dpi(150)
    chart.canvas.draw()
    titles = [axes.title.get_window_extent() for axes in chart.axes]
    for axes in chart.axes:
        assert len(axes.get_xticks()) >= 2
    labels = [
        label.get_window_extent()
        for axes in chart.axes
        for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]
    ]
    for boxes in (titles, labels):
        assert boxes[0].x0 >= 0 and boxes[-1].x1 <= chart.bbox.width
        for left, right in pairwise(boxes):
            assert left.x1 + 3 < right.x0


def test_ticks_that_the_layout_did_not_expect_are_not_cut_off():
    """The bitmap is checked itself: how many ticks there are may depend on its resolution."""
    image = pytest.importorskip("matplotlib.image", reason="needs the extra plots")
    ends = {
        "minilm": ((-0.574, 0.331), (-0.006, -0.979), (1.119, 0.293), (0.785, 0.86)),
        "glove-6b+file=glove.6B.100d.top.txt": ((-0.99, -0.305), (0.467, -0.11), (-0.443, -0.862), (0.042, 1.153)),
        "minilm+pooling=cls_before_pooler": ((-0.83, -0.474), (1.154, -0.658), (-0.07, 0.231)),
    }  # fmt: skip
    with figure_width("column"):
        chart = draw_scatter(
            [ScatterPoint(x, y, panel) for panel, points in ends.items() for x, y in points],
            x_label="first main direction",
            y_label="second main direction",
            title="sentencemap: quickstart-en (test)",
            same_scale=False,
        )
    pixels = image.imread(io.BytesIO(chart.to_bytes("png")))
    assert (pixels[:, [0, -1]] == 1).all()


@pytest.mark.parametrize(("width", "inches"), [("3.3in", 3.3), ("8.4cm", 8.4 / 2.54), (5, 5)])
def test_a_file_is_as_wide_as_its_figure(width: str, inches: float) -> None:
    with figure_width(width):
        chart = draw_dots(DOTS, x_label="points", title=TITLE)
    svg = ElementTree.fromstring(chart.to_bytes("svg"))
    assert float(svg.attrib["width"].removesuffix("pt")) == pytest.approx(72 * inches, abs=0.01)


def test_fonts_of_a_pdf_are_of_type_42():
    assert b"/Subtype /Type3" not in (pdf := draw_dots(DOTS, x_label="points").to_bytes("pdf"))
    assert b"/Subtype /CIDFontType2" in pdf or b"/FontFile2" in pdf


@pytest.mark.parametrize("width", ["colum", "1in", "200cm", "-3in", "", "nan"])
def test_a_wrong_width_says_what_can_be_given(width: str) -> None:
    with (
        pytest.raises(StsbenchError, match="give column, page, or 2.5 to 40 inches"),
        figure_width(width),
    ):
        pass


def test_intervals_at_one_size_stand_beside_each_other():
    chart = draw_lines(LAYERS, x_label="layer", y_label="score")
    chart.canvas.draw()
    axes = chart.axes[0]
    pixels = {
        round(float(bars.get_transform().transform(segment)[0, 0]), 3)
        for bars in axes.collections
        for segment in bars.get_segments()
        if segment[0, 0] == 3
    }
    assert len(pixels) == 3
    # Two points apart, of which an inch has 72.
    assert min(abs(a - b) for a in pixels for b in pixels if a != b) > 2 * chart.dpi / 72


def test_groups_of_a_table_keep_their_titles_in_the_figure():
    axes = KINDS["panels"]().axes[0]
    labels = [tick.get_text().replace("\n", " ") for tick in axes.get_yticklabels()]
    assert labels[0] == "Unsupervised: word vectors" and labels[4] == "Supervised"
    assert [tick.get_weight() for tick in axes.get_yticklabels()].count("bold") == 2


def test_errors_of_four_encoders_fit_a_page():
    kinds = [DotPoint(f"kind {row}", f"e{k}", 1.0, (0, 2)) for row in range(15) for k in range(4)]
    assert draw_dots(kinds, x_label="points").get_size_inches()[1] < 8
