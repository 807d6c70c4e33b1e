"""The jobs of workers: each embeds a share of an encoder's batches, or scores tasks.

None of them needs what distributes them, a :class:`WorkerPool`: Ray, or processes of this machine.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stsbench.bench.embedder import TaskEmbedder, base_encoder, open_store
from stsbench.bench.plan import Cell, EncoderPlan, RunPlan, Store
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.protocols import PlannedTask
from stsbench.bench.ray_cluster import Files, VersionMismatch, WorkerLost, write_missing
from stsbench.bench.score import score_tasks, select_current
from stsbench.core.errors import EncoderError, StsbenchError
from stsbench.core.provenance import encoder_identity
from stsbench.encoders.base import Encoder, FittableEncoder, TokenEncoder
from stsbench.encoders.engine.embed import BatchShare, Engine, tokenize_texts
from stsbench.encoders.engine.store import EmbeddingStore, Keys
from stsbench.encoders.metadata import read_metadata
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.tokens import TokenIds
from stsbench.results.record import Result

REPORT_SECONDS = 0.5
"""The time between two reports of a job."""


def read_store_files(store: EmbeddingStore) -> Files:
    """Read the files of an encoder's store: embeddings, and metadata on how they were made."""
    paths = store.folder.glob("*.*") if store.folder is not None else ()
    return {path.name: path.read_bytes() for path in paths if path.suffix in (".npy", ".json")}


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """The result of a worker's job.

    Jobs that score an encoder also get one, with the results of the jobs that have embedded for it.
    """

    results: Sequence[Result] = ()
    failures: Sequence[tuple[str, Exception]] = ()
    """The cells that cannot be scored, as text, with their errors."""
    tokens: TokenIds | None = None
    """The tokens of a share of texts, if the job has made them."""
    encoded_keys: Sequence[Keys] = ()
    """The keys of the embedded sentences."""
    store_files: Files = field(default_factory=dict)
    """The files of the worker's own store of the encoder; empty if all share a store."""
    drift_message: str = ""
    """A message on archived embeddings; empty if there are none."""
    current_results: Sequence[Result] = ()
    """The earlier results that are current."""
    notices: Sequence[str] = ()
    """Messages for the user that are no errors."""
    device: str | None = None
    """The device that has embedded, for example ``cuda:0``."""
    embedding_seconds: float = 0.0
    """The time that embedding took."""


class Report(NamedTuple):
    """A report on the progress of a job."""

    job_id: int
    worker: str
    """The host and process of the worker."""
    fraction: float
    """The finished share of the job, in [0, 1]."""


@dataclass
class ProgressReporter:
    """Reports the progress of a job to the run, at most once in ``REPORT_SECONDS``."""

    job_id: int
    report: Callable[[Report], object]
    """Called with each report."""
    last_report: float = field(default=-REPORT_SECONDS, init=False)
    """The time of the last report."""

    def __call__(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` units are finished, unless that is too soon."""
        now = time.monotonic()
        if now - self.last_report >= REPORT_SECONDS:
            self.last_report = now
            worker = f"{socket.gethostname()}:{os.getpid()}"
            self.report(Report(self.job_id, worker, fraction=done / total if total else 0.0))


_LAST_ENCODER: dict[str, Encoder] = {}
"""The encoder that this process has embedded with last, by its identity."""


def reuse_loaded_encoder(encoder: Encoder) -> Encoder:
    """Return an equal encoder that this process has used last, or else the argument.

    A worker gets an encoder anew with each job. The one that it has used last has its weights in
    memory, so it is used again if both have the same identity (class, parameters and weights).
    Otherwise the argument replaces it: ``_LAST_ENCODER`` has one encoder at most, by its identity.
    An encoder without an identity is not remembered.
    """
    identity = encoder_identity(encoder)
    if identity is None:
        return encoder
    if identity not in _LAST_ENCODER:
        _LAST_ENCODER.clear()
        _LAST_ENCODER[identity] = encoder
    return _LAST_ENCODER[identity]


def compare_earlier_results(
    report_progress: ProgressReporter,
    named_encoder: NamedEncoder,
    plan: RunPlan,
    earlier_results: Sequence[Result],
    *tasks: PlannedTask,
) -> JobResult:
    """Check whether an encoder still gives the embeddings that it has stored and was scored with.

    If it does not, its stored embeddings are archived. This is a job of a worker.

    Args:
        report_progress: Not used; every job has this argument.
        named_encoder: The encoder.
        plan: The run, with the folder of stored embeddings on this machine.
        earlier_results: The earlier results of the encoder.
        tasks: The tasks of these results; there may be others among them.

    Returns:
        The earlier results that are still valid (``current_results``), a message if embeddings were
        archived (``drift_message``, otherwise empty), and notices for the user.
    """
    notices = list[str]()
    callbacks = RunCallbacks(on_notice=notices.append)
    encoder = named_encoder.encoder
    is_its_own_base = base_encoder(encoder) is encoder
    # An encoder that changes the embeddings of another one, its base, is not taken from memory:
    # only bases are loaded there.
    if is_its_own_base:
        named_encoder = replace(named_encoder, encoder=reuse_loaded_encoder(encoder))
    # Making it compares the stored embeddings, and archives them if the encoder has changed.
    embedder = TaskEmbedder(named_encoder, tasks, plan, callbacks)
    # Its ``tasks`` are those that the encoder can be scored on.
    task_by_name = {task.name: task for task in embedder.tasks}
    result_by_task_and_seed = {
        (task_by_name[result.task], result.eval_seed): result
        for result in earlier_results
        if result.task in task_by_name
    }
    current_results = select_current(embedder, result_by_task_and_seed, callbacks)
    drift_messages = map(embedder.drift_message, embedder.tasks)
    return JobResult(
        current_results=list(current_results.values()),
        drift_message=next(filter(None, drift_messages), ""),
        notices=notices,
    )


def tokenize_share(
    report_progress: ProgressReporter,
    named_encoder: NamedEncoder,
    texts: Sequence[str],
    share: BatchShare,
) -> JobResult:
    """Tokenize a share of texts, for all workers that embed them. This is a job of a worker.

    Args:
        report_progress: Not used; every job has this argument.
        named_encoder: The encoder.
        texts: All texts, sorted.
        share: Which of the texts this job tokenizes: one of several slices of about equal size.

    Returns:
        A job result in which only ``tokens`` is set.
    """
    base = base_encoder(named_encoder.encoder)
    # The equal encoder whose weights an earlier job of this process has loaded, if there is one.
    encoder = reuse_loaded_encoder(base)
    if not isinstance(encoder, TokenEncoder):
        raise TypeError(f"{type(encoder).__name__} has no tokens")
    return JobResult(tokens=tokenize_texts(encoder, share.select_texts(texts)))


def embed_share(
    report_progress: ProgressReporter,
    named_encoder: NamedEncoder,
    texts: Sequence[str],
    share: BatchShare,
    store: Store,
    is_store_shared: bool,
    *tokenizing_results: JobResult,
) -> JobResult:
    """Embed a share of texts, and store the embeddings. This is a job of a worker.

    Every worker plans the same batches over all texts, and embeds its share of them, so that
    embeddings do not depend on the number of workers.

    Args:
        report_progress: Called with how many tokens or characters are embedded, and of how many.
        named_encoder: The encoder.
        texts: All texts, sorted.
        share: Which of the batches this job embeds: of n jobs, each has every n-th.
        store: The folder with the stored embeddings of each encoder: the run's, or this machine's.
        is_store_shared: Whether all machines see the same folder, so that it was checked already.
            If they do not, this machine checks its own, and returns its files.
        tokenizing_results: The results of the jobs that have tokenized, in the order of their
            shares; without them this job tokenizes.

    Returns:
        The keys of the embedded sentences, a message if stored embeddings were archived because the
        encoder has changed (otherwise empty), notices, the device and the time; the files of the
        store if it is not shared.
    """
    started = time.perf_counter()
    notices: list[str] = []
    # The store holds the embeddings of the base, from which variants make theirs.
    base = base_encoder(named_encoder.encoder)
    # The equal encoder whose weights an earlier job of this process has loaded, if there is one.
    encoder = reuse_loaded_encoder(base)
    # When it is opened, a few stored embeddings are embedded again, unless it was ``checked``. If
    # they differ, the encoder has changed: all are archived.
    encoder_store = open_store(store, encoder, checked=is_store_shared)
    engine = Engine(encoder, encoder_store, on_progress=report_progress, on_notice=notices.append)
    # Each job has tokenized the next part of the sorted texts.
    tokens_of_shares = [
        job_result.tokens for job_result in tokenizing_results if job_result.tokens is not None
    ]
    tokens_of_all_texts = TokenIds.join(tokens_of_shares) if tokens_of_shares else None
    engine.prepare(texts, share=share, tokens=tokens_of_all_texts)
    return JobResult(
        encoded_keys=engine.encoded_keys,
        store_files={} if is_store_shared else read_store_files(encoder_store),
        drift_message=encoder_store.monitor.message if encoder_store.monitor is not None else "",
        notices=notices,
        device=read_metadata(encoder).device_used,
        embedding_seconds=time.perf_counter() - started,
    )


def score_tasks_of_job(
    report_progress: ProgressReporter,
    named_encoder: NamedEncoder,
    plan: RunPlan,
    seeds_by_task: Sequence[Sequence[int]],
    embedding_result: JobResult | None,
    *tasks: PlannedTask,
) -> JobResult:
    """Score an encoder on tasks, and embed their sentences first if no other job has done it.

    This is a job of a worker.

    Args:
        report_progress: Called with how many tokens or characters are embedded, and of how many.
        named_encoder: The encoder.
        plan: The run, with the folder of stored embeddings on this machine.
        seeds_by_task: The evaluation seeds to score each task with, in the order of ``tasks``.
        embedding_result: The joined results of the jobs that have embedded; None if this job
            embeds.
        tasks: The tasks, whose data are read already.

    Returns:
        The results, the failures (tasks that could not be scored, with their errors), notices, and
        the device.

    Raises:
        EncoderError: Embeddings that were stored are not in the store of this machine.
    """
    notices: list[str] = []
    failures: list[tuple[str, Exception]] = []
    callbacks = RunCallbacks(
        on_embedding=report_progress,
        on_notice=notices.append,
        on_failure=lambda label, error: failures.append((label, error)),
    )
    if embedding_result is not None and embedding_result.store_files:
        # This machine's store is another than that of the jobs: it gets the files that it lacks.
        store = open_store(plan.store, base_encoder(named_encoder.encoder), read_only=True)
        write_missing(embedding_result.store_files, folder=store.folder or Path())
    # An encoder that is fitted on texts may embed further ones here: what it has embedded to be
    # fitted may be stored only where the run began.
    may_embed_further = isinstance(named_encoder.encoder, FittableEncoder)
    read_only = embedding_result is not None and not may_embed_further
    embedder = TaskEmbedder(named_encoder, tasks, plan, callbacks, read_only=read_only)
    if embedding_result is not None:
        _record_embedded(embedder, tasks, embedding_result)
    # None of these cells has an earlier result.
    earlier_results = {
        (task, seed): None
        for task, seeds in zip(tasks, seeds_by_task, strict=True)
        for seed in seeds
    }
    results = list(score_tasks(embedder, earlier_results, callbacks=callbacks))
    return JobResult(
        results=results,
        failures=failures,
        notices=notices,
        device=read_metadata(named_encoder.encoder).device_used,
    )


def _record_embedded(
    embedder: TaskEmbedder, tasks: Sequence[PlannedTask], embedding_result: JobResult
) -> None:
    """Check that other jobs have stored all embeddings, and count these as if embedded here.

    The embedder of this job then reports the sentences that other jobs have embedded as its own,
    and also their message on archived embeddings.

    Args:
        embedder: The embedder of this job, which is changed.
        tasks: The tasks that this job scores.
        embedding_result: The joined result of the jobs that have embedded, with the keys of the
            sentences and that message.

    Raises:
        EncoderError: Embeddings are missing.
    """
    shared_embedding = embedder.plan_shared_embedding(tasks)
    # Sentences of this encoder cannot be embedded by several jobs: this job embeds them itself.
    if shared_embedding is None:
        return
    engine = shared_embedding.engine
    n_missing = len(engine.missing_texts(shared_embedding.texts))
    if n_missing:
        raise EncoderError(
            f"{n_missing} embeddings that were stored are not in the store "
            f"'{engine.store.folder}' as it is seen on {socket.gethostname()}",
            hint="pass `store` with a folder that all machines share",
        )
    engine.encoded_keys.extend(embedding_result.encoded_keys)
    # The monitor checks whether the encoder has changed; None if nothing checks it.
    if engine.store.monitor is not None:
        engine.store.monitor.message = embedding_result.drift_message


Reference = Any
"""What stands for an object that workers get, or for the result of a job."""


@dataclass(eq=False, kw_only=True)
class EncoderJobs:
    """An encoder that has started: its steps of jobs, and what they have brought about so far."""

    encoder_plan: EncoderPlan
    cells_to_score: Sequence[Cell]
    """The cells that are still to be scored."""
    encoder: Reference = None
    """The reference to the encoder; None before a job needs it."""
    remaining_steps: Iterator[Sequence[Job]] = iter(())
    """The steps that have not started: the jobs of a step run at the same time, and the next step
    starts when all of them have ended."""
    n_running: int = 0
    """The number of jobs of the current step that have not ended."""
    store_folder: Path | None = None
    """The folder of its stored embeddings on this machine."""
    drift_message: str = ""
    """A message on archived embeddings; empty if there are none."""
    embedding_fields: Mapping[str, object] = field(default_factory=dict)
    """The fields on its embedding in the ``run`` block of its results."""
    has_failed: bool = False
    """Whether a job has failed that all its tasks need: then no further step starts."""

    def make_job(
        self,
        activity: str,
        work: Callable[..., JobResult],
        *arguments: object,
        **fields: Any,  # noqa: ANN401 - of a Job
    ) -> Job:
        """Make a job for a worker; it is not started.

        Args:
            activity: What the job does, as it is printed behind the encoder's name.
            work: The function to call on a worker, with a reporter of progress and the encoder as
                its first arguments.
            arguments: The further arguments of the function.
            fields: Further fields of :class:`Job`.
        """
        return Job(
            encoder_jobs=self,
            label=f"{self.encoder_plan.name}: {activity}",
            work=work,
            arguments=[self.encoder, *arguments],
            **fields,
        )

    def make_share_jobs(
        self,
        n_jobs: int,
        activity: str,
        work: Callable[..., JobResult],
        texts: Reference,
        *arguments: object,
        sentences_per_job: int = 0,
    ) -> list[Job]:
        """Make jobs that divide the same texts among them; none is started.

        Args:
            n_jobs: The number of jobs.
            activity: What the jobs do, as it is printed; ``2/3`` is added for the second of three.
            work: The function to call on a worker, with a reporter of progress, the encoder, the
                texts and the job's share (a :class:`BatchShare`) as its first arguments.
            texts: The executor's reference to all the texts.
            arguments: The further arguments of the function.
            sentences_per_job: The number of sentences that each job embeds.
        """
        jobs = []
        for index in range(n_jobs):
            label = f"{activity} {index + 1}/{n_jobs}" if n_jobs > 1 else activity
            share = BatchShare(index, n_jobs)
            job = self.make_job(label, work, texts, share, *arguments, sentences=sentences_per_job)
            jobs.append(job)
        return jobs


@dataclass(eq=False, kw_only=True)
class Job:
    """A unit of work for one worker."""

    encoder_jobs: EncoderJobs
    label: str
    """The job as it is printed."""
    work: Callable[..., JobResult]
    """The function to call, with a :class:`ProgressReporter` and the arguments."""
    arguments: Sequence[object]
    """Its arguments; references are replaced with the objects that they stand for."""
    cells: Sequence[Cell] = ()
    """The cells that it scores."""
    single_task: str = ""
    """The only task that it scores: if it fails, the encoder's other jobs continue."""
    needs_device: bool = True
    """Whether it needs a device that embeds: a GPU if there are any."""
    sentences: int = 0
    """The number of sentences that it embeds."""
    tries: int = 1
    """How often it has been started."""
    reference: Reference = None
    """The reference to its result; None before it has started."""
    result: JobResult = JobResult()
    """Its result; empty before it has ended."""


class FinishedJob(NamedTuple):
    """A job that has ended, with its result, or its error if it has failed."""

    job_id: int
    """Its key in :attr:`JobRun.running_jobs`."""
    outcome: JobResult | Exception


class WorkerPool(Protocol):
    """The workers of a run, which carry out its jobs."""

    name: str
    """The executor, as results record it."""
    option: str
    """The field of the plan by which the user has chosen it."""

    @property
    def shares_tokens(self) -> bool:
        """Whether workers tokenize for each other; else each tokenizes all texts."""

    def count_devices(self) -> int:
        """Return the number of workers that can embed at the same time."""

    def shares_folder(self, folder: Path) -> bool:
        """Return whether all workers see a folder of this machine."""

    def put(self, value: object) -> Reference:
        """Store an object for the workers; raises whatever an object raises that cannot be sent."""

    def start(self, job_id: int, job: Job) -> Reference:
        """Let a worker carry out a job, as soon as one is free."""

    def finished_jobs(self, running_jobs: Mapping[int, Job]) -> Iterator[FinishedJob]:
        """Yield the jobs that have ended, after a wait of ``WAIT_SECONDS`` at most.

        Args:
            running_jobs: The jobs that have started and not ended, by id; at least one.
        """

    def read_reports(self) -> Sequence[Report]:
        """Return the reports that running jobs have sent since the last call."""

    def cancel(self, job: Job) -> None:
        """End a job by force: its process may hang."""

    def stop(self, running_jobs: Sequence[Job]) -> None:
        """Stop running jobs as Ctrl-C does, at the end of the run; there may be none."""


def run_job(
    job_id: int,
    report: Callable[[Report], object],
    work: Callable[..., JobResult],
    *arguments: object,
) -> JobResult:
    """Carry out a job in the process of a worker, and return its result.

    Args:
        job_id: The number of the job, which its reports contain.
        report: Sends a report on the progress to the process that started the run.
        work: The function of the job; its first argument is a :class:`ProgressReporter`, which it
            calls with what is done and what is to be done in all.
        arguments: Its arguments after the reporter.
    """
    report_progress = ProgressReporter(job_id, report)
    # Nothing is done yet: this report tells when the job has started, and on which worker.
    report_progress(0, 1)
    return work(report_progress, *arguments)


def may_succeed_again(error: Exception) -> bool:
    """Return whether a failed job may succeed in another try; a user error would come again."""
    if isinstance(error, WorkerLost | VersionMismatch):
        return True
    return not isinstance(error, StsbenchError)
