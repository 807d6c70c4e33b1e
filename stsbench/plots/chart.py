"""The one style of all figures: a chart, its colours and marks, and the files that it becomes.

Colours are those of Okabe and Ito, which the colour-blind can tell apart; each series has a mark of its own too, so that a
figure printed in grey can still be read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple

from stsbench.plots import drawn_name

try:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as error:
    from stsbench.core.errors import StsbenchError

    raise StsbenchError("figures need matplotlib; install the extra 'plots': pip install 'stsbench[plots]'") from error

COLOURS = ("#0072B2", "#E69F00", "#000000", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, LINE, BAND = "#222222", "#BBBBBB", "#F4F4F4"
"""The colours of text, of thin lines, and of the bands behind every second group."""
STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    # Names are text: a dollar sign begins no formula.
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    # A dark page would leave dark text on dark ground.
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    # Text stays text, and the same chart gives the same bytes.
    "svg.fonttype": "none",
    "svg.hashsalt": "stsbench",
}
DPI = 150
FORMATS: Mapping[str, Mapping[str, Any]] = {
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
    "png": {"metadata": {"Software": None}, "dpi": DPI},
}
"""The formats of files, with what keeps their bytes the same."""


class Look(NamedTuple):
    """How one series is drawn."""

    colour: str
    marker: str


LOOKS = sorted(product(range(len(COLOURS)), range(len(MARKERS))), key=lambda at: (at[1] - at[0]) % len(MARKERS))
"""All looks, by the places of their colour and mark: at first each series has both for itself."""


def look(place: int) -> Look:
    """The look of a series by its place; after 49 series they come again."""
    colour, marker = LOOKS[place % len(LOOKS)]
    return Look(COLOURS[colour], MARKERS[marker])


class Chart(Figure):  # type: ignore[misc]
    """A figure of matplotlib that notebooks show by itself and that is written with the same bytes each time."""

    def to_bytes(self, fmt: str) -> bytes:
        """The figure as a file of one of the ``FORMATS``."""
        stream = io.BytesIO()
        with styled():
            self.savefig(stream, format=fmt, bbox_inches="tight", **FORMATS[fmt])
        return stream.getvalue()

    def _repr_png_(self) -> bytes:
        return self.to_bytes("png")

    def name(self, title: str, below: str, beside: str) -> None:
        """Write what stands above all panels, below them and beside them."""
        self.supxlabel(below, fontsize="medium")
        self.supylabel(beside, fontsize="medium")
        self.suptitle(drawn_name(title), fontsize="medium")


@contextmanager
def styled() -> Iterator[None]:
    """The style, for what is drawn or written meanwhile: the user's own settings stay as they are."""
    with matplotlib.rc_context(dict(STYLE)):
        yield


def new_chart(width: float, height: float) -> Chart:
    """An empty chart of this size in inches, to be drawn on while ``styled``; no window is opened for it."""
    chart = Chart(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(chart)
    return chart


def panel_axes(
    count: int, *, alone: tuple[float, float], side: float, across: int, shared: bool = True
) -> tuple[Chart, list[Any]]:
    """An empty chart with the axes of so many panels, to be drawn on while ``styled``.

    Args:
        count: how many panels.
        alone: width and height in inches of a lone one.
        side: of one of several.
        across: how many go side by side.
        shared: whether all have the same axes.
    """
    rows = -(-count // across)
    columns = -(-count // rows)
    chart = new_chart(*(alone if count == 1 else (side * columns + 1.4, side * rows + 0.8)))
    grid = chart.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared).ravel().tolist()
    for spare in grid[count:]:
        spare.remove()
    for lowest in grid[max(0, count - columns) : count]:
        # One with nothing below it says its numbers itself.
        lowest.tick_params(labelbottom=True)
    return chart, grid[:count]


def draw_bands(axes: Any, count: int, height: float = 1) -> None:  # noqa: ANN401 - matplotlib is not typed
    """Rows from the top, so many, with a band behind every second one, and without ticks."""
    for place in range(0, count, 2):
        axes.axhspan(place * height - 0.5, (place + 1) * height - 0.5, color=BAND, linewidth=0, zorder=0)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def draw_dot(
    axes: Any,  # noqa: ANN401 - matplotlib is not typed
    at: tuple[float, float],
    interval: tuple[float, float] | None,
    drawn: Look,
    *,
    size: float,
    width: float,
    filled: bool,
) -> None:
    """A dot, or a ring, and its interval along x; ``size`` and ``width`` in points."""
    if interval is not None:
        axes.hlines(at[1], *interval, color=drawn.colour, linewidth=width)
    face = drawn.colour if filled else "white"
    axes.plot(
        at[:1], at[1:], marker=drawn.marker, markersize=size, linestyle="none", color=drawn.colour, markerfacecolor=face
    )
