"""``stsbench timing``: seconds that training and inference take here, as in SG-OPT's table 6 (arXiv 2106.07345).

Inference is ``encode`` called with some sentences at a time, after a first batch; training is a recipe's whole loop with its
validations, or the fitting of an encoder on texts. Loading models, reading data and writing encoders are in neither.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from stsbench.cli import options as opt
from stsbench.cli.printing import emit, print_table, show_work
from stsbench.core.errors import CardError, look_up
from stsbench.core.provenance import processor, versions

if TYPE_CHECKING:
    from stsbench.boards.tables.layout import Layout
    from stsbench.core.catalogue import Catalogue
    from stsbench.data.task import Task
    from stsbench.encoders.base import Encoder
    from stsbench.recipes.train_plan import TrainPlan

ENCODERS, RECIPES = (
    ["bert-base-mean", "bert-base-wk", "bert-base-flow", "bert-base-whitening"],
    ["sg-opt-bert-base"],
)
"""What SG-OPT's table 6 times, and whitening."""
PUBLISHED = "SG-OPT, table 6: BERT-base on STS-B, batches of 16, another machine that is not named"
Facts = dict[str, Any]


def timing_command(
    context: opt.Context,
    *,
    encoder: opt.Encoders,
    recipe: opt.TimedRecipes,
    assign: opt.SetEncoder,
    base: opt.Base = "",
    task: opt.OneTask = "stsb",
    split: opt.TimedSplit = "test",
    batch_size: opt.BatchSize = 16,
    rounds: opt.Rounds = 3,
    steps: opt.TimedSteps = None,
    device: opt.Device = "auto",
    data: opt.Data = None,
    output: opt.TimingFormat = "terminal",
    out: opt.TableFile = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
) -> None:
    """Time training and inference on this machine.

    As SG-OPT's table 6 does; with neither --encoder nor --recipe, those of that table.

    Example: stsbench timing --encoder minilm --data DIR
    """
    from stsbench.api.names import NameResolver
    from stsbench.boards.render.text import to_markdown
    from stsbench.data.task import load_task
    from stsbench.encoders.load import load_named
    from stsbench.encoders.metadata import read_metadata

    catalogue = opt.read_cards(cards)
    given, usual = opt.TypedOptions.from_context(context), not (encoder or recipe)
    if encoder and not recipe:
        given.forbid("without --recipe", "--base", "--steps", "--device")
    if recipe and not encoder:
        given.forbid("without --encoder", "--set")
    look_up("format", output, dict.fromkeys(("terminal", "markdown", "json")))
    params, names = opt.parse_assignments(assign), NameResolver(catalogue)
    more: Facts = {
        "catalogue": catalogue,
        "base": names.resolve_spec(base),
        "data": data,
        "device": device,
    }
    plans = [_plan(name, **more) for name in (RECIPES if usual else names.resolve_specs(recipe))]
    loaded = load_task(task, data=data, catalogue=catalogue)
    sentences, rows = loaded.texts([split], repeated=True), list[Facts]()
    with show_work("loading") as shown:
        for name in ENCODERS if usual else names.resolve_specs(encoder):
            shown.update("work", label=name)
            known = load_named(name, params=params, catalogue=catalogue)
            made, training = _fitted(known.encoder, loaded, catalogue)
            facts = {
                "name": known.name,
                "method": known.card.method if known.card else "",
                "training": training,
            }
            rows.append(facts | _inference(made, sentences, batch_size, rounds))
        for plan in plans:
            shown.update("work", label=f"{plan.name}: training")
            made, training = _trained(plan, steps)
            facts = {
                "name": plan.name,
                "method": plan.card.label or plan.card.method,
                "training": training,
            }
            rows.append(facts | _inference(made, sentences, batch_size, rounds))
    found: Facts = {
        "rows": rows,
        "task": task,
        "split": split,
        "sentences": len(sentences),
        "batch_size": batch_size,
    }
    found |= {
        "rounds": rounds,
        "device": read_metadata(made).device_used or "cpu",
        "processor": processor(),
    }
    import torch

    created = datetime.now(UTC).isoformat(timespec="seconds")
    found |= {"threads": torch.get_num_threads(), "versions": versions(), "created": created}
    if output == "terminal" and out is None:
        print_table(to_layout(found))
    else:
        as_json = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        emit(as_json if output == "json" else to_markdown([to_layout(found)]), out)


def _plan(name: str, catalogue: Catalogue, **more: Any) -> TrainPlan:  # noqa: ANN401 - fields of a plan
    """A recipe to be timed; what cannot be timed says so before minutes are spent on the others."""
    from stsbench.recipes.train_plan import TrainPlan, read_recipe, uses_training_loop

    _, card = read_recipe(name, catalogue)
    if not uses_training_loop(card):
        raise CardError(
            f"recipe {name}: method '{card.method}' trains itself and is not timed; "
            f"run 'stsbench train {name}', its run.json says the seconds"
        )
    # The whole is timed, however its scores go, and without checkpoints.
    card = msgspec.structs.replace(
        card, selection=msgspec.structs.replace(card.selection, patience=0)
    )
    rest: Facts = {
        "seed": 0,
        "out": Path(),
        "checkpoint_seconds": float("inf"),
        "fresh": True,
        "catalogue": catalogue,
    }
    return TrainPlan(name=name, card=card, **rest, **more)


def _timed(work: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """The same function, which notes how long each call takes."""

    def call(*args: Any) -> Any:  # noqa: ANN401 - whatever the function takes
        started = perf_counter()
        done = work(*args)
        seconds.append(perf_counter() - started)
        return done

    return call


def _fitted(encoder: Encoder, task: Task, catalogue: Catalogue) -> tuple[Encoder, Facts | None]:
    """An encoder that is fitted on texts, whatever fits are kept, and how long that took; any other as it is."""
    from stsbench.bench.embedder import read_texts_to_fit
    from stsbench.encoders.base import FittableEncoder
    from stsbench.encoders.fitted import FittedEncoder, read_fit
    from stsbench.encoders.metadata import find_base

    if not isinstance(encoder, FittableEncoder):
        return encoder, None
    texts = read_texts_to_fit(read_fit(encoder), task=task, catalogue=catalogue, data=task.data)
    if (base := find_base(encoder)) is not None:
        base.encode(texts[:16])
    started = perf_counter()
    made = encoder.fit_texts(texts)
    if isinstance(made, FittedEncoder):
        made.learned = made.method.fit(made.base, made.sentences)
    return made, {"seconds": perf_counter() - started, "texts": len(texts)}


def _trained(plan: TrainPlan, steps: int | None) -> tuple[Encoder, Facts]:
    """What a recipe trains, and how long its whole takes; where fewer steps are taken, that is estimated from them."""
    from stsbench.recipes.train import load_trainer

    with TemporaryDirectory(prefix="stsbench-timing-") as folder:
        trainer: Any = load_trainer(replace(plan, out=Path(folder)))
        whole, training, in_all, validations = (
            trainer.batches.steps,
            plan.card.training,
            list[float](),
            list[float](),
        )
        encoder, *others = trainer.learner.encoders()
        encoder.encode(["a sentence"])
        if steps is not None and steps < whole:
            training = msgspec.structs.replace(training, steps=steps, epochs=None)
        fewer = replace(trainer.plan, card=msgspec.structs.replace(plan.card, training=training))
        made = replace(trainer, plan=fewer, validate=_timed(trainer.validate, validations))
        measured = _timed(made.run_loop, in_all)().steps
    a_step = (in_all[0] - sum(validations)) / measured
    a_validation = sum(validations) / max(len(validations), 1) * (1 + len(others))
    estimated = a_step * whole + a_validation * trainer.validations
    facts = {
        "seconds": in_all[0] if measured == whole else estimated,
        "steps": whole,
        "measured": measured,
    }
    facts |= {"validations": trainer.validations, "corpus": trainer.corpus.name}
    # It is chosen no more, but used.
    trainer.learner.student.validation_pooling = trainer.learner.student.test_pooling
    return trainer.learner.encoders()[0], facts | {
        "batch_size": training.batch_size * training.accumulate
    }


def _inference(encoder: Encoder, sentences: Sequence[str], size: int, rounds: int) -> Facts:
    width, batches, at_once = (
        encoder.encode(sentences[:size]).shape[1],
        list[list[float]](),
        list[float](),
    )
    for _ in range(rounds):
        batches.append([])
        for start in range(0, len(sentences), size):
            _timed(encoder.encode, batches[-1])(sentences[start : start + size])
        _timed(encoder.encode, at_once)(sentences)
    return {"inference": median(map(sum, batches)), "at_once": median(at_once), "size": width}


def to_layout(found: Facts) -> Layout:
    """The table, the published one under it where the same text is timed, and what was timed."""
    from stsbench.boards.published.rows import published_rows
    from stsbench.boards.tables.layout import DisplayCell, Layout, LayoutBlock, TableLine

    ours = [
        (
            f"{one['name']}{_star(one)}",
            one["training"] and one["training"]["seconds"],
            one["inference"],
            one["at_once"],
        )
        for one in found["rows"]
    ]
    rows = [
        one for one in published_rows().values() if (one.paper, one.table) == ("sgopt", "table-6")
    ]
    held = [
        (one.row, {score.metric: score.value for score in one.scores})
        for one in rows
        if found["task"] == "stsb"
    ]
    theirs = [(row, of.get("training_seconds"), of["inference_seconds"], None) for row, of in held]
    blocks = []
    for title, timed in (("", ours), (PUBLISHED, theirs)):
        lines = []
        for label, training, inference, at_once in timed:
            seconds = (training, inference, inference / timed[0][2], at_once)
            cells = [DisplayCell("–" if one is None else f"{one:.2f}") for one in seconds]
            lines.append(TableLine(label=label, cells=cells))
        blocks += [LayoutBlock(title=title, lines=lines)] if lines else []
    how = f"{found['sentences']:,} sentences, {found['batch_size']} at a time"
    caption = f"Seconds on {found['task']}, split {found['split']}: {how}"
    heads = ["training", "inference", "of first", "at once"]
    return Layout(caption=caption, heads=heads, blocks=blocks, legend=list(_notes(found)))


def _star(one: Facts) -> str:
    training = one["training"] or {}
    return "*" if training.get("measured", 0) < training.get("steps", 0) else ""


def _notes(found: Facts) -> Iterator[str]:
    rounds = "One round." if found["rounds"] == 1 else f"Median of {found['rounds']} rounds."
    yield (
        f"Inference: encode called with {found['batch_size']} sentences at a time, in the order of the data, both of each pair "
        "and repeated ones again; 'of first' is how many times the first row's. At once: one call with all of them, as "
        "'stsbench run' does, each distinct one embedded once. Tokenisation is in both, loading the model and a first batch "
        f"in neither. {rounds}"
    )
    for one in filter(lambda one: one["training"], found["rows"]):
        facts, star = one["training"], _star(one)
        if "texts" in facts:
            how = f"fitted on {facts['texts']:,} sentences; embedding them is in it, loading the model is not"
        else:
            how = f"{facts['steps']:,} steps of {facts['batch_size']} rows of {facts['corpus']} and {facts['validations']} validations"
            how = (
                f"estimated for {how}, from {facts['measured']} steps taken"
                if star
                else f"{how}, no early stopping"
            )
            how += "; loading model and text and writing the encoder are not in it"
        yield f"Training of {one['name']}{star}: {how}."
    shown = [
        name
        for name in ("python", "stsbench", "torch", "transformers")
        if name in found["versions"]
    ]
    named = ", ".join(f"{name} {found['versions'][name]}" for name in shown)
    threads = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''}"
    yield f"Machine: {found['processor']}, device {found['device']}, {threads}; {named}; {found['created'][:10]}."
