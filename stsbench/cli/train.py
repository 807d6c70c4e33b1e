"""``stsbench train``: one recipe, its runs and what they may cost."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from stsbench.cli import options as opt
from stsbench.cli.child import continue_in_child
from stsbench.cli.printing import (
    format_points,
    print_errors,
    print_facts,
    print_json,
    print_progress,
    print_rows,
    print_text,
)
from stsbench.cli.wording import describe_error_line
from stsbench.core import settings
from stsbench.core.errors import EXIT_USER_ERROR, Interrupted, StsbenchError, TrainingError
from stsbench.encoders.runs import RUN_FILE, TrainedRun, last_checkpoint

if TYPE_CHECKING:
    from stsbench.recipes.train import TrainingForecast
    from stsbench.recipes.train_plan import TrainPlan

SAME = (
    "--name", "--base", "--set", "--text", "--keep", "--corpora", "--data", "--out", "--cards", "--device",
    "--deterministic", "--on", "--devices",
)  # fmt: skip
"""The options by which a run that was stopped is finished: all that decide what is trained, and where."""


def train_command(
    context: opt.Context,
    recipe: opt.Recipe,
    *,
    seeds: opt.RecipeSeeds = "",
    assign: opt.SetRecipe,
    base: opt.Base = "",
    text: opt.TrainingText = None,
    corpora: opt.Corpora = None,
    data: opt.Data = None,
    name: opt.RunName = "",
    out: opt.RunsFolder = None,
    fresh: opt.TrainAgain = False,
    yes: opt.Yes = False,
    dry_run: opt.DryTraining = False,
    keep: opt.Keep = None,
    device: opt.Device = "auto",
    deterministic: opt.Deterministic = False,
    checkpoint_seconds: opt.CheckpointSeconds = 120.0,
    report_to: opt.ReportTo,
    on: opt.WhoTrains = "local",
    devices: opt.Devices = None,
    workers: opt.Workers = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> int:
    """Train an encoder by a recipe.

    The same command resumes a stopped run from its last complete checkpoint.

    Example: stsbench train sup-simcse-small --base FOLDER --corpora DIR
    Example: stsbench train simcse-bert-base --on ray --devices 4
    Example: stsbench train sup-simcse-bert-large --set chunk=64 --workers 4
    """
    from stsbench.api.names import check_own_name
    from stsbench.recipes.train_plan import TrainPlan, read_recipe

    catalogue = opt.read_cards(cards)
    given = opt.TypedOptions.from_context(context)
    given.forbid_beside(
        "--dry-run", "--fresh", "--yes", "--checkpoint-seconds", "--report-to", "--on", "--devices"
    )
    given.forbid_elsewhere(on, "--devices", local_option="--device")
    given.forbid_without("--fresh", "--yes")
    if not dry_run:
        continue_in_child(on)
    recipe, base = opt.resolve_spec(recipe, catalogue), opt.resolve_spec(base, catalogue)
    replaced = _replaced(assign, base=base, text=text, keep=keep)
    if text is not None and Path(text) == Path(read_recipe(recipe, catalogue)[1].data.corpus):
        # What the recipe trains on anyway is no other recipe, and needs no other name.
        del replaced["data.corpus"]
    of_recipe, card = read_recipe(recipe, catalogue, params=replaced)
    if name:
        check_own_name(name, catalogue)
    plan = TrainPlan(
        name=name or of_recipe, card=card, seed=0, out=out or settings.runs_folder(), base=base, corpora=corpora,
        data=data, device=device, fresh=fresh, deterministic=deterministic, checkpoint_seconds=checkpoint_seconds,
        report_to=report_to, workers=workers, catalogue=catalogue,
    )  # fmt: skip
    command = ["stsbench", "train", recipe, *opt.retype_options(context, *SAME), "--seeds"]
    wanted = opt.parse_seeds(seeds) if seeds else card.seeds or [0]
    plans = [replace(plan, seed=seed, command=shlex.join([*command, str(seed)])) for seed in wanted]
    if dry_run:
        return _forecast_runs(plans, as_json=as_json)
    if fresh and not yes:
        _ask_before_deleting(plans)
    _train(plans, on, devices, opt.retype_options(context, "--cards"), as_json=as_json)
    return 0


def _replaced(
    assign: Sequence[str], *, base: str, text: str | None, keep: str | None
) -> dict[str, Any]:
    given = opt.parse_assignments(assign)
    if base and (twice := [key for key in given if key.startswith("base.")]):
        raise StsbenchError(f"--set {twice[0]} has no effect beside --base; leave it out")
    for flag, key, value in (("--text", "data.corpus", text), ("--keep", "selection.keep", keep)):
        if value is not None:
            if {key, key.partition(".")[2]} & {*given}:
                raise StsbenchError(f"{flag} and --set both give {key}; leave out one of them")
            given[key] = value
    return given


def _ask_before_deleting(plans: Sequence[TrainPlan]) -> None:
    """What was computed is deleted only where the user says so twice."""
    lost = [found for plan in plans if (found := last_checkpoint(plan.folder)) is not None]
    if not lost:
        return
    what = f"--fresh deletes the checkpoints of {len(lost)} unfinished run(s), such as {lost[0]}"
    alone = plans[0].processes.ranks == 1
    if not (alone and sys.stdin.isatty() and sys.stderr.isatty()):
        raise TrainingError(f"{what}; pass --yes as well, or leave out --fresh to resume from them")
    if not typer.confirm(f"{what}; delete them?", err=True):
        raise Interrupted("nothing was deleted; without --fresh the run resumes")


def _train(
    plans: Sequence[TrainPlan], on: str, devices: int | None, cards: Sequence[str], *, as_json: bool
) -> None:
    from stsbench.cli.progress import train_progress
    from stsbench.recipes.train import LAUNCHERS

    done, runs = (
        [plan.folder for plan in plans if not plan.fresh and (plan.folder / RUN_FILE).is_file()],
        [],
    )
    with LAUNCHERS.load_at(on)(on, devices, print_progress) as run_training:
        for plan in plans:
            with train_progress(plan) as on_progress:
                runs.append(run_training(plan, on_progress=on_progress))
    if plans[0].processes.rank != 0:
        return
    if as_json:
        print_json(
            [
                {"folder": str(run.folder), "trained_already": run.folder in done, **run.record}
                for run in runs
            ]
        )
        return
    _print_runs(runs, done)
    # Names are looked for in the usual folder of runs alone.
    named = plans[0].out.resolve() == settings.runs_folder().resolve()
    encoders = [plans[0].name] if named else [str(plan.folder) for plan in plans]
    print_text(f"score it: {shlex.join(['stsbench', 'run', *encoders, *cards])}")


def _print_runs(runs: Sequence[TrainedRun], done: Sequence[Path]) -> None:
    from stsbench.numbers.statistics import mean_and_deviation

    rows = []
    for run in runs:
        chosen = run.chosen
        before = format_points(run.curve[0].score) if run.curve and run.curve[0].step == 0 else ""
        score, at = (format_points(chosen.score), f"{chosen.step:.0f} of ") if chosen else ("–", "")
        seen = " and ".join(kind for kind in ("gold", "text") if kind in run.overlap.values())
        rows.append(
            [str(run.seed), before, score, f"{at}{run.steps}", f"{run.run.seconds:.0f} s", seen]
        )
    chosen_by = runs[0].card.selection
    columns = [
        "seed",
        "at start",
        f"{chosen_by.task} {chosen_by.split}",
        "step",
        "time",
        "test sentences seen",
    ]
    print_rows(columns, rows, right=[0, 1, 2, 4], sparse=True)
    for run in runs:
        before = f" (trained already, {run.run.created[:10]}; --fresh trains it again)"
        print_text(f"{run.folder}{before if run.folder in done else ''}")
    scores = [100 * run.chosen.score for run in runs if run.chosen]
    if len(scores) > 1:
        mean, deviation = mean_and_deviation(scores)
        print_text(f"mean {mean:.2f} ± {deviation:.2f} over {len(scores)} seeds")


def tried(plan: TrainPlan) -> tuple[TrainingForecast | None, Mapping[str, str]]:
    """What three steps say of a training, or what is missing for them."""
    from stsbench.recipes.train import load_trainer
    from stsbench.recipes.train_plan import find_missing

    try:
        return load_trainer(plan).forecast(), {}
    except StsbenchError as error:
        errors = find_missing(plan)
        if str(error) not in map(str, errors.values()):
            raise
        return None, {name: describe_error_line(problem) for name, problem in errors.items()}


def _forecast_runs(plans: Sequence[TrainPlan], *, as_json: bool) -> int:
    from stsbench.recipes.train_plan import summarise_plan

    plan, seeds = plans[0], [one.seed for one in plans]
    found, missing = tried(plan)
    facts = msgspec.to_builtins(found) if found else summarise_plan(plan)
    lines = found.lines() if found else [[key, value] for key, value in facts.items()]
    if as_json:
        print_json(
            {
                "recipe": plan.name,
                "seeds": seeds,
                **facts,
                **({"missing": missing} if missing else {}),
            }
        )
    else:
        print_text(
            f"{plan.name}: {plan.card.name}{f', each of {len(seeds)} seeds' if len(seeds) > 1 else ''}\n"
        )
        print_facts(lines)
    print_errors("missing", missing.values())
    return EXIT_USER_ERROR if missing else 0
