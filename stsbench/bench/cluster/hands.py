"""The workers of a Ray that is connected: pieces go to them, and what they hand back and tell comes here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from stsbench import settings as places
from stsbench.bench.cells import RunSettings
from stsbench.bench.cluster.joining import Ray, Reference, is_alone
from stsbench.bench.cluster.pieces import Piece
from stsbench.bench.cluster.sharing import Files, Parcel, files_of, is_everywhere, is_shared, open_parcel, parcel_of
from stsbench.bench.cluster.worker import Carried, Cause, Handed, Report, Scoring, Tell, caught, embed, score
from stsbench.bench.shelf import Store
from stsbench.bench.tasks import ScoredTask
from stsbench.encoders.engine.embed import BatchShare
from stsbench.encoders.engine.store import text_keys
from stsbench.errors import one_line

WAIT_SECONDS = 0.5
STOP_SECONDS = 20.0
"""So long are workers waited for that write what they have embedded when a run is stopped."""
LOST = {
    "WorkerCrashedError": "its worker was killed or has crashed",
    "NodeDiedError": "the machine that it ran on was lost",
    "LocalRayletDiedError": "Ray on this machine was lost",
    "OutOfMemoryError": "the machine's memory was full, and Ray has ended its worker",
}


def _embed(
    number: int, events: Ray, packed: Parcel, texts: Sequence[str], share: BatchShare | None, store: Store, shared: bool
) -> Handed:
    tell = Tell(number, events.actor.put_nowait.remote)
    return caught(lambda: embed(open_parcel(packed, _get), texts, share, store=store, shared=shared, tell=tell))


def _score(number: int, events: Ray, packed: Parcel, plan: Scoring, rows: Carried | None, *tasks: ScoredTask) -> Handed:
    tell = Tell(number, events.actor.put_nowait.remote)
    return caught(lambda: score(open_parcel(packed, _get), plan, rows, tasks, tell=tell))


def _get(reference: Reference) -> Files:
    import ray

    files: Files = ray.get(reference)
    return files


@dataclass
class Hands:
    """Gives pieces to Ray, which finds a worker for each; keeps what is under way."""

    ray: Ray
    settings: RunSettings
    pieces: dict[Reference, Piece] = field(default_factory=dict)
    """What is under way, by Ray's references."""
    _lent: dict[object, Reference] = field(default_factory=dict)
    """Ray's references of what several pieces need: texts, tasks, files."""
    _given: int = 0

    @cached_property
    def is_shared(self) -> bool:
        """Whether all workers see the same store."""
        return self.store is None or is_alone(self.settings.on) or is_shared(self.ray, Path(self.store))

    @cached_property
    def store(self) -> Path | None:
        """The store of this machine."""
        given = self.settings.store
        if given is None:
            return None
        return (places.store_folder() if given == "default" else Path(given)).absolute()

    @cached_property
    def _workers_store(self) -> Store:
        """The store as workers name it: where it is not shared, that of their own machine."""
        return self.store if self.is_shared or self.settings.store != "default" else "default"

    @cached_property
    def _events(self) -> Ray:
        from ray.util.queue import Queue

        # Where its process is lost another takes its place: what was in it is only shown.
        return Queue(actor_options={"num_cpus": 0, "max_restarts": -1})

    def free(self) -> int:
        """How many more workers could embed now: one a GPU, or a core where there is no GPU."""
        here = self.ray.cluster_resources()
        devices = int(here.get("GPU", 0)) or max(1, int(here.get("CPU", 0)))
        return devices - sum(piece.on_device for piece in self.pieces.values())

    def pack(self, encoder: object) -> Reference:
        """Ray's reference of an encoder; raises EncoderError where it cannot be sent."""
        return self.ray.put(parcel_of(encoder, self._lend))

    def _lend(self, folder: Path) -> Reference | None:
        """Ray's reference of the files of a folder that some machine does not see; None where all do."""
        if is_alone(self.settings.on) or is_everywhere(self.ray, folder):
            return None
        return self._lent.get(folder) or self._put(folder, files_of(folder))

    def _put(self, key: object, thing: object) -> Reference:
        if key not in self._lent:
            self._lent[key] = self.ray.put(thing)
        return self._lent[key]

    def give(self, piece: Piece, tasks: Sequence[ScoredTask] = (), plan: Scoring | None = None) -> None:
        """Give Ray a piece; of scoring, its tasks and how."""
        self._given += 1
        piece, turn = replace(piece, number=self._given), piece.turn
        work: Callable[..., Handed]
        if piece.shared is not None:
            texts = piece.shared.texts
            held = self._put(text_keys(texts).tobytes(), texts)
            encoder = self.pack(piece.shared.engine.encoder)
            work, given = _embed, [encoder, held, piece.share, self._workers_store, self.is_shared]
        else:
            work, given = _score, [turn.packed, plan, turn.rows, *(self._put(task, task) for task in tasks)]
        gpus = 1 if piece.on_device and self.ray.cluster_resources().get("GPU") else 0
        remote = self.ray.remote(work).options(num_cpus=1, num_gpus=gpus, max_retries=0, name=piece.what)
        self.pieces[remote.remote(piece.number, self._events, *given)] = piece

    def scoring(self, piece: Piece, seeds: dict[tuple[str, str], list[int]]) -> Scoring:
        """How the cells of a piece are scored."""
        return Scoring(
            seeds=seeds, embedded=piece.embedded, store=self._workers_store, catalogue=self.settings.catalogue,
            data=self.settings.data, encoded=piece.turn.encoded, said=piece.turn.said,
        )  # fmt: skip

    def ended(self) -> Iterator[tuple[Piece, Handed]]:
        """The pieces that have ended by now; waits a moment for one."""
        ready, _ = self.ray.wait(list(self.pieces), num_returns=1, timeout=WAIT_SECONDS)
        for reference in ready:
            yield self.pieces.pop(reference), self._handed(reference)

    def _handed(self, reference: Reference) -> Handed:
        try:
            handed: Handed = self.ray.get(reference)
            return handed
        except self.ray.exceptions.RayTaskError as error:
            return Handed(failure=Cause(line=one_line(error.cause)[:300], trace=str(error)))
        except self.ray.exceptions.RayError as error:
            why = LOST.get(type(error).__name__)
            return Handed(failure=Cause(line=why or one_line(error)[:300] or type(error).__name__))

    def told(self) -> list[Report]:
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
