"""``stsbench train``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer

from stsbench import settings
from stsbench.cards.catalogue import Catalogue
from stsbench.cli.exit_codes import MISTAKE
from stsbench.cli.names import Names
from stsbench.cli.options.encoders import TrainOptions
from stsbench.cli.printing import complain_of_all, note, print_facts, print_json, print_rows, say
from stsbench.cli.run import check_own_name, parse_assignments, parse_seeds
from stsbench.cli.train_progress import train_progress
from stsbench.encoders.trained import RUN_FILE, TrainedRun
from stsbench.encoders.unfinished import last_checkpoint
from stsbench.errors import Stopped, StsbenchError, TrainingError
from stsbench.numbers.spread import spread
from stsbench.recipes.launchers import trained_on
from stsbench.recipes.plan import TrainPlan, read_recipe

SAME = (
    "name",
    "base",
    "assign",
    "text",
    "keep",
    "corpora",
    "data",
    "out",
    "cards",
    "device",
    "deterministic",
    "on",
    "devices",
)
"""The options by which a run that was stopped is finished: all that decide what is trained, and where."""


def train_command(options: TrainOptions) -> int:
    """Train a recipe for each seed and print how it went."""
    plans = _plans(options)
    if options.dry_run:
        return _forecast(plans, as_json=options.as_json)
    if options.fresh and not options.yes:
        _ask_before_deleting(plans)
    done = [] if options.fresh else [plan.folder for plan in plans if (plan.folder / RUN_FILE).is_file()]
    runs = []
    with trained_on(options.on, options.devices, note) as carry_out:
        for plan in plans:
            with train_progress(plan) as on_progress:
                runs.append(carry_out(plan, on_progress=on_progress))
    if plans[0].place.rank == 0:
        _print_runs(runs, done, as_json=options.as_json)
        if not options.as_json:
            # Names are looked for in the usual folder of runs alone.
            named = options.out is None or options.out.resolve() == settings.runs_folder().resolve()
            encoders = [plans[0].name] if named else [str(run.folder) for run in runs]
            scored_by = ["stsbench", "run", *encoders, *options.typed("cards")]
            say(f"score it: {shlex.join(scored_by)}")
    return 0


def _plans(options: TrainOptions) -> list[TrainPlan]:
    """A plan for each seed."""
    catalogue = Catalogue(options.cards)
    given = _replaced(options)
    names = Names(catalogue)
    recipe, base = names.one_to_load(options.recipe), names.one_to_load(options.base)
    if options.text is not None and Path(options.text) == Path(read_recipe(recipe, catalogue)[1].data.corpus):
        # What the recipe trains on anyway is no other recipe, and needs no other name.
        del given["data.corpus"]
    name, card = read_recipe(recipe, catalogue, assign=given)
    if options.name:
        check_own_name(options.name, catalogue)
    command = ["stsbench", "train", recipe, *options.typed(*SAME)]
    return [
        TrainPlan(
            name=options.name or name,
            card=card,
            seed=seed,
            out=options.out or settings.runs_folder(),
            base=base,
            corpora=options.corpora,
            data=options.data,
            device=options.device,
            fresh=options.fresh,
            command=shlex.join([*command, "--seeds", str(seed)]),
            deterministic=options.deterministic,
            checkpoint_seconds=options.checkpoint_seconds,
            report_to=options.report_to,
            workers=options.workers,
            catalogue=catalogue,
        )
        for seed in (parse_seeds(options.seeds) if options.seeds else card.seeds or [0])
    ]


def _replaced(options: TrainOptions) -> dict[str, Any]:
    """The recipe's values that are replaced, each by one option alone."""
    given = parse_assignments(options.assign)
    if options.base and (twice := [key for key in given if key.startswith("base.")]):
        raise StsbenchError(f"--set {twice[0]} has no effect beside --base; leave it out")
    for flag, key, value in (("--text", "data.corpus", options.text), ("--keep", "selection.keep", options.keep)):
        if value is not None:
            if {key, key.partition(".")[2]} & {*given}:
                raise StsbenchError(f"{flag} and --set both give {key}; leave out one of them")
            given[key] = value
    return given


def _ask_before_deleting(plans: Sequence[TrainPlan]) -> None:
    """What was computed is deleted only where the user says so twice.

    Raises:
        TrainingError: checkpoints would be lost, and nobody is there to ask.
        Stopped: the user wants to keep them.
    """
    lost = [found for plan in plans if (found := last_checkpoint(plan.folder)) is not None]
    if not lost:
        return
    what = f"--fresh deletes the checkpoints of {len(lost)} unfinished run(s), such as {lost[0]}"
    alone = plans[0].place.ranks == 1
    if not (alone and sys.stdin.isatty() and sys.stderr.isatty()):
        raise TrainingError(f"{what}; pass --yes as well, or leave out --fresh to resume from them")
    if not typer.confirm(f"{what}; delete them?", err=True):
        raise Stopped("nothing was deleted; without --fresh the run resumes")


def _print_runs(runs: Sequence[TrainedRun], done: Sequence[Path], *, as_json: bool) -> None:
    if as_json:
        facts = [{"folder": str(run.folder), "trained_already": run.folder in done, **run.facts} for run in runs]
        print_json(facts)
        return
    rows = []
    for run in runs:
        record = run.record
        start = record.curve[0] if record.curve else None
        before = f"{100 * start.score:.2f}" if start and start.step == 0 and start.score is not None else ""
        score = f"{100 * record.chosen.score:.2f}" if record.chosen else "–"
        at = f"{record.chosen.step:.0f} of {record.steps}" if record.chosen else str(record.steps)
        seen = [kind for kind in ("gold", "text") if kind in record.overlap.values()]
        rows.append([str(run.seed), before, score, at, f"{record.run.seconds:.0f} s", " and ".join(seen)])
    chosen_by = runs[0].card.selection
    columns = ["seed", "at start", f"{chosen_by.task} {chosen_by.split}", "step", "time", "test sentences seen"]
    shown = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    right = [at for at, column in enumerate(shown) if column in (0, 1, 2, 4)]
    print_rows([columns[at] for at in shown], [[row[at] for at in shown] for row in rows], right=right)
    for run in runs:
        before = f" (trained already, {run.record.run.created[:10]}; --fresh trains it again)"
        say(f"{run.folder}{before if run.folder in done else ''}")
    scores = [100 * run.record.chosen.score for run in runs if run.record.chosen]
    if len(scores) > 1:
        mean, deviation = spread(scores)
        say(f"mean {mean:.2f} ± {deviation:.2f} over {len(scores)} seeds")


def _forecast(plans: Sequence[TrainPlan], *, as_json: bool) -> int:
    """Say what training takes; where material is missing, what is planned and what is missing: that is no success."""
    from stsbench.recipes.outline import find_missing, outline
    from stsbench.recipes.trainer import load_trainer

    plan, seeds = plans[0], [one.seed for one in plans]
    head: dict[str, Any] = {"recipe": plan.name, "seeds": seeds}
    missing: dict[str, str] = {}
    try:
        found = load_trainer(plan).forecast()
        facts, lines = msgspec.to_builtins(found), found.lines()
    except StsbenchError as error:
        missing = find_missing(plan)
        if str(error) not in missing.values():
            raise
        facts = outline(plan)
        lines = [[key, value] for key, value in facts.items()]
    if as_json:
        print_json({**head, **facts, **({"missing": missing} if missing else {})})
    else:
        say(f"{plan.name}: {plan.card.name}{f', each of {len(seeds)} seeds' if len(seeds) > 1 else ''}\n")
        print_facts(lines)
    complain_of_all("missing", missing.values())
    return MISTAKE if missing else 0
