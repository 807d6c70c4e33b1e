"""How many of something are done, and how long the others will take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stsbench.cli.printing import console


@contextmanager
def shown_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many of something are done, on stderr and only where someone watches."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:
        row = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(row, completed=done, total=total)
