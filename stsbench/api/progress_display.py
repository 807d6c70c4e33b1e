"""The progress of work: bars on a terminal, a growing table in a notebook, else log lines."""

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
"""The seconds between two lines, if there is no terminal."""
PICTURE_SECONDS = 0.3
"""The seconds between two pictures in a notebook, each of which goes to the reader's browser."""


@dataclass
class ProgressDisplay:
    """Shows the progress of jobs: a bar for each on a terminal, else lines now and then."""

    bars: Any = None
    """rich's ``Progress`` of three columns; None if there is no terminal."""
    write_line: Callable[[str], None] = LOGGER.info
    """Called with each line, if there is no terminal."""
    bar_ids: dict[str, Any] = field(default_factory=dict)
    """The id of each job's bar, by the job."""
    starts: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The time of each job's first report, and how much of it was done then."""
    line_seconds: float = field(default_factory=lambda: LINE_SECONDS)
    """The seconds between two lines."""
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
        """Show how far a job is: by its bar on a terminal, else by a line of text.

        Lines are written at most every ``line_seconds``; a report in between is not shown.

        Args:
            job_id: The name that identifies the job, whose bar is updated.
            done: How much of it is done, in the unit of ``total``.
            total: How much there is to do; None if that is unknown.
            label: The name of the job as it is shown; by default ``job_id``.
            status: The text behind the bar; by default how much is done, and the time left.
        """
        # Control characters would act on the terminal.
        shown_label = escape_controls(label or job_id)
        # The speed is measured from the first report of a job. A report with nothing done begins
        # anew.
        if done == 0 or job_id not in self.starts:
            self.starts[job_id] = time.monotonic(), done
        if status is None:
            counts = [] if total is None else [f"{done:,.0f} of {total:,.0f}"]
            status = ", ".join([*counts, *self.describe_time_left(job_id, done, total)])
        # rich's bars; None if there is no terminal.
        if self.bars is not None:
            if job_id not in self.bar_ids:
                self.bar_ids[job_id] = self.bars.add_task(shown_label, total=None, status="")
            self.bars.update(
                self.bar_ids[job_id],
                description=shown_label,
                completed=done,
                total=total,
                status=escape_controls(status),
            )
        # Whether ``line_seconds`` have passed since ``report`` wrote the last line.
        elif self.is_due():
            self.report(": ".join(filter(None, [shown_label, status])))

    def is_due(self) -> bool:
        """Return whether it is time for a line; never on a terminal."""
        return self.bars is None and time.monotonic() - self.last_line_time >= self.line_seconds

    def report(self, text: str) -> None:
        """Write a line, if there is no terminal; the next one is due after the usual time."""
        if self.bars is None:
            self.last_line_time = time.monotonic()
            self.write_line(text)

    def make_callbacks(
        self,
        name: str = "",
        **callbacks: Any,  # noqa: ANN401 - the other fields of RunCallbacks
    ) -> RunCallbacks:
        """Return callbacks that show the embedding and scoring of one encoder.

        Args:
            name: The encoder's name, which is put before each label.
            callbacks: The other callbacks of the run.
        """
        prefix = f"{name}: " if name else ""

        # Both show the job ``work``. While a task is scored there are no numbers behind its label.
        def show_embedding(done: int, total: int) -> None:
            self.update("work", done, total, label=f"{prefix}embedding")

        def show_scoring(task: str) -> None:
            self.update("work", label=f"{prefix}scoring {task}", status="")

        return RunCallbacks(on_embedding=show_embedding, on_scoring=show_scoring, **callbacks)

    def describe_time_left(self, job_id: str, done: float, total: float | None) -> list[str]:
        """Return a list of one text, such as "about 2 min left", for a job's remaining time.

        It is computed from the job's speed since its first report. The list is empty if the total
        is unknown, if nothing was done since the first report, or if the job is finished.

        Args:
            job_id: The name that identifies the job.
            done: How much of it is done, in the unit of ``total``.
            total: How much there is to do; None if that is unknown.
        """
        now = time.monotonic()
        # The time of the first report, and how much was done then; this one, if there is no
        # earlier.
        start, done_at_start = self.starts.setdefault(job_id, (now, done))
        if total is None or not done_at_start < done < total:
            return []
        seconds_per_unit = (now - start) / (done - done_at_start)
        return [f"about {format_duration(seconds_per_unit * (total - done))} left"]


@contextmanager
def show_progress(
    label: str = "reading data", *, write_line: Callable[[str], None] = LOGGER.info
) -> Iterator[ProgressDisplay]:
    """Yield a display of progress, which is shown until the end of the ``with`` block.

    On a terminal it is bars on stderr, one per job, which go away at the end. Elsewhere it is lines
    of text from time to time.

    Args:
        label: On a terminal, the first text of the bar of the job ``work``.
        write_line: Called with each line, if stderr is no terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield ProgressDisplay(write_line=write_line)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    # The library rich would take an environment variable COLUMNS=0 for a width of 0.
    console = Console(
        stderr=True, width=settings.terminal_columns(), _environ=settings.terminal_variables()
    )
    text_column = partial(TextColumn, markup=False)
    with Progress(
        text_column("{task.description}"),
        BarColumn(bar_width=20),
        text_column("{task.fields[status]}"),
        console=console,
        transient=True,
    ) as bars:
        display = ProgressDisplay(bars)
        display.update("work", label=label)
        yield display


@contextmanager
def show_run(make_table: Callable[[], str]) -> Iterator[RunCallbacks]:
    """Yield callbacks that show a run's progress until the end of the ``with`` block.

    * In a notebook, they show the table of scores, redrawn as scores come in, with a line of
      progress below it. At the end it is removed.
    * On a terminal, they show a bar. At the end it is removed.
    * Elsewhere, they write lines to the log.

    Args:
        make_table: Returns the HTML of the table of scores so far, for a notebook.
    """
    # In a notebook IPython is imported already, and its shell has a kernel.
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    if not callable(get_ipython) or not hasattr(get_ipython(), "kernel"):
        with show_progress("loading") as display:
            yield display.make_callbacks()
        return
    # The module that makes tables is not imported for bars, which do not need it.
    from stsbench.boards.render.html import render_notebook_table

    # An empty output, which is replaced by each later one.
    handle = import_module("IPython.display").display({"text/plain": ""}, raw=True, display_id=True)

    def show_line(line: str) -> None:
        # The second table has no rows, and the line of progress as its note.
        html = f"{make_table()}\n{render_notebook_table(heads=[], rows=[], notes=[line])}"
        handle.update({"text/html": html, "text/plain": line}, raw=True)

    try:
        yield ProgressDisplay(write_line=show_line, line_seconds=PICTURE_SECONDS).make_callbacks()
    finally:
        # An empty text removes the table.
        handle.update({"text/plain": ""}, raw=True)
