"""What several workers of a run do at once, how fast they embed, and how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from stsbench.bench.plan import RunPart
from stsbench.encoders.engine.embed import Progress
from stsbench.results.record import Result

STILL_SECONDS = 300.0
"""So long nothing may move before it is said; then twice as long, and so on."""


@dataclass(frozen=True, kw_only=True)
class Doing:
    """What one worker does: of ``what`` the share ``done``, in [0, 1]; ``sentences`` in all, 0 where none are embedded."""

    worker: str
    what: str
    done: float = 0.0
    sentences: int = 0


@dataclass
class Crowd:
    """The workers of a run: what each does, their pace together, and how long nothing has moved."""

    clock: Callable[[], float] = time.monotonic
    doing: dict[int, Doing] = field(default_factory=dict)
    """What is under way, by the number of the piece of work."""
    cells: int = 0
    """To be scored, when the run began."""
    running: int = 0
    """Cells that a worker scores now."""
    scored: int = 0
    failed: int = 0
    to_embed: int = 0
    embedded: float = 0.0
    """Sentences: to be embedded when the run began, and embedded by what has ended."""
    first_embedded: float | None = None
    first_scored: float | None = None
    began: dict[int, float] = field(default_factory=dict)
    """When each piece was first reported."""
    moved: float = 0.0
    said: float = 0.0
    """When anything last moved, and after how many seconds without that it was last said."""

    def __post_init__(self) -> None:
        """Nothing has moved yet."""
        self.moved = self.clock()

    def tell(self, piece: int, doing: Doing) -> None:
        """A worker has begun a piece, or gets on with it."""
        now = self.clock()
        if doing != self.doing.get(piece):
            self.moved, self.said = now, 0.0
        if doing.sentences and self.first_embedded is None:
            self.first_embedded = now
        self.began.setdefault(piece, now)
        self.doing[piece] = doing

    def end(self, piece: int, *, well: bool) -> None:
        """A piece has ended; of what has failed, nothing counts."""
        self.moved, self.said = self.clock(), 0.0
        ended = self.doing.pop(piece, None)
        if ended is not None and well:
            self.embedded += ended.sentences

    def cell(self, *, well: bool) -> None:
        """A cell is scored, or has failed for good."""
        self.first_scored = self.clock() if self.first_scored is None else self.first_scored
        self.scored, self.failed = self.scored + well, self.failed + (not well)

    def over(self, pieces: Iterable[int], seconds: float | None) -> list[int]:
        """Those of some pieces that have been under way for longer."""
        now = self.clock()
        return [] if seconds is None else [one for one in pieces if now - self.began.get(one, now) > seconds]

    def still(self) -> int | None:
        """For how many minutes nothing has moved, where that is to be said now; else None."""
        waited = self.clock() - self.moved
        if waited < max(STILL_SECONDS, 2 * self.said):
            return None
        self.said = waited
        return int(waited // 60)

    @property
    def sentences(self) -> float:
        """How many are embedded so far, those of the work under way among them."""
        return self.embedded + sum(one.done * one.sentences for one in self.doing.values())

    def speed(self) -> float | None:
        """Sentences a second, of all workers together; None as long as nothing tells."""
        seconds = 0.0 if self.first_embedded is None else self.clock() - self.first_embedded
        return self.sentences / seconds if seconds > 0 and self.sentences else None

    def left(self) -> float | None:
        """Seconds until the run ends: embedding and scoring go on side by side, and the longer one counts."""
        speed, waiting = self.speed(), max(0.0, self.to_embed - self.sentences)
        cells = self.cells - self.scored - self.failed
        if (waiting and speed is None) or (cells and self.first_scored is None):
            return None
        embedding = waiting / speed if speed is not None else 0.0
        since = self.clock() - (self.first_scored or 0.0)
        return max(embedding, cells * since / max(self.scored + self.failed, 1))


class Pace:
    """How many seconds are left of a run, by what it has reported so far.

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
        if self.share:
            self.embedding += self.clock() - self.since
            self.embedded += self.sentences
        self.share, self.sentences = 0.0, 0


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Who hears how a run goes; every part may be left out."""

    planned: Callable[[Sequence[RunPart]], None] = lambda parts: None
    """Hears all that is to be done, before the first batch."""
    began: Callable[[RunPart], None] = lambda part: None
    encoding: Progress = lambda done, total: None
    working: Callable[[Crowd], None] = lambda crowd: None
    """Hears now and then what several workers do; then ``began`` and ``encoding`` hear nothing."""
    scoring: Callable[[str], None] = lambda task: None
    scored: Callable[[Result], None] = lambda result: None
    """Hears each Result that was made, and not found in the results folder."""
    failed: Callable[[str, Exception], None] = lambda what, error: None
    refused: Callable[[str], None] = lambda why: None
    """Of a result that the folder holds and that is not as it must be: it is scored again."""
    noticed: Callable[[str], None] = lambda line: None
    """Hears what is no failure and should be known."""

    def raising(self) -> Listener:
        """The same, which raises what fails: there is nothing to go on with."""
        return replace(self, failed=_raise)


def _raise(what: str, error: Exception) -> None:
    raise error
