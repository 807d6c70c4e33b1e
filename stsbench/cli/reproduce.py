"""``stsbench reproduce``."""

from __future__ import annotations

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
    print_json,
    print_traceback,
    say,
    write_or_say,
)
from stsbench.cli.progress import train_progress
from stsbench.cli.screen import print_rows, print_table
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.encoders.runs import TrainedRun
from stsbench.results.record import Result
from stsbench.studies.reproduction import Reproduction, load_ablation, plan_reproduction, reproduce
from stsbench.studies.trials import PlannedTrial, TrialWatcher, Workshop

if TYPE_CHECKING:
    from stsbench.training.loop.selection import OnProgress


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
    config: opt.Config = None,
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
        return _forecast(planned, as_json=as_json)
    progress = _Progress(planned)
    made = reproduce(planned, workshop, progress.watcher(), progress.on_failed)
    fmt = opt.written_as("terminal", out, as_json=as_json)
    if fmt == "terminal" and out is None:
        print_table(replace(lay_out(made, "measured"), label_head="row"))
        say(f"Results: {results}/")
    else:
        write_or_say(render([made], "markdown" if fmt == "terminal" else fmt, show="measured"), out)
    return progress.code


class _Progress:
    """Says how trials go on stderr, and keeps the exit code."""

    def __init__(self, planned: Reproduction) -> None:
        self.planned, self.code = planned, 0
        self.said: set[str] = set()

    def watcher(self) -> TrialWatcher:
        return TrialWatcher(training=self.training, scoring=Listener(scored=self.on_scored, noticed=complain))

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


def _forecast(planned: Reproduction, *, as_json: bool) -> int:
    """Say what of each run is there and how long the rest takes; where material is missing, that is no success."""
    facts, missing = [], dict[str, None]()
    tried: dict[str, float | None] = {}
    for one in planned.planned:
        if one.state == "complete":
            seconds: float | None = TrainedRun.read(one.plan.folder).record.run.seconds
        else:
            cost = _cost(one)
            if cost not in tried:
                note(f"trying three steps: {' = '.join(planned.lines_of(one))}")
                tried[cost] = _seconds(one, missing)
            seconds = tried[cost]
        facts.append(
            {
                "rows": planned.lines_of(one),
                "run": one.plan.name,
                "seed": one.plan.seed,
                "state": one.state,
                "seconds": seconds,
            }
        )
    _print_forecast(planned, facts, list(missing), as_json=as_json)
    return MISTAKE if missing else 0


def _cost(planned: PlannedTrial) -> str:
    """What plans share that take as long: all but the seed, and temperatures, weights and rates."""
    card = planned.plan.card
    settings = {**card.params, **{f"student.{key}": value for key, value in msgspec.to_builtins(card.student).items()}}
    shown = {key: "a number" if isinstance(value, float) else value for key, value in settings.items()}
    return repr(
        [
            card.method,
            card.base,
            card.data,
            msgspec.structs.replace(card.training, learning_rate=1.0),
            card.selection,
            shown,
        ]
    )


def _seconds(planned: PlannedTrial, missing: dict[str, None]) -> float | None:
    """How long a training takes, by a few steps tried; None where what it needs is missing, which is noted."""
    from stsbench.recipes.plan import find_missing
    from stsbench.recipes.trainer import load_trainer

    try:
        return load_trainer(planned.plan).forecast().seconds
    except StsbenchError as error:
        found = find_missing(planned.plan)
        if str(error) not in found.values():
            raise
        missing.update(dict.fromkeys(found.values()))
        return None


def _print_forecast(planned: Reproduction, facts: list[dict[str, Any]], missing: list[str], *, as_json: bool) -> None:
    not_had = {line.label: line.why for line in planned.ablation.lines if line.why}
    if as_json:
        print_json({"table": planned.ablation.name, "runs": facts, "not_had": not_had, "missing": missing})
        return
    rows = [
        [
            " = ".join(one["rows"]),
            str(one["seed"]),
            one["state"],
            "?" if one["seconds"] is None else duration(one["seconds"]),
        ]
        for one in facts
    ]
    print_rows(["row", "seed", "state", "time of training"], rows, right=[1, 3], names=())
    left = [one["seconds"] for one in facts if one["state"] != "complete"]
    known = [seconds for seconds in left if seconds is not None]
    rest = f"; the rest takes about {duration(sum(known))} without scoring" if known else ""
    say(f"{len(facts) - len(left)} of {len(facts)} runs are trained{rest}")
    for label, why in not_had.items():
        say(f"not had: {label}: {why}")
    complain_of_all("missing", missing)
