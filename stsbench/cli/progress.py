"""How runs and trainings go: bars where someone watches, else lines on stderr; of a run in the results folder's log too."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.api.progress_display import ProgressDisplay, show_progress
from stsbench.bench.plan import EncoderPlan
from stsbench.bench.progress import JobProgress, ProgressTracker, RunCallbacks
from stsbench.cli.printing import (
    CHECKED,
    error_prefix,
    print_error,
    print_progress,
    print_traceback,
    shorten_line,
    show_work,
)
from stsbench.core.errors import EXIT_BUG, EXIT_USER_ERROR, SourceError, StsbenchError
from stsbench.core.files import append_line, write_atomically
from stsbench.core.wording import escape_controls, format_duration, format_some, join_lines

if TYPE_CHECKING:
    from stsbench.recipes.train_plan import TrainPlan
    from stsbench.results.record import Result

    # Loads torch, before which mistakes are refused.
    from stsbench.training.learner import OnProgress, TrainingProgress

LOG = "run.log"
SHOWN_NAME = 30
"""Signs of a name beside a bar."""
NOT_LOSSES = ("step", "score", "candidate", "gradient_norm", "rate", "alignment", "uniformity")
"""What of a curve's point the line leaves to the file of the curve, or says otherwise."""


class RunProgress:
    """Counts what a run does and says it; what fails is said at once, the same only once."""

    def __init__(
        self,
        out: Path | None,
        shown: ProgressDisplay | None = None,
        *,
        asked: str = "",
        events: bool = False,
    ) -> None:
        """Nothing has happened yet: a log and what is ``asked`` are kept in ``out``; ``events`` are said in JSON, one a line."""
        self.asked, self.events, self.shown = (
            asked,
            events,
            shown or ProgressDisplay(write_line=print_progress),
        )
        self.failures: dict[str, tuple[str, str]] = {}
        """A line for each, and the same as what failed and why."""
        self.code = 0
        self.out = out
        self.log = out and out / LOG
        self.parts: Sequence[EncoderPlan] = ()
        self.without_data: list[str] = []
        """Tasks without data after the first one, which said why: they are named together."""
        self.noticed: set[str] = set()
        self.cells = self.seeds = self.known = self.scored = 0
        self.started = time.monotonic()

    def listener(self) -> RunCallbacks:
        """What the run reports to."""
        return RunCallbacks(
            on_plan=self.on_planned, on_progress=self.on_working, on_result=self.on_scored, on_failure=self.on_failed,
            on_notice=self.on_noticed,
            on_checking=lambda done, total: self.shown.update("work", done, total, label=CHECKED),
        )  # fmt: skip

    def on_planned(self, parts: Sequence[EncoderPlan]) -> None:
        """All names and data are found: say how much there is to do."""
        self.say_without_data()
        if self.log is not None and self.asked:
            write_atomically(self.log.with_suffix(".toml"), self.asked.encode())
        self.parts, self.known = parts, sum(len(part.current_results) for part in parts)
        planned = [cell for part in parts for cell in part.cells]
        self.cells, self.seeds = len(planned), len({cell.seed for cell in planned})
        if not planned:
            return
        tasks = len({(cell.task, cell.protocol) for cell in planned})
        names, sentences = (
            {part.name for part in parts},
            sum(part.sentences_to_embed or 0 for part in parts),
        )
        counts = [
            (len(names), "encoder"),
            (tasks, "task"),
            *([(self.seeds, "seed")] if self.seeds > 1 else []),
        ]
        size = " x ".join(f"{n} {noun}{'' if n == 1 else 's'}" for n, noun in counts)
        known_results = [result for part in parts for result in part.current_results.values()]
        line = f"{size}, {self.known} of {self.cells} cells known{describe_origin(known_results, self.out)}"
        self._say(
            "planned",
            line,
            encoders=len(parts),
            cells=self.cells,
            known=self.known,
            sentences=sentences,
        )

    def on_working(self, pace: ProgressTracker) -> None:
        """How far the work is: a bar a worker and one for all where someone watches, else a line now and then."""
        speed, left = pace.sentences_per_second(), pace.seconds_left()
        counts = f"{pace.scored_cells} of {pace.total_cells} cells done, {pace.running_cells} running, {pace.failed_cells} failed"
        counts += f"; {speed:,.0f} sentences/s" if speed is not None else ""
        rest = "" if left is None else f"about {format_duration(left)} left"
        workers = {one.worker: one for one in pace.current_jobs.values()}
        if self.shown.bars is not None:
            # Of a single worker its own bar says the rest.
            what = f"all: {counts}" if any(workers) else "all"
            self.shown.update(
                "work", self.known + pace.scored_cells, self.cells, label=what, status=rest
            )
            for name in {*self.shown.bar_ids, *workers} - {"work"}:
                one = workers.get(name) or JobProgress(label="waiting")
                news = (
                    ", ".join(
                        [
                            f"{one.fraction:.0%}",
                            *self.shown.describe_time_left(name, one.fraction, 1.0),
                        ]
                    )
                    if one.fraction
                    else ""
                )
                text = shorten_line(f"{name} {one.label}".strip(), 2 * SHOWN_NAME)
                self.shown.update(name, one.fraction, 1.0, label=text, status=news)
        elif self.shown.is_due():
            self.shown.last_line_time = time.monotonic()
            own = [
                f"{one.label}{f', {one.fraction:.0%}' if one.fraction else ''}"
                for one in workers.values()
                if not one.worker
            ]
            self._say(
                "working", "; ".join(filter(None, [*own, counts, rest])), cells=pace.total_cells, scored=pace.scored_cells,
                running=pace.running_cells, failed=pace.failed_cells, sentences_per_second=speed, seconds_left=left,
                workers={one.worker or "here": {"what": one.label, "done": round(one.fraction, 3)} for one in workers.values()},
            )  # fmt: skip

    def on_scored(self, result: Result) -> None:
        """A cell is finished."""
        self.scored += 1
        # Of the cells that were known some may turn out to be of an encoder that now embeds otherwise.
        self.known = min(self.known, self.cells - self.scored)
        seed = f" seed {result.eval_seed}" if self.seeds > 1 else ""
        if len(self.parts) > len({part.name for part in self.parts}):
            seed = f" training seed {result.train_seed}{seed}"
        took = f"{result.run.get('seconds', 0):.1f} s"
        self._say(
            "scored",
            f"[{self.known + self.scored}/{self.cells}] {result.encoder} {result.task}{seed} {100 * result.score:.2f} ({took})",
            encoder=result.encoder, task=result.task, seed=result.eval_seed, score=result.score,
            seconds=result.run.get("seconds"), tries=result.run.get("tries", 1),
        )  # fmt: skip

    def on_noticed(self, line: str) -> None:
        """What is no failure and should be known, said once."""
        if line in self.noticed:
            return
        self.noticed.add(line)
        print_error(line)
        self._say("noticed", line, aloud=False, line=line)

    def on_failed(self, what: str, error: Exception) -> None:
        """Say what failed; data that cannot be had fail for every encoder and seed alike, and are said once."""
        self.code = max(
            self.code, EXIT_USER_ERROR if isinstance(error, StsbenchError) else EXIT_BUG
        )
        why = join_lines(error) or type(error).__name__
        line = f"{error_prefix(what, error)}{why}"
        if line in self.failures:
            return
        self.failures[line] = what, why
        self._say("failed", f"failed: {line}", aloud=False, what=what, why=why)
        if isinstance(error, SourceError) and not self.parts:
            self.without_data.append(what)
            if len(self.without_data) > 1:
                return
        if not isinstance(error, StsbenchError):
            print_traceback(error)
        print_error(error, about=what)

    def say_without_data(self) -> None:
        """Name what failed as the first one did, in one line."""
        if others := self.without_data[1:]:
            print_error(
                f"no data either: {', '.join(others)}; 'stsbench doctor' shows what is missing where"
            )
        self.without_data.clear()

    def end(self) -> None:
        """Say how many cells were scored and known, how much failed, and how long it took."""
        if self.cells:
            seconds, failed = time.monotonic() - self.started, len(self.failures)
            line = f"{self.scored} scored, {self.known} known{f', {failed} failed' if failed else ''} in {format_duration(seconds)}"
            if self.known == self.cells:
                line += "; nothing was measured now (--fresh scores again)"
            self._say(
                "ended",
                line,
                scored=self.scored,
                known=self.known,
                failed=failed,
                seconds=round(seconds, 3),
            )

    def _say(self, event: str, text: str, /, *, aloud: bool = True, **facts: object) -> None:
        """Say a text, or the event with its facts that programs read; the log has the text."""
        if self.events:
            print_progress(json.dumps({"event": event, **facts}, ensure_ascii=False))
        elif aloud:
            print_progress(text)
        if self.log is not None:
            now = datetime.now().astimezone().isoformat(timespec="seconds")
            append_line(self.log, f"{now} {escape_controls(join_lines(text))}")


def describe_origin(results: Iterable[Result], folder: Path | None) -> str:
    """Say in parentheses in which folder known results lie and what made them; empty if there are none.

    For example `` (in results, made by stsbench at commit 0b08261a3f4c)``, or `` (... made by stsbench 0.1.0)`` if an
    installed stsbench, which knows no commit, made them.
    """
    makers = list(dict.fromkeys(map(_maker, results)))
    return f" (in {folder}, made by {format_some(makers)})" if makers else ""


def _maker(result: Result) -> str:
    if commit := result.run.get("commit"):
        return f"stsbench at commit {str(commit)[:12]}{' with changes' if result.run.get('dirty') else ''}"
    return f"stsbench {dict(result.run.get('versions') or {}).get('stsbench', 'of an unknown version')}"


class ReproductionProgress(RunProgress):
    """Progress of a reproduction, whose failures are those of rows."""

    def on_failed(self, what: str, error: Exception) -> None:
        """Print why a row failed, each reason once: many rows share a base or a text."""
        self.code = max(
            self.code, EXIT_USER_ERROR if isinstance(error, StsbenchError) else EXIT_BUG
        )
        if not isinstance(error, StsbenchError):
            print_traceback(error)
        if str(error) not in self.failures:
            print_error(error, about=what)
        self.failures.setdefault(str(error), (what, str(error)))


@contextmanager
def run_progress(
    out: Path | None, asked: str = "", *, events: bool = False
) -> Iterator[RunProgress]:
    """Show how a run goes, until the end of the block; lines are printed above bars."""
    progress = RunProgress(out, asked=asked, events=events)
    with show_progress(
        "reading cards and data", write_line=lambda how: progress._say("progress", how, line=how)
    ) as progress.shown:
        try:
            yield progress
        finally:
            progress.say_without_data()


@contextmanager
def train_progress(plan: TrainPlan, about: str = "") -> Iterator[OnProgress]:
    """Show steps, time left, loss and development score of one seed; ``about`` says of what.

    Where nobody watches, each validation is a line, of the first process alone.
    """
    what = f"{about}, seed {plan.seed}" if about else f"seed {plan.seed}"
    with show_work(f"{what}: loading") as shown:

        def on_progress(progress: TrainingProgress) -> None:
            if shown.bars is None and plan.place.rank != 0:
                return
            scores = []
            if progress.score is not None and progress.best is not None:
                kept = (
                    ""
                    if progress.kept in (None, progress.best)
                    else f", kept {100 * progress.kept:.2f}"
                )
                scores = [f"dev {100 * progress.score:.2f} (best {100 * progress.best:.2f}{kept})"]
            left = shown.describe_time_left("work", progress.step, progress.steps)
            if shown.bars is None and progress.point is not None:
                point = [
                    (name.replace("_", " "), x)
                    for name, x in progress.point.items()
                    if name not in NOT_LOSSES
                ]
                step = f"step {progress.step} of {progress.steps}"
                shown.report(
                    f"{what}: {', '.join([step, *(f'{name} {x:.4g}' for name, x in point), *scores, *left])}"
                )
            news = ", ".join(
                [f"{progress.step}/{progress.steps}", f"loss {progress.loss:.3f}", *scores, *left]
            )
            shown.update("work", progress.step, progress.steps, label=what, status=news)

        yield on_progress
