"""What the methods with a training of their own share: how one opens, its rounds, what is kept, and when to stop."""

from __future__ import annotations

import math
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from stsbench.encoders.seams import Encoder
from stsbench.errors import TrainingError
from stsbench.training.loop.resuming import TrainingState, forget_state, read_state, write_state
from stsbench.training.seams import Columns, Rows, Validate, seen_with


@dataclass(frozen=True, kw_only=True)
class Round:
    """What was seen between two validations: steps done so far, mean loss, and the score where there is one."""

    step: int
    loss: float
    score: float | None = None
    kept: bool = True
    """Whether these weights were the best so far, and are those kept."""
    facts: Mapping[str, float] = field(default_factory=dict)


OnRound = Callable[[Round], None]
"""Called with every round as soon as it is over."""
OnStep = Callable[[int, int, float], None]
"""Called after each step: how many are done, of how many, and the loss."""


class Clock:
    """Whether the time given to a training is over; beside it, how long the training would be and how far it is."""

    def __init__(
        self, seconds: float | None = None, *, steps: int | None = None, on_step: OnStep = lambda done, of, loss: None
    ) -> None:
        """Start; None gives all the time and all the steps there are."""
        self.end = None if seconds is None else time.monotonic() + seconds
        self.limit, self.on_step = steps, on_step
        self.planned, self.tokens, self.before = 0, 0, 0
        self.ticks: list[float] = []

    def expect(self, steps: int, tokens: int, *, limit: int | None = None, done: int = 0) -> None:
        """Take how long the training is; its next step begins now.

        Args:
            steps: of a whole training, at most.
            tokens: that it reads.
            limit: after how many steps it ends all the same.
            done: steps of an earlier run that this one goes on from.
        """
        self.planned = min(steps, limit or steps)
        self.tokens, self.before = round(tokens * self.planned / max(steps, 1)), done
        self.ticks.append(time.perf_counter())

    @property
    def done(self) -> int:
        """Steps done, with those of an earlier run that this one goes on from."""
        return self.before + max(0, len(self.ticks) - 1)

    def is_over(self, loss: float) -> bool:
        """Whether it is; asked once a step, with the loss of that step."""
        self.on_step(self.before + len(self.ticks), self.planned, loss)
        self.ticks.append(time.perf_counter())
        done = self.limit is not None and len(self.ticks) > self.limit
        return done or (self.end is not None and time.monotonic() > self.end)


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One training of a method: for whom, and with which draws."""

    folder: Path
    seed: int
    rng: np.random.Generator
    clock: Clock
    validate: Validate | None
    on_round: OnRound
    untrained: Callable[[float], None]
    resume: bool


@dataclass(frozen=True, kw_only=True)
class StandaloneMethod(ABC):
    """A method that trains itself, for what ``transformers.Trainer`` cannot hold: it writes the encoder's folder."""

    trainer: ClassVar[str] = "rounds"
    """Which trainer it needs."""
    needs: ClassVar[tuple[str, ...]] = ("text",)
    """The columns of a corpus that it learns from."""
    seconds: float | None = None
    """Stop after so much time; default never."""

    def fit(
        self,
        columns: Columns,
        *,
        folder: Path,
        seed: int,
        validate: Validate | None = None,
        on_round: OnRound = lambda round: None,
        untrained: Callable[[float], None] = lambda score: None,
        resume: bool = False,
        clock: Clock | None = None,
    ) -> list[Round]:
        """Train and leave the encoder's folder, which ``load_encoder`` opens, and in it ``checkpoints`` to go on from.

        Args:
            columns: the corpus.
            folder: where the encoder goes.
            seed: of weights and order.
            validate: scores an encoder; the best weights are kept by it, without it the last.
            on_round: called with every round.
            untrained: called with the score of the weights before the first step.
            resume: go on from the last round of a training that was stopped, to the same weights.
            clock: when to stop; default after ``seconds``.

        Raises:
            TrainingError: the loss is not finite, or there is nothing to learn from.
        """
        torch.manual_seed(seed)
        rng, clock = np.random.default_rng(seed), clock or Clock(self.seconds)
        job = TrainingJob(
            folder=folder,
            seed=seed,
            rng=rng,
            clock=clock,
            validate=validate,
            on_round=on_round,
            untrained=untrained,
            resume=resume,
        )
        return self.learn_all(columns, job)

    @abstractmethod
    def learn_all(self, columns: Columns, job: TrainingJob) -> list[Round]:
        """Train as :meth:`fit` says, draws seeded."""


class WeightsKeeper:
    """Writes the weights that score best, or the last ones where nothing scores them, and what is gone on from."""

    def __init__(
        self, job: TrainingJob, write: Callable[[Path], object], load: Callable[[Path], Encoder], learnt: TrainingState
    ) -> None:
        """Take how weights are written, opened and scored; a resumed job has its earlier rounds back at once."""
        self.job, self.write, self.load, self.learnt = job, write, load, learnt
        self.trial = job.folder / "trial"
        self.rounds: list[Round] = []
        self.best: float = -math.inf
        if not job.resume:
            forget_state(job.folder)
        if job.validate is not None and (score := self._score()) is not None:
            job.untrained(score)
            shutil.rmtree(self.trial, ignore_errors=True)
        if (state := read_state(job.folder, learnt)) is not None:
            self.rounds = [Round(**one) for one in state["rounds"]]
            self.best = state["best"] if state["best"] is not None else -math.inf
        for ended in self.rounds:
            job.on_round(ended)

    def _score(self) -> float | None:
        """Write the weights as they are, and score them where anything scores."""
        self.write(self.trial)
        return None if self.job.validate is None else self.job.validate(self.load(self.trial))

    @property
    def step(self) -> int:
        """How many steps are done, as far as rounds go."""
        return self.rounds[-1].step if self.rounds else 0

    def close(self, step: int, losses: Sequence[float], *, merit: float | None = None, **facts: float) -> Round:
        """End a round: score the weights as they are, and keep them if they are the best.

        Args:
            step: steps done.
            losses: of the round.
            merit: what the best are chosen by, instead of the score.
            facts: what else there is to say of the round.
        """
        job, score = self.job, self._score()
        merit = score if merit is None else merit
        kept = merit is None or merit > self.best
        if kept:
            self.best = self.best if merit is None else merit
            for path in self.trial.iterdir():
                path.replace(job.folder / path.name)
        shutil.rmtree(self.trial, ignore_errors=True)
        plain, seen = (None, {}) if score is None else (float(score), seen_with(score))
        ended = Round(step=step, loss=sum(losses) / len(losses), score=plain, kept=kept, facts={**facts, **seen})
        self.rounds.append(ended)
        write_state(job.folder, self.learnt, rounds=self.rounds, best=self.best if math.isfinite(self.best) else None)
        job.on_round(ended)
        return ended


def run_steps(
    batches: Iterable[Rows], learn: Callable[[Rows], float], keeper: WeightsKeeper, *, every: int, steps: int | None
) -> list[Round]:
    """Learn from batches until they, the steps or the time are over, closing a round ``every`` so many steps.

    A resumed job passes over the batches of its earlier rounds: all draws are made again.
    """
    losses: list[float] = []
    step = keeper.step
    for rows in islice(batches, step, steps):
        loss = check_loss(learn(rows), step, keeper.job.folder)
        losses.append(loss)
        step += 1
        over = keeper.job.clock.is_over(loss)
        if step % every == 0:
            keeper.close(step, losses)
            losses = []
        if over:
            break
    if losses:
        keeper.close(step, losses)
    return keeper.rounds


def check_loss(loss: float, step: int, folder: Path) -> float:
    """Return a loss, or raise TrainingError where it is not finite."""
    if not math.isfinite(loss):
        raise TrainingError(
            f"the loss is {loss} at step {step}; lower the learning rate; {folder} keeps the best weights so far"
        )
    return loss
