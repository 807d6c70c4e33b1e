"""``stsbench sweep`` and ``stsbench reproduce``: many trainings, planned and scored together."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from typer import Context

from stsbench.api.names import Names
from stsbench.api.progress import duration
from stsbench.bench.listener import Listener
from stsbench.boards.render import render
from stsbench.boards.tables.table import lay_out
from stsbench.cli import options as opt
from stsbench.cli.printing import (
    BUG,
    MISTAKE,
    complain,
    complain_of_all,
    note,
    print_facts,
    print_json,
    print_traceback,
    say,
    write_or_say,
)
from stsbench.cli.progress import train_progress
from stsbench.cli.screen import print_rows, print_table
from stsbench.core.cards import toml_tables
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.core.files import write_whole
from stsbench.encoders.runs import TrainedRun
from stsbench.plots.draw import Dot, draw_dots
from stsbench.recipes.plan import find_missing
from stsbench.recipes.train import load_trainer
from stsbench.results.record import Result
from stsbench.studies.reproduction import Reproduction, load_ablation, plan_reproduction, reproduce
from stsbench.studies.sweep import CARRIERS, Book, CellScore, Sweep, SweepCell, SweepRow, winner_card
from stsbench.studies.trials import STATES, PlannedTrial, TrialWatcher, Workshop

if TYPE_CHECKING:
    from stsbench.training.loop.loop import OnProgress

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
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Try values of recipes and keep the best.

    A card names recipes, values, seeds and the development split that decides. The same command resumes.

    Example: stsbench sweep rates.toml --base FOLDER --on ray
    """
    given = opt.Given.of(context)
    given.apart("--dry-run", "--plot", "--checkpoint-seconds")
    opt.check_figure("--plot", plot)
    if on == "local":
        given.idle("without --on ray", "--cores")
    else:
        given.idle("beside --on", "--device")
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
    done = itertools.count(1)

    def tell(cell: SweepCell, score: CellScore) -> None:
        what = score.failure or f"{_points(score.score)}{' (stopped early)' if score.early else ''}"
        note(f"[{next(done)}/{book.total}] {_named(cell, book)}, seed {cell.seed}: {what}")

    book.on_close = tell
    carry_out(book, on, cores, TrialWatcher(training=lambda planned: train_progress(planned.plan)))
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


def _named(of: SweepCell | SweepRow, book: Book) -> str:
    """A setting in words; of several recipes with the recipe's name."""
    recipe = [of.setting.recipe] if len(book.sweep.card.recipes) > 1 else []
    return ", ".join([*recipe, *(f"{key}={value}" for key, value in of.setting.values.items())])


def _points(score: float | None) -> str:
    return "" if score is None else f"{100 * score:.2f}"


def _cells(book: Book) -> list[tuple[SweepCell, CellScore]]:
    return [(cell, row.cells[cell.seed]) for row in book.rows for cell in row.planned if cell.seed in row.cells]


def _print(book: Book) -> None:
    card, rows = book.sweep.card, book.ranked()
    keys = [*(["recipe"] if len(card.recipes) > 1 else []), *card.values]
    columns = [*keys, f"{card.decide.task} {card.decide.split}", "±", "seeds", ""]
    lines = []
    for row in rows:
        values = {"recipe": row.setting.recipe, **row.setting.values}
        scored = [one for one in row.cells.values() if one.score is not None]
        early, failed = any(one.early for one in scored), any(one.failure for one in row.cells.values())
        how = ", ".join(word for word, holds in (("stopped early", early), ("failed", failed)) if holds)
        mean = [_points(row.spread.mean), _points(row.spread.deviation)] if row.spread else ["–", ""]
        lines.append([*(str(values[key]) for key in keys), *mean, f"{len(scored)} of {len(card.seeds)}", how])
    print_rows(columns, lines, right=range(len(keys), len(keys) + 3), sparse=True)
    for row in book.winners():
        say(f"best of {row.setting.recipe}: {_named(row, book)}; its card: {_winner(book, row)}")
        say(f"score it: stsbench run {row.encoder}")
    found = [row.spread for row in rows if row.whole and row.spread]
    if len(found) > 1 and found[0].deviation is not None:
        gain, deviation = found[0].mean - found[1].mean, max(found[0].deviation, found[1].deviation or 0.0)
        if gain < deviation:
            by, than = _points(gain), _points(deviation)
            say(f"the next differs by {by}, less than seeds do ({than}): more seeds would tell")
    say(f"all trials: {book.sweep.folder / 'trials.csv'}")


def _winner(book: Book, row: SweepRow) -> Path:
    return book.sweep.folder / "trainers" / f"{winner_card(book.sweep, row)[0]}.toml"


def _write(book: Book) -> None:
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
        write_whole(_winner(book, row), toml_tables(winner_card(book.sweep, row)[1]).encode())


def _facts(book: Book) -> dict[str, Any]:
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
        {"recipe": row.setting.recipe, "encoder": row.encoder, "card": str(_winner(book, row))}
        for row in book.winners()
    ]
    return {"sweep": book.sweep.card.name, "trials": trials, "winners": winners}


def _figure(book: Book) -> Any:  # noqa: ANN401 - matplotlib's
    decide, dots = book.sweep.card.decide, []
    for row in [row for row in book.ranked() if row.spread][:SHOWN]:
        assert row.spread is not None, "rows without scores are left out"
        dots.append(Dot(group=_named(row, book), series="mean", value=100 * row.spread.mean))
        for seed, one in row.cells.items():
            if one.score is not None:
                dots.append(Dot(group=_named(row, book), series=f"seed {seed}", value=100 * one.score, filled=False))
    return draw_dots(dots, axis=f"score on {decide.task} {decide.split}", title=book.sweep.card.name)


def _forecast(book: Book, *, as_json: bool) -> int:
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
    lines = [["settings", f"{total // seeds}, search {sweep.card.search}"]]
    lines += [["trainings", f"{total}, {seeds} seeds each"]]
    lines += [[state, str(count)] for state, count in counts.items()]
    if to_do is not None:
        hours = "" if sweep.card.budget.hours is None else f"; the budget is {sweep.card.budget.hours:g} h"
        about = duration(facts["seconds"])
        lines += [["time", f"about {about} one after the other, by three steps of the first{hours}"]]
    say(f"{sweep.name}: {sweep.card.name}\n")
    print_facts(lines)
    return 0


def reproduce_command(
    context: Context,
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
    planned = plan_reproduction(
        ablation,
        workshop,
        base=base,
        seeds=opt.parse_seeds(seeds) if seeds else (),
        also=opt.parse_assignments(assign),
    )
    if dry_run:
        return _forecast_rows(planned, as_json=as_json)
    progress = _Progress(planned)
    scoring = Listener(scored=progress.on_scored, noticed=complain)
    made = reproduce(planned, workshop, TrialWatcher(training=progress.training, scoring=scoring), progress.on_failed)
    fmt = opt.written_as("terminal", out, as_json=as_json)
    if fmt == "terminal" and out is None:
        print_table(replace(lay_out(made, "measured"), label_head="row"))
        say(f"Results: {results}/")
    else:
        write_or_say(render([made], "markdown" if fmt == "terminal" else fmt, show="measured"), out)
    return progress.code


class _Progress:
    def __init__(self, planned: Reproduction) -> None:
        self.planned, self.code = planned, 0
        self.said: set[str] = set()

    @contextmanager
    def training(self, planned: PlannedTrial) -> Iterator[OnProgress]:
        place = [one.encoder for one in self.planned.planned].index(planned.encoder) + 1
        what = f"[{place}/{len(self.planned.planned)}] {' = '.join(self.planned.lines_of(planned))}"
        with train_progress(planned.plan, what) as on_progress:
            yield on_progress

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


def _forecast_rows(planned: Reproduction, *, as_json: bool) -> int:
    facts, missing = list[dict[str, Any]](), dict[str, None]()
    tried: dict[str, float | None] = {}
    for one in planned.planned:
        cost, plan, rows = _cost(one), one.plan, planned.lines_of(one)
        seconds = TrainedRun.read(plan.folder).record.run.seconds if one.state == "complete" else tried.get(cost)
        if one.state != "complete" and cost not in tried:
            note(f"trying three steps: {' = '.join(rows)}")
            try:
                seconds = load_trainer(plan).forecast().seconds
            except StsbenchError as error:
                found = find_missing(plan)
                if str(error) not in found.values():
                    raise
                missing.update(dict.fromkeys(found.values()))
            tried[cost] = seconds
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


def _cost(planned: PlannedTrial) -> str:
    """What plans share that take as long: all but the seed, and temperatures, weights and rates."""
    card = planned.plan.card
    settings = {**card.params, **{f"student.{key}": value for key, value in msgspec.to_builtins(card.student).items()}}
    shown = {key: "a number" if isinstance(value, float) else value for key, value in settings.items()}
    training = msgspec.structs.replace(card.training, learning_rate=1.0)
    return repr([card.method, card.base, card.data, training, card.selection, shown])
