"""What is seen of a run and kept of it: losses, validations, the curve, the best weights; and when it stops."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import torch
import transformers
from safetensors.torch import load_file, save

from stsbench.core.cards import SelectionFacts, TrainingFacts
from stsbench.core.errors import TrainingError
from stsbench.core.files import append_line, write_whole
from stsbench.encoders.runs import CURVE, last_checkpoint
from stsbench.training.loop.batches import BatchPlan
from stsbench.training.loop.gather import Place
from stsbench.training.seams import Learner, Validate, seen_with, worth

Point = Mapping[str, Any]
"""What was seen at one validation: numbers by name, ``step`` among them."""


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


@dataclass(frozen=True, kw_only=True)
class Run:
    """All that the loop needs to know beside what is learned."""

    training: TrainingFacts
    selection: SelectionFacts
    folder: Path
    seed: int
    rows: int
    place: Place
    validate: Validate | None
    on_progress: OnProgress = lambda progress: None
    checkpoint_seconds: float = 120.0
    report_to: Sequence[str] = ()
    deterministic: bool = False
    workers: int = 0
    """Processes that make batches ahead."""


class CurveFile:
    """The curve of a run as a file that grows: each point is written as soon as it is seen."""

    def __init__(self, folder: Path, points: Sequence[Point] = ()) -> None:
        """Hold no more than these points: a resumed run does what came after a checkpoint again."""
        self.path = folder / CURVE
        if points:
            write_whole(self.path, "".join(f"{json.dumps(point)}\n" for point in points).encode())
        else:
            # A run that fails before its first point leaves nothing.
            self.path.unlink(missing_ok=True)

    def add(self, point: Point) -> None:
        """Write one more."""
        append_line(self.path, json.dumps(point))


READ_EVERY = {"cpu": 1}
"""After so many batches their losses are read, by the kind of device; reading costs a CPU nothing."""
ELSEWHERE = 10


class Losses:
    """The losses since the last validation, left where they are computed, and the norms of gradients; all must be finite.

    A GPU is not waited for at each of them.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        """No loss is seen yet in the run of this folder."""
        self.folder, self.every = folder, READ_EVERY.get(device.type, ELSEWHERE)
        self.last = math.nan
        """The newest that was read."""
        self._watched: list[dict[str, torch.Tensor]] = []
        self._unread: list[tuple[int, torch.Tensor]] = []

    def watch(self, losses: Mapping[str, torch.Tensor], *, step: int) -> None:
        """Take a batch's losses, without gradient, and the step that they are of; raises as :meth:`read`."""
        self._watched.append(dict(losses))
        self._unread.append((step, losses["loss"]))
        if len(self._unread) >= self.every:
            self.read()

    def watch_norm(self, gradient_norm: torch.Tensor) -> None:
        """Take the norm of the gradient of the step that the last batch ends, before it is clipped."""
        self._watched[-1]["gradient_norm"] = gradient_norm

    def read(self) -> None:
        """Read what was not read yet: before weights are validated or written, they are known to be of finite losses.

        Raises TrainingError where one is not finite, and says at which step, and what was kept.
        """
        unread, self._unread = self._unread, []
        values = torch.stack([loss.float() for _, loss in unread]).tolist() if unread else []
        for (step, _), value in zip(unread, values, strict=True):
            if not math.isfinite(value):
                kept = last_checkpoint(self.folder)
                raise TrainingError(
                    f"the loss is {value} at step {step}; lower the learning rate or raise the "
                    f"temperature ({f'{kept} is complete' if kept else 'no checkpoint had been written yet'})"
                )
            self.last = value

    def means(self) -> dict[str, float]:
        """The mean of each since the last call."""
        watched, self._watched = self._watched, []
        means = {}
        for name in {name: None for one in watched for name in one}:
            found = [one[name].float() for one in watched if name in one]
            # Those of a checkpoint are on the CPU.
            values = torch.stack([value.to(found[-1].device) for value in found]).cpu()
            # A step in float16 whose gradient overflows is left out by the optimiser too.
            if (finite := values[values.isfinite()]).numel():
                means[name] = float(finite.mean())
        return means

    def state(self) -> list[dict[str, float]]:
        """All since the last validation as numbers, for a checkpoint."""
        return [{name: float(value) for name, value in losses.items()} for losses in self._watched]

    def restore(self, state: Sequence[Mapping[str, float]]) -> None:
        """Take them back."""
        self._watched = [{name: torch.tensor(value) for name, value in losses.items()} for losses in state]
        self.last = state[-1]["loss"] if state else math.nan


class Interrupt:
    """Takes the first Ctrl-C as a wish, to be met after the step; the second stops at once.

    Only where nothing else has taken Ctrl-C over, and in a process that trains alone: many would not stop
    at the same step.
    """

    def __init__(self, *, alone: bool = True) -> None:
        """Nothing is wished yet."""
        self.asked, self.alone = False, alone
        self._before: Any = None

    def __enter__(self) -> Self:
        """Listen."""
        here = threading.current_thread() is threading.main_thread()
        if self.alone and here and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self.__exit__(None, None, None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Listen no more."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None


class Selection(transformers.TrainerCallback):  # type: ignore[misc]
    """Called by the library's loop at each step: validates, remembers the best weights, and says when to stop or save.

    The best weights are kept in memory and written with each checkpoint, so that a run resumed
    from a checkpoint knows what the run had known there, and nothing of what came after.
    """

    def __init__(self, learner: Learner, run: Run, plan: BatchPlan, interrupt: Interrupt) -> None:
        """Start with an empty curve."""
        self.learner, self.run, self.facts, self.plan, self.interrupt = learner, run, run.selection, plan, interrupt
        self.losses = Losses(run.folder, learner.student.device)
        self.curve: list[dict[str, float]] = []
        self.best: dict[str, float] | None = None
        self.best_weights: dict[str, torch.Tensor] | None = None
        self.on_point: list[Callable[[Point], None]] = []
        """Called with each point of the curve as soon as it is there."""
        self.rate: dict[str, float] = {}
        """The learning rate of the last step."""
        self._new: Point | None = None
        self._saved_at = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Validate what the run starts from, where the recipe says so."""
        if state.global_step == 0 and self._is_due(0):
            self._look(0)
        self.report_progress(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Validate where it is due; stop when patience or the user says so; save now and then."""
        step, ended, agree = state.global_step, state.global_step >= self.plan.steps, self.run.place.agree
        due = self._is_due(step)
        if due or ended:
            self.losses.read()
        if due:
            self._look(step)
            if agree(self._out_of_patience()):
                control.should_training_stop = True
        self.report_progress(step)
        if self.interrupted(step):
            control.should_save = control.should_training_stop = True
        # Asking other processes waits for the device, as reading losses does.
        asks = self.run.place.ranks == 1 or step % self.losses.every == 0
        late = time.monotonic() - self._saved_at >= self.run.checkpoint_seconds
        if asks and not ended and agree(late):
            control.should_save = True
            self._saved_at = time.monotonic()

    def _is_due(self, step: int) -> bool:
        return self.run.validate is not None and is_due(self.facts, self.plan, step)

    def interrupted(self, step: int) -> bool:
        """Whether the user wants it to stop after this step, though it is not the last."""
        return self.interrupt.asked and step < self.plan.steps

    def report_progress(self, step: int) -> None:
        """Call who watches with the step, the loss and the scores so far."""
        score = self.curve[-1]["score"] if self.curve else None
        best = self.best["score"] if self.best else None
        new, self._new = self._new, None
        self.run.on_progress(
            TrainingProgress(step=step, steps=self.plan.steps, loss=self.losses.last, score=score, best=best, point=new)
        )

    def _look(self, step: int) -> None:
        scores = [self.run.validate(encoder) for encoder in self.learner.encoders()]  # type: ignore[misc]
        score = max(scores, key=worth)
        seen = {**self.losses.means(), **self.rate, **seen_with(score)}
        point = {"step": step, "score": float(score), "candidate": scores.index(score), **seen}
        self.curve.append(point)
        self._new = point
        if self.best is None or worth(score) > worth(self.best["score"]):
            self.best = point
            if self.facts.keep == "best":
                # Of tied weights each name gets a copy of its own: simple, and they load alike.
                self.best_weights = {n: t.detach().cpu().clone() for n, t in self.learner.state_dict().items()}
        for call in self.on_point:
            call(point)

    def _out_of_patience(self) -> bool:
        if not self.facts.patience:
            return False
        scores = [worth(point["score"]) for point in self.curve]
        since_best = len(scores) - 1 - scores.index(max(scores))
        declines = sum(b < a for a, b in zip(scores, scores[1:], strict=False))
        return (declines if self.facts.patience_counts == "declines" else since_best) >= self.facts.patience

    @property
    def kept(self) -> dict[str, float] | None:
        """The point of the curve whose weights are kept."""
        if self.facts.keep == "last":
            return self.curve[-1] if self.curve else None
        return self.best

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


def is_due(facts: SelectionFacts, plan: BatchPlan, step: int) -> bool:
    """Whether a recipe validates the weights after this step of a plan."""
    if step == 0:
        return facts.at_start
    per_epoch = max(1, plan.per_epoch // plan.facts.accumulate)
    within = step % per_epoch if facts.restart_each_epoch else step
    at_end = facts.at_end or facts.keep == "last" or plan.steps < facts.every
    return (
        (within > 0 and within % facts.every == 0)
        or (facts.at_epoch_end and step % per_epoch == 0)
        or (at_end and step >= plan.steps)
    )
