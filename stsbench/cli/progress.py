"""Progress of runs and trainings: bars on a terminal, else lines on stderr.

A run writes the lines into the log of its results folder too.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.api.progress_display import ProgressDisplay, show_progress
from stsbench.bench.plan import EncoderPlan
from stsbench.bench.progress import JobProgress, ProgressTracker, RunCallbacks
from stsbench.cli.printing import (
    CHECKING_LABEL,
    error_prefix,
    print_error,
    print_progress,
    print_traceback,
    shorten_line,
    show_work,
)
from stsbench.cli.wording import describe_error_line
from stsbench.core.errors import EXIT_BUG, EXIT_USER_ERROR, StsbenchError
from stsbench.core.files import append_line, write_atomically
from stsbench.core.wording import (
    as_one_line,
    escape_controls,
    format_count,
    format_duration,
    format_some,
)

if TYPE_CHECKING:
    from stsbench.recipes.train_plan import TrainPlan
    from stsbench.results.record import Result

    # Imports torch, before which user errors are refused.
    from stsbench.training.learner import OnProgress, TrainingProgress

LOG_NAME = "run.log"
MAX_LABEL = 60
"""The most characters of a label beside a bar."""
NOT_LOSSES = ("step", "score", "candidate", "gradient_norm", "rate", "alignment", "uniformity")
"""Values of a training curve's point that are not printed as losses."""


class RunProgress:
    """Counts and prints what a run does; each failure is printed at once, but only once.

    Attributes:
        exit_code: The exit code so far.
        failures: The label and the reason of each failure, by the line that is printed for it.
        total_cells: The number of cells of the run.
        n_seeds: The number of evaluation seeds.
        known_cells: The number of cells whose results existed before the run and still count.
        scored_cells: The number of cells that the run has scored so far.
    """

    def __init__(
        self,
        out: Path | None,
        display: ProgressDisplay | None = None,
        *,
        settings: str = "",
        events: bool = False,
    ) -> None:
        """Set all counts to zero, before a run begins.

        Args:
            out: The results folder, for the log; None to write no log.
            display: Where progress is shown; None for lines on stderr.
            settings: The run's settings as text, written beside the log; empty to write none.
            events: Whether to print each event as a line of JSON instead of text.
        """
        self.settings = settings
        self.events = events
        self.display = display or ProgressDisplay(write_line=print_progress)
        self.exit_code = 0
        # By the printed line of each failure: what failed, and why.
        self.failures: dict[str, tuple[str, str]] = {}
        self.out = out
        self.log = out / LOG_NAME if out is not None else None
        self.encoder_plans: Sequence[EncoderPlan] = ()
        self.tasks_without_data: list[tuple[str, str]] = []
        """The tasks without data so far, with the reasons; the first one is reported at once, the
        rest together."""
        # The messages that were printed, so that each is printed once.
        self.notices: set[str] = set()
        # A cell is one score: an encoder on a task, by a protocol, with a seed. It is known if its
        # result existed before the run.
        self.total_cells = 0
        # The number of different seeds of evaluation.
        self.n_seeds = 0
        self.known_cells = 0
        self.scored_cells = 0
        self.started = time.monotonic()

    def callbacks(self) -> RunCallbacks:
        """Return the functions that a run calls when something happens; they print and count it."""
        return RunCallbacks(
            on_plan=self.on_plan,
            on_progress=self.on_progress,
            on_outdated=self.on_outdated,
            on_result=self.on_result,
            on_failure=self.on_failure,
            on_notice=self.on_notice,
            on_checking=lambda done, total: self.display.update(
                "work", done, total, label=CHECKING_LABEL
            ),
        )

    def on_plan(self, encoder_plans: Sequence[EncoderPlan]) -> None:
        """Print how much a run has to do; called once, when all names and data are found.

        The run's settings are written beside the log, and further tasks without data are printed.

        Args:
            encoder_plans: For each encoder its cells, and the results that exist already for them.
                A cell is one score: the encoder on a task, by a protocol, with a seed.
        """
        self.report_tasks_without_data()
        if self.log is not None and self.settings:
            write_atomically(self.log.with_suffix(".toml"), self.settings.encode())
        plans_with_cells = [plan for plan in encoder_plans if plan.cells]
        cells = [cell for plan in plans_with_cells for cell in plan.cells]
        # The values are the results, the keys their cells.
        known_results = [
            result for plan in encoder_plans for result in plan.current_results.values()
        ]
        self.encoder_plans = encoder_plans
        self.known_cells = len(known_results)
        self.total_cells = len(cells)
        self.n_seeds = len({cell.seed for cell in cells})
        if not cells:
            return
        counts = [
            (len({plan.name for plan in plans_with_cells}), "encoder"),
            (len({(cell.task, cell.protocol) for cell in cells}), "task"),
        ]
        if self.n_seeds > 1:
            counts.append((self.n_seeds, "seed"))
        size = " x ".join(format_count(count, noun) for count, noun in counts)
        origin = describe_origin(known_results, self.out)
        self._print_and_log(
            "planned",
            f"{size}, {self.known_cells} of {self.total_cells} cells known{origin}",
            encoders=len(plans_with_cells),
            cells=self.total_cells,
            known=self.known_cells,
            # None for an encoder that is still to be fitted on texts.
            sentences=sum(plan.sentences_to_embed or 0 for plan in encoder_plans),
        )

    def on_progress(self, tracker: ProgressTracker) -> None:
        """Show how far a run is: on a terminal by bars, elsewhere by a line from time to time.

        There is a bar for the whole run, and one for the current job of each worker. A worker is a
        process that carries out jobs; a job embeds sentences or scores cells. A cell is one score:
        an encoder on a task, by a protocol, with a seed. ``self.known_cells`` is the number of
        those whose results existed before the run.

        Args:
            tracker: Measures the run: its scored, running and failed cells, its current jobs, its
                speed, and the seconds left, which are None until they can be estimated.
        """
        speed = tracker.sentences_per_second()
        counts = (
            f"{tracker.scored_cells} of {tracker.total_cells} cells done, "
            f"{tracker.running_cells} running, {tracker.failed_cells} failed"
        )
        if speed is not None:
            counts += f"; {speed:,.0f} sentences/s"
        seconds_left = tracker.seconds_left()
        time_left = "" if seconds_left is None else f"about {format_duration(seconds_left)} left"
        jobs_by_worker = {job.worker: job for job in tracker.current_jobs.values()}
        if self.display.bars is not None:
            # A job in this process has an empty worker's name. Without other workers its own bar
            # shows how far it is, and the counts need not be in the label.
            has_workers = any(jobs_by_worker)
            label = f"all: {counts}" if has_workers else "all"
            done_cells = self.known_cells + tracker.scored_cells
            self.display.update("work", done_cells, self.total_cells, label=label, status=time_left)
            self._update_bars(jobs_by_worker)
        elif self.display.is_due():
            # Set here, so that the next line is due only after the usual time.
            self.display.last_line_time = time.monotonic()
            line_parts = [counts, time_left]
            # The job of this process, which the line names.
            if own_job := jobs_by_worker.get(""):
                fraction = f", {own_job.fraction:.0%}" if own_job.fraction else ""
                line_parts.insert(0, f"{own_job.label}{fraction}")
            self._print_and_log(
                "working",
                "; ".join(filter(None, line_parts)),
                cells=tracker.total_cells,
                scored=tracker.scored_cells,
                running=tracker.running_cells,
                failed=tracker.failed_cells,
                sentences_per_second=speed,
                seconds_left=seconds_left,
                workers={
                    job.worker or "here": {"what": job.label, "done": round(job.fraction, 3)}
                    for job in jobs_by_worker.values()
                },
            )

    def _update_bars(self, jobs_by_worker: Mapping[str, JobProgress]) -> None:
        """Update the bar of each worker, a process that carries out jobs.

        A worker that had a job before and has none now is shown as "waiting".

        Args:
            jobs_by_worker: The progress of each worker's current job, by the worker's name, which
                is empty for this process. ``fraction`` is the finished share of the job, from 0 to
                1.
        """
        # bar_ids has a key per bar that was ever shown: the worker, or "work" for all together.
        workers = {*self.display.bar_ids, *jobs_by_worker} - {"work"}
        for worker in workers:
            job = jobs_by_worker.get(worker) or JobProgress(label="waiting")
            status = ""
            if job.fraction:
                # A list of one text, or empty while the time is unknown.
                time_left = self.display.describe_time_left(worker, job.fraction, total=1.0)
                status = ", ".join([f"{job.fraction:.0%}", *time_left])
            label = shorten_line(f"{worker} {job.label}".strip(), MAX_LABEL)
            self.display.update(worker, job.fraction, 1.0, label=label, status=status)

    def on_outdated(self, n_cells: int) -> None:
        """Count cells as no longer known, because their encoder now embeds otherwise."""
        self.known_cells -= n_cells

    def on_result(self, result: Result) -> None:
        """Count and print a result that the run has just made.

        A cell is one score to make: an encoder on a task, by a protocol, with a seed. It is known
        if its result existed before the run.
        """
        self.scored_cells += 1
        seed = f" seed {result.eval_seed}" if self.n_seeds > 1 else ""
        n_names = len({plan.name for plan in self.encoder_plans})
        # Encoders that share a name are trainings of one recipe with different seeds.
        if len(self.encoder_plans) > n_names:
            seed = f" training seed {result.train_seed}{seed}"
        count = f"{self.known_cells + self.scored_cells}/{self.total_cells}"
        # ``result.run`` says how the result was made: the ``seconds``, the number of ``tries``.
        self._print_and_log(
            "scored",
            f"[{count}] {result.encoder} {result.task}{seed} {100 * result.score:.2f} "
            f"({result.run.get('seconds', 0):.1f} s)",
            encoder=result.encoder,
            task=result.task,
            seed=result.eval_seed,
            score=result.score,
            seconds=result.run.get("seconds"),
            tries=result.run.get("tries", 1),
        )

    def on_notice(self, notice: str) -> None:
        """Print a message that is no failure, once."""
        if notice in self.notices:
            return
        self.notices.add(notice)
        print_error(notice)
        self._print_and_log("noticed", notice, is_printed=False, line=notice)

    def on_failure(self, label: str, error: Exception) -> None:
        """Print a failure, and raise the exit code to the error's if that is higher.

        * The same failure is printed once: missing data fail for every encoder and seed alike.
        * Tasks without data (SourceError) fail before :meth:`on_plan` sets ``encoder_plans``. The
          first is printed at once. The others are collected in ``tasks_without_data``, and printed
          together later.
        * The traceback of a bug is printed too.

        Each failure is written into the log once.

        Args:
            label: The encoder or task that failed.
            error: Why it failed.
        """
        self._update_exit_code(error)
        reason = describe_error_line(error) or type(error).__name__
        # The label precedes the reason, unless the reason names it.
        line = f"{error_prefix(label, error)}{reason}"
        if line in self.failures:
            return
        failure = self.failures[line] = label, reason
        # The text is only logged: print_error prints the error below.
        self._print_and_log("failed", f"failed: {line}", is_printed=False, what=label, why=reason)
        is_before_plan = not self.encoder_plans
        # The error of an encoder, on its checkpoint or its texts, does not name it so.
        if reason.startswith(f"no data for {label} (") and is_before_plan:
            self.tasks_without_data.append(failure)
            if len(self.tasks_without_data) > 1:
                return
        if not isinstance(error, StsbenchError):
            print_traceback(error)
        print_error(error, about=label)

    def _update_exit_code(self, error: Exception) -> None:
        """Raise the exit code to that of an error, if it is higher than the code so far."""
        code = EXIT_USER_ERROR if isinstance(error, StsbenchError) else EXIT_BUG
        self.exit_code = max(self.exit_code, code)

    def report_tasks_without_data(self) -> None:
        """Print in one line all tasks without data but the first, and empty their list.

        ``self.tasks_without_data`` has their reasons. The first was printed when it failed. The
        line names the option by which the user gives the files of those that have any.
        """
        if further_tasks := self.tasks_without_data[1:]:
            line = f"no data either: {', '.join(task for task, _ in further_tasks)}"
            # A reason says which files are missing in the data folder, if any.
            tasks_of_files = [task for task, reason in further_tasks if "--data DIR" in reason]
            if tasks_of_files:
                line += (
                    "; pass --data DIR (or set STSBENCH_DATA) with the files of "
                    f"{format_some(tasks_of_files)}, which 'stsbench show TASK' lists"
                )
            print_error(line)
        self.tasks_without_data.clear()

    def end(self) -> None:
        """Print how many scores a run has made and had already, its failures and its time.

        Nothing is printed for a run without cells. A cell is one score: an encoder on a task, by a
        protocol, with a seed. It is known if its result existed before the run. A failure counts
        once, however many cells it concerns.
        """
        if not self.total_cells:
            return
        seconds = time.monotonic() - self.started
        n_failed = len(self.failures)
        failed = f", {n_failed} failed" if n_failed else ""
        line = (
            f"{self.scored_cells} scored, {self.known_cells} known{failed} "
            f"in {format_duration(seconds)}"
        )
        if self.known_cells == self.total_cells:
            line += "; nothing was measured now (--fresh scores again)"
        self._print_and_log(
            "ended",
            line,
            scored=self.scored_cells,
            known=self.known_cells,
            failed=n_failed,
            seconds=round(seconds, 3),
        )

    def _print_and_log(
        self, event: str, text: str, /, *, is_printed: bool = True, **values: object
    ) -> None:
        """Print an event of a run on stderr, as text or as a line of JSON, and write the log.

        ``self.events`` says whether to print JSON. ``self.log`` is the path of the log, or None.

        Args:
            event: The name of the event, for JSON.
            text: The text, for people and the log.
            is_printed: Whether to print the text. False if it is printed elsewhere; JSON and the
                log do not depend on it.
            values: The values of the event, for JSON.
        """
        if self.events:
            print_progress(json.dumps({"event": event, **values}, ensure_ascii=False))
        elif is_printed:
            print_progress(text)
        if self.log is not None:
            now = datetime.now().astimezone().isoformat(timespec="seconds")
            append_line(self.log, f"{now} {escape_controls(as_one_line(text))}")


def describe_origin(results: Iterable[Result], folder: Path | None) -> str:
    """Return in parentheses in which folder results lie and which version of stsbench made them.

    Args:
        results: The results that exist already.
        folder: The results folder.

    Returns:
        A text that begins with a blank: `` (in results, made by stsbench at commit 0b08261a3f4c)``.
        An installed stsbench knows no commit: `` (in results, made by stsbench 0.1.0)``. Empty if
        there are no results.
    """
    # format_some: the first three, and how many more there are.
    makers = list(dict.fromkeys(map(_describe_maker, results)))
    return f" (in {folder}, made by {format_some(makers)})" if makers else ""


def _describe_maker(result: Result) -> str:
    if commit := result.run.get("commit"):
        changes = " with changes" if result.run.get("dirty") else ""
        return f"stsbench at commit {str(commit)[:12]}{changes}"
    versions = dict(result.run.get("versions") or {})
    return f"stsbench {versions.get('stsbench', 'of an unknown version')}"


class ReproductionProgress(RunProgress):
    """Progress of a reproduction, whose failures are those of rows."""

    def on_failure(self, label: str, error: Exception) -> None:
        """Print why the training or scoring of a table's row failed, and raise the exit code.

        The exit code is raised to the error's if that is higher. Each reason is printed once,
        because many rows share a base model or a text that is missing. The traceback of a bug is
        printed each time.

        Args:
            label: The row.
            error: Why it failed.
        """
        self._update_exit_code(error)
        if not isinstance(error, StsbenchError):
            print_traceback(error)
        reason = describe_error_line(error)
        if reason not in self.failures:
            print_error(error, about=label)
            self.failures[reason] = label, reason


@contextmanager
def run_progress(
    out: Path | None, settings: str = "", *, events: bool = False
) -> Iterator[RunProgress]:
    """Show the progress of a run until the end of the block: on a terminal bars, elsewhere lines.

    At the end of the block, tasks without data that are not printed yet are printed.

    Args:
        out: The results folder, for the log; None to write no log.
        settings: The run's settings as text, written beside the log; empty to write none.
        events: Whether to print each event as a line of JSON instead of text.

    Yields:
        The object that counts and prints what the run does; ``callbacks()`` of it are the functions
        that the run calls.
    """
    progress = RunProgress(out, settings=settings, events=events)

    def write_line(line: str) -> None:
        """Print and log a line of progress, which stands in the place of bars.

        As an event in JSON it has the kind ``progress`` and the value ``line``.
        """
        progress._print_and_log("progress", line, line=line)

    with show_progress("reading cards and data", write_line=write_line) as display:
        progress.display = display
        try:
            yield progress
        finally:
            progress.report_tasks_without_data()


@contextmanager
def train_progress(plan: TrainPlan, prefix: str = "") -> Iterator[OnProgress]:
    """Show steps, time left, loss and development score of one training.

    On a terminal they are shown beside a bar. Elsewhere a line is printed after each validation,
    and now and then between two; of several processes only the first one prints.

    Args:
        plan: The training.
        prefix: What precedes its seed in the label; empty for nothing.

    Yields:
        A callback for the training.
    """
    label = f"{prefix}, seed {plan.seed}" if prefix else f"seed {plan.seed}"
    with show_work(f"{label}: loading") as display:

        def on_progress(progress: TrainingProgress) -> None:
            """Show the step, loss, development score and time left, after each training step."""
            # Bars exist only on a terminal. Of several processes the one of rank 0 prints lines.
            is_on_terminal = display.bars is not None
            if not is_on_terminal and plan.processes.rank != 0:
                return
            # Both are lists of one text, or empty while nothing is known.
            score = _describe_development_score(progress)
            time_left = display.describe_time_left("work", progress.step, progress.steps)
            # The point of the training curve holds the values of a validation. It is None if this
            # step had none.
            if not is_on_terminal and progress.point is not None:
                # NOT_LOSSES: its step, score and other values that are no losses.
                losses = [
                    f"{name.replace('_', ' ')} {value:.4g}"
                    for name, value in progress.point.items()
                    if name not in NOT_LOSSES
                ]
                step_text = f"step {progress.step} of {progress.steps}"
                display.report(f"{label}: {', '.join([step_text, *losses, *score, *time_left])}")
            step_count = f"{progress.step}/{progress.steps}"
            # Before the first step there is no loss: it is NaN.
            loss = [] if math.isnan(progress.loss) else [f"loss {progress.loss:.3f}"]
            status = ", ".join([step_count, *loss, *score, *time_left])
            display.update("work", progress.step, progress.steps, label=label, status=status)

        yield on_progress


def _describe_development_score(progress: TrainingProgress) -> list[str]:
    """Return a list of one text on the development score, such as "dev 81.20 (best 82.00)".

    The development score is that of the last validation, times 100. The score of the weights that
    are kept is added if it is not the best one. The list is empty before the first validation.

    Args:
        progress: The progress of a training: the last, the best and the kept ``score``, from 0 to
            1, or None.
    """
    if progress.score is None or progress.best is None:
        return []
    kept_text = ""
    if progress.kept not in (None, progress.best):
        kept_text = f", kept {100 * progress.kept:.2f}"
    return [f"dev {100 * progress.score:.2f} (best {100 * progress.best:.2f}{kept_text})"]
