"""The trainers: of methods of the common loop, and of those that train themselves in rounds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast

import msgspec
import numpy as np
import transformers

from stsbench.core.cards import RecipeCard
from stsbench.core.errors import CardError, Interrupted, catch_exit, look_up
from stsbench.core.parameters import call_with_params, check_params
from stsbench.encoders.checkpoint import Checkpoint
from stsbench.encoders.runs import DEFAULTS_BY_TABLE
from stsbench.recipes.train_plan import (
    KEYS_OF_ALL_METHODS,
    TrainPlan,
    find_start,
    lines_as_documents,
    load_text,
    load_validation,
    read_columns,
)
from stsbench.recipes.trainer import TeacherEncoders, Trainer, TrainingForecast
from stsbench.training.learner import Learner, OnProgress, TrainingOutcome, Validate
from stsbench.training.loop import loop
from stsbench.training.loop.batches import BatchPlan, check_workers
from stsbench.training.loop.optimisers import OPTIMISERS, SCHEDULES
from stsbench.training.loop.selection import LoopSettings, is_validation_due
from stsbench.training.student import Student, dropout_rates
from stsbench.training.words.rounds import StandaloneMethod


@dataclass(frozen=True, kw_only=True)
class LoopTrainer(Trainer):
    """A learner of the common loop, with its corpus."""

    learner: Learner
    validate: Validate
    started: float
    """The time when preparation began, from which the record's seconds count."""
    workers: int = 0
    """The number of processes that make batches ahead."""

    @classmethod
    def check(cls, plan: TrainPlan, method: type[Learner]) -> dict[str, Any]:
        """Check a recipe's optimiser, schedule and method parameters, and return the parameters.

        Args:
            plan: The plan of the training, with the recipe as its ``card``.
            method: The class of the method.

        Returns:
            The arguments of the method by name, converted to their types. ``student``, the encoder
            to train, is None, as it is not loaded yet.

        Raises:
            UnknownName: There is no such optimiser or schedule.
            CardError: A parameter does not exist or has a value that is not valid.
        """
        # Only checks: they raise UnknownName.
        look_up("optimiser", plan.card.training.optimiser, OPTIMISERS)
        look_up("schedule", plan.card.training.schedule, SCHEDULES)
        # The student is a parameter of every method, but no recipe sets it.
        where = f"recipe {plan.name}: [params]"
        if "student" in plan.card.params:
            raise CardError(f"{where}: 'student' is the encoder to train; leave it out")
        params = {"student": None, **plan.card.params}
        # ``other_keys`` are for messages: a wrong parameter may be a key of another table.
        return check_params(method, params, where=where, other_keys=KEYS_OF_ALL_METHODS)

    @classmethod
    def prepare(cls, plan: TrainPlan, method: type[Learner]) -> Self:
        """Load all inputs of a training by the common loop, and return its trainer.

        The inputs are the checkpoint to start from, the development split, the corpus and the
        teachers (encoders whose embeddings are learned from).

        Args:
            plan: The plan of the training.
            method: The class of the method.
        """
        started = time.perf_counter()
        # Wrong parameters are reported before anything is loaded.
        params = cls.check(plan, method)
        # It raises an error if there is no checkpoint.
        checkpoint = find_start(plan)
        # A function from an encoder to its score on the development split.
        validate = load_validation(plan)
        # An instance of the method, with the encoder to train as its ``student``.
        learner = make_learner(plan, method, params, checkpoint)
        # The number of processes that make batches ahead; CardError if the method cannot have any.
        workers = check_workers(plan.workers, learner, ranks=plan.processes.ranks)
        corpus = load_text(plan)
        # ``needs`` are the columns that the method reads.
        if "document" in learner.needs:
            # Each line of a plain text becomes a document; other corpora stay as they are.
            corpus = lines_as_documents(corpus)
        # Raises an error if the corpus lacks a column.
        corpus.require(*learner.needs)
        teachers = TeacherEncoders.find(learner.teachers, plan.catalogue)
        # Gives the method these columns by name, to store or to compute from.
        learner.prepare(read_columns(corpus, learner.needs))
        return cls(
            plan=plan,
            learner=learner,
            corpus=corpus,
            validate=validate,
            base=checkpoint,
            started=started,
            teachers=teachers,
            device=str(learner.student.device),
            workers=workers,
        )

    @property
    def batches(self) -> BatchPlan:
        """The batches of the whole run on one device."""
        return BatchPlan(
            section=self.plan.card.training, n_rows=len(self.corpus), seed=self.plan.seed
        )

    @property
    def n_validations(self) -> int:
        """The number of times that the weights are validated in a whole run.

        The recipe's table ``[selection]`` decides after which steps: every so many (``every``), and
        perhaps before the first step, at the end of each epoch and after the last step.
        """
        selection = self.plan.card.selection
        batch_plan = self.batches
        # Step 0 is before the first step.
        steps = range(batch_plan.steps + 1)
        return sum(is_validation_due(selection, batch_plan, step) for step in steps)

    def train(self, on_progress: OnProgress) -> TrainingOutcome:
        """Train by the common loop, and write the encoder with the selected weights.

        Args:
            on_progress: Called with the progress after every step.

        Returns:
            The curve of validations, the point of it whose weights were selected, the number of
            steps, and the seconds since preparation began.
        """
        self.embed_by_teachers()
        outcome = replace(self.run_loop(on_progress), seconds=time.perf_counter() - self.started)
        # Of several processes the first one writes.
        if self.plan.processes.rank == 0:
            # A method may train several encoders: the index of the one that scored best. The
            # point is None if nothing was validated.
            candidate = int(outcome.selected_point["candidate"]) if outcome.selected_point else 0
            self.learner.save(self.plan.folder, chosen=candidate)
        return outcome

    def embed_by_teachers(self) -> None:
        """Hand the method functions that return the teachers' embeddings of rows of the corpus.

        The embeddings are computed here, or read from the store on disk. It can take long, so it
        is done only before training, not for a forecast.
        """
        if self.learner.teachers:
            texts = self.corpus.column("text")
            self.learner.teacher_embeddings = self.teachers.embed(texts, self.plan.processes)

    def run_loop(self, on_progress: OnProgress = lambda progress: None) -> TrainingOutcome:
        """Train by the common loop; the selected weights stay in memory, no encoder is written.

        Curve and checkpoints are written into the plan's folder. Training resumes from the last
        checkpoint there, unless the plan is ``fresh``.

        Args:
            on_progress: Called with the progress after every step.

        Returns:
            The curve of validations, the point of it whose weights were selected (None without any
            validation), and the number of steps.
        """
        plan = self.plan
        processes = plan.processes
        loop_settings = LoopSettings(
            batches=replace(self.batches, rank=processes.rank, ranks=processes.ranks),
            selection=plan.card.selection,
            folder=plan.folder,
            processes=processes,
            validate=self.validate,
            on_progress=on_progress,
            checkpoint_seconds=plan.checkpoint_seconds,
            report_to=plan.report_to,
            deterministic=plan.deterministic,
            workers=self.workers,
        )
        return loop.train_learner(self.learner, loop_settings, resume=not plan.fresh)

    def forecast(self) -> TrainingForecast:
        """Return the forecast of a training: its steps, validations, parameters and time."""
        training = self.plan.card.training
        # Those of the encoder to train and of all that the method trains beside it.
        parameters = list(self.learner.parameters())
        return self.make_forecast(
            steps=self.batches.steps,
            # A step adds up the gradients of ``accumulate`` batches.
            batch_size=training.batch_size * training.accumulate,
            validations=self.n_validations,
            trained_parameters=sum(
                parameter.numel() for parameter in parameters if parameter.requires_grad
            ),
            parameters=sum(parameter.numel() for parameter in parameters),
        )


def make_learner(
    plan: TrainPlan, method: type[Learner], params: Mapping[str, Any], checkpoint: Checkpoint
) -> Learner:
    """Load the encoder to train, the student, make the method with it, and check that it can train.

    All random generators are seeded with the plan's seed first.

    Args:
        plan: The plan of the training, with the recipe as its ``card``.
        method: The class of the method.
        params: The method's own parameters, checked already.
        checkpoint: The checkpoint that the student starts from.

    Raises:
        CardError: The method needs dropout and the checkpoint has none, or a parameter is not
            valid.
    """
    card = plan.card
    transformers.set_seed(plan.seed)
    student = Student(
        checkpoint,
        section=card.student,
        start=card.base,
        validation_pooling=card.selection.validation_pooling,
        # Whether the method trains a masked language model too, for which a head is loaded.
        language_model=method.needs_language_model(card.params),
        device=plan.processes.device,
    )
    # A method of a user might end the program; then an error of one line is raised instead.
    with catch_exit(f"recipe {plan.name}: [params]"):
        learner = method(**{**params, "student": student})
    # The rates of all dropouts in the model's configuration, by name; true if any is not 0.
    has_dropout = any(dropout_rates(student.model.config.to_dict()).values())
    # ``views_by_dropout``: the method embeds a sentence twice, and only dropout makes a difference.
    if learner.views_by_dropout and card.student.dropout is None and not has_dropout:
        raise CardError(
            f"recipe {plan.name}: {checkpoint.folder} has no dropout, "
            "by which alone a sentence's two views differ; "
            "give `params=dropout=0.1`, or `params=dropout=0` if that is meant"
        )
    # Raises CardError for a setting of ``[training]`` that the method or the model cannot have.
    loop.check_training_settings(learner, card.training)
    return learner


KEYS_USED_IN_ROUNDS: Mapping[str, Sequence[str]] = {
    "base": ["note"],
    "student": [],
    "training": ["batch_size", "learning_rate", "epochs", "steps"],
    "selection": ["every", "task", "split", "keep"],
}
"""The keys of these tables that apply to a method in rounds; the others are for the common loop."""


@dataclass(frozen=True, kw_only=True)
class RoundsTrainer(Trainer):
    """A method with a training of its own; it starts from nothing, and learns from text only."""

    training: StandaloneMethod
    """The method, made with the recipe's values."""
    columns: Mapping[str, Sequence[Any]]
    """All columns of the corpus by name."""

    @classmethod
    def check(cls, plan: TrainPlan, method: Callable[..., StandaloneMethod]) -> None:
        """Check the recipe's values by making the method with them."""
        make_training(plan.name, plan.card, method)

    @classmethod
    def prepare(cls, plan: TrainPlan, method: Callable[..., StandaloneMethod]) -> Self:
        """Load the inputs of a method that trains itself in rounds, and return its trainer.

        The inputs are the corpus and the development split.

        Args:
            plan: The plan of the training.
            method: The class of the method.

        Returns:
            The trainer. It validates only if the recipe keeps the best encoder; one that keeps the
            last encoder has nothing to choose.
        """
        cls._check_settings(plan)
        training = make_training(plan.name, plan.card, method)
        # A function from an encoder to its score on the development split. The split is loaded even
        # if it is not used, so that the error for a missing split does not depend on that.
        validate = load_validation(plan)
        corpus = load_text(plan)
        # Raises an error if the corpus lacks a column that the method needs.
        corpus.require(*training.needs)
        # All columns: besides those it needs, a method may read optional ones if they are there.
        columns: dict[str, Sequence[Any]] = {}
        for name, values in read_columns(corpus, corpus.columns).items():
            columns[name] = values.tolist() if isinstance(values, np.ndarray) else list(values)
        return cls(
            plan=plan,
            training=training,
            corpus=corpus,
            columns=columns,
            validate=validate if plan.card.selection.keep == "best" else None,
        )

    @classmethod
    def _check_settings(cls, plan: TrainPlan) -> None:
        """Check that a plan has no setting without effect on a method that trains itself.

        Such a method starts from nothing, and trains in rounds, on the CPU and in one process.

        Args:
            plan: The plan of the training.

        Raises:
            CardError: The plan has such a setting, for example a checkpoint to start from.
        """
        subject = f"recipe {plan.name}: method '{plan.card.method}'"
        if plan.base:
            raise CardError(f"{subject} starts from nothing; leave out `base`")
        # Settings that only the common training loop reads, and whether they differ from their
        # defaults. ``cls.device`` is "cpu".
        is_set = {
            "device": plan.device not in ("auto", cls.device),
            "checkpoint_seconds": plan.checkpoint_seconds != TrainPlan.checkpoint_seconds,
            "report_to": bool(plan.report_to),
            "workers": bool(plan.workers),
        }
        for parameter, is_parameter_set in is_set.items():
            if is_parameter_set:
                raise CardError(
                    f"{subject} trains itself, on the CPU and in rounds; leave out `{parameter}`"
                )
        if plan.processes.ranks > 1:
            raise CardError(
                f"{subject} trains itself, in one process; start no more, by torchrun or `devices`"
            )

    def train(self, on_progress: OnProgress) -> TrainingOutcome:
        """Train in rounds, and write the encoder after each round with the best score so far.

        If nothing is scored, the encoder is written after every round.

        Args:
            on_progress: Called with the progress after every step and round.

        Returns:
            The curve, the point whose weights were selected, the number of steps, and the seconds.

        Raises:
            Interrupted: The user pressed Ctrl-C.
        """
        plan = self.plan
        started = time.perf_counter()
        try:
            # It trains, and writes the encoder and the checkpoints into the folder.
            outcome = self.training.fit(
                self.columns,
                folder=plan.folder,
                seed=plan.seed,
                validate=self.validate,
                on_progress=on_progress,
                resume=not plan.fresh,
            )
        except KeyboardInterrupt as interrupt:
            raise Interrupted(
                "stopped; to resume from the last validation, run it again without `fresh`"
            ) from interrupt
        return replace(outcome, seconds=time.perf_counter() - started)

    def forecast(self) -> TrainingForecast:
        """Return the forecast of a training: its steps, validations, parameters and time.

        To count them, the method reads the corpus and draws its first weights.
        """
        prepared = self.training.prepare(self.columns, self.plan.seed)
        # At most as many as the recipe's ``steps``, if it sets these.
        n_steps = prepared.total_steps(self.training.epochs)
        n_validations = 0
        if self.validate:
            # The interval is in steps; 0 if the method has none: then there is one validation per
            # epoch. One more comes before the first step.
            interval = prepared.validation_interval or prepared.steps_per_epoch
            n_validations = 1 + math.ceil(n_steps / interval)
        # All weights of such a method are trained.
        n_parameters = sum(tensor.numel() for tensor in prepared.trained_tensors.values())
        return self.make_forecast(
            steps=n_steps,
            batch_size=self.training.batch_size,
            validations=n_validations,
            trained_parameters=n_parameters,
            parameters=n_parameters,
        )


def make_training(name: str, card: RecipeCard, method: Callable[..., Any]) -> StandaloneMethod:
    """Make an instance of a method that trains itself, with a recipe's values as its parameters.

    The parameters are the table ``[params]`` of the recipe, and some values of other tables, such
    as the batch size, if the method has a parameter of that name.

    Args:
        name: The recipe's name, for messages.
        card: The recipe.
        method: The class of the method, a dataclass.

    Raises:
        CardError: A value has no effect on the method, or is not valid.
    """
    where = f"recipe {name}"
    # The recipe as a dict of dicts, by table and key.
    tables = msgspec.to_builtins(card)
    _check_no_loop_values(tables, where)
    # By table and key: the values outside ``[params]`` that may be parameters of such a method.
    values = {("training", key): tables["training"][key] for key in KEYS_USED_IN_ROUNDS["training"]}
    values["selection", "every"] = card.selection.every
    parameters = {parameter.name for parameter in fields(cast(Any, method))}
    arguments: dict[str, Any] = {}
    # A value goes to the method if it has such a parameter; otherwise any value but the default is
    # refused.
    for (table, key), value in values.items():
        if key in parameters and value is not None:
            arguments[key] = value
        elif value != DEFAULTS_BY_TABLE[table].get(key):
            raise CardError(f"{where}: [{table}] {key} is not an option of method '{card.method}'")
    epochs = arguments.get("epochs", 0.0)
    if not epochs.is_integer():
        raise CardError(
            f"{where}: [training] epochs {epochs:g}: method '{card.method}' needs a whole number"
        )
    if epochs:
        arguments["epochs"] = int(epochs)
    # Raises CardError for a parameter that the method does not have, or of a wrong type.
    training = call_with_params(
        method,
        {**arguments, **card.params},
        where=f"{where}: [params]",
        # For messages: a wrong parameter may be a key of another table.
        other_keys=KEYS_OF_ALL_METHODS,
    )
    return cast(StandaloneMethod, training)


def _check_no_loop_values(tables: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Check that the recipe of a method that trains itself has no value for the common loop only.

    A value that equals the default counts as not set. ``KEYS_USED_IN_ROUNDS`` lists the keys that
    such a method uses, for the tables base, student, training and selection.

    Args:
        tables: The recipe: for each table its values by key.
        where: The beginning of messages.

    Raises:
        CardError: A value is for the common training loop only.
    """
    for table, used_keys in KEYS_USED_IN_ROUNDS.items():
        # Keys that every recipe must set have no default, and are not in DEFAULTS_BY_TABLE.
        for key, default in DEFAULTS_BY_TABLE[table].items():
            if key not in used_keys and tables[table][key] != default:
                raise CardError(
                    f"{where}: [{table}] {key} is not an option of a method that trains itself"
                )


def effective_values(name: str, card: RecipeCard, method: Callable[..., Any]) -> dict[str, Any]:
    """Return the values of a recipe that have an effect, with the method's defaults filled in.

    So two recipes that train alike have the same values, however they are written.

    Args:
        name: The recipe's name, for messages.
        card: The recipe, of a method that trains itself.
        method: The class of the method, a dataclass.

    Returns:
        For each table of the recipe its values by key.

    Raises:
        CardError: A value has no effect on the method.
    """
    training = make_training(name, card, method)
    # All values of the method, also those that it got from other tables than ``[params]``; these
    # are moved back to their tables below.
    params = {field.name: getattr(training, field.name) for field in fields(cast(Any, training))}
    tables = cast(dict[str, Any], msgspec.to_builtins(card))
    # Such a method makes its own model: it has no settings of a student, and no checkpoint to start
    # from, only a note about that.
    del tables["student"]
    tables["base"] = {"note": card.base.note}
    tables["selection"] = {}
    # The keys are every, task, split and keep; ``every`` has no effect on some methods.
    for key in KEYS_USED_IN_ROUNDS["selection"]:
        if key != "every":
            tables["selection"][key] = getattr(card.selection, key)
        elif key in params:
            tables["selection"][key] = params.pop(key)
    tables["training"] = {
        key: params.pop(key) for key in KEYS_USED_IN_ROUNDS["training"] if key in params
    }
    tables["params"] = params
    return tables
