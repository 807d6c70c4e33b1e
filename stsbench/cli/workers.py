"""What the workers of a run do: a line each where someone watches, and now and then a line in all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from stsbench.bench.crowd import Crowd
from stsbench.cli.printing import duration
from stsbench.errors import visible

if TYPE_CHECKING:
    from rich.progress import Progress

SHOWN_NAME = 30
"""Signs of a name beside a bar."""
LINE_SECONDS = 60.0
"""Between two lines where nobody watches."""


class Workers:
    """Shows workers, by the names they tell."""

    def __init__(self, bars: Progress | None) -> None:
        """Nothing is told yet.

        Args:
            bars: what shows bars, where someone watches.
        """
        self.bars, self.lines = bars, dict[str, Any]()
        self.said = time.monotonic()

    def show(self, crowd: Crowd) -> str:
        """Show what each does; returns the line to say, where nobody watches and it is time for one."""
        if self.bars is not None:
            self._draw(crowd, self.bars)
            return ""
        if time.monotonic() - self.said < LINE_SECONDS:
            return ""
        self.said, left = time.monotonic(), crowd.left()
        return f"{self.counts(crowd)}{'' if left is None else f'; about {duration(left)} left'}"

    def counts(self, crowd: Crowd) -> str:
        """How far all workers are together."""
        speed = crowd.speed()
        counts = [f"{crowd.scored} of {crowd.cells} cells done, {crowd.running} running, {crowd.failed} failed"]
        return "; ".join([*counts, *([f"{speed:,.0f} sentences/s"] if speed is not None else [])])

    def facts(self, crowd: Crowd) -> dict[str, object]:
        """The same and what each worker does, for programs."""
        workers = {one.worker: {"what": one.what, "done": round(one.done, 3)} for one in crowd.doing.values()}
        numbers = {"cells": crowd.cells, "scored": crowd.scored, "running": crowd.running, "failed": crowd.failed}
        return {**numbers, "sentences_per_second": crowd.speed(), "seconds_left": crowd.left(), "workers": workers}

    def _draw(self, crowd: Crowd, bars: Progress) -> None:
        doing = {one.worker: one for one in crowd.doing.values()}
        for worker in doing:
            if worker not in self.lines:
                self.lines[worker] = bars.add_task("", total=1.0, left="")
        for worker, line in self.lines.items():
            at = doing.get(worker)
            what = f"{visible(at.what)[: 2 * SHOWN_NAME]}" if at is not None else "waiting"
            bars.update(line, description=f"{worker} {what}", completed=at.done if at is not None else 0.0)
