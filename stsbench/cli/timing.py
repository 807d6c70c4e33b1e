"""``stsbench timing``: seconds that training and inference take here, as in SG-OPT's table 6 (arXiv 2106.07345).

Inference is ``encode`` called with some sentences at a time, after a first batch; training is a recipe's whole loop with its
validations, or the fitting of an encoder on texts. Loading models, reading data and writing encoders are in neither.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec
from typer import Context

from stsbench.api.names import Names
from stsbench.bench.embed import texts_to_fit
from stsbench.boards.published import published_rows
from stsbench.boards.render.text import escape_markdown
from stsbench.cli import options as opt
from stsbench.cli.printing import say, say_words, write_or_say
from stsbench.cli.progress import shown_work
from stsbench.cli.screen import print_rows
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, choose
from stsbench.core.provenance import processor, versions
from stsbench.data.task import Task, load_task
from stsbench.encoders.base import Encoder, TextFitted, base_of, facts_of
from stsbench.encoders.fitted import FittedEncoder, fit_of
from stsbench.encoders.load import find_encoder
from stsbench.recipes.plan import TrainPlan, read_recipe
from stsbench.recipes.trainer import load_trainer
from stsbench.training.methods import load_method

ENCODERS, RECIPES = ["bert-base-mean", "bert-base-wk", "bert-base-flow", "bert-base-whitening"], ["sg-opt-bert-base"]
"""What SG-OPT's table 6 times, and whitening."""
HEADS = ["encoder", "training", "inference", "of first", "at once"]
PUBLISHED = "SG-OPT, table 6: BERT-base on STS-B, batches of 16, another machine that is not named"
Facts = dict[str, Any]


def timing_command(
    context: Context,
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
    config: opt.Config = None,
    cards: opt.Cards,
) -> None:
    """Time training and inference on this machine.

    As SG-OPT's table 6 does; with neither --encoder nor --recipe, those of that table.

    Example: stsbench timing --encoder minilm --data DIR
    """
    given = opt.Given.of(context)
    if encoder and not recipe:
        given.idle("without --recipe", "--base", "--steps", "--device")
    if recipe and not encoder:
        given.idle("without --encoder", "--set")
    write = choose("format", output, {"terminal": to_markdown, "markdown": to_markdown, "json": _json})
    catalogue, params = Catalogue(cards), opt.parse_assignments(assign)
    names = Names(catalogue)
    recipes = names.to_load(recipe) if encoder or recipe else RECIPES
    plans = [_plan(name, catalogue, base=names.one_to_load(base), data=data, device=device) for name in recipes]
    loaded = load_task(task, data=data, catalogue=catalogue)
    sentences = loaded.texts([split], repeated=True)
    rows: list[Facts] = []
    with shown_work("loading") as shown:
        for name in names.to_load(encoder) if encoder or recipe else ENCODERS:
            shown.update("work", what=name)
            known = find_encoder(name, params=params, catalogue=catalogue)
            made, training = _fitted(known.encoder, loaded, catalogue, data)
            facts = {"name": known.name, "method": known.card.method if known.card else "", "training": training}
            rows.append(facts | _inference(made, sentences, batch_size, rounds))
        for plan in plans:
            shown.update("work", what=f"{plan.name}: training")
            made, training = _trained(plan, steps)
            facts = {"name": plan.name, "method": plan.card.label or plan.card.method, "training": training}
            rows.append(facts | _inference(made, sentences, batch_size, rounds))
    import torch

    found: Facts = {"rows": rows, "task": task, "split": split, "sentences": len(sentences), "batch_size": batch_size}
    found |= {"rounds": rounds, "device": facts_of(made).device_used or "cpu", "processor": processor()}
    found |= {
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if output == "terminal" and out is None:
        _print(found)
    else:
        write_or_say(write(found), out)


def _plan(name: str, catalogue: Catalogue, **more: Any) -> TrainPlan:  # noqa: ANN401 - fields of a plan
    """A recipe to be timed; what cannot be timed says so before minutes are spent on the others."""
    _, card = read_recipe(name, catalogue)
    if load_method(card.method)[0] != "loop":
        raise CardError(
            f"recipe {name}: method '{card.method}' trains itself and is not timed; "
            f"run 'stsbench train {name}', its run.json says the seconds"
        )
    # The whole is timed, however its scores go, and without checkpoints.
    card = msgspec.structs.replace(card, selection=msgspec.structs.replace(card.selection, patience=0))
    rest: Facts = {"seed": 0, "out": Path(), "checkpoint_seconds": float("inf"), "fresh": True, "catalogue": catalogue}
    return TrainPlan(name=name, card=card, **rest, **more)


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
            self.seconds, self.calls = self.seconds + perf_counter() - started, self.calls + 1


def _fitted(encoder: Encoder, task: Task, catalogue: Catalogue, data: Path | None) -> tuple[Encoder, Facts | None]:
    """An encoder that is fitted on texts, whatever fits are kept, and how long that took."""
    if not isinstance(encoder, TextFitted):
        return encoder, None
    texts = texts_to_fit(fit_of(encoder), task=task, catalogue=catalogue, data=data)
    if (base := base_of(encoder)) is not None:
        base.encode(texts[:16])
    started = perf_counter()
    made = encoder.fit_texts(texts)
    if isinstance(made, FittedEncoder):
        made.fit_anew()
    return made, {"seconds": perf_counter() - started, "texts": len(texts)}


def _trained(plan: TrainPlan, steps: int | None) -> tuple[Encoder, Facts]:
    """What a recipe trains, and how long its whole takes; where fewer steps are taken, that is estimated from them."""
    with TemporaryDirectory(prefix="stsbench-timing-") as folder:
        trainer: Any = load_trainer(replace(plan, out=Path(folder)))
        whole, card, validate = trainer.batches.steps, plan.card, Stopwatch(trainer.validate)
        encoder, *others = trainer.learner.encoders()
        encoder.encode(["a sentence"])
        if steps is not None and steps < whole:
            fewer = msgspec.structs.replace(card.training, steps=steps, epochs=None)
            card = msgspec.structs.replace(card, training=fewer)
        loop = Stopwatch(replace(trainer, plan=replace(trainer.plan, card=card), validate=validate).run_loop)
        measured = loop().steps
    a_step = (loop.seconds - validate.seconds) / measured
    a_validation = validate.seconds / max(validate.calls, 1) * (1 + len(others))
    estimated = a_step * whole + a_validation * trainer.validations
    facts = {"seconds": loop.seconds if measured == whole else estimated, "steps": whole, "measured": measured}
    facts |= {"validations": trainer.validations, "corpus": trainer.corpus.name}
    # It is chosen no more, but used.
    trainer.learner.student.validation_pooling = trainer.learner.student.test_pooling
    rows = card.training.batch_size * card.training.accumulate
    return trainer.learner.encoders()[0], facts | {"batch_size": rows}


def _inference(encoder: Encoder, sentences: Sequence[str], size: int, rounds: int) -> Facts:
    """Medians of the seconds that batches of a size take, and one call with all sentences."""
    width, batches, at_once = encoder.encode(sentences[:size]).shape[1], [], []
    for _ in range(rounds):
        some, whole = Stopwatch(encoder.encode), Stopwatch(encoder.encode)
        for start in range(0, len(sentences), size):
            some(sentences[start : start + size])
        whole(sentences)
        batches.append(some.seconds)
        at_once.append(whole.seconds)
    return {"inference": median(batches), "at_once": median(at_once), "size": width}


def _json(found: Facts) -> str:
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def to_markdown(found: Facts) -> str:
    """The table, the published one under it, and what was timed."""
    lines = [f"**{escape_markdown(_caption(found))}**", "", _row(HEADS), _row(["---", *["---:"] * 4])]
    lines += [_row(map(escape_markdown, row)) for row in _cells(found)]
    if published := _published(found):
        lines += [_row([f"*{PUBLISHED}*", *[""] * 4]), *(_row(map(escape_markdown, row)) for row in published)]
    return "\n\n".join(["\n".join(lines), *map(escape_markdown, _notes(found))]) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _print(found: Facts) -> None:
    say(f"{_caption(found)}\n")
    print_rows(HEADS, _cells(found), right=range(1, 5))
    if published := _published(found):
        say(f"\n{PUBLISHED}\n")
        print_rows(HEADS, published, right=range(1, 5))
    for line in _notes(found):
        say("")
        say_words(line)


def _caption(found: Facts) -> str:
    counts = f"{found['sentences']:,} sentences, {found['batch_size']} at a time"
    return f"Seconds on {found['task']}, split {found['split']}: {counts}"


def _cells(found: Facts) -> list[list[str]]:
    rows, first = found["rows"], found["rows"][0]["inference"]
    trained = [f"{one['training']['seconds']:.2f}{_star(one)}" if one["training"] else "–" for one in rows]
    return [
        [one["name"], training, f"{one['inference']:.2f}", f"{one['inference'] / first:.2f}", f"{one['at_once']:.2f}"]
        for one, training in zip(rows, trained, strict=True)
    ]


def _star(one: Facts) -> str:
    training = one["training"] or {}
    return "*" if training.get("measured", 0) < training.get("steps", 0) else ""


def _published(found: Facts) -> list[list[str]]:
    """The paper's table, where the same text is timed."""
    rows = [one for one in published_rows().values() if (one.paper, one.table) == ("sgopt", "table-6")]
    scores = [{score.metric: score.value for score in one.scores} for one in rows if found["task"] == "stsb"]
    return [
        [
            one.row,
            *(f"{held[key]:.2f}" if key in held else "–" for key in ("training_seconds", "inference_seconds")),
            f"{held['inference_seconds'] / scores[0]['inference_seconds']:.2f}",
            "–",
        ]
        for one, held in zip(rows, scores, strict=False)
    ]


def _notes(found: Facts) -> Iterator[str]:
    rounds = "One round." if found["rounds"] == 1 else f"Median of {found['rounds']} rounds."
    yield (
        f"Inference: encode called with {found['batch_size']} sentences at a time, in the order of the data, both of each pair "
        "and repeated ones again; 'of first' is how many times the first row's. At once: one call with all of them, as "
        "'stsbench run' does, each distinct one embedded once. Tokenisation is in both, loading the model and a first batch "
        f"in neither. {rounds}"
    )
    for one in found["rows"]:
        if one["training"]:
            yield f"Training of {one['name']}{_star(one)}: {_training(one['training'], _star(one))}."
    named = [
        f"{name} {found['versions'][name]}"
        for name in ("python", "stsbench", "torch", "transformers")
        if name in found["versions"]
    ]
    threads = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''}"
    yield f"Machine: {found['processor']}, device {found['device']}, {threads}; {', '.join(named)}; {found['created'][:10]}."


def _training(facts: Facts, star: str) -> str:
    if "texts" in facts:
        return f"fitted on {facts['texts']:,} sentences; embedding them is in it, loading the model is not"
    whole = f"{facts['steps']:,} steps of {facts['batch_size']} rows of {facts['corpus']} and {facts['validations']} validations"
    whole = f"estimated for {whole}, from {facts['measured']} steps taken" if star else f"{whole}, no early stopping"
    return f"{whole}; loading model and text and writing the encoder are not in it"
