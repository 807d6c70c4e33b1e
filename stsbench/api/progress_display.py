"""How long work goes: bars on a terminal, a table that fills in a notebook, elsewhere now and then a line of ``logging``."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from stsbench.bench.progress import RunCallbacks
from stsbench.core import settings
from stsbench.core.wording import escape_controls, format_duration

LOGGER = logging.getLogger("stsbench")
LINE_SECONDS = 30.0
"""Between two lines where nobody watches."""
PICTURE_SECONDS = 0.3
"""Between two pictures in a notebook, each of which goes to the reader's browser."""


@dataclass
class ProgressDisplay:
    """Pieces of work that are shown: each a bar where someone watches, else all together a line now and then."""

    bars: Any = None
    """rich's ``Progress`` of three columns; None where nobody watches."""
    write_line: Callable[[str], None] = LOGGER.info
    """Takes a line where nobody watches."""
    bar_ids: dict[str, Any] = field(default_factory=dict)
    starts: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When each was first heard of, and how much of it was done then."""
    line_seconds: float = field(default_factory=lambda: LINE_SECONDS)
    """Seconds between two lines."""
    last_line_time: float = field(default_factory=time.monotonic)

    def update(
        self,
        job_id: str,
        done: float = 0,
        total: float | None = None,
        *,
        label: str = "",
        status: str | None = None,
    ) -> None:
        """Say how far a piece of work is, which is called ``label``; the first time it gets a bar.

        ``status`` stand behind the bar in the place of how much is done and how long the rest takes.
        """
        words = escape_controls(label or job_id)
        if done == 0 or job_id not in self.starts:
            self.starts[job_id] = time.monotonic(), done
        if status is None:
            counts = [] if total is None else [f"{done:,.0f} of {total:,.0f}"]
            status = ", ".join([*counts, *self.describe_time_left(job_id, done, total)])
        if self.bars is not None:
            if job_id not in self.bar_ids:
                self.bar_ids[job_id] = self.bars.add_task(words, total=None, news="")
            self.bars.update(
                self.bar_ids[job_id],
                description=words,
                completed=done,
                total=total,
                news=escape_controls(status),
            )
        elif self.is_due():
            self.report(": ".join(filter(None, [words, status])))

    def is_due(self) -> bool:
        """Whether nobody watches, and nothing has been said for long."""
        return self.bars is None and time.monotonic() - self.last_line_time >= self.line_seconds

    def report(self, text: str) -> None:
        """Say a line, where nobody watches; the next one can wait."""
        if self.bars is None:
            self.last_line_time = time.monotonic()
            self.write_line(text)

    def make_callbacks(self, name: str = "", **more: Any) -> RunCallbacks:  # noqa: ANN401 - the other parts of a listener
        """A listener that shows what of one encoder is embedded and scored."""
        before = f"{name}: " if name else ""
        return RunCallbacks(
            on_embedding=lambda done, total: self.update(
                "work", done, total, label=f"{before}embedding"
            ),
            on_scoring=lambda task: self.update("work", label=f"{before}scoring {task}", status=""),
            **more,
        )

    def describe_time_left(self, piece: str, done: float, total: float | None) -> list[str]:
        """How long the rest of a piece takes at the pace so far, in words; nothing where nobody knows."""
        since, before = self.starts.setdefault(piece, (time.monotonic(), done))
        if total is None or not before < done < total:
            return []
        return [
            f"about {format_duration((time.monotonic() - since) / (done - before) * (total - done))} left"
        ]


@contextmanager
def show_progress(
    label: str = "reading data", *, write_line: Callable[[str], None] = LOGGER.info
) -> Iterator[ProgressDisplay]:
    """Show work on stderr until the end of the block, as a terminal can, or as lines, which ``write_line`` takes."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield ProgressDisplay(write_line=write_line)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    # rich would take COLUMNS=0 for a width.
    screen = Console(stderr=True, width=settings.terminal_columns(), _environ=settings.terminal())
    text = partial(TextColumn, markup=False)
    with Progress(
        text("{task.description}"),
        BarColumn(bar_width=20),
        text("{task.fields[news]}"),
        console=screen,
        transient=True,
    ) as bars:
        shown = ProgressDisplay(bars)
        shown.update("work", label=label)
        yield shown


@contextmanager
def show_run(table: Callable[[], str]) -> Iterator[RunCallbacks]:
    """A listener that shows how scoring goes until the end of the block; then what was shown goes away.

    ``table`` is the HTML of what is scored so far, for a notebook.
    """
    # IPython is not imported to know whether this is the Python of a notebook.
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if not callable(get_ipython) or not hasattr(get_ipython(), "kernel"):
        with show_progress("loading") as bars:
            yield bars.make_callbacks()
        return
    # Loads what makes tables, which no bar needs.
    from stsbench.boards.render.html import notebook_table

    handle = import_module("IPython.display").display({"text/plain": ""}, raw=True, display_id=True)

    def show(line: str) -> None:
        handle.update(
            {"text/html": f"{table()}\n{notebook_table([], [], [line])}", "text/plain": line},
            raw=True,
        )

    try:
        yield ProgressDisplay(write_line=show, line_seconds=PICTURE_SECONDS).make_callbacks()
    finally:
        handle.update({"text/plain": ""}, raw=True)
