"""What is under way in a run, how fast that is, how long the rest takes; and who hears of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from stsbench.bench.plan import RunPart
from stsbench.encoders.engine.embed import Progress
from stsbench.results.record import Result

STILL_SECONDS = 300.0
"""So long nothing may move before it is said; then twice as long, and so on."""


@dataclass(frozen=True, kw_only=True)
class Doing:
    """What one worker does: of ``what`` the share ``done``, in [0, 1]; the sentences that it embeds, or the cells it scores."""

    worker: str = ""
    """None is this process."""
    what: str
    done: float = 0.0
    sentences: int = 0
    cells: int = 0


class Pace:
    """What the workers of a run do, how fast they are together, how long the rest takes, and how long nothing has moved."""

    def __init__(self, parts: Sequence[RunPart] = (), clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing of these encoders is done yet."""
        self.clock = clock
        self.doing: dict[int, Doing] = {}
        """What is under way, by the number of the piece of work."""
        self.began: dict[int, float] = {}
        """When each piece was first reported."""
        self.cells, self.scored, self.failed = sum(len(part.missing) for part in parts), 0, 0
        self.to_embed, self.embedded = float(sum(part.to_embed or 0 for part in parts)), 0.0
        """Sentences in all, and those of pieces that have ended."""
        self.embedding = self.scoring = 0.0
        """Seconds in which something was embedded, and scored."""
        self.counted = self.moved = clock()
        self.said = 0.0
        """Up to when these seconds are counted, when anything last moved, and after how many seconds that was last said."""

    def turn(self, later: Sequence[RunPart]) -> None:
        """It is the turn of the first of these encoders: what is not done of those before has failed."""
        self.failed = self.cells - self.scored - sum(len(part.missing) for part in later)
        self.to_embed = self.embedded + sum(part.to_embed or 0 for part in later)

    def tell(self, piece: int, doing: Doing) -> None:
        """A worker has begun a piece, or continues with it."""
        self._count()
        if doing != self.doing.get(piece):
            self.moved, self.said = self.counted, 0.0
        self.began.setdefault(piece, self.counted)
        self.doing[piece] = doing

    def end(self, piece: int, *, well: bool = True) -> None:
        """A piece has ended; of what has failed, nothing counts."""
        self._count()
        self.moved, self.said = self.counted, 0.0
        ended = self.doing.pop(piece, None)
        if ended is not None and well:
            self.embedded += ended.sentences

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
    def running(self) -> int:
        """How many cells are scored now."""
        return sum(one.cells for one in self.doing.values())

    @property
    def sentences(self) -> float:
        """How many are embedded so far, those of the work under way among them."""
        return self.embedded + sum(one.done * one.sentences for one in self.doing.values())

    def speed(self) -> float | None:
        """Sentences a second, of all workers together; None as long as nothing tells."""
        self._count()
        return self.sentences / self.embedding if self.embedding and self.sentences else None

    def left(self) -> float | None:
        """Seconds until the run ends; None where nothing tells yet.

        One worker embeds and scores in turn; of several, which do so side by side, the longer one counts.
        """
        speed, waiting, ended = self.speed(), max(0.0, self.to_embed - self.sentences), self.scored + self.failed
        cells = self.cells - ended
        if (waiting and speed is None) or (cells and not ended and not waiting):
            return None
        embedding = waiting / speed if speed is not None else 0.0
        scoring = cells * self.scoring / max(ended, 1)
        several = any(one.worker for one in self.doing.values())
        return max(embedding, scoring) if several else embedding + scoring

    def _count(self) -> None:
        """Count the time that has passed for what was under way in it."""
        now, under_way = self.clock(), self.doing.values()
        self.embedding += (now - self.counted) * any(one.sentences for one in under_way)
        self.scoring += (now - self.counted) * any(one.cells for one in under_way)
        self.counted = now


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Who hears how a run goes; every part may be left out."""

    planned: Callable[[Sequence[RunPart]], None] = lambda parts: None
    """Hears all that is to be done, before the first batch."""
    working: Callable[[Pace], None] = lambda pace: None
    """Hears how far the workers of a run are, or this process alone; of others ``encoding`` and ``scoring`` hear nothing."""
    encoding: Progress = lambda done, total: None
    scoring: Callable[[str], None] = lambda task: None
    scored: Callable[[Result], None] = lambda result: None
    """Hears each Result that was made, and not found in the results folder."""
    failed: Callable[[str, Exception], None] = lambda what, error: None
    refused: Callable[[str], None] = lambda why: None
    """Of a result that the folder holds and that is not as it must be: it is scored again."""
    noticed: Callable[[str], None] = lambda line: None
    """Hears what is no failure and should be known."""

    def raising(self) -> Listener:
        """The same, which raises what fails: nothing is left to do."""

        def failed(what: str, error: Exception) -> None:
            raise error

        return replace(self, failed=failed)

    def following(self, pace: Pace, part: RunPart, name: str) -> Listener:
        """The same, which keeps the pace of an encoder in this process, and tells it; ``name`` is what is shown of it."""

        def tell(what: str, done: float = 0.0, *, sentences: int = 0, cells: int = 0) -> None:
            pace.tell(0, Doing(what=f"{name}: {what}", done=done, sentences=sentences, cells=cells))
            self.working(pace)

        def encoding(done: int, total: int) -> None:
            tell("embedding", done / total, sentences=part.to_embed or 0)
            self.encoding(done, total)
            if done == total:
                pace.end(0)

        def scoring(task: str) -> None:
            tell(f"scoring {task}", cells=1)
            self.scoring(task)

        def scored(result: Result) -> None:
            pace.end(0)
            pace.scored += 1
            self.scored(result)
            self.working(pace)

        tell("loading")
        return replace(self, encoding=encoding, scoring=scoring, scored=scored)
