"""A run on Ray: each encoder is cut into pieces of work, which go to the workers of a connected Ray."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

from stsbench.bench import workers
from stsbench.bench.plan import Cell, Doing, Pace, RunPart, RunPlan, ScoredTask
from stsbench.bench.run import Work, isolated, local
from stsbench.bench.score import Embedder, select_current
from stsbench.core import settings as places
from stsbench.core.errors import EncoderError, StsbenchError, one_line
from stsbench.core.provenance import scoring_versions
from stsbench.encoders.base import TokenEncoder
from stsbench.encoders.engine.embed import BatchShare, Engine
from stsbench.encoders.engine.store import Keys
from stsbench.results.folder import write_result
from stsbench.results.record import Result


@dataclass(eq=False, kw_only=True)
class Turn:
    """An encoder whose turn it is."""

    part: RunPart
    cells: Sequence[Cell]
    encoder: workers.Reference = None
    steps: Iterator[Sequence[Piece]] = iter(())
    """Pieces that can be done side by side; the next ones when these are done."""
    waiting: int = 0
    """Pieces that are under way."""
    folder: Path | None = None
    """Where its embeddings are stored here."""
    said: str = ""
    """What became of embeddings that were stored before."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """What its Results say of its embedding."""
    failed: bool = False

    def piece(self, what: str, work: Callable[..., workers.Handed], *given: object, **facts: Any) -> Piece:  # noqa: ANN401 - of a Piece
        """A piece of its work, which is handed the encoder before all that is ``given``."""
        return Piece(turn=self, what=f"{self.part.name}: {what}", work=work, given=[self.encoder, *given], **facts)


@dataclass(eq=False, kw_only=True)
class Piece:
    """A piece of work for one worker."""

    turn: Turn
    what: str
    """As it is shown, and as a second try reports it."""
    work: Callable[..., workers.Handed]
    given: Sequence[object]
    """What the work is handed after how it tells how far it is; Ray's references become what they are of."""
    cells: Sequence[Cell] = ()
    task: str = ""
    """The only one that is scored: where it fails, the encoder's others continue."""
    on_device: bool = True
    """Whether it asks for what embeds: a GPU where there are some."""
    sentences: int = 0
    tries: int = 1
    reference: workers.Reference = None
    """Ray's, of what will be handed back."""
    handed: workers.Handed = workers.Handed()


def carried_out(
    number: int, events: workers.Ray, versions: Mapping[str, str], work: Callable[..., workers.Handed], *given: object
) -> workers.Handed | Exception:
    """What each worker is asked for."""
    tell = workers.Tell(number, events.actor.put_nowait.remote)
    tell(0, 1)

    def checked_work() -> workers.Handed:
        workers.check_versions(versions)
        return work(tell, *given)

    return workers.caught(checked_work)


def on_ray(work: Work, parts: Sequence[RunPart]) -> Iterator[Result]:
    """Carry out parts on the workers of Ray; Results are written as they come, and yielded when all are there."""
    if not any(part.missing for part in parts):
        yield from local(work, parts)
        return
    libraries = {library for part in parts for library in part.libraries}
    with workers.joined(work.plan.on, libraries) as ray, workers.files_lent(ray):
        yield from ClusterRun(work, ray, libraries).results(parts)


class ClusterRun:
    """A run whose pieces go to the workers that Ray finds for them."""

    def __init__(self, work: Work, ray: workers.Ray, libraries: Iterable[str] = ()) -> None:
        """Nothing is under way yet; ``libraries`` are the packages that the encoders name."""
        self.work, self.ray, self.pace = work, ray, Pace()
        self.versions: Mapping[str, str] = scoring_versions(libraries)
        """What a worker must have: those of this machine."""
        self.pieces: dict[int, Piece] = {}
        """What is under way, by number."""
        self.waiting: deque[RunPart] = deque()
        """The encoders whose turns have not come."""
        self.made: dict[Cell, Result] = {}
        """Results that are there, earlier ones among them."""
        self._kept: dict[Hashable, workers.Reference] = {}
        """Ray's references of what several pieces need: texts and tasks."""
        self._given = 0

    @cached_property
    def is_shared(self) -> bool:
        """Whether all workers see the same store."""
        return self._store is None or workers.is_alone(self.work.plan.on) or workers.is_shared(self.ray, self._store)

    @property
    def _store(self) -> Path | None:
        given = self.work.plan.store
        return None if given is None else (places.store_folder() if given == "default" else Path(given)).absolute()

    @cached_property
    def plan(self) -> RunPlan:
        """The plan as workers get it: a store that is not shared is that of their own machine."""
        here = self.is_shared or self.work.plan.store != "default"
        return replace(self.work.plan, store=self._store if here else "default")

    @cached_property
    def _events(self) -> workers.Ray:
        from ray.util.queue import Queue

        # Where its process is lost another takes its place: what was in it is only shown.
        return Queue(actor_options={"num_cpus": 0, "max_restarts": -1})

    @property
    def _gpus(self) -> int:
        return int(self.ray.cluster_resources().get("GPU", 0))

    def _free(self) -> int:
        """How many more workers could embed now: one a GPU, or a core where there is no GPU."""
        devices = self._gpus or max(1, int(self.ray.cluster_resources().get("CPU", 0)))
        return devices - sum(piece.on_device for piece in self.pieces.values())

    def put(self, thing: object) -> workers.Reference:
        """Ray's reference of an object. Raises EncoderError: it cannot be sent, as what a user's encoder may hold."""
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

    def keep(self, thing: Hashable) -> workers.Reference:
        """Ray's reference of an object that is put there once."""
        if thing not in self._kept:
            self._kept[thing] = self.put(thing)
        return self._kept[thing]

    def results(self, parts: Sequence[RunPart]) -> Iterator[Result]:
        """Carry out the parts and yield the Results of all their cells in order, those that the folder held among them."""
        self.pace = Pace(parts)
        self.waiting.extend(parts)
        try:
            while self.waiting or self.pieces:
                while self.waiting and self._free() > 0:
                    part = self.waiting.popleft()
                    turn = Turn(part=part, cells=part.missing)
                    turn.steps = self._steps(turn)
                    self._next(turn)
                for number, handed in self._ended():
                    self._after(number, handed)
                self._listen()
        finally:
            workers.stop(self.ray, [piece.reference for piece in self.pieces.values()])
        for part in parts:
            yield from (self.made[cell] for cell in part.cells if cell in self.made)

    def _steps(self, turn: Turn) -> Iterator[Sequence[Piece]]:
        """The pieces of an encoder's work, each time those that can be done side by side."""
        part, known = turn.part, self.work.encoder(turn.part)
        tasks = self.work.tasks_of(part.cells)
        embedder = self.work.embedder(known, tasks)
        yield from self._compare_earlier(turn, embedder)
        if not turn.cells:
            return
        turn.encoder = turn.encoder or self.put(known)
        if turn.said:
            # Not by the engine of before, which variants of an encoder share.
            embedder = Embedder(known, tasks, self.work.plan, self.work.listener, only_look=True)
        shared = embedder.divisible(self.work.tasks_of(turn.cells))
        if shared is None:
            # Kept in memory alone, batches are planned over the tasks too that are done.
            yield [self._scoring(turn, embedder, tasks, None)]
            return
        engine, texts = shared
        turn.folder = engine.shelf.folder
        encoded = yield from self._embedding(turn, engine, texts)
        blocks = {} if self.is_shared else workers.blocks_of(engine.shelf)
        embedded = self.put(workers.Handed(encoded=encoded, said=turn.said, blocks=blocks))
        yield [self._scoring(turn, embedder, [task], embedded) for task in self.work.tasks_of(turn.cells)]

    def _compare_earlier(self, turn: Turn, embedder: Embedder) -> Iterator[Sequence[Piece]]:
        """Keep the earlier results that still count; a piece asks a worker if only embedding tells."""
        done = turn.part.done
        earlier = {(self.work.tasks[cell.task], cell.seed): result for cell, result in done.items()}
        is_unsure = any(embedder.is_current(result, task) is None for (task, _), result in earlier.items())
        shared = embedder.divisible(self.work.tasks_of(turn.cells))
        if is_unsure or (turn.cells and shared is not None and shared[0].shelf.width is not None):
            turn.encoder = self.put(embedder.encoder)
            tasks = map(self.keep, self.work.tasks_of(turn.part.cells))
            given = [self.plan, list(done.values()), *tasks]
            yield [piece := turn.piece("comparing with stored embeddings", workers.compare_earlier, *given)]
            turn.said, current = piece.handed.said, piece.handed.current
        else:
            current = list(select_current(embedder, earlier, self.work.listener).values())
        counted = {(result.task, result.eval_seed): result for result in current}
        for cell, result in done.items():
            if (kept := counted.get((cell.task, cell.seed))) is not None:
                self.made[cell] = kept
                if kept.run != result.run:
                    write_result(kept, self.work.plan.out)
        turn.cells = [cell for cell in turn.part.cells if cell not in self.made]
        self.pace.cells += len(turn.cells) - len(turn.part.missing)

    def _embedding(
        self, turn: Turn, engine: Engine, texts: Sequence[str]
    ) -> Generator[Sequence[Piece], None, list[Keys]]:
        """Pieces that embed, after those that tokenise for all of them; returns the keys of what they have embedded."""
        if not (missing := len(engine.missing(texts))):
            return []
        of = self.plan.gpus_per_encoder or max(1, ceil(self._free() / (len(self.waiting) + 1)))
        held = self.keep(tuple(sorted(set(texts))))

        def shares(doing: str, work: Callable[..., workers.Handed], *given: object, sentences: int = 0) -> list[Piece]:
            names = [f"{doing} {number + 1}/{of}" if of > 1 else doing for number in range(of)]
            return [
                turn.piece(name, work, held, BatchShare(number, of), *given, sentences=sentences)
                for number, name in enumerate(names)
            ]

        tokens = list[Piece]()
        # On a GPU a worker is there for one piece: to tokenise in another would load the weights twice.
        if of > 1 and not self._gpus and isinstance(engine.encoder, TokenEncoder):
            yield (tokens := shares("tokenising", workers.tokenise))
        given = [self.plan.store, self.is_shared, *(one.reference for one in tokens)]
        yield (pieces := shares("embedding", workers.embed, *given, sentences=ceil(missing / of)))
        turn.facts = {
            "device": pieces[-1].handed.device,
            "embedding_seconds": round(sum(one.handed.seconds for one in pieces), 3),
            "embedding_workers": of,
            "embedding_tries": max(one.tries for one in pieces),
        }
        return [keys for one in pieces for keys in one.handed.encoded]

    def _scoring(
        self, turn: Turn, embedder: Embedder, tasks: Sequence[ScoredTask], embedded: workers.Reference | None
    ) -> Piece:
        """Tasks scored by one worker: one on what is embedded, or all of an encoder that it embeds itself."""
        first = tasks[0]
        cells = [cell for cell in turn.cells if cell.task in {task.name for task in tasks}]
        seeds = [[cell.seed for cell in cells if cell.task == task.name] for task in tasks]
        given = [self.plan, seeds, embedded, *map(self.keep, tasks)]
        if embedded is None:
            return turn.piece(
                "embedding and scoring", workers.score, *given, cells=cells, sentences=turn.part.to_embed or 0
            )
        # What is fitted over another encoder may embed while it is fitted, and is fitted on a GPU where one is.
        facts = {"task": first.name, "on_device": embedder.known(first).fitted_on is not None}
        return turn.piece(f"scoring {first.name}", workers.score, *given, cells=cells, **facts)

    def _next(self, turn: Turn) -> None:
        with isolated(turn.part.name, self.work.plan.alone, self.work.listener):
            pieces = next(turn.steps, ())
            turn.waiting = len(pieces)
            for piece in pieces:
                self._give(piece)

    def _give(self, piece: Piece) -> None:
        self._given += 1
        gpus = 1 if piece.on_device and self._gpus else 0
        remote = self.ray.remote(carried_out).options(num_cpus=1, num_gpus=gpus, name=piece.what, max_retries=0)
        piece.reference = remote.remote(self._given, self._events, self.versions, piece.work, *piece.given)
        self.pieces[self._given] = piece

    def _ended(self) -> Iterator[tuple[int, workers.Handed | Exception]]:
        """The pieces that have ended by now, with what was handed back or why nothing was; waits a moment for one."""
        waiting = {piece.reference: number for number, piece in self.pieces.items()}
        self.ray.wait(list(waiting), num_returns=1, timeout=workers.WAIT_SECONDS)
        # Many may have ended while the last ones were seen to.
        ready, _ = self.ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        for reference in ready:
            yield waiting[reference], workers.handed_back(self.ray, reference)

    def _after(self, number: int, handed: workers.Handed | Exception) -> None:
        """Keep what a piece has made, and begin what comes next; what was lost on the way is tried again."""
        piece, listener = self.pieces.pop(number), self.work.listener
        turn = piece.turn
        self.pace.end(number, well=isinstance(handed, workers.Handed))
        if isinstance(handed, workers.Handed):
            for line in (*handed.noticed, handed.said):
                # Of what was set aside each score says it again.
                if line not in ("", turn.said):
                    listener.noticed(line)
            if turn.folder is not None:
                workers.write_missing(handed.blocks, turn.folder)
            piece.handed = replace(handed, blocks={})
            self._keep(piece)
        elif not turn.failed:
            # What an encoder or a file is wrong in, is wrong the next time too.
            again = isinstance(handed, workers.Lost | workers.OtherVersions) or not isinstance(handed, StsbenchError)
            if piece.tries < workers.TRIES and again:
                piece.tries += 1
                listener.noticed(f"{piece.what}: {one_line(handed)}; tried again ({piece.tries} of {workers.TRIES})")
                self._give(piece)
                return
            turn.failed = not piece.task
            listener.failed(f"{turn.part.name} on {piece.task}" if piece.task else turn.part.name, handed)
            self.pace.failed += len(piece.cells or turn.cells)
        turn.waiting -= 1
        if not turn.waiting and not turn.failed:
            self._next(turn)

    def _keep(self, piece: Piece) -> None:
        handed, facts = piece.handed, piece.turn.facts
        facts = {"on": "ray", "tries": piece.tries, **facts, "device": handed.device or facts.get("device")}
        for result in handed.results:
            (cell,) = [one for one in piece.cells if (one.task, one.seed) == (result.task, result.eval_seed)]
            result.run.update(facts)
            if result.per_item:
                write_result(result, self.work.plan.out)
            self.made[cell] = result
            self.pace.scored += 1
            self.work.listener.scored(result)
        for what, error in handed.failed:
            self.work.listener.failed(what, error)
        self.pace.failed += len(piece.cells) - len(handed.results)

    def _listen(self) -> None:
        pace, timeout = self.pace, self.work.plan.timeout
        reports: Sequence[workers.Report] = ()
        with suppress(self.ray.exceptions.RayError):
            reports = self._events.get_nowait_batch(self._events.qsize())
        for number, who, done in reports:
            if (piece := self.pieces.get(number)) is not None:
                cells, sentences = len(piece.cells), piece.sentences
                pace.tell(number, Doing(worker=who, what=piece.what, done=done, sentences=sentences, cells=cells))
        for number in pace.over(list(self.pieces), timeout):
            # With the process that it hangs in.
            with suppress(self.ray.exceptions.RayError):
                self.ray.cancel(self.pieces[number].reference, force=True)
            self._after(number, EncoderError(f"not done within {timeout:g} s (--timeout)"))
        if (minutes := pace.still()) is not None:
            what = ", ".join(sorted({piece.what for piece in self.pieces.values()}))
            hint = "" if timeout else "; --timeout SECONDS gives up what hangs"
            self.work.listener.noticed(f"no progress for {minutes} minutes: {what}{hint}")
        self.work.listener.working(pace)
