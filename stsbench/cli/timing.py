"""``stsbench timing``: the seconds of training and inference, as in SG-OPT's table 6.

The paper is arXiv 2106.07345. Inference is ``encode`` called with some sentences at a time, after a
first batch; training is a recipe's whole loop with its validations, or the fitting of an encoder on
texts. Loading models, reading data and writing encoders are in neither.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stsbench.cli import options as opt
from stsbench.cli.option_values import TypedOptions, choose_format, parse_assignments
from stsbench.cli.printing import show_work, write_or_print
from stsbench.cli.tables import print_table
from stsbench.core.errors import CardError
from stsbench.core.provenance import processor, versions
from stsbench.core.wording import format_count

if TYPE_CHECKING:
    from stsbench.boards.tables.layout import Layout, TableLine
    from stsbench.core.catalogue import Catalogue
    from stsbench.data.task import Task
    from stsbench.encoders.base import Encoder
    from stsbench.recipes.train_plan import TrainPlan

DEFAULT_ENCODERS = ["bert-base-mean", "bert-base-wk", "bert-base-flow", "bert-base-whitening"]
DEFAULT_RECIPES = ["sg-opt-bert-base"]
"""What SG-OPT's table 6 times, and whitening."""
PUBLISHED_TITLE = (
    "SG-OPT, table 6: BERT-base on STS-B, batches of 16, another machine that is not named"
)
Record = dict[str, Any]
"""Part of the report, as it is written to JSON."""


def timing_command(
    context: opt.Context,
    *,
    encoder: opt.Encoders,
    recipe: opt.TimedRecipes,
    assign: opt.TimedValues,
    base: opt.BaseModel = "",
    text: opt.TrainingText = None,
    corpora: opt.TextFolder = None,
    task: opt.TimedTask = None,
    split: opt.TimedSplit = "test",
    batch_size: opt.BatchSize = 16,
    rounds: opt.Rounds = 3,
    steps: opt.TimedSteps = None,
    device: opt.Device = "auto",
    data: opt.DataFolder = None,
    output: opt.PlainFormat = "terminal",
    out: opt.TableFile = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
) -> None:
    """Time training and inference on this machine.

    It measures as SG-OPT's table 6. Without --encoder and --recipe it times those of that table.

    Example: stsbench timing --encoder minilm --data DIR
    """
    from stsbench.api.names import NameResolver
    from stsbench.boards.render.text import to_markdown
    from stsbench.data.task import load_task
    from stsbench.encoders.metadata import read_metadata

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    output = choose_format(output, out, ("markdown", "json"))
    _check_options(context, encoder, recipe)
    params = parse_assignments(assign)
    names = NameResolver(catalogue)
    base = names.resolve_spec(base)
    if not (encoder or recipe):
        encoder, recipe = DEFAULT_ENCODERS, DEFAULT_RECIPES
    plans = [
        _plan_training(
            name,
            catalogue,
            params={} if encoder else params,
            text=text,
            base=base,
            corpora=corpora,
            data=data,
            device=device,
        )
        for name in names.resolve_specs(recipe)
    ]
    # Weights are selected on it, so that its data are needed anyway.
    task = task or ("stsb" if encoder else plans[0].card.selection.task)
    loaded_task = load_task(task, data=data, catalogue=catalogue)
    sentences = loaded_task.texts([split], repeated=True)
    rows: list[Record] = []
    with show_work("loading") as display:
        for spec in names.resolve_specs(encoder):
            display.update("work", label=spec)
            timed = _time_encoder(spec, params, loaded_task, catalogue)
            rows.append(timed.row | _time_inference(timed.encoder, sentences, batch_size, rounds))
        for plan in plans:
            display.update("work", label=f"{plan.name}: training")
            timed = _time_training(plan, steps)
            rows.append(timed.row | _time_inference(timed.encoder, sentences, batch_size, rounds))
    import torch

    report: Record = {
        "rows": rows,
        "task": task,
        "split": split,
        "sentences": len(sentences),
        "batch_size": batch_size,
        "rounds": rounds,
        "device": read_metadata(timed.encoder).device_used or "cpu",
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if output == "terminal":
        print_table(to_layout(report))
    elif output == "json":
        write_or_print(json.dumps(report, indent=1, ensure_ascii=False) + "\n", out)
    else:
        write_or_print(to_markdown([to_layout(report)]), out)


def _check_options(context: opt.Context, encoders: Sequence[str], recipes: Sequence[str]) -> None:
    """Raise StsbenchError for an option that would have no effect.

    Args:
        context: Typer's context of the command, which knows what the user has typed.
        encoders: The encoders to time; empty if the user named none.
        recipes: The recipes to time; empty if the user named none.
    """
    typed = TypedOptions.from_context(context)
    # If the user named neither, default encoders and recipes are timed, and all options count.
    # forbid raises the error if any of the options behind the condition was typed.
    if encoders and not recipes:
        typed.forbid("without --recipe", "--base", "--text", "--corpora", "--steps", "--device")


def _plan_training(
    name: str,
    catalogue: Catalogue,
    **settings: Any,  # noqa: ANN401 - those of plan_training
) -> TrainPlan:
    """Return the plan of a recipe's training, which is to be timed.

    It trains to the end, whatever the development scores are, and writes no checkpoint. The caller
    plans all recipes first, so that an error comes before minutes are spent on one of them.

    Args:
        name: The name of the recipe.
        catalogue: The cards of recipes.
        settings: What the user replaces in the recipe, the folders and the device.

    Raises:
        CardError: The recipe's method has no training loop that can be timed.
    """
    from stsbench.recipes.train_plan import plan_training, uses_training_loop

    plan = plan_training(
        name,
        catalogue,
        keep=None,
        name="",
        # _time_training puts a temporary folder in place of this one.
        out=Path(),
        # No checkpoint is written.
        checkpoint_seconds=float("inf"),
        fresh=True,
        **settings,
    )
    if not uses_training_loop(plan.card):
        raise CardError(
            f"recipe {name}: method '{plan.card.method}' trains itself and is not timed; "
            f"run 'stsbench train {name}', its run.json says the seconds"
        )
    # All steps are timed: with a patience of 0 no development score ends the training.
    selection = msgspec.structs.replace(plan.card.selection, patience=0)
    return replace(plan, card=msgspec.structs.replace(plan.card, selection=selection))


class TimedTraining(NamedTuple):
    """An encoder after its training or fitting."""

    encoder: Encoder
    row: Record
    """Its name and method, and what its training took; ``None`` if it was not fitted."""


def _with_timer(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Return a function that calls another one and appends the duration of each call to a list.

    Args:
        function: The function to measure.
        seconds: The list, to which the seconds of each call are appended.
    """

    def call(*args: Any) -> Any:  # noqa: ANN401 - whatever the function takes
        started = perf_counter()
        value = function(*args)
        seconds.append(perf_counter() - started)
        return value

    return call


def _time_encoder(
    spec: str, params: Mapping[str, Any], task: Task, catalogue: Catalogue
) -> TimedTraining:
    """Load an encoder and, if it is fitted on texts, fit it and measure the time.

    It is fitted anew, even if a fit is stored.

    Args:
        spec: The encoder, by id, path or name on the Hub.
        params: Parameters that replace those of its card.
        task: The task for which it is fitted, often on the task's own texts.
        catalogue: The cards of encoders, corpora and tasks.

    Returns:
        The encoder, and the beginning of its row in the report: ``name``, ``method``, and
        ``training``, the seconds and the number of texts of the fit, None without one.
    """
    from stsbench.bench.embedder import read_texts_to_fit
    from stsbench.encoders.base import FittableEncoder
    from stsbench.encoders.fitted import FittedEncoder, name_of_fitting_texts
    from stsbench.encoders.load import load_named
    from stsbench.encoders.metadata import find_base

    named = load_named(spec, params=params, catalogue=catalogue)
    encoder: Encoder = named.encoder
    cost: Record | None = None
    if isinstance(encoder, FittableEncoder):
        texts = read_texts_to_fit(
            name_of_fitting_texts(encoder), task=task, catalogue=catalogue, data=task.data
        )
        # The first batch of the encoder that is transformed takes longer, and is not timed.
        if (base := find_base(encoder)) is not None:
            base.encode(texts[:16])
        started = perf_counter()
        encoder = encoder.fit_texts(texts)
        if isinstance(encoder, FittedEncoder):
            # Without this line it would be fitted only when it first embeds, or not at all if a fit
            # is stored. The line makes the fit now.
            encoder.learned = encoder.method.fit(encoder.base, encoder.sentences)
        cost = {"seconds": perf_counter() - started, "texts": len(texts)}
    method = named.card.method if named.card else ""
    return TimedTraining(encoder, {"name": named.name, "method": method, "training": cost})


def _time_training(plan: TrainPlan, max_steps: int | None) -> TimedTraining:
    """Train a recipe, measure the time and return the trained encoder with it; nothing is stored.

    If not all steps are taken, the whole time is estimated: the time of a step times the number of
    all steps, plus the time of a validation times the number of validations.

    Args:
        plan: The training.
        max_steps: The most steps to take; None for all.

    Returns:
        The encoder (of several the first), and the beginning of its row, whose ``training`` has the
        seconds of the whole training and the number of ``measured`` steps.
    """
    from stsbench.recipes.trainer import load_trainer

    training_seconds: list[float] = []
    validation_seconds: list[float] = []
    with TemporaryDirectory(prefix="stsbench-timing-") as folder:
        trainer: Any = load_trainer(replace(plan, out=Path(folder)))
        total_steps = trainer.batches.steps
        training = plan.card.training
        if max_steps is not None and max_steps < total_steps:
            training = msgspec.structs.replace(training, steps=max_steps, epochs=None)
        encoders = trainer.learner.encoders()
        # Not timed: a store keeps the embeddings of teachers, for all later trainings.
        trainer.embed_by_teachers()
        # The first batch, which takes longer, is not timed.
        encoders[0].encode(["a sentence"])
        shorter_card = msgspec.structs.replace(plan.card, training=training)
        timed_trainer = replace(
            trainer,
            plan=replace(trainer.plan, card=shorter_card),
            validate=_with_timer(trainer.validate, validation_seconds),
        )
        timed_run = _with_timer(timed_trainer.run_loop, training_seconds)
        n_steps = timed_run().steps
    (seconds,) = training_seconds
    if n_steps != total_steps:
        seconds_per_step = (seconds - sum(validation_seconds)) / n_steps
        # Each validation calls the measured function once per encoder that the training makes.
        seconds_per_call = sum(validation_seconds) / max(len(validation_seconds), 1)
        seconds_of_validations = seconds_per_call * len(encoders) * trainer.n_validations
        seconds = seconds_per_step * total_steps + seconds_of_validations
    # The trained model may pool token embeddings otherwise for validations than for tests.
    student = trainer.learner.student
    student.validation_pooling = student.test_pooling
    row = {
        "name": plan.name,
        "method": plan.card.label or plan.card.method,
        "training": {
            "seconds": seconds,
            "steps": total_steps,
            "measured": n_steps,
            "validations": trainer.n_validations,
            "corpus": trainer.corpus.name,
            "batch_size": training.batch_size * training.accumulate,
        },
    }
    return TimedTraining(trainer.learner.encoders()[0], row)


def _time_inference(
    encoder: Encoder, sentences: Sequence[str], batch_size: int, rounds: int
) -> Record:
    """Measure how long an encoder takes to embed sentences, in batches and in one call.

    Args:
        encoder: The encoder.
        sentences: The sentences.
        batch_size: The number of sentences of a batch.
        rounds: How often both are measured.

    Returns:
        The median seconds over rounds for all sentences, as ``inference`` (in batches) and
        ``at_once`` (in one call); and as ``size`` the number of dimensions of an embedding.
    """
    # The first batch, which takes longer, is not timed.
    n_dimensions = encoder.encode(sentences[:batch_size]).shape[1]
    seconds_in_batches: list[float] = []
    seconds_at_once: list[float] = []
    # Each call of these functions appends its duration to the list.
    encode_at_once = _with_timer(encoder.encode, seconds_at_once)
    for _ in range(rounds):
        seconds_of_batches: list[float] = []
        encode_batch = _with_timer(encoder.encode, seconds_of_batches)
        for start in range(0, len(sentences), batch_size):
            encode_batch(sentences[start : start + batch_size])
        seconds_in_batches.append(sum(seconds_of_batches))
        encode_at_once(sentences)
    return {
        "inference": median(seconds_in_batches),
        "at_once": median(seconds_at_once),
        "size": n_dimensions,
    }


def to_layout(report: Record) -> Layout:
    """Return the table of a report of ``stsbench timing``: seconds of training and inference.

    If the task is STS-B, which the paper SG-OPT timed too, its published seconds are below.

    Args:
        report: The report, as it is written to JSON. ``rows`` holds the encoders with their times.
    """
    from stsbench.boards.tables.layout import Layout, LayoutBlock

    published = _read_published() if report["task"] == "stsb" else []
    blocks = [
        LayoutBlock(title=title, lines=_make_lines(rows))
        for title, rows in (("", report["rows"]), (PUBLISHED_TITLE, published))
        if rows
    ]
    batches = f"{report['sentences']:,} sentences, {report['batch_size']} at a time"
    return Layout(
        caption=f"Seconds on {report['task']}, split {report['split']}: {batches}",
        heads=["training", "inference", "of first", "at once"],
        blocks=blocks,
        legend=list(_make_legend(report)),
    )


def _read_published() -> list[Record]:
    """Return the seconds that the sgopt paper prints for STS-B, one row per line of its table 6.

    The rows are as those of the report, but without what the paper does not print.
    """
    from stsbench.boards.published.rows import read_published_rows

    rows = []
    for row in read_published_rows().values():
        if (row.paper, row.table) == ("sgopt", "table-6"):
            seconds = {score.metric: score.value for score in row.scores}
            rows.append(
                {
                    "name": row.row,
                    "training": {"seconds": seconds.get("training_seconds")},
                    "inference": seconds["inference_seconds"],
                }
            )
    return rows


def _make_lines(rows: Sequence[Record]) -> list[TableLine]:
    """Return the lines of a table of seconds.

    Args:
        rows: The name and the times of each encoder in seconds. That of inference (encode called
            batch by batch) is always known; those of training and of embedding at once may lack.

    Returns:
        A line per row. Its cells are the seconds of training, those of inference, the latter as a
        multiple of the first row's, and the seconds of embedding all sentences at once.
    """
    from stsbench.boards.tables.layout import DisplayCell, TableLine

    lines = []
    for row in rows:
        training = row["training"] and row["training"]["seconds"]
        ratio_to_first = row["inference"] / rows[0]["inference"]
        numbers = (training, row["inference"], ratio_to_first, row.get("at_once"))
        cells = [DisplayCell("–" if number is None else f"{number:.2f}") for number in numbers]
        lines.append(TableLine(label=f"{row['name']}{_estimate_symbol(row)}", cells=cells))
    return lines


def _estimate_symbol(row: Record) -> str:
    """Return a star if the time of a row's training is estimated from some of its steps."""
    training = row["training"] or {}
    return "*" if training.get("measured", 0) < training.get("steps", 0) else ""


def _make_legend(report: Record) -> Iterator[str]:
    """Yield the notes under the table: what was timed, how each row was trained, the machine.

    Args:
        report: The report of ``stsbench timing``, as it is written to JSON.
    """
    n_rounds = report["rounds"]
    rounds = "One round." if n_rounds == 1 else f"Median of {n_rounds} rounds."
    yield (
        f"Inference: encode called with {report['batch_size']} sentences at a time, in the order "
        "of the data, both of each pair and repeated ones again; 'of first' is how many times the "
        "first row's. At once: one call with all of them, as 'stsbench run' does, each distinct "
        "one embedded once. Tokenisation is in both, loading the model and a first batch in "
        f"neither. {rounds}"
    )
    for row in report["rows"]:
        if row["training"]:
            yield _describe_training(row)
    packages = [
        f"{name} {report['versions'][name]}"
        for name in ("python", "stsbench", "torch", "transformers")
        if name in report["versions"]
    ]
    threads = format_count(report["threads"], "thread")
    yield (
        f"Machine: {report['processor']}, device {report['device']}, {threads}; "
        f"{', '.join(packages)}; {report['created'][:10]}."
    )


def _describe_training(row: Record) -> str:
    """Return a note on what the time of an encoder's training includes.

    Args:
        row: The encoder's row of the report. ``training`` has the number of ``texts`` if the
            encoder was fitted on texts, otherwise the numbers of steps and validations.
    """
    # The symbol is a star if the time is estimated from some of the steps, else empty.
    training, symbol = row["training"], _estimate_symbol(row)
    if "texts" in training:
        text = (
            f"fitted on {training['texts']:,} sentences; embedding them is in it, "
            "loading the model is not"
        )
    else:
        text = (
            f"{training['steps']:,} steps of {training['batch_size']} rows of "
            f"{training['corpus']} and {training['validations']} validations"
        )
        if symbol:
            text = f"estimated for {text}, from {training['measured']} steps taken"
        else:
            text += ", no early stopping"
        text += "; loading model and text and writing the encoder are not in it"
    return f"Training of {row['name']}{symbol}: {text}."
