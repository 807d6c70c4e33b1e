"""The trainer of methods that train themselves, in rounds: what ``transformers.Trainer`` cannot hold."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, cast

import msgspec
import numpy as np

from stsbench.core.cards import RecipeCard
from stsbench.core.errors import CardError, Stopped
from stsbench.core.registry import call_with_params
from stsbench.encoders.runs import USUAL
from stsbench.recipes.plan import KEYS, TrainPlan, load_text, load_validation, values_of
from stsbench.recipes.train import TRIED, Forecast, Trainer
from stsbench.training.loop.loop import OnProgress, Point, TrainingOutcome, TrainingProgress, open_curve
from stsbench.training.seams import seen_with
from stsbench.training.words.rounds import Clock, Round, StandaloneMethod, count_learnt

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
        clock = Clock(self.training.seconds)
        seen = _Seen(clock, on_progress, open_curve(plan.folder))
        try:
            self.training.fit(
                self.columns,
                folder=plan.folder,
                seed=plan.seed,
                validate=self.validate,
                on_round=seen.round,
                untrained=seen.untrained,
                resume=not plan.fresh,
                clock=clock,
            )
        except KeyboardInterrupt as stop:
            raise Stopped("stopped; to resume from the last validation, run it again without --fresh") from stop
        kept = [r for r in seen.rounds if r.kept][-1]
        return TrainingOutcome(
            curve=[dict(point) for point in seen.curve],
            chosen={"score": kept.score, "step": kept.step} if kept.score is not None else None,
            steps=seen.rounds[-1].step,
            seconds=time.perf_counter() - started,
        )

    def forecast(self) -> Forecast:
        """Train in a folder that is thrown away, stopped after three steps and one validation."""
        clock = Clock(steps=TRIED)
        with tempfile.TemporaryDirectory() as folder:
            self.training.fit(
                self.columns, folder=Path(folder), seed=self.plan.seed, validate=self.validate, clock=clock
            )
            parameters = count_learnt(Path(folder))
        # From the last step tried: all that a round ends with.
        validation = time.perf_counter() - clock.ticks[-1]
        step_seconds = float(np.median(np.diff(clock.ticks)))
        every = getattr(self.training, "every", 0) or clock.planned / cast(Any, self.training).epochs
        # One more before the first step.
        validations = 1 + math.ceil(clock.planned / every) if self.validate else 0
        return self.forecast_of(
            steps=clock.planned,
            batch_size=self.plan.card.training.batch_size,
            validations=validations,
            tokens=clock.tokens,
            trained_parameters=parameters,
            parameters=parameters,
            step_seconds=step_seconds,
            validation_seconds=validation,
        )


class _Seen:
    """What a training has reported so far; it is passed on and written down as it comes."""

    def __init__(self, clock: Clock, on_progress: OnProgress, add: Callable[[Point], None]) -> None:
        self.clock, self.on_progress, self.add = clock, on_progress, add
        self.rounds: list[Round] = []
        self.curve: list[Point] = []
        clock.on_step = self.tell

    def untrained(self, score: float) -> None:
        """The weights before the first step are scored."""
        self._add({"step": 0, "score": float(score), **seen_with(score)})

    def round(self, ended: Round) -> None:
        """A round is over, of this run or, before its first step, of the one that it resumes."""
        self.rounds.append(ended)
        self._add({"step": ended.step, "loss": ended.loss, "score": ended.score, **ended.facts})
        if self.clock.planned:
            self.tell(self.clock.done, self.clock.planned, ended.loss, self.curve[-1])

    def _add(self, point: Point) -> None:
        self.curve.append(point)
        self.add(point)

    def tell(self, done: int, of: int, loss: float, point: Point | None = None) -> None:
        """A step is done, or a round."""
        scores = [r.score for r in self.rounds if r.score is not None]
        last, best = (scores[-1], max(scores)) if scores else (None, None)
        self.on_progress(TrainingProgress(step=done, steps=of, loss=loss, score=last, best=best, point=point))


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
