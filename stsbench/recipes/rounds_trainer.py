"""The trainer of methods that train themselves, in rounds: what ``transformers.Trainer`` cannot hold."""

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

from stsbench.core.cards import RecipeCard
from stsbench.core.errors import CardError, Stopped
from stsbench.core.registry import call_with_params
from stsbench.encoders.runs import USUAL
from stsbench.recipes.plan import KEYS, TrainPlan, load_text, load_validation, values_of
from stsbench.recipes.train import TRIED, Forecast, Trainer
from stsbench.training.seams import OnProgress, TrainingOutcome
from stsbench.training.words.rounds import StandaloneMethod

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
            raise CardError(f"{method_of} trains itself, on the CPU and in rounds; leave out {option}")
        if plan.place.ranks > 1:
            raise CardError(f"{method_of} trains itself, in one process; start no more, by torchrun or --devices")
        training = make_training(plan.name, plan.card, method)
        validate, corpus = load_validation(plan), load_text(plan)
        corpus.require(*training.needs)
        # What a method reads beside what it needs is its own choice.
        found = values_of(corpus, corpus.columns)
        columns = {n: v.tolist() if isinstance(v, np.ndarray) else list(v) for n, v in found.items()}
        scored = validate if plan.card.selection.keep == "best" else None
        return cls(plan=plan, training=training, corpus=corpus, columns=columns, validate=scored)

    def train(self, on_progress: OnProgress) -> TrainingOutcome:
        """Train; the encoder is written at every round that is the best so far."""
        plan, started = self.plan, time.perf_counter()
        options: Any = {"folder": plan.folder, "seed": plan.seed, "validate": self.validate, "on_progress": on_progress}
        try:
            outcome = self.training.fit(self.columns, **options, resume=not plan.fresh)
        except KeyboardInterrupt as stop:
            raise Stopped("stopped; to resume from the last validation, run it again without --fresh") from stop
        return replace(outcome, seconds=time.perf_counter() - started)

    def forecast(self) -> Forecast:
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
            validations=1 + math.ceil(planned / (lesson.every or lesson.steps)) if self.validate else 0,
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
        for key, usual in USUAL[table].items():
            # It would do nothing.
            if key not in allowed and facts[table][key] != usual:
                raise CardError(f"{where}: [{table}] {key} is not an option of a method that trains itself")
    given = {("training", key): facts["training"][key] for key in TAKEN["training"]}
    given["selection", "every"] = card.selection.every
    known, chosen = {field.name for field in fields(cast(Any, method))}, dict[str, Any]()
    for (table, key), value in given.items():
        if key in known and value is not None:
            chosen[key] = value
        elif value != USUAL[table].get(key):
            raise CardError(f"{where}: [{table}] {key} is not an option of method '{card.method}'")
    if not (epochs := chosen.get("epochs", 0.0)).is_integer():
        raise CardError(f"{where}: [training] epochs {epochs:g}: method '{card.method}' needs a whole number")
    chosen |= {"epochs": int(epochs)} if epochs else {}
    made = call_with_params(method, {**chosen, **card.params}, where=f"{where}: [params]", others=KEYS)
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
        "selection": {**every, **{key: getattr(card.selection, key) for key in TAKEN["selection"][1:]}},
        "params": values,
    }
