"""The loop: ``transformers.Trainer`` with our batches, our selection and checkpoints that can be trusted.

What is seen of a run and kept of it stands here too: losses, validations, the curve, the best weights; and when it stops.
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
from stsbench.encoders.runs import COMPLETE_FILE, last_checkpoint
from stsbench.training import learner as seams
from stsbench.training.loop.batches import Batches, BatchPlan, load_batches, open_batch
from stsbench.training.loop.gather import ProcessGroup, many_ranks
from stsbench.training.loop.on_cpu import speed_up
from stsbench.training.loop.optimisers import make_optimiser, make_schedule
from stsbench.training.student import Student


def check_step(learner: seams.Learner, facts: TrainingSection) -> None:
    """Refuse what the method or the model cannot be run with. Raises CardError: says which key to leave out."""
    method, model, training = type(learner).__name__, learner.student.model, learner.training
    if (
        facts.batch_size < 2
        and learner.batch_negatives
        and not (learner.batch_negatives == "joint" and many_ranks())
    ):
        raise CardError(
            "[training] batch_size 1: a sentence's negatives are the others of its batch; give 2 or more"
        )
    refused = {
        f"chunk: {method}'s loss is not a function of embeddings alone (checkpointing = true saves memory too)": facts.chunk
        and not learner.chunks,
        f"checkpointing: {type(model).__name__} has no layers to compute again": facts.checkpointing
        and not model.supports_gradient_checkpointing,
        f"checkpointing: {method} runs its model as in tests, which keeps all": facts.checkpointing
        and not learner.train().student.model.training,
    }
    learner.train(training)
    for problem in filter(refused.get, refused):
        raise CardError(f"[training] {problem}; leave it out")


def prepare_step(learner: seams.Learner, facts: TrainingSection) -> None:
    """Set a learner up for the steps of a recipe; raises as :func:`check_step`."""
    check_step(learner, facts)
    for student in (module for module in learner.modules() if isinstance(module, Student)):
        student.chunk = facts.chunk
        # Asked once, of the model as it is loaded; a compiled one would be compiled again for the question.
        _ = student.backbone.minds_padding
        if facts.checkpointing:
            # One method under two names; the older one is soon gone.
            new = getattr(student.model, "activation_checkpointing_enable", None)
            (new or student.model.gradient_checkpointing_enable)({"use_reentrant": False})
        if facts.compile:
            # For batches of any size; weights keep their names.
            student.model.compile(dynamic=True)
            student.compiled = True
    speed_up(learner, compiled=facts.compile)


REPORTS = "reports"
"""Where TensorBoard's files lie in a run's folder, unless ``TENSORBOARD_LOGGING_DIR`` says so."""


def train_learner(
    learner: seams.Learner, run: LoopSettings, *, resume: bool = False
) -> seams.TrainingOutcome:
    """Train, and leave the learner with the weights that selection keeps.

    ``resume`` from the folder's last complete checkpoint, or start from the beginning where there is none. Raises
    TrainingError: the loss is not finite; says what was kept; OutputError: a checkpoint cannot be written; Stopped: by
    Ctrl-C, after the step under way and with a checkpoint.
    """
    place, plan = run.place, run.batches
    selection = Selection(learner, run)
    checkpoint = last_checkpoint(run.folder) if resume else None
    if checkpoint is not None:
        with _reading(checkpoint):
            selection.load(checkpoint)
    elif place.rank == 0:
        shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)
    place.wait()
    if place.rank == 0:
        selection.point_callbacks.append(seams.open_curve(run.folder, selection.curve))
    prepare_step(learner, plan.facts)
    try:
        trainer = Loop(learner, run, selection)
    except (RuntimeError, ValueError) as error:
        # Raised where a logger that was asked for is unknown or not installed.
        if not run.report_to:
            raise
        raise TrainingError(
            f"--report-to {', '.join(run.report_to)}: {join_lines(error)}"
        ) from error
    with (
        _quiet(),
        _one_line_errors(run.folder),
        interruptible(selection.asked, alone=place.ranks == 1),
    ):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if selection.interrupted(step := trainer.state.global_step):
        raise Interrupted(
            f"stopped after step {step} of {plan.steps}; to resume, run it again without --fresh"
        )
    if selection.best_weights is not None:
        learner.load_state_dict(selection.best_weights)
    kept = selection.best if run.selection.keep == "best" else next(reversed(selection.curve), None)
    return seams.TrainingOutcome(curve=selection.curve, chosen=kept, steps=step)


class Loop(transformers.Trainer):  # type: ignore[misc]
    """The library's loop with our batches, optimiser, checkpoints and a check of the loss."""

    def __init__(self, learner: seams.Learner, run: LoopSettings, selection: Selection) -> None:
        """Set the library up; nothing runs yet."""
        self.run, self.selection = run, selection
        plan, facts = run.batches, run.batches.facts
        on_cpu = learner.student.device.type == "cpu"
        if on_cpu and facts.precision == "float16":
            raise CardError(
                "[training] precision 'float16' needs a GPU; on a CPU pass --set precision=bfloat16"
            )
        arguments = transformers.TrainingArguments(
            output_dir=str(run.folder / "checkpoints"),
            per_device_train_batch_size=facts.batch_size,
            gradient_accumulation_steps=facts.accumulate,
            max_steps=plan.steps,
            learning_rate=facts.learning_rate,
            max_grad_norm=facts.clip,
            bf16=facts.precision == "bfloat16",
            fp16=facts.precision == "float16",
            save_strategy="no",
            save_total_limit=2,
            logging_steps=10,
            logging_nan_inf_filter=False,
            report_to=list(run.report_to) or "none",
            run_name=f"{run.folder.parent.name}/{run.folder.name}",
            seed=plan.seed,
            full_determinism=run.deterministic,
            use_cpu=on_cpu,
            dataloader_pin_memory=not on_cpu,
            remove_unused_columns=False,
            disable_tqdm=True,
            ddp_find_unused_parameters=True,
        )
        use_single_device(arguments)
        optimiser = make_optimiser(learner, facts)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, make_schedule(facts, plan.steps))
        given = {"model": learner, "optimizers": (optimiser, schedule), "callbacks": [selection]}
        super().__init__(args=arguments, train_dataset=Batches(learner, plan), **given)
        self.remove_callback(transformers.trainer_callback.PrinterCallback)
        for callback in self.callback_handler.callbacks:
            # The usual place is among the checkpoints, which are deleted when the run is done.
            if getattr(callback, "logging_dir", "") is None:
                callback.logging_dir = str(run.folder / REPORTS)
        self.model_accepts_loss_kwargs = False
        if run.report_to:
            selection.point_callbacks.append(self.report)

    def report(self, point: seams.Point) -> None:
        """Send a validation to the loggers; loss, gradient norm and rate the library sends itself."""
        sent = ("step", "candidate", "loss", "gradient_norm", "rate")
        names = {name: f"eval_{name}" for name in ("score", "alignment", "uniformity")}
        self.log(
            {names.get(name, name): value for name, value in point.items() if name not in sent}
        )

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:  # noqa: ANN401 - the library's
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self.selection.losses.watch_norm(torch.as_tensor(norm).detach())
        self.selection.rate = {"rate": self._get_learning_rate()}
        return norm

    def get_train_dataloader(self) -> Any:  # noqa: ANN401 - the library's
        """Batches come whole and in order; each rank makes its own."""
        return load_batches(
            self.train_dataset, workers=self.run.workers, pin=self.args.dataloader_pin_memory
        )

    def _prepare_inputs(self, inputs: seams.Batch) -> seams.Batch:
        """As the library's, but the GPU is not waited for."""
        return open_batch(inputs, self.args.device)

    def compute_loss(
        self,
        model: Any,  # noqa: ANN401
        inputs: Any,  # noqa: ANN401
        *unused: Any,  # noqa: ANN401
        **also_unused: Any,  # noqa: ANN401
    ) -> torch.Tensor:  # noqa: ANN401
        """The method's loss, which must be finite."""
        losses = seams.check_losses(model(**inputs), self.model)
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
            load_model(self.model, str(Path(resume_from_checkpoint) / "learner.safetensors"))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with _reading(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with _reading(checkpoint):
            super()._load_rng_state(checkpoint)


def use_single_device(arguments: Any) -> None:  # noqa: ANN401 - transformers is untyped
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
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RuntimeError,
        UnpicklingError,
        SafetensorError,
    ) as error:
        what = f"{checkpoint}: cannot be read: {join_lines(error)[:200]}"
        raise TrainingError(
            f"{what}; move it away to resume from the one before it, or pass --fresh"
        ) from error


@contextmanager
def _one_line_errors(folder: Path) -> Iterator[None]:
    """Report a disk that is full in one line."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        text = join_lines(error)
        full = (
            getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space left" in text
        )
        if not full and "file write failed" not in text and "unexpected pos" not in text:
            raise
        what = f"{folder}: the disk is full ({getattr(last_checkpoint(folder), 'name', 'nothing')} is kept)"
        raise OutputError(f"{what}; free some space and run it again without --fresh") from error


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


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """All that the loop needs to know beside what is learned."""

    batches: BatchPlan
    selection: SelectionSection
    folder: Path
    place: ProcessGroup
    validate: seams.Validate | None
    on_progress: seams.OnProgress = lambda progress: None
    checkpoint_seconds: float = 120.0
    report_to: Sequence[str] = ()
    deterministic: bool = False
    workers: int = 0
    """Processes that make batches ahead."""


READ_EVERY = {"cpu": 1}
"""After so many batches their losses are read, by the kind of device; reading costs a CPU nothing."""
ELSEWHERE = 10


class LossHistory:
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
                what = (
                    f"the loss is {value} at step {step}; lower learning rate or raise temperature"
                )
                raise TrainingError(f"{what} ({last_checkpoint(self.folder) or 'nothing'} is kept)")
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
        self._watched = [
            {name: torch.tensor(value) for name, value in losses.items()} for losses in state
        ]
        self.last = state[-1]["loss"] if state else math.nan


@contextmanager
def interruptible(asked: threading.Event, *, alone: bool = True) -> Iterator[None]:
    """Take the first Ctrl-C as a wish, which sets the event and is met after the step; the second stops at once.

    Only where nothing else has taken Ctrl-C over, and in a process that trains alone: many would not stop together.
    """
    before, here = (
        signal.getsignal(signal.SIGINT),
        threading.current_thread() is threading.main_thread(),
    )
    if not alone or not here or before is not signal.default_int_handler:
        yield
        return

    def take(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, take)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Selection(transformers.TrainerCallback):  # type: ignore[misc]
    """Called by the library's loop at each step: validates, remembers the best weights, and says when to stop or save.

    The best weights are kept in memory and written with each checkpoint, so that a run resumed
    from a checkpoint knows what the run had known there, and nothing of what came after.
    """

    def __init__(self, learner: seams.Learner, run: LoopSettings) -> None:
        """Start with an empty curve."""
        self.learner, self.run, self.facts, self.plan = learner, run, run.selection, run.batches
        self.asked = threading.Event()
        """Set where the user wants it to stop."""
        self.losses = LossHistory(run.folder, learner.student.device)
        self.curve: list[dict[str, float]] = []
        self.best: dict[str, float] | None = None
        self.best_weights: dict[str, torch.Tensor] | None = None
        self.point_callbacks: list[Callable[[seams.Point], None]] = []
        """Called with each point of the curve as soon as it is there."""
        self.rate: dict[str, float] = {}
        """The learning rate of the last step."""
        self._new: seams.Point | None = None
        self._saved_at = time.monotonic()

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Validate what the run starts from, where the recipe says so."""
        if state.global_step == 0 and is_due(self.facts, self.plan, 0):
            self._look(0)
        self.report_progress(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Validate where it is due; stop when patience or the user says so; save now and then."""
        step, ended, agree = (
            state.global_step,
            state.global_step >= self.plan.steps,
            self.run.place.agree,
        )
        if ended:
            self.losses.read()
        if is_due(self.facts, self.plan, step):
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
        if control.should_save:
            self.losses.read()

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Write curve and best weights into a checkpoint, and then that it is whole."""
        if not args.should_save:
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        facts = {"curve": self.curve, "best": self.best, "watched": self.losses.state()}
        write_atomically(folder / "selection.json", json.dumps(facts).encode())
        if self.best_weights is not None:
            write_atomically(folder / "best.safetensors", save(self.best_weights))
        write_atomically(folder / COMPLETE_FILE, json.dumps({"step": state.global_step}).encode())

    def interrupted(self, step: int) -> bool:
        """Whether the user wants it to stop after this step, though it is not the last."""
        return self.asked.is_set() and step < self.plan.steps

    def report_progress(self, step: int) -> None:
        """Call who watches with the step, the loss and the scores so far."""
        score, best = (
            self.curve[-1]["score"] if self.curve else None,
            self.best["score"] if self.best else None,
        )
        seen = seams.TrainingProgress(
            step, self.plan.steps, self.losses.last, score, best, point=self._new
        )
        self._new = None
        self.run.on_progress(seen)

    def _look(self, step: int) -> None:
        if self.run.validate is None:
            return
        self.losses.read()
        scores = [self.run.validate(encoder) for encoder in self.learner.encoders()]
        score = max(scores, key=seams.selection_key)
        seen = {**self.losses.means(), **self.rate, **seams.read_measures(score)}
        point = {"step": step, "score": float(score), "candidate": scores.index(score), **seen}
        self.curve.append(point)
        self._new = point
        if self.best is None or seams.selection_key(score) > seams.selection_key(
            self.best["score"]
        ):
            self.best = point
            if self.facts.keep == "best":
                # Of tied weights each name gets a copy of its own: simple, and they load alike.
                self.best_weights = {
                    n: t.detach().cpu().clone() for n, t in self.learner.state_dict().items()
                }
        for call in self.point_callbacks:
            call(point)

    def _out_of_patience(self) -> bool:
        if not self.facts.patience or not self.curve:
            return False
        scores = [seams.selection_key(point["score"]) for point in self.curve]
        since_best = len(scores) - 1 - scores.index(max(scores))
        declines = sum(b < a for a, b in zip(scores, scores[1:], strict=False))
        return (
            declines if self.facts.patience_counts == "declines" else since_best
        ) >= self.facts.patience

    def load(self, folder: Path) -> None:
        """Read curve and best weights back from a checkpoint."""
        facts = json.loads((folder / "selection.json").read_text(encoding="utf-8"))
        self.curve, self.best = facts["curve"], facts["best"]
        self.losses.restore(facts["watched"])
        if (folder / "best.safetensors").is_file():
            self.best_weights = load_file(folder / "best.safetensors")


def is_due(facts: SelectionSection, plan: BatchPlan, step: int) -> bool:
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
