"""How far a run is: the jobs under way, speed, time left, stalls, and the callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from stsbench.bench.plan import EncoderPlan
from stsbench.results.record import Result

STALL_SECONDS = 300.0
"""So long nothing may move before it is said; then twice as long, and so on."""


@dataclass(frozen=True, kw_only=True)
class JobProgress:
    """What one worker does: of ``what`` the share ``done``, in [0, 1]; the sentences that it embeds, or the cells it scores."""

    worker: str = ""
    """None is this process."""
    label: str
    fraction: float = 0.0
    sentences: int = 0
    cells: int = 0


class ProgressTracker:
    """What the workers of a run do, how fast they are together, how long the rest takes, and how long nothing has moved."""

    def __init__(
        self, encoder_plans: Sequence[EncoderPlan] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing of these encoders is done yet."""
        self.clock = clock
        self.current_jobs: dict[int, JobProgress] = {}
        """What is under way, by the number of the piece of work."""
        self._started_at: dict[int, float] = {}
        """When each piece was first reported."""
        self.total_cells, self.scored_cells, self.failed_cells = (
            sum(len(part.missing_cells) for part in encoder_plans),
            0,
            0,
        )
        self._total_sentences, self._embedded_sentences = (
            float(sum(part.sentences_to_embed or 0 for part in encoder_plans)),
            0.0,
        )
        """Sentences in all, and those of pieces that have ended."""
        self._embedding_seconds = self._scoring_seconds = 0.0
        """Seconds in which something was embedded, and scored."""
        self._measured_until = self._last_progress = clock()
        self._reported_stall = 0.0
        """Up to when these seconds are counted, when anything last moved, and after how many seconds that was last said."""

    def start_encoder(self, encoder_plans: Sequence[EncoderPlan]) -> None:
        """It is the turn of the first of these encoders: what is not done of those before has failed."""
        self.failed_cells = (
            self.total_cells
            - self.scored_cells
            - sum(len(part.missing_cells) for part in encoder_plans)
        )
        self._total_sentences = self._embedded_sentences + sum(
            part.sentences_to_embed or 0 for part in encoder_plans
        )

    def update(self, job_id: int, progress: JobProgress) -> None:
        """A worker has begun a piece, or continues with it."""
        self._measure_time()
        if progress != self.current_jobs.get(job_id):
            self._last_progress, self._reported_stall = self._measured_until, 0.0
        self._started_at.setdefault(job_id, self._measured_until)
        self.current_jobs[job_id] = progress

    def finish(self, job_id: int, *, succeeded: bool = True) -> None:
        """A piece has ended; of what has failed, nothing counts."""
        self._measure_time()
        self._last_progress, self._reported_stall = self._measured_until, 0.0
        ended = self.current_jobs.pop(job_id, None)
        if ended is not None and succeeded:
            self._embedded_sentences += ended.sentences

    def overdue_jobs(self, job_ids: Iterable[int], timeout: float | None) -> list[int]:
        """Those of some pieces that have been under way for longer."""
        now = self.clock()
        return (
            []
            if timeout is None
            else [one for one in job_ids if now - self._started_at.get(one, now) > timeout]
        )

    def report_stall(self) -> int | None:
        """For how many minutes nothing has moved, where that is to be said now; else None."""
        waited = self.clock() - self._last_progress
        if waited < max(STALL_SECONDS, 2 * self._reported_stall):
            return None
        self._reported_stall = waited
        return int(waited // 60)

    @property
    def running_cells(self) -> int:
        """How many cells are scored now."""
        return sum(one.cells for one in self.current_jobs.values())

    @property
    def embedded_sentences(self) -> float:
        """How many are embedded so far, those of the work under way among them."""
        return self._embedded_sentences + sum(
            one.fraction * one.sentences for one in self.current_jobs.values()
        )

    def sentences_per_second(self) -> float | None:
        """Sentences a second, of all workers together; None as long as nothing tells."""
        self._measure_time()
        return (
            self.embedded_sentences / self._embedding_seconds
            if self._embedding_seconds and self.embedded_sentences
            else None
        )

    def seconds_left(self) -> float | None:
        """Seconds until the run ends; None where nothing tells yet.

        One worker embeds and scores in turn; of several, which do so side by side, the longer one counts.
        """
        speed, waiting, ended = (
            self.sentences_per_second(),
            max(0.0, self._total_sentences - self.embedded_sentences),
            self.scored_cells + self.failed_cells,
        )
        cells = max(0, self.total_cells - ended)
        if (waiting and speed is None) or (cells and not ended and not waiting):
            return None
        embedding = waiting / speed if speed is not None else 0.0
        scoring = cells * self._scoring_seconds / max(ended, 1)
        several = any(one.worker for one in self.current_jobs.values())
        return max(embedding, scoring) if several else embedding + scoring

    def _measure_time(self) -> None:
        """Count the time that has passed for what was under way in it."""
        now, under_way = self.clock(), self.current_jobs.values()
        self._embedding_seconds += (now - self._measured_until) * any(
            one.sentences for one in under_way
        )
        self._scoring_seconds += (now - self._measured_until) * any(one.cells for one in under_way)
        self._measured_until = now


@dataclass(frozen=True, kw_only=True)
class RunCallbacks:
    """Who hears how a run goes; every part may be left out."""

    on_plan: Callable[[Sequence[EncoderPlan]], None] = lambda parts: None
    """Hears all that is to be done, before the first batch."""
    on_progress: Callable[[ProgressTracker], None] = lambda pace: None
    """Hears how far the workers of a run are, or this process alone; of others ``encoding`` and ``scoring`` hear nothing."""
    on_checking: Callable[[int, int], None] = lambda done, total: None
    """Hears how many of an encoder's earlier results are held to their items."""
    on_embedding: Callable[[int, int], None] = lambda done, total: None
    on_scoring: Callable[[str], None] = lambda task: None
    on_result: Callable[[Result], None] = lambda result: None
    """Hears each Result that was made, and not found in the results folder."""
    on_failure: Callable[[str, Exception], None] = lambda what, error: None
    on_notice: Callable[[str], None] = lambda line: None
    """Hears what is no failure and should be known."""

    def with_raised_failures(self) -> RunCallbacks:
        """The same, which raises what fails: nothing is left to do."""

        def failed(what: str, error: Exception) -> None:
            raise error

        return replace(self, on_failure=failed)

    def with_progress(
        self, tracker: ProgressTracker, encoder_plan: EncoderPlan, label: str
    ) -> RunCallbacks:
        """The same, which keeps the pace of an encoder in this process, and tells it; ``label`` is what is shown of it."""

        def tell(what: str, done: float = 0.0, *, sentences: int = 0, cells: int = 0) -> None:
            tracker.update(
                0,
                JobProgress(
                    label=f"{label}: {what}", fraction=done, sentences=sentences, cells=cells
                ),
            )
            self.on_progress(tracker)

        def encoding(done: int, total: int) -> None:
            tell("embedding", done / total, sentences=encoder_plan.sentences_to_embed or 0)
            self.on_embedding(done, total)
            if done == total:
                tracker.finish(0)

        def scoring(task: str) -> None:
            tell(f"scoring {task}", cells=1)
            self.on_scoring(task)

        def scored(result: Result) -> None:
            tracker.finish(0)
            tracker.scored_cells += 1
            self.on_result(result)
            self.on_progress(tracker)

        tell("loading")
        return replace(self, on_embedding=encoding, on_scoring=scoring, on_result=scored)
