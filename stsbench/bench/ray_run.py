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
from stsbench.bench.embedder import TaskEmbedder
from stsbench.bench.plan import Cell, EncoderPlan, RunPlan
from stsbench.bench.progress import JobProgress, ProgressTracker
from stsbench.bench.protocols import PlannedTask
from stsbench.bench.run import RunContext, run_locally
from stsbench.bench.score import select_current
from stsbench.core import settings as places
from stsbench.core.errors import EncoderError, StsbenchError
from stsbench.core.provenance import scoring_versions
from stsbench.core.wording import join_lines
from stsbench.encoders.base import TokenEncoder
from stsbench.encoders.engine.embed import BatchShare, Engine
from stsbench.encoders.engine.store import Keys
from stsbench.results.folder import write_result
from stsbench.results.record import Result


@dataclass(eq=False, kw_only=True)
class EncoderJobs:
    """An encoder whose turn it is."""

    encoder_plan: EncoderPlan
    cells: Sequence[Cell]
    encoder: workers.Reference = None
    steps: Iterator[Sequence[Job]] = iter(())
    """Pieces that can be done side by side; the next ones when these are done."""
    is_waiting: int = 0
    """Pieces that are under way."""
    folder: Path | None = None
    """Where its embeddings are stored here."""
    drift_message: str = ""
    """What became of embeddings that were stored before."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """What its Results say of its embedding."""
    failed: bool = False

    def make_job(
        self,
        what: str,
        work: Callable[..., workers.JobResult],
        *given: object,
        **facts: Any,  # noqa: ANN401
    ) -> Job:  # noqa: ANN401 - of a Piece
        """A piece of its work, which is handed the encoder before all that is ``given``."""
        return Job(
            encoder_jobs=self,
            label=f"{self.encoder_plan.name}: {what}",
            work=work,
            arguments=[self.encoder, *given],
            **facts,
        )


@dataclass(eq=False, kw_only=True)
class Job:
    """A piece of work for one worker."""

    encoder_jobs: EncoderJobs
    label: str
    """As it is shown, and as a second try reports it."""
    work: Callable[..., workers.JobResult]
    arguments: Sequence[object]
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
    result: workers.JobResult = workers.JobResult()


def run_job(
    number: int,
    events: workers.Ray,
    versions: Mapping[str, str],
    work: Callable[..., workers.JobResult],
    *given: object,
) -> workers.JobResult | Exception:
    """What each worker is asked for."""
    tell = workers.ProgressReporter(number, events.actor.put_nowait.remote)
    tell(0, 1)

    def checked_work() -> workers.JobResult:
        workers.check_versions(versions)
        return work(tell, *given)

    return workers.catch_errors(checked_work)


def run_on_ray(work: RunContext, parts: Sequence[EncoderPlan]) -> Iterator[Result]:
    """Carry out parts on the workers of Ray; Results are written as they come, and yielded when all are there."""
    if not any(part.missing_cells for part in parts):
        yield from run_locally(work, parts)
        return
    libraries = {library for part in parts for library in part.libraries}
    with workers.connect_ray(work.plan.executor, libraries) as ray, workers.serve_files(ray):
        yield from RayRun(work, ray, libraries).results(parts)


class RayRun:
    """A run whose pieces go to the workers that Ray finds for them."""

    def __init__(self, work: RunContext, ray: workers.Ray, libraries: Iterable[str] = ()) -> None:
        """Nothing is under way yet; ``libraries`` are the packages that the encoders name."""
        self.context, self.ray, self.tracker = work, ray, ProgressTracker()
        self.versions: Mapping[str, str] = scoring_versions(libraries)
        """What a worker must have: those of this machine."""
        self.jobs: dict[int, Job] = {}
        """What is under way, by number."""
        self.waiting: deque[EncoderPlan] = deque()
        """The encoders whose turns have not come."""
        self.made: dict[Cell, Result] = {}
        """Results that are there, earlier ones among them."""
        self._kept: dict[Hashable, workers.Reference] = {}
        """Ray's references of what several pieces need: texts and tasks."""
        self._given = 0

    @cached_property
    def is_shared(self) -> bool:
        """Whether all workers see the same store."""
        return (
            self._store is None
            or workers.is_alone(self.context.plan.executor)
            or workers.is_shared(self.ray, self._store)
        )

    @property
    def _store(self) -> Path | None:
        given = self.context.plan.store
        return (
            None
            if given is None
            else (places.store_folder() if given == "default" else Path(given)).absolute()
        )

    @cached_property
    def plan(self) -> RunPlan:
        """The plan as workers get it: a store that is not shared is that of their own machine."""
        here = self.is_shared or self.context.plan.store != "default"
        return replace(self.context.plan, store=self._store if here else "default")

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
        return devices - sum(piece.on_device for piece in self.jobs.values())

    def put(self, thing: object) -> workers.Reference:
        """Ray's reference of an object. Raises EncoderError: it cannot be sent, as what a user's encoder may hold."""
        try:
            return self.ray.put(thing)
        except Exception as error:  # whatever a user's object raises that cannot be sent
            why = join_lines(error)[:200]
            if isinstance(error, ModuleNotFoundError):
                raise EncoderError(
                    f"the cluster cannot read it: {why} there; install on each of its machines what this one has, "
                    "stsbench in the same version too"
                ) from error
            raise EncoderError(
                f"cannot be sent to another process ({why}); leave out --on"
            ) from error

    def store_reference(self, thing: Hashable) -> workers.Reference:
        """Ray's reference of an object that is put there once."""
        if thing not in self._kept:
            self._kept[thing] = self.put(thing)
        return self._kept[thing]

    def results(self, parts: Sequence[EncoderPlan]) -> Iterator[Result]:
        """Carry out the parts and yield the Results of all their cells in order, those that the folder held among them."""
        self.tracker = ProgressTracker(parts)
        self.waiting.extend(parts)
        try:
            while self.waiting or self.jobs:
                while self.waiting and self._free() > 0:
                    part = self.waiting.popleft()
                    turn = EncoderJobs(encoder_plan=part, cells=part.missing_cells)
                    turn.steps = self._steps(turn)
                    self._next(turn)
                for number, handed in self._finished_jobs():
                    self._handle_result(number, handed)
                self._read_events()
        finally:
            workers.stop_jobs(self.ray, [piece.reference for piece in self.jobs.values()])
        for part in parts:
            yield from (self.made[cell] for cell in part.cells if cell in self.made)

    def _steps(self, turn: EncoderJobs) -> Iterator[Sequence[Job]]:
        """The pieces of an encoder's work, each time those that can be done side by side."""
        part, known = turn.encoder_plan, self.context.load_encoder(turn.encoder_plan)
        tasks = self.context.select_tasks(part.cells)
        embedder = self.context.make_embedder(known, tasks)
        yield from self._compare_earlier(turn, embedder)
        if not turn.cells:
            return
        turn.encoder = turn.encoder or self.put(known)
        if turn.drift_message:
            # Not by the engine of before, which variants of an encoder share.
            embedder = TaskEmbedder(
                known, tasks, self.context.plan, self.context.callbacks, read_only=True
            )
        shared = embedder.plan_shared_embedding(self.context.select_tasks(turn.cells))
        if shared is None:
            # Kept in memory alone, batches are planned over the tasks too that are done.
            yield [self._scoring(turn, embedder, tasks, None)]
            return
        engine, texts = shared
        turn.folder = engine.store.folder
        encoded = yield from self._embedding(turn, engine, texts)
        blocks = {} if self.is_shared else workers.blocks_of(engine.store)
        embedded = self.put(
            workers.JobResult(encoded=encoded, drift_message=turn.drift_message, blocks=blocks)
        )
        yield [
            self._scoring(turn, embedder, [task], embedded)
            for task in self.context.select_tasks(turn.cells)
        ]

    def _compare_earlier(
        self, turn: EncoderJobs, embedder: TaskEmbedder
    ) -> Iterator[Sequence[Job]]:
        """Keep the earlier results that still count; a piece asks a worker if only embedding tells."""
        done = turn.encoder_plan.current_results
        earlier = {
            (self.context.tasks[cell.task], cell.seed): result for cell, result in done.items()
        }
        is_unsure = any(
            embedder.is_current(result, task) is None for (task, _), result in earlier.items()
        )
        shared = embedder.plan_shared_embedding(self.context.select_tasks(turn.cells))
        if is_unsure or (turn.cells and shared is not None and shared[0].store.width is not None):
            turn.encoder = self.put(embedder.encoder)
            tasks = map(self.store_reference, self.context.select_tasks(turn.encoder_plan.cells))
            given = [self.plan, list(done.values()), *tasks]
            yield [
                piece := turn.make_job(
                    "comparing with stored embeddings", workers.compare_earlier, *given
                )
            ]
            turn.drift_message, current = piece.result.drift_message, piece.result.current
        else:
            current = list(select_current(embedder, earlier, self.context.callbacks).values())
        counted = {(result.task, result.eval_seed): result for result in current}
        for cell, result in done.items():
            if (kept := counted.get((cell.task, cell.seed))) is not None:
                self.made[cell] = kept
                if kept.run != result.run:
                    write_result(kept, self.context.plan.results_folder)
        turn.cells = [cell for cell in turn.encoder_plan.cells if cell not in self.made]
        self.tracker.total_cells += len(turn.cells) - len(turn.encoder_plan.missing_cells)

    def _embedding(
        self, turn: EncoderJobs, engine: Engine, texts: Sequence[str]
    ) -> Generator[Sequence[Job], None, list[Keys]]:
        """Pieces that embed, after those that tokenise for all of them; returns the keys of what they have embedded."""
        if not (missing := len(engine.missing_texts(texts))):
            return []
        of = self.plan.gpus_per_encoder or max(1, ceil(self._free() / (len(self.waiting) + 1)))
        held = self.store_reference(tuple(sorted(set(texts))))

        def shares(
            doing: str, work: Callable[..., workers.JobResult], *given: object, sentences: int = 0
        ) -> list[Job]:
            names = [f"{doing} {number + 1}/{of}" if of > 1 else doing for number in range(of)]
            return [
                turn.make_job(name, work, held, BatchShare(number, of), *given, sentences=sentences)
                for number, name in enumerate(names)
            ]

        tokens = list[Job]()
        # On a GPU a worker is there for one piece: to tokenise in another would load the weights twice.
        if of > 1 and not self._gpus and isinstance(engine.encoder, TokenEncoder):
            yield (tokens := shares("tokenising", workers.tokenise))
        given = [self.plan.store, self.is_shared, *(one.reference for one in tokens)]
        yield (pieces := shares("embedding", workers.embed, *given, sentences=ceil(missing / of)))
        turn.facts = {
            "device": pieces[-1].result.device,
            "embedding_seconds": round(sum(one.result.seconds for one in pieces), 3),
            "embedding_workers": of,
            "embedding_tries": max(one.tries for one in pieces),
        }
        return [keys for one in pieces for keys in one.result.encoded]

    def _scoring(
        self,
        turn: EncoderJobs,
        embedder: TaskEmbedder,
        tasks: Sequence[PlannedTask],
        embedded: workers.Reference | None,
    ) -> Job:
        """Tasks scored by one worker: one on what is embedded, or all of an encoder that it embeds itself."""
        first = tasks[0]
        cells = [cell for cell in turn.cells if cell.task in {task.name for task in tasks}]
        seeds = [[cell.seed for cell in cells if cell.task == task.name] for task in tasks]
        given = [self.plan, seeds, embedded, *map(self.store_reference, tasks)]
        if embedded is None:
            return turn.make_job(
                "embedding and scoring",
                workers.score,
                *given,
                cells=cells,
                sentences=turn.encoder_plan.sentences_to_embed or 0,
            )
        # What is fitted over another encoder may embed while it is fitted, and is fitted on a GPU where one is.
        facts = {
            "task": first.name,
            "on_device": embedder.named_encoder(first).texts_digest is not None,
        }
        return turn.make_job(f"scoring {first.name}", workers.score, *given, cells=cells, **facts)

    def _next(self, turn: EncoderJobs) -> None:
        with self.context.report_errors(turn.encoder_plan.name):
            pieces = next(turn.steps, ())
            turn.is_waiting = len(pieces)
            for piece in pieces:
                self._submit(piece)

    def _submit(self, piece: Job) -> None:
        self._given += 1
        gpus = 1 if piece.on_device and self._gpus else 0
        remote = self.ray.remote(run_job).options(
            num_cpus=1, num_gpus=gpus, name=piece.label, max_retries=0
        )
        piece.reference = remote.remote(
            self._given, self._events, self.versions, piece.work, *piece.arguments
        )
        self.jobs[self._given] = piece

    def _finished_jobs(self) -> Iterator[tuple[int, workers.JobResult | Exception]]:
        """The pieces that have ended by now, with what was handed back or why nothing was; waits a moment for one."""
        waiting = {piece.reference: number for number, piece in self.jobs.items()}
        self.ray.wait(list(waiting), num_returns=1, timeout=workers.WAIT_SECONDS)
        # Many may have ended while the last ones were seen to.
        ready, _ = self.ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        for reference in ready:
            yield waiting[reference], workers.fetch_result(self.ray, reference)

    def _handle_result(self, number: int, handed: workers.JobResult | Exception) -> None:
        """Keep what a piece has made, and begin what comes next; what was lost on the way is tried again."""
        piece, listener = self.jobs.pop(number), self.context.callbacks
        turn = piece.encoder_jobs
        self.tracker.finish(number, succeeded=isinstance(handed, workers.JobResult))
        if isinstance(handed, workers.JobResult):
            for line in (*handed.notices, handed.drift_message):
                # Of what was set aside each score says it again.
                if line not in ("", turn.drift_message):
                    listener.on_notice(line)
            if turn.folder is not None:
                workers.write_missing(handed.blocks, turn.folder)
            piece.result = replace(handed, blocks={})
            self._store_result(piece)
        elif not turn.failed:
            # What an encoder or a file is wrong in, is wrong the next time too.
            again = isinstance(
                handed, workers.WorkerLost | workers.VersionMismatch
            ) or not isinstance(handed, StsbenchError)
            if piece.tries < workers.TRIES and again:
                piece.tries += 1
                listener.on_notice(
                    f"{piece.label}: {join_lines(handed)}; tried again ({piece.tries} of {workers.TRIES})"
                )
                self._submit(piece)
                return
            turn.failed = not piece.task
            listener.on_failure(
                f"{turn.encoder_plan.name} on {piece.task}"
                if piece.task
                else turn.encoder_plan.name,
                handed,
            )
            self.tracker.failed_cells += len(piece.cells or turn.cells)
        turn.is_waiting -= 1
        if not turn.is_waiting and not turn.failed:
            self._next(turn)

    def _store_result(self, piece: Job) -> None:
        handed, facts = piece.result, piece.encoder_jobs.facts
        facts = {
            "on": "ray",
            "tries": piece.tries,
            **facts,
            "device": handed.device or facts.get("device"),
        }
        for result in handed.results:
            (cell,) = [
                one
                for one in piece.cells
                if (one.task, one.seed) == (result.task, result.eval_seed)
            ]
            result.run.update(facts)
            if result.per_item:
                write_result(result, self.context.plan.results_folder)
            self.made[cell] = result
            self.tracker.scored_cells += 1
            self.context.callbacks.on_result(result)
        for what, error in handed.failed:
            self.context.callbacks.on_failure(what, error)
        self.tracker.failed_cells += len(piece.cells) - len(handed.results)

    def _read_events(self) -> None:
        pace, timeout = self.tracker, self.context.plan.timeout
        reports: Sequence[workers.Report] = ()
        with suppress(self.ray.exceptions.RayError):
            reports = self._events.get_nowait_batch(self._events.qsize())
        for number, who, done in reports:
            if (piece := self.jobs.get(number)) is not None:
                cells, sentences = len(piece.cells), piece.sentences
                pace.update(
                    number,
                    JobProgress(
                        worker=who,
                        label=piece.label,
                        fraction=done,
                        sentences=sentences,
                        cells=cells,
                    ),
                )
        for number in pace.overdue_jobs(list(self.jobs), timeout):
            # With the process that it hangs in.
            with suppress(self.ray.exceptions.RayError):
                self.ray.cancel(self.jobs[number].reference, force=True)
            self._handle_result(number, EncoderError(f"not done within {timeout:g} s (--timeout)"))
        if (minutes := pace.report_stall()) is not None:
            what = ", ".join(sorted({piece.label for piece in self.jobs.values()}))
            hint = "" if timeout else "; --timeout SECONDS gives up what hangs"
            self.context.callbacks.on_notice(f"no progress for {minutes} minutes: {what}{hint}")
        self.context.callbacks.on_progress(pace)
