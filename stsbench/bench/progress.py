"""How far a run is: the jobs under way, speed, time left, stalls, and the callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from stsbench.bench.plan import EncoderPlan
from stsbench.results.record import Result

STALL_SECONDS = 300.0
"""After this time without progress a stall is reported; then after twice as long, and so on."""


@dataclass(frozen=True, kw_only=True)
class JobProgress:
    """The progress of one job of a worker."""

    worker: str = ""
    """The host and process of the worker; empty for this process."""
    label: str
    """The job as it is printed."""
    fraction: float = 0.0
    """The finished share of the job, in [0, 1]."""
    sentences: int = 0
    """The number of sentences that the job embeds."""
    cells: int = 0
    """The number of cells that the job scores."""


class ProgressTracker:
    """Measures a run: its running jobs, its speed, the time left, and stalls."""

    def __init__(
        self, encoder_plans: Sequence[EncoderPlan] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start to measure a run, before its first job.

        A run scores cells: each is one encoder on one task with one seed. A job embeds sentences or
        scores cells.

        Args:
            encoder_plans: The encoders of the run, each with its missing cells and the number of
                sentences that it must embed.
            clock: Returns the current time in seconds.
        """
        self.clock = clock
        self.current_jobs: dict[int, JobProgress] = {}
        """The progress of each running job, by its id."""
        self._started_at: dict[int, float] = {}
        """The time of each job's first report."""
        self.total_cells = _count_missing_cells(encoder_plans)
        self.scored_cells = 0
        self.failed_cells = 0
        self._total_sentences = float(_count_sentences(encoder_plans))
        self._embedded_sentences = 0.0
        """The number of sentences of finished jobs."""
        self._embedding_seconds = 0.0
        """The time in which at least one job has embedded."""
        self._scoring_seconds = 0.0
        """The time in which at least one job has scored."""
        self._measured_until = clock()
        """The time up to which the seconds of embedding and scoring are counted."""
        self._last_progress = self._measured_until
        """The time at which a job last progressed."""
        self._reported_stall = 0.0
        """The length in seconds of the stall that was last reported; 0 if there is none."""

    def start_encoder(self, encoder_plans: Sequence[EncoderPlan]) -> None:
        """Update the counts of a run when an encoder starts, because earlier encoders have ended.

        Cells of earlier encoders (scores of an encoder on a task) that are not scored by now have
        failed. Sentences of theirs that were not embedded are no longer expected.

        Args:
            encoder_plans: The encoders that are not finished, beginning with the one that starts.
        """
        cells_to_come = _count_missing_cells(encoder_plans)
        cells_of_earlier_encoders = self.total_cells - cells_to_come
        self.failed_cells = cells_of_earlier_encoders - self.scored_cells
        self._total_sentences = self._embedded_sentences + _count_sentences(encoder_plans)

    def update(self, job_id: int, progress: JobProgress) -> None:
        """Record the progress of a job, which may be a new one."""
        self._measure_time()
        if progress != self.current_jobs.get(job_id):
            self._last_progress, self._reported_stall = self._measured_until, 0.0
        self._started_at.setdefault(job_id, self._measured_until)
        self.current_jobs[job_id] = progress

    def finish(self, job_id: int, *, succeeded: bool = True) -> None:
        """Record the end of a job; the sentences of a failed job do not count as embedded.

        Args:
            job_id: The job.
            succeeded: Whether the job has not failed.
        """
        # This also sets self._measured_until to the current time.
        self._measure_time()
        # The end of a job is progress too, so a stall begins anew.
        self._last_progress = self._measured_until
        self._reported_stall = 0.0
        progress = self.current_jobs.pop(job_id, None)
        if progress is not None and succeeded:
            self._embedded_sentences += progress.sentences

    def overdue_jobs(self, job_ids: Iterable[int], timeout: float | None) -> list[int]:
        """Return the jobs that have run for longer than a timeout.

        A job starts with its first report; one that has not reported yet is never overdue.

        Args:
            job_ids: The jobs to look at.
            timeout: The time that a job may take, in seconds; None if there is no limit.
        """
        if timeout is None:
            return []
        now = self.clock()
        return [job_id for job_id in job_ids if now - self._started_at.get(job_id, now) > timeout]

    def report_stall(self) -> int | None:
        """Return the minutes without progress if it is time to report them, else None."""
        waited = self.clock() - self._last_progress
        if waited < max(STALL_SECONDS, 2 * self._reported_stall):
            return None
        self._reported_stall = waited
        return int(waited // 60)

    @property
    def running_cells(self) -> int:
        """The number of cells that are being scored."""
        return sum(progress.cells for progress in self.current_jobs.values())

    @property
    def embedded_sentences(self) -> float:
        """The number of sentences embedded so far, including those of running jobs."""
        return self._embedded_sentences + sum(
            progress.fraction * progress.sentences for progress in self.current_jobs.values()
        )

    def sentences_per_second(self) -> float | None:
        """Return the speed of all workers together; None if there is no data yet."""
        self._measure_time()
        if not self._embedding_seconds or not self.embedded_sentences:
            return None
        return self.embedded_sentences / self._embedding_seconds

    def seconds_left(self) -> float | None:
        """Estimate the seconds until the run ends; None if nothing has been measured yet.

        A run embeds sentences and scores cells (one encoder on one task each). Those that are left
        are taken to need as long as those so far. A process without workers embeds and scores in
        turn, so both times are added. Workers do both at the same time, so the longer time counts.
        """
        speed = self.sentences_per_second()
        sentences_left = max(0.0, self._total_sentences - self.embedded_sentences)
        finished_cells = self.scored_cells + self.failed_cells
        cells_left = max(0, self.total_cells - finished_cells)
        if sentences_left and speed is None:
            return None
        # Before the first cell ends, only the time of sentences that are left can be estimated.
        if cells_left and not finished_cells and not sentences_left:
            return None
        embedding_seconds = sentences_left / speed if speed is not None else 0.0
        # Until a cell ends, the time of scoring so far is taken as that of one cell.
        scoring_seconds = cells_left * self._scoring_seconds / max(finished_cells, 1)
        # Jobs of this process name no worker.
        has_workers = any(progress.worker for progress in self.current_jobs.values())
        if has_workers:
            return max(embedding_seconds, scoring_seconds)
        return embedding_seconds + scoring_seconds

    def _measure_time(self) -> None:
        """Add the time since the last call to the seconds of embedding, of scoring, or of both.

        It is added once, however many of the running jobs embed (have ``sentences``) or score (have
        ``cells``). ``self._measured_until`` is set to the current time.
        """
        now = self.clock()
        elapsed = now - self._measured_until
        if any(progress.sentences for progress in self.current_jobs.values()):
            self._embedding_seconds += elapsed
        if any(progress.cells for progress in self.current_jobs.values()):
            self._scoring_seconds += elapsed
        self._measured_until = now


def _count_missing_cells(encoder_plans: Sequence[EncoderPlan]) -> int:
    return sum(len(encoder_plan.missing_cells) for encoder_plan in encoder_plans)


def _count_sentences(encoder_plans: Sequence[EncoderPlan]) -> int:
    return sum(encoder_plan.sentences_to_embed or 0 for encoder_plan in encoder_plans)


@dataclass(frozen=True, kw_only=True)
class RunCallbacks:
    """Functions that are called with the progress of a run; each may be omitted."""

    on_plan: Callable[[Sequence[EncoderPlan]], None] = lambda encoder_plans: None
    """Called with the plans of all encoders, before the first batch."""
    on_progress: Callable[[ProgressTracker], None] = lambda tracker: None
    """Called when a job of this process or of a worker has progressed."""
    on_checking: Callable[[int, int], None] = lambda done, total: None
    """Called with how many of an encoder's earlier results are compared with their items."""
    on_embedding: Callable[[int, int], None] = lambda done, total: None
    """Called with how many tokens or characters this process has embedded, and of how many; not for
    workers."""
    on_scoring: Callable[[str], None] = lambda task: None
    """Called with the name of a task before this process scores it; not for workers."""
    on_outdated: Callable[[int], None] = lambda n_cells: None
    """Called with how many earlier results of an encoder no longer count; they are made again."""
    on_result: Callable[[Result], None] = lambda result: None
    """Called with each new Result, but not with those that the results folder already has."""
    on_failure: Callable[[str, Exception], None] = lambda label, error: None
    """Called with a label of what has failed, and the error."""
    on_notice: Callable[[str], None] = lambda message: None
    """Called with a message for the user that is no error."""

    def with_raised_failures(self) -> RunCallbacks:
        """Return a copy that raises each failure, with the label of what has failed as a note."""

        def raise_failure(label: str, error: Exception) -> None:
            # A traceback prints notes below the message; the first one names task and encoder.
            if not hasattr(error, "__notes__"):
                error.add_note(f"failed: {label}")
            raise error

        return replace(self, on_failure=raise_failure)

    def with_progress(
        self, tracker: ProgressTracker, encoder_plan: EncoderPlan, label: str
    ) -> RunCallbacks:
        """Return a copy of these callbacks that also records the progress of an encoder.

        It is for an encoder that is scored in this process, as a single job with the id 0. The
        callbacks on embedding, scoring and results update the tracker, call ``on_progress``, and
        call the originals; that on outdated results does too, but for ``on_progress``. All others
        are the originals.

        Args:
            tracker: Records the progress.
            encoder_plan: The encoder, with the number of sentences that it must embed.
            label: What precedes the activity in the label of the job: the encoder, for example.
        """

        def report(
            activity: str, fraction: float = 0.0, *, sentences: int = 0, cells: int = 0
        ) -> None:
            """Record the progress of the only job of this process, whose id is 0, and report it.

            Args:
                activity: The activity as it is printed, such as ``embedding``.
                fraction: The finished share of it, in [0, 1].
                sentences: The number of sentences that it embeds.
                cells: The number of scores that it computes.
            """
            tracker.update(
                0,
                JobProgress(
                    label=f"{label}: {activity}",
                    fraction=fraction,
                    sentences=sentences,
                    cells=cells,
                ),
            )
            self.on_progress(tracker)

        def on_embedding(done: int, total: int) -> None:
            # Both count tokens or characters. There are none if the only sentence is empty.
            fraction = done / total if total else 1.0
            report("embedding", fraction, sentences=encoder_plan.sentences_to_embed or 0)
            self.on_embedding(done, total)
            if done == total:
                tracker.finish(0)

        def on_scoring(task: str) -> None:
            report(f"scoring {task}", cells=1)
            self.on_scoring(task)

        def on_outdated(n_cells: int) -> None:
            tracker.total_cells += n_cells
            self.on_outdated(n_cells)

        def on_result(result: Result) -> None:
            tracker.finish(0)
            tracker.scored_cells += 1
            self.on_result(result)
            self.on_progress(tracker)

        report("loading")
        return replace(
            self,
            on_embedding=on_embedding,
            on_scoring=on_scoring,
            on_outdated=on_outdated,
            on_result=on_result,
        )
