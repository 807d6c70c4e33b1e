"""An encoder of a run on many workers, and the pieces of work that it is cut into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stsbench.bench.cells import Cell, RunPart
from stsbench.bench.cluster.joining import Reference
from stsbench.bench.cluster.worker import Cause, Handed
from stsbench.bench.embedder import Embedder
from stsbench.bench.shared import Divisible
from stsbench.encoders.engine.embed import BatchShare
from stsbench.encoders.engine.store import Keys
from stsbench.results.record import Result

TRIES = 3
"""So often is a piece of work begun before its cells have failed."""


@dataclass(kw_only=True)
class Turn:
    """An encoder whose turn it is: what has come of it so far."""

    part: RunPart
    cells: list[Cell]
    """To be scored."""
    embedder: Embedder
    """Only looks at the store."""
    packed: Reference
    """The encoder that is scored."""
    embedding: int = 0
    """Shares of its embedding that are under way."""
    encoded: list[Keys] = field(default_factory=list)
    seconds: float = 0.0
    """Of embedding, of all workers together."""
    tries: int = 1
    """The most of any share of its embedding."""
    workers: int = 0
    device: str | None = None
    said: str = ""
    """What became of embeddings that were stored before."""
    rows: Reference = None
    """Its embeddings, where the store is not shared."""
    failed: bool = False

    def embedded(self, handed: Handed, tries: int) -> None:
        """A share of its embedding is done."""
        self.encoded.extend(handed.encoded)
        self.seconds += handed.seconds
        self.tries, self.workers = max(self.tries, tries), self.workers + 1
        self.device = handed.device or self.device


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A piece of work for one worker: to look at the store, to embed a share, or to score cells."""

    turn: Turn
    what: str
    shared: Divisible | None = None
    """What is embedded, or looked at where it has no ``share``; None of scoring."""
    share: BatchShare | None = None
    cells: Sequence[Cell] = ()
    """To score."""
    embedded: bool = True
    """Whether all embeddings that are scored are in the store."""
    tries: int = 1
    on_device: bool = True
    """Whether it asks for what embeds: a GPU where there are some."""
    sentences: int = 0
    number: int = 0

    def failure(self, handed: Handed, cell: Cell) -> Cause:
        """Why one of its cells has no Result."""
        told = handed.failed.get(f"{self.turn.part.name} on {cell.task}")
        return told or handed.failure or Cause(line="its data could not be had")

    def told(self, result: Result, handed: Handed) -> Result:
        """A Result whose ``run`` says by whom it was made, and at which try."""
        turn = self.turn
        result.run.update({"on": "ray", "tries": self.tries, "device": handed.device or turn.device})
        if turn.workers:
            facts = {"seconds": round(turn.seconds, 3), "workers": turn.workers, "tries": turn.tries}
            result.run.update({f"embedding_{name}": value for name, value in facts.items()})
        return result
