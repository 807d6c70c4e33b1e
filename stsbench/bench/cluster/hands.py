"""The pieces of work that an encoder is cut into, and the workers of a connected Ray that they go to."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from stsbench import settings as places
from stsbench.bench.cells import Cell, RunPart, RunSettings
from stsbench.bench.cluster.joining import Ray, Reference, is_alone, is_shared
from stsbench.bench.cluster.worker import Handed, Report, Tell, caught, tokenise
from stsbench.bench.embedder import Embedder
from stsbench.bench.shared import Divisible
from stsbench.encoders.engine.embed import BatchShare
from stsbench.encoders.engine.store import Keys
from stsbench.errors import EncoderError, StsbenchError, one_line

TRIES = 3
"""So often is a piece of work begun before it has failed."""
WAIT_SECONDS = 0.5
STOP_SECONDS = 20.0
"""So long are workers waited for that write what they have embedded when a run is stopped."""
LOST = {
    "WorkerCrashedError": "its worker was killed or has crashed",
    "NodeDiedError": "the machine that it ran on was lost",
    "LocalRayletDiedError": "Ray on this machine was lost",
    "OutOfMemoryError": "the machine's memory was full, and Ray has ended its worker",
}
_COLOURS = re.compile(r"\x1b\[\d+m")
T = TypeVar("T")
KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(kw_only=True)
class Turn:
    """An encoder whose turn it is: what has come of it so far."""

    part: RunPart
    cells: list[Cell]
    """To be scored."""
    encoder: Reference
    embedder: Embedder
    """Only looks at the store."""
    shared: Divisible | None = None
    """What is embedded; None of what one worker embeds and scores."""
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
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A piece of work for one worker."""

    turn: Turn
    what: str
    """As it is shown, and as it is told where it is tried again."""
    work: Callable[..., Handed]
    given: Sequence[object]
    """What the work is handed after how it tells how far it is; Ray's references become what they are of."""
    then: Callable[[Piece, Handed], None]
    """What follows."""
    cells: Sequence[Cell] = ()
    """To score."""
    task: str = ""
    """The only one that is scored: where it fails, the encoder's others go on."""
    on_device: bool = True
    """Whether it asks for what embeds: a GPU where there are some."""
    sentences: int = 0
    tries: int = 1
    number: int = 0


class Lost(StsbenchError):
    """A worker, its machine or what it was to be handed is lost."""


def carried_out(number: int, events: Ray, work: Callable[..., T], *given: object) -> T | Exception:
    """What each worker is asked for; what others were to make for it and could not has failed it too."""
    for one in given:
        if isinstance(one, Exception):
            return one
    return caught(partial(work, Tell(number, events.actor.put_nowait.remote), *given))


@dataclass
class Hands:
    """Gives pieces to Ray, which finds a worker for each; keeps what is under way."""

    ray: Ray
    settings: RunSettings
    pieces: dict[Reference, Piece] = field(default_factory=dict)
    """What is under way, by Ray's references."""
    _kept: dict[Hashable, Reference] = field(default_factory=dict)
    """Ray's references of what several pieces need: texts and tasks."""
    _given: int = 0

    @cached_property
    def is_shared(self) -> bool:
        """Whether all workers see the same store."""
        return self._store is None or is_alone(self.settings.on) or is_shared(self.ray, self._store)

    @property
    def _store(self) -> Path | None:
        given = self.settings.store
        return None if given is None else (places.store_folder() if given == "default" else Path(given)).absolute()

    @cached_property
    def workers_settings(self) -> RunSettings:
        """The settings as workers are told them: a store that is not shared is that of their own machine."""
        here = self.is_shared or self.settings.store != "default"
        return replace(self.settings, store=self._store if here else "default")

    @cached_property
    def _events(self) -> Ray:
        from ray.util.queue import Queue

        # Where its process is lost another takes its place: what was in it is only shown.
        return Queue(actor_options={"num_cpus": 0, "max_restarts": -1})

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return int(self.ray.cluster_resources().get("GPU", 0))

    def free(self) -> int:
        """How many more workers could embed now: one a GPU, or a core where there is no GPU."""
        devices = self.gpus or max(1, int(self.ray.cluster_resources().get("CPU", 0)))
        return devices - sum(piece.on_device for piece in self.pieces.values())

    def put(self, thing: object) -> Reference:
        """Ray's reference of an object.

        Raises:
            EncoderError: it cannot be sent, as what a user's encoder may hold.
        """
        try:
            return self.ray.put(thing)
        except Exception as error:  # whatever a user's object raises that cannot be sent
            if isinstance(error, ModuleNotFoundError):
                raise EncoderError(
                    f"the cluster cannot read it: {one_line(error)[:200]} there; install on each of its machines what "
                    "this one has, stsbench in the same version too"
                ) from error
            raise EncoderError(
                f"cannot be sent to another process ({one_line(error)[:200]}); leave out --on"
            ) from error

    def keep(self, key: KeyT, make: Callable[[KeyT], object] = lambda key: key) -> Reference:
        """Ray's reference of an object, or of what is made of it, that is put there once."""
        if key not in self._kept:
            self._kept[key] = self.put(make(key))
        return self._kept[key]

    def give(self, piece: Piece) -> None:
        """Give Ray a piece."""
        gpus = 1 if piece.on_device and self.gpus else 0
        self._given += 1
        piece = replace(piece, number=self._given)
        reference = self._ask(piece.what, piece.number, piece.work, *piece.given, num_gpus=gpus, max_retries=0)
        self.pieces[reference] = piece

    def tokens(self, what: str, encoder: Reference, texts: Reference, of: int) -> list[Reference]:
        """Have texts tokenised for an encoder by so many workers; Ray tries again by itself."""
        shares = [BatchShare(number, of) for number in range(of)]
        return [self._ask(what, 0, tokenise, encoder, texts, share, max_retries=TRIES - 1) for share in shares]

    def _ask(self, what: str, number: int, work: Callable[..., object], *given: object, **options: int) -> Reference:
        remote = self.ray.remote(carried_out).options(num_cpus=1, name=what, **options)
        return remote.remote(number, self._events, work, *given)

    def ended(self) -> Iterator[tuple[Piece, Handed | Exception]]:
        """The pieces that have ended by now, with what was handed back or why nothing was; waits a moment for one."""
        self.ray.wait(list(self.pieces), num_returns=1, timeout=WAIT_SECONDS)
        # Many may have ended while the last ones were seen to.
        ready, _ = self.ray.wait(list(self.pieces), num_returns=len(self.pieces), timeout=0)
        for reference in ready:
            yield self.pieces.pop(reference), self._handed(reference)

    def _handed(self, reference: Reference) -> Handed | Exception:
        try:
            handed: Handed | Exception = self.ray.get(reference)
            return handed
        except self.ray.exceptions.RayTaskError as error:
            bug = RuntimeError(one_line(error.cause)[:300])
            bug.add_note(_COLOURS.sub("", str(error)))
            return bug
        except self.ray.exceptions.RayError as error:
            return Lost(LOST.get(type(error).__name__) or one_line(error)[:300] or type(error).__name__)

    def told(self) -> Sequence[Report]:
        """What workers have told since the last time."""
        with suppress(self.ray.exceptions.RayError):
            found: list[Report] = self._events.get_nowait_batch(self._events.qsize())
            return found
        return []

    def stop(self) -> None:
        """End what is under way, as Ctrl-C does: workers write what they have embedded."""
        waiting = list(self.pieces)
        with suppress(self.ray.exceptions.RayError):
            for reference in waiting:
                self.ray.cancel(reference)
            if waiting:
                self.ray.wait(waiting, num_returns=len(waiting), timeout=STOP_SECONDS)
