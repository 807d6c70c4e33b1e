"""How a run goes: bars where someone watches, a line a finished cell on stderr and in the results folder's log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.bench.cells import RunPart
from stsbench.bench.crowd import Crowd
from stsbench.bench.listener import Listener
from stsbench.bench.pace import Pace
from stsbench.cards.names import short_name
from stsbench.cli.exit_codes import BUG, MISTAKE
from stsbench.cli.printing import complain, console, duration, note, subject, traceback_of
from stsbench.cli.workers import SHOWN_NAME, Workers
from stsbench.errors import SourceError, StsbenchError, one_line, visible
from stsbench.files.whole import append_line, write_whole
from stsbench.results.record import Result

if TYPE_CHECKING:
    from rich.progress import Progress

LOG = "run.log"


class RunProgress:
    """Counts what a run does and says it; what fails is said at once, the same only once."""

    def __init__(
        self, out: Path | None, bars: Progress | None = None, *, settings: str = "", events: bool = False
    ) -> None:
        """Nothing has happened yet.

        Args:
            out: the results folder, where a log is kept.
            bars: what shows bars, where someone watches.
            settings: what the run was asked for, kept beside the log.
            events: whether what happens is said in JSON, an object a line.
        """
        self.settings, self.events = settings, events
        self.failures: list[str] = []
        self.failed: list[tuple[str, str]] = []
        """The same as what failed, and why."""
        self.code = 0
        self.log, self.bars, self.pace = out and out / LOG, bars, Pace()
        self.parts: Sequence[RunPart] = ()
        self.without_data: list[str] = []
        """Tasks without data after the first one, which said why: they are named together."""
        self.noticed: set[str] = set()
        self.numbers: dict[str, str] = {}
        """Those that stand for names beside bars."""
        self.known = self.scored = 0
        self.turn, self.to_score, self.scored_before = "", 0, 0
        """Whose turn it is, how many of its cells are to be scored, and how many cells were scored before."""
        self.started = time.monotonic()
        self._bar: Any = bars.add_task("reading cards and data", total=None, left="") if bars is not None else None
        self._run: Any = bars.add_task("", total=None, left="", visible=False) if bars is not None else None
        self._workers = Workers(bars)

    def listener(self) -> Listener:
        """Who is told by the run."""
        return Listener(
            planned=self.on_planned, began=self.on_began, encoding=self.on_encoding, scoring=self.on_scoring,
            working=self.on_working, scored=self.on_scored, failed=self.on_failed, noticed=self.on_noticed,
            refused=lambda why: self.on_noticed(f"scored again: {why}"),
        )  # fmt: skip

    @property
    def cells(self) -> int:
        """How many scores the run makes or has."""
        return sum(len(part.cells) for part in self.parts)

    def on_planned(self, parts: Sequence[RunPart]) -> None:
        """All names and data are found: say how much there is to do."""
        self.say_without_data()
        if self.log is not None and self.settings:
            write_whole(self.log.with_suffix(".toml"), self.settings.encode())
        self.parts, self.known = parts, sum(len(part.done) for part in parts)
        self.pace.planned(parts)
        cells = [cell for part in parts for cell in part.cells]
        tasks, seeds = {(cell.task, cell.protocol) for cell in cells}, {cell.seed for cell in cells}
        if not cells:
            return
        size = [_counted(len({part.name for part in parts}), "encoder"), _counted(len(tasks), "task")]
        size += [_counted(len(seeds), "seed")] if len(seeds) > 1 else []
        sentences = sum(part.to_embed or 0 for part in parts)
        line = f"{' x '.join(size)}, {self.known} of {self.cells} cells known"
        self._say(line, "planned", encoders=len(parts), cells=self.cells, known=self.known, sentences=sentences)

    def on_began(self, part: RunPart) -> None:
        """It is this encoder's turn."""
        self.pace.began(part)
        place = [id(one) for one in self.parts].index(id(part)) + 1
        self.turn = f"{place}/{len(self.parts)} {self._short(visible(part.name))}"
        self.to_score, self.scored_before = len(part.missing), self.scored
        self._show("loading", total=None)

    def _short(self, name: str) -> str:
        """A name beside a bar; what its number stands for is said once, above."""
        told = len(self.numbers)
        short = short_name(name, self.numbers, with_settings=SHOWN_NAME, longest=SHOWN_NAME)
        if self.bars is not None and len(self.numbers) > told:
            note(f"{self.numbers[name]} {name}")
        return short

    def on_encoding(self, done: int, total: int) -> None:
        """So much of the encoder's text is embedded."""
        self.pace.encoding(done, total)
        self._show("embedding", completed=done, total=total)

    def on_working(self, crowd: Crowd) -> None:
        """Several workers are at work: a line each where someone watches, else a line now and then."""
        if self.bars is not None:
            self.bars.update(self._bar, visible=False)
            left = crowd.left()
            self.bars.update(
                self._run, description=f"all: {self._workers.counts(crowd)}", completed=self.known + crowd.scored,
                total=self.cells, visible=True, left="" if left is None else f"about {duration(left)} left",
            )  # fmt: skip
        if line := self._workers.show(crowd):
            self._say(line, "working", **self._workers.facts(crowd))

    def on_scoring(self, task: str) -> None:
        """A cell is scored from now on."""
        self.pace.scoring(task)
        self._show(f"scoring {visible(task)}", completed=self.scored - self.scored_before, total=self.to_score)

    def on_scored(self, result: Result) -> None:
        """A cell is finished."""
        self.pace.scored()
        self.scored += 1
        seed = f" seed {result.eval_seed}" if len({c.seed for part in self.parts for c in part.cells}) > 1 else ""
        if len(self.parts) > len({part.name for part in self.parts}):
            seed = f" training seed {result.train_seed}{seed}"
        took = f"{result.run.get('seconds', 0):.1f} s"
        place = f"[{self.known + self.scored}/{self.cells}]"
        if self.bars is not None:
            self.bars.update(self._bar, completed=self.scored - self.scored_before)
            self.bars.update(self._run, completed=self.known + self.scored)
        self._say(
            f"{place} {result.encoder} {result.task}{seed} {100 * result.score:.2f} ({took})", "scored",
            encoder=result.encoder, task=result.task, seed=result.eval_seed, score=result.score,
            seconds=result.run.get("seconds"), tries=result.run.get("tries", 1),
        )  # fmt: skip

    def on_noticed(self, line: str) -> None:
        """What is no failure and should be known, said once."""
        if line in self.noticed:
            return
        self.noticed.add(line)
        complain(line)
        self._event("noticed", line=line)
        self._keep(line)

    def on_failed(self, what: str, error: Exception) -> None:
        """Say what failed; data that cannot be had fail for every encoder and seed alike, and are said once."""
        self.code = max(self.code, MISTAKE if isinstance(error, StsbenchError) else BUG)
        why = one_line(error) or type(error).__name__
        line = f"{subject(what, error)}{why}"
        if line in self.failures:
            return
        self.failures.append(line)
        self.failed.append((what, why))
        self._event("failed", what=what, why=self.failed[-1][1])
        self._keep(f"failed: {line}")
        if isinstance(error, SourceError) and not self.parts:
            self.without_data.append(what)
            if len(self.without_data) > 1:
                return
        if not isinstance(error, StsbenchError):
            console(stderr=True).print(traceback_of(error), soft_wrap=True)
        complain(error, about=what)

    def say_without_data(self) -> None:
        """Name what failed as the first one did, in one line."""
        if others := self.without_data[1:]:
            complain(f"no data either: {', '.join(others)}; 'stsbench doctor' shows what is missing where")
        self.without_data.clear()

    def end(self) -> None:
        """Say how many cells were scored and known, how much failed, and how long it took."""
        if not self.cells:
            return
        counts = [f"{self.scored} scored", f"{self.known} known"]
        counts += [f"{len(self.failures)} failed"] if self.failures else []
        seconds = time.monotonic() - self.started
        line = f"{', '.join(counts)} in {duration(seconds)}"
        facts = {"scored": self.scored, "known": self.known, "failed": len(self.failures)}
        self._say(line, "ended", **facts, seconds=round(seconds, 3))

    def _say(self, line: str, event: str, **facts: object) -> None:
        if self.events:
            self._event(event, **facts)
        else:
            note(line)
        self._keep(line)

    def _event(self, event: str, **facts: object) -> None:
        if self.events:
            note(json.dumps({"event": event, **facts}, ensure_ascii=False))

    def _keep(self, line: str) -> None:
        if self.log is not None:
            append_line(
                self.log, f"{datetime.now().astimezone().isoformat(timespec='seconds')} {visible(one_line(line))}"
            )

    def _show(self, what: str, **bar: Any) -> None:  # noqa: ANN401 - what rich's bars take
        if self.bars is None:
            return
        self.bars.update(self._bar, description=f"{self.turn}: {what}", **bar)
        left = self.pace.left()
        done = self.known + self.scored
        self.bars.update(
            self._run, description="all", completed=done, total=self.cells, visible=True,
            left="" if left is None else f"about {duration(left)} left",
        )  # fmt: skip


@contextmanager
def run_progress(out: Path | None, settings: str, *, events: bool = False) -> Iterator[RunProgress]:
    """Show bars on stderr while a run goes on, where someone watches; lines are printed above them."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    screen = console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )
    if not screen.is_terminal:
        progress = RunProgress(out, settings=settings, events=events)
        try:
            yield progress
        finally:
            progress.say_without_data()
        return
    with Progress(*columns, console=screen, transient=True) as bars:
        progress = RunProgress(out, bars, settings=settings, events=events)
        try:
            yield progress
        finally:
            progress.say_without_data()


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


@contextmanager
def status_listener() -> Iterator[Callable[[str], Listener]]:
    """Show whose embeddings are made and what is scored, on stderr and only where someone watches."""
    from rich.text import Text

    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda name: Listener(noticed=complain)
        return
    with screen.status("reading data") as status:

        def listener(name: str) -> Listener:
            return Listener(
                encoding=lambda done, total: status.update(
                    Text(f"{visible(name)}: {100 * done // max(total, 1)}% embedded")
                ),
                scoring=lambda task: status.update(Text(f"{visible(name)}: {visible(task)}")),
                noticed=complain,
            )

        yield listener
