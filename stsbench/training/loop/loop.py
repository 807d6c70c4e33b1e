"""The training loop: ``transformers.Trainer`` with our batches, selection and checkpoints.

The records of a run are here too: losses, validations, the curve, the best weights; and the
decision when to stop.
"""

from __future__ import annotations

import errno
import json
import math
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from types import FrameType
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save, save_model

from stsbench.core.cards import SelectionSection, TrainingSection
from stsbench.core.errors import CardError, Interrupted, OutputError, TrainingError
from stsbench.core.files import write_atomically
from stsbench.core.wording import join_lines
from stsbench.encoders.runs import COMPLETE_FILE, find_last_checkpoint
from stsbench.training.learner import (
    Batch,
    Learner,
    OnProgress,
    Point,
    TrainingOutcome,
    TrainingProgress,
    Validate,
    check_losses,
    open_curve,
    read_measures,
    selection_key,
)
from stsbench.training.loop.batches import Batches, BatchPlan, load_batches, open_batch
from stsbench.training.loop.gather import ProcessGroup, has_many_ranks
from stsbench.training.loop.on_cpu import speed_up
from stsbench.training.loop.optimisers import make_optimiser, make_schedule
from stsbench.training.student import Student


def check_step(learner: Learner, section: TrainingSection) -> None:
    """Check that the method and the model can be run with the settings of a recipe.

    Args:
        learner: The method.
        section: The recipe's section ``[training]``.

    Raises:
        CardError: They cannot; the message names the key to leave out.
    """
    method_name = type(learner).__name__
    model = learner.student.model
    if (
        # One row has no negatives, unless they come from other processes.
        section.batch_size < 2
        and learner.batch_negatives
        and not (learner.batch_negatives == "joint" and has_many_ranks())
    ):
        raise CardError(
            "[training] batch_size 1: a sentence's negatives are the others of its batch; "
            "give 2 or more"
        )
    problem = ""
    was_training = learner.training
    if section.chunk and not learner.chunks:
        problem = (
            f"chunk: {method_name}'s loss is not a function of embeddings alone "
            "(checkpointing = true saves memory too)"
        )
    elif section.checkpointing and not model.supports_gradient_checkpointing:
        problem = f"checkpointing: {type(model).__name__} has no layers to compute again"
    elif section.checkpointing and not learner.train().student.model.training:
        problem = f"checkpointing: {method_name} runs its model as in tests, which keeps all"
    # Loaded models are in evaluation mode; this puts all modules into the method's mode.
    learner.train(was_training)
    if problem:
        raise CardError(f"[training] {problem}; leave it out")


def prepare_step(learner: Learner, section: TrainingSection) -> None:
    """Prepare a learner for the steps of a recipe, in place.

    Args:
        learner: The method; all its students get the settings.
        section: The recipe's section ``[training]``.

    Raises:
        CardError: As :func:`check_step`.
    """
    check_step(learner, section)
    students = [module for module in learner.modules() if isinstance(module, Student)]
    for student in students:
        student.chunk = section.chunk
        # The property is computed once, here by the model as it is loaded: a compiled model would
        # be compiled again for it.
        _ = student.backbone.depends_on_padding
        if section.checkpointing:
            # One method under two names; the older name will be removed soon.
            enable = getattr(student.model, "activation_checkpointing_enable", None)
            (enable or student.model.gradient_checkpointing_enable)({"use_reentrant": False})
        if section.compile:
            # For batches of any size; weights keep their names.
            student.model.compile(dynamic=True)
            student.compiled = True
    speed_up(learner, compiled=section.compile)


REPORTS_FOLDER = "reports"
"""The folder of TensorBoard's files in a run's folder; ``TENSORBOARD_LOGGING_DIR`` overrides it."""


def train_learner(
    learner: Learner, settings: LoopSettings, *, resume: bool = False
) -> TrainingOutcome:
    """Train, and leave the learner with the weights that selection keeps.

    Args:
        learner: The method to train.
        settings: The settings of the loop.
        resume: Continue from the folder's last complete checkpoint, if there is one.

    Raises:
        TrainingError: The loss is not finite; the message names the last checkpoint.
        OutputError: A checkpoint cannot be written.
        Interrupted: The user pressed Ctrl-C; the step was finished and a checkpoint written.
    """
    processes = settings.processes
    plan = settings.batches
    selection = Selection(learner, settings)
    checkpoint = find_last_checkpoint(settings.folder) if resume else None
    if checkpoint is not None:
        with _translate_checkpoint_errors(checkpoint):
            selection.load(checkpoint)
    elif processes.rank == 0:
        shutil.rmtree(settings.folder / "checkpoints", ignore_errors=True)
    processes.wait()
    if processes.rank == 0:
        selection.point_callbacks.append(open_curve(settings.folder, selection.curve))
    prepare_step(learner, plan.section)
    try:
        trainer = Loop(learner, settings, selection)
    except (RuntimeError, ValueError) as error:
        # The library raises it if a requested logger is unknown or not installed.
        if not settings.report_to:
            raise
        raise TrainingError(
            f"`report_to={', '.join(settings.report_to)}`: {join_lines(error)}"
        ) from error
    with (
        _silence_library(),
        _report_full_disk(settings.folder),
        interruptible(selection.stop_requested, alone=processes.ranks == 1),
    ):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    step = trainer.state.global_step
    if selection.interrupted(step):
        raise Interrupted(
            f"stopped after step {step} of {plan.steps}; to resume, run it again without `fresh`"
        )
    if selection.best_weights is not None:
        learner.load_state_dict(selection.best_weights)
    selected_point = (
        selection.best
        if settings.selection.keep == "best"
        else next(reversed(selection.curve), None)
    )
    return TrainingOutcome(curve=selection.curve, chosen=selected_point, steps=step)


class Loop(transformers.Trainer):  # type: ignore[misc]
    """The library's loop with our batches, optimiser, checkpoints and a check of the loss."""

    def __init__(self, learner: Learner, settings: LoopSettings, selection: Selection) -> None:
        """Configure the library's trainer; no step is taken yet.

        Args:
            learner: The method to train.
            settings: The settings of the loop.
            selection: The callback that validates, records and saves.

        Raises:
            CardError: The recipe's precision needs a GPU.
        """
        self.settings = settings
        self.selection = selection
        plan = settings.batches
        section = plan.section
        on_cpu = learner.student.device.type == "cpu"
        if on_cpu and section.precision == "float16":
            raise CardError(
                "[training] precision 'float16' needs a GPU; "
                "on a CPU pass `params=precision=bfloat16`"
            )
        training_arguments = _make_training_arguments(settings, on_cpu=on_cpu)
        use_single_device(training_arguments)
        optimiser = make_optimiser(learner, section)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, make_schedule(section, plan.steps))
        trainer_arguments = {
            "model": learner,
            "optimizers": (optimiser, schedule),
            "callbacks": [selection],
        }
        super().__init__(
            args=training_arguments, train_dataset=Batches(learner, plan), **trainer_arguments
        )
        self.remove_callback(transformers.trainer_callback.PrinterCallback)
        for callback in self.callback_handler.callbacks:
            # The library's default is a folder among the checkpoints, which are deleted at the end.
            if getattr(callback, "logging_dir", "") is None:
                callback.logging_dir = str(settings.folder / REPORTS_FOLDER)
        # So the library divides a loss by the number of accumulated batches.
        self.model_accepts_loss_kwargs = False
        if settings.report_to:
            selection.point_callbacks.append(self.report)

    def report(self, point: Point) -> None:
        """Send a validation to the loggers.

        The library itself sends the loss, the norm of the gradient and the learning rate.
        """
        sent_by_library = ("step", "candidate", "loss", "gradient_norm", "rate")
        logged_names = {name: f"eval_{name}" for name in ("score", "alignment", "uniformity")}
        self.log(
            {
                logged_names.get(name, name): value
                for name, value in point.items()
                if name not in sent_by_library
            }
        )

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:  # noqa: ANN401 - the library's
        """Return the norm of the gradient, and record it with the learning rate."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self.selection.losses.record_gradient_norm(torch.as_tensor(norm).detach())
        self.selection.rate = {"rate": self._get_learning_rate()}
        return norm

    def get_train_dataloader(self) -> Any:  # noqa: ANN401 - the library's
        """Return a loader of whole batches in order; each rank makes its own."""
        return load_batches(
            self.train_dataset, workers=self.settings.workers, pin=self.args.dataloader_pin_memory
        )

    def _prepare_inputs(self, inputs: Batch) -> Batch:
        """Move a batch to the device like the library, but without waiting for a GPU."""
        return open_batch(inputs, self.args.device)

    def compute_loss(
        self,
        model: Any,  # noqa: ANN401
        inputs: Any,  # noqa: ANN401
        *unused: Any,  # noqa: ANN401
        **also_unused: Any,  # noqa: ANN401
    ) -> torch.Tensor:  # noqa: ANN401
        """Return the method's loss, and record it; it must be finite.

        Args:
            model: The method, perhaps wrapped by the library.
            inputs: A batch.
            unused: Further arguments of the library.
            also_unused: The same.
        """
        losses = check_losses(model(**inputs), self.model)
        detached_losses = {name: value.detach() for name, value in losses.items()}
        self.selection.losses.record(detached_losses, step=self.state.global_step + 1)
        return losses["loss"]

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ANN401
        """Write the weights as safetensors, tied weights once."""
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self.model, str(folder / "learner.safetensors"))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:  # noqa: ANN401
        with _translate_checkpoint_errors(Path(resume_from_checkpoint)):
            load_model(self.model, str(Path(resume_from_checkpoint) / "learner.safetensors"))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with _translate_checkpoint_errors(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with _translate_checkpoint_errors(checkpoint):
            super()._load_rng_state(checkpoint)


def _make_training_arguments(settings: LoopSettings, *, on_cpu: bool) -> Any:  # noqa: ANN401
    """Translate the settings of the loop into those of the library.

    Args:
        settings: The settings of the loop.
        on_cpu: Whether training is on a CPU.
    """
    plan = settings.batches
    section = plan.section
    return transformers.TrainingArguments(
        output_dir=str(settings.folder / "checkpoints"),
        per_device_train_batch_size=section.batch_size,
        gradient_accumulation_steps=section.accumulate,
        max_steps=plan.steps,
        learning_rate=section.learning_rate,
        max_grad_norm=section.clip,
        bf16=section.precision == "bfloat16",
        fp16=section.precision == "float16",
        # :class:`Selection` decides when to save and what to log.
        save_strategy="no",
        save_total_limit=2,
        logging_steps=10,
        logging_nan_inf_filter=False,
        report_to=list(settings.report_to) or "none",
        run_name=f"{settings.folder.parent.name}/{settings.folder.name}",
        seed=plan.seed,
        full_determinism=settings.deterministic,
        use_cpu=on_cpu,
        dataloader_pin_memory=not on_cpu,
        remove_unused_columns=False,
        disable_tqdm=True,
        ddp_find_unused_parameters=True,
    )


def use_single_device(arguments: Any) -> None:  # noqa: ANN401 - transformers is untyped
    """Keep the library from spreading one process's batch over all GPUs.

    Each part of the batch would have only its own negatives, as with SimCSE's code (its issue 23).
    Several devices need several processes, by torchrun.
    """
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1


@contextmanager
def _translate_checkpoint_errors(checkpoint: Path | str | None) -> Iterator[None]:
    """Report a checkpoint that was damaged after it was written as a TrainingError of one line.

    Training never starts from the beginning without a request.
    """
    try:
        yield
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,
        UnpicklingError,
        SafetensorError,
    ) as error:
        message = f"{checkpoint}: cannot be read: {join_lines(error)[:200]}"
        raise TrainingError(
            f"{message}; move it away to resume from the one before it, or pass `fresh`"
        ) from error


@contextmanager
def _report_full_disk(folder: Path) -> Iterator[None]:
    """Report a full disk as an OutputError of one line."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        error_text = join_lines(error)
        is_disk_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        # The last two are what torch's writer says of a full disk.
        texts_of_full_disk = ("No space left", "file write failed", "unexpected pos")
        if not is_disk_full and not any(text in error_text for text in texts_of_full_disk):
            raise
        checkpoint_name = getattr(find_last_checkpoint(folder), "name", "nothing")
        message = f"{folder}: the disk is full ({checkpoint_name} is kept)"
        raise OutputError(f"{message}; free some space and run it again without `fresh`") from error


@contextmanager
def _silence_library() -> Iterator[None]:
    """Hide the library's advice against settings that are intended."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*pin_memory.*")
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
            yield
    finally:
        logging.set_verbosity(level)


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """The settings of the loop, apart from the method."""

    batches: BatchPlan
    selection: SelectionSection
    folder: Path
    processes: ProcessGroup
    validate: Validate | None
    on_progress: OnProgress = lambda progress: None
    checkpoint_seconds: float = 120.0
    report_to: Sequence[str] = ()
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
        """Start an empty history.

        Args:
            folder: The run's folder; an error names the last checkpoint in it.
            device: The device of the losses.
        """
        self.folder = folder
        self.read_interval = READ_INTERVAL_BY_DEVICE.get(device.type, OTHER_READ_INTERVAL)
        """The number of batches after which their losses are read."""
        self.last_loss = math.nan
        """The newest loss that was read; nan if there is none."""
        # All losses since the last validation, and those of them that were not read yet, with their
        # steps.
        self._losses: list[dict[str, torch.Tensor]] = []
        self._unread: list[tuple[int, torch.Tensor]] = []

    def record(self, losses: Mapping[str, torch.Tensor], *, step: int) -> None:
        """Record the losses of a batch.

        Args:
            losses: The losses by name, scalars without gradient, on their device.
            step: The step that they belong to.

        Raises:
            TrainingError: As :meth:`read`.
        """
        self._losses.append(dict(losses))
        self._unread.append((step, losses["loss"]))
        if len(self._unread) >= self.read_interval:
            self.read()

    def record_gradient_norm(self, gradient_norm: torch.Tensor) -> None:
        """Record the norm of the gradient of the last batch's step, before it is clipped."""
        self._losses[-1]["gradient_norm"] = gradient_norm

    def read(self) -> None:
        """Read the losses that were not read yet, and check that they are finite.

        It is called before weights are validated or written.

        Raises:
            TrainingError: A loss is not finite; the message names the step and the last checkpoint.
        """
        unread = self._unread
        self._unread = []
        values = torch.stack([loss.float() for _, loss in unread]).tolist() if unread else []
        for (step, _), value in zip(unread, values, strict=True):
            if not math.isfinite(value):
                message = (
                    f"the loss is {value} at step {step}; lower learning rate or raise temperature"
                )
                raise TrainingError(
                    f"{message} ({find_last_checkpoint(self.folder) or 'nothing'} is kept)"
                )
            self.last_loss = value

    def means(self) -> dict[str, float]:
        """Return the mean of each loss since the last call, by name; it starts anew then.

        A loss that some batches lack is averaged over the others; values that are not finite are
        left out.
        """
        losses_by_batch = self._losses
        self._losses = []
        means = {}
        # A dict for its order: the names as they first occur.
        names = {name: None for losses in losses_by_batch for name in losses}
        for name in names:
            tensors = [losses[name].float() for losses in losses_by_batch if name in losses]
            # Losses restored from a checkpoint are on the CPU.
            values = torch.stack([value.to(tensors[-1].device) for value in tensors]).cpu()
            # If the gradient overflows in float16, the optimiser skips the step too.
            finite = values[values.isfinite()]
            if finite.numel():
                means[name] = float(finite.mean())
        return means

    def state(self) -> list[dict[str, float]]:
        """Return all losses since the last validation as numbers, for a checkpoint."""
        return [{name: float(value) for name, value in losses.items()} for losses in self._losses]

    def restore(self, state: Sequence[Mapping[str, float]]) -> None:
        """Restore the losses of a checkpoint."""
        self._losses = [
            {name: torch.tensor(value) for name, value in losses.items()} for losses in state
        ]
        self.last_loss = state[-1]["loss"] if state else math.nan


@contextmanager
def interruptible(stop_requested: threading.Event, *, alone: bool = True) -> Iterator[None]:
    """Let the first Ctrl-C set an event, by which training stops after the step.

    The second Ctrl-C stops at once. Nothing is changed if Ctrl-C has another handler already,
    outside of the main thread, or in a process that does not train alone.

    Args:
        stop_requested: The event.
        alone: Whether no other process trains along: many would not stop together.
    """
    earlier_handler = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not alone or not in_main_thread or earlier_handler is not signal.default_int_handler:
        yield
        return

    def request_stop(number: int, frame: FrameType | None) -> None:
        stop_requested.set()
        signal.signal(signal.SIGINT, earlier_handler)

    signal.signal(signal.SIGINT, request_stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier_handler)


class Selection(transformers.TrainerCallback):  # type: ignore[misc]
    """A callback of the library's loop that validates and keeps the best weights.

    It also decides when to stop and when to save.

    The best weights are kept in memory and written with each checkpoint, so that a run resumed from
    a checkpoint has the best weights of that time, and nothing that came later.
    """

    def __init__(self, learner: Learner, settings: LoopSettings) -> None:
        """Start with an empty curve.

        Args:
            learner: The method; validation scores its encoders.
            settings: The settings of the loop.
        """
        self.learner = learner
        self.settings = settings
        self.section = settings.selection
        self.plan = settings.batches
        self.stop_requested = threading.Event()
        """Set if the user requests a stop."""
        self.losses = LossHistory(settings.folder, learner.student.device)
        self.curve: list[dict[str, float]] = []
        """The points of the curve so far, one per validation."""
        self.best: dict[str, float] | None = None
        """The point with the best score; None before the first validation."""
        self.best_weights: dict[str, torch.Tensor] | None = None
        """The weights of that point, by name; None if the last weights are stored instead."""
        self.point_callbacks: list[Callable[[Point], None]] = []
        """Functions that are called with each new point of the curve."""
        self.rate: dict[str, float] = {}
        """The learning rate of the last step as ``rate``; empty before the first step."""
        # The point of this step, until it was reported; and when the last checkpoint was written.
        self._new_point: Point | None = None
        self._saved_at = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Validate the weights before the first step, if the recipe requests it."""
        if state.global_step == 0 and is_due(self.section, self.plan, step=0):
            self._validate(step=0)
        self.report_progress(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Validate if it is due, stop on request or without progress, and save regularly.

        Args:
            args: Not used; the library passes it.
            state: The library's state, with the number of steps.
            control: Tells the library to stop or to save.
            rest: Not used.
        """
        step = state.global_step
        is_last = step >= self.plan.steps
        # All processes must go the same way: the first one decides.
        agree = self.settings.processes.agree
        if is_last:
            self.losses.read()
        if is_due(self.section, self.plan, step):
            self._validate(step)
            if agree(self._out_of_patience()):
                control.should_training_stop = True
        self.report_progress(step)
        if self.interrupted(step):
            control.should_save = control.should_training_stop = True
        # Asking other processes waits for the device, as reading losses does.
        may_ask_processes = (
            self.settings.processes.ranks == 1 or step % self.losses.read_interval == 0
        )
        is_save_due = time.monotonic() - self._saved_at >= self.settings.checkpoint_seconds
        if may_ask_processes and not is_last and agree(is_save_due):
            control.should_save = True
            self._saved_at = time.monotonic()
        if control.should_save:
            self.losses.read()

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Write the curve and the best weights into a checkpoint, and complete it.

        The file that marks it as complete is written last: a checkpoint without it is ignored.

        Args:
            args: The library's settings.
            state: The library's state, with the number of steps.
            control: Not used; the library passes it.
            rest: Not used.
        """
        # Of several processes only the first writes.
        if not args.should_save:
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        record = {"curve": self.curve, "best": self.best, "watched": self.losses.state()}
        write_atomically(folder / "selection.json", json.dumps(record).encode())
        if self.best_weights is not None:
            write_atomically(folder / "best.safetensors", save(self.best_weights))
        write_atomically(folder / COMPLETE_FILE, json.dumps({"step": state.global_step}).encode())

    def interrupted(self, step: int) -> bool:
        """Return whether the user stops the run after this step, though it is not the last."""
        return self.stop_requested.is_set() and step < self.plan.steps

    def report_progress(self, step: int) -> None:
        """Report the step, the loss and the scores so far to the progress callback."""
        score = self.curve[-1]["score"] if self.curve else None
        best = self.best["score"] if self.best else None
        progress = TrainingProgress(
            step, self.plan.steps, self.losses.last_loss, score, best, point=self._new_point
        )
        self._new_point = None
        self.settings.on_progress(progress)

    def _validate(self, step: int) -> None:
        """Validate the current weights, add a point to the curve, and keep the best weights."""
        if self.settings.validate is None:
            return
        self.losses.read()
        scores = [self.settings.validate(encoder) for encoder in self.learner.encoders()]
        # Of several encoders of a method the best one counts.
        score = max(scores, key=selection_key)
        measures = {**self.losses.means(), **self.rate, **read_measures(score)}
        point = {"step": step, "score": float(score), "candidate": scores.index(score), **measures}
        self.curve.append(point)
        self._new_point = point
        if self.best is None or selection_key(score) > selection_key(self.best["score"]):
            self.best = point
            if self.section.keep == "best":
                # Tied weights are copied once per name: simple, and they load the same.
                self.best_weights = {
                    name: tensor.detach().cpu().clone()
                    for name, tensor in self.learner.state_dict().items()
                }
        for callback in self.point_callbacks:
            callback(point)

    def _out_of_patience(self) -> bool:
        """Return whether the scores have failed to improve for as long as the recipe waits.

        ``patience`` counts the validations since the best one, or, if ``patience_counts`` is
        ``declines``, all validations that were worse than the one before. 0 waits for ever.
        """
        if not self.section.patience or not self.curve:
            return False
        scores = [selection_key(point["score"]) for point in self.curve]
        since_best = len(scores) - 1 - scores.index(max(scores))
        declines = sum(later < earlier for earlier, later in zip(scores, scores[1:], strict=False))
        count = declines if self.section.patience_counts == "declines" else since_best
        return count >= self.section.patience

    def load(self, folder: Path) -> None:
        """Load the curve and the best weights from a checkpoint.

        Args:
            folder: The folder of the checkpoint.
        """
        record = json.loads((folder / "selection.json").read_text(encoding="utf-8"))
        self.curve = record["curve"]
        self.best = record["best"]
        self.losses.restore(record["watched"])
        # Without it no validation has chosen weights yet.
        if (folder / "best.safetensors").is_file():
            self.best_weights = load_file(folder / "best.safetensors")


def is_due(section: SelectionSection, plan: BatchPlan, step: int) -> bool:
    """Return whether a recipe validates the weights after this step of a plan.

    Args:
        section: The recipe's section ``[selection]``.
        plan: The batches of the run.
        step: The number of finished steps; 0 before the first.
    """
    if step == 0:
        return section.at_start
    per_epoch = max(1, plan.per_epoch // plan.section.accumulate)  # in steps
    steps_since_start = step % per_epoch if section.restart_each_epoch else step
    # The end is validated too if its weights are kept, or if the run is too short for another.
    at_end = section.at_end or section.keep == "last" or plan.steps < section.every
    return (
        (steps_since_start > 0 and steps_since_start % section.every == 0)
        or (section.at_epoch_end and step % per_epoch == 0)
        or (at_end and step >= plan.steps)
    )
