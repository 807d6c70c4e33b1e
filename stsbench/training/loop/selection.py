"""The records of a run in the training loop: losses, validations, the curve, the best weights.

It also decides when to validate, to save and to stop.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save

from stsbench.core.cards import SelectionSection
from stsbench.core.errors import TrainingError
from stsbench.core.files import write_atomically
from stsbench.encoders.runs import COMPLETE_FILE, find_last_checkpoint
from stsbench.training.learner import (
    Learner,
    OnProgress,
    Point,
    TrainingProgress,
    Validate,
    extra_measures,
    selection_key,
)
from stsbench.training.loop.batches import BatchPlan
from stsbench.training.loop.gather import ProcessGroup


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """The settings of the loop, apart from the method."""

    batches: BatchPlan
    selection: SelectionSection
    """The recipe's section ``[selection]``: when to validate and to stop, which weights to keep."""
    folder: Path
    """The folder of the run."""
    processes: ProcessGroup
    validate: Validate | None
    """A function that scores an encoder; None for a run without validation."""
    on_progress: OnProgress = lambda progress: None
    checkpoint_seconds: float = 120.0
    """The time between two checkpoints."""
    report_to: Sequence[str] = ()
    """The names of the library's loggers, for example ``tensorboard``."""
    deterministic: bool = False
    workers: int = 0
    """The number of processes that make batches ahead."""


READ_INTERVAL_BY_DEVICE = {"cpu": 1}
"""The number of batches after which losses are read, by the kind of device; on a CPU it is free."""


OTHER_READ_INTERVAL = 10
"""The same for all other devices, which reading a loss keeps waiting."""


class LossHistory:
    """The losses and norms of gradients since the last validation; all losses must be finite.

    They stay on their device, so that a GPU is not waited for at each of them.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        """Start an empty history of losses.

        Args:
            folder: The run's folder; an error names the last checkpoint in it.
            device: The device of the losses.
        """
        self.folder = folder
        self.read_interval = READ_INTERVAL_BY_DEVICE.get(device.type, OTHER_READ_INTERVAL)
        """The number of batches after which losses are read: to read one, a GPU is waited for."""
        self.last_loss = math.nan
        """The newest loss that was read; nan if there is none."""
        # All losses since the last validation: those of each batch by name.
        self._losses: list[dict[str, torch.Tensor]] = []
        # The step and the loss of each batch that was not read yet.
        self._unread: list[tuple[int, torch.Tensor]] = []

    def record(self, losses: Mapping[str, torch.Tensor], *, step: int) -> None:
        """Record the losses of a batch; after every ``read_interval`` batches check them too.

        Args:
            losses: The losses by name, scalars without gradient, which stay on their device;
                ``loss`` is the one that is trained, the others are its parts.
            step: The step of training that they belong to.

        Raises:
            TrainingError: A ``loss`` since the last check is not finite.
        """
        self._losses.append(dict(losses))
        self._unread.append((step, losses["loss"]))
        if len(self._unread) >= self.read_interval:
            self.read_pending()

    def record_gradient_norm(self, gradient_norm: torch.Tensor) -> None:
        """Record the norm of the gradient of the last batch's step, before it is clipped."""
        self._losses[-1]["gradient_norm"] = gradient_norm

    def read_pending(self) -> None:
        """Copy the losses not read yet from their device, and check that they are finite.

        The newest becomes ``last_loss``. To copy waits for the device, so this is called only
        every ``read_interval`` batches, and before weights are validated or written.

        Raises:
            TrainingError: A loss is not finite; the message names the step and the last checkpoint.
        """
        # Pairs of a step and its loss, a scalar on the device.
        unread = self._unread
        self._unread = []
        values = torch.stack([loss.float() for _, loss in unread]).tolist() if unread else []
        for (step, _), value in zip(unread, values, strict=True):
            if not math.isfinite(value):
                message = (
                    f"the loss is {value} at step {step}; lower learning rate or raise temperature"
                )
                # The path of the last complete checkpoint, or "nothing" if there is none.
                raise TrainingError(
                    f"{message} ({find_last_checkpoint(self.folder) or 'nothing'} is kept)"
                )
            self.last_loss = value

    def take_means(self) -> dict[str, float]:
        """Return the mean of each loss since the last call by name, and forget these losses.

        The norm of the gradient, recorded with the losses under ``gradient_norm``, is averaged too.
        A loss that some batches lack is averaged over the others. Values that are not finite are
        excluded, such as the norm of a gradient that overflows in float16, whose step the optimiser
        skips. A loss without any finite value has no mean.
        """
        losses_by_batch = self._losses
        self._losses = []
        means = {}
        # The names as they first occur; a dict, as a set has no order.
        names = {name: None for losses in losses_by_batch for name in losses}
        for name in names:
            tensors = [losses[name].float() for losses in losses_by_batch if name in losses]
            # Losses restored from a checkpoint are on the CPU.
            values = torch.stack([value.to(tensors[-1].device) for value in tensors]).cpu()
            finite = values[values.isfinite()]
            if finite.numel():
                means[name] = float(finite.mean())
        return means

    def as_numbers(self) -> list[dict[str, float]]:
        """Return all losses since the last validation as numbers, for a checkpoint."""
        return [{name: float(value) for name, value in losses.items()} for losses in self._losses]

    def restore(self, state: Sequence[Mapping[str, float]]) -> None:
        """Restore the losses of a checkpoint."""
        self._losses = [
            {name: torch.tensor(value) for name, value in losses.items()} for losses in state
        ]
        self.last_loss = state[-1]["loss"] if state else math.nan


class Selection(transformers.TrainerCallback):  # type: ignore[misc]
    """A callback of the library's loop that validates and keeps the best weights.

    It also decides when to stop and when to save.

    The best weights are kept in memory and written with each checkpoint, so that a run resumed from
    a checkpoint has the best weights of that time, and nothing that came later.
    """

    def __init__(self, learner: Learner, settings: LoopSettings) -> None:
        """Prepare the records of a training run, with an empty curve.

        The curve is the list of all validations; a point of it is the numbers of one validation by
        name, with ``step`` and ``score``.

        Args:
            learner: The method; ``student`` is the model that it trains, and validation scores
                its encoders.
            settings: The settings of the loop.
        """
        self.learner = learner
        self.settings = settings
        self.selection_section = settings.selection
        """The recipe's section ``[selection]``: when to validate and stop, what to keep."""
        self.batch_plan = settings.batches
        self.stop_requested = threading.Event()
        """Set if the user requests a stop."""
        self.losses = LossHistory(settings.folder, learner.student.device)
        self.curve: list[dict[str, float]] = []
        """The points of the curve so far."""
        self.best: dict[str, float] | None = None
        """The point with the best score; None before the first validation."""
        self.best_weights: dict[str, torch.Tensor] | None = None
        """The weights at that point by name; None before it, or if the recipe keeps the last."""
        self.point_callbacks: list[Callable[[Point], None]] = []
        """Functions that are called with each new point of the curve."""
        self.rate: dict[str, float] = {}
        """The learning rate of the last step by the name ``rate``; empty before the first step."""
        # The point of the validation after this step, if it was not reported yet; else None.
        self._new_point: Point | None = None
        # The time of the last checkpoint, in seconds of the monotonic clock; at first the start.
        self._last_save_time = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Validate the weights before the first step, if the recipe requests it."""
        if state.global_step == 0 and is_validation_due(
            self.selection_section, self.batch_plan, step=0
        ):
            self._validate(step=0)
        self.report_progress(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Validate if it is due, report the progress, and let the library stop or save.

        The library's trainer calls this after every step. Training stops if the user requests it,
        or if scores have not improved for as long as the recipe waits. A checkpoint is saved if the
        user requests a stop, or if the last one is ``checkpoint_seconds`` old.

        Args:
            args: Not used; the library passes it.
            state: The library's state, with the number of steps.
            control: Its fields are set here to let the library stop or save.
            rest: Not used.

        Raises:
            TrainingError: A loss is not finite.
        """
        step = state.global_step
        is_last = step >= self.batch_plan.steps
        # A function that returns the first process's decision in all processes, which must decide
        # alike.
        decide_jointly = self.settings.processes.agree
        if is_last:
            self.losses.read_pending()
        if is_validation_due(self.selection_section, self.batch_plan, step):
            self._validate(step)
            if decide_jointly(self._is_out_of_patience()):
                control.should_training_stop = True
        self.report_progress(step)
        # The user has requested a stop, and this step is not the last anyway.
        if self.stops_before_end(step):
            control.should_save = control.should_training_stop = True
        # A joint decision waits for the device, so it is taken when losses are read, which waits
        # too; a single process decides at every step.
        may_decide_jointly = (
            self.settings.processes.ranks == 1 or step % self.losses.read_interval == 0
        )
        # No checkpoint after the last step: the caller of the loop then writes the trained weights.
        is_save_due = time.monotonic() - self._last_save_time >= self.settings.checkpoint_seconds
        if may_decide_jointly and not is_last and decide_jointly(is_save_due):
            control.should_save = True
            self._last_save_time = time.monotonic()
        if control.should_save:
            # Raises an error if a loss is not finite, so that such weights are not saved.
            self.losses.read_pending()

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Add the curve and the best weights to the checkpoint that the library has written.

        The file that marks the checkpoint as complete is written last: a checkpoint without it is
        ignored.

        Args:
            args: The library's settings, with the folder and whether this process writes files.
            state: The library's state, with the number of steps.
            control: Not used; the library passes it.
            rest: Not used.
        """
        # Of several processes only the first writes.
        if not args.should_save:
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        # "curve": the points of all validations so far; "best": the best of them, or None;
        # "watched": the losses since the last validation, for the next point.
        record = {"curve": self.curve, "best": self.best, "watched": self.losses.as_numbers()}
        write_atomically(folder / "selection.json", json.dumps(record).encode())
        # None before the first validation, or if the recipe keeps the last weights.
        if self.best_weights is not None:
            write_atomically(folder / "best.safetensors", save(self.best_weights))
        write_atomically(folder / COMPLETE_FILE, json.dumps({"step": state.global_step}).encode())

    def stops_before_end(self, step: int) -> bool:
        """Return whether the user has requested a stop, and this step is not the last anyway."""
        return self.stop_requested.is_set() and step < self.batch_plan.steps

    def report_progress(self, step: int) -> None:
        """Call the callback ``on_progress`` with the step, the loss and the scores so far.

        If there was a validation after this step, its numbers, the point, are reported too, once.

        Args:
            step: The number of finished steps.
        """
        progress = TrainingProgress(
            step=step,
            steps=self.batch_plan.steps,
            # The newest loss that was read, perhaps of an earlier step; nan before the first.
            loss=self.losses.last_loss,
            score=self.curve[-1]["score"] if self.curve else None,
            # None before the first validation, as the score above.
            best=self.best["score"] if self.best else None,
            point=self._new_point,
        )
        self._new_point = None
        self.settings.on_progress(progress)

    def _validate(self, step: int) -> None:
        """Score the current weights, add a point to the curve, and copy the best weights.

        A point is the numbers of one validation by name. Without a function to validate with,
        nothing is done.

        Args:
            step: The number of finished steps.
        """
        if self.settings.validate is None:
            return
        self.losses.read_pending()
        scores = [self.settings.validate(encoder) for encoder in self.learner.encoders()]
        # Numbers, the higher the better. A method may have several encoders: the best one counts.
        # The key puts NaN below all.
        score = max(scores, key=selection_key)
        point = {
            "step": step,
            "score": float(score),
            # The index of the best encoder.
            "candidate": scores.index(score),
            # The means of the losses since the last validation, the learning rate, and what
            # validation measured beside the score.
            **self.losses.take_means(),
            **self.rate,
            **extra_measures(score),
        }
        self.curve.append(point)
        self._new_point = point
        if self.best is None or selection_key(score) > selection_key(self.best["score"]):
            self.best = point
            if self.selection_section.keep == "best":
                # A tensor that has several names (tied weights) is copied once for each.
                self.best_weights = {
                    name: tensor.detach().cpu().clone()
                    for name, tensor in self.learner.state_dict().items()
                }
        for callback in self.point_callbacks:
            callback(point)

    def _is_out_of_patience(self) -> bool:
        """Return whether the scores have failed to improve for as long as the recipe waits.

        The recipe waits for ``patience`` validations. These are the ones since the best one; if
        ``patience_counts`` is ``declines``, all ones that were worse than the one before. With a
        ``patience`` of 0 it waits for ever.
        """
        if not self.selection_section.patience or not self.curve:
            return False
        # The scores, with minus infinity for NaN.
        scores = [selection_key(point["score"]) for point in self.curve]
        if self.selection_section.patience_counts == "declines":
            n_bad = sum(later < earlier for earlier, later in zip(scores, scores[1:], strict=False))
        else:
            # The first of equally good ones.
            best_index = scores.index(max(scores))
            n_bad = len(scores) - 1 - best_index
        return n_bad >= self.selection_section.patience

    def restore_from(self, folder: Path) -> None:
        """Restore the curve, the best weights and the losses since then from a checkpoint.

        Args:
            folder: The folder of the checkpoint.
        """
        record = json.loads((folder / "selection.json").read_text(encoding="utf-8"))
        self.curve = record["curve"]
        self.best = record["best"]
        # The losses since the last validation.
        self.losses.restore(record["watched"])
        # Without this file no validation has chosen weights yet.
        if (folder / "best.safetensors").is_file():
            self.best_weights = load_file(folder / "best.safetensors")


def is_validation_due(section: SelectionSection, plan: BatchPlan, step: int) -> bool:
    """Return whether a recipe validates the weights after this step of training.

    Args:
        section: The recipe's section ``[selection]``: validate every so many steps (``every``), and
            at the start, at the end, or at the end of each epoch (``at_...``).
        plan: The batches of the run; its ``steps`` are all steps of the optimiser.
        step: The number of finished steps; 0 before the first.
    """
    if step == 0:
        return section.at_start
    # A step of the optimiser accumulates the gradients of several batches, perhaps of the last ones
    # of an epoch and the first ones of the next. Such a step ends the epoch.
    accumulate = plan.section.accumulate
    n_epochs = min(step * accumulate, plan.n_batches) // plan.batches_per_epoch
    # The step that ended the last of these epochs; 0 in the first epoch.
    epoch_end = math.ceil(n_epochs * plan.batches_per_epoch / accumulate)
    # ``every`` counts steps from the start of the run, or from that of each epoch.
    # With ``restart_each_epoch`` the last step of an epoch counts as 0: whether it is validated is
    # decided by ``at_epoch_end`` alone.
    n_counted = step - epoch_end if section.restart_each_epoch else step
    if n_counted > 0 and n_counted % section.every == 0:
        return True
    if section.at_epoch_end and step == epoch_end:
        return True
    # The end is validated too if its weights are kept, or if the run, or with
    # ``restart_each_epoch`` an epoch, is too short for another validation.
    is_too_short = plan.steps < section.every or (
        section.restart_each_epoch
        and not section.at_epoch_end
        and plan.batches_per_epoch <= section.every * accumulate
    )
    validates_end = section.at_end or section.keep == "last" or is_too_short
    return validates_end and step >= plan.steps
