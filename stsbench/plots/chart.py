"""A chart in the style that all figures have, and the files that are made from it."""

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
    # Names are text: a dollar sign does not begin a formula.
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
    # Without it, a dark page would show dark text on a dark background.
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    # Text is stored as text, and the same chart has the same bytes.
    "svg.fonttype": "none",
    "svg.hashsalt": "stsbench",
}
DPI = 150
FORMATS: Mapping[str, Mapping[str, Any]] = {
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
    "png": {"metadata": {"Software": None}, "dpi": DPI},
}
"""By format, the arguments that keep the bytes of its files the same."""


class Chart(Figure):  # type: ignore[misc]
    """A matplotlib figure that notebooks show, and whose files have the same bytes each time."""

    def __init__(self, width: float, height: float) -> None:
        """Make an empty figure of this size in inches, without opening a window."""
        super().__init__(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(self)

    def to_bytes(self, fmt: str) -> bytes:
        """Return the content of a file in one of the ``FORMATS``."""
        stream = io.BytesIO()
        with styled():
            self.savefig(stream, format=fmt, bbox_inches="tight", **FORMATS[fmt])
        return stream.getvalue()

    def _repr_png_(self) -> bytes:
        return self.to_bytes("png")

    def set_labels(self, title: str, x_label: str, y_label: str) -> None:
        """Write the title above all panels, and the labels below and beside them."""
        self.supxlabel(x_label, fontsize="medium")
        self.supylabel(y_label, fontsize="medium")
        self.suptitle(drawn_name(title), fontsize="medium")


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style to what the block draws or writes; then the user's settings are restored."""
    with matplotlib.rc_context(dict(STYLE)):
        yield
