"""A chart in the style that all figures have, and the files that are made from it."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from stsbench.plots.labels import (
    BOLD_WIDTH,
    FONT,
    INK_COLOUR,
    LINE_COLOUR,
    LINE_HEIGHT,
    SMALL_SIZE,
    TEXT_SIZE,
    current_width,
    printable_name,
    text_width,
    wrap_text,
)

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
    "font.family": FONT,
    "font.size": SMALL_SIZE,
    "axes.labelsize": TEXT_SIZE,
    "axes.titlesize": SMALL_SIZE,
    "figure.labelsize": TEXT_SIZE,
    "figure.titlesize": TEXT_SIZE,
    "figure.titleweight": "bold",
    "xtick.labelsize": SMALL_SIZE,
    "ytick.labelsize": SMALL_SIZE,
    "legend.fontsize": SMALL_SIZE,
    "legend.frameon": False,
    # Names are text: a dollar sign does not begin a formula.
    "text.parse_math": False,
    "text.color": INK_COLOUR,
    "axes.labelcolor": INK_COLOUR,
    "axes.edgecolor": LINE_COLOUR,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": INK_COLOUR,
    "ytick.color": INK_COLOUR,
    "grid.color": LINE_COLOUR,
    "grid.linewidth": 0.5,
    # Without it, a dark page would show dark text on a dark background.
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    # Text is stored as text, and the same chart has the same bytes.
    "svg.fonttype": "none",
    "svg.hashsalt": "stsbench",
    # Publishers refuse fonts of type 3.
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
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

    def __init__(self, height: float) -> None:
        """Make an empty matplotlib figure, of the width that the user has set for all figures.

        Args:
            height: Its height without title, labels and legend, in inches.
        """
        # Matplotlib's "constrained" layout places the panels so that no texts overlap.
        super().__init__(figsize=(current_width(), height), layout="constrained")
        # The free margin around panels, in inches.
        self.get_layout_engine().set(w_pad=0.02, h_pad=0.03)
        # A canvas that draws into memory; it attaches itself to the figure and opens no window.
        FigureCanvasAgg(self)

    def to_bytes(self, fmt: str) -> bytes:
        """Return the content of a file in one of the ``FORMATS``; it is as wide as the figure."""
        stream = io.BytesIO()
        with styled():
            self.savefig(stream, format=fmt, **FORMATS[fmt])
        return stream.getvalue()

    def _repr_png_(self) -> bytes:
        return self.to_bytes("png")

    def add_texts(
        self,
        title: str,
        x_label: str,
        y_label: str = "",
        *,
        legend: Sequence[Any] = (),
        handle_length: float = 1.5,
        notes: Sequence[str] = (),
    ) -> None:
        """Write the texts of the figure in lines that fit it, and make it higher by them.

        The title is above all panels, the labels are below and beside them, then follow the legend
        and the notes.

        Args:
            title: The title, shortened if it is long.
            x_label: A description of the x values.
            y_label: A description of the y values.
            legend: The artists with a label that the legend shows.
            handle_length: The width of the legend's signs, in widths of a letter.
            notes: Lines below the legend.
        """
        width, panel_height = self.get_size_inches()
        self.supylabel(wrap_text(y_label, panel_height, TEXT_SIZE))
        # The layout decides how wide the panels are, and so how many lines their titles need.
        self.get_layout_engine().execute(self)
        for axes in self.axes:
            axes.set_title(wrap_text(axes.get_title(), axes.get_window_extent().width / self.dpi))
        n_added_lines = max(axes.get_title().count("\n") for axes in self.axes)
        panel_height += LINE_HEIGHT * n_added_lines * self.axes[0].get_gridspec().nrows
        title = wrap_text(printable_name(title), width / BOLD_WIDTH, TEXT_SIZE)
        x_label = wrap_text(x_label, width, TEXT_SIZE)
        note_text = "\n".join(wrap_text(note, width - 0.1) for note in notes)
        # One width for all entries, so that columns are of equal width.
        sign_width = (handle_length + 3) * SMALL_SIZE / 72
        for artist in legend:
            artist.set_label(wrap_text(artist.get_label(), width - sign_width))
        entries = "\n".join(artist.get_label() for artist in legend)
        n_columns = max(1, int(width / (sign_width + text_width(entries))))
        # Only entries that are too long for two columns have several lines.
        n_lines = entries.count("\n") + 1 if n_columns == 1 else math.ceil(len(legend) / n_columns)
        legend_height = (1.25 * LINE_HEIGHT * n_lines + 0.04) * bool(legend)
        # With a distance to the text above them.
        notes_height = LINE_HEIGHT * len(note_text.split("\n")) + 0.1 if note_text else 0.0
        below_label = legend_height + notes_height
        label_height, title_height = (
            0.15 * (text.count("\n") + 1) if text else 0.0 for text in (x_label, title)
        )
        height = title_height + panel_height + label_height + below_label
        bottom = (label_height + below_label) / height
        self.set_size_inches(width, height)
        self.get_layout_engine().set(rect=(0, bottom, 1, 1 - bottom))
        self.suptitle(title)
        self.supxlabel(x_label, y=below_label / height)
        if legend:
            self.legend(
                handles=list(legend),
                loc="lower center",
                bbox_to_anchor=(0.5, notes_height / height),
                ncols=n_columns,
                handlelength=handle_length,
                borderaxespad=0.1,
                labelspacing=0.25,
            )
        self.text(0.05 / width, 0.02 / height, note_text, ha="left", va="bottom")


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style to what the block draws or writes; then the user's settings are restored."""
    with matplotlib.rc_context(dict(STYLE)):
        yield
