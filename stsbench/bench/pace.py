"""How long the rest of a run takes, judged by what it has done so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import fmean

from stsbench.bench.cells import RunPart


class Pace:
    """Told what a run does, it says how many seconds are left.

    Sentences of encoders whose turn has not come are reckoned to take as long as those so far, scores as long as
    those of the same task, or of all tasks where it has not been scored yet.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Note the clock; nothing is planned yet."""
        self.clock = clock
        self.later: list[RunPart] = []
        self.sentences, self.share, self.since = 0, 0.0, clock()
        """Of the current encoder: its sentences, the share embedded, and since when; then since when a cell is scored."""
        self.embedded, self.embedding = 0, 0.0
        """Sentences of the encoders before it, and the seconds they took."""
        self.waiting: list[str] = []
        self.took: dict[str, list[float]] = {}
        self.task = ""

    def planned(self, parts: Sequence[RunPart]) -> None:
        """All that is to be done."""
        self.later = list(parts)

    def began(self, part: RunPart) -> None:
        """It is this encoder's turn, after all those before it."""
        self._close_embedding()
        self.later = self.later[self.later.index(part) + 1 :]
        self.sentences = part.to_embed or 0
        self.waiting = [cell.task for cell in part.missing]

    def encoding(self, done: int, total: int) -> None:
        """So much of its text is embedded; loading it is no part of the pace."""
        if done == 0:
            self.since = self.clock()
        self.share = done / total
        if done == total:
            self._close_embedding()

    def scoring(self, task: str) -> None:
        """A cell of this task is scored from now on."""
        self._close_embedding()
        self.task, self.since = task, self.clock()
        if task in self.waiting:
            self.waiting.remove(task)

    def scored(self) -> None:
        """The cell is scored."""
        self.took.setdefault(self.task, []).append(self.clock() - self.since)

    def left(self) -> float | None:
        """Seconds until the run ends; None where nothing tells yet."""
        waiting = [*self.waiting, *(cell.task for part in self.later for cell in part.missing)]
        spent = self.clock() - self.since if self.share else 0.0
        embedded = self.embedded + self.share * self.sentences
        waiting_sentences = sum(part.to_embed or 0 for part in self.later)
        waiting_sentences += 0 if self.share else self.sentences
        took = [one for all_of_task in self.took.values() for one in all_of_task]
        if (waiting_sentences and not embedded) or (waiting and not took and not self.share):
            return None
        current = spent * (1 - self.share) / self.share if self.share else 0.0
        rate = (self.embedding + spent) / embedded if embedded else 0.0
        usual = fmean(took) if took else 0.0
        scoring = sum(fmean(self.took.get(task, [usual])) for task in waiting)
        return current + waiting_sentences * rate + scoring

    def _close_embedding(self) -> None:
        """The sentences of the current encoder are embedded, or were known."""
        if self.share:
            self.embedding += self.clock() - self.since
            self.embedded += self.sentences
        self.share, self.sentences = 0.0, 0
