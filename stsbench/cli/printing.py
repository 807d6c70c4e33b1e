"""What commands print: tables that fit a terminal, and JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from stsbench import settings

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or 80 columns where there is none."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or settings.has_terminal_width() else 80
    # Names and errors are text: brackets in them are no markup, colons no emoji.
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), whole: Sequence[int] = ()
) -> Table:
    """A plain table: a rule under the header, numbers to the right; they and ``whole`` columns are never broken."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    widths = [max(len(row[index]) for row in rows) if rows else 0 for index in range(len(columns))]
    too_wide = sum(map(max, widths, map(len, columns))) + 3 * len(columns) > console().width
    for index, column in enumerate(columns):
        unbroken = index in right or index in whole
        head = column.replace(" ", "\n") if too_wide and unbroken and len(column) > widths[index] else column
        justify: Literal["left", "right"] = "right" if index in right else "left"
        made.add_column(head, justify=justify, no_wrap=unbroken, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Print one JSON value on stdout."""
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def say(text: str) -> None:
    """Print a line of text on stdout."""
    sys.stdout.write(text + "\n")
