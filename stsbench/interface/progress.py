"""How scoring goes, for who watches: a line on a terminal, a table that fills in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

from stsbench.bench.listener import Listener
from stsbench.errors import visible
from stsbench.interface.page import html_note

SECONDS = 0.3
"""Between two pictures in a notebook, each of which goes to the reader's browser."""


@contextmanager
def watching(table: Callable[[], str]) -> Iterator[Listener]:
    """A listener that shows how it goes until the end of the block; then what was shown goes away.

    Args:
        table: the HTML of what is scored so far.
    """
    if in_notebook():
        with _in_notebook(table) as listener:
            yield listener
    elif sys.stderr is not None and sys.stderr.isatty():
        with _on_terminal() as listener:
            yield listener
    else:
        yield Listener()


def in_notebook() -> bool:
    """Whether this is the Python of a notebook, told without importing IPython."""
    shell = sys.modules.get("IPython")
    get_ipython = getattr(shell, "get_ipython", None)
    return callable(get_ipython) and hasattr(get_ipython(), "kernel")


@contextmanager
def _in_notebook(table: Callable[[], str]) -> Iterator[Listener]:
    handle = import_module("IPython.display").display({"text/plain": ""}, raw=True, display_id=True)
    last = -SECONDS

    def show(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS:
            handle.update({"text/html": f"{table()}\n{html_note(line)}", "text/plain": line}, raw=True)
            last = time.monotonic()

    def encoding(done: int, total: int) -> None:
        show(f"encoding: {100 * done // max(total, 1)}%")

    def scoring(task: str) -> None:
        show(f"scoring {task}")

    try:
        yield Listener(encoding=encoding, scoring=scoring)
    finally:
        handle.update({"text/plain": ""}, raw=True)


@contextmanager
def _on_terminal() -> Iterator[Listener]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    screen = Console(stderr=True, highlight=False, markup=False, emoji=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        bar = progress.add_task("loading", total=None)

        def encoding(done: int, total: int) -> None:
            progress.update(bar, description="encoding", completed=done, total=total)

        def scoring(task: str) -> None:
            progress.update(bar, description=f"scoring {visible(task)}")

        yield Listener(encoding=encoding, scoring=scoring)
