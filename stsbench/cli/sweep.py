"""``stsbench sweep``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Context

from stsbench.api.names import Names
from stsbench.api.progress import duration
from stsbench.cli import options as opt
from stsbench.cli.printing import complain, note, print_facts, print_json, say
from stsbench.cli.progress import train_progress
from stsbench.cli.screen import print_rows
from stsbench.core.cards import toml_tables
from stsbench.core.catalogue import Catalogue
from stsbench.core.files import write_whole
from stsbench.plots.draw import Dot, draw_dots
from stsbench.recipes.trainer import load_trainer
from stsbench.studies.sweep import CARRIERS, Book, CellScore, Sweep, SweepCell, SweepRow, winner_card
from stsbench.studies.trials import STATES, PlannedTrial, TrialWatcher, Workshop

if TYPE_CHECKING:
    from stsbench.training.loop.selection import OnProgress

SHOWN = 40
"""So many settings are drawn, the best of all."""


def sweep_command(
    context: Context,
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
    config: opt.Config = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Try values of recipes and keep the best.

    A card names recipes, values, seeds and the development split that decides. The same command resumes.

    Example: stsbench sweep rates.toml --base FOLDER --on ray
    """
    _check(context, plot, on)
    carry_out, catalogue = CARRIERS.load_at(on), Catalogue(cards)
    folder = out or Path("sweeps") / card.stem
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
        return _forecast(book, as_json=as_json)
    book.on_close = _Teller(book)
    carry_out(book, on, cores, TrialWatcher(training=_training))
    _write(book)
    if plot is not None:
        write_whole(plot, _figure(book).to_bytes(plot.suffix.removeprefix(".")))
    if as_json:
        print_json(_facts(book))
    else:
        _print(book)
    failures = {one.failure: cell for cell, one in _cells(book) if one.failure}
    for failure, cell in failures.items():
        complain(failure, about=cell.planned.encoder)
    return 2 if failures else 0


def _check(context: Context, plot: Path | None, on: str) -> None:
    given = opt.Given.of(context)
    given.apart("--dry-run", "--plot", "--checkpoint-seconds")
    opt.check_figure("--plot", plot)
    if on == "local":
        given.idle("without --on ray", "--cores")
    else:
        given.idle("beside --on", "--device")


@contextmanager
def _training(planned: PlannedTrial) -> Iterator[OnProgress]:
    with train_progress(planned.plan) as on_progress:
        yield on_progress


class _Teller:
    """A line for each cell that is done, on stderr."""

    def __init__(self, book: Book) -> None:
        self.done, self.book = 0, book

    def __call__(self, cell: SweepCell, score: CellScore) -> None:
        self.done += 1
        what = score.failure or f"{_points(score.score)}{' (stopped early)' if score.early else ''}"
        note(f"[{self.done}/{self.book.total}] {_named(cell, self.book)}, seed {cell.seed}: {what}")


def _named(of: SweepCell | SweepRow, book: Book) -> str:
    """A setting in words; of several recipes with the recipe's name."""
    recipe = [of.setting.recipe] if len(book.sweep.card.recipes) > 1 else []
    return ", ".join([*recipe, *(f"{key}={value}" for key, value in of.setting.values.items())])


def _points(score: float | None) -> str:
    return "" if score is None else f"{100 * score:.2f}"


def _cells(book: Book) -> list[tuple[SweepCell, CellScore]]:
    return [
        (cell, book.scores[cell.planned.encoder])
        for cells in book.of
        for cell in cells
        if cell.planned.encoder in book.scores
    ]


def _print(book: Book) -> None:
    sweep, rows = book.sweep, book.ranked()
    decide = sweep.card.decide
    keys = [*(["recipe"] if len(sweep.card.recipes) > 1 else []), *sweep.card.values]
    columns = [*keys, f"{decide.task} {decide.split}", "±", "seeds", ""]
    lines = [_line(row, keys, len(sweep.card.seeds)) for row in rows]
    shown = [at for at in range(len(columns)) if any(line[at] for line in lines)]
    print_rows(
        [columns[at] for at in shown],
        [[line[at] for at in shown] for line in lines],
        right=[place for place, at in enumerate(shown) if len(keys) <= at < len(keys) + 3],
    )
    for row in book.winners():
        name, path = _winner(book, row)
        say(f"best of {row.setting.recipe}: {_named(row, book)}; its card: {path}")
        say(f"score it: stsbench run {row.encoder}")
    if doubt := _doubt(rows):
        say(doubt)
    say(f"all trials: {sweep.folder / 'trials.csv'}")


def _line(row: SweepRow, keys: Sequence[str], seeds: int) -> list[str]:
    values = {"recipe": row.setting.recipe, **row.setting.values}
    scored = [one for one in row.cells.values() if one.score is not None]
    early, failed = any(one.early for one in scored), any(one.failure for one in row.cells.values())
    how = [word for word, holds in (("stopped early", early), ("failed", failed)) if holds]
    found = row.spread
    mean = _points(found.mean) if found else "–"
    deviation = _points(found.deviation) if found else ""
    return [*(str(values[key]) for key in keys), mean, deviation, f"{len(scored)} of {seeds}", ", ".join(how)]


def _doubt(rows: Sequence[SweepRow]) -> str:
    """What is to be said where the best is hardly better than the next."""
    found = [row.spread for row in rows if row.whole and row.spread]
    if len(found) < 2 or found[0].deviation is None:
        return ""
    gain, deviation = found[0].mean - found[1].mean, max(found[0].deviation, found[1].deviation or 0.0)
    if gain >= deviation:
        return ""
    return f"the next differs by {_points(gain)}, less than seeds do ({_points(deviation)}): more seeds would tell"


def _winner(book: Book, row: SweepRow) -> tuple[str, Path]:
    name, card = winner_card(book.sweep, row)
    return name, book.sweep.folder / "trainers" / f"{name}.toml"


def _write(book: Book) -> None:
    """Write the table of all trials and the cards of the winners."""
    keys = list(book.sweep.card.values)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["recipe", *keys, "seed", "score", "state", "encoder"])
    for cell, one in _cells(book):
        state = one.failure or ("stopped early" if one.early else "scored")
        values = [cell.setting.values[key] for key in keys]
        score = "" if one.score is None else repr(one.score)
        writer.writerow([cell.setting.recipe, *values, cell.seed, score, state, cell.planned.encoder])
    write_whole(book.sweep.folder / "trials.csv", stream.getvalue().encode())
    for row in book.winners():
        _, card = winner_card(book.sweep, row)
        write_whole(_winner(book, row)[1], toml_tables(card).encode())


def _facts(book: Book) -> dict[str, Any]:
    """The sweep for programs."""
    trials = [
        {
            "recipe": row.setting.recipe,
            "values": dict(row.setting.values),
            "encoder": row.encoder,
            "mean": row.spread and row.spread.mean,
            "deviation": row.spread and row.spread.deviation,
            "whole": row.whole,
            "seeds": {str(seed): one._asdict() for seed, one in row.cells.items()},
        }
        for row in book.ranked()
    ]
    winners = [
        {"recipe": row.setting.recipe, "encoder": row.encoder, "card": str(_winner(book, row)[1])}
        for row in book.winners()
    ]
    return {"sweep": book.sweep.card.name, "trials": trials, "winners": winners}


def _figure(book: Book) -> Any:  # noqa: ANN401 - matplotlib's
    """Each setting's seeds and their mean, the best first."""
    decide, dots = book.sweep.card.decide, []
    for row in [row for row in book.ranked() if row.spread][:SHOWN]:
        assert row.spread is not None, "rows without scores are left out"
        dots.append(Dot(group=_named(row, book), series="mean", value=100 * row.spread.mean))
        for seed, one in row.cells.items():
            if one.score is not None:
                dots.append(Dot(group=_named(row, book), series=f"seed {seed}", value=100 * one.score, filled=False))
    return draw_dots(dots, axis=f"score on {decide.task} {decide.split}", title=book.sweep.card.name)


def _forecast(book: Book, *, as_json: bool) -> int:
    """Say how many trainings there are, what is known of them and how long the rest takes, from three steps tried."""
    cells, sweep = book.all_known(), book.sweep
    counts: dict[str, int] = {state: sum(cell.planned.state == state for cell in cells) for state in STATES}
    seeds = len(sweep.card.seeds)
    total = book.total
    counts["missing"] += total - len(cells)
    to_do = next((cell for cell in cells if cell.planned.state != "complete"), None)
    facts: dict[str, Any] = {"sweep": sweep.card.name, "settings": total // seeds, "seeds": seeds, **counts}
    if to_do is not None:
        seconds = load_trainer(replace(to_do.planned.plan, fresh=True)).forecast().seconds
        facts["seconds"] = seconds * (counts["missing"] + counts["unfinished"])
    if as_json:
        print_json(facts)
        return 0
    lines = [
        ["settings", f"{total // seeds}, search {sweep.card.search}"],
        ["trainings", f"{total}, {seeds} seeds each"],
    ]
    lines += [[state, str(count)] for state, count in counts.items()]
    if to_do is not None:
        hours = "" if sweep.card.budget.hours is None else f"; the budget is {sweep.card.budget.hours:g} h"
        lines.append(
            ["time", f"about {duration(facts['seconds'])} one after the other, by three steps of the first{hours}"]
        )
    say(f"{sweep.name}: {sweep.card.name}\n")
    print_facts(lines)
    return 0
