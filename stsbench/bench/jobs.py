"""The jobs of a run on several workers: what each is made of, and who carries it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stsbench.bench import ray_cluster, workers
from stsbench.bench.plan import Cell, EncoderPlan
from stsbench.core.errors import StsbenchError
from stsbench.encoders.engine.embed import BatchShare

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
        work: Callable[..., workers.JobResult],
        *arguments: object,
        **fields: Any,  # noqa: ANN401 - of a Job
    ) -> Job:
        """Make a job, whose function gets the encoder as its first argument; it is not started.

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

    def make_share_jobs(
        self,
        n_jobs: int,
        activity: str,
        work: Callable[..., workers.JobResult],
        texts: Reference,
        *arguments: object,
        sentences_per_job: int = 0,
    ) -> list[Job]:
        """Make jobs that divide the same texts among them, each with its own :class:`BatchShare`.

        Args:
            n_jobs: The number of jobs, and so of shares.
            activity: What the jobs do, as it is printed, with a number behind it if there are more.
            work: The function to call on workers.
            texts: The reference to all the texts.
            arguments: The function's arguments after the encoder, the texts and the share.
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
    work: Callable[..., workers.JobResult]
    """The function to call, with a :class:`workers.ProgressReporter` and the arguments."""
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
    result: workers.JobResult = workers.JobResult()
    """Its result; empty before it has ended."""


class FinishedJob(NamedTuple):
    """A job that has ended, with its result, or its error if it has failed."""

    job_id: int
    """Its key in :attr:`JobRun.running_jobs`."""
    outcome: workers.JobResult | Exception


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

    def read_reports(self) -> Sequence[workers.Report]:
        """Return the reports that running jobs have sent since the last call."""

    def cancel(self, job: Job) -> None:
        """End a job by force: its process may hang."""

    def stop(self, running_jobs: Sequence[Job]) -> None:
        """Stop running jobs as Ctrl-C does, at the end of the run; there may be none."""


def run_job(
    job_id: int,
    report: Callable[[workers.Report], object],
    work: Callable[..., workers.JobResult],
    *arguments: object,
) -> workers.JobResult:
    """Carry out a job on a worker, and return its result.

    Args:
        job_id: The job, as its reports name it.
        report: Sends a report to the run.
        work: The function of the job; its first argument is a :class:`workers.ProgressReporter`.
        arguments: Its arguments after the reporter.
    """
    report_progress = workers.ProgressReporter(job_id, report)
    # The first report tells the run when the job has started, and on which worker.
    report_progress(0, 1)
    return work(report_progress, *arguments)


def may_succeed_again(error: Exception) -> bool:
    """Return whether a failed job may succeed in another try; a user error would come again."""
    if isinstance(error, ray_cluster.WorkerLost | ray_cluster.VersionMismatch):
        return True
    return not isinstance(error, StsbenchError)
