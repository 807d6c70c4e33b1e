"""``stsbench sweep``: plan, train and score many settings of recipes; keep the best of each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.child import continue_in_child
from stsbench.cli.option_values import TypedOptions, resolve_spec, retype_options
from stsbench.cli.printing import (
    format_points,
    print_error,
    print_errors,
    print_facts,
    print_json,
    print_progress,
    print_text,
    write_or_print,
    write_records,
)
from stsbench.cli.tables import print_rows
from stsbench.cli.wording import describe_error_line
from stsbench.core.errors import EXIT_USER_ERROR
from stsbench.core.toml import toml_tables
from stsbench.core.wording import format_count, format_duration
from stsbench.plots.draw import DotPoint, draw_dots
from stsbench.plots.labels import figure_width

if TYPE_CHECKING:
    from stsbench.studies.carriers import Carrier
    from stsbench.studies.sweep import SweepRow, SweepState
    from stsbench.studies.trials import Trial


def sweep_command(
    context: opt.Context,
    card: opt.SweepCard,
    *,
    base: opt.BaseModel = "",
    text: opt.TrainingText = None,
    corpora: opt.TextFolder = None,
    data: opt.DataFolder = None,
    out: opt.SweepFolder = None,
    on: opt.TrainingLauncher = "local",
    cores: opt.Cores = 1,
    device: opt.Device = "auto",
    checkpoint_seconds: opt.CheckpointSeconds = 120.0,
    plot: opt.Plot = None,
    width: opt.FigureWidth = None,
    dry_run: opt.DryTraining = False,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Train with several values of a recipe and keep the best.

    A card names recipes, values, seeds and the development split that decides. The same command
    resumes.

    Example: stsbench sweep rates.toml --base FOLDER --on ray
    """
    from stsbench.studies.carriers import CARRIERS
    from stsbench.studies.sweep import Sweep, SweepState
    from stsbench.studies.trials import TrialEnvironment

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    typed = TypedOptions.from_context(context)
    typed.forbid_beside("--dry-run", "--plot", "--checkpoint-seconds")
    typed.forbid_without("--plot", "--width")
    typed.forbid_elsewhere(on, "--cores")
    if not dry_run:
        continue_in_child(on)
    carrier = CARRIERS.load_at(on)
    folder = out or Path("sweeps") / card.stem
    environment = TrialEnvironment(
        results=folder / "results",
        corpora=corpora,
        data=data,
        device=device,
        checkpoint_seconds=checkpoint_seconds,
        catalogue=catalogue,
        options=retype_options(context, "--corpora", "--data", "--cards", "--device"),
    )
    base = resolve_spec(base, catalogue)
    state = SweepState(Sweep.read(card, environment, folder=folder, base=base, text=text or ""))
    if dry_run:
        return _forecast_sweep(state, as_json=as_json)
    failures = _run_sweep(state, executor=on, cores=cores, carrier=carrier)
    _write_files(state)
    if plot is not None:
        with figure_width(width):
            write_or_print(_draw_sweep(state), plot, silent=True)
    if as_json:
        print_json(_sweep_to_json(state))
    else:
        _print_sweep(state)
    for failure, encoder in failures.items():
        print_error(failure, about=encoder)
    return EXIT_USER_ERROR if failures else 0


def _run_sweep(state: SweepState, executor: str, cores: int, carrier: Carrier) -> dict[str, str]:
    """Carry out a sweep (many trainings with different settings) and print each that is done.

    Args:
        state: The sweep: its settings, and their trainings that are done and to come.
        executor: The value of ``--on``: "local", or "ray" for a cluster of the library Ray.
        cores: The processor cores of each training.
        carrier: The function that carries out the sweep by this executor.

    Returns:
        By reason why trainings have no score: the last encoder that failed for it.
    """
    from stsbench.cli.progress import train_progress
    from stsbench.studies.trials import TrialCallbacks

    trial_numbers = itertools.count(1)
    encoders_by_failure: dict[str, str] = {}

    def print_trial(row: SweepRow, trial: Trial) -> None:
        """Print one training that is done: its setting, seed and score, or why it failed.

        Args:
            row: The setting, with the outcomes of its trainings by seed (``scores``).
            trial: The training.
        """
        # An outcome has a score, or else the reason why it has none (``failure``).
        outcome = row.scores[trial.plan.seed]
        description = outcome.failure or format_points(outcome.score)
        if outcome.stopped_early and not outcome.failure:
            description += " (stopped early)"
        setting = _describe_setting(row, state)
        count = f"[{next(trial_numbers)}/{state.total}]"
        print_progress(f"{count} {setting}, seed {trial.plan.seed}: {description}")
        if outcome.failure:
            encoders_by_failure[outcome.failure] = trial.encoder

    # The state calls this function whenever a training is done.
    state.on_close = print_trial
    callbacks = TrialCallbacks(training=lambda trial: train_progress(trial.plan))
    carrier(state, executor, cores, callbacks)
    return encoders_by_failure


def _describe_setting(row: SweepRow, state: SweepState) -> str:
    """Return the values of a setting as text, after the recipe's name if there are several."""
    recipes = [row.setting.recipe] if len(state.sweep.card.recipes) > 1 else []
    return ", ".join([*recipes, *(f"{key}={value}" for key, value in row.setting.values.items())])


def _print_sweep(state: SweepState) -> None:
    """Print a table of a sweep's settings, the best first, then the best of each recipe.

    Settings with trainings still to do come last, and are the best of no recipe. A line says so if
    the two best settings differ by less than training seeds do.

    Args:
        state: The sweep. Its card says which values are tried (``values``), and on which task and
            split they are compared (``decide``).
    """
    card, rows = state.sweep.card, state.ranked()
    # The columns of a setting: the names of its values.
    keys = list(card.values)
    if len(card.recipes) > 1:
        keys.insert(0, "recipe")
    cells = [_setting_cells(row, keys, n_seeds=len(card.seeds)) for row in rows]
    number_heads = [f"{card.decide.task} {card.decide.split}", "±", "seeds"]
    number_columns = range(len(keys), len(keys) + len(number_heads))
    # The last column, of notes, has no head.
    print_rows([*keys, *number_heads, ""], cells, number_columns=number_columns, omit_empty=True)
    for row in state.winners():
        setting = _describe_setting(row, state)
        print_text(
            f"best of {row.setting.recipe}: {setting}; its card: {_winner_card_path(state, row)}"
        )
        print_text(f"score it: stsbench run {row.encoder}")
    _print_close_second(rows)
    print_text(f"all trials: {state.sweep.folder / 'trials.csv'}")


def _setting_cells(row: SweepRow, keys: Sequence[str], n_seeds: int) -> list[str]:
    """Return the cells of a setting's row in the table of a sweep, as texts.

    Args:
        row: The setting, with the outcomes of its trainings by seed (``scores``), each with a score
            or a reason of failure. ``seed_mean`` is the mean and deviation of the scores, or None
            if there is none; the deviation of a single score is None.
        keys: The names of the setting's values to begin with.
        n_seeds: The number of seeds of the sweep.

    Returns:
        These values, the mean and deviation of the score over seeds, times 100, how many seeds are
        scored, and notes on trainings that were stopped early or failed.
    """
    values = {"recipe": row.setting.recipe, **row.setting.values}
    mean, deviation = "–", ""
    if row.seed_mean:
        mean = format_points(row.seed_mean.mean)
        deviation = format_points(row.seed_mean.deviation)
    outcomes = row.scores.values()
    scored = [outcome for outcome in outcomes if outcome.score is not None]
    notes = []
    if any(outcome.stopped_early for outcome in scored):
        notes.append("stopped early")
    if any(outcome.failure for outcome in outcomes):
        notes.append("failed")
    return [
        *(str(values[key]) for key in keys),
        mean,
        deviation,
        f"{len(scored)} of {n_seeds}",
        ", ".join(notes),
    ]


def _print_close_second(rows: Sequence[SweepRow]) -> None:
    """Print a line if the best two settings differ by less than training seeds do.

    Seeds differ by the larger deviation over seeds of the two settings.

    Args:
        rows: The settings, the best first. Those with trainings still to do are ignored.
    """
    means = [row.seed_mean for row in rows if row.is_complete and row.seed_mean]
    if len(means) < 2:
        return
    best, second = means[:2]
    # With a single seed nothing is known of how seeds differ.
    if best.deviation is None:
        return
    difference = best.mean - second.mean
    deviation = max(best.deviation, second.deviation or 0.0)
    if difference < deviation:
        print_text(
            f"the next differs by {format_points(difference)}, "
            f"less than seeds do ({format_points(deviation)}): more seeds would tell"
        )


def _winner_card_path(state: SweepState, row: SweepRow) -> Path:
    """Return the path of a winner's card."""
    from stsbench.studies.sweep import winner_card

    name, _ = winner_card(state.sweep, row)
    return state.sweep.folder / "trainers" / f"{name}.toml"


def _write_files(state: SweepState) -> None:
    """Write the results of a sweep into its folder.

    ``trials.csv`` has a row per training that has ended. The best setting of each recipe becomes a
    recipe's card of its own.

    Args:
        state: The sweep, with a row per setting: its trainings (``trials``), and their outcomes by
            seed (``scores``).
    """
    from stsbench.studies.sweep import winner_card

    records = []
    for row in state.rows:
        for trial in row.trials:
            outcome = row.scores.get(trial.plan.seed)
            # The training has not ended yet.
            if outcome is None:
                continue
            trial_state = "scored"
            if outcome.failure:
                trial_state = outcome.failure
            elif outcome.stopped_early:
                trial_state = "stopped early"
            records.append(
                {
                    "recipe": row.setting.recipe,
                    **row.setting.values,
                    "seed": trial.plan.seed,
                    "score": outcome.score,
                    "state": trial_state,
                    "encoder": trial.encoder,
                }
            )
    heads = ["recipe", *state.sweep.card.values, "seed", "score", "state", "encoder"]
    write_records(state.sweep.folder / "trials.csv", records, heads)
    # Only settings whose trainings were all finished and scored can be the best.
    for row in state.winners():
        # The name of the new recipe, and the tables of its card.
        _, card_values = winner_card(state.sweep, row)
        write_or_print(toml_tables(card_values), _winner_card_path(state, row), silent=True)


def _sweep_to_json(state: SweepState) -> dict[str, Any]:
    """Return the JSON object of a sweep.

    Args:
        state: The sweep.

    Returns:
        ``trials`` holds the settings, the best first: the values, the ``mean`` and ``deviation``
        over seeds (from 0 to 1, None if unknown), whether all seeds are done (``whole``), and the
        outcome of each seed. ``winners`` holds the best setting of each recipe, and its card.
    """
    settings = [
        {
            "recipe": row.setting.recipe,
            "values": dict(row.setting.values),
            "encoder": row.encoder,
            "mean": row.seed_mean.mean if row.seed_mean else None,
            "deviation": row.seed_mean.deviation if row.seed_mean else None,
            "whole": row.is_complete,
            "seeds": {str(seed): outcome._asdict() for seed, outcome in row.scores.items()},
        }
        for row in state.ranked()
    ]
    winners = [
        {
            "recipe": row.setting.recipe,
            "encoder": row.encoder,
            "card": str(_winner_card_path(state, row)),
        }
        for row in state.winners()
    ]
    return {"sweep": state.sweep.card.name, "trials": settings, "winners": winners}


MAX_DRAWN_SETTINGS = 40


def _draw_sweep(state: SweepState) -> Any:  # noqa: ANN401 - matplotlib's
    """Return a figure of the best settings of a sweep: the mean and the score of each seed.

    Args:
        state: The sweep.
    """
    # The task and split by whose score settings are compared.
    decide = state.sweep.card.decide
    dots = []
    means_of_rows = [(row, row.seed_mean) for row in state.ranked() if row.seed_mean]
    for row, seed_mean in means_of_rows[:MAX_DRAWN_SETTINGS]:
        group = _describe_setting(row, state)
        dots.append(DotPoint(group=group, series="mean", value=100 * seed_mean.mean, filled=True))
        for seed, outcome in row.scores.items():
            if outcome.score is not None:
                score = 100 * outcome.score
                dots.append(DotPoint(group=group, series=f"seed {seed}", value=score, filled=False))
    return draw_dots(
        dots, x_label=f"score on {decide.task} {decide.split}", title=state.sweep.card.name
    )


def _forecast_sweep(state: SweepState, *, as_json: bool) -> int:
    """Print how many trainings of a sweep are done and missing, and how long the rest takes.

    A training is "complete", "unfinished" or "missing" (``RUN_STATES``). The time is estimated by
    the complete ones. Inputs that the next training lacks, such as its corpus, are printed too.

    Args:
        state: The sweep; ``total`` is its number of trainings, settings times seeds.
        as_json: Whether to print JSON instead of text.

    Returns:
        The exit code: 2 if something is missing for the next training, else 0.
    """
    from stsbench.encoders.runs import TrainedRun
    from stsbench.recipes.train_plan import find_missing
    from stsbench.studies.trials import RUN_STATES

    trials, card = state.known_trials(), state.sweep.card
    n_seeds = len(card.seeds)
    n_settings = state.total // n_seeds
    counts: dict[str, int] = dict.fromkeys(RUN_STATES, 0)
    for trial in trials:
        counts[trial.state] += 1
    # A search that chooses settings by earlier scores does not know all of its trials yet.
    counts["missing"] += state.total - len(trials)
    report: dict[str, Any] = {
        "sweep": card.name,
        "settings": n_settings,
        "seeds": n_seeds,
        **counts,
    }
    rows = [
        ["settings", f"{n_settings}, search {card.search}"],
        ["trainings", f"{state.total}, {format_count(n_seeds, 'seed')} each"],
        *([state_name, str(count)] for state_name, count in counts.items()),
    ]
    n_to_train = counts["missing"] + counts["unfinished"]
    if n_to_train:
        seconds = [
            TrainedRun.read(trial.plan.folder).run.seconds
            for trial in trials
            if trial.state == "complete"
        ]
        duration = "unknown before one is complete"
        if seconds:
            report["seconds"] = fmean(seconds) * n_to_train
            duration = f"about {format_duration(report['seconds'])} one after the other"
        budget = "" if card.budget.hours is None else f"; the budget is {card.budget.hours:g} h"
        rows.append(["time", f"{duration}{budget}"])
    if as_json:
        print_json(report)
    else:
        print_text(f"{state.sweep.name}: {card.name}\n")
        print_facts(rows)
    next_trial = next((trial for trial in trials if trial.state != "complete"), None)
    if next_trial is None:
        return 0
    missing = list(map(describe_error_line, find_missing(next_trial.plan).values()))
    print_errors("missing", missing)
    return EXIT_USER_ERROR if missing else 0
