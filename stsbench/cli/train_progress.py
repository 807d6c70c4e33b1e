"""How a training goes, on stderr: a bar where someone watches, else a line a validation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stsbench.cli.printing import console, duration, note
from stsbench.recipes.plan import TrainPlan

if TYPE_CHECKING:
    # Loads torch, before which mistakes are told.
    from stsbench.training.loop.selection import OnProgress, TrainingProgress

NOT_LOSSES = ("step", "score", "candidate", "gradient_norm", "rate", "alignment", "uniformity")
"""What of a curve's point the line leaves to the file of the curve, or says otherwise."""


@contextmanager
def train_progress(plan: TrainPlan, about: str = "") -> Iterator[OnProgress]:
    """Show steps, time left, loss and development score of one seed; ``about`` says of what."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    screen, what = console(stderr=True), f"{about}, seed {plan.seed}" if about else f"seed {plan.seed}"
    if not screen.is_terminal:
        yield _Lines(plan, what)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[news]}", markup=False),
    )
    with Bars(*columns, console=screen, transient=True, expand=True) as bars:
        bar = bars.add_task(what, total=None, news="loading")

        def on_progress(progress: TrainingProgress) -> None:
            news = ", ".join([f"loss {progress.loss:.3f}", *_scores(progress)])
            bars.update(bar, completed=progress.step, total=progress.steps, news=news)

        yield on_progress


class _Lines:
    """A line a validation, of the first process alone."""

    def __init__(self, plan: TrainPlan, what: str) -> None:
        self.plan, self.what = plan, what
        self.first: tuple[int, float] | None = None
        """The step at which the run was first heard of, and when."""

    def __call__(self, progress: TrainingProgress) -> None:
        now = time.monotonic()
        self.first = self.first or (progress.step, now)
        if progress.point is None or self.plan.place.rank != 0:
            return
        losses = [
            f"{name.replace('_', ' ')} {value:.4g}" for name, value in progress.point.items() if name not in NOT_LOSSES
        ]
        step, started = self.first
        done, to_do = progress.step - step, progress.steps - progress.step
        left = [f"about {duration((now - started) / done * to_do)} left"] if done > 0 and to_do > 0 else []
        said = [f"step {progress.step} of {progress.steps}", *losses, *_scores(progress), *left]
        note(f"{self.what}: {', '.join(said)}")


def _scores(progress: TrainingProgress) -> list[str]:
    if progress.score is None or progress.best is None:
        return []
    return [f"dev {100 * progress.score:.2f} (best {100 * progress.best:.2f})"]
