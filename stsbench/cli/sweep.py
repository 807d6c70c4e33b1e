"""``stsbench sweep``: many settings of recipes planned, trained and scored; the best of each recipe."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.child import continue_in_child
from stsbench.cli.printing import (
    emit,
    format_points,
    print_error,
    print_facts,
    print_json,
    print_progress,
    print_rows,
    print_text,
    write_records,
)
from stsbench.core.errors import EXIT_USER_ERROR
from stsbench.core.toml import toml_tables
from stsbench.core.wording import format_duration
from stsbench.plots.draw import DotPoint, draw_dots

if TYPE_CHECKING:
    from stsbench.studies.sweep import Carrier, SweepRow, SweepState
    from stsbench.studies.trials import Trial


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
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> int:
    """Try values of recipes and keep the best.

    A card names recipes, values, seeds and the development split that decides. The same command resumes.

    Example: stsbench sweep rates.toml --base FOLDER --on ray
    """
    from stsbench.studies.sweep import CARRIERS, Sweep, SweepState
    from stsbench.studies.trials import TrialEnvironment

    catalogue = opt.read_cards(cards)
    given = opt.TypedOptions.from_context(context)
    given.forbid_beside("--dry-run", "--plot", "--checkpoint-seconds")
    given.forbid_elsewhere(on, "--cores", local_option="--device")
    if not dry_run:
        continue_in_child(on)
    carry_out, folder = CARRIERS.load_at(on), out or Path("sweeps") / card.stem
    environment = TrialEnvironment(
        results=folder / "results", corpora=corpora, data=data, device=device, checkpoint_seconds=checkpoint_seconds,
        catalogue=catalogue, options=opt.retype_options(context, "--corpora", "--data", "--cards", "--device"),
    )  # fmt: skip
    base = opt.resolve_spec(base, catalogue)
    book = SweepState(Sweep.read(card, environment, folder=folder, base=base, text=text or ""))
    if dry_run:
        _forecast_sweep(book, as_json=as_json)
        return 0
    failures = _carry_out_sweep(book, on, cores, carry_out)
    _write_sweep(book)
    if plot is not None:
        emit(_sweep_figure(book), plot, silent=True)
    if as_json:
        print_json(_sweep_facts(book))
    else:
        _print_sweep(book)
    for failure, encoder in failures.items():
        print_error(failure, about=encoder)
    return EXIT_USER_ERROR if failures else 0


def _carry_out_sweep(book: SweepState, on: str, cores: int, carry_out: Carrier) -> dict[str, str]:
    """Say each training that is done; returns why some have no score, with the last encoder of each reason."""
    from stsbench.cli.progress import train_progress
    from stsbench.studies.trials import TrialCallbacks

    done, failures = itertools.count(1), dict[str, str]()

    def tell(row: SweepRow, trial: Trial) -> None:
        score = row.scores[trial.plan.seed]
        what = (
            score.failure
            or f"{format_points(score.score)}{' (stopped early)' if score.early else ''}"
        )
        print_progress(
            f"[{next(done)}/{book.total}] {_named(row, book)}, seed {trial.plan.seed}: {what}"
        )
        if score.failure:
            failures[score.failure] = trial.encoder

    book.on_close = tell
    carry_out(book, on, cores, TrialCallbacks(training=lambda trial: train_progress(trial.plan)))
    return failures


def _named(row: SweepRow, book: SweepState) -> str:
    """A setting in words; of several recipes with the recipe's name."""
    recipe = [row.setting.recipe] if len(book.sweep.card.recipes) > 1 else []
    return ", ".join([*recipe, *(f"{key}={value}" for key, value in row.setting.values.items())])


def _print_sweep(book: SweepState) -> None:
    card, rows = book.sweep.card, book.ranked()
    keys = [*(["recipe"] if len(card.recipes) > 1 else []), *card.values]
    lines = []
    for row in rows:
        values = {"recipe": row.setting.recipe, **row.setting.values}
        known = [one for one in row.scores.values() if one.score is not None]
        how = ["stopped early"] if any(one.early for one in known) else []
        how += ["failed"] if any(one.failure for one in row.scores.values()) else []
        mean = (
            [format_points(row.seed_mean.mean), format_points(row.seed_mean.deviation)]
            if row.seed_mean
            else ["–", ""]
        )
        lines.append(
            [
                *(str(values[key]) for key in keys),
                *mean,
                f"{len(known)} of {len(card.seeds)}",
                ", ".join(how),
            ]
        )
    columns = [*keys, f"{card.decide.task} {card.decide.split}", "±", "seeds", ""]
    print_rows(columns, lines, right=range(len(keys), len(keys) + 3), sparse=True)
    for row in book.winners():
        print_text(
            f"best of {row.setting.recipe}: {_named(row, book)}; its card: {_winner(book, row)}"
        )
        print_text(f"score it: stsbench run {row.encoder}")
    found = [row.seed_mean for row in rows if row.is_complete and row.seed_mean]
    if len(found) > 1 and found[0].deviation is not None:
        gain, deviation = (
            found[0].mean - found[1].mean,
            max(found[0].deviation, found[1].deviation or 0.0),
        )
        if gain < deviation:
            by, than = format_points(gain), format_points(deviation)
            print_text(
                f"the next differs by {by}, less than seeds do ({than}): more seeds would tell"
            )
    print_text(f"all trials: {book.sweep.folder / 'trials.csv'}")


def _winner(book: SweepState, row: SweepRow) -> Path:
    from stsbench.studies.sweep import winner_card

    return book.sweep.folder / "trainers" / f"{winner_card(book.sweep, row)[0]}.toml"


def _write_sweep(book: SweepState) -> None:
    from stsbench.studies.sweep import winner_card

    trials = [
        {
            "recipe": row.setting.recipe,
            **row.setting.values,
            "seed": trial.plan.seed,
            "score": one.score,
        }
        | {
            "state": one.failure or ("stopped early" if one.early else "scored"),
            "encoder": trial.encoder,
        }
        for row in book.rows
        for trial in row.trials
        if (one := row.scores.get(trial.plan.seed)) is not None
    ]
    heads = ["recipe", *book.sweep.card.values, "seed", "score", "state", "encoder"]
    write_records(book.sweep.folder / "trials.csv", trials, heads)
    for row in book.winners():
        emit(toml_tables(winner_card(book.sweep, row)[1]), _winner(book, row), silent=True)


def _sweep_facts(book: SweepState) -> dict[str, Any]:
    trials = [
        {
            "recipe": row.setting.recipe,
            "values": dict(row.setting.values),
            "encoder": row.encoder,
            "mean": row.seed_mean and row.seed_mean.mean,
            "deviation": row.seed_mean and row.seed_mean.deviation,
            "whole": row.is_complete,
            "seeds": {str(seed): one._asdict() for seed, one in row.scores.items()},
        }
        for row in book.ranked()
    ]
    winners = [
        {"recipe": row.setting.recipe, "encoder": row.encoder, "card": str(_winner(book, row))}
        for row in book.winners()
    ]
    return {"sweep": book.sweep.card.name, "trials": trials, "winners": winners}


DRAWN_SETTINGS = 40


def _sweep_figure(book: SweepState) -> Any:  # noqa: ANN401 - matplotlib's
    decide, dots = book.sweep.card.decide, []
    for row, found in [(row, row.seed_mean) for row in book.ranked() if row.seed_mean][
        :DRAWN_SETTINGS
    ]:
        seeds = [
            (f"seed {seed}", one.score, False)
            for seed, one in row.scores.items()
            if one.score is not None
        ]
        for series, score, filled in [("mean", found.mean, True), *seeds]:
            dots.append(
                DotPoint(group=_named(row, book), series=series, value=100 * score, filled=filled)
            )
    return draw_dots(
        dots, x_label=f"score on {decide.task} {decide.split}", title=book.sweep.card.name
    )


def _forecast_sweep(book: SweepState, *, as_json: bool) -> None:
    from stsbench.recipes.train import load_trainer
    from stsbench.studies.trials import STATES

    trials, card, total = book.all_known(), book.sweep.card, book.total
    seeds = len(card.seeds)
    counts: dict[str, int] = {
        state: sum(trial.state == state for trial in trials) for state in STATES
    }
    counts["missing"] += total - len(trials)
    facts: dict[str, Any] = {
        "sweep": card.name,
        "settings": total // seeds,
        "seeds": seeds,
        **counts,
    }
    lines = [
        ["settings", f"{total // seeds}, search {card.search}"],
        ["trainings", f"{total}, {seeds} seeds each"],
    ]
    lines += [[state, str(count)] for state, count in counts.items()]
    if to_do := next((trial for trial in trials if trial.state != "complete"), None):
        seconds = load_trainer(replace(to_do.plan, fresh=True)).forecast().seconds
        facts["seconds"] = seconds * (counts["missing"] + counts["unfinished"])
        hours = "" if card.budget.hours is None else f"; the budget is {card.budget.hours:g} h"
        about = format_duration(facts["seconds"])
        lines += [
            ["time", f"about {about} one after the other, by three steps of the first{hours}"]
        ]
    if as_json:
        print_json(facts)
        return
    print_text(f"{book.sweep.name}: {card.name}\n")
    print_facts(lines)
