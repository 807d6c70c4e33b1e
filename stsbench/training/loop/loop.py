"""The loop: ``transformers.Trainer`` with our batches, our selection and checkpoints that can be trusted."""

from __future__ import annotations

import errno
import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model

from stsbench.core.cards import TrainingFacts
from stsbench.core.errors import CardError, OutputError, Stopped, TrainingError, one_line
from stsbench.core.files import write_whole
from stsbench.encoders.runs import WHOLE, last_checkpoint
from stsbench.training.loop.batches import Batches, BatchPlan, load_batches, open_batch
from stsbench.training.loop.on_cpu import speed_up
from stsbench.training.loop.optimisers import make_optimiser, make_schedule
from stsbench.training.loop.selection import CurveFile, Interrupt, Point, Run, Selection
from stsbench.training.seams import Batch, Learner
from stsbench.training.student import Student

OLD_NAME = "gradient_checkpointing_enable"


def check_step(learner: Learner, facts: TrainingFacts) -> None:
    """Refuse what the method or the model cannot be run with. Raises CardError: says which key to leave out."""
    method, model, training = type(learner).__name__, learner.student.model, learner.training
    problem = ""
    if facts.chunk is not None and not learner.chunks:
        raise CardError(
            f"[training] chunk: {method}'s loss is not a function of embeddings alone; leave it out, or use "
            "checkpointing = true"
        )
    if facts.checkpointing and not model.supports_gradient_checkpointing:
        problem = f"{type(model).__name__} has no layers to compute again"
    elif facts.checkpointing and not learner.train().student.model.training:
        problem = f"{method} runs its model as in tests, which keeps all"
    learner.train(training)
    if problem:
        raise CardError(f"[training] checkpointing: {problem}; leave it out")


def prepare_step(learner: Learner, facts: TrainingFacts) -> None:
    """Set a learner up for the steps of a recipe; raises as :func:`check_step`."""
    check_step(learner, facts)
    for student in (module for module in learner.modules() if isinstance(module, Student)):
        student.chunk = facts.chunk
        # Asked once, of the model as it is loaded; a compiled one would be compiled again for the question.
        _ = student.backbone.minds_padding
        if facts.checkpointing:
            # One method under two names; the older one is soon gone.
            new = getattr(student.model, "activation_checkpointing_enable", None)
            (new or getattr(student.model, OLD_NAME))({"use_reentrant": False})
        if facts.compile:
            # For batches of any size; weights keep their names.
            student.model.compile(dynamic=True)
            student.compiled = True
    speed_up(learner, compiled=facts.compile)


REPORTS = "reports"
"""Where TensorBoard's files lie in a run's folder, unless ``TENSORBOARD_LOGGING_DIR`` says so."""
LOG_EVERY = 10


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """How a run went: the curve, and which point of it was kept."""

    curve: list[dict[str, Any]] = field(default_factory=list)
    chosen: dict[str, float] | None = None
    steps: int = 0
    seconds: float = 0.0
    """That the whole training took, where a trainer counts them."""


def train_learner(learner: Learner, run: Run, *, resume: bool = False) -> TrainingOutcome:
    """Train, and leave the learner with the weights that selection keeps.

    ``resume`` from the folder's last complete checkpoint, or start from the beginning where there is none. Raises
    TrainingError: the loss is not finite; says what was kept; OutputError: a checkpoint cannot be written; Stopped: by
    Ctrl-C, after the step under way and with a checkpoint.
    """
    place, interrupt = run.place, Interrupt(alone=run.place.ranks == 1)
    plan = BatchPlan(run.training, run.rows, run.seed, place.rank, place.ranks)
    selection = Selection(learner, run, plan, interrupt)
    checkpoint = last_checkpoint(run.folder) if resume else None
    if checkpoint is not None:
        with _reading(checkpoint):
            selection.load(checkpoint)
    elif place.rank == 0:
        shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)
    place.wait()
    if place.rank == 0:
        selection.on_point.append(CurveFile(run.folder, selection.curve).add)
    prepare_step(learner, run.training)
    try:
        trainer = Loop(learner, run, plan, selection)
    except (RuntimeError, ValueError) as error:
        # Raised where a logger that was asked for is unknown or not installed.
        if not run.report_to:
            raise
        raise TrainingError(f"--report-to {', '.join(run.report_to)}: {one_line(error)}") from error
    with _quiet(), _one_line_errors(run.folder), interrupt:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if selection.interrupted(trainer.state.global_step):
        raise Stopped(
            f"stopped after step {trainer.state.global_step} of {plan.steps}; to resume, run it again without --fresh"
        )
    if selection.best_weights is not None:
        learner.load_state_dict(selection.best_weights)
    return TrainingOutcome(curve=selection.curve, chosen=selection.kept, steps=trainer.state.global_step)


class Loop(transformers.Trainer):  # type: ignore[misc]
    """The library's loop with our batches, optimiser, checkpoints and a check of the loss."""

    def __init__(self, learner: Learner, run: Run, plan: BatchPlan, selection: Selection) -> None:
        """Set the library up; nothing runs yet."""
        self.run, self.selection = run, selection
        on_cpu = learner.student.device.type == "cpu"
        if on_cpu and run.training.precision == "float16":
            raise CardError("[training] precision 'float16' needs a GPU; on a CPU pass --set precision=bfloat16")
        arguments = transformers.TrainingArguments(
            output_dir=str(run.folder / "checkpoints"),
            per_device_train_batch_size=run.training.batch_size,
            gradient_accumulation_steps=run.training.accumulate,
            max_steps=plan.steps,
            learning_rate=run.training.learning_rate,
            max_grad_norm=run.training.clip,
            bf16=run.training.precision == "bfloat16",
            fp16=run.training.precision == "float16",
            save_strategy="no",
            save_total_limit=2,
            logging_steps=LOG_EVERY,
            logging_nan_inf_filter=False,
            report_to=list(run.report_to) or "none",
            run_name=f"{run.folder.parent.name}/{run.folder.name}",
            seed=run.seed,
            full_determinism=run.deterministic,
            use_cpu=on_cpu,
            dataloader_pin_memory=not on_cpu,
            remove_unused_columns=False,
            disable_tqdm=True,
            ddp_find_unused_parameters=True,
        )
        take_one_device(arguments)
        super().__init__(model=learner, args=arguments, train_dataset=Batches(learner, plan), callbacks=[selection])
        self.remove_callback(transformers.trainer_callback.PrinterCallback)
        for callback in self.callback_handler.callbacks:
            # The usual place is among the checkpoints, which are deleted when the run is done.
            if getattr(callback, "logging_dir", "") is None:
                callback.logging_dir = str(run.folder / REPORTS)
        self.model_accepts_loss_kwargs = False
        if run.report_to:
            selection.on_point.append(self.report)

    def report(self, point: Point) -> None:
        """Send a validation to the loggers; loss, gradient norm and rate the library sends itself."""
        sent = ("step", "candidate", "loss", "gradient_norm", "rate")
        names = {name: f"eval_{name}" for name in ("score", "alignment", "uniformity")}
        self.log({names.get(name, name): value for name, value in point.items() if name not in sent})

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:  # noqa: ANN401 - the library's
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self.selection.losses.watch_norm(torch.as_tensor(norm).detach())
        self.selection.rate = {"rate": self._get_learning_rate()}
        return norm

    def get_train_dataloader(self) -> Any:  # noqa: ANN401 - the library's
        """Batches come whole and in order; each rank makes its own."""
        return load_batches(self.train_dataset, workers=self.run.workers, pin=self.args.dataloader_pin_memory)

    def _prepare_inputs(self, inputs: Batch) -> Batch:
        """As the library's, but the GPU is not waited for."""
        return open_batch(inputs, self.args.device)

    def create_optimizer(self, model: Any = None) -> Any:  # noqa: ANN401 - the library's
        """The recipe's optimiser."""
        if getattr(self, "optimizer", None) is None:
            self.optimizer: Any = make_optimiser(self.model, self.run.training)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:  # noqa: ANN401
        """The recipe's schedule."""
        if getattr(self, "lr_scheduler", None) is None:
            schedule = make_schedule(self.run.training, num_training_steps)
            self.lr_scheduler: Any = torch.optim.lr_scheduler.LambdaLR(optimizer or self.optimizer, schedule)
        return self.lr_scheduler

    def compute_loss(self, model: Any, inputs: Any, *unused: Any, **also_unused: Any) -> torch.Tensor:  # noqa: ANN401
        """The method's loss, which must be finite."""
        losses: dict[str, torch.Tensor] = model(**inputs)
        seen = {name: value.detach() for name, value in losses.items()}
        self.selection.losses.watch(seen, step=self.state.global_step + 1)
        return losses["loss"]

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ANN401
        """Weights as safetensors, tied ones once."""
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self.model, str(folder / "learner.safetensors"))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:  # noqa: ANN401
        with _reading(Path(resume_from_checkpoint)):
            load_model(self.model, str(Path(resume_from_checkpoint) / "learner.safetensors"), strict=False)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with _reading(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with _reading(checkpoint):
            super()._load_rng_state(checkpoint)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:  # noqa: ANN401 - the library's
        """Write a checkpoint, and then that it is whole."""
        self.selection.losses.read()
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            self.selection.save(folder)
            write_whole(folder / WHOLE, json.dumps({"step": self.state.global_step}).encode())


def take_one_device(arguments: Any) -> None:  # noqa: ANN401 - transformers is untyped
    """Keep the library from spreading one process's batch over all GPUs it sees: each part would be its own negatives.

    So it was with SimCSE's code (its issue 23). Several devices are for several processes, by torchrun.
    """
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1


@contextmanager
def _reading(checkpoint: Path | str | None) -> Iterator[None]:
    """Report a checkpoint that was damaged after it was written in one line; training never starts anew unasked."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, UnpicklingError, SafetensorError) as error:
        raise TrainingError(
            f"{checkpoint}: cannot be read: {one_line(error)[:200]}; move it away to resume from the checkpoint before "
            "it, or pass --fresh to train again"
        ) from error


@contextmanager
def _one_line_errors(folder: Path) -> Iterator[None]:
    """Report a disk that is full in one line."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        text = one_line(error)
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in text
        if not full and "file write failed" not in text and "unexpected pos" not in text:
            raise
        kept = last_checkpoint(folder)
        raise OutputError(
            f"{folder}: the disk is full ({kept.name if kept else 'nothing'} is kept); free some space and run it "
            "again without --fresh"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's advice on things that are as we want them from the user."""
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
