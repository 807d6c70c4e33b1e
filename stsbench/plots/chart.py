"""The one style of all figures: a chart, and the files that it becomes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from stsbench.plots.labels import INK, LINE, drawn_name

try:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as error:
    from stsbench.core.errors import StsbenchError

    raise StsbenchError(
        "figures need matplotlib; install the extra 'plots': pip install 'stsbench[plots]'"
    ) from error

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


class Chart(Figure):  # type: ignore[misc]
    """A figure of matplotlib that notebooks show by itself and that is written with the same bytes each time."""

    def __init__(self, width: float, height: float) -> None:
        """An empty one of this size in inches; no window is opened for it."""
        super().__init__(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(self)

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
