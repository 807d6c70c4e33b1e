"""``stsbench reproduce``: train the rows of a paper's table, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from stsbench.cli import options as opt
from stsbench.cli.option_values import (
    TypedOptions,
    choose_format,
    parse_assignments,
    parse_seeds,
    resolve_spec,
    retype_options,
)
from stsbench.cli.printing import (
    print_error,
    print_json,
    print_progress,
    print_text,
    write_or_print,
)
from stsbench.cli.tables import print_rows, print_table
from stsbench.cli.wording import describe_error_line
from stsbench.core.cards import RecipeCard
from stsbench.core.errors import EXIT_USER_ERROR, StsbenchError
from stsbench.core.wording import format_duration
from stsbench.encoders.runs import TrainedRun

if TYPE_CHECKING:
    from stsbench.results.record import Result
    from stsbench.studies.reproduction import Reproduction
    from stsbench.studies.trials import Trial
    from stsbench.training.learner import OnProgress


def reproduce_command(
    context: opt.Context,
    table: opt.AblationTable,
    *,
    small: opt.SmallRecipes = False,
    base: opt.BaseModel = "",
    seeds: opt.AblationSeeds = "",
    assign: opt.RecipeValues,
    results: opt.ResultsFolder = Path("results"),
    corpora: opt.TextFolder = None,
    data: opt.DataFolder = None,
    device: opt.Device = "auto",
    deterministic: opt.Deterministic = False,
    dry_run: opt.DryTraining = False,
    out: opt.TableFile = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Train the rows of a paper's table or figure.

    They are scored, and printed with the paper's numbers. 'stsbench list ablations' lists tables
    and figures. Nothing is trained twice; the same command resumes.

    Example: stsbench reproduce simcse-table-3 --small --base FOLDER
    """
    from stsbench.boards.render.formats import TERMINAL, WRITERS
    from stsbench.studies.reproduction import Reproduction, load_ablation
    from stsbench.studies.trials import TrialEnvironment

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    TypedOptions.from_context(context).forbid_beside("--dry-run", "--out")
    # "json", that of the file's ending, or TERMINAL without a file. An unknown one is refused here,
    # not after hours of training.
    fmt = choose_format(TERMINAL, out, WRITERS, as_json=as_json)
    # The rows of the table; with ``small`` by small recipes in place of the paper's.
    ablation = load_ablation(table, catalogue, small=small)
    base = resolve_spec(base, catalogue)
    if small and not base:
        raise StsbenchError(
            "--small trains from a checkpoint of yours; pass --base FOLDER, such as that of the "
            "card minilm-l4-mlm"
        )
    environment = TrialEnvironment(
        results=results,
        corpora=corpora,
        data=data,
        device=device,
        deterministic=deterministic,
        catalogue=catalogue,
        # As words of a command line, for the printed command that resumes a stopped training.
        options=retype_options(
            context, "--corpora", "--data", "--cards", "--device", "--deterministic"
        ),
    )
    reproduction = Reproduction(
        ablation=ablation,
        environment=environment,
        base=base,
        extra_values=parse_assignments(assign),
        # Without seeds of the user's the recipe's own count.
        seeds=parse_seeds(seeds) if seeds else (),
    )
    if dry_run:
        return _forecast_reproduction(reproduction, as_json=as_json)
    return _reproduce(reproduction, fmt, out)


def _reproduce(reproduction: Reproduction, fmt: str, out: Path | None) -> int:
    """Train and score the rows of a paper's table, print or write it, and return the exit code.

    Args:
        reproduction: The rows, and where and how to train them.
        fmt: The format of the table: "terminal" to print it as a table of the terminal.
        out: The file to write in another format; None to print that format.
    """
    from stsbench.bench.progress import RunCallbacks
    from stsbench.boards.render.formats import render
    from stsbench.boards.tables.layout import build_layout
    from stsbench.cli.progress import ReproductionProgress
    from stsbench.studies.trials import TrialCallbacks

    progress = ReproductionProgress(out=None)
    scoring = RunCallbacks(
        on_result=_print_scored, on_failure=progress.on_failure, on_notice=progress.on_notice
    )
    # _show_training shows the progress of one training.
    callbacks = TrialCallbacks(training=partial(_show_training, reproduction), scoring=scoring)
    # Trains what is not trained yet and scores all; the table has the paper's numbers too.
    measured_table = reproduction.run_ablation(callbacks)
    if fmt == "terminal":
        # show="measured" prints all columns: those with the paper's numbers count as measured too.
        layout = build_layout(measured_table, show="measured")
        print_table(replace(layout, label_head="row"))
        print_text(f"Results: {reproduction.environment.results}/")
    else:
        write_or_print(render([measured_table], fmt, show="measured"), out)
    return progress.exit_code


def _show_training(reproduction: Reproduction, trial: Trial) -> AbstractContextManager[OnProgress]:
    from stsbench.cli.progress import train_progress

    number = reproduction.trials.index(trial) + 1
    rows = " = ".join(reproduction.lines_of(trial))
    return train_progress(trial.plan, f"[{number}/{len(reproduction.trials)}] {rows}")


def _print_scored(result: Result) -> None:
    seed = "" if result.train_seed is None else f", seed {result.train_seed}"
    print_progress(f"scored {result.encoder}{seed}: {result.task} {100 * result.score:.2f}")


class TrialForecast(NamedTuple):
    """One training of a reproduction and its time."""

    rows: Sequence[str]
    """The rows of the table that it is for."""
    run: str
    seed: int
    state: str
    """Whether it is complete, unfinished or missing."""
    seconds: float | None
    """The time it took, or is going to take; None if something is missing for it."""


class ReproductionForecast(NamedTuple):
    """All trainings of a reproduction, and what is missing for them."""

    trials: list[TrialForecast]
    missing: list[str]


def _forecast_trials(reproduction: Reproduction) -> ReproductionForecast:
    """Forecast how long the trainings of a paper's table take; nothing is trained.

    Recipes that differ in fractions alone, such as the learning rate, take equally long. A training
    that is not complete gets the time that a complete training of such a recipe took: of several
    the last one. Without a complete one the time is unknown, None.

    Args:
        reproduction: The trainings, each a trial: one recipe with one seed. The ``state`` of a
            trial is "complete", "unfinished" or "missing".

    Returns:
        A forecast per training, and what is missing for them, such as a corpus.
    """
    from stsbench.recipes.train_plan import TrainPlan, find_missing

    # By a text that is equal for recipes whose trainings take equally long.
    seconds_by_cost: dict[str, float | None] = {}
    seconds_by_folder: dict[Path, float | None] = {}
    # Trainings with the same text, base model and development split lack the same things: one of
    # them is checked, by the text of the three.
    plan_by_requirements: dict[str, TrainPlan] = {}
    for trial in reproduction.trials:
        plan, card = trial.plan, trial.plan.card
        if trial.state == "complete":
            seconds = TrainedRun.read(plan.folder).run.seconds
            seconds_by_folder[plan.folder] = seconds_by_cost[_cost_key(card)] = seconds
        else:
            plan_by_requirements[repr((card.base, card.data, card.selection))] = plan
    # Each message once.
    missing = dict.fromkeys(
        describe_error_line(error)
        for plan in plan_by_requirements.values()
        for error in find_missing(plan).values()
    )
    forecasts = [
        TrialForecast(
            reproduction.lines_of(trial),
            run=trial.plan.name,
            seed=trial.plan.seed,
            state=trial.state,
            seconds=seconds_by_folder.get(
                trial.plan.folder, seconds_by_cost.get(_cost_key(trial.plan.card))
            ),
        )
        for trial in reproduction.trials
    ]
    return ReproductionForecast(forecasts, list(missing))


def _forecast_reproduction(reproduction: Reproduction, *, as_json: bool) -> int:
    """Print what ``stsbench reproduce`` would train, how long it takes, and what is missing for it.

    Rows of the paper's table that cannot be reproduced at all are printed with the reason; their
    key in JSON is ``not_had``.

    Args:
        reproduction: The trainings of the table's rows.
        as_json: Whether to print JSON instead of a table.

    Returns:
        The exit code: 2 if something is missing, else 0.
    """
    forecast = _forecast_trials(reproduction)
    omitted_rows = {
        row.label: row.irreproducible_reason
        for row in reproduction.ablation.lines
        if row.irreproducible_reason
    }
    if as_json:
        print_json(
            {
                "table": reproduction.ablation.name,
                "runs": [trial._asdict() for trial in forecast.trials],
                "not_had": omitted_rows,
                "missing": forecast.missing,
            }
        )
        return EXIT_USER_ERROR if forecast.missing else 0
    cells = []
    for trial in forecast.trials:
        # Rows that are trained in the same way share one training.
        label = " = ".join(trial.rows)
        duration = format_duration(trial.seconds) if trial.seconds else "?"
        cells.append([label, str(trial.seed), trial.state, duration])
    # Without columns of names, no text is abbreviated.
    print_rows(
        ["row", "seed", "state", "time of training"], cells, number_columns=[1, 3], name_columns=()
    )
    # The seconds of the trainings still to do, None if unknown.
    remaining = [trial.seconds for trial in forecast.trials if trial.state != "complete"]
    is_known = None not in remaining
    rest = ""
    if remaining and is_known:
        seconds = sum(filter(None, remaining))
        rest = f"; the rest takes about {format_duration(seconds)} without scoring"
    n_trials = len(forecast.trials)
    print_text(f"{n_trials - len(remaining)} of {n_trials} runs are trained{rest}")
    if not is_known:
        print_text("?: known when such a run is trained")
    for label, reason in omitted_rows.items():
        print_text(f"not had: {label}: {reason}")
    for message in forecast.missing:
        print_error(message, about="missing")
    return EXIT_USER_ERROR if forecast.missing else 0


def _cost_key(card: RecipeCard) -> str:
    """Return a text that is equal for recipes whose trainings take equally long.

    Recipes with the same text may differ in their learning rate, and in the fractions (floats) of
    ``params`` and ``student``, such as temperatures and weights: the time does not depend on these.

    Args:
        card: The recipe.
    """
    student = msgspec.to_builtins(card.student)
    values = {**card.params, **{f"student.{key}": value for key, value in student.items()}}
    values_without_fractions = {
        key: "a number" if isinstance(value, float) else value for key, value in values.items()
    }
    # All recipes get the same learning rate.
    training = msgspec.structs.replace(card.training, learning_rate=1.0)
    parts = [card.method, card.base, card.data, training, card.selection, values_without_fractions]
    return repr(parts)
