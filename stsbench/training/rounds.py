"""What the methods with a training of their own share: rounds, the better weights kept, and when to stop."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stsbench.encoders.seams import Encoder
from stsbench.errors import TrainingError

Rows = npt.NDArray[np.int64]
Validate = Callable[[Encoder], float]
"""An encoder to its score on a development split; the higher the better."""
Columns = Mapping[str, Sequence[Any]]
"""A corpus: equally long columns of texts, labels or document numbers by name."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """What was seen between two validations: steps done so far, mean loss, and the score where there is one."""

    step: int
    loss: float
    score: float | None = None
    kept: bool = True
    """Whether these weights were the best so far, and are those kept."""
    facts: Mapping[str, float] = field(default_factory=dict)


Report = Callable[[Round], None]
"""Told of every round as soon as it is over."""


class OwnTraining(Protocol):
    """A method that trains itself: what ``transformers.Trainer`` cannot hold."""

    needs: tuple[str, ...]
    """The columns of a corpus that it learns from."""

    def fit(
        self,
        columns: Columns,
        *,
        folder: Path,
        seed: int,
        validate: Validate | None = None,
        report: Report = lambda round: None,
    ) -> list[Round]:
        """Train and leave the encoder's folder, which ``load_encoder`` opens.

        Args:
            columns: the corpus.
            folder: where the encoder goes.
            seed: of weights and order.
            validate: scores an encoder; the best weights are kept by it, without it the last.
            report: told of every round.

        Raises:
            TrainingError: the loss is not finite, or there is nothing to learn from.
        """
        ...


class Keeper:
    """Writes the weights that score best, or the last ones where nothing scores them."""

    def __init__(
        self,
        folder: Path,
        write: Callable[[Path], object],
        load: Callable[[Path], Encoder],
        validate: Validate | None,
        report: Report,
    ) -> None:
        """Take how weights are written, opened and scored."""
        self.folder, self.write, self.load = folder, write, load
        self.validate, self.report = validate, report
        self.rounds: list[Round] = []
        self.best: float = -math.inf

    def close(self, step: int, losses: Sequence[float], **facts: float) -> Round:
        """End a round: score the weights as they are, and keep them if they are the best."""
        score, kept = None, True
        if self.validate is None:
            self.write(self.folder)
        else:
            trial = self.folder / "trial"
            self.write(trial)
            score = self.validate(self.load(trial))
            kept = score > self.best
            if kept:
                self.best = score
                for path in trial.iterdir():
                    path.replace(self.folder / path.name)
            shutil.rmtree(trial, ignore_errors=True)
        ended = Round(step=step, loss=sum(losses) / len(losses), score=score, kept=kept, facts=facts)
        self.rounds.append(ended)
        self.report(ended)
        return ended


def run_steps(
    batches: Iterable[Rows],
    learn: Callable[[Rows], float],
    keeper: Keeper,
    *,
    every: int,
    steps: int | None,
    clock: Clock,
) -> list[Round]:
    """Learn from batches until they, the steps or the time are over, closing a round ``every`` so many steps."""
    losses: list[float] = []
    step = 0
    for rows in islice(batches, steps):
        losses.append(check_loss(learn(rows), step, keeper.folder))
        step += 1
        if step % every == 0:
            keeper.close(step, losses)
            losses = []
        if clock.is_over():
            break
    if losses:
        keeper.close(step, losses)
    return keeper.rounds


class Clock:
    """Whether the time given to a training is over."""

    def __init__(self, seconds: float | None) -> None:
        """Start; None gives all the time there is."""
        self.end = None if seconds is None else time.monotonic() + seconds

    def is_over(self) -> bool:
        """Whether it is."""
        return self.end is not None and time.monotonic() > self.end


def check_loss(loss: float, step: int, folder: Path) -> float:
    """Return a loss, or raise TrainingError where it is not finite."""
    if not math.isfinite(loss):
        raise TrainingError(
            f"the loss is {loss} at step {step}; lower the learning rate; {folder} keeps the best weights so far"
        )
    return loss
