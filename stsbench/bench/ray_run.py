"""A run on Ray: the work on each encoder is divided into jobs for the workers of Ray."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from stsbench.bench import workers
from stsbench.bench.embedder import TaskEmbedder
from stsbench.bench.plan import Cell, EncoderPlan, RunPlan
from stsbench.bench.progress import JobProgress, ProgressTracker
from stsbench.bench.protocols import PlannedTask
from stsbench.bench.run import RunContext, run_locally
from stsbench.bench.score import select_current
from stsbench.core import settings
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
    """The jobs of one encoder that has started."""

    encoder_plan: EncoderPlan
    cells: Sequence[Cell]
    """The cells that are still to be scored."""
    encoder: workers.Reference = None
    """Ray's reference to the encoder; None before a job needs it."""
    steps: Iterator[Sequence[Job]] = iter(())
    """Jobs that can run at the same time; the next ones after all of them have ended."""
    n_running: int = 0
    """The number of jobs of this step that have not ended."""
    folder: Path | None = None
    """The folder of its stored embeddings on this machine."""
    drift_message: str = ""
    """A message on archived embeddings; empty if there are none."""
    embedding_fields: Mapping[str, object] = field(default_factory=dict)
    """The fields on its embedding in the ``run`` block of its results."""
    has_failed: bool = False

    def make_job(
        self,
        activity: str,
        work: Callable[..., workers.JobResult],
        *arguments: object,
        **fields: Any,  # noqa: ANN401 - of a Job
    ) -> Job:
        """Make a job, which is called with the encoder before its other arguments.

        Args:
            activity: What it does, as it is printed behind the encoder's name.
            work: The function to call on a worker.
            arguments: Its arguments after the encoder.
            fields: Further fields of the job.
        """
        return Job(
            encoder_jobs=self,
            label=f"{self.encoder_plan.name}: {activity}",
            work=work,
            arguments=[self.encoder, *arguments],
            **fields,
        )


@dataclass(eq=False, kw_only=True)
class Job:
    """A unit of work for one worker."""

    encoder_jobs: EncoderJobs
    label: str
    """The job as it is printed."""
    work: Callable[..., workers.JobResult]
    """The function to call, with a :class:`workers.ProgressReporter` and the arguments."""
    arguments: Sequence[object]
    """Its arguments; Ray replaces its references with the objects that they refer to."""
    cells: Sequence[Cell] = ()
    """The cells that it scores."""
    task: str = ""
    """The only task that it scores: if it fails, the encoder's other jobs continue."""
    on_device: bool = True
    """Whether it needs a device that embeds: a GPU if there are any."""
    sentences: int = 0
    """The number of sentences that it embeds."""
    tries: int = 1
    """How often it has been started."""
    reference: workers.Reference = None
    """Ray's reference to its result."""
    result: workers.JobResult = workers.JobResult()
    """Its result; empty before it has ended."""


class FinishedJob(NamedTuple):
    """The outcome of a job: its result, or the error if it has failed."""

    job_id: int
    outcome: workers.JobResult | Exception


def run_job(
    job_id: int,
    events: workers.Ray,
    versions: Mapping[str, str],
    work: Callable[..., workers.JobResult],
    *arguments: object,
) -> workers.JobResult | Exception:
    """Carry out a job on a worker, and return its result or its error.

    Args:
        job_id: The job, as its reports name it.
        events: The queue of the run, which gets the reports.
        versions: The versions that this machine must have.
        work: The function of the job.
        arguments: Its arguments after the reporter.
    """
    report_progress = workers.ProgressReporter(job_id, events.actor.put_nowait.remote)
    report_progress(0, 1)

    def checked_work() -> workers.JobResult:
        workers.check_versions(versions)
        return work(report_progress, *arguments)

    return workers.catch_errors(checked_work)


def run_on_ray(context: RunContext, encoder_plans: Sequence[EncoderPlan]) -> Iterator[Result]:
    """Carry out encoder plans on the workers of Ray.

    Results are written as they are computed, and yielded when all are there.

    Args:
        context: The run; its plan names Ray's address.
        encoder_plans: The encoders with their cells; without missing cells Ray is not started.
    """
    if not any(encoder_plan.missing_cells for encoder_plan in encoder_plans):
        yield from run_locally(context, encoder_plans)
        return
    libraries = {library for encoder_plan in encoder_plans for library in encoder_plan.libraries}
    with workers.connect_ray(context.plan.executor, libraries) as ray, workers.serve_files(ray):
        yield from RayRun(context, ray, libraries).results(encoder_plans)


class RayRun:
    """A run whose jobs are distributed by Ray."""

    def __init__(
        self, context: RunContext, ray: workers.Ray, libraries: Iterable[str] = ()
    ) -> None:
        """Start without any job.

        Args:
            context: The run in this process.
            ray: The package ``ray``, which is connected.
            libraries: The packages that the encoders name.
        """
        self.context = context
        self.ray = ray
        self.tracker = ProgressTracker()
        self.versions: Mapping[str, str] = scoring_versions(libraries)
        """The versions on this machine, which every worker must have."""
        self.jobs: dict[int, Job] = {}
        """The running jobs, by id."""
        self.waiting: deque[EncoderPlan] = deque()
        """The encoders that have not started."""
        self.result_by_cell: dict[Cell, Result] = {}
        """The new and the current results so far."""
        self._references: dict[Hashable, workers.Reference] = {}
        """Ray's references to objects that several jobs need: texts and tasks."""
        self._last_job_id = 0

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
        """The folder of all stores on this machine; None for embeddings in memory only."""
        store = self.context.plan.store
        if store is None:
            return None
        return (settings.store_folder() if store == "default" else Path(store)).absolute()

    @cached_property
    def plan(self) -> RunPlan:
        """The plan for workers; an unshared default store is that of their own machine."""
        keeps_folder = self.is_shared or self.context.plan.store != "default"
        return replace(self.context.plan, store=self._store if keeps_folder else "default")

    @cached_property
    def _events(self) -> workers.Ray:
        from ray.util.queue import Queue

        # If its process is lost, another replaces it; lost reports would only have been shown.
        return Queue(actor_options={"num_cpus": 0, "max_restarts": -1})

    @property
    def _gpus(self) -> int:
        return int(self.ray.cluster_resources().get("GPU", 0))

    def _count_free_devices(self) -> int:
        """Count the further workers that could embed: one per GPU, or per core without GPUs."""
        devices = self._gpus or max(1, int(self.ray.cluster_resources().get("CPU", 0)))
        return devices - sum(job.on_device for job in self.jobs.values())

    def put(self, value: object) -> workers.Reference:
        """Store an object in Ray, and return Ray's reference to it.

        Raises:
            EncoderError: It cannot be sent to other processes, for example because of what a
                user's encoder holds.
        """
        try:
            return self.ray.put(value)
        except Exception as error:  # a user's object may raise anything if it cannot be sent
            reason = join_lines(error)[:200]
            if isinstance(error, ModuleNotFoundError):
                raise EncoderError(
                    f"the cluster cannot read it: {reason} there; install on each of its machines "
                    "what this one has, stsbench in the same version too"
                ) from error
            raise EncoderError(
                f"cannot be sent to another process ({reason}); leave out `executor`"
            ) from error

    def store_reference(self, value: Hashable) -> workers.Reference:
        """Return Ray's reference to an object, which is stored in Ray once."""
        if value not in self._references:
            self._references[value] = self.put(value)
        return self._references[value]

    def results(self, encoder_plans: Sequence[EncoderPlan]) -> Iterator[Result]:
        """Carry out encoder plans, and yield the Results of all cells in order."""
        self.tracker = ProgressTracker(encoder_plans)
        self.waiting.extend(encoder_plans)
        try:
            while self.waiting or self.jobs:
                while self.waiting and self._count_free_devices() > 0:
                    encoder_plan = self.waiting.popleft()
                    encoder_jobs = EncoderJobs(
                        encoder_plan=encoder_plan, cells=encoder_plan.missing_cells
                    )
                    encoder_jobs.steps = self._steps(encoder_jobs)
                    self._start_next_step(encoder_jobs)
                for finished in self._finished_jobs():
                    self._handle_outcome(finished.job_id, finished.outcome)
                self._read_reports()
        finally:
            workers.stop_jobs(self.ray, [job.reference for job in self.jobs.values()])
        for encoder_plan in encoder_plans:
            for cell in encoder_plan.cells:
                if cell in self.result_by_cell:
                    yield self.result_by_cell[cell]

    def _steps(self, encoder_jobs: EncoderJobs) -> Iterator[Sequence[Job]]:
        """Yield the jobs of an encoder, each time those that can run at the same time."""
        encoder_plan = encoder_jobs.encoder_plan
        encoder = self.context.load_encoder(encoder_plan)
        tasks = self.context.select_tasks(encoder_plan.cells)
        embedder = self.context.make_embedder(encoder, tasks)
        yield from self._compare_earlier(encoder_jobs, embedder)
        if not encoder_jobs.cells:
            return
        encoder_jobs.encoder = encoder_jobs.encoder or self.put(encoder)
        if encoder_jobs.drift_message:
            # Its earlier engine, which variants of an encoder share, has archived embeddings.
            embedder = TaskEmbedder(
                encoder, tasks, self.context.plan, self.context.callbacks, read_only=True
            )
        tasks_to_score = self.context.select_tasks(encoder_jobs.cells)
        shared_embedding = embedder.plan_shared_embedding(tasks_to_score)
        if shared_embedding is None:
            # If embeddings are in memory only, batches are planned over all tasks.
            yield [self._make_scoring_job(encoder_jobs, embedder, tasks, embedded=None)]
            return
        engine = shared_embedding.engine
        encoder_jobs.folder = engine.store.folder
        encoded_keys = yield from self._embed_together(encoder_jobs, engine, shared_embedding.texts)
        embedded = self.put(
            workers.JobResult(
                encoded_keys=encoded_keys,
                drift_message=encoder_jobs.drift_message,
                store_files={} if self.is_shared else workers.read_store_files(engine.store),
            )
        )
        yield [
            self._make_scoring_job(encoder_jobs, embedder, tasks=[task], embedded=embedded)
            for task in tasks_to_score
        ]

    def _compare_earlier(
        self, encoder_jobs: EncoderJobs, embedder: TaskEmbedder
    ) -> Iterator[Sequence[Job]]:
        """Store the earlier results that are current, and set the cells that are to be scored.

        Args:
            encoder_jobs: The encoder; its ``cells`` and ``drift_message`` are set.
            embedder: Its embedder on this machine, which is read-only.

        Yields:
            A job that compares embeddings, if nothing else tells whether results are current.
        """
        encoder_plan = encoder_jobs.encoder_plan
        earlier_results = {
            (self.context.tasks[cell.task], cell.seed): result
            for cell, result in encoder_plan.current_results.items()
        }
        if self._must_embed_to_compare(encoder_jobs, embedder, earlier_results):
            encoder_jobs.encoder = self.put(embedder.encoder)
            tasks = self.context.select_tasks(encoder_plan.cells)
            job = encoder_jobs.make_job(
                "comparing with stored embeddings",
                workers.compare_earlier,
                self.plan,
                list(encoder_plan.current_results.values()),
                *map(self.store_reference, tasks),
            )
            yield [job]
            encoder_jobs.drift_message = job.result.drift_message
            current_results = job.result.current_results
        else:
            current_results = list(
                select_current(embedder, earlier_results, self.context.callbacks).values()
            )
        current_by_key = {(result.task, result.eval_seed): result for result in current_results}
        for cell, earlier_result in encoder_plan.current_results.items():
            current_result = current_by_key.get((cell.task, cell.seed))
            if current_result is not None:
                self.result_by_cell[cell] = current_result
                if current_result.run != earlier_result.run:
                    write_result(current_result, self.context.plan.results_folder)
        encoder_jobs.cells = [
            cell for cell in encoder_plan.cells if cell not in self.result_by_cell
        ]
        self.tracker.total_cells += len(encoder_jobs.cells) - len(encoder_plan.missing_cells)

    def _must_embed_to_compare(
        self,
        encoder_jobs: EncoderJobs,
        embedder: TaskEmbedder,
        earlier_results: Mapping[tuple[PlannedTask, int], Result],
    ) -> bool:
        """Return whether a worker must embed to compare results or stored embeddings.

        Args:
            encoder_jobs: The encoder.
            embedder: Its embedder on this machine, which is read-only.
            earlier_results: The results of the folder by task and evaluation seed.
        """
        if any(
            embedder.is_current(result, task) is None
            for (task, _), result in earlier_results.items()
        ):
            return True
        if not encoder_jobs.cells:
            return False
        tasks_to_score = self.context.select_tasks(encoder_jobs.cells)
        shared_embedding = embedder.plan_shared_embedding(tasks_to_score)
        return shared_embedding is not None and shared_embedding.engine.store.width is not None

    def _embed_together(
        self, encoder_jobs: EncoderJobs, engine: Engine, texts: Sequence[str]
    ) -> Generator[Sequence[Job], None, list[Keys]]:
        """Yield jobs that tokenize shares of the texts, then jobs that embed shares of batches.

        Args:
            encoder_jobs: The encoder; the fields on its embedding are set at the end.
            engine: Its engine on this machine, which knows what the store lacks.
            texts: The sentences of all tasks that are to be scored.

        Returns:
            The keys of the sentences that the jobs have embedded.
        """
        n_missing = len(engine.missing_texts(texts))
        if not n_missing:
            return []
        # Encoders that have not started get as many devices each as this one.
        free_per_encoder = self._count_free_devices() / (len(self.waiting) + 1)
        n_jobs = self.plan.gpus_per_encoder or max(1, ceil(free_per_encoder))
        # Sorted: each job plans the same batches, of which it takes its share.
        texts_reference = self.store_reference(tuple(sorted(set(texts))))

        def make_jobs(
            activity: str,
            work: Callable[..., workers.JobResult],
            *arguments: object,
            sentences: int = 0,
        ) -> list[Job]:
            """Make a job for each share of the texts.

            Args:
                activity: What the jobs do, as it is printed.
                work: The function to call on workers.
                arguments: Its arguments after the texts and the share.
                sentences: The number of sentences that each job embeds.
            """
            jobs = []
            for index in range(n_jobs):
                label = f"{activity} {index + 1}/{n_jobs}" if n_jobs > 1 else activity
                share = BatchShare(index, n_jobs)
                jobs.append(
                    encoder_jobs.make_job(
                        label, work, texts_reference, share, *arguments, sentences=sentences
                    )
                )
            return jobs

        tokenizing_jobs: list[Job] = []
        # On a GPU each job has a process of its own, which would load the weights only for tokens.
        if n_jobs > 1 and not self._gpus and isinstance(engine.encoder, TokenEncoder):
            tokenizing_jobs = make_jobs("tokenising", workers.tokenize_share)
            yield tokenizing_jobs
        embedding_jobs = make_jobs(
            "embedding",
            workers.embed_share,
            self.plan.store,
            self.is_shared,
            *(job.reference for job in tokenizing_jobs),
            sentences=ceil(n_missing / n_jobs),
        )
        yield embedding_jobs
        encoder_jobs.embedding_fields = {
            "device": embedding_jobs[-1].result.device,
            "embedding_seconds": round(sum(job.result.seconds for job in embedding_jobs), 3),
            "embedding_workers": n_jobs,
            "embedding_tries": max(job.tries for job in embedding_jobs),
        }
        return [keys for job in embedding_jobs for keys in job.result.encoded_keys]

    def _make_scoring_job(
        self,
        encoder_jobs: EncoderJobs,
        embedder: TaskEmbedder,
        tasks: Sequence[PlannedTask],
        embedded: workers.Reference | None,
    ) -> Job:
        """Make a job that scores tasks.

        Args:
            encoder_jobs: The encoder.
            embedder: Its embedder on this machine.
            tasks: One task if its sentences are embedded, else all tasks of the encoder.
            embedded: Ray's reference to the result of embedding; None if this job embeds.
        """
        task_names = {task.name for task in tasks}
        cells = [cell for cell in encoder_jobs.cells if cell.task in task_names]
        seeds = [[cell.seed for cell in cells if cell.task == task.name] for task in tasks]
        arguments = [self.plan, seeds, embedded, *map(self.store_reference, tasks)]
        if embedded is None:
            return encoder_jobs.make_job(
                "embedding and scoring",
                workers.score_tasks_of_job,
                *arguments,
                cells=cells,
                sentences=encoder_jobs.encoder_plan.sentences_to_embed or 0,
            )
        (task,) = tasks
        return encoder_jobs.make_job(
            f"scoring {task.name}",
            workers.score_tasks_of_job,
            *arguments,
            cells=cells,
            task=task.name,
            # An encoder that is fitted on texts may embed while it is fitted, on a GPU if possible.
            on_device=embedder.named_encoder(task).texts_digest is not None,
        )

    def _start_next_step(self, encoder_jobs: EncoderJobs) -> None:
        """Start the next jobs of an encoder; report its error if they cannot be made."""
        with self.context.report_errors(encoder_jobs.encoder_plan.name):
            jobs = next(encoder_jobs.steps, ())
            encoder_jobs.n_running = len(jobs)
            for job in jobs:
                self._submit(job)

    def _submit(self, job: Job) -> None:
        """Start a job on a worker, with a GPU of its own if it may embed and there are any."""
        self._last_job_id += 1
        gpus = 1 if job.on_device and self._gpus else 0
        remote = self.ray.remote(run_job).options(
            num_cpus=1, num_gpus=gpus, name=job.label, max_retries=0
        )
        job.reference = remote.remote(
            self._last_job_id, self._events, self.versions, job.work, *job.arguments
        )
        self.jobs[self._last_job_id] = job

    def _finished_jobs(self) -> Iterator[FinishedJob]:
        """Yield the jobs that have ended; waits a moment for one."""
        job_id_by_reference = {job.reference: job_id for job_id, job in self.jobs.items()}
        references = list(job_id_by_reference)
        self.ray.wait(references, num_returns=1, timeout=workers.WAIT_SECONDS)
        # Many may have ended while earlier ones were handled.
        ready, _ = self.ray.wait(references, num_returns=len(references), timeout=0)
        for reference in ready:
            outcome = workers.fetch_result(self.ray, reference)
            yield FinishedJob(job_id_by_reference[reference], outcome)

    def _handle_outcome(self, job_id: int, outcome: workers.JobResult | Exception) -> None:
        """Store the result of a job, or try it again; start the next step of its encoder.

        Args:
            job_id: The job, which is no longer among the running ones.
            outcome: Its result, or the error by which it has failed.
        """
        job = self.jobs.pop(job_id)
        encoder_jobs = job.encoder_jobs
        self.tracker.finish(job_id, succeeded=isinstance(outcome, workers.JobResult))
        if isinstance(outcome, workers.JobResult):
            self._accept_result(job, outcome)
        elif not encoder_jobs.has_failed:
            if job.tries < workers.MAX_TRIES and _may_succeed_again(outcome):
                job.tries += 1
                self.context.callbacks.on_notice(
                    f"{job.label}: {join_lines(outcome)}; "
                    f"tried again ({job.tries} of {workers.MAX_TRIES})"
                )
                self._submit(job)
                return
            self._report_failure(job, outcome)
        encoder_jobs.n_running -= 1
        if not encoder_jobs.n_running and not encoder_jobs.has_failed:
            self._start_next_step(encoder_jobs)

    def _report_failure(self, job: Job, error: Exception) -> None:
        """Report a failed job; unless it scores a single task, the encoder has failed too.

        Args:
            job: The job.
            error: The error of its last try.
        """
        encoder_jobs = job.encoder_jobs
        encoder_jobs.has_failed = not job.task
        encoder_name = encoder_jobs.encoder_plan.name
        label = f"{encoder_name} on {job.task}" if job.task else encoder_name
        self.context.callbacks.on_failure(label, error)
        self.tracker.failed_cells += len(job.cells or encoder_jobs.cells)

    def _accept_result(self, job: Job, job_result: workers.JobResult) -> None:
        """Write the results of a job, and report what it could not score.

        Args:
            job: The job.
            job_result: Its result; files of the store in it are written to this machine's store.
        """
        encoder_jobs = job.encoder_jobs
        callbacks = self.context.callbacks
        for message in (*job_result.notices, job_result.drift_message):
            # Each scoring job repeats the message on archived embeddings.
            if message not in ("", encoder_jobs.drift_message):
                callbacks.on_notice(message)
        if encoder_jobs.folder is not None:
            workers.write_missing(job_result.store_files, encoder_jobs.folder)
        job.result = replace(job_result, store_files={})
        run_fields = {
            "on": "ray",
            "tries": job.tries,
            **encoder_jobs.embedding_fields,
            "device": job_result.device or encoder_jobs.embedding_fields.get("device"),
        }
        cell_by_key = {(cell.task, cell.seed): cell for cell in job.cells}
        for result in job_result.results:
            result.run.update(run_fields)
            if result.per_item:
                write_result(result, self.context.plan.results_folder)
            self.result_by_cell[cell_by_key[result.task, result.eval_seed]] = result
            self.tracker.scored_cells += 1
            callbacks.on_result(result)
        for label, error in job_result.failures:
            callbacks.on_failure(label, error)
        self.tracker.failed_cells += len(job.cells) - len(job_result.results)

    def _read_reports(self) -> None:
        """Read the reports of all jobs, cancel those that are overdue, and report the progress."""
        timeout = self.context.plan.timeout
        callbacks = self.context.callbacks
        reports: Sequence[workers.Report] = ()
        with suppress(self.ray.exceptions.RayError):
            reports = self._events.get_nowait_batch(self._events.qsize())
        for report in reports:
            job = self.jobs.get(report.job_id)
            if job is not None:
                self.tracker.update(
                    report.job_id,
                    JobProgress(
                        worker=report.worker,
                        label=job.label,
                        fraction=report.fraction,
                        sentences=job.sentences,
                        cells=len(job.cells),
                    ),
                )
        for job_id in self.tracker.overdue_jobs(list(self.jobs), timeout):
            # By force: the process may hang.
            with suppress(self.ray.exceptions.RayError):
                self.ray.cancel(self.jobs[job_id].reference, force=True)
            self._handle_outcome(job_id, EncoderError(f"not done within {timeout:g} s (`timeout`)"))
        if (minutes := self.tracker.report_stall()) is not None:
            labels = ", ".join(sorted({job.label for job in self.jobs.values()}))
            hint = "" if timeout else "; `timeout=SECONDS` gives up what hangs"
            callbacks.on_notice(f"no progress for {minutes} minutes: {labels}{hint}")
        callbacks.on_progress(self.tracker)


def _may_succeed_again(error: Exception) -> bool:
    """Return whether a failed job may succeed in another try; a user error would come again."""
    if isinstance(error, workers.WorkerLost | workers.VersionMismatch):
        return True
    return not isinstance(error, StsbenchError)
