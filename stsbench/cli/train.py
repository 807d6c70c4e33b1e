"""``stsbench train``: one recipe, its runs and what they may cost."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import typer

from stsbench.cli import options as opt
from stsbench.cli.child import continue_in_child
from stsbench.cli.option_values import (
    TypedOptions,
    parse_assignments,
    parse_seeds,
    resolve_spec,
    retype_options,
)
from stsbench.cli.printing import (
    format_points,
    print_errors,
    print_facts,
    print_json,
    print_progress,
    print_text,
)
from stsbench.cli.tables import print_rows
from stsbench.cli.wording import describe_error_line
from stsbench.core import settings
from stsbench.core.errors import EXIT_USER_ERROR, Interrupted, StsbenchError, TrainingError
from stsbench.core.wording import format_count
from stsbench.encoders.runs import RUN_FILE, TrainedRun, find_last_checkpoint

if TYPE_CHECKING:
    from stsbench.recipes.train_plan import TrainPlan
    from stsbench.recipes.trainer import TrainingForecast

RESUME_OPTIONS = (
    "--name", "--base", "--set", "--text", "--keep", "--corpora", "--data", "--out", "--cards",
    "--device", "--deterministic", "--on", "--devices",
)  # fmt: skip
"""The options that decide what is trained, and where: a stopped run is resumed with the same."""


def train_command(
    context: opt.Context,
    recipe: opt.Recipe,
    *,
    seeds: opt.RecipeSeeds = "",
    assign: opt.SetRecipe,
    base: opt.BaseModel = "",
    text: opt.TrainingText = None,
    corpora: opt.Corpora = None,
    data: opt.Data = None,
    name: opt.RunName = "",
    out: opt.RunsFolder = None,
    fresh: opt.FreshTraining = False,
    yes: opt.SkipConfirmation = False,
    dry_run: opt.DryTraining = False,
    keep: opt.KeptWeights = None,
    device: opt.Device = "auto",
    deterministic: opt.Deterministic = False,
    checkpoint_seconds: opt.CheckpointSeconds = 120.0,
    report_to: opt.ReportTo,
    on: opt.TrainingLauncher = "local",
    devices: opt.Devices = None,
    workers: opt.Workers = None,
    _config: opt.Config = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Train an encoder by a recipe.

    The same command resumes a stopped run from its last complete checkpoint.

    Example: stsbench train sup-simcse-small --base FOLDER --corpora DIR
    Example: stsbench train simcse-bert-base --on ray --devices 4
    Example: stsbench train sup-simcse-bert-large --set chunk=64 --workers 4
    """
    from stsbench.recipes.train_plan import plan_training

    catalogue = opt.make_catalogue(cards)
    _check_options(context, on)
    if not dry_run:
        continue_in_child(on)
    recipe, base = resolve_spec(recipe, catalogue), resolve_spec(base, catalogue)
    plan = plan_training(
        recipe,
        catalogue,
        params=parse_assignments(assign),
        text=text,
        keep=keep,
        base=base,
        name=name,
        out=out or settings.runs_folder(),
        corpora=corpora,
        data=data,
        device=device,
        fresh=fresh,
        deterministic=deterministic,
        checkpoint_seconds=checkpoint_seconds,
        report_to=report_to,
        workers=workers,
    )
    words = ["stsbench", "train", recipe, *retype_options(context, *RESUME_OPTIONS), "--seeds"]
    plans = [
        replace(plan, seed=seed, command=shlex.join([*words, str(seed)]))
        for seed in (parse_seeds(seeds) if seeds else plan.card.seeds or [0])
    ]
    if dry_run:
        return _forecast_runs(plans, as_json=as_json)
    if fresh and not yes:
        _confirm_deletion(plans)
    _train(
        plans,
        launcher=on,
        devices=devices,
        card_options=retype_options(context, "--cards"),
        as_json=as_json,
    )
    return 0


def _check_options(context: opt.Context, on: str) -> None:
    """Raise StsbenchError if the user typed an option that would have no effect."""
    typed = TypedOptions.from_context(context)
    typed.forbid_beside(
        "--dry-run", "--fresh", "--yes", "--checkpoint-seconds", "--report-to", "--on", "--devices"
    )
    typed.forbid_elsewhere(on, "--devices", local_option="--device")
    typed.forbid_without("--fresh", "--yes")


def _confirm_deletion(plans: Sequence[TrainPlan]) -> None:
    """Ask before checkpoints of unfinished runs are deleted.

    Raises:
        TrainingError: Nobody can answer.
        Interrupted: The answer is no.
    """
    checkpoints = [find_last_checkpoint(plan.folder) for plan in plans]
    lost = [checkpoint for checkpoint in checkpoints if checkpoint is not None]
    if not lost:
        return
    runs = format_count(len(lost), "unfinished run")
    warning = f"--fresh deletes the checkpoints of {runs}, such as {lost[0]}"
    is_single_process = plans[0].processes.ranks == 1
    if not (is_single_process and sys.stdin.isatty() and sys.stderr.isatty()):
        raise TrainingError(
            f"{warning}; pass --yes as well, or leave out --fresh to resume from them"
        )
    if not typer.confirm(f"{warning}; delete them?", err=True):
        raise Interrupted("nothing was deleted; without --fresh the run resumes")


def _train(
    plans: Sequence[TrainPlan],
    launcher: str,
    devices: int | None,
    card_options: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Train one run after another, and print the runs and the command that scores them.

    A run that is finished already is read, not trained again, unless its plan says so.

    Args:
        plans: A plan per seed.
        launcher: The value of ``--on``: the name of what starts the processes that train.
        devices: How many devices train together; None for the launcher's default.
        card_options: The options of the user's cards, for the command that is printed.
        as_json: Whether to print JSON.
    """
    from stsbench.cli.progress import train_progress
    from stsbench.recipes.train import LAUNCHERS

    finished_folders = [
        plan.folder for plan in plans if not plan.fresh and (plan.folder / RUN_FILE).is_file()
    ]
    runs = []
    start_launcher = LAUNCHERS.load_at(launcher)
    with start_launcher(launcher, devices, print_progress) as launch:
        for plan in plans:
            with train_progress(plan) as on_progress:
                runs.append(launch(plan, on_progress=on_progress))
    # Of several processes only the first one prints.
    if plans[0].processes.rank != 0:
        return
    if as_json:
        print_json(
            [
                {
                    "folder": str(run.folder),
                    "trained_already": run.folder in finished_folders,
                    **run.record,
                }
                for run in runs
            ]
        )
        return
    _print_runs(runs, finished_folders)
    # 'stsbench run' finds names only in the user's folder of runs.
    has_name = plans[0].out.resolve() == settings.runs_folder().resolve()
    specs = [plans[0].name] if has_name else [str(plan.folder) for plan in plans]
    print_text(f"score it: {shlex.join(['stsbench', 'run', *specs, *card_options])}")


def _print_runs(runs: Sequence[TrainedRun], finished_folders: Sequence[Path]) -> None:
    """Print a table of runs with their development scores, their folders, and the mean over seeds.

    Args:
        runs: The runs, one per seed.
        finished_folders: The folders of those that were trained by an earlier command.
    """
    from stsbench.numbers.statistics import mean_and_deviation

    selection = runs[0].card.selection
    # A run that was never validated has no development score: ``chosen`` is None.
    columns = [
        "seed",
        "at start",
        f"{selection.task} {selection.split}",
        "step",
        "time",
        "test sentences seen",
    ]
    print_rows(
        columns, [_run_row(run) for run in runs], number_columns=[0, 1, 2, 4], omit_empty=True
    )
    for run in runs:
        note = ""
        if run.folder in finished_folders:
            date = run.run.created[:10]
            note = f" (trained already, {date}; --fresh trains it again)"
        print_text(f"{run.folder}{note}")
    scores = [100 * run.chosen.score for run in runs if run.chosen]
    if len(scores) > 1:
        mean, deviation = mean_and_deviation(scores)
        print_text(f"mean {mean:.2f} ± {deviation:.2f} over {len(scores)} seeds")


def _run_row(run: TrainedRun) -> list[str]:
    """Return the cells of a training run, as texts.

    They are its seed, the development score before training, that of the kept weights and their
    step, the seconds, and how its training text overlaps with tests.
    """
    start_score = ""
    if run.curve and run.curve[0].step == 0:
        start_score = format_points(run.curve[0].score)
    score, step = "–", f"{run.steps}"
    if run.chosen:
        score = format_points(run.chosen.score)
        step = f"{run.chosen.step:.0f} of {run.steps}"
    overlaps = [overlap for overlap in ("gold", "text") if overlap in run.overlap.values()]
    return [
        str(run.seed),
        start_score,
        score,
        step,
        f"{run.run.seconds:.0f} s",
        " and ".join(overlaps),
    ]


class TrainingCheck(NamedTuple):
    """What loading all that a training needs shows."""

    forecast: TrainingForecast | None
    """None if something is missing for the training."""
    missing: Mapping[str, str]
    """A message by what is missing."""


def check_training(plan: TrainPlan) -> TrainingCheck:
    """Load all that a training needs and forecast its length, or find out what is missing for it.

    Args:
        plan: The training.

    Returns:
        The forecast, with nothing missing; or a message for each requirement that is missing, such
        as the base model or the corpus, without a forecast.

    Raises:
        StsbenchError: The training fails for another reason than that something is missing.
    """
    from stsbench.recipes.train_plan import find_missing
    from stsbench.recipes.trainer import load_trainer

    try:
        return TrainingCheck(load_trainer(plan).forecast(), missing={})
    except StsbenchError as error:
        errors_by_requirement = find_missing(plan)
        is_for_missing = str(error) in map(str, errors_by_requirement.values())
        if not is_for_missing:
            raise
        messages = {
            requirement: describe_error_line(problem)
            for requirement, problem in errors_by_requirement.items()
        }
        return TrainingCheck(forecast=None, missing=messages)


def _forecast_runs(plans: Sequence[TrainPlan], *, as_json: bool) -> int:
    """Print how long a recipe's runs are, or what is missing for them; return the exit code."""
    from stsbench.recipes.train_plan import summarise_plan, uses_training_loop

    plan = plans[0]
    seeds = [plan.seed for plan in plans]
    forecast, missing = check_training(plan)
    # What is printed is the forecast; if something is missing for it, the plan's settings.
    if forecast is not None:
        values_by_key = msgspec.to_builtins(forecast)
        labels_and_values = forecast.lines()
        if forecast.seconds is None and uses_training_loop(plan.card):
            labels_and_values[-1][-1] += "; 'stsbench timing --recipe' measures some steps"
    else:
        values_by_key = summarise_plan(plan)
        labels_and_values = [[key, value] for key, value in values_by_key.items()]
    if as_json:
        report = {"recipe": plan.name, "seeds": seeds, **values_by_key}
        if missing:
            report["missing"] = missing
        print_json(report)
    else:
        seeds_note = f", each of {len(seeds)} seeds" if len(seeds) > 1 else ""
        print_text(f"{plan.name}: {plan.card.name}{seeds_note}\n")
        print_facts(labels_and_values)
    print_errors("missing", missing.values())
    return EXIT_USER_ERROR if missing else 0
