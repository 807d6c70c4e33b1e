"""A run on several workers: the work on each encoder is divided into jobs for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import ceil
from pathlib import Path

from stsbench.bench import ray_cluster, workers
from stsbench.bench.embedder import TaskEmbedder
from stsbench.bench.plan import Cell, EncoderPlan, RunPlan
from stsbench.bench.progress import JobProgress, ProgressTracker
from stsbench.bench.protocols import PlannedTask
from stsbench.bench.run import RunContext
from stsbench.bench.score import select_current
from stsbench.bench.workers import EncoderJobs, Job, Reference, WorkerPool, may_succeed_again
from stsbench.core import settings
from stsbench.core.errors import EncoderError
from stsbench.core.wording import as_one_line
from stsbench.encoders.base import TokenEncoder
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.store import Keys
from stsbench.results.folder import write_result
from stsbench.results.record import Result


class JobRun:
    """A run whose jobs are carried out by a pool of workers."""

    def __init__(self, context: RunContext, pool: WorkerPool) -> None:
        """Prepare a run whose jobs are carried out by workers; no job is started.

        A run scores cells: each is an encoder on a task with a seed.

        Args:
            context: The run in this process: its plan, tasks and callbacks.
            pool: The workers.
        """
        self.context = context
        self.pool = pool
        self.tracker = ProgressTracker()
        self.running_jobs: dict[int, Job] = {}
        """The started jobs that have not ended, by id."""
        self.waiting_encoders: deque[EncoderPlan] = deque()
        """The encoders that have not started."""
        self.result_by_cell: dict[Cell, Result] = {}
        """The new results, and the stored ones that are still valid, so far."""
        self._references: dict[Hashable, Reference] = {}
        """The references to objects that several jobs need: texts and tasks."""
        self._last_job_id = 0

    @cached_property
    def is_store_shared(self) -> bool:
        """Whether all workers see the same store, the folder of stored embeddings.

        If not, its files must be sent from one machine to another. It is true if there is one
        machine only, and if embeddings are not stored at all: ``self._store_root``, the path of the
        folder on this machine, is then None.
        """
        return self._store_root is None or self.pool.shares_folder(self._store_root)

    @property
    def _store_root(self) -> Path | None:
        """The folder of all stores on this machine; None for embeddings in memory only."""
        store = self.context.plan.store
        if store is None:
            return None
        return (settings.store_folder() if store == "default" else Path(store)).absolute()

    @cached_property
    def worker_plan(self) -> RunPlan:
        """The plan of the run as workers get it, with the absolute path of the store.

        The store is the folder of stored embeddings. Only ``default`` stays if the machines do not
        share it: each worker then uses the default store of its own machine. None also stays, for
        embeddings in memory only.
        """
        has_fixed_folder = self.is_store_shared or self.context.plan.store != "default"
        store = self._store_root if has_fixed_folder else "default"
        return replace(self.context.plan, store=store)

    def _count_free_devices(self) -> int:
        """Count the further workers that could embed."""
        n_busy = sum(job.needs_device for job in self.running_jobs.values())
        return self.pool.count_devices() - n_busy

    def put(self, value: object) -> Reference:
        """Store an object for the workers, and return the pool's reference to it.

        A job that has the reference as an argument gets the object.

        Args:
            value: Any object, such as an encoder or a task.

        Raises:
            EncoderError: The object cannot be sent to other processes, for example because of what
                a user's encoder contains, or the cluster lacks a module that it needs.
        """
        try:
            return self.pool.put(value)
        except Exception as error:  # a user's object may raise anything if it cannot be sent
            reason = as_one_line(error)[:200]
            # Workers import the modules of an object when they read it; this process has them
            # already, so that a missing one is missing there.
            if isinstance(error, ModuleNotFoundError):
                raise EncoderError(
                    f"the cluster cannot read it: {reason} there; install on each of its machines "
                    "what this one has, stsbench in the same version too"
                ) from error
            # ``option``: the setting by which the user has chosen to have workers.
            raise EncoderError(
                f"cannot be sent to another process ({reason}); leave out `{self.pool.option}`"
            ) from error

    def put_once(self, value: Hashable) -> Reference:
        """Return the reference to an object; equal objects are stored only once."""
        if value not in self._references:
            self._references[value] = self.put(value)
        return self._references[value]

    def results(self, encoder_plans: Sequence[EncoderPlan]) -> Iterator[Result]:
        """Score encoders on tasks, then yield the Results of all cells in the order of the plans.

        A cell is an encoder on a task with a seed. One that could not be scored was reported to the
        callbacks, and yields nothing. Stored results that are no longer valid, as the first step of
        an encoder finds out, are scored again with the missing cells.

        Args:
            encoder_plans: The encoders with their cells and the stored results of some of them.
        """
        self.tracker = ProgressTracker(encoder_plans)
        self.waiting_encoders.extend(encoder_plans)
        try:
            while self.waiting_encoders or self.running_jobs:
                # An encoder starts as soon as a worker is free to embed for it. Its steps are lists
                # of jobs, each made by a generator when the jobs of the step before have ended.
                while self.waiting_encoders and self._count_free_devices() > 0:
                    encoder_plan = self.waiting_encoders.popleft()
                    encoder_jobs = EncoderJobs(
                        encoder_plan=encoder_plan, cells_to_score=encoder_plan.missing_cells
                    )
                    encoder_jobs.remaining_steps = self._iterate_steps(encoder_jobs)
                    self._start_next_step(encoder_jobs)
                # This waits a moment for a job to end.
                for finished in self.pool.finished_jobs(dict(self.running_jobs)):
                    self._handle_outcome(finished.job_id, finished.outcome)
                self._read_reports()
                # Those that have run for longer than the plan's timeout, if it has one.
                self._cancel_overdue_jobs()
                self._report_progress()
        finally:
            # Also on an error or Ctrl-C: running jobs then store what they have embedded.
            self.pool.stop(list(self.running_jobs.values()))
        # The steps have put the new results into it, and the stored ones that are still valid.
        for encoder_plan in encoder_plans:
            for cell in encoder_plan.cells:
                if cell in self.result_by_cell:
                    yield self.result_by_cell[cell]

    def _iterate_steps(self, encoder_jobs: EncoderJobs) -> Iterator[Sequence[Job]]:
        """Yield the steps of an encoder: lists of jobs that can run at the same time.

        The steps compare embeddings with stored ones if necessary, tokenize, embed and score. The
        caller requests the next step when all jobs of the last one have ended, because it is made
        from their results.

        Args:
            encoder_jobs: The encoder; what the jobs have brought about so far is stored in it.
        """
        encoder_plan = encoder_jobs.encoder_plan
        encoder = self.context.load_encoder(encoder_plan)
        tasks = self.context.select_tasks(encoder_plan.cells)
        # It only finds out what is stored: workers embed.
        embedder = self.context.make_embedder(encoder, tasks)
        yield from self._select_current_results(encoder_jobs, embedder)
        if not encoder_jobs.cells_to_score:
            return
        encoder_jobs.encoder = encoder_jobs.encoder or self.put(encoder)
        if encoder_jobs.drift_message:
            # The comparison has archived the stored embeddings. The first embedder has opened them
            # before and still counts them as present, so it is replaced.
            embedder = TaskEmbedder(
                encoder, tasks, self.context.plan, self.context.callbacks, read_only=True
            )
        tasks_to_score = self.context.select_tasks(encoder_jobs.cells_to_score)
        shared_embedding = embedder.plan_shared_embedding(tasks_to_score)
        if shared_embedding is None:
            # Embeddings in memory cannot go from job to job, a server has limits of its own, and
            # some encoders must be fitted before their texts are known: one job does it all.
            yield [self._make_scoring_job(encoder_jobs, embedder, tasks, embedding_result=None)]
            return
        engine = shared_embedding.engine
        encoder_jobs.store_folder = engine.store.folder
        # This yields the steps that embed, and then has the keys (hashes) of embedded sentences.
        encoded_keys = yield from self._embed_together(encoder_jobs, engine, shared_embedding.texts)
        embedding_result = self.put(
            workers.JobResult(
                encoded_keys=encoded_keys,
                drift_message=encoder_jobs.drift_message,
                store_files={} if self.is_store_shared else workers.read_store_files(engine.store),
            )
        )
        yield [
            self._make_scoring_job(encoder_jobs, embedder, [task], embedding_result)
            for task in tasks_to_score
        ]

    def _select_current_results(
        self, encoder_jobs: EncoderJobs, embedder: TaskEmbedder
    ) -> Iterator[Sequence[Job]]:
        """Keep the stored results that are still valid, so that only the other cells are scored.

        They are valid if the encoder still gives the same embeddings. They are added to
        ``self.result_by_cell``, and the cells without one become ``encoder_jobs.cells_to_score``.
        If a worker compares embeddings and archives stored ones, its message on that becomes
        ``encoder_jobs.drift_message``.

        Args:
            encoder_jobs: The encoder.
            embedder: Compares without embedding anything on this machine.

        Yields:
            A list with the job that compares embeddings; nothing if it is known without it whether
            the results are valid.
        """
        encoder_plan = encoder_jobs.encoder_plan
        earlier_results = {
            (self.context.tasks[cell.task], cell.seed): result
            for cell, result in encoder_plan.current_results.items()
        }
        if self._must_embed_to_compare(encoder_jobs, embedder, earlier_results):
            # A reference: a job that has it as an argument gets the encoder.
            encoder_jobs.encoder = self.put(embedder.encoder)
            tasks = self.context.select_tasks(encoder_plan.cells)
            job = encoder_jobs.make_job(
                "comparing with stored embeddings",
                workers.compare_earlier_results,
                self.worker_plan,
                list(encoder_plan.current_results.values()),
                *map(self.put_once, tasks),
            )
            yield [job]
            # This goes on when the job has ended, and ``job.result`` is set.
            encoder_jobs.drift_message = job.result.drift_message
            current_results = job.result.current_results
        else:
            current_results = list(
                select_current(embedder, earlier_results, self.context.callbacks).values()
            )
        self._accept_current_results(encoder_plan, current_results)
        encoder_jobs.cells_to_score = [
            cell for cell in encoder_plan.cells if cell not in self.result_by_cell
        ]
        # Cells whose stored results are no longer valid are scored too. ``missing_cells`` are those
        # that had no stored result; only they were counted so far.
        n_additional = len(encoder_jobs.cells_to_score) - len(encoder_plan.missing_cells)
        self.tracker.total_cells += n_additional
        self.context.callbacks.on_outdated(n_additional)

    def _accept_current_results(
        self, encoder_plan: EncoderPlan, current_results: Sequence[Result]
    ) -> None:
        """Add the stored results of an encoder that are still valid to ``self.result_by_cell``.

        A result of an earlier version of this package has changed, because the origin of its
        embeddings was added to it; it is written again.

        Args:
            encoder_plan: The encoder, with all stored results of its cells.
            current_results: Those of its results that are still valid.
        """
        current_by_key = {(result.task, result.eval_seed): result for result in current_results}
        for cell, earlier_result in encoder_plan.current_results.items():
            current_result = current_by_key.get((cell.task, cell.seed))
            if current_result is None:
                continue
            self.result_by_cell[cell] = current_result
            # ``run`` is what a result records about its run, with the origin of its embeddings.
            is_changed = current_result.run != earlier_result.run
            if is_changed:
                write_result(current_result, self.context.plan.results_folder)

    def _must_embed_to_compare(
        self,
        encoder_jobs: EncoderJobs,
        embedder: TaskEmbedder,
        earlier_results: Mapping[tuple[PlannedTask, int], Result],
    ) -> bool:
        """Return whether a worker must embed some fixed sentences to compare them with stored ones.

        It must if this machine cannot tell without embedding whether a stored result is still
        valid, or if stored embeddings are to be used for cells that are scored.

        Args:
            encoder_jobs: The encoder; its ``cells_to_score`` are those without a stored result.
            embedder: The object that knows its stored embeddings; it does not embed here.
            earlier_results: The stored results by task and evaluation seed.
        """
        for (task, _), result in earlier_results.items():
            # True or False if stored embeddings or hashes of the code tell it, otherwise None.
            is_undecided = embedder.is_current(result, task) is None
            if is_undecided:
                return True
        if not encoder_jobs.cells_to_score:
            return False
        tasks_to_score = self.context.select_tasks(encoder_jobs.cells_to_score)
        shared_embedding = embedder.plan_shared_embedding(tasks_to_score)
        # None: several workers cannot divide the sentences. The one that scores then compares too.
        if shared_embedding is None:
            return False
        # The width, the number of numbers of an embedding, is unknown if none is stored.
        return shared_embedding.engine.store.width is not None

    def _embed_together(
        self, encoder_jobs: EncoderJobs, engine: Engine, texts: Sequence[str]
    ) -> Generator[Sequence[Job], None, list[Keys]]:
        """Yield the steps by which several workers embed texts: lists of jobs that run together.

        Nothing is yielded if all embeddings are stored already. If there are several jobs, and the
        workers can share tokens, the first step tokenizes. The last step embeds.

        Args:
            encoder_jobs: The encoder. What results record of embedding (device, time, number of
                workers) is stored in its ``embedding_fields`` at the end.
            engine: The encoder's engine on this machine, which knows what is stored.
            texts: The sentences of all tasks that are to be scored.

        Returns:
            The keys of the sentences that the jobs have embedded, in arrays.
        """
        n_missing = len(engine.missing_texts(texts))
        if not n_missing:
            return []
        # Unless the user has set the number, this encoder and those that have not started get
        # equally many of the free devices.
        free_per_encoder = self._count_free_devices() / (1 + len(self.waiting_encoders))
        n_jobs = self.worker_plan.gpus_per_encoder or max(1, ceil(free_per_encoder))
        # Each job plans the same batches over the sorted texts, and embeds its share of them.
        texts_reference = self.put_once(tuple(sorted(set(texts))))
        tokenizing_jobs: list[Job] = []
        # On Ray's GPUs each job has a process of its own, which would load the weights for it:
        # there workers do not tokenize for each other.
        can_share_tokens = self.pool.shares_tokens and isinstance(engine.encoder, TokenEncoder)
        if n_jobs > 1 and can_share_tokens:
            tokenizing_jobs = encoder_jobs.make_share_jobs(
                n_jobs, "tokenising", workers.tokenize_share, texts_reference
            )
            yield tokenizing_jobs
        embedding_jobs = encoder_jobs.make_share_jobs(
            n_jobs,
            "embedding",
            workers.embed_share,
            texts_reference,
            self.worker_plan.store,
            self.is_store_shared,
            # The pool replaces each reference by the result of that job, which has the tokens.
            *(job.reference for job in tokenizing_jobs),
            sentences_per_job=ceil(n_missing / n_jobs),
        )
        yield embedding_jobs
        seconds = sum(job.result.embedding_seconds for job in embedding_jobs)
        encoder_jobs.embedding_fields = {
            "device": embedding_jobs[-1].result.device,
            "embedding_seconds": round(seconds, 3),
            "embedding_workers": n_jobs,
            "embedding_tries": max(job.tries for job in embedding_jobs),
        }
        return [keys for job in embedding_jobs for keys in job.result.encoded_keys]

    def _make_scoring_job(
        self,
        encoder_jobs: EncoderJobs,
        embedder: TaskEmbedder,
        tasks: Sequence[PlannedTask],
        embedding_result: Reference | None,
    ) -> Job:
        """Make a job that scores tasks, and embeds their sentences first if no other job has.

        Args:
            encoder_jobs: The encoder, with its cells (tasks and seeds) that are to be scored.
            embedder: Tells whether the encoder is fitted on texts.
            tasks: A single task if its sentences are embedded already, otherwise all tasks of the
                encoder.
            embedding_result: The reference to the JobResult of all embedding jobs together; None
                if this job embeds.
        """
        task_names = {task.name for task in tasks}
        cells = [cell for cell in encoder_jobs.cells_to_score if cell.task in task_names]
        seeds_by_task = [[cell.seed for cell in cells if cell.task == task.name] for task in tasks]
        task_references = map(self.put_once, tasks)
        arguments = [self.worker_plan, seeds_by_task, embedding_result, *task_references]
        if embedding_result is None:
            return encoder_jobs.make_job(
                "embedding and scoring",
                workers.score_tasks_of_job,
                *arguments,
                cells=cells,
                sentences=encoder_jobs.encoder_plan.sentences_to_embed or 0,
            )
        (task,) = tasks
        # An encoder that is fitted on texts may embed further ones while it is fitted, so the job
        # needs a device that embeds, which no other job that only scores does. The digest is a hash
        # of these texts, None if it is not fitted.
        is_fitted_on_texts = embedder.named_encoder(task).texts_digest is not None
        return encoder_jobs.make_job(
            f"scoring {task.name}",
            workers.score_tasks_of_job,
            *arguments,
            cells=cells,
            single_task=task.name,
            needs_device=is_fitted_on_texts,
        )

    def _start_next_step(self, encoder_jobs: EncoderJobs) -> None:
        """Start all jobs of an encoder's next step, if there is one.

        A step is a list of jobs that can run at the same time. If they cannot be made, the error is
        reported to the callbacks under the encoder's name, and its cells that are to be scored
        count as failed.

        Args:
            encoder_jobs: The encoder with its remaining steps; the number of running jobs is set.
        """
        with self.context.report_errors(encoder_jobs.encoder_plan.name):
            # A generator, which makes the jobs of a step only now. Without a further step the
            # encoder is finished.
            jobs = next(encoder_jobs.remaining_steps, ())
            encoder_jobs.n_running = len(jobs)
            for job in jobs:
                self._submit(job)
            return
        # After a reported error.
        self.tracker.failed_cells += len(encoder_jobs.cells_to_score)

    def _submit(self, job: Job) -> None:
        """Start a job on a worker, under a new id."""
        self._last_job_id += 1
        job.reference = self.pool.start(self._last_job_id, job)
        self.running_jobs[self._last_job_id] = job

    def _handle_outcome(self, job_id: int, outcome: workers.JobResult | Exception) -> None:
        """Handle the end of a job.

        - If it has succeeded, its result is stored.
        - If it has failed by an error that may not occur again, it is started again, up to
          ``MAX_TRIES`` tries in all. A lost worker, a machine with other versions and any error of
          Python's or a library's may not; any other StsbenchError, meant for the user, would.
        - Any other error is reported, unless an error of its encoder has been.

        After the last job of a step, the next step of its encoder is started, unless the encoder
        has failed.

        Args:
            job_id: A running job.
            outcome: The job's result, or the error by which it has failed.
        """
        job = self.running_jobs.pop(job_id)
        encoder_jobs = job.encoder_jobs
        self.tracker.finish(job_id, succeeded=isinstance(outcome, workers.JobResult))
        if isinstance(outcome, workers.JobResult):
            self.accept_result(job, outcome)
        elif not encoder_jobs.has_failed:
            if job.tries < ray_cluster.MAX_TRIES and may_succeed_again(outcome):
                job.tries += 1
                self.context.callbacks.on_notice(
                    f"{job.label}: {as_one_line(outcome)}; "
                    f"tried again ({job.tries} of {ray_cluster.MAX_TRIES})"
                )
                self._submit(job)
                return
            self._report_failure(job, outcome)
        encoder_jobs.n_running -= 1
        is_step_complete = encoder_jobs.n_running == 0
        if is_step_complete and not encoder_jobs.has_failed:
            self._start_next_step(encoder_jobs)

    def _report_failure(self, job: Job, error: Exception) -> None:
        """Report a failed job, and count the cells (scores) that fail with it.

        A job that scores a single task fails alone. If any other job fails, its encoder has failed:
        then its remaining jobs are dropped, so that none of them is reported or counted after it.

        Args:
            job: The job; its ``single_task`` is the name of that task, empty for any other job.
            error: The error of its last try.
        """
        encoder_jobs = job.encoder_jobs
        encoder_jobs.has_failed = not job.single_task
        encoder_name = encoder_jobs.encoder_plan.name
        label = f"{encoder_name} on {job.single_task}" if job.single_task else encoder_name
        self.context.callbacks.on_failure(label, error)
        # A job without cells embeds or compares for all cells of its encoder.
        failed_cells = job.cells or encoder_jobs.cells_to_score
        self.tracker.failed_cells += len(failed_cells)

    def accept_result(self, job: Job, job_result: workers.JobResult) -> None:
        """Report and store the result of a job.

        - Its messages and failures are reported to the callbacks.
        - Stored embeddings that the worker has sent are written to this machine's store.
        - Its Results (scores) are written to the results folder, added to ``self.result_by_cell``
          and reported.
        - The numbers of scored and failed cells are raised.
        - ``job.result`` becomes the job's result without the files of stored embeddings.

        Args:
            job: The job.
            job_result: The job's result.
        """
        encoder_jobs = job.encoder_jobs
        callbacks = self.context.callbacks
        for message in (*job_result.notices, job_result.drift_message):
            # The drift message says that stored embeddings were archived. It is reported when the
            # job that compares embeddings ends, and stored in encoder_jobs after that. Scoring jobs
            # get it, and their results repeat it.
            is_repeated = message == encoder_jobs.drift_message
            if message and not is_repeated:
                callbacks.on_notice(message)
        # None for embeddings in memory only. Files that the folder has already stay as they are.
        if encoder_jobs.store_folder is not None:
            ray_cluster.write_missing(job_result.store_files, encoder_jobs.store_folder)
        # The files are on the disk now, and would only fill the memory.
        job.result = replace(job_result, store_files={})
        # These are added to what a Result records about its run. ``embedding_fields`` are those of
        # the jobs that embedded for the encoder, such as their device; empty if there were none.
        run_fields = {
            "on": self.pool.name,
            "tries": job.tries,
            **encoder_jobs.embedding_fields,
            "device": job_result.device or encoder_jobs.embedding_fields.get("device"),
        }
        cell_by_key = {(cell.task, cell.seed): cell for cell in job.cells}
        for result in job_result.results:
            result.run.update(run_fields)
            write_result(result, self.context.plan.results_folder)
            self.result_by_cell[cell_by_key[result.task, result.eval_seed]] = result
            self.tracker.scored_cells += 1
            callbacks.on_result(result)
        for label, error in job_result.failures:
            callbacks.on_failure(label, error)
        # ``job.cells`` are those that the job was to score: those without a Result have failed.
        self.tracker.failed_cells += len(job.cells) - len(job_result.results)

    def _read_reports(self) -> None:
        """Pass the reports of running jobs since the last call on to the tracker of progress.

        Reports of jobs that have ended are ignored.
        """
        for report in self.pool.read_reports():
            job = self.running_jobs.get(report.job_id)
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

    def _cancel_overdue_jobs(self) -> None:
        """Cancel the jobs that run longer than the plan's timeout, and treat them as failed."""
        timeout = self.context.plan.timeout
        for job_id in self.tracker.overdue_jobs(list(self.running_jobs), timeout):
            self.pool.cancel(self.running_jobs[job_id])
            self._handle_outcome(job_id, EncoderError(f"not done within {timeout:g} s (`timeout`)"))

    def _report_progress(self) -> None:
        """Report the progress of the run, with a notice if nothing has progressed for minutes.

        The tracker tells when a notice is due, by the minutes without progress; it returns None
        otherwise.
        """
        callbacks = self.context.callbacks
        minutes_without_progress = self.tracker.report_stall()
        if minutes_without_progress is not None:
            labels = ", ".join(sorted({job.label for job in self.running_jobs.values()}))
            hint = "" if self.context.plan.timeout else "; `timeout=SECONDS` gives up what hangs"
            callbacks.on_notice(
                f"no progress for {minutes_without_progress} minutes: {labels}{hint}"
            )
        callbacks.on_progress(self.tracker)
