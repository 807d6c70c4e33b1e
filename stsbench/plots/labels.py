"""Texts, sizes and colours that all figures share; only widths of texts need matplotlib."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from stsbench.core.errors import StsbenchError
from stsbench.core.wording import as_one_line, escape_controls, shorten

FIGURES = ("svg", "png", "pdf")
"""The formats of figures' files."""
WIDTHS = {"column": 3.3, "page": 6.75}
"""The widths that have names, in inches: of a column and of both on a page of two columns."""
MIN_WIDTH, MAX_WIDTH = 2.5, 40.0
"""The widths that a figure may have, in inches."""
WIDTH_PATTERN = re.compile(r"([0-9]*\.?[0-9]+) ?(in|cm|mm)?")
INCHES_BY_UNIT = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4}
TEXT_SIZE, SMALL_SIZE = 8, 7
"""The sizes of type in points: of titles and labels, and of all other texts."""
LINE_HEIGHT = 0.12
"""The height of a line of small type in inches."""
FONT = "DejaVu Sans"
HINTED_WIDTH, BOLD_WIDTH = 1.04, 1.12
"""How much wider text is in a bitmap, whose characters begin at whole pixels, and in bold type."""
MAX_LABEL_WIDTH = 1.75
"""The maximum width of a line beside an axis, in inches."""
INK_COLOUR, LINE_COLOUR, BAND_COLOUR = "#222222", "#BBBBBB", "#F4F4F4"
"""The colours of text, of thin lines, and of the bands behind every second group."""
JOINTS = re.compile(r"(?<=[-_+/,=.:])")
"""The positions behind separators, at which a long word may be broken."""


def printable_name(name: str) -> str:
    """Return a name as figures show it: in one line, and shortened if it is long."""
    return shorten(escape_controls(as_one_line(name)))


_figure_width = ContextVar("figure width", default=WIDTHS["page"])


@contextmanager
def figure_width(width: str | float | None) -> Iterator[None]:
    """Set the width of the figures that are drawn in a ``with`` block.

    Args:
        width: ``column``, ``page`` (the widths in a paper of two columns), or a number of inches,
            cm or mm, such as ``3.3in``; None leaves the width as it is: that of a block around this
            one, or else of a page.

    Raises:
        StsbenchError: The text is no width.
    """
    inches = current_width() if width is None else parse_width(str(width))
    # The width before the block, to which it is set back.
    previous_width = _figure_width.set(inches)
    try:
        yield
    finally:
        _figure_width.reset(previous_width)


def current_width() -> float:
    """Return the width of the figures that are drawn now, in inches."""
    return _figure_width.get()


def parse_width(text: str) -> float:
    """Return the width in inches that a text means.

    Args:
        text: ``column`` or ``page``, which ``WIDTHS`` has in inches; or a number with the unit
            ``in``, ``cm`` or ``mm``, or without one, which means inches.

    Raises:
        StsbenchError: The text is no width, or one that a figure may not have.
    """
    inches = WIDTHS.get(text, 0.0)
    match = WIDTH_PATTERN.fullmatch(text)
    if match:
        number, unit = match.groups()
        inches = float(number) * INCHES_BY_UNIT[unit or "in"]
    if not MIN_WIDTH <= inches <= MAX_WIDTH:
        raise StsbenchError(
            f"`width={text}`: give {', '.join(WIDTHS)}, or {MIN_WIDTH:g} to {MAX_WIDTH:g} inches, "
            "such as 3.3in or 8.4cm"
        )
    return inches


@cache
def character_width(character: str) -> float:
    """Return the width of a character of small type in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=FONT, size=SMALL_SIZE)
    width, *_ = text_to_path.get_text_width_height_descent(character, font, ismath=False)
    return float(HINTED_WIDTH / 72 * width)


def text_width(text: str) -> float:
    """Return the width of the widest line of a text in small type, in inches."""
    return max(sum(map(character_width, line)) for line in text.split("\n"))


def wrap_text(text: str, inches: float, size: float = SMALL_SIZE) -> str:
    """Return a text broken into lines that are ``inches`` wide at most.

    Lines end between words, or behind a hyphen or the like in a word that is longer than a line;
    what cannot be broken may be wider. Line ends in the text are kept.

    Args:
        text: The text.
        inches: The width of a line.
        size: The size of the type in points.
    """
    # The width of such a line in small type.
    max_width = inches * SMALL_SIZE / size
    lines: list[str] = []
    for original_line in text.split("\n"):
        lines.append("")
        for word in original_line.split(" "):
            # JOINTS matches the positions at which a long word may be broken.
            is_long = text_width(word) > max_width
            for segment in JOINTS.split(f"{word} ") if is_long else [f"{word} "]:
                if lines[-1] and text_width(lines[-1] + segment.rstrip()) > max_width:
                    lines.append("")
                lines[-1] += segment
    return "\n".join(line.rstrip() for line in lines)


def axis_label(name: str) -> str:
    """Return a name for an axis: divided into lines that take a third of the figure at most."""
    return wrap_text(printable_name(name), min(current_width() / 3, MAX_LABEL_WIDTH))


def legend_name(name: str) -> str:
    """Return a name as it is shown in a legend.

    Matplotlib omits labels that begin with an underscore: a character of no width precedes it.
    """
    label = printable_name(name)
    return f"\u200b{label}" if label.startswith("_") else label
