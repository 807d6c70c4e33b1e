"""``stsbench run``: score encoders on tasks, or forecast what that takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from stsbench.cli import options as opt
from stsbench.cli.child import continue_in_child
from stsbench.cli.config import format_settings, join_assignments
from stsbench.cli.option_values import TypedOptions, parse_assignments, parse_seeds, resolve_store
from stsbench.cli.printing import (
    format_points,
    print_error,
    print_json,
    print_paragraph,
    print_text,
)
from stsbench.cli.tables import print_rows
from stsbench.core.errors import StsbenchError
from stsbench.core.grouping import group_by
from stsbench.core.wording import format_count, format_duration
from stsbench.encoders.runs import read_trained_runs, read_unfinished_runs
from stsbench.plots.labels import figure_width

if TYPE_CHECKING:
    from stsbench.bench.forecast import EncoderForecast
    from stsbench.bench.plan import Cell, EncoderPlan, RunPlan
    from stsbench.core.catalogue import Catalogue
    from stsbench.results.record import Result

MAX_FORECAST_ROWS = 24
"""The most rows of tasks that a forecast prints one by one."""
UNMEASURED_SYMBOL, UNFITTED_SYMBOL = "–", "?"
SYMBOL_LEGENDS = {
    UNMEASURED_SYMBOL: "–: not measured yet",
    UNFITTED_SYMBOL: "?: known when the encoder is fitted",
}
"""What the symbols mean that stand in the place of numbers."""


def run_command(
    context: opt.Context,
    *,
    encoders: opt.EncoderArguments,
    encoder: opt.EncoderOption,
    similarities: opt.SimilarityFiles,
    tasks: opt.Tasks = None,
    protocol: opt.Protocols = None,
    split: opt.Split = None,
    seeds: opt.EvaluationSeeds = "0",
    assign: opt.EncoderParameters,
    names: opt.ResultNames,
    variants: opt.Variants,
    plot: opt.Plot = None,
    width: opt.FigureWidth = None,
    clean: opt.CleanScores,
    near: opt.MinSimilarity = None,
    corpora: opt.TextFolder = None,
    data: opt.DataFolder = None,
    results: opt.ResultsFolder = Path("results"),
    store: opt.StoreFolder = None,
    no_store: opt.NoStore = False,
    fresh: opt.Fresh = False,
    on: opt.ScoringExecutor = "local",
    devices: opt.ScoringDevices = None,
    gpus_per_encoder: opt.GpusPerEncoder = None,
    timeout: opt.Timeout = None,
    dry_run: opt.DryRun = False,
    verbose: opt.Verbose = False,
    bare: opt.BareScore = False,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Score encoders on tasks.

    Each result is written as soon as it is complete; the same command resumes. Without arguments it
    scores the encoder minilm on the suite quickstart, which needs no network. With --variants it
    prints the scores by the bytes of an embedding, and --plot draws them. With -b it prints one
    number alone: the score of a single task, or the mean of a suite. With --similarities it scores
    a file of the scores of pairs.

    Example: stsbench run minilm --tasks sts --data DIR
    Example: stsbench run minilm --tasks stsb -b
    Example: stsbench run simcse-small --clean own
    """
    from stsbench.api.names import NameResolver
    from stsbench.bench.plan import CleanScoreSettings, RunPlan
    from stsbench.bench.run import EXECUTORS
    from stsbench.cli.variants import expand_variants
    from stsbench.data.task import DEFAULT_SUITE, QUICKSTART_SUITE
    from stsbench.encoders.accelerator import resolve_devices
    from stsbench.encoders.backends import check_device

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    typed = TypedOptions.from_context(context)
    device_names = resolve_devices(devices) if devices else ()
    for device in dict.fromkeys(device_names):
        check_device(device)
    executor = "devices" if device_names else on
    _check_options(typed, executor)
    if not dry_run:
        continue_in_child(on)
    params = parse_assignments(
        join_assignments(assign, (context.default_map or {}).get("assign", []))
    )
    # Encoders that are typed as arguments or options replace those of the project's file, and
    # their names.
    option_encoders = encoder if not (encoders or similarities) or "--encoder" in typed else []
    typed_encoders = {"encoders", "--encoder", "--similarities"} & typed
    own_names = names if "--name" in typed or not typed_encoders else []
    specs = NameResolver(catalogue).resolve_specs([*encoders, *option_encoders], results)
    specs += [f"similarities:{path}" for path in similarities]
    run_specs = specs or ["minilm"]
    if variants:
        if own_names:
            raise StsbenchError(
                "names of your own have no effect beside --variants; leave them out"
            )
        # All variants of each encoder, and the parameters that are not in their names.
        run_specs, params = expand_variants(run_specs, variants, params)
    plan = RunPlan(
        encoders=run_specs,
        names=_match_names(run_specs, own_names, catalogue),
        params=params,
        catalogue=catalogue,
        results_folder=results,
        tasks=tasks or (DEFAULT_SUITE if specs else QUICKSTART_SUITE),
        protocol=protocol,
        data=data,
        split=split,
        fresh=fresh,
        seeds=parse_seeds(seeds),
        store=resolve_store(store, no_store=no_store),
        executor=executor,
        devices=device_names,
        timeout=timeout,
        gpus_per_encoder=gpus_per_encoder,
        clean=CleanScoreSettings(corpora=clean, min_similarity=near, folder=corpora)
        if clean
        else None,
    )
    EXECUTORS.load_at(executor)
    if dry_run:
        exit_code = _forecast(plan, as_json=as_json)
    elif bare:
        exit_code = _print_bare_score(plan)
    else:
        with figure_width(width):
            exit_code = _score(
                plan, plot, has_variants=bool(variants), verbose=verbose, as_json=as_json
            )
    _print_unfinished_runs(specs)
    return exit_code


def _print_unfinished_runs(specs: Sequence[str]) -> None:
    """Print the training runs of these encoders that were not scored, for they are unfinished."""
    # If the folder of runs cannot be read, that was reported; so it was if no seed is finished.
    with suppress(StsbenchError):
        for spec in specs:
            for run in read_unfinished_runs(spec) if read_trained_runs(spec) else ():
                print_error(f"not scored: {run}")


def _check_options(typed: TypedOptions, executor: str) -> None:
    """Raise StsbenchError if an option was typed that would have no effect.

    Args:
        typed: The options that the user typed. ``forbid_beside`` names an option, then those that
            have no effect beside it; ``forbid_without`` those that have no effect without it.
            ``forbid`` names a reason, then the options that have no effect for it.
        executor: Where to run: "local", or otherwise in other processes.
    """
    typed.forbid_beside("--dry-run", "--verbose", "--plot", "--clean")
    typed.forbid_beside("--json", "--verbose", "--plot")
    typed.forbid_beside("--variants", "--name", "--verbose", "--no-store", "--clean")
    typed.forbid_beside("--bare", "--dry-run", "--verbose", "--json", "--variants", "--clean")
    typed.forbid_without("--variants", "--plot")
    typed.forbid_without("--plot", "--width")
    typed.forbid_without("--clean", "--near", "--corpora")
    typed.forbid_beside("--devices", "--on")
    if executor == "local":
        typed.forbid("without --devices or --on ray", "--gpus-per-encoder", "--timeout")


def _match_names(
    specs: Sequence[str], names: Sequence[str], catalogue: Catalogue
) -> dict[str, str]:
    """Return the names that the user gives to encoders, by encoder.

    Args:
        specs: The encoders of the run.
        names: The user's names, one per encoder in the same order; empty if there are none.
        catalogue: The cards, whose names cannot be given to other encoders.

    Raises:
        StsbenchError: There are more or fewer names than encoders, or a name is not allowed.
    """
    from stsbench.encoders.metadata import check_own_name

    if names and len(names) != len(specs):
        raise StsbenchError(
            f"--name gives {format_count(len(names), 'name')} for "
            f"{format_count(len(specs), 'encoder')}; give one name each"
        )
    for name in names:
        # Raises an error for a name that another encoder has, or that cannot be one.
        check_own_name(name, catalogue)
        if list(names).count(name) > 1:
            raise StsbenchError(
                f"--name '{name}' is given twice; results of two encoders would be mixed"
            )
    return dict(zip(specs, names, strict=True)) if names else {}


def _score(
    plan: RunPlan, plot: Path | None, *, has_variants: bool, verbose: bool, as_json: bool
) -> int:
    """Carry out a run, print its results and return the exit code.

    Args:
        plan: The run.
        plot: The figure of variants to write; None to write none.
        has_variants: Whether ``--variants`` was typed, for which there is a table of its own.
        verbose: Whether to print every seed, subset and class too.
        as_json: Whether to print the results as JSON, and the progress as lines of JSON.
    """
    from stsbench.bench.run import run
    from stsbench.cli.progress import run_progress
    from stsbench.cli.variants import print_variants
    from stsbench.results.folder import result_to_json
    from stsbench.results.signature import format_signature

    folder = plan.results_folder
    with run_progress(folder, format_settings(plan), events=as_json) as progress:
        # The results made now, and those that existed and are still valid.
        results = list(run(plan, progress.callbacks()))
        # Prints how many scores were made, and in what time.
        progress.end()
    if as_json:
        print_json(
            {
                "results": [
                    json.loads(result_to_json(result)) | {"signature": format_signature([result])}
                    for result in results
                ],
                # The printed line of each failure; the values are pairs of what failed and why.
                "failures": [*progress.failures],
            }
        )
        return progress.exit_code
    if results:
        if has_variants:
            print_variants(results, plan.catalogue, plot)
        else:
            _print_results(results, plan.catalogue, verbose=verbose)
        encoder_folders = {result.path_in(folder).parent for result in results}
        is_one_encoder = len(encoder_folders) == 1 and not has_variants
        print_text(f"Results: {encoder_folders.pop() if is_one_encoder else folder}/")
    if plan.executor != "local" and progress.failures:
        # In a run of many workers, the lines about failures are far above.
        print_text("\nFailed\n")
        print_rows(["what", "why"], [*progress.failures.values()])
    return progress.exit_code


def _print_bare_score(plan: RunPlan) -> int:
    """Carry out a run, print its only score or its mean times 100, and return the exit code.

    Nothing is printed if something has failed.

    Args:
        plan: The settings of the run.

    Raises:
        StsbenchError: The run has several encoders, or several tasks without a common mean. Nothing
            is scored then.
    """
    from stsbench.bench.run import run
    from stsbench.cli.progress import run_progress
    from stsbench.data.task import expand_names
    from stsbench.data.task_names import find_task_or_suite_ids
    from stsbench.results.groups import seed_means

    tasks = expand_names(str(plan.tasks), plan.catalogue)
    # The suite, if the user has named a single one; joined ids of several are no suite's id.
    suite_id = "".join(find_task_or_suite_ids(str(plan.tasks), plan.catalogue))
    suite = plan.catalogue.suites().get(suite_id)
    has_one_score = len(tasks) == 1 or (suite is not None and suite.average)
    if len(plan.encoders) != 1 or not has_one_score:
        raise StsbenchError(
            "-b prints one number; give one encoder, and one task or a suite with a mean"
        )
    with run_progress(plan.results_folder, format_settings(plan)) as progress:
        results = list(run(plan, progress.callbacks()))
        progress.end()
    results_by_task = [[result for result in results if result.task == task] for task in tasks]
    # For each seed the mean over the tasks, empty if a task lacks a seed that another has; the
    # printed number is the mean over seeds.
    task_mean_by_seed = seed_means(results_by_task)
    if progress.exit_code == 0 and task_mean_by_seed:
        print_text(format_points(fmean(task_mean_by_seed)))
    return progress.exit_code


def _print_results(results: Sequence[Result], catalogue: Catalogue, *, verbose: bool) -> None:
    """Print the scores of a run.

    For a single encoder, with ``verbose``, or if unusual splits were scored, it is a table with one
    line per task. Otherwise it is a board: one line per encoder, one column per task.

    Args:
        results: The results, at least one.
        catalogue: The cards of tasks and suites.
        verbose: Whether to print every seed, subset and class too.
    """
    from stsbench.cli.scores import print_boards, print_scores

    # A board shows only the splits on which tasks are scored by default.
    has_other_splits = any(
        result.split != catalogue.task(result.task).score_split for result in results
    )
    if verbose or has_other_splits or len({result.encoder for result in results}) == 1:
        print_scores(results, catalogue, verbose=verbose)
    else:
        print_boards(results, catalogue)


def _forecast(plan: RunPlan, *, as_json: bool) -> int:
    """Print what a run would do, without scoring anything, and return the exit code.

    It prints which scores exist and which are missing, how many sentences are to be embedded, and
    how long that takes.

    Args:
        plan: The settings of the run.
        as_json: Whether to print JSON instead of tables.
    """
    from stsbench.bench.forecast import forecast_run
    from stsbench.cli.progress import describe_origin, run_progress

    with run_progress(out=None, events=as_json) as progress:
        # Encoders are loaded, and embed a few sentences to measure their speed.
        forecasts = list(forecast_run(plan, progress.callbacks()))
    if as_json:
        print_json(
            {
                "encoders": [_forecast_to_json(forecast) for forecast in forecasts],
                "failures": [*progress.failures],
            }
        )
        return progress.exit_code
    names = [forecast.encoder_plan.name for forecast in forecasts]
    for i, forecast in enumerate(forecasts):
        # Trainings of one recipe share a name; their specs have the training seed, as recipe@3.
        if names.count(names[i]) > 1:
            plan_of_seed = replace(forecast.encoder_plan, name=forecast.encoder_plan.spec)
            forecasts[i] = replace(forecast, encoder_plan=plan_of_seed)
    encoder_plans = [forecast.encoder_plan for forecast in forecasts]
    rows = [row for encoder_plan in encoder_plans for row in _cell_rows(encoder_plan)]
    if not rows:
        return progress.exit_code
    print_rows(["encoder", "task", "protocol", "done", "missing"], merge_rows(rows))
    results = [
        result for encoder_plan in encoder_plans for result in encoder_plan.current_results.values()
    ]
    n_missing = sum(len(encoder_plan.missing_cells) for encoder_plan in encoder_plans)
    origin = describe_origin(results, plan.results_folder)
    print_paragraph(
        f"{len(results)} of {len(results) + n_missing} scores are done{origin}, "
        f"{n_missing} are missing"
    )
    unfinished = [forecast for forecast in forecasts if forecast.encoder_plan.missing_cells]
    if unfinished:
        _print_costs(unfinished)
    return progress.exit_code


def _cell_rows(encoder_plan: EncoderPlan) -> list[list[str]]:
    """Return a row for each task and protocol of an encoder, with the seeds done and missing.

    Args:
        encoder_plan: What a run does for an encoder: the scores to make (cells), each with its
            task, protocol and seed; those whose results exist; and the missing ones.

    Returns:
        Rows of five texts: the encoder's name, the task, the protocol, and the seeds that are done
        and that are missing, each as ``seeds 0,1`` or empty.
    """
    tasks_and_protocols = dict.fromkeys((cell.task, cell.protocol) for cell in encoder_plan.cells)
    return [
        [
            encoder_plan.name,
            task,
            protocol,
            _join_seeds(encoder_plan.current_results, task, protocol),
            _join_seeds(encoder_plan.missing_cells, task, protocol),
        ]
        for task, protocol in tasks_and_protocols
    ]


def merge_rows(rows: Sequence[list[str]]) -> list[list[str]]:
    """Merge the rows of tasks that differ in nothing but the task, if there are too many rows.

    Up to ``MAX_FORECAST_ROWS`` rows are returned unchanged. Of a merged row the task is replaced by
    the number of tasks.

    Args:
        rows: Rows of five texts: encoder, task, protocol, seeds done and seeds missing.
    """
    if len(rows) <= MAX_FORECAST_ROWS:
        return list(rows)
    rows_by_other_cells = group_by(rows, lambda row: (row[0], *row[2:]))
    return [
        [encoder, group[0][1] if len(group) == 1 else f"{len(group)} tasks", *cells]
        for (encoder, *cells), group in rows_by_other_cells.items()
    ]


def _join_seeds(cells: Iterable[Cell], task: str, protocol: str) -> str:
    """List the seeds of the cells of a task and protocol, such as ``seeds 0,1``; empty if none."""
    seeds = [str(cell.seed) for cell in cells if (cell.task, cell.protocol) == (task, protocol)]
    return f"seed{'s' if len(seeds) > 1 else ''} {','.join(seeds)}" if seeds else ""


def _print_costs(forecasts: Sequence[EncoderForecast]) -> None:
    """Print how many sentences each encoder must embed, and how long that and scoring take.

    Below the table are the numbers of tokens that are sent to encoders on servers, and the time for
    all.

    Args:
        forecasts: A forecast per encoder that still has scores to make. Its times are in seconds,
            None if they cannot be estimated; None is printed as ``UNMEASURED_SYMBOL``. The number
            ``sentences_to_embed`` is None for an encoder that is still to be fitted on texts;
            ``tokens_to_send`` is None for an encoder on this machine.
    """
    rows = []
    for forecast in forecasts:
        n_sentences = forecast.encoder_plan.sentences_to_embed
        rows.append(
            [
                forecast.encoder_plan.name,
                UNFITTED_SYMBOL if n_sentences is None else f"{n_sentences:,}",
                _format_seconds(forecast.embedding_seconds),
                _format_seconds(forecast.scoring_seconds),
            ]
        )
    print_text("")
    print_rows(["encoder", "sentences", "embedding", "scoring"], rows, number_columns=[1, 2, 3])
    all_texts = {text for row in rows for text in row}
    if symbols := all_texts & {UNMEASURED_SYMBOL, UNFITTED_SYMBOL}:
        print_text("; ".join(SYMBOL_LEGENDS[symbol] for symbol in sorted(symbols)))
    for forecast in forecasts:
        if n_tokens := forecast.encoder_plan.tokens_to_send:
            print_text(f"{forecast.encoder_plan.name}: about {n_tokens:,} tokens go to its server")
    times = [
        seconds
        for forecast in forecasts
        for seconds in (forecast.embedding_seconds, forecast.scoring_seconds)
    ]
    rest = " and what is not measured" if None in times else ""
    total = _format_seconds(sum(filter(None, times)))
    print_text(f"In all about {total}{rest}, by one worker on this machine")


def _format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return UNMEASURED_SYMBOL
    if seconds == 0:
        return format_duration(0)
    # An estimate of less than a second is printed as one second.
    return format_duration(max(1, round(seconds)))


def _forecast_to_json(forecast: EncoderForecast) -> dict[str, object]:
    """Return the JSON object of the forecast for one encoder of a run.

    Args:
        forecast: The forecast.

    Returns:
        ``name`` is the encoder's name; ``done`` and ``missing`` are the scores (task, protocol,
        seed) that exist and that are to be made. ``to_embed`` is the number of sentences to embed,
        None for an encoder that is still to be fitted. ``tokens`` is about how many tokens a server
        is sent for them, None for an encoder on this machine. ``embedding`` is the time in seconds
        to embed these sentences, ``seconds`` the time to score; each is None if it cannot be
        estimated.
    """
    encoder_plan = forecast.encoder_plan
    return {
        "name": encoder_plan.name,
        # The keys of current_results are the scores that exist.
        "done": list(map(asdict, encoder_plan.current_results)),
        "missing": list(map(asdict, encoder_plan.missing_cells)),
        "to_embed": encoder_plan.sentences_to_embed,
        "tokens": encoder_plan.tokens_to_send,
        "embedding": forecast.embedding_seconds,
        "seconds": forecast.scoring_seconds,
    }
