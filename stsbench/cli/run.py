"""``stsbench run``: score encoders on tasks, or forecast what that takes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.cli import options as opt
from stsbench.cli.child import continue_in_child
from stsbench.cli.config import format_settings, join_assignments
from stsbench.cli.printing import (
    print_error,
    print_json,
    print_rows,
    print_text,
)
from stsbench.core.errors import StsbenchError
from stsbench.core.wording import format_duration
from stsbench.encoders.runs import trained_runs, unfinished_runs

if TYPE_CHECKING:
    from stsbench.bench.plan import Cell, RunPlan
    from stsbench.bench.run import EncoderForecast
    from stsbench.core.catalogue import Catalogue

UNMEASURED, UNFITTED = "–", "?"
SAID = {UNMEASURED: "–: not measured yet", UNFITTED: "?: known when the encoder is fitted"}
"""Marks in the place of numbers, and what they say."""


def run_command(
    context: opt.Context,
    *,
    encoders: opt.EncoderArguments,
    encoder: opt.EncoderAgain,
    tasks: opt.Tasks = None,
    protocol: opt.Protocols = None,
    split: opt.Split = None,
    seeds: opt.EvaluationSeeds = "0",
    assign: opt.SetEncoder,
    names: opt.OwnNames,
    variants: opt.Variants,
    plot: opt.Plot = None,
    clean: opt.Clean,
    near: opt.Near = None,
    corpora: opt.Corpora = None,
    data: opt.Data = None,
    results: opt.ResultsFolder = Path("results"),
    store: opt.Store = None,
    no_store: opt.NoStore = False,
    fresh: opt.Fresh = False,
    on: opt.WhoScores = "local",
    gpus_per_encoder: opt.GpusPerEncoder = None,
    timeout: opt.Timeout = None,
    dry_run: opt.DryRun = False,
    verbose: opt.Verbose = False,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> int:
    """Score encoders on tasks.

    Each result is kept as soon as it is there; the same command resumes. With no argument: the encoder minilm on the suite
    quickstart, which needs no network. With --variants the scores are shown by the bytes of an embedding, and drawn by --plot.

    Example: stsbench run minilm --tasks sts --data DIR
    Example: stsbench run simcse-small --clean own
    """
    from stsbench.api.names import NameResolver
    from stsbench.bench.plan import CleanScoreSettings, RunPlan
    from stsbench.bench.run import EXECUTORS
    from stsbench.cli.variants import chosen_variants

    catalogue = opt.read_cards(cards)
    given = _check_options(context, on)
    if not dry_run:
        continue_in_child(on)
    params = opt.parse_assignments(
        join_assignments(assign, (context.default_map or {}).get("assign", []))
    )
    # Encoders that are typed, either way, take the place of those in the file of settings, and of their names.
    named = [*encoders, *(encoder if not encoders or "--encoder" in given else [])]
    own_names = names if "--name" in given or not {"encoders", "--encoder"} & given else []
    specs = NameResolver(catalogue).resolve_specs(named, results)
    chosen = specs or ["minilm"]
    if variants:
        if own_names:
            raise StsbenchError(
                "names of your own have no effect beside --variants; leave them out"
            )
        chosen, params = chosen_variants(chosen, variants, params)
    settings = RunPlan(
        encoders=chosen, names=_called(chosen, own_names, catalogue), params=params, catalogue=catalogue, results_folder=results,
        tasks=tasks or ("sts" if specs else "quickstart"), protocol=protocol, data=data, split=split, fresh=fresh,
        seeds=opt.parse_seeds(seeds), store=opt.resolve_store(store, no_store=no_store), executor=on, timeout=timeout,
        gpus_per_encoder=gpus_per_encoder, clean=CleanScoreSettings(clean, near, corpora) if clean else None,
    )  # fmt: skip
    EXECUTORS.load_at(on)
    if dry_run:
        code = _forecast(settings, as_json=as_json)
    else:
        code = _carry_out(
            settings, plot, of_variants=bool(variants), verbose=verbose, as_json=as_json
        )
    _complain_of_unfinished(specs)
    return code


def _complain_of_unfinished(names: Sequence[str]) -> None:
    # Where the folder of runs cannot be read, that has failed already; where no seed is done, that is the run's failure.
    with suppress(StsbenchError):
        for unfinished in (
            one for name in names if trained_runs(name) for one in unfinished_runs(name)
        ):
            print_error(f"not scored: {unfinished}")


def _check_options(context: opt.Context, on: str) -> opt.TypedOptions:
    given = opt.TypedOptions.from_context(context)
    given.forbid_beside("--dry-run", "--verbose", "--plot", "--clean")
    given.forbid_beside("--json", "--verbose", "--plot")
    given.forbid_beside("--variants", "--name", "--verbose", "--no-store", "--clean")
    given.forbid_without("--variants", "--plot")
    given.forbid_without("--clean", "--near", "--corpora")
    given.forbid_elsewhere(on, "--gpus-per-encoder", "--timeout")
    return given


def _carry_out(
    settings: RunPlan, plot: Path | None, *, of_variants: bool, verbose: bool, as_json: bool
) -> int:
    from stsbench.bench.run import run
    from stsbench.cli.progress import run_progress
    from stsbench.cli.scores import print_boards, print_scores
    from stsbench.cli.variants import print_variants
    from stsbench.results.folder import result_to_json

    out, catalogue = settings.results_folder, settings.catalogue
    with run_progress(out, format_settings(settings), events=as_json) as progress:
        results = list(run(settings, progress.listener()))
        progress.end()
    if as_json:
        print_json(
            {
                "results": [json.loads(result_to_json(one)) for one in results],
                "failures": [*progress.failures],
            }
        )
        return progress.code
    folders = {one.path_in(out).parent for one in results}
    if of_variants and results:
        print_variants(results, catalogue, plot)
    elif results:
        # A board is of the splits that tasks are scored on.
        others = any(one.split != catalogue.task(one.task).score_split for one in results)
        if verbose or others or len({one.encoder for one in results}) == 1:
            print_scores(results, catalogue, verbose=verbose)
        else:
            print_boards(results, catalogue)
    if results:
        print_text(f"Results: {folders.pop() if len(folders) == 1 and not of_variants else out}/")
    if settings.executor != "local" and progress.failures:
        # Of a run of many workers the lines that said so are long gone.
        print_text("\nFailed\n")
        print_rows(["what", "why"], [*progress.failures.values()])
    return progress.code


def _called(encoders: Sequence[str], names: Sequence[str], catalogue: Catalogue) -> dict[str, str]:
    from stsbench.api.names import check_own_name

    if names and len(names) != len(encoders):
        raise StsbenchError(
            f"--name gives {len(names)} names for {len(encoders)} encoders; give one name each"
        )
    for name in names:
        check_own_name(name, catalogue)
        if list(names).count(name) > 1:
            raise StsbenchError(
                f"--name '{name}' is given twice; results of two encoders would be mixed"
            )
    return dict(zip(encoders, names, strict=True)) if names else {}


def _forecast(settings: RunPlan, *, as_json: bool) -> int:
    from stsbench.bench.run import forecast_run
    from stsbench.cli.progress import describe_origin, run_progress

    with run_progress(None, events=as_json) as progress:
        forecasts = list(forecast_run(settings, progress.listener()))
    if as_json:
        print_json(
            {
                "encoders": [_forecast_facts(one) for one in forecasts],
                "failures": [*progress.failures],
            }
        )
        return progress.code
    lines = [
        [
            part.name,
            task,
            protocol,
            *(
                _seeds(cells, task, protocol)
                for cells in (part.current_results, part.missing_cells)
            ),
        ]
        for part in (one.encoder_plan for one in forecasts)
        for task, protocol in dict.fromkeys((cell.task, cell.protocol) for cell in part.cells)
    ]
    if lines:
        print_rows(["encoder", "task", "protocol", "seeds done", "missing"], lines)
        plans = [one.encoder_plan for one in forecasts]
        results = [result for plan in plans for result in plan.current_results.values()]
        missing = sum(len(plan.missing_cells) for plan in plans)
        origin = describe_origin(results, settings.results_folder)
        print_text(
            f"{len(results)} of {len(results) + missing} scores are done{origin}, "
            f"{missing} are missing"
        )
        if todo := [one for one in forecasts if one.encoder_plan.missing_cells]:
            _print_todo(todo)
    return progress.code


def _seeds(cells: Iterable[Cell], task: str, protocol: str) -> str:
    return ",".join(
        str(cell.seed) for cell in cells if (cell.task, cell.protocol) == (task, protocol)
    )


def _print_todo(todo: Sequence[EncoderForecast]) -> None:
    rows = []
    for one in todo:
        sentences = (
            UNFITTED
            if one.encoder_plan.sentences_to_embed is None
            else f"{one.encoder_plan.sentences_to_embed:,}"
        )
        rows.append(
            [
                one.encoder_plan.name,
                sentences,
                _time(one.embedding_seconds),
                _time(one.scoring_seconds),
            ]
        )
    print_text("")
    print_rows(["encoder", "sentences", "embedding", "scoring"], rows, right=[1, 2, 3])
    if unknown := {cell for row in rows for cell in row} & {UNMEASURED, UNFITTED}:
        print_text("; ".join(SAID[mark] for mark in sorted(unknown)))
    for one in todo:
        if one.encoder_plan.tokens_to_send:
            print_text(
                f"{one.encoder_plan.name}: about {one.encoder_plan.tokens_to_send:,} tokens go to its server"
            )
    known = [
        seconds
        for one in todo
        for seconds in (one.embedding_seconds, one.scoring_seconds)
        if seconds is not None
    ]
    rest = " and what is not measured" if len(known) < 2 * len(todo) else ""
    print_text(f"In all about {_time(sum(known))}{rest}, by one worker on this machine")


def _time(seconds: float | None) -> str:
    return UNMEASURED if seconds is None else format_duration(seconds and max(1, round(seconds)))


def _forecast_facts(forecast: EncoderForecast) -> dict[str, object]:
    part = forecast.encoder_plan
    cells = {
        "done": list(map(dataclasses.asdict, part.current_results)),
        "missing": list(map(dataclasses.asdict, part.missing_cells)),
    }
    counts = {"to_embed": part.sentences_to_embed, "tokens": part.tokens_to_send}
    return {
        "name": part.name,
        **cells,
        **counts,
        "embedding": forecast.embedding_seconds,
        "seconds": forecast.scoring_seconds,
    }
