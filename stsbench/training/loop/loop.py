"""The training loop: ``transformers.Trainer`` with our batches, checkpoints and checks.

Losses, validations and the decision when to stop are in
:mod:`stsbench.training.loop.selection`.
"""

from __future__ import annotations

import errno
import shutil
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from types import FrameType
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model

from stsbench.core.cards import TrainingSection
from stsbench.core.errors import CardError, Interrupted, OutputError, StsbenchNotice, TrainingError
from stsbench.core.wording import as_one_line
from stsbench.encoders.runs import find_last_checkpoint
from stsbench.encoders.transformer.cpu_kernels import SUPPORTED_TYPES
from stsbench.training.learner import (
    Batch,
    Learner,
    Point,
    TrainingOutcome,
    check_losses,
    open_curve,
)
from stsbench.training.loop.batches import Batches, load_batches, receive_batch
from stsbench.training.loop.gather import has_many_ranks
from stsbench.training.loop.on_cpu import speed_up
from stsbench.training.loop.optimisers import make_optimiser, make_schedule
from stsbench.training.loop.selection import LoopSettings, Selection
from stsbench.training.student import Student


def check_training_settings(learner: Learner, section: TrainingSection) -> None:
    """Check that the method and the model can be trained with the settings of a recipe.

    Args:
        learner: The method; its attribute ``student`` is the encoder that is trained.
        section: The recipe's section ``[training]``.

    Raises:
        CardError: They cannot; the message names the key to leave out.
    """
    method_name = type(learner).__name__
    model = learner.student.model
    # ``batch_negatives`` names the batch whose other sentences are a sentence's negatives: that of
    # all processes (``joint``) or of its own; it is empty if there are no such negatives. A batch
    # of one row has negatives only if they come from other processes too.
    has_joint_negatives = learner.batch_negatives == "joint" and has_many_ranks()
    if section.batch_size < 2 and learner.batch_negatives and not has_joint_negatives:
        raise CardError(
            "[training] batch_size 1: a sentence's negatives are the others of its batch; "
            "give 2 or more"
        )
    was_training = learner.training
    # A method may keep its model in torch's evaluation mode even when it is itself trained.
    keeps_evaluation_mode = not learner.train().student.model.training
    # Undo the ``train()`` above; loaded models, in evaluation mode, get the method's mode too.
    learner.train(was_training)
    problem = ""
    # ``chunks``: whether the method's loss can be computed from parts of a batch.
    if section.chunk and not learner.chunks:
        problem = (
            f"chunk: {method_name}'s loss is not a function of embeddings alone "
            "(checkpointing = true saves memory too)"
        )
    elif section.checkpointing and not model.supports_gradient_checkpointing:
        problem = f"checkpointing: {type(model).__name__} has no layers to compute again"
    elif section.checkpointing and keeps_evaluation_mode:
        # In evaluation mode layers store their activations even with checkpointing.
        problem = f"checkpointing: {method_name} runs its model as in tests, which keeps all"
    if problem:
        raise CardError(f"[training] {problem}; leave it out")


def prepare_learner(learner: Learner, section: TrainingSection) -> None:
    """Apply a recipe's chunks, gradient checkpointing and compilation to a method, in place.

    On a CPU its modules are replaced by faster ones too.

    Args:
        learner: The method; a student is an encoder that it trains, and all its students get the
            settings.
        section: The recipe's section ``[training]``.

    Raises:
        CardError: The method or its model cannot be trained with these settings.
    """
    check_training_settings(learner, section)
    students = [module for module in learner.modules() if isinstance(module, Student)]
    for student in students:
        # The maximum number of texts in the model at once; None for the whole batch.
        student.chunk = section.chunk
        # This cached property, whether padding changes embeddings, runs the model. It is read only
        # to be computed now, before the model is compiled: the compiled model would be compiled
        # once more for the shapes of that run.
        _ = student.backbone.depends_on_padding
        if section.checkpointing:
            # The library has the method under a new and an old name; old versions lack the new one.
            enable_checkpointing = getattr(student.model, "activation_checkpointing_enable", None)
            if enable_checkpointing is None:
                enable_checkpointing = student.model.gradient_checkpointing_enable
            enable_checkpointing({"use_reentrant": False})
        if section.compile:
            # In place, for batches of any size; the weights keep their names.
            student.model.compile(dynamic=True)
            student.compiled = True
    speed_up(learner, precision=getattr(torch, section.precision), compiled=section.compile)


REPORTS_FOLDER = "reports"
"""The folder of TensorBoard's files in a run's folder; ``TENSORBOARD_LOGGING_DIR`` overrides it."""


def train_learner(
    learner: Learner, settings: LoopSettings, *, resume: bool = False
) -> TrainingOutcome:
    """Train a method, and leave it with the selected weights: the best ones, or the last.

    The curve (the numbers of each validation) and the checkpoints are written into the run's
    folder; without ``resume`` older checkpoints are deleted first.

    Args:
        learner: The method to train, changed in place.
        settings: The settings of the loop: the batches, the folder, the processes that train
            together, when to validate, and which weights to keep.
        resume: Continue from the folder's last complete checkpoint, if there is one.

    Returns:
        The outcome: the curve, the point of it whose weights are kept (None without any
        validation), and the number of steps.

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
            selection.restore_from(checkpoint)
    # Of several processes the first (rank 0) writes and deletes all files.
    elif processes.rank == 0:
        shutil.rmtree(settings.folder / "checkpoints", ignore_errors=True)
    processes.wait()
    if processes.rank == 0:
        selection.point_callbacks.append(open_curve(settings.folder, selection.curve))
    prepare_learner(learner, plan.section)
    trainer = _make_loop(learner, settings, selection)
    with (
        _silence_library(),
        _report_full_disk(settings.folder),
        interruptible(selection.stop_requested, alone=processes.ranks == 1),
    ):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    step = trainer.state.global_step
    # True if the user requested a stop before the last step.
    if selection.stops_before_end(step):
        raise Interrupted(
            f"stopped after step {step} of {plan.steps}; to resume, run it again without `fresh`"
        )
    # None if the recipe keeps the last weights, which the learner has already.
    if selection.best_weights is not None:
        learner.load_state_dict(selection.best_weights)
    last_point = selection.curve[-1] if selection.curve else None
    return TrainingOutcome(
        curve=selection.curve,
        selected_point=selection.best if settings.selection.keep == "best" else last_point,
        steps=step,
    )


def _make_loop(learner: Learner, settings: LoopSettings, selection: Selection) -> Loop:
    """Make the training loop, a trainer of the library transformers.

    Args:
        learner: The method to train.
        settings: The settings of the loop; ``report_to`` names loggers such as TensorBoard.
        selection: The callback that validates, records and saves.

    Raises:
        TrainingError: A logger is unknown or not installed.
    """
    try:
        return Loop(learner, settings, selection)
    except (RuntimeError, ValueError) as error:
        # The library raises these for a logger that it cannot make; without loggers the error has
        # another cause.
        if not settings.report_to:
            raise
        raise TrainingError(
            f"`report_to={', '.join(settings.report_to)}`: {as_one_line(error)}"
        ) from error


class Loop(transformers.Trainer):  # type: ignore[misc]
    """The library's loop with our batches, optimiser, checkpoints and a check of the loss."""

    def __init__(self, learner: Learner, settings: LoopSettings, selection: Selection) -> None:
        """Configure the trainer of the library transformers with our batches, optimiser, schedule.

        No step is taken yet.

        Args:
            learner: The method to train; its ``student`` is the encoder in training.
            settings: The settings of the loop; ``batches`` is the plan of the batches, with the
                recipe's section ``[training]``.
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
        has_bfloat16 = not on_cpu or SUPPORTED_TYPES[torch.bfloat16]()
        if section.precision == "bfloat16" and not has_bfloat16:
            warnings.warn(
                "this processor has no fast bfloat16, in which the recipe trains: "
                "`params=precision=float32` is several times as fast",
                StsbenchNotice,
                stacklevel=2,
            )
        training_arguments = _make_training_arguments(settings, on_cpu=on_cpu)
        # The library would spread a batch over all GPUs.
        use_single_device(training_arguments)
        optimiser = make_optimiser(learner, section)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, make_schedule(section, plan.steps))
        super().__init__(
            model=learner,
            args=training_arguments,
            train_dataset=Batches(learner, plan),
            optimizers=(optimiser, schedule),
            callbacks=[selection],
        )
        # This callback would print the library's log.
        self.remove_callback(transformers.trainer_callback.PrinterCallback)
        for callback in self.callback_handler.callbacks:
            # A logger that writes into a folder has the attribute ``logging_dir``; None is the
            # library's default, a folder among the checkpoints, which are deleted at the end.
            if getattr(callback, "logging_dir", "") is None:
                callback.logging_dir = str(settings.folder / REPORTS_FOLDER)
        # With False the library divides a loss by the number of accumulated batches.
        self.model_accepts_loss_kwargs = False
        if settings.report_to:
            # Called with the numbers of each validation.
            selection.point_callbacks.append(self.log_validation)

    def log_validation(self, point: Point) -> None:
        """Send the numbers of a validation to the loggers, such as TensorBoard.

        Measures of validation get the prefix ``eval_``; the parts of the loss keep their names. The
        step, the loss, the norm of the gradient and the learning rate are omitted, because the
        library sends them itself; so is ``candidate``, the index of the best of a method's
        encoders.

        Args:
            point: The numbers by name.
        """
        omitted_names = ("step", "candidate", "loss", "gradient_norm", "rate")
        validation_names = ("score", "alignment", "uniformity")
        logged_numbers = {}
        for name, value in point.items():
            if name not in omitted_names:
                prefix = "eval_" if name in validation_names else ""
                logged_numbers[prefix + name] = value
        self.log(logged_numbers)

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
        return receive_batch(inputs, self.args.device)

    def compute_loss(
        self,
        model: Any,  # noqa: ANN401
        inputs: Any,  # noqa: ANN401
        *unused: Any,  # noqa: ANN401
        **also_unused: Any,  # noqa: ANN401
    ) -> torch.Tensor:  # noqa: ANN401
        """Return the method's loss for a batch, and record it with the losses that it sums.

        The library's trainer calls this, and computes the gradient of what is returned.

        Args:
            model: The method, perhaps wrapped by the library.
            inputs: A batch: tensors by name, the arguments of the method.
            unused: Further positional arguments that the library passes.
            also_unused: Further named arguments that the library passes.

        Raises:
            TrainingError: The method returns no valid losses, or a loss of the last batches is not
                finite; losses are read from a GPU only every few batches.
        """
        # ``self.model`` is the method without the wrapper, for messages.
        losses = check_losses(model(**inputs), self.model)
        detached_losses = {name: value.detach() for name, value in losses.items()}
        # The step of a batch is the one after all finished steps.
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
    """Translate the settings of the loop into ``TrainingArguments`` of the library transformers.

    Args:
        settings: The settings of the loop; ``batches`` is the plan of the batches, with the
            recipe's section ``[training]``.
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
        # 0: the gradient is not clipped.
        max_grad_norm=section.clip,
        bf16=section.precision == "bfloat16",
        fp16=section.precision == "float16",
        # :class:`Selection` decides when to save; loggers get the loss every ``logging_steps``.
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
    """Let the library train on one GPU per process, by changing its settings in place.

    By default it spreads a process's batch over all GPUs. A sentence would then have negatives only
    from its own part of the batch, as with SimCSE's code (its issue 23). To use several GPUs, users
    start several processes, by torchrun.

    Args:
        arguments: The library's ``TrainingArguments``.
    """
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1


@contextmanager
def _translate_checkpoint_errors(checkpoint: Path | str | None) -> Iterator[None]:
    """Raise the errors of reading a damaged checkpoint as a TrainingError of one line.

    The run then stops: it does not start again from the beginning unless the user requests that.

    Args:
        checkpoint: The folder of the checkpoint that is read within the block; None if none is.
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
        # At most 200 characters of the error.
        message = f"{checkpoint}: cannot be read: {as_one_line(error)[:200]}"
        raise TrainingError(
            f"{message}; move it away to resume from the one before it, or pass `fresh`"
        ) from error


@contextmanager
def _report_full_disk(folder: Path) -> Iterator[None]:
    """Raise a failure for want of disk space as an OutputError of one line; pass other errors on.

    Args:
        folder: The folder of the run; the message names its last checkpoint.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        error_text = as_one_line(error)
        is_disk_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        # The system's text, and two with which torch's writer fails on a full disk.
        texts_of_full_disk = ("No space left", "file write failed", "unexpected pos")
        mentions_full_disk = any(text in error_text for text in texts_of_full_disk)
        if not is_disk_full and not mentions_full_disk:
            raise
        # "nothing" if there is no checkpoint.
        checkpoint_name = getattr(find_last_checkpoint(folder), "name", "nothing")
        message = f"{folder}: the disk is full ({checkpoint_name} is kept)"
        raise OutputError(f"{message}; free some space and run it again without `fresh`") from error


@contextmanager
def _silence_library() -> Iterator[None]:
    """Hide the warnings of transformers and torch about settings that are intended here."""
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


@contextmanager
def interruptible(stop_requested: threading.Event, *, alone: bool = True) -> Iterator[None]:
    """Let the first Ctrl-C within the block set an event; the second one stops at once.

    The training loop stops after the step in which the event is set. Nothing is changed in three
    cases: Ctrl-C has another handler than Python's own; this is not the main thread; or other
    processes train along, as they would not stop together.

    Args:
        stop_requested: The event to set.
        alone: Whether no other process trains along.
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
