"""Selection: validation while training, the curve, and the weights that are kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save

from stsbench.cards.recipe import SelectionFacts
from stsbench.errors import choose
from stsbench.files.whole import write_whole
from stsbench.training.loop.batches import BatchPlan
from stsbench.training.loop.curve import Point
from stsbench.training.loop.interrupt import Interrupt
from stsbench.training.loop.losses import Losses
from stsbench.training.loop.place import Place
from stsbench.training.seams import Learner, Validate, seen_with


@dataclass(frozen=True, kw_only=True)
class TrainingProgress:
    """How far a run is."""

    step: int
    steps: int
    loss: float
    score: float | None
    best: float | None
    point: Point | None = None
    """What was seen at the validation that this step ended with, if it did."""


OnProgress = Callable[[TrainingProgress], None]
"""Called with how a run goes, once a step."""


class Selection:
    """Validates a learner and remembers the best weights it had.

    The best weights are kept in memory and written with each checkpoint, so that a run resumed
    from a checkpoint knows what the run had known there, and nothing of what came after.
    """

    def __init__(
        self,
        learner: Learner,
        facts: SelectionFacts,
        validate: Validate | None,
        plan: BatchPlan,
        *,
        on_progress: OnProgress,
        interrupt: Interrupt,
        losses: Losses,
    ) -> None:
        """Start with an empty curve."""
        self.learner, self.facts, self.validate, self.plan = learner, facts, validate, plan
        self.on_progress = on_progress
        self.curve: list[dict[str, float]] = []
        self.best: dict[str, float] | None = None
        self.best_weights: dict[str, torch.Tensor] | None = None
        self.interrupt = interrupt
        self.on_point: list[Callable[[Point], None]] = []
        """Called with each point of the curve as soon as it is there."""
        self.losses = losses
        self._rate: dict[str, float] = {}
        self._new: Point | None = None

    def watch_step(self, gradient_norm: torch.Tensor, rate: float) -> None:
        """Take the norm of a step's gradient before it is clipped, averaged as losses are, and the step's learning rate."""
        self.losses.watch_norm(gradient_norm)
        self._rate = {"rate": rate}

    def tell(self, step: int) -> None:
        """Call with how far the run is."""
        score = self.curve[-1]["score"] if self.curve else None
        best = self.best["score"] if self.best else None
        new, self._new = self._new, None
        self.on_progress(
            TrainingProgress(step=step, steps=self.plan.steps, loss=self.losses.last, score=score, best=best, point=new)
        )

    def due(self, step: int) -> bool:
        """Whether the weights after this step are to be validated."""
        return self.validate is not None and is_due(self.facts, self.plan, step)

    def ended(self, step: int) -> bool:
        """Whether this is the last step."""
        return step >= self.plan.steps

    def interrupted(self, step: int) -> bool:
        """Whether the user wants it to stop after this step, though it is not the last."""
        return self.interrupt.asked and not self.ended(step)

    def look(self, step: int) -> None:
        """Validate now, and remember the weights if they are the best yet."""
        if self.validate is None:
            return
        scores = [self.validate(encoder) for encoder in self.learner.encoders()]
        score = max(scores)
        facts = {**self.losses.means(), **self._rate, **seen_with(score)}
        point = {"step": step, "score": float(score), "candidate": scores.index(score), **facts}
        self.curve.append(point)
        self._new = point
        if self.best is None or score > self.best["score"]:
            self.best = point
            if self.facts.keep == "best":
                # Of tied weights each name gets a copy of its own: simple, and they load alike.
                self.best_weights = {n: t.detach().cpu().clone() for n, t in self.learner.state_dict().items()}

        for tell in self.on_point:
            tell(point)

    def out_of_patience(self) -> bool:
        """Whether too many validations have passed without a gain."""
        if not self.facts.patience or not self.curve or self.best is None:
            return False
        scores = [point["score"] for point in self.curve]
        counts = {
            "declines": sum(b < a for a, b in zip(scores, scores[1:], strict=False)),
            "since_best": len(scores) - 1 - scores.index(max(scores)),
        }
        return choose("patience_counts", self.facts.patience_counts, counts) >= self.facts.patience

    @property
    def kept(self) -> dict[str, float] | None:
        """The point of the curve whose weights are kept."""
        last = self.curve[-1] if self.curve else None
        return choose("keep", self.facts.keep, {"best": self.best, "last": last})

    def restore(self) -> None:
        """Give the learner the best weights back, where they are the ones to keep."""
        if self.best_weights is not None:
            self.learner.load_state_dict(self.best_weights)

    def save(self, folder: Path) -> None:
        """Write curve and best weights into a checkpoint."""
        facts = {"curve": self.curve, "best": self.best, "watched": self.losses.state()}
        write_whole(folder / "selection.json", json.dumps(facts).encode())
        if self.best_weights is not None:
            write_whole(folder / "best.safetensors", save(self.best_weights))

    def load(self, folder: Path) -> None:
        """Read them back."""
        facts = json.loads((folder / "selection.json").read_text(encoding="utf-8"))
        self.curve, self.best = facts["curve"], facts["best"]
        self.losses.restore(facts["watched"])
        if (folder / "best.safetensors").is_file():
            self.best_weights = load_file(folder / "best.safetensors")

    def callback(self, checkpoint_seconds: float, place: Place) -> _Callback:
        """What the library's loop calls at each step."""
        return _Callback(self, checkpoint_seconds, place)


def is_due(facts: SelectionFacts, plan: BatchPlan, step: int) -> bool:
    """Whether a recipe validates the weights after this step of a plan."""
    if step == 0:
        return facts.at_start
    per_epoch = max(1, plan.per_epoch // plan.accumulate)
    ends = step % per_epoch == 0
    within = step % per_epoch if facts.restart_each_epoch else step
    at_end = facts.at_end or facts.keep == "last" or plan.steps < facts.every
    return (
        (within > 0 and within % facts.every == 0) or (facts.at_epoch_end and ends) or (at_end and step >= plan.steps)
    )


class _Callback(transformers.TrainerCallback):  # type: ignore[misc]
    """Validates when it is due, and asks for a checkpoint now and then."""

    def __init__(self, selection: Selection, checkpoint_seconds: float, place: Place) -> None:
        self.selection, self.checkpoint_seconds, self.place = selection, checkpoint_seconds, place
        self.saved_at = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        if state.global_step == 0 and self.selection.due(0):
            self.selection.look(0)
        self.selection.tell(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        step = state.global_step
        if self.selection.due(step) or self.selection.ended(step):
            self.selection.losses.read()
        if self.selection.due(step):
            self.selection.look(step)
            if self.place.agree(self.selection.out_of_patience()):
                control.should_training_stop = True
        self.selection.tell(step)
        if self.selection.interrupted(step):
            control.should_save = control.should_training_stop = True
        # Asking other processes waits for the device, as reading losses does.
        asks = self.place.ranks == 1 or step % self.selection.losses.every == 0
        may_save = asks and not self.selection.ended(step)
        if may_save and self.place.agree(time.monotonic() - self.saved_at >= self.checkpoint_seconds):
            control.should_save = True
            self.saved_at = time.monotonic()
