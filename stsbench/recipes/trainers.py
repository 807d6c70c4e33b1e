"""The two trainers: of methods that the common loop trains, batch by batch, and of those that train themselves in rounds."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self, cast

import msgspec
import numpy as np
import torch
import transformers

from stsbench.core.cards import RecipeCard
from stsbench.core.errors import CardError, Interrupted, catch_exit, look_up
from stsbench.core.parameters import call_with_params, check_params
from stsbench.encoders.runs import DEFAULTS_BY_TABLE
from stsbench.recipes.train import TRIED, TeacherEncoders, Trainer, TrainingForecast
from stsbench.recipes.train_plan import (
    KEYS,
    TrainPlan,
    find_start,
    lines_as_documents,
    load_text,
    load_validation,
    values_of,
)
from stsbench.training.learner import (
    Learner,
    OnProgress,
    TrainingOutcome,
    Validate,
    check_losses,
)
from stsbench.training.loop import loop
from stsbench.training.loop.batches import (
    Batches,
    BatchPlan,
    check_workers,
    load_batches,
    open_batch,
)
from stsbench.training.loop.optimisers import OPTIMISERS, SCHEDULES, make_optimiser
from stsbench.training.student import Student, dropouts
from stsbench.training.words.rounds import StandaloneMethod


@dataclass(frozen=True, kw_only=True)
class LoopTrainer(Trainer):
    """A learner that has its corpus."""

    learner: Learner
    validate: Validate
    started: float
    """When preparing began: the record's seconds count from there."""
    workers: int = 0

    @classmethod
    def check(cls, plan: TrainPlan, method: type[Learner]) -> dict[str, Any]:
        """Check and return the method's parameters, and check the names that the loop looks up."""
        look_up("optimiser", plan.card.training.optimiser, OPTIMISERS)
        look_up("schedule", plan.card.training.schedule, SCHEDULES)
        given = {"student": None, **plan.card.params}
        return check_params(method, given, where=f"recipe {plan.name}: [params]", other_keys=KEYS)

    @classmethod
    def prepare(cls, plan: TrainPlan, method: type[Learner]) -> Self:
        """Load corpus, backbone and development split, and give the learner its corpus."""
        started, card = time.perf_counter(), plan.card
        # Said before anything is loaded.
        params = cls.check(plan, method)
        checkpoint, validate = find_start(plan), load_validation(plan)
        transformers.set_seed(plan.seed)
        student = Student(
            checkpoint,
            card.student,
            card.base,
            validation_pooling=card.selection.validation_pooling,
            language_model=method.wants_language_model(card.params),
            device=plan.place.device,
        )
        with catch_exit(f"recipe {plan.name}: [params]"):
            learner = method(**{**params, "student": student})
        has_dropout = any(dropouts(student.model.config.to_dict()).values())
        if learner.views_by_dropout and card.student.dropout is None and not has_dropout:
            what = f"recipe {plan.name}: {checkpoint.folder} has no dropout, by which alone a sentence's two views differ"
            raise CardError(f"{what}; give --set dropout=0.1, or --set dropout=0 if that is meant")
        loop.check_step(learner, card.training)
        workers = check_workers(plan.workers, learner, ranks=plan.place.ranks)
        corpus = load_text(plan)
        corpus = lines_as_documents(corpus) if "document" in learner.needs else corpus
        corpus.require(*learner.needs)
        teachers = TeacherEncoders.find(learner.teachers, plan.catalogue)
        if learner.teachers:
            learner.teacher_embeddings = teachers.of(corpus.column("text"), plan.place)
        learner.prepare(values_of(corpus, learner.needs))
        made = cls(
            plan=plan,
            learner=learner,
            corpus=corpus,
            validate=validate,
            base=checkpoint,
            started=started,
        )
        return replace(made, teachers=teachers, device=str(student.device), workers=workers)

    @property
    def batches(self) -> BatchPlan:
        """The batches of the whole run on one device."""
        return BatchPlan(self.plan.card.training, len(self.corpus), self.plan.seed)

    @property
    def validations(self) -> int:
        """How often a whole run looks at the development split."""
        batches = self.batches
        return sum(
            loop.is_due(self.plan.card.selection, batches, step)
            for step in range(batches.steps + 1)
        )

    def train(self, on_progress: OnProgress) -> TrainingOutcome:
        """Run the loop, and write the encoder that selection keeps."""
        outcome = replace(self.run_loop(on_progress), seconds=time.perf_counter() - self.started)
        if self.plan.place.rank == 0:
            chosen = int(outcome.chosen["candidate"]) if outcome.chosen else 0
            self.learner.save(self.plan.folder, chosen=chosen)
        return outcome

    def run_loop(self, on_progress: OnProgress = lambda progress: None) -> TrainingOutcome:
        """Train, and leave the learner with the weights that selection keeps; no encoder is written."""
        plan = self.plan
        run = loop.LoopSettings(
            batches=BatchPlan(
                plan.card.training, len(self.corpus), plan.seed, plan.place.rank, plan.place.ranks
            ),
            selection=plan.card.selection,
            folder=plan.folder,
            processes=plan.place,
            validate=self.validate,
            on_progress=on_progress,
            checkpoint_seconds=plan.checkpoint_seconds,
            report_to=plan.report_to,
            deterministic=plan.deterministic,
            workers=self.workers,
        )
        return loop.train_learner(self.learner, run, resume=not plan.fresh)

    def forecast(self) -> TrainingForecast:
        """Take a few steps with the learner, which is not to be trained after them, and validate once."""
        learner, training, batches = self.learner, self.plan.card.training, self.batches
        step_seconds, tokens = self._try_steps(batches)
        started = time.perf_counter()
        for encoder in learner.encoders():
            self.validate(encoder)
        return self.forecast_of(
            steps=batches.steps,
            batch_size=training.batch_size * training.accumulate,
            validations=self.validations,
            tokens=round(tokens * batches.total),
            trained_parameters=sum(p.numel() for p in learner.parameters() if p.requires_grad),
            parameters=sum(p.numel() for p in learner.parameters()),
            step_seconds=step_seconds,
            validation_seconds=time.perf_counter() - started,
        )

    def _try_steps(self, plan: BatchPlan) -> tuple[float, float]:
        """Seconds a step and tokens a batch, the median and the mean of a few."""
        learner, facts = self.learner.train(), self.plan.card.training
        loop.prepare_step(learner, facts)
        device = learner.student.device
        optimiser = make_optimiser(learner, facts)
        batches = iter(
            load_batches(Batches(learner, plan), workers=self.workers, pin=device.type == "cuda")
        )
        seconds, tokens = [], []
        for _ in range(min(TRIED, plan.total)):
            started = time.perf_counter()
            batch = open_batch(next(batches), device)
            with torch.autocast(
                device.type, getattr(torch, facts.precision), enabled=facts.precision != "float32"
            ):
                loss: Any = check_losses(learner(**batch), learner)["loss"]
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - started)
            tokens.append(_count_tokens(batch))
        return float(np.median(seconds)) * facts.accumulate, float(np.mean(tokens))


def _count_tokens(batch: Any) -> int:  # noqa: ANN401 - a batch
    if not isinstance(batch, dict):
        return 0
    return sum(
        int(part.sum()) if name == "attention_mask" else _count_tokens(part)
        for name, part in batch.items()
    )


TAKEN: Mapping[str, Sequence[str]] = {
    "base": ["note"],
    "student": [],
    "training": ["batch_size", "learning_rate", "epochs", "steps"],
    "selection": ["every", "task", "split", "keep"],
}
"""The keys of these tables that such a method takes; what else there is belongs to the common loop."""


@dataclass(frozen=True, kw_only=True)
class RoundsTrainer(Trainer):
    """A method with a training of its own; it starts from nothing, and learns from its text alone."""

    training: StandaloneMethod
    columns: Mapping[str, Sequence[Any]]

    @classmethod
    def check(cls, plan: TrainPlan, method: Callable[..., StandaloneMethod]) -> None:
        """Make the method with the recipe's values."""
        make_training(plan.name, plan.card, method)

    @classmethod
    def prepare(cls, plan: TrainPlan, method: Callable[..., StandaloneMethod]) -> Self:
        """Load text and development split, and give the method the recipe's values."""
        method_of = f"recipe {plan.name}: method '{plan.card.method}'"
        if plan.base:
            raise CardError(f"{method_of} starts from nothing; leave out --base")
        idle = {
            "--device": plan.device not in ("auto", cls.device),
            "--checkpoint-seconds": plan.checkpoint_seconds != TrainPlan.checkpoint_seconds,
            "--report-to": plan.report_to,
            "--workers": plan.workers,
        }
        for option in filter(idle.get, idle):
            raise CardError(
                f"{method_of} trains itself, on the CPU and in rounds; leave out {option}"
            )
        if plan.place.ranks > 1:
            raise CardError(
                f"{method_of} trains itself, in one process; start no more, by torchrun or --devices"
            )
        training = make_training(plan.name, plan.card, method)
        validate, corpus = load_validation(plan), load_text(plan)
        corpus.require(*training.needs)
        # What a method reads beside what it needs is its own choice.
        found = values_of(corpus, corpus.columns)
        columns = {
            n: v.tolist() if isinstance(v, np.ndarray) else list(v) for n, v in found.items()
        }
        scored = validate if plan.card.selection.keep == "best" else None
        return cls(plan=plan, training=training, corpus=corpus, columns=columns, validate=scored)

    def train(self, on_progress: OnProgress) -> TrainingOutcome:
        """Train; the encoder is written at every round that is the best so far."""
        plan, started = self.plan, time.perf_counter()
        options: Any = {
            "folder": plan.folder,
            "seed": plan.seed,
            "validate": self.validate,
            "on_progress": on_progress,
        }
        try:
            outcome = self.training.fit(self.columns, **options, resume=not plan.fresh)
        except KeyboardInterrupt as stop:
            raise Interrupted(
                "stopped; to resume from the last validation, run it again without --fresh"
            ) from stop
        return replace(outcome, seconds=time.perf_counter() - started)

    def forecast(self) -> TrainingForecast:
        """Take a few steps, and write and validate the encoder once in a folder that is thrown away."""
        torch.manual_seed(self.plan.seed)
        lesson = self.training.prepare(self.columns, self.plan.seed)
        planned = lesson.planned(self.training.epochs)
        ticks = [time.perf_counter()]
        for step, batch in enumerate(islice(lesson.batches(), min(TRIED, planned))):
            lesson.learn(batch, step)
            ticks.append(time.perf_counter())
        with tempfile.TemporaryDirectory() as folder:
            lesson.score(Path(folder), self.validate)
        validation = time.perf_counter() - ticks[-1]
        parameters = sum(tensor.numel() for tensor in lesson.tensors.values())
        return self.forecast_of(
            steps=planned,
            batch_size=self.plan.card.training.batch_size,
            # One more before the first step.
            validations=1 + math.ceil(planned / (lesson.every or lesson.steps))
            if self.validate
            else 0,
            tokens=round(lesson.tokens * planned / max(lesson.steps, 1)),
            trained_parameters=parameters,
            parameters=parameters,
            step_seconds=float(np.median(np.diff(ticks))),
            validation_seconds=validation,
        )


def make_training(name: str, card: RecipeCard, method: Callable[..., Any]) -> StandaloneMethod:
    """Make a method with a recipe's values. Raises CardError: a value that the method does not take."""
    where, facts = f"recipe {name}", msgspec.to_builtins(card)
    for table, allowed in TAKEN.items():
        for key, usual in DEFAULTS_BY_TABLE[table].items():
            # It would do nothing.
            if key not in allowed and facts[table][key] != usual:
                raise CardError(
                    f"{where}: [{table}] {key} is not an option of a method that trains itself"
                )
    given = {("training", key): facts["training"][key] for key in TAKEN["training"]}
    given["selection", "every"] = card.selection.every
    known, chosen = {field.name for field in fields(cast(Any, method))}, dict[str, Any]()
    for (table, key), value in given.items():
        if key in known and value is not None:
            chosen[key] = value
        elif value != DEFAULTS_BY_TABLE[table].get(key):
            raise CardError(f"{where}: [{table}] {key} is not an option of method '{card.method}'")
    if not (epochs := chosen.get("epochs", 0.0)).is_integer():
        raise CardError(
            f"{where}: [training] epochs {epochs:g}: method '{card.method}' needs a whole number"
        )
    chosen |= {"epochs": int(epochs)} if epochs else {}
    made = call_with_params(
        method, {**chosen, **card.params}, where=f"{where}: [params]", other_keys=KEYS
    )
    return cast(StandaloneMethod, made)


def values_taken(name: str, card: RecipeCard, method: Callable[..., Any]) -> dict[str, Any]:
    """Return a recipe as plain values, with what a run of its method takes where it is silent, and no more.

    Raises CardError: as :func:`make_training`.
    """
    training = make_training(name, card, method)
    values = {field.name: getattr(training, field.name) for field in fields(cast(Any, training))}
    facts = cast(dict[str, Any], msgspec.to_builtins(card))
    del facts["student"]
    every = {"every": values.pop("every")} if "every" in values else {}
    return {
        **facts,
        "base": {"note": card.base.note},
        "training": {key: values.pop(key) for key in TAKEN["training"] if key in values},
        "selection": {
            **every,
            **{key: getattr(card.selection, key) for key in TAKEN["selection"][1:]},
        },
        "params": values,
    }
