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
from stsbench.bench.embed import Divisible, Embedder
from stsbench.bench.listener import Crowd, Doing, Waits
from stsbench.bench.plan import Cell, RunPart, RunPlan, ScoredTask
from stsbench.bench.run import Work, isolated, local
from stsbench.bench.score import done_already
from stsbench.bench.workers import (
    Handed,
    InStore,
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
    tokenise,
    write_missing,
)
from stsbench.core import settings as places
from stsbench.core.errors import EncoderError, StsbenchError, one_line
from stsbench.core.provenance import scoring_versions
from stsbench.encoders.base import TokenEncoder
from stsbench.encoders.engine.embed import BatchShare
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
    tries: int = 1
    number: int = 0


class Lost(StsbenchError):
    """A worker, its machine or what it was to be handed is lost."""


def carried_out(
    number: int, events: Ray, versions: Mapping[str, str], work: Callable[..., T], *given: object
) -> T | Exception:
    """What each worker is asked for; what others were to make for it and could not has failed it too."""
    tell = Tell(number, events.actor.put_nowait.remote)
    tell(0, 1)
    for one in given:
        if isinstance(one, Exception):
            return one

    def checked_work() -> T:
        check_versions(versions)
        return work(tell, *given)

    return caught(checked_work)


@dataclass
class Hands:
    """Gives pieces to Ray, which finds a worker for each; keeps what is under way."""

    ray: Ray
    plan: RunPlan
    pieces: dict[Reference, Piece] = field(default_factory=dict)
    """What is under way, by Ray's references."""
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
        return remote.remote(number, self._events, self.versions, work, *given)

    def give_up(self, piece: Piece) -> None:
        """End a piece that hangs, and the process that it hangs in."""
        (reference,) = [one for one, under_way in self.pieces.items() if under_way is piece]
        del self.pieces[reference]
        with suppress(self.ray.exceptions.RayError):
            self.ray.cancel(reference, force=True)

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
    waits: Waits = field(default_factory=Waits)
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
            stop(self.hands.ray, list(self.hands.pieces))
        for part in parts:
            yield from self._in_order(part)

    def _begin(self, part: RunPart) -> None:
        """An encoder's turn: compare it with its stored embeddings, where there are some, and embed."""
        with isolated(part.name, self.work.plan, self.work.listener):
            encoder = self.work.encoder(part)
            embedder = self.work.embedder(encoder, list(self.work.seeds(part.cells)), only_look=True)
            turn = Turn(part=part, cells=part.missing, encoder=self.hands.put(encoder), embedder=embedder)
            turn.shared = embedder.divisible(self._tasks(turn, turn.cells))
            if turn.shared is None:
                # Kept in memory alone, batches are planned over the tasks too that are done.
                self._score(turn, self._tasks(turn, part.cells), None)
            elif turn.shared.engine.shelf.width is not None:
                what, given = f"{part.name}: comparing with stored embeddings", [turn.encoder, self.plan.store]
                self.hands.give(Piece(turn=turn, what=what, work=worker.see_stored, given=given, then=self._compared))
            else:
                self._divide(turn, turn.shared)

    @property
    def plan(self) -> RunPlan:
        """As workers get it."""
        return self.hands.workers_plan

    def _compared(self, piece: Piece, handed: Handed) -> None:
        """An encoder is compared with its stored embeddings: where they are set aside, its Results are made again too."""
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
            self._divide(turn, turn.shared)

    def _divide(self, turn: Turn, shared: Divisible) -> None:
        """Have an encoder's batches embedded by as many workers as are free for it."""
        missing = len(shared.engine.missing(shared.texts))
        if not missing:
            self._score_each(turn)
            return
        free = max(1, ceil(self.hands.free() / (len(self.waiting) + 1)))
        of = turn.embedding = self.plan.gpus_per_encoder or free
        name, tokens = turn.part.name, list[Reference]()
        held = self.hands.keep(tuple(shared.texts), lambda texts: sorted(set(texts)))
        # On a GPU a worker is there for one piece: to tokenise in another would load the weights twice.
        if of > 1 and not self.hands.gpus and isinstance(shared.engine.encoder, TokenEncoder):
            tokens = self.hands.tokens(f"{name}: tokenising", turn.encoder, held, of)
        for number in range(of):
            given = [turn.encoder, held, BatchShare(number, of), self.plan.store, self.hands.is_shared, *tokens]
            what = f"{name}: embedding" + (f" {number + 1}/{of}" if of > 1 else "")
            then, share = self._embedded, ceil(missing / of)
            self.hands.give(Piece(turn=turn, what=what, work=worker.embed, given=given, then=then, sentences=share))

    def _embedded(self, piece: Piece, handed: Handed) -> None:
        """A share is embedded; after the last of them the encoder is scored."""
        turn = piece.turn
        turn.embedding -= 1
        turn.encoded.extend(handed.encoded)
        turn.seconds, turn.workers = turn.seconds + handed.seconds, turn.workers + 1
        turn.tries, turn.device = max(turn.tries, piece.tries), handed.device or turn.device
        if turn.shared is not None and turn.shared.engine.shelf.folder is not None:
            write_missing(handed.blocks, turn.shared.engine.shelf.folder)
        if not turn.embedding and not turn.failed:
            self._score_each(turn)

    def _score_each(self, turn: Turn) -> None:
        """Have each task scored by a worker of its own, on what is embedded."""
        blocks = blocks_of(turn.shared.engine.shelf) if turn.shared is not None and not self.hands.is_shared else {}
        embedded = self.hands.put(InStore(turn.encoded, turn.said, blocks))
        for task in self._tasks(turn, turn.cells):
            self._score(turn, [task], embedded)

    def _score(self, turn: Turn, tasks: Sequence[ScoredTask], embedded: Reference | None) -> None:
        """Have tasks scored by one worker: one on what is embedded, or all of an encoder that it embeds itself."""
        keys, name = {(task.name, task.asked) for task in tasks}, turn.part.name
        cells = [cell for cell in turn.cells if (cell.task, cell.protocol) in keys]
        wanted = self.work.seeds(cells)
        seeds = [wanted.get(task, []) for task in tasks]
        given = [turn.encoder, self.plan, seeds, embedded, *map(self.hands.keep, tasks)]
        piece = Piece(turn=turn, what="", work=worker.score, given=given, then=self._scored, cells=cells)
        if embedded is None:
            whole = replace(piece, what=f"{name}: embedding and scoring", sentences=turn.part.to_embed or 0)
            self.hands.give(whole)
            return
        # What is fitted over another encoder may embed while it is fitted, and is fitted on a GPU where one is.
        fitted = turn.embedder.known(tasks[0]).fitted_on is not None
        task = tasks[0].name
        self.hands.give(replace(piece, what=f"{name}: scoring {task}", task=task, on_device=fitted))

    def _tasks(self, turn: Turn, cells: Sequence[Cell]) -> list[ScoredTask]:
        return [task for task in self.work.seeds(cells) if task in turn.embedder.tasks]

    def _scored(self, piece: Piece, handed: Handed) -> None:
        """Keep the Results, and tell what could not be scored."""
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
        self.waits.moved(piece.number)
        self.crowd.end(piece.number, well=isinstance(handed, Handed))
        if isinstance(handed, Exception):
            self._failed(piece, handed)
            return
        for line in (*handed.noticed, handed.said):
            # Of what was set aside each score says it again.
            if line not in ("", piece.turn.said):
                self.work.listener.noticed(line)
        piece.then(piece, handed)

    def _failed(self, piece: Piece, error: Exception) -> None:
        """Try a piece again, up to a limit and where it may help; then tell what failed."""
        turn, listener, name = piece.turn, self.work.listener, piece.turn.part.name
        if turn.failed:
            return
        # What an encoder or a file is wrong in, is wrong the next time too.
        again = isinstance(error, Lost | OtherVersions) or not isinstance(error, StsbenchError)
        if piece.tries < TRIES and again:
            listener.noticed(f"{piece.what}: {one_line(error)}; tried again ({piece.tries + 1} of {TRIES})")
            self.hands.give(replace(piece, tries=piece.tries + 1))
            return
        turn.failed = not piece.task
        listener.failed(f"{name} on {piece.task}" if piece.task else name, error)
        for _ in piece.cells or turn.cells:
            self.crowd.cell(well=False)

    def _listen(self) -> None:
        """Say to the listener what the workers do."""
        under_way = {piece.number: piece for piece in self.hands.pieces.values()}
        for number, who, done in self.hands.reports():
            if (piece := under_way.get(number)) is not None:
                doing = Doing(worker=who, what=piece.what, done=done, sentences=piece.sentences)
                if doing != self.crowd.doing.get(number):
                    self.waits.moved(number)
                self.crowd.tell(number, doing)
        for number in self.waits.over(under_way, self.plan.timeout):
            self.hands.give_up(under_way[number])
            self._after(under_way[number], EncoderError(f"not done within {self.plan.timeout:g} s (--timeout)"))
        if (minutes := self.waits.still()) is not None:
            what = ", ".join(sorted({piece.what for piece in under_way.values()}))
            hint = "" if self.plan.timeout else "; --timeout SECONDS gives up what hangs"
            self.work.listener.noticed(f"no progress for {minutes} minutes: {what}{hint}")
        self.crowd.running = sum(len(under_way[key].cells) for key in self.crowd.doing if key in under_way)
        self.work.listener.working(self.crowd)

    def _in_order(self, part: RunPart) -> Iterator[Result]:
        """The Results of a part's cells: those that were made, and those that the folder held."""
        held = [] if part.name in self.renewed else part.done
        with isolated(part.name, self.work.plan, self.work.listener):
            tasks = list(self.work.seeds(held))
            embedder = self.work.embedder(self.work.encoder(part), tasks, only_look=True) if tasks else None
            by_name = {(task.name, task.asked): task for task in tasks}
            for cell in part.cells:
                found = self.made.get(cell)
                if found is None and cell in held and embedder is not None:
                    task = by_name[cell.task, cell.protocol]
                    found = done_already(self.work.plan.out, task, embedder, cell.seed, self.work.listener.refused)
                if found is not None:
                    yield found
