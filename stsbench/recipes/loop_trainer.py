"""The trainer of methods that the common loop trains: a student, batch by batch."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
import transformers

from stsbench.core.errors import CardError, choose
from stsbench.core.registry import check_params, staying
from stsbench.recipes.plan import KEYS, TrainPlan, as_documents, find_start, load_text, load_validation, values_of
from stsbench.recipes.train import TRIED, Forecast, Teachers, Trainer
from stsbench.training.loop import loop
from stsbench.training.loop.batches import Batches, BatchPlan, check_workers, load_batches, open_batch
from stsbench.training.loop.optimisers import OPTIMISERS, SCHEDULES, make_optimiser
from stsbench.training.seams import Learner, OnProgress, TrainingOutcome, Validate
from stsbench.training.student import Student, dropouts


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
        choose("optimiser", plan.card.training.optimiser, OPTIMISERS)
        choose("schedule", plan.card.training.schedule, SCHEDULES)
        given = {"student": None, **plan.card.params}
        return check_params(method, given, where=f"recipe {plan.name}: [params]", others=KEYS)

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
        with staying(f"recipe {plan.name}: [params]"):
            learner = method(**{**params, "student": student})
        has_dropout = any(dropouts(student.model.config.to_dict()).values())
        if learner.by_dropout and card.student.dropout is None and not has_dropout:
            what = (
                f"recipe {plan.name}: {checkpoint.folder} has no dropout, by which alone a sentence's two views differ"
            )
            raise CardError(f"{what}; give --set dropout=0.1, or --set dropout=0 if that is meant")
        loop.check_step(learner, card.training)
        workers = check_workers(plan.workers, learner, ranks=plan.place.ranks)
        corpus = load_text(plan)
        corpus = as_documents(corpus) if "document" in learner.needs else corpus
        corpus.require(*learner.needs)
        teachers = Teachers.find(learner.teachers, plan.catalogue)
        if learner.teachers:
            learner.taught = teachers.of(corpus.column("text"), plan.place)
        learner.prepare(values_of(corpus, learner.needs))
        made = cls(plan=plan, learner=learner, corpus=corpus, validate=validate, base=checkpoint, started=started)
        return replace(made, teachers=teachers, device=str(student.device), workers=workers)

    @property
    def batches(self) -> BatchPlan:
        """The batches of the whole run on one device."""
        return BatchPlan(self.plan.card.training, len(self.corpus), self.plan.seed)

    @property
    def validations(self) -> int:
        """How often a whole run looks at the development split."""
        batches = self.batches
        return sum(loop.is_due(self.plan.card.selection, batches, step) for step in range(batches.steps + 1))

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
        run = loop.Run(
            training=plan.card.training,
            selection=plan.card.selection,
            folder=plan.folder,
            seed=plan.seed,
            rows=len(self.corpus),
            place=plan.place,
            validate=self.validate,
            on_progress=on_progress,
            checkpoint_seconds=plan.checkpoint_seconds,
            report_to=plan.report_to,
            deterministic=plan.deterministic,
            workers=self.workers,
        )
        return loop.train_learner(self.learner, run, resume=not plan.fresh)

    def forecast(self) -> Forecast:
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
        batches = iter(load_batches(Batches(learner, plan), workers=self.workers, pin=device.type == "cuda"))
        seconds, tokens = [], []
        for _ in range(min(TRIED, plan.total)):
            started = time.perf_counter()
            batch = open_batch(next(batches), device)
            with torch.autocast(device.type, getattr(torch, facts.precision), enabled=facts.precision != "float32"):
                loss = learner(**batch)["loss"]
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
    return sum(int(part.sum()) if name == "attention_mask" else _count_tokens(part) for name, part in batch.items())
