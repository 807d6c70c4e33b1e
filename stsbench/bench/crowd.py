"""What several workers of a run do at once, how fast they embed, and how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Doing:
    """What one worker does: of ``what`` the share ``done``, in [0, 1]; ``sentences`` in all, 0 where none are embedded."""

    worker: str
    what: str
    done: float = 0.0
    sentences: int = 0


@dataclass
class Crowd:
    """The workers of a run, by what they do; told of each, it reckons their pace together."""

    clock: Callable[[], float] = time.monotonic
    doing: dict[object, Doing] = field(default_factory=dict)
    """What is under way, by whatever tells one piece of work from another."""
    cells: int = 0
    """To be scored, when the run began."""
    running: int = 0
    """Cells that a worker scores now."""
    scored: int = 0
    failed: int = 0
    to_embed: int = 0
    embedded: float = 0.0
    """Sentences: to be embedded when the run began, and embedded by what has ended."""
    began: float | None = None
    first_scored: float | None = None

    def tell(self, key: object, doing: Doing) -> None:
        """Some work goes on."""
        if doing.sentences and self.began is None:
            self.began = self.clock()
        self.doing[key] = doing

    def end(self, key: object, *, well: bool) -> None:
        """Some work has ended; of what has failed, nothing counts."""
        ended = self.doing.pop(key, None)
        if ended is not None and well:
            self.embedded += ended.sentences

    def cell(self, *, well: bool) -> None:
        """A cell is scored, or has failed for good."""
        self.first_scored = self.clock() if self.first_scored is None else self.first_scored
        self.scored, self.failed = self.scored + well, self.failed + (not well)

    @property
    def sentences(self) -> float:
        """How many are embedded so far, those of the work under way among them."""
        return self.embedded + sum(one.done * one.sentences for one in self.doing.values())

    def speed(self) -> float | None:
        """Sentences a second, of all workers together; None as long as nothing tells."""
        seconds = 0.0 if self.began is None else self.clock() - self.began
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
