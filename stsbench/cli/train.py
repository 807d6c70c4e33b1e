"""``stsbench train``: one recipe, its runs and what they may cost."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

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

RESUME_OPTIONS = (
    "--name", "--base", "--set", "--text", "--keep", "--corpora", "--data", "--out", "--cards",
    "--device", "--deterministic", "--on", "--devices",
)  # fmt: skip
"""The options that decide what is trained, and where: a stopped run is resumed with the same."""
TIMING_OPTIONS = ("--base", "--set", "--text", "--corpora", "--data", "--cards", "--device")
"""Those on which the time of a run depends, which 'stsbench timing' has too."""


def train_command(
    context: opt.Context,
    recipe: opt.Recipe,
    *,
    seeds: opt.RecipeSeeds = "",
    assign: opt.RecipeValues,
    base: opt.BaseModel = "",
    text: opt.TrainingText = None,
    corpora: opt.TextFolder = None,
    data: opt.DataFolder = None,
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
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Train an encoder by a recipe.

    The same command resumes a stopped run from its last complete checkpoint.

    Example: stsbench train sup-simcse-small --base FOLDER --corpora DIR
    Example: stsbench train simcse-bert-base --on ray --devices 4
    Example: stsbench train sup-simcse-bert-large --set chunk=64 --workers 4
    """
    from stsbench.recipes.train_plan import plan_training

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
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
        replaced = retype_options(context, *TIMING_OPTIONS)
        timing = ["stsbench", "timing", "--recipe", recipe, *replaced, "--steps", "10"]
        return _forecast_runs(plans, shlex.join(timing), as_json=as_json)
    if fresh and not yes:
        _confirm_deletion(plans)
    _train(
        plans,
        launcher=on,
        devices=devices,
        run_options=retype_options(context, "--cards", "--data"),
        as_json=as_json,
    )
    return 0


def _check_options(context: opt.Context, on: str) -> None:
    """Raise StsbenchError if the user typed an option that would have no effect.

    Args:
        context: Typer's context of the command, which knows what the user has typed.
        on: The value of ``--on``: where to train.
    """
    typed = TypedOptions.from_context(context)
    # The options behind the first have no effect beside it.
    typed.forbid_beside(
        "--dry-run", "--fresh", "--yes", "--checkpoint-seconds", "--report-to", "--on", "--devices"
    )
    # --devices has an effect only on a cluster (``on`` is not "local"), --device only without one.
    typed.forbid_elsewhere(on, "--devices")
    # --yes has no effect without --fresh.
    typed.forbid_without("--fresh", "--yes")


def _confirm_deletion(plans: Sequence[TrainPlan]) -> None:
    """Ask the user before checkpoints of unfinished runs are deleted, or finished runs replaced.

    Args:
        plans: The trainings that are to begin anew, one per seed.

    Raises:
        TrainingError: There are checkpoints, and nobody can answer: there is no terminal, or
            several processes train. Finished runs alone are then replaced.
        Interrupted: The answer is no.
    """
    folders = [plan.folder for plan in plans]
    finished = [folder for folder in folders if (folder / RUN_FILE).is_file()]
    # The last checkpoint of each run; None for a run without one.
    checkpoints = [*filter(None, map(find_last_checkpoint, folders))]
    losses = [
        f"{loss} {format_count(len(paths), noun)}, such as {paths[0]}"
        for loss, paths, noun in (
            ("deletes the checkpoints of", checkpoints, "unfinished run"),
            ("replaces", finished, "finished run"),
        )
        if paths
    ]
    warning = f"--fresh {' and '.join(losses)}"
    is_single_process = plans[0].processes.ranks == 1
    if losses and is_single_process and sys.stdin.isatty() and sys.stderr.isatty():
        if not typer.confirm(f"{warning}; go on?", err=True):
            raise Interrupted("nothing was deleted; without --fresh a stopped run resumes")
    elif checkpoints:
        raise TrainingError(
            f"{warning}; pass --yes as well, or leave out --fresh to resume from them"
        )


def _train(
    plans: Sequence[TrainPlan],
    launcher: str,
    devices: int | None,
    run_options: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Train one run after another, and print the runs and the command that scores them.

    A run is one training of a recipe with one seed. A run that is finished already is read, not
    trained again, unless its plan says so (``fresh``).

    Args:
        plans: A plan per seed.
        launcher: The value of ``--on``: "local", or "ray" for a cluster of the library Ray, which
            an address may follow, as in "ray://HOST:PORT".
        devices: How many devices train together; None for the launcher's default.
        run_options: The words of the user's ``--cards`` and ``--data``, for the command that is
            printed.
        as_json: Whether to print JSON.
    """
    from stsbench.cli.progress import train_progress
    from stsbench.recipes.train import LAUNCHERS

    finished_folders = [
        plan.folder for plan in plans if not plan.fresh and (plan.folder / RUN_FILE).is_file()
    ]
    runs = []
    # The launcher of this name, whatever address follows it.
    start_launcher = LAUNCHERS.load_at(launcher)
    # launch carries out one training, in this process or where the launcher says.
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
    words = ["stsbench", "run", *specs, *_task_options(plans[0]), *run_options]
    print_text(f"score it: {shlex.join(words)}")


def _task_options(plan: TrainPlan) -> list[str]:
    """Return the option to score a run on the suite quickstart, if it was trained without data.

    That is so if stsbench ships the task on which weights were selected, and data of the suite that
    is scored by default are missing; otherwise the option is not needed and nothing is returned.
    """
    from stsbench.data.task import DEFAULT_SUITE, QUICKSTART_SUITE, list_available

    catalogue = plan.catalogue
    if catalogue.task(plan.card.selection.task).package is None:
        return []
    available_tasks = list_available(catalogue, plan.data)
    if set(catalogue.suites()[DEFAULT_SUITE].tasks) <= set(available_tasks):
        return []
    return ["--tasks", QUICKSTART_SUITE]


def _print_runs(runs: Sequence[TrainedRun], finished_folders: Sequence[Path]) -> None:
    """Print a table of training runs with their development scores, their folders, and their mean.

    Args:
        runs: The runs of a recipe, one per seed. ``chosen`` of each is the point of the training
            whose weights were kept; None if the run was never validated.
        finished_folders: The folders of those that were trained by an earlier command.
    """
    from stsbench.numbers.statistics import mean_and_deviation

    # The task and split of the development score, by which weights are selected.
    selection = runs[0].card.selection
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
    """Return the cells of a training run in the table of runs, as texts.

    Args:
        run: The run. ``curve`` holds the development score at each validation. ``chosen`` is the
            validation whose weights were kept; None if there was none. ``overlap`` says for each
            test what the training text holds of it: "none", "text" (its sentences), "gold" (their
            scores too) or "unknown".

    Returns:
        The seed, the development score before training and that of the kept weights (times 100),
        the step of these weights (or how many steps were taken, if none were chosen), the seconds,
        and "gold", "text", both or nothing: what the training text holds of any test.
    """
    start_score = ""
    # Not every run is validated before its first step.
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


def _forecast_runs(plans: Sequence[TrainPlan], timing_command: str, *, as_json: bool) -> int:
    """Print how long a recipe's trainings are, or what is missing for them; return the exit code.

    Args:
        plans: The trainings of one recipe, one per seed.
        timing_command: The command that measures some steps, for a recipe of unknown speed.
        as_json: Whether to print JSON instead of text.

    Returns:
        2 if something is missing, else 0.

    Raises:
        StsbenchError: The training fails for another reason than that something is missing.
    """
    from stsbench.cli.show import recipe_values
    from stsbench.recipes.train_plan import find_missing, summarise_plan, uses_training_loop
    from stsbench.recipes.trainer import load_trainer

    plan = plans[0]
    seeds = [plan.seed for plan in plans]
    missing: dict[str, str] = {}
    # The forecast is printed: corpus, steps, validations, parameters, device and time. If something
    # is missing, there is no forecast, and the plan's settings are printed.
    try:
        forecast = load_trainer(plan).forecast()
    except StsbenchError as error:
        # What is missing, with its message: find_missing tries to load each input.
        missing = {need: describe_error_line(why) for need, why in find_missing(plan).items()}
        # An error for another reason is raised on.
        if describe_error_line(error) not in missing.values():
            raise
        values_by_key = summarise_plan(plan, recipe_values(plan.name, plan.card))
        labels_and_values = [[key, value] for key, value in values_by_key.items()]
    else:
        values_by_key = msgspec.to_builtins(forecast)
        labels_and_values = forecast.lines()
        if forecast.seconds is None and uses_training_loop(plan.card):
            # The last line is on the time, which is unknown.
            labels_and_values[-1][-1] += f"; '{timing_command}' measures some steps"
    if as_json:
        report: dict[str, object] = {"recipe": plan.name, "seeds": seeds, **values_by_key}
        if missing:
            report["missing"] = missing
        print_json(report)
    else:
        seeds_note = f", each of {len(seeds)} seeds" if len(seeds) > 1 else ""
        print_text(f"{plan.name}: {plan.card.name}{seeds_note}\n")
        print_facts(labels_and_values)
    print_errors("missing", missing.values())
    return EXIT_USER_ERROR if missing else 0
