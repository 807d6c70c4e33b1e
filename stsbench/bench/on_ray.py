"""The pieces of work that an encoder is cut into, and the workers of a connected Ray that they go to."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import TypeVar

from stsbench.bench import workers as worker
from stsbench.bench.embed import Embedder
from stsbench.bench.listener import Crowd, Doing
from stsbench.bench.plan import Cell, RunPart, RunPlan, ScoredTask
from stsbench.bench.run import Work, isolated, local
from stsbench.bench.workers import (
    Handed,
    OtherVersions,
    Ray,
    Reference,
    Report,
    Tell,
    blocks_of,
    caught,
    check_versions,
    files_lent,
    is_alone,
    is_shared,
    joined,
    stop,
    write_missing,
)
from stsbench.core import settings as places
from stsbench.core.errors import EncoderError, StsbenchError, one_line
from stsbench.core.provenance import scoring_versions
from stsbench.encoders.base import TokenEncoder
from stsbench.encoders.engine.embed import BatchShare, Engine
from stsbench.encoders.engine.store import Keys
from stsbench.results.folder import write_result
from stsbench.results.record import Result

TRIES = 3
"""So often is a piece of work begun before it has failed."""
WAIT_SECONDS = 0.5
LOST = {
    "WorkerCrashedError": "its worker was killed or has crashed",
    "NodeDiedError": "the machine that it ran on was lost",
    "LocalRayletDiedError": "Ray on this machine was lost",
    "OutOfMemoryError": "the machine's memory was full, and Ray has ended its worker",
}
_COLOURS = re.compile(r"\x1b\[\d+m")
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
    shared: tuple[Engine, list[str]] | None = None
    """What is embedded; None of what one worker embeds and scores."""
    waiting: int = 0
    """Shares of its tokens or of its embedding that are under way."""
    tokens: dict[int, Reference] = field(default_factory=dict)
    """Where its tokens are, by the number of the share."""
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
    """As it is shown, and as a second try reports it."""
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
    share: int = 0
    tries: int = 1
    number: int = 0
    reference: Reference = None
    """Ray's, of what will be handed back."""


class Lost(StsbenchError):
    """A worker, its machine or what it was to be handed is lost."""


def carried_out(
    number: int, events: Ray, versions: Mapping[str, str], work: Callable[..., Handed], *given: object
) -> Handed | Exception:
    """What each worker is asked for."""
    tell = Tell(number, events.actor.put_nowait.remote)
    tell(0, 1)

    def checked_work() -> Handed:
        check_versions(versions)
        return work(tell, *given)

    return caught(checked_work)


@dataclass
class Hands:
    """Gives pieces to Ray, which finds a worker for each; keeps what is under way."""

    ray: Ray
    plan: RunPlan
    pieces: dict[int, Piece] = field(default_factory=dict)
    """What is under way, by number."""
    versions: Mapping[str, str] = field(default_factory=scoring_versions)
    """What a worker must have: those of this machine."""
    _kept: dict[Hashable, Reference] = field(default_factory=dict)
    """Ray's references of what several pieces need: texts and tasks."""
    _given: int = 0

    @cached_property
    def is_shared(self) -> bool:
        """Whether all workers see the same store."""
        return self._store is None or is_alone(self.plan.on) or is_shared(self.ray, self._store)

    @property
    def _store(self) -> Path | None:
        given = self.plan.store
        return None if given is None else (places.store_folder() if given == "default" else Path(given)).absolute()

    @cached_property
    def workers_plan(self) -> RunPlan:
        """The plan as workers get it: a store that is not shared is that of their own machine."""
        here = self.is_shared or self.plan.store != "default"
        return replace(self.plan, store=self._store if here else "default")

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
            why = one_line(error)[:200]
            if isinstance(error, ModuleNotFoundError):
                raise EncoderError(
                    f"the cluster cannot read it: {why} there; install on each of its machines what this one has, "
                    "stsbench in the same version too"
                ) from error
            raise EncoderError(f"cannot be sent to another process ({why}); leave out --on") from error

    def keep(self, key: KeyT, make: Callable[[KeyT], object] = lambda key: key) -> Reference:
        """Ray's reference of an object, or of what is made of it, that is put there once."""
        if key not in self._kept:
            self._kept[key] = self.put(make(key))
        return self._kept[key]

    def give(self, piece: Piece) -> None:
        """Give Ray a piece."""
        self._given += 1
        gpus = 1 if piece.on_device and self.gpus else 0
        remote = self.ray.remote(carried_out).options(num_cpus=1, num_gpus=gpus, name=piece.what, max_retries=0)
        reference = remote.remote(self._given, self._events, self.versions, piece.work, *piece.given)
        self.pieces[self._given] = replace(piece, number=self._given, reference=reference)

    def give_up(self, piece: Piece) -> None:
        """End a piece that hangs, and the process that it hangs in."""
        del self.pieces[piece.number]
        with suppress(self.ray.exceptions.RayError):
            self.ray.cancel(piece.reference, force=True)

    def ended(self) -> Iterator[tuple[Piece, Handed | Exception]]:
        """The pieces that have ended by now, with what was handed back or why nothing was; waits a moment for one."""
        waiting = {piece.reference: piece for piece in self.pieces.values()}
        self.ray.wait(list(waiting), num_returns=1, timeout=WAIT_SECONDS)
        # Many may have ended while the last ones were seen to.
        ready, _ = self.ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        for reference in ready:
            yield self.pieces.pop(waiting[reference].number), self._handed(reference)

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

    def reports(self) -> Sequence[Report]:
        """What workers have reported since the last time."""
        with suppress(self.ray.exceptions.RayError):
            found: list[Report] = self._events.get_nowait_batch(self._events.qsize())
            return found
        return []


def on_ray(work: Work, parts: Sequence[RunPart]) -> Iterator[Result]:
    """Carry out parts on the workers of Ray; Results are written as they come, and yielded when all are there."""
    if not any(part.missing for part in parts):
        yield from local(work, parts)
        return
    with joined(work.plan.on) as ray, files_lent(ray):
        yield from ClusterRun(work, Hands(ray, work.plan)).results(parts)


@dataclass
class ClusterRun:
    """A run whose pieces go to many hands."""

    work: Work
    hands: Hands
    crowd: Crowd = field(default_factory=Crowd)
    waiting: deque[RunPart] = field(default_factory=deque)
    """The encoders whose turns have not come."""
    made: dict[Cell, Result] = field(default_factory=dict)
    renewed: set[str] = field(default_factory=set)
    """The encoders whose stored embeddings, and so whose Results, are of before."""

    def results(self, parts: Sequence[RunPart]) -> Iterator[Result]:
        """Carry out the parts and yield the Results of all their cells in order, those that the folder held among them."""
        self.crowd.cells = sum(len(part.missing) for part in parts)
        self.crowd.to_embed = sum(part.to_embed or 0 for part in parts)
        self.waiting.extend(part for part in parts if part.missing)
        try:
            while self.waiting or self.hands.pieces:
                while self.waiting and self.hands.free() > 0:
                    self._begin(self.waiting.popleft())
                for piece, handed in self.hands.ended():
                    self._after(piece, handed)
                self._listen()
        finally:
            stop(self.hands.ray, [piece.reference for piece in self.hands.pieces.values()])
        for part in parts:
            # What stored embeddings of before have made counts no more.
            held = {} if part.name in self.renewed else part.done
            found = (self.made.get(cell) or held.get(cell) for cell in part.cells)
            yield from (result for result in found if result is not None)

    def _begin(self, part: RunPart) -> None:
        with isolated(part.name, self.work.plan, self.work.listener):
            encoder = self.work.encoder(part)
            embedder = self.work.embedder(encoder, list(self.work.seeds(part.cells)), only_look=True)
            turn = Turn(part=part, cells=part.missing, encoder=self.hands.put(encoder), embedder=embedder)
            turn.shared = embedder.divisible(self._tasks(turn, turn.cells))
            if turn.shared is None:
                # Kept in memory alone, batches are planned over the tasks too that are done.
                self._score(turn, self._tasks(turn, part.cells), None)
            elif turn.shared[0].shelf.width is not None:
                what, given = f"{part.name}: comparing with stored embeddings", [turn.encoder, self.plan.store]
                self.hands.give(Piece(turn=turn, what=what, work=worker.see_stored, given=given, then=self._compared))
            else:
                self._divide(turn, *turn.shared)

    @property
    def plan(self) -> RunPlan:
        """As workers get it."""
        return self.hands.workers_plan

    def _compared(self, piece: Piece, handed: Handed) -> None:
        turn = piece.turn
        if handed.said:
            turn.said = handed.said
            self.crowd.cells += len(turn.part.done)
            turn.cells = list(turn.part.cells)
            self.renewed.add(turn.part.name)
            tasks = list(self.work.seeds(turn.cells))
            turn.embedder = self.work.embedder(self.work.encoder(turn.part), tasks, only_look=True)
            turn.shared = turn.embedder.divisible(self._tasks(turn, turn.cells))
        if turn.shared is not None:
            self._divide(turn, *turn.shared)

    def _divide(self, turn: Turn, engine: Engine, texts: list[str]) -> None:
        missing = len(engine.missing(texts))
        if not missing:
            self._score_each(turn)
            return
        of = self.plan.gpus_per_encoder or max(1, ceil(self.hands.free() / (len(self.waiting) + 1)))
        held = self.hands.keep(tuple(texts), lambda texts: sorted(set(texts)))

        def embed(piece: Piece | None = None, handed: Handed | None = None) -> None:
            """Embed, when all tokens are there."""
            if piece is not None:
                turn.tokens[piece.share] = piece.reference
                turn.waiting -= 1
            if not turn.waiting and not turn.failed:
                tokens = [turn.tokens[share] for share in sorted(turn.tokens)]
                given = [self.plan.store, self.hands.is_shared, *tokens]
                self._share(turn, "embedding", worker.embed, of, held, given, self._embedded, ceil(missing / of))

        # On a GPU a worker is there for one piece: to tokenise in another would load the weights twice.
        if of > 1 and not self.hands.gpus and isinstance(engine.encoder, TokenEncoder):
            self._share(turn, "tokenising", worker.tokenise, of, held, [], embed)
        else:
            embed()

    def _share(
        self,
        turn: Turn,
        doing: str,
        work: Callable[..., Handed],
        of: int,
        texts: Reference,
        given: Sequence[object],
        then: Callable[[Piece, Handed], None],
        sentences: int = 0,
    ) -> None:
        turn.waiting = of
        for share in range(of):
            what = f"{turn.part.name}: {doing}" + (f" {share + 1}/{of}" if of > 1 else "")
            all_given = [turn.encoder, texts, BatchShare(share, of), *given]
            piece = Piece(turn=turn, what=what, work=work, given=all_given, then=then, sentences=sentences, share=share)
            self.hands.give(piece)

    def _embedded(self, piece: Piece, handed: Handed) -> None:
        turn = piece.turn
        turn.waiting -= 1
        turn.encoded.extend(handed.encoded)
        turn.seconds, turn.workers = turn.seconds + handed.seconds, turn.workers + 1
        turn.tries, turn.device = max(turn.tries, piece.tries), handed.device or turn.device
        if turn.shared is not None and (folder := turn.shared[0].shelf.folder) is not None:
            write_missing(handed.blocks, folder)
        if not turn.waiting and not turn.failed:
            self._score_each(turn)

    def _score_each(self, turn: Turn) -> None:
        blocks = blocks_of(turn.shared[0].shelf) if turn.shared is not None and not self.hands.is_shared else {}
        embedded = self.hands.put(Handed(encoded=turn.encoded, said=turn.said, blocks=blocks))
        for task in self._tasks(turn, turn.cells):
            self._score(turn, [task], embedded)

    def _score(self, turn: Turn, tasks: Sequence[ScoredTask], embedded: Reference | None) -> None:
        """Have tasks scored by one worker: one on what is embedded, or all of an encoder that it embeds itself."""
        keys, name = {(task.name, task.asked) for task in tasks}, turn.part.name
        cells = [cell for cell in turn.cells if (cell.task, cell.protocol) in keys]
        wanted = self.work.seeds(cells)
        seeds = [wanted.get(task, []) for task in tasks]
        given = [turn.encoder, self.plan, seeds, embedded, *map(self.hands.keep, tasks)]
        whole, task = f"{name}: embedding and scoring", tasks[0].name
        piece = Piece(turn=turn, what=whole, work=worker.score, given=given, then=self._scored, cells=cells)
        if embedded is None:
            self.hands.give(replace(piece, sentences=turn.part.to_embed or 0))
            return
        # What is fitted over another encoder may embed while it is fitted, and is fitted on a GPU where one is.
        fitted = turn.embedder.known(tasks[0]).fitted_on is not None
        self.hands.give(replace(piece, what=f"{name}: scoring {task}", task=task, on_device=fitted))

    def _tasks(self, turn: Turn, cells: Sequence[Cell]) -> list[ScoredTask]:
        return [task for task in self.work.seeds(cells) if task in turn.embedder.tasks]

    def _scored(self, piece: Piece, handed: Handed) -> None:
        turn, facts = piece.turn, {"on": "ray", "tries": piece.tries, "device": handed.device or piece.turn.device}
        if turn.workers:
            facts |= {"embedding_seconds": round(turn.seconds, 3), "embedding_workers": turn.workers}
            facts |= {"embedding_tries": turn.tries}
        for result in handed.results:
            (cell,) = [one for one in piece.cells if (one.task, one.seed) == (result.task, result.eval_seed)]
            result.run.update(facts)
            if result.per_item:
                write_result(result, self.work.plan.out)
            self.made[cell] = result
            self.crowd.cell(well=True)
            self.work.listener.scored(result)
        for what, error in handed.failed:
            self.work.listener.failed(what, error)
        for _ in range(len(piece.cells) - len(handed.results)):
            self.crowd.cell(well=False)

    def _after(self, piece: Piece, handed: Handed | Exception) -> None:
        """Go on with what follows on a piece; what was lost on the way is tried again."""
        turn, listener = piece.turn, self.work.listener
        self.crowd.end(piece.number, well=isinstance(handed, Handed))
        if isinstance(handed, Handed):
            for line in (*handed.noticed, handed.said):
                # Of what was set aside each score says it again.
                if line not in ("", turn.said):
                    listener.noticed(line)
            piece.then(piece, handed)
        elif not turn.failed:
            # What an encoder or a file is wrong in, is wrong the next time too.
            again = isinstance(handed, Lost | OtherVersions) or not isinstance(handed, StsbenchError)
            if piece.tries < TRIES and again:
                listener.noticed(f"{piece.what}: {one_line(handed)}; tried again ({piece.tries + 1} of {TRIES})")
                self.hands.give(replace(piece, tries=piece.tries + 1))
                return
            turn.failed = not piece.task
            listener.failed(f"{turn.part.name} on {piece.task}" if piece.task else turn.part.name, handed)
            for _ in piece.cells or turn.cells:
                self.crowd.cell(well=False)

    def _listen(self) -> None:
        pieces, crowd, timeout = dict(self.hands.pieces), self.crowd, self.plan.timeout
        for number, who, done in self.hands.reports():
            if (piece := pieces.get(number)) is not None:
                crowd.tell(number, Doing(worker=who, what=piece.what, done=done, sentences=piece.sentences))
        for number in crowd.over(pieces, timeout):
            self.hands.give_up(pieces[number])
            self._after(pieces[number], EncoderError(f"not done within {timeout:g} s (--timeout)"))
        if (minutes := crowd.still()) is not None:
            what = ", ".join(sorted({piece.what for piece in pieces.values()}))
            hint = "" if timeout else "; --timeout SECONDS gives up what hangs"
            self.work.listener.noticed(f"no progress for {minutes} minutes: {what}{hint}")
        crowd.running = sum(len(pieces[key].cells) for key in crowd.doing if key in pieces)
        self.work.listener.working(crowd)
