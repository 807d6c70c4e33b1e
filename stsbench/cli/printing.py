"""What commands print: tables that fit a terminal, and JSON for scripts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or 80 columns where there is none."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else 80
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> Table:
    """A plain table: a rule under the header, numbers to the right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for index, column in enumerate(columns):
        is_number = index in right
        made.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Print one JSON value on stdout."""
    sys.stdout.write(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def say(text: str) -> None:
    """Print a line of text on stdout."""
    sys.stdout.write(text + "\n")
