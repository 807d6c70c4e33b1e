"""What figures are made of, and how it is drawn: dots, lines, training curves, coloured cells, and points in a plane.

Colours are those of Okabe and Ito, which the colour-blind can tell apart; each series has a mark of its own too, so that a
figure printed in grey can still be read.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stsbench.core.errors import DataError
from stsbench.core.wording import escape_controls
from stsbench.plots.labels import BAND, INK, drawn_name, label_lines, legend_name

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

Axes = Any
"""Matplotlib's axes, which have no types."""
Interval = tuple[float, float]
COLOURS = ("#0072B2", "#E69F00", "#000000", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
WIDTH, SIZE = 6.5, 5.5
"""Of a chart in inches, and of a dot in points."""


LOOKS = sorted(
    product(range(len(COLOURS)), range(len(MARKERS))), key=lambda at: (at[1] - at[0]) % len(MARKERS)
)
"""All looks, by the places of their colour and mark: at first each series has both for itself."""


def look(place: int) -> tuple[str, str]:
    """The colour and the mark of a series by its place; after 49 series they come again."""
    colour, marker = LOOKS[place % len(LOOKS)]
    return COLOURS[colour], MARKERS[marker]


def _some(numbers: Sequence[object], why: str = "there are no scores to draw") -> None:
    if not numbers:
        raise DataError(why)


@contextmanager
def _new_chart(width: float, height: float) -> Iterator[Chart]:
    from stsbench.plots.chart import Chart, styled

    with styled():
        yield Chart(width, height)


@contextmanager
def _new_panels(
    count: int, *, alone: tuple[float, float], side: float, across: int, shared: bool = True
) -> Iterator[tuple[Chart, list[Any]]]:
    """An empty chart with the axes of so many panels, ``across`` side by side, to be drawn on.

    ``alone`` are width and height in inches of a lone one, ``side`` is that of one of several; ``shared``: all have the same axes.
    """
    rows = -(-count // across)
    columns = -(-count // rows)
    with _new_chart(*(alone if count == 1 else (side * columns + 1.4, side * rows + 0.8))) as chart:
        grid = (
            chart.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
            .ravel()
            .tolist()
        )
        for spare in grid[count:]:
            spare.remove()
        for lowest in grid[max(0, count - columns) : count]:
            # One with nothing below it says its numbers itself.
            lowest.tick_params(labelbottom=True)
        yield chart, grid[:count]


class DotPoint(NamedTuple):
    """One number: in which group it stands, of which series it is, and its interval, if one is known.

    A dot that is not ``filled`` is drawn as a ring.
    """

    group: str
    series: str
    value: float
    interval: Interval | None = None
    filled: bool = True

    @classmethod
    def difference(cls, group: str, series: str, value: float, low: float, high: float) -> DotPoint:
        """A difference with its 95% interval: a ring where it may be 0."""
        return cls(
            group=group,
            series=series,
            value=value,
            interval=(low, high),
            filled=low > 0 or high < 0,
        )


LINE_HEIGHT, FRAME = 0.2, 0.9
"""In inches: of one dot's line in a chart of groups, and of axis and title."""


def draw_dots(dots: Sequence[DotPoint], *, axis: str, title: str = "", zero: bool = False) -> Chart:
    """Draw dots, groups and series in the order in which they come first; at most one for each group and series.

    ``axis`` says what the numbers are; with ``zero`` a line stands at 0. As all that draw here it raises DataError where there is
    nothing to draw, and StsbenchError where matplotlib is not installed.
    """
    _some(dots)
    groups, series = (
        list(dict.fromkeys(names))
        for names in zip(*((d.group, d.series) for d in dots), strict=True)
    )
    # As many lines as a group's dots need, or its name.
    height = max(len(series) + 1, *(label_lines(name).count("\n") + 1 for name in groups))
    tops = {name: place * height + (height - len(series)) / 2 for place, name in enumerate(groups)}
    with _new_chart(WIDTH, FRAME + LINE_HEIGHT * len(groups) * height) as chart:
        axes = chart.add_subplot()
        _draw_bands(axes, len(groups), height, zero=zero)
        axes.set_yticks(
            [(place + 0.5) * height - 0.5 for place in range(len(groups))],
            [*map(label_lines, groups)],
        )
        axes.set_ylim(len(groups) * height - 0.5, -0.5)
        for place, name in enumerate(series):
            colour, marker = look(place)
            # What stands in the legend is filled, whatever the first dot is.
            shape = {"marker": marker, "markersize": SIZE, "linestyle": "none"}
            axes.plot([], [], color=colour, label=legend_name(name), **shape)
            for dot in dots:
                if dot.series == name:
                    _draw_dot(axes, dot, tops[dot.group] + place, look(place), SIZE, 1.5)
        axes.set_xlabel(axis)
        axes.set_title(drawn_name(title), fontsize="medium", loc="left")
        if len(series) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return chart


def _draw_bands(axes: Axes, count: int, height: float = 1, *, zero: bool) -> None:
    """Rows from the top, so many, with a band behind every second one, and without ticks."""
    for place in range(0, count, 2):
        axes.axhspan(
            place * height - 0.5, (place + 1) * height - 0.5, color=BAND, linewidth=0, zorder=0
        )
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    if zero:
        axes.axvline(0, color="black", linewidth=0.8)


def _draw_dot(
    axes: Axes, dot: DotPoint, y: float, drawn: tuple[str, str], size: float, width: float
) -> None:
    """A dot, or a ring, and its interval along x; ``size`` and ``width`` in points."""
    colour, marker = drawn
    if dot.interval is not None:
        axes.hlines(y, *dot.interval, color=colour, linewidth=width)
    shape = {
        "marker": marker,
        "markersize": size,
        "markerfacecolor": colour if dot.filled else "white",
    }
    axes.plot([dot.value], [y], linestyle="none", color=colour, **shape)


LABELS, PANEL, ROW_HEIGHT, PANEL_FRAME = 2.2, 1.15, 0.19, 1.0
"""In inches: of the rows' names beside panels, of a panel, of a row, and of titles and axis."""
NOTE_HEIGHT, SIGNS = 0.13, 15
"""Of a line of notes in inches, and how many signs it has to the inch."""


def draw_panels(
    dots: Sequence[DotPoint],
    *,
    panels: Mapping[str, str],
    rows: Mapping[str, str],
    axis: str,
    title: str = "",
    notes: Sequence[str] = (),
    zero: bool = False,
) -> Chart:
    """Draw dots in panels that share their rows; ``notes`` stand below all.

    ``panels`` are the titles by the dots' series, ``rows`` what stands beside them by the dots' group, from the top.
    """
    _some(dots)
    width = LABELS + PANEL * len(panels)
    below = [
        line
        for note in notes
        for line in textwrap.wrap(escape_controls(note), round(width * SIGNS))
    ]
    with _new_chart(
        width, PANEL_FRAME + ROW_HEIGHT * len(rows) + NOTE_HEIGHT * len(below)
    ) as chart:
        all_axes = chart.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        heights = {row: place for place, row in enumerate(rows)}
        for axes, (panel, head) in zip(all_axes, panels.items(), strict=True):
            axes.set_title(drawn_name(head), fontsize="small")
            _draw_bands(axes, len(rows), zero=zero)
            for dot in dots:
                if dot.series == panel:
                    _draw_dot(axes, dot, heights[dot.group], look(0), 4.5, 1.2)
            axes.tick_params(axis="x", labelsize="x-small")
            axes.locator_params(axis="x", nbins=3)
        all_axes[0].set_yticks(range(len(rows)), [*map(drawn_name, rows.values())])
        all_axes[0].set_ylim(len(rows) - 0.5, -0.5)
        chart.supxlabel("\n".join([axis, *below]), fontsize="small")
        chart.suptitle(drawn_name(title), fontsize="medium")
    return chart


TICKED, DOTTED = 12, 40
"""Up to so many sizes each has a tick; a line of more points has no dots."""
Scale = Literal["linear", "log2", "log10", "log2p1"]
"""``log2p1`` has a place for 0 too: from 1 on it is a logarithm to base 2."""
SCALES: Mapping[str, Mapping[str, Any]] = {
    "log2": {"value": "log", "base": 2},
    "log10": {"value": "log", "base": 10},
    "log2p1": {"value": "symlog", "base": 2, "linthresh": 1},
}


class LinePoint(NamedTuple):
    """One number: of which series it is, over which size, its interval, if one is known, and the panel it stands in."""

    series: str
    size: float
    value: float
    interval: Interval | None = None
    panel: str = ""


def draw_lines(
    points: Sequence[LinePoint],
    *,
    sizes: str,
    values: str,
    title: str = "",
    scale: Scale = "linear",
    value_scale: Scale = "linear",
) -> Chart:
    """Draw a line a series, in the order in which they come first, its points by their size.

    ``sizes`` and ``values`` say what stands on the axes below and beside; ``scale`` is of sizes, ``value_scale`` of numbers.
    """
    _some(points)
    series, panels = (
        list(dict.fromkeys(names))
        for names in zip(*((p.series, p.panel) for p in points), strict=True)
    )
    ticks = sorted({point.size for point in points})
    with _new_panels(len(panels), alone=(WIDTH, 4.0), side=2.6, across=3) as (chart, all_axes):
        for axes, panel in zip(all_axes, panels, strict=True):
            for place, name in enumerate(series):
                mine = [point for point in points if (point.panel, point.series) == (panel, name)]
                if mine:
                    _draw_series(
                        axes, name, sorted(mine, key=lambda point: point.size), look(place)
                    )
            for side, chosen in (("x", scale), ("y", value_scale)):
                if chosen in SCALES:
                    getattr(axes, f"set_{side}scale")(**SCALES[chosen])
                    getattr(axes, f"{side}axis").set_major_formatter("{x:g}")
            if len(ticks) <= TICKED:
                axes.set_xticks(
                    ticks, [f"{size:g}" for size in ticks], rotation=90 if len(ticks) > 8 else 0
                )
                axes.minorticks_off()
            axes.grid(axis="y")
            axes.set_title(drawn_name(panel), fontsize="small")
        chart.name(title, sizes, values)
        if len(series) > 1:
            handles = {
                one.get_label(): one
                for axes in all_axes
                for one in axes.get_legend_handles_labels()[0]
            }
            chart.legend(
                handles=list(handles.values()),
                loc="outside right upper",
                frameon=False,
                fontsize="small",
            )
    return chart


def _draw_series(
    axes: Axes, name: str, points: Sequence[LinePoint], drawn: tuple[str, str]
) -> None:
    colour, marker = drawn
    for point in points:
        if point.interval is not None:
            axes.vlines(point.size, *point.interval, color=colour, linewidth=1.5)
    every = max(1, len(points) // 8) if len(points) > DOTTED else 1
    shape = {
        "marker": marker,
        "markevery": every,
        "markersize": SIZE,
        "color": colour,
        "linewidth": 1.2,
    }
    axes.plot(
        [point.size for point in points],
        [point.value for point in points],
        label=legend_name(name),
        **shape,
    )


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


CURVE_HEIGHT = 2.2
"""Of a panel of training curves, in inches."""


def draw_curves(curves: Sequence[Curve], *, score: str) -> Chart:
    """Draw development scores above losses, the kept step of each run as a ring; ``score`` is what the scores are of."""
    every = [point for curve in curves for point in curve.points]
    _some(every, "there is no curve to draw: nothing was validated while it was trained")
    drawn = {
        "score": score,
        **({"loss": "loss"} if any(point.loss is not None for point in every) else {}),
    }
    with _new_chart(WIDTH, CURVE_HEIGHT * len(drawn) + 0.4) as chart:
        all_axes = chart.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (what, said) in zip(all_axes, drawn.items(), strict=True):
            for place, curve in enumerate(curves):
                values = {
                    p.step: value for p in curve.points if (value := getattr(p, what)) is not None
                }
                colour, marker = look(place)
                shape = {"marker": marker, "markersize": 3, "linewidth": 1.2, "color": colour}
                axes.plot(
                    list(values), list(values.values()), label=legend_name(curve.name), **shape
                )
                if curve.kept in values:
                    ring = {
                        "marker": "o",
                        "markersize": 9,
                        "markerfacecolor": "none",
                        "color": colour,
                    }
                    axes.plot([curve.kept], [values[curve.kept]], **ring)
            axes.grid(axis="both")
            axes.set_ylabel(said)
        all_axes[-1].set_xlabel("step")
        if len(curves) > 1:
            all_axes[0].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return chart


CELL, LINE, BESIDE = 0.55, 0.32, 1.9
"""In inches: the width of a cell, the height of a row, and what a panel has beside its cells."""
SIGN, LONG = 0.085, 6
"""Of a sign in inches; columns' names of more signs stand upright."""
SHADES = "cividis"
"""Even in lightness and the same to the colour-blind; printed in grey it keeps its order."""
DARK = 0.55
"""Up to this share of the colours numbers are white."""


class HeatCell(NamedTuple):
    """One number, by the names of its row, its column and its panel."""

    row: str
    column: str
    value: float
    panel: str = ""


def draw_heat(
    cells: Sequence[HeatCell],
    *,
    rows: str,
    columns: str,
    values: str,
    title: str = "",
    form: str = ".1f",
) -> Chart:
    """Draw cells, rows and columns in the order in which they come first, panels below each other on one scale.

    A place without a number, or with NaN, stays empty. ``rows``, ``columns`` and ``values`` say what these are, ``form`` how
    numbers are written.
    """
    known = [cell.value for cell in cells if not math.isnan(cell.value)]
    _some(known)
    row_names, column_names, panels = (
        list(dict.fromkeys(names))
        for names in zip(*((c.row, c.column, c.panel) for c in cells), strict=True)
    )
    low, high = min(known), max(known)
    steep = max(map(len, column_names)) > LONG
    width = BESIDE + max(map(len, row_names)) * SIGN + CELL * len(column_names)
    below = max(map(len, column_names)) * SIGN * steep
    with _new_chart(
        width, 0.7 + below + len(panels) * (BESIDE / 2 + LINE * len(row_names))
    ) as chart:
        all_axes = chart.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, panel in zip(all_axes, panels, strict=True):
            grid = [[float("nan")] * len(column_names) for _ in row_names]
            for cell in cells:
                if cell.panel == panel:
                    at, place = row_names.index(cell.row), column_names.index(cell.column)
                    grid[at][place] = cell.value
                    if not math.isnan(cell.value):
                        share = (cell.value - low) / (high - low) if high > low else 0.0
                        shape = {"ha": "center", "va": "center", "fontsize": "x-small"}
                        shape["color"] = "white" if share <= DARK else "black"
                        axes.text(place, at, f"{cell.value:{form}}", **shape)
            image = axes.imshow(grid, cmap=SHADES, vmin=low, vmax=high, aspect="auto")
            axes.set_xticks(
                range(len(column_names)),
                [*map(drawn_name, column_names)],
                rotation=90 if steep else 0,
            )
            axes.set_yticks(range(len(row_names)), [*map(drawn_name, row_names)])
            axes.set_title(drawn_name(panel), fontsize="small", loc="left")
            axes.set_ylabel(rows)
            axes.tick_params(length=0)
        all_axes[-1].set_xlabel(columns)
        chart.colorbar(image, ax=list(all_axes), label=values, shrink=0.8)
        chart.suptitle(drawn_name(title), fontsize="medium")
    return chart


MANY = 500
"""Points of a panel beyond which they are drawn small, pale and as a picture: a file of text would be too large."""


class ScatterPoint(NamedTuple):
    """One point.

    ``value`` colours it; ``name`` numbers it and stands in the legend; those of one ``joined`` in a panel are joined by a line
    in their order.
    """

    x: float
    y: float
    panel: str = ""
    value: float | None = None
    name: str = ""
    joined: str = ""


class Violin(NamedTuple):
    """The density of some numbers, drawn upright: in which panel, where its middle stands, and how wide it is."""

    panel: str
    place: float
    width: float
    values: Sequence[float]


def draw_spots(
    spots: Sequence[ScatterPoint],
    *,
    across: str,
    up: str,
    values: str = "",
    title: str = "",
    same_scale: bool = True,
    violins: Sequence[Violin] = (),
) -> Chart:
    """Draw points, panels in the order in which they come first, with densities (``violins``) over them.

    ``across`` and ``up`` say what stands on the axes below and beside, ``values`` what colours are; with ``same_scale`` all panels
    have the same axes.
    """
    _some(spots, "there are no points to draw")
    panels = list(dict.fromkeys(spot.panel for spot in spots))
    names = list(dict.fromkeys(spot.name for spot in spots if spot.name))
    known = [spot.value for spot in spots if spot.value is not None]
    ends = (min(known), max(known)) if known else (0.0, 1.0)
    with _new_panels(len(panels), alone=(6.0, 4.4), side=2.4, across=3, shared=same_scale) as (
        chart,
        all_axes,
    ):
        for axes, panel in zip(all_axes, panels, strict=True):
            image = _draw_panel(axes, [spot for spot in spots if spot.panel == panel], names, ends)
            for one in (violin for violin in violins if violin.panel == panel):
                shown = axes.violinplot(
                    [one.values], [one.place], widths=one.width, showmedians=True, showextrema=False
                )
                shown["bodies"][0].set(
                    facecolor="none", edgecolor=COLOURS[4], alpha=1.0, linewidth=1.0
                )
                shown["cmedians"].set(color=COLOURS[4], linewidth=1.5)
            axes.set_title(drawn_name(panel), fontsize="small")
            axes.grid()
        if known:
            chart.colorbar(image, ax=list(all_axes), label=values, shrink=0.8)
        chart.name(title, across, up)
        if names:
            from matplotlib.lines import Line2D

            labels = [f"{at} {drawn_name(name)}" for at, name in enumerate(names, 1)]
            handles = [Line2D([], [], linestyle="none", label=label) for label in labels]
            chart.legend(
                handles=handles,
                loc="outside right upper",
                handlelength=0,
                frameon=False,
                fontsize="small",
            )
    return chart


def _draw_panel(
    axes: Axes, spots: Sequence[ScatterPoint], names: Sequence[str], ends: Interval
) -> Any:  # noqa: ANN401 - matplotlib
    for joined in dict.fromkeys(spot.joined for spot in spots if spot.joined):
        line = [(spot.x, spot.y) for spot in spots if spot.joined == joined]
        axes.plot(*zip(*line, strict=True), color=INK, linewidth=0.6, zorder=1)
    many, colours = len(spots) > MANY, [spot.value for spot in spots]
    shape: dict[str, Any] = {"s": 40 if names else 9, "edgecolors": "black"}
    if many:
        shape = {"s": 3, "edgecolors": "none", "alpha": 0.4}
    if None in colours:
        shape["color"] = COLOURS[0]
    else:
        shape |= {"c": colours, "cmap": SHADES, "vmin": ends[0], "vmax": ends[1]}
    x, y = ([getattr(spot, side) for spot in spots] for side in "xy")
    image = axes.scatter(x, y, rasterized=many, linewidths=0.3, zorder=2, **shape)
    for spot in spots:
        if spot.name:
            number = str(names.index(spot.name) + 1)
            axes.annotate(
                number,
                (spot.x, spot.y),
                xytext=(5, 4),
                textcoords="offset points",
                fontsize="small",
            )
    return image
