"""``stsbench train``, ``stsbench sweep`` and ``stsbench reproduce``: one recipe, or many planned and scored together."""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from stsbench.api.names import Names, check_own_name
from stsbench.api.progress import duration
from stsbench.bench.plan import Listener
from stsbench.boards.render import render
from stsbench.boards.tables.table import lay_out
from stsbench.cli import options as opt
from stsbench.cli.printing import (
    BUG,
    MISTAKE,
    complain,
    complain_of_all,
    note,
    points,
    print_facts,
    print_json,
    print_traceback,
    say,
    write_or_say,
    write_records,
)
from stsbench.cli.progress import train_progress
from stsbench.cli.screen import print_rows, print_table
from stsbench.core import settings
from stsbench.core.cards import RecipeCard, toml_tables
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import Stopped, StsbenchError, TrainingError
from stsbench.core.files import write_whole
from stsbench.encoders.runs import RUN_FILE, TrainedRun, last_checkpoint
from stsbench.numbers.statistics import spread
from stsbench.plots.draw import Dot, draw_dots
from stsbench.recipes.plan import TrainPlan, find_missing, outline, read_recipe
from stsbench.recipes.train import LAUNCHERS, Forecast, load_trainer
from stsbench.results.record import Result
from stsbench.studies.reproduction import Reproduction, load_ablation
from stsbench.studies.sweep import CARRIERS, Book, Carrier, Sweep, SweepRow, winner_card
from stsbench.studies.trials import STATES, Trial, TrialWatcher, Workshop

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
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Train an encoder by a recipe.

    The same command resumes a stopped run from its last complete checkpoint.

    Example: stsbench train sup-simcse-small --base FOLDER --corpora DIR
    Example: stsbench train simcse-bert-base --on ray --devices 4
    Example: stsbench train sup-simcse-bert-large --set chunk=64 --workers 4
    """
    given = opt.Given.of(context)
    given.apart("--dry-run", "--fresh", "--yes", "--checkpoint-seconds", "--report-to", "--on", "--devices")
    given.placed(on, "--devices", here="--device")
    given.needs("--fresh", "--yes")
    catalogue = Catalogue(cards)
    names, replaced = Names(catalogue), _replaced(assign, base=base, text=text, keep=keep)
    recipe, base = names.one_to_load(recipe), names.one_to_load(base)
    if text is not None and Path(text) == Path(read_recipe(recipe, catalogue)[1].data.corpus):
        # What the recipe trains on anyway is no other recipe, and needs no other name.
        del replaced["data.corpus"]
    of_recipe, card = read_recipe(recipe, catalogue, assign=replaced)
    if name:
        check_own_name(name, catalogue)
    command = ["stsbench", "train", recipe, *opt.retyped(context, *SAME), "--seeds"]
    plans = [
        TrainPlan(
            name=name or of_recipe,
            card=card,
            seed=seed,
            out=out or settings.runs_folder(),
            base=base,
            corpora=corpora,
            data=data,
            device=device,
            fresh=fresh,
            deterministic=deterministic,
            checkpoint_seconds=checkpoint_seconds,
            report_to=report_to,
            workers=workers,
            catalogue=catalogue,
            command=shlex.join([*command, str(seed)]),
        )
        for seed in (opt.parse_seeds(seeds) if seeds else card.seeds or [0])
    ]
    if dry_run:
        return _forecast_runs(plans, as_json=as_json)
    if fresh and not yes:
        _ask_before_deleting(plans)
    done, runs = [] if fresh else [plan.folder for plan in plans if (plan.folder / RUN_FILE).is_file()], []
    with LAUNCHERS.load_at(on)(on, devices, note) as carry_out:
        for plan in plans:
            with train_progress(plan) as on_progress:
                runs.append(carry_out(plan, on_progress=on_progress))
    if plans[0].place.rank == 0:
        # Names are looked for in the usual folder of runs alone.
        named = out is None or out.resolve() == settings.runs_folder().resolve()
        encoders = [plans[0].name] if named else [str(plan.folder) for plan in plans]
        _print_runs(runs, done, ["stsbench", "run", *encoders, *opt.retyped(context, "--cards")], as_json=as_json)
    return 0


def _replaced(assign: Sequence[str], *, base: str, text: str | None, keep: str | None) -> dict[str, Any]:
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
    alone = plans[0].place.ranks == 1
    if not (alone and sys.stdin.isatty() and sys.stderr.isatty()):
        raise TrainingError(f"{what}; pass --yes as well, or leave out --fresh to resume from them")
    if not typer.confirm(f"{what}; delete them?", err=True):
        raise Stopped("nothing was deleted; without --fresh the run resumes")


def _print_runs(runs: Sequence[TrainedRun], done: Sequence[Path], next: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json([{"folder": str(run.folder), "trained_already": run.folder in done, **run.facts} for run in runs])
        return
    rows = []
    for run in runs:
        record, chosen = run.record, run.record.chosen
        before = points(record.curve[0].score) if record.curve and record.curve[0].step == 0 else ""
        score, at = (
            (points(chosen.score), f"{chosen.step:.0f} of {record.steps}") if chosen else ("–", f"{record.steps}")
        )
        seen = " and ".join(kind for kind in ("gold", "text") if kind in record.overlap.values())
        rows.append([str(run.seed), before, score, at, f"{record.run.seconds:.0f} s", seen])
    chosen_by = runs[0].card.selection
    columns = ["seed", "at start", f"{chosen_by.task} {chosen_by.split}", "step", "time", "test sentences seen"]
    print_rows(columns, rows, right=[0, 1, 2, 4], sparse=True)
    for run in runs:
        before = f" (trained already, {run.record.run.created[:10]}; --fresh trains it again)"
        say(f"{run.folder}{before if run.folder in done else ''}")
    scores = [100 * run.record.chosen.score for run in runs if run.record.chosen]
    if len(scores) > 1:
        mean, deviation = spread(scores)
        say(f"mean {mean:.2f} ± {deviation:.2f} over {len(scores)} seeds")
    say(f"score it: {shlex.join(next)}")


def _tried(plan: TrainPlan) -> tuple[Forecast | None, Mapping[str, str]]:
    """What three steps say of a training, or what is missing for them."""
    try:
        return load_trainer(plan).forecast(), {}
    except StsbenchError as error:
        missing = find_missing(plan)
        if str(error) not in missing.values():
            raise
        return None, missing


def _forecast_runs(plans: Sequence[TrainPlan], *, as_json: bool) -> int:
    plan, seeds = plans[0], [one.seed for one in plans]
    found, missing = _tried(plan)
    facts = msgspec.to_builtins(found) if found else outline(plan)
    lines = found.lines() if found else [[key, value] for key, value in facts.items()]
    if as_json:
        print_json({"recipe": plan.name, "seeds": seeds, **facts, **({"missing": missing} if missing else {})})
    else:
        say(f"{plan.name}: {plan.card.name}{f', each of {len(seeds)} seeds' if len(seeds) > 1 else ''}\n")
        print_facts(lines)
    complain_of_all("missing", missing.values())
    return MISTAKE if missing else 0


if TYPE_CHECKING:
    from stsbench.training.seams import OnProgress


def sweep_command(
    context: opt.Context,
    card: opt.SweepCard,
    *,
    base: opt.Base = "",
    text: opt.TrainingText = None,
    corpora: opt.Corpora = None,
    data: opt.Data = None,
    out: opt.SweepFolder = None,
    on: opt.WhoTrains = "local",
    cores: opt.Cores = 1,
    device: opt.Device = "auto",
    checkpoint_seconds: opt.CheckpointSeconds = 120.0,
    plot: opt.Plot = None,
    dry_run: opt.DryTraining = False,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Try values of recipes and keep the best.

    A card names recipes, values, seeds and the development split that decides. The same command resumes.

    Example: stsbench sweep rates.toml --base FOLDER --on ray
    """
    given = opt.Given.of(context)
    given.apart("--dry-run", "--plot", "--checkpoint-seconds")
    given.placed(on, "--cores", here="--device")
    opt.check_figure("--plot", plot)
    carry_out, catalogue, folder = CARRIERS.load_at(on), Catalogue(cards), out or Path("sweeps") / card.stem
    workshop = Workshop(
        results=folder / "results",
        corpora=corpora,
        data=data,
        device=device,
        checkpoint_seconds=checkpoint_seconds,
        catalogue=catalogue,
        options=opt.retyped(context, "--corpora", "--data", "--cards", "--device"),
    )
    base = Names(catalogue).one_to_load(base)
    book = Book(Sweep.read(card, workshop, folder=folder, base=base, text=text or ""))
    if dry_run:
        _forecast_sweep(book, as_json=as_json)
        return 0
    failures = _carry_out_sweep(book, on, cores, carry_out)
    _write_sweep(book)
    if plot is not None:
        write_whole(plot, _sweep_figure(book).to_bytes(plot.suffix.removeprefix(".")))
    if as_json:
        print_json(_sweep_facts(book))
    else:
        _print_sweep(book)
    for failure, encoder in failures.items():
        complain(failure, about=encoder)
    return MISTAKE if failures else 0


def _carry_out_sweep(book: Book, on: str, cores: int, carry_out: Carrier) -> dict[str, str]:
    """Say each training that is done; returns why some have no score, with the last encoder of each reason."""
    done, failures = itertools.count(1), dict[str, str]()

    def tell(row: SweepRow, trial: Trial) -> None:
        score = row.scores[trial.plan.seed]
        what = score.failure or f"{points(score.score)}{' (stopped early)' if score.early else ''}"
        note(f"[{next(done)}/{book.total}] {_named(row, book)}, seed {trial.plan.seed}: {what}")
        if score.failure:
            failures[score.failure] = trial.encoder

    book.on_close = tell
    carry_out(book, on, cores, TrialWatcher(training=lambda trial: train_progress(trial.plan)))
    return failures


def _named(row: SweepRow, book: Book) -> str:
    """A setting in words; of several recipes with the recipe's name."""
    recipe = [row.setting.recipe] if len(book.sweep.card.recipes) > 1 else []
    return ", ".join([*recipe, *(f"{key}={value}" for key, value in row.setting.values.items())])


def _print_sweep(book: Book) -> None:
    card, rows = book.sweep.card, book.ranked()
    keys = [*(["recipe"] if len(card.recipes) > 1 else []), *card.values]
    lines = []
    for row in rows:
        values = {"recipe": row.setting.recipe, **row.setting.values}
        scored = [one for one in row.scores.values() if one.score is not None]
        how = ["stopped early"] if any(one.early for one in scored) else []
        how += ["failed"] if any(one.failure for one in row.scores.values()) else []
        mean = [points(row.spread.mean), points(row.spread.deviation)] if row.spread else ["–", ""]
        lines.append(
            [*(str(values[key]) for key in keys), *mean, f"{len(scored)} of {len(card.seeds)}", ", ".join(how)]
        )
    columns = [*keys, f"{card.decide.task} {card.decide.split}", "±", "seeds", ""]
    print_rows(columns, lines, right=range(len(keys), len(keys) + 3), sparse=True)
    for row in book.winners():
        say(f"best of {row.setting.recipe}: {_named(row, book)}; its card: {_winner(book, row)}")
        say(f"score it: stsbench run {row.encoder}")
    found = [row.spread for row in rows if row.whole and row.spread]
    if len(found) > 1 and found[0].deviation is not None:
        gain, deviation = found[0].mean - found[1].mean, max(found[0].deviation, found[1].deviation or 0.0)
        if gain < deviation:
            by, than = points(gain), points(deviation)
            say(f"the next differs by {by}, less than seeds do ({than}): more seeds would tell")
    say(f"all trials: {book.sweep.folder / 'trials.csv'}")


def _winner(book: Book, row: SweepRow) -> Path:
    return book.sweep.folder / "trainers" / f"{winner_card(book.sweep, row)[0]}.toml"


def _write_sweep(book: Book) -> None:
    trials = [
        {"recipe": row.setting.recipe, **row.setting.values, "seed": trial.plan.seed, "score": one.score}
        | {"state": one.failure or ("stopped early" if one.early else "scored"), "encoder": trial.encoder}
        for row in book.rows
        for trial in row.trials
        if (one := row.scores.get(trial.plan.seed)) is not None
    ]
    heads = ["recipe", *book.sweep.card.values, "seed", "score", "state", "encoder"]
    write_records(book.sweep.folder / "trials.csv", trials, heads)
    for row in book.winners():
        write_whole(_winner(book, row), toml_tables(winner_card(book.sweep, row)[1]).encode())


def _sweep_facts(book: Book) -> dict[str, Any]:
    trials = [
        {
            "recipe": row.setting.recipe,
            "values": dict(row.setting.values),
            "encoder": row.encoder,
            "mean": row.spread and row.spread.mean,
            "deviation": row.spread and row.spread.deviation,
            "whole": row.whole,
            "seeds": {str(seed): one._asdict() for seed, one in row.scores.items()},
        }
        for row in book.ranked()
    ]
    winners = [
        {"recipe": row.setting.recipe, "encoder": row.encoder, "card": str(_winner(book, row))}
        for row in book.winners()
    ]
    return {"sweep": book.sweep.card.name, "trials": trials, "winners": winners}


SHOWN = 40
"""So many settings are drawn, the best of all."""


def _sweep_figure(book: Book) -> Any:  # noqa: ANN401 - matplotlib's
    decide, dots = book.sweep.card.decide, []
    for row, found in [(row, row.spread) for row in book.ranked() if row.spread][:SHOWN]:
        seeds = [(f"seed {seed}", one.score, False) for seed, one in row.scores.items() if one.score is not None]
        for series, score, filled in [("mean", found.mean, True), *seeds]:
            dots.append(Dot(group=_named(row, book), series=series, value=100 * score, filled=filled))
    return draw_dots(dots, axis=f"score on {decide.task} {decide.split}", title=book.sweep.card.name)


def _forecast_sweep(book: Book, *, as_json: bool) -> None:
    trials, card, total = book.all_known(), book.sweep.card, book.total
    seeds = len(card.seeds)
    counts: dict[str, int] = {state: sum(trial.state == state for trial in trials) for state in STATES}
    counts["missing"] += total - len(trials)
    facts: dict[str, Any] = {"sweep": card.name, "settings": total // seeds, "seeds": seeds, **counts}
    lines = [["settings", f"{total // seeds}, search {card.search}"], ["trainings", f"{total}, {seeds} seeds each"]]
    lines += [[state, str(count)] for state, count in counts.items()]
    if to_do := next((trial for trial in trials if trial.state != "complete"), None):
        seconds = load_trainer(replace(to_do.plan, fresh=True)).forecast().seconds
        facts["seconds"] = seconds * (counts["missing"] + counts["unfinished"])
        hours = "" if card.budget.hours is None else f"; the budget is {card.budget.hours:g} h"
        about = duration(facts["seconds"])
        lines += [["time", f"about {about} one after the other, by three steps of the first{hours}"]]
    if as_json:
        print_json(facts)
        return
    say(f"{book.sweep.name}: {card.name}\n")
    print_facts(lines)


def reproduce_command(
    context: opt.Context,
    table: opt.AblationTable,
    *,
    small: opt.Small = False,
    base: opt.Base = "",
    seeds: opt.AblationSeeds = "",
    assign: opt.SetRecipe,
    results: opt.ResultsFolder = Path("results"),
    corpora: opt.Corpora = None,
    data: opt.Data = None,
    device: opt.Device = "auto",
    deterministic: opt.Deterministic = False,
    dry_run: opt.DryTraining = False,
    out: opt.TableFile = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Train the rows of a paper's table or figure.

    They are scored, and printed beside the paper's numbers. 'stsbench list ablations' names tables and figures. Nothing is
    trained twice; the same command resumes.

    Example: stsbench reproduce simcse-table-3 --small --base FOLDER
    """
    opt.Given.of(context).apart("--dry-run", "--out")
    catalogue = Catalogue(cards)
    ablation = load_ablation(table, catalogue, small=small)
    base = Names(catalogue).one_to_load(base)
    if small and not base:
        raise StsbenchError(
            "--small trains from a checkpoint of yours; pass --base FOLDER, such as that of the card minilm-l4-mlm"
        )
    workshop = Workshop(
        results=results,
        corpora=corpora,
        data=data,
        device=device,
        deterministic=deterministic,
        catalogue=catalogue,
        options=opt.retyped(context, "--corpora", "--data", "--cards", "--device", "--deterministic"),
    )
    planned = Reproduction(
        ablation=ablation,
        workshop=workshop,
        base=base,
        seeds=opt.parse_seeds(seeds) if seeds else (),
        also=opt.parse_assignments(assign),
    )
    if dry_run:
        return _forecast_reproduction(planned, as_json=as_json)
    progress = _Reproducing(planned)
    scoring = Listener(scored=progress.on_scored, failed=progress.on_failed, noticed=complain)
    made = planned.carry_out(TrialWatcher(training=progress.training, scoring=scoring))
    fmt = opt.written_as("terminal", out, as_json=as_json)
    if fmt == "terminal":
        print_table(replace(lay_out(made, "measured"), label_head="row"))
        say(f"Results: {results}/")
    else:
        write_or_say(render([made], fmt, show="measured"), out)
    return progress.code


class _Reproducing:
    def __init__(self, planned: Reproduction) -> None:
        self.planned, self.code, self.said = planned, 0, set[str]()

    def training(self, trial: Trial) -> AbstractContextManager[OnProgress]:
        place = self.planned.trials.index(trial) + 1
        what = f"[{place}/{len(self.planned.trials)}] {' = '.join(self.planned.lines_of(trial))}"
        return train_progress(trial.plan, what)

    def on_scored(self, result: Result) -> None:
        seed = "" if result.train_seed is None else f", seed {result.train_seed}"
        note(f"scored {result.encoder}{seed}: {result.task} {100 * result.score:.2f}")

    def on_failed(self, what: str, error: Exception) -> None:
        self.code = max(self.code, MISTAKE if isinstance(error, StsbenchError) else BUG)
        if not isinstance(error, StsbenchError):
            print_traceback(error)
        if str(error) not in self.said:
            complain(error, about=what)
        self.said.add(str(error))


def _forecast_reproduction(planned: Reproduction, *, as_json: bool) -> int:
    facts, missing = list[dict[str, Any]](), dict[str, None]()
    tried: dict[str, float | None] = {}
    for one in planned.trials:
        cost, plan, rows = _cost(one.plan.card), one.plan, planned.lines_of(one)
        if one.state != "complete" and cost not in tried:
            note(f"trying three steps: {' = '.join(rows)}")
            found, lacks = _tried(plan)
            tried[cost] = found.seconds if found else None
            missing |= dict.fromkeys(lacks.values())
        seconds = TrainedRun.read(plan.folder).record.run.seconds if one.state == "complete" else tried[cost]
        facts.append({"rows": rows, "run": plan.name, "seed": plan.seed, "state": one.state, "seconds": seconds})
    not_had = {line.label: line.why for line in planned.ablation.lines if line.why}
    if as_json:
        print_json({"table": planned.ablation.name, "runs": facts, "not_had": not_had, "missing": list(missing)})
        return MISTAKE if missing else 0
    cells = [
        [" = ".join(one["rows"]), str(one["seed"]), one["state"], duration(one["seconds"]) if one["seconds"] else "?"]
        for one in facts
    ]
    print_rows(["row", "seed", "state", "time of training"], cells, right=[1, 3], names=())
    left = [one["seconds"] for one in facts if one["state"] != "complete"]
    known = [seconds for seconds in left if seconds is not None]
    rest = f"; the rest takes about {duration(sum(known))} without scoring" if known else ""
    say(f"{len(facts) - len(left)} of {len(facts)} runs are trained{rest}")
    for label, why in not_had.items():
        say(f"not had: {label}: {why}")
    complain_of_all("missing", missing)
    return MISTAKE if missing else 0


def _cost(card: RecipeCard) -> str:
    """What recipes share that take as long: all but temperatures, weights and rates."""
    settings = {**card.params, **{f"student.{key}": value for key, value in msgspec.to_builtins(card.student).items()}}
    shown = {key: "a number" if isinstance(value, float) else value for key, value in settings.items()}
    training = msgspec.structs.replace(card.training, learning_rate=1.0)
    return repr([card.method, card.base, card.data, training, card.selection, shown])
