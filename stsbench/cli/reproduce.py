"""``stsbench reproduce``: the rows of a paper's table trained, scored and shown beside the paper's numbers."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stsbench.cli import options as opt
from stsbench.cli.printing import (
    emit,
    print_error,
    print_json,
    print_progress,
    print_rows,
    print_table,
    print_text,
)
from stsbench.cli.train import tried
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
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> int:
    """Train the rows of a paper's table or figure.

    They are scored, and printed beside the paper's numbers. 'stsbench list ablations' names tables and figures. Nothing is
    trained twice; the same command resumes.

    Example: stsbench reproduce simcse-table-3 --small --base FOLDER
    """
    from stsbench.bench.progress import RunCallbacks
    from stsbench.boards.render.formats import render
    from stsbench.boards.tables.layout import build_layout
    from stsbench.cli.progress import ReproductionProgress
    from stsbench.studies.reproduction import Reproduction, load_ablation
    from stsbench.studies.trials import TrialCallbacks, TrialEnvironment

    catalogue = opt.read_cards(cards)
    opt.TypedOptions.from_context(context).forbid_beside("--dry-run", "--out")
    ablation = load_ablation(table, catalogue, small=small)
    base = opt.resolve_spec(base, catalogue)
    if small and not base:
        folder = "pass --base FOLDER, such as that of the card minilm-l4-mlm"
        raise StsbenchError(f"--small trains from a checkpoint of yours; {folder}")
    options = opt.retype_options(
        context, "--corpora", "--data", "--cards", "--device", "--deterministic"
    )
    environment = TrialEnvironment(
        results=results, corpora=corpora, data=data, device=device, deterministic=deterministic, catalogue=catalogue,
        options=options,
    )  # fmt: skip
    also, seeded = opt.parse_assignments(assign), opt.parse_seeds(seeds) if seeds else ()
    planned = Reproduction(
        ablation=ablation, environment=environment, base=base, seeds=seeded, also=also
    )
    if dry_run:
        return _forecast_reproduction(planned, as_json=as_json)
    progress = ReproductionProgress(None)
    scoring = RunCallbacks(
        on_result=_note_scored, on_failure=progress.on_failure, on_notice=progress.on_notice
    )
    made = planned.run_ablation(
        TrialCallbacks(training=partial(_training, planned), scoring=scoring)
    )
    fmt = opt.choose_format("terminal", out, as_json=as_json)
    if fmt == "terminal":
        print_table(replace(build_layout(made, "measured"), label_head="row"))
        print_text(f"Results: {results}/")
    else:
        emit(render([made], fmt, show="measured"), out)
    return progress.code


def _training(planned: Reproduction, trial: Trial) -> AbstractContextManager[OnProgress]:
    from stsbench.cli.progress import train_progress

    place, count = planned.trials.index(trial) + 1, len(planned.trials)
    return train_progress(trial.plan, f"[{place}/{count}] {' = '.join(planned.lines_of(trial))}")


def _note_scored(result: Result) -> None:
    seed = "" if result.train_seed is None else f", seed {result.train_seed}"
    print_progress(f"scored {result.encoder}{seed}: {result.task} {100 * result.score:.2f}")


def _forecast_reproduction(planned: Reproduction, *, as_json: bool) -> int:
    facts, missing = list[dict[str, Any]](), dict[str, None]()
    seconds_of: dict[str, float | None] = {}
    for one in planned.trials:
        cost, plan, rows = _cost(one.plan.card), one.plan, planned.lines_of(one)
        if one.state != "complete" and cost not in seconds_of:
            print_progress(f"trying three steps: {' = '.join(rows)}")
            found, lacks = tried(plan)
            seconds_of[cost] = found.seconds if found else None
            missing |= dict.fromkeys(lacks.values())
        seconds = (
            TrainedRun.read(plan.folder).run.seconds
            if one.state == "complete"
            else seconds_of[cost]
        )
        facts.append(
            {
                "rows": rows,
                "run": plan.name,
                "seed": plan.seed,
                "state": one.state,
                "seconds": seconds,
            }
        )
    not_had = {line.label: line.why for line in planned.ablation.lines if line.why}
    if as_json:
        print_json(
            {
                "table": planned.ablation.name,
                "runs": facts,
                "not_had": not_had,
                "missing": list(missing),
            }
        )
        return EXIT_USER_ERROR if missing else 0
    cells = [
        [
            " = ".join(one["rows"]),
            str(one["seed"]),
            one["state"],
            format_duration(one["seconds"]) if one["seconds"] else "?",
        ]
        for one in facts
    ]
    print_rows(["row", "seed", "state", "time of training"], cells, right=[1, 3], names=())
    left = [one["seconds"] for one in facts if one["state"] != "complete"]
    known = [seconds for seconds in left if seconds is not None]
    rest = f"; the rest takes about {format_duration(sum(known))} without scoring" if known else ""
    print_text(f"{len(facts) - len(left)} of {len(facts)} runs are trained{rest}")
    for label, why in not_had.items():
        print_text(f"not had: {label}: {why}")
    for what in missing:
        print_error(what, about="missing")
    return EXIT_USER_ERROR if missing else 0


def _cost(card: RecipeCard) -> str:
    """What recipes share that take as long: all but temperatures, weights and rates."""
    settings = {
        **card.params,
        **{f"student.{key}": value for key, value in msgspec.to_builtins(card.student).items()},
    }
    shown = {
        key: "a number" if isinstance(value, float) else value for key, value in settings.items()
    }
    training = msgspec.structs.replace(card.training, learning_rate=1.0)
    return repr([card.method, card.base, card.data, training, card.selection, shown])
