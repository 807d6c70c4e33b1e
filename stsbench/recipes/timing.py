"""Seconds that training and inference take on this machine: SG-OPT's table 6 (arXiv 2106.07345), and of what one likes.

Inference is ``encode`` called with some sentences at a time, tokenisation included; the model is loaded
and has embedded a first batch before. Training is a recipe's whole loop with its validations, or the
fitting of an encoder that is fitted on texts, their embedding included. Loading models, reading data,
scoring and writing encoders are in neither.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import msgspec

from stsbench.bench.fit_texts import texts_to_fit
from stsbench.cards.catalogue import Catalogue
from stsbench.data.task import Task, load_task
from stsbench.encoders.facts import base_of, facts_of
from stsbench.encoders.fitted.fitted import FittedEncoder, fit_of
from stsbench.encoders.loading import find_encoder
from stsbench.encoders.seams import Encoder, TextFitted
from stsbench.errors import CardError
from stsbench.provenance import machine
from stsbench.recipes.plan import TrainPlan, read_recipe

if TYPE_CHECKING:
    from stsbench.recipes.loop_trainer import LoopTrainer


@dataclass(frozen=True, kw_only=True)
class TimingPlan:
    """What is timed, and on what."""

    encoders: Sequence[str]
    recipes: Sequence[str]
    params: Mapping[str, Any] = field(default_factory=dict)
    base: str = ""
    task: str = "stsb"
    split: str = "test"
    batch_size: int = 16
    rounds: int = 3
    steps: int | None = None
    """Train so many steps and reckon the whole from them; None trains the whole."""
    device: str = "auto"
    data: Path | None = None
    catalogue: Catalogue = field(default_factory=Catalogue)
    on_progress: Callable[[str], None] = lambda what: None


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """What training took. ``seconds`` is of the whole, reckoned where fewer ``measured`` steps were taken."""

    seconds: float
    texts: int = 0
    """Of an encoder that is fitted: how many texts it is fitted on."""
    steps: int = 0
    validations: int = 0
    measured: int = 0
    batch_size: int = 0
    corpus: str = ""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """One encoder's seconds; ``inference`` in batches as asked for, ``at_once`` with all sentences in one call."""

    name: str
    method: str
    inference: float
    at_once: float
    size: int
    training: Training | None = None


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """All rows, and what they were measured on."""

    rows: list[Timing]
    task: str
    split: str
    sentences: int
    batch_size: int
    rounds: int
    device: str
    processor: str
    threads: int
    versions: dict[str, str]
    created: str


def measure(plan: TimingPlan) -> Timings:
    """Time every encoder and recipe of a plan, one after the other.

    Raises:
        StsbenchError: a name is unknown, or data or a checkpoint cannot be had.
    """
    import torch

    for name in plan.recipes:
        # What cannot be timed says so before minutes are spent on the others.
        _check_recipe(name, plan.catalogue)
    task = load_task(plan.task, data=plan.data, catalogue=plan.catalogue)
    sentences = task.texts([plan.split], repeated=True)
    rows, device = [], ""
    for name in plan.encoders:
        plan.on_progress(name)
        row, device = _encoder_row(name, plan, task, sentences)
        rows.append(row)
    for name in plan.recipes:
        plan.on_progress(f"{name}: training")
        row, device = _recipe_row(name, plan, sentences)
        rows.append(row)
    return Timings(
        rows=rows,
        task=plan.task,
        split=plan.split,
        sentences=len(sentences),
        batch_size=plan.batch_size,
        rounds=plan.rounds,
        device=device,
        processor=machine.processor(),
        threads=torch.get_num_threads(),
        versions=machine.versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _check_recipe(name: str, catalogue: Catalogue) -> None:
    from stsbench.training.methods import load_method

    _, card = read_recipe(name, catalogue)
    trainer, _ = load_method(card.method)
    if trainer != "loop":
        raise CardError(
            f"recipe {name}: method '{card.method}' trains itself and is not timed; "
            f"run 'stsbench train {name}', its run.json says the seconds"
        )


def _encoder_row(name: str, plan: TimingPlan, task: Task, sentences: Sequence[str]) -> tuple[Timing, str]:
    known = find_encoder(name, params=plan.params, catalogue=plan.catalogue)
    encoder, training = known.encoder, None
    if isinstance(encoder, TextFitted):
        texts = texts_to_fit(fit_of(encoder), task=task, catalogue=plan.catalogue, data=plan.data)
        encoder, training = _fit(encoder, texts)
    method = known.card.method if known.card else ""
    return _row(known.name, method, encoder, plan, sentences, training=training)


def _fit(encoder: TextFitted, texts: Sequence[str]) -> tuple[Encoder, Training]:
    """Fit on texts, whatever fits the cache folder keeps, and say how long it took."""
    _warm_up(base_of(encoder), texts)
    started = perf_counter()
    fitted = encoder.fit_texts(texts)
    if isinstance(fitted, FittedEncoder):
        fitted.fit_anew()
    return fitted, Training(seconds=perf_counter() - started, texts=len(texts))


def _warm_up(encoder: Encoder | None, sentences: Sequence[str]) -> None:
    """Let a model load and compile what it will need."""
    if encoder is not None:
        encoder.encode(sentences[:16])


def _recipe_row(name: str, plan: TimingPlan, sentences: Sequence[str]) -> tuple[Timing, str]:
    _, card = read_recipe(name, plan.catalogue)
    # The whole epoch is timed, however its scores go.
    card = msgspec.structs.replace(card, selection=msgspec.structs.replace(card.selection, patience=0))
    with TemporaryDirectory(prefix="stsbench-timing-") as folder:
        wanted = TrainPlan(
            name=name,
            card=card,
            seed=0,
            out=Path(folder),
            base=plan.base,
            data=plan.data,
            device=plan.device,
            # Checkpoints are for runs that are worth going on with.
            checkpoint_seconds=float("inf"),
            fresh=True,
            catalogue=plan.catalogue,
        )
        encoder, training = _train(wanted, plan.steps)
    return _row(name, card.label or card.method, encoder, plan, sentences, training=training)


def _train(plan: TrainPlan, steps: int | None) -> tuple[Encoder, Training]:
    from stsbench.recipes.trainer import load_trainer

    trainer = cast("LoopTrainer", load_trainer(plan))
    whole, validations = trainer.batches, trainer.validations
    validate = Stopwatch(trainer.validate)
    (encoder, *others) = trainer.learner.encoders()
    _warm_up(encoder, ["a sentence"])
    if steps is not None and steps < whole.steps:
        facts = msgspec.structs.replace(plan.card.training, steps=steps, epochs=None)
        plan = replace(plan, card=msgspec.structs.replace(plan.card, training=facts))
    loop = Stopwatch(replace(trainer, plan=plan, validate=validate).run_loop)
    outcome = loop()
    a_step = (loop.seconds - validate.seconds) / outcome.steps
    a_validation = validate.seconds / max(validate.calls, 1) * (1 + len(others))
    done = outcome.steps == whole.steps
    training = Training(
        seconds=loop.seconds if done else a_step * whole.steps + a_validation * validations,
        steps=whole.steps,
        validations=validations,
        measured=outcome.steps,
        batch_size=plan.card.training.batch_size * plan.card.training.accumulate,
        corpus=trainer.corpus.name,
    )
    # From here on it is no more chosen, but used.
    trainer.learner.student.validation_pooling = trainer.learner.student.test_pooling
    return trainer.learner.encoders()[0], training


class Stopwatch:
    """A function that adds up how long its calls take."""

    def __init__(self, work: Callable[..., Any]) -> None:
        """Start at zero."""
        self.work, self.seconds, self.calls = work, 0.0, 0

    def __call__(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever the function takes
        """Do the work and return what it returns."""
        started = perf_counter()
        try:
            return self.work(*args, **options)
        finally:
            self.seconds += perf_counter() - started
            self.calls += 1


def _row(
    name: str, method: str, encoder: Encoder, plan: TimingPlan, sentences: Sequence[str], *, training: Training | None
) -> tuple[Timing, str]:
    """Time an encoder's inference; also returns the device it is on."""
    plan.on_progress(f"{name}: inference")
    size = plan.batch_size
    width = encoder.encode(sentences[:size]).shape[1]
    batches, at_once = [], []
    for _ in range(plan.rounds):
        encode = Stopwatch(encoder.encode)
        for start in range(0, len(sentences), size):
            encode(sentences[start : start + size])
        batches.append(encode.seconds)
        whole = Stopwatch(encoder.encode)
        whole(sentences)
        at_once.append(whole.seconds)
    timing = Timing(
        name=name,
        method=method,
        inference=statistics.median(batches),
        at_once=statistics.median(at_once),
        size=int(width),
        training=training,
    )
    return timing, facts_of(encoder).device_used or "cpu"
