"""Texts, sizes and colours that all figures share; this module does not need matplotlib."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
LINE_HEIGHT, CHARACTER = 0.12, 0.058
"""The height of a line and the mean width of a character of small type, in inches."""
MAX_LABEL_WIDTH = 1.75
"""The maximum width of a line beside an axis, in inches."""
INK, LINE, BAND = "#222222", "#BBBBBB", "#F4F4F4"
"""The colours of text, of thin lines, and of the bands behind every second group."""
JOINTS = re.compile(r"(?<=[-_+/,=.:])")
"""The positions behind separators, at which a long word may be broken."""


def drawn_name(name: str) -> str:
    """Return a name as figures show it: in one line, and shortened if it is long."""
    return shorten(escape_controls(as_one_line(name)))


_figure_width = ContextVar("figure width", default=WIDTHS["page"])


@contextmanager
def figure_width(width: str | float | None) -> Iterator[None]:
    """Draw the figures of the block this wide.

    Args:
        width: ``column``, ``page``, or a number of inches, cm or mm, such as ``3.3in``; None leaves
            the width as it is, by default that of a page.

    Raises:
        StsbenchError: The text is no width.
    """
    inches = current_width() if width is None else parse_width(str(width))
    token = _figure_width.set(inches)
    try:
        yield
    finally:
        _figure_width.reset(token)


def current_width() -> float:
    """Return the width of the figures that are drawn now, in inches."""
    return _figure_width.get()


def parse_width(text: str) -> float:
    """Return a width in inches; a number without a unit is one of inches.

    Raises:
        StsbenchError: The text is no width.
    """
    inches = WIDTHS.get(text, 0.0)
    if match := WIDTH_PATTERN.fullmatch(text):
        inches = float(match[1]) * INCHES_BY_UNIT[match[2] or "in"]
    if not MIN_WIDTH <= inches <= MAX_WIDTH:
        raise StsbenchError(
            f"`width={text}`: give {', '.join(WIDTHS)}, or {MIN_WIDTH:g} to {MAX_WIDTH:g} inches, "
            "such as 3.3in or 8.4cm"
        )
    return inches


def wrap_text(text: str, inches: float, size: float = SMALL_SIZE) -> str:
    """Return a text in lines of about so many inches at most; its own lines stay apart.

    Lines end between words, or at separators within words that are longer than a line.

    Args:
        text: The text.
        inches: The width of a line.
        size: The size of the type in points.
    """
    max_length = max(1, int(inches / CHARACTER * SMALL_SIZE / size))
    lines: list[str] = []
    for own_line in text.split("\n"):
        lines.append("")
        for word in own_line.split(" "):
            word_with_blank = f"{word} "
            is_long = len(word_with_blank) > max_length
            for segment in JOINTS.split(word_with_blank) if is_long else [word_with_blank]:
                if lines[-1] and len(lines[-1]) + len(segment.rstrip()) > max_length:
                    lines.append("")
                lines[-1] += segment
    return "\n".join(line.rstrip() for line in lines)


def label_lines(name: str) -> str:
    """Return a name for an axis: divided into lines that take a third of the figure at most."""
    return wrap_text(drawn_name(name), min(current_width() / 3, MAX_LABEL_WIDTH))


def legend_name(name: str) -> str:
    """Return a name as it is shown in a legend.

    Matplotlib omits labels that begin with an underscore: a character of no width precedes it.
    """
    label = drawn_name(name)
    return f"\u200b{label}" if label.startswith("_") else label
