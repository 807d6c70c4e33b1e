"""``stsbench run``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from typer import Context

from stsbench.api.names import Names, check_own_name
from stsbench.api.progress import duration
from stsbench.bench.plan import Cell, RunPlan, TextLeftOut
from stsbench.bench.run import EXECUTORS, EncoderForecast, forecast_run, run
from stsbench.cli import options as opt
from stsbench.cli.config import resolved
from stsbench.cli.printing import complain, print_json, say
from stsbench.cli.progress import run_progress
from stsbench.cli.scores import chosen_variants, print_boards, print_scores, print_variants
from stsbench.cli.screen import print_rows
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.encoders.runs import trained_runs, unfinished_runs
from stsbench.results.folder import result_to_json

UNMEASURED, UNFITTED = "–", "?"
SAID = {UNMEASURED: "–: not measured yet", UNFITTED: "?: known when the encoder is fitted"}
"""Marks in the place of numbers, and what they say."""


def run_command(
    context: Context,
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
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Score encoders on tasks.

    Each result is kept as soon as it is there; the same command resumes. With no argument: the encoder minilm on the suite
    quickstart, which needs no network. With --variants the scores are shown by the bytes of an embedding, and drawn by --plot.

    Example: stsbench run minilm --tasks sts --data DIR
    Example: stsbench run simcse-small --clean own
    """
    given = _check(context, plot, on)
    catalogue, params = Catalogue(cards), opt.parse_assignments(assign)
    # Encoders that are typed, either way, take the place of those in the file of settings, and of their names.
    named = [*encoders, *(encoder if not encoders or "--encoder" in given else [])]
    own_names = names if "--name" in given or not {"encoders", "--encoder"} & given else []
    specs = Names(catalogue).to_load(named, results)
    chosen = specs or ["minilm"]
    if variants:
        if own_names:
            raise StsbenchError("names of your own have no effect beside --variants; leave them out")
        chosen, params = chosen_variants(chosen, variants, params)
    settings = RunPlan(
        encoders=chosen,
        tasks=tasks or ("sts" if specs else "quickstart"),
        out=results,
        params=params,
        protocol=protocol,
        data=data,
        split=split,
        seeds=opt.parse_seeds(seeds),
        store=opt.kept_in(store, no_store=no_store),
        fresh=fresh,
        called=_called(chosen, own_names, catalogue),
        catalogue=catalogue,
        on=on,
        gpus_per_encoder=gpus_per_encoder,
        timeout=timeout,
        clean=TextLeftOut(clean, near, corpora) if clean else None,
    )
    EXECUTORS.load_at(on)
    if dry_run:
        code = _forecast(settings, as_json=as_json)
    else:
        code = _carry_out(settings, plot, of_variants=bool(variants), verbose=verbose, as_json=as_json)
    # Where the folder of runs cannot be read, that has failed already; where no seed is done, that is the run's failure.
    with suppress(StsbenchError):
        for unfinished in (one for name in specs if trained_runs(name) for one in unfinished_runs(name)):
            complain(f"not scored: {unfinished}")
    return code


def _check(context: Context, plot: Path | None, on: str) -> opt.Given:
    given = opt.Given.of(context)
    given.apart("--no-store", "--store")
    given.apart("--dry-run", "--verbose", "--plot", "--clean")
    given.apart("--json", "--verbose", "--plot")
    given.apart("--variants", "--name", "--verbose", "--no-store", "--clean")
    given.needs("--variants", "--plot")
    given.needs("--clean", "--near", "--corpora")
    opt.check_figure("--plot", plot)
    if on == "local":
        given.idle("without --on ray", "--gpus-per-encoder", "--timeout")
    return given


def _carry_out(settings: RunPlan, plot: Path | None, *, of_variants: bool, verbose: bool, as_json: bool) -> int:
    out, catalogue = settings.out, settings.catalogue
    with run_progress(out, resolved(settings), events=as_json) as progress:
        results = list(run(settings, progress.listener()))
        progress.end()
    if as_json:
        print_json({"results": [json.loads(result_to_json(one)) for one in results], "failures": [*progress.failures]})
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
        say(f"Results: {folders.pop() if len(folders) == 1 and not of_variants else out}/")
    if settings.on != "local" and progress.failures:
        # Of a run of many workers the lines that said so are long gone.
        say("\nFailed\n")
        print_rows(["what", "why"], [*progress.failures.values()])
    return progress.code


def _called(encoders: Sequence[str], names: Sequence[str], catalogue: Catalogue) -> dict[str, str]:
    if names and len(names) != len(encoders):
        raise StsbenchError(f"--name gives {len(names)} names for {len(encoders)} encoders; give one name each")
    for name in names:
        check_own_name(name, catalogue)
        if list(names).count(name) > 1:
            raise StsbenchError(f"--name '{name}' is given twice; results of two encoders would be mixed")
    return dict(zip(encoders, names, strict=True)) if names else {}


def _forecast(settings: RunPlan, *, as_json: bool) -> int:
    with run_progress(None, resolved(settings), events=as_json) as progress:
        forecasts = list(forecast_run(settings, progress.listener()))
    if as_json:
        print_json({"encoders": [_facts(one) for one in forecasts], "failures": [*progress.failures]})
        return progress.code
    lines = [
        [part.name, task, protocol, *(_seeds(cells, task, protocol) for cells in (part.done, part.missing))]
        for part in (one.part for one in forecasts)
        for task, protocol in dict.fromkeys((cell.task, cell.protocol) for cell in part.cells)
    ]
    if lines:
        print_rows(["encoder", "task", "protocol", "seeds done", "missing"], lines)
        done, missing = (sum(len(getattr(one.part, what)) for one in forecasts) for what in ("done", "missing"))
        say(f"{done} of {done + missing} scores are done, {missing} are missing")
        if todo := [one for one in forecasts if one.part.missing]:
            _print_todo(todo)
    return progress.code


def _seeds(cells: Iterable[Cell], task: str, protocol: str) -> str:
    return ",".join(str(cell.seed) for cell in cells if (cell.task, cell.protocol) == (task, protocol))


def _print_todo(todo: Sequence[EncoderForecast]) -> None:
    rows = []
    for one in todo:
        sentences = UNFITTED if one.part.to_embed is None else f"{one.part.to_embed:,}"
        rows.append([one.part.name, sentences, _time(one.embedding), _time(one.seconds)])
    say("")
    print_rows(["encoder", "sentences", "embedding", "scoring"], rows, right=[1, 2, 3])
    if unknown := {cell for row in rows for cell in row} & {UNMEASURED, UNFITTED}:
        say("; ".join(SAID[mark] for mark in sorted(unknown)))
    for one in todo:
        if one.part.tokens:
            say(f"{one.part.name}: about {one.part.tokens:,} tokens go to its server")
    known = [seconds for one in todo for seconds in (one.embedding, one.seconds) if seconds is not None]
    rest = " and what is not measured" if len(known) < 2 * len(todo) else ""
    say(f"In all about {_time(sum(known))}{rest}, by one worker on this machine")


def _time(seconds: float | None) -> str:
    return UNMEASURED if seconds is None else duration(seconds and max(1, round(seconds)))


def _facts(forecast: EncoderForecast) -> dict[str, object]:
    part = forecast.part
    cells = {what: [dataclasses.asdict(cell) for cell in getattr(part, what)] for what in ("done", "missing")}
    counts = {"to_embed": part.to_embed, "tokens": part.tokens}
    return {"name": part.name, **cells, **counts, "embedding": forecast.embedding, "seconds": forecast.seconds}
