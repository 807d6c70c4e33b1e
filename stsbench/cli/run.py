"""``stsbench run``, and the tables it prints: a line a task, seeds put together, means of suites; variants by their bytes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from stsbench.api.names import NameResolver, check_own_name
from stsbench.bench.plan import Cell, CleanScoreSettings, RunPlan
from stsbench.bench.protocols import format_protocol
from stsbench.bench.run import EXECUTORS, EncoderForecast, forecast_run, run
from stsbench.boards.tables.build import TableRequest
from stsbench.boards.tables.table import OVERLAP_LEGENDS, OVERLAP_SYMBOLS, build_layout
from stsbench.cli import options as opt
from stsbench.cli.child import continue_in_child
from stsbench.cli.config import format_settings, join_assignments
from stsbench.cli.printing import (
    emit,
    folded,
    points,
    print_error,
    print_json,
    print_paragraph,
    print_rows,
    print_table,
    print_text,
)
from stsbench.cli.progress import describe_origin, run_progress
from stsbench.core.cards import Suite
from stsbench.core.errors import StsbenchError, look_up
from stsbench.core.names import split_names, split_params
from stsbench.core.wording import format_duration
from stsbench.data.task import suites_within
from stsbench.encoders.fitted import VARIANT_KEYS, variant_specs
from stsbench.encoders.named import variant_name
from stsbench.encoders.runs import trained_runs, unfinished_runs
from stsbench.numbers.similarity import EMBEDDING_TYPES, FLOAT_TYPE
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.plots.draw import LinePoint, draw_lines
from stsbench.results.folder import (
    describe_missing_columns,
    format_rerun_command,
    result_to_json,
    without_columns,
)
from stsbench.results.groups import group_by_encoder, seed_means, suite_mean
from stsbench.results.record import MIN_SUBSET_PAIRS, Result, common_clean_scores, protocol_key
from stsbench.significance.means import MEAN_METHOD, compute_differences_from, compute_mean_interval

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
    catalogue: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Score encoders on tasks.

    Each result is kept as soon as it is there; the same command resumes. With no argument: the encoder minilm on the suite
    quickstart, which needs no network. With --variants the scores are shown by the bytes of an embedding, and drawn by --plot.

    Example: stsbench run minilm --tasks sts --data DIR
    Example: stsbench run simcse-small --clean own
    """
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
    given = opt.TypedOptions.of(context)
    given.apart("--dry-run", "--verbose", "--plot", "--clean")
    given.apart("--json", "--verbose", "--plot")
    given.apart("--variants", "--name", "--verbose", "--no-store", "--clean")
    given.needs("--variants", "--plot")
    given.needs("--clean", "--near", "--corpora")
    given.placed(on, "--gpus-per-encoder", "--timeout")
    return given


def _carry_out(
    settings: RunPlan, plot: Path | None, *, of_variants: bool, verbose: bool, as_json: bool
) -> int:
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


def _called(encoders: Sequence[str], names: Sequence[str], catalogue: opt.Cards) -> dict[str, str]:
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


COLUMNS = ("encoder", "task", "score", "majority", "95% interval", "n", "protocol")
PER_CLASS = ("precision", "recall", "f1")


class ScoreLine(NamedTuple):
    """One line of the table, its cells in the order of ``COLUMNS``."""

    encoder: str
    task: str
    score: str
    majority: str = ""
    interval: str = ""
    n: str = ""
    protocol: str = ""


def print_scores(results: Sequence[Result], catalogue: opt.Cards, *, verbose: bool) -> None:
    """Print the results' table, with ``verbose`` every seed, subset and class, and the results' notes.

    A task whose test sentences the encoder was trained on carries the mark that tables of results have.
    """
    # What only has the same name is another encoder. A cell is a task on a split: a Result a seed, in the order of the seeds given.
    found: dict[str, dict[tuple[str, str], list[Result]]] = {}
    names = {
        id(result): runs.name
        for runs in group_by_encoder(results, catalogue)
        for result in runs.results
    }
    for result in results:
        if name := names.get(id(result)):
            found.setdefault(name, {}).setdefault((result.task, result.split), []).append(result)
    cells = [(encoder, seeds) for encoder, mine in found.items() for seeds in mine.values()]
    lines = [
        line
        for encoder, seeds in cells
        for line in _lines(encoder, seeds, catalogue, verbose=verbose)
    ]
    for encoder, mine in found.items():
        lines += _means(encoder, {seeds[0].task: seeds for seeds in mine.values()}, catalogue)
    if len(found) == 1:
        print_text(f"{cells[0][0]}\n")
        lines = [line._replace(encoder="") for line in lines]
    print_rows(COLUMNS, lines, right=range(2, 6), sparse=True)
    if verbose:
        for encoder, seeds in cells:
            _print_classes(seeds, f", {encoder}" if len(found) > 1 else "")
    means = [line for line in lines if line.score and (line.n == "" or "±" in line.score)]
    of_means = [f"of means, {MEAN_METHOD}"] if any(line.interval for line in means) else []
    methods = "; ".join(dict.fromkeys([*(r.interval_method for r in results), *of_means]))
    print_text("\n" + "\n".join(folded(f"scores are times 100; 95% interval: {methods}")))
    if not all(line.interval for line in means):
        _print_lacking(results, "intervals of means need")
    _print_notes(results, marks=True)


def print_boards(results: Sequence[Result], catalogue: opt.Cards) -> None:
    """Print the results of several encoders: a line an encoder and a column a task, a table for each protocol."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(protocol_key(result.protocol), []).append(result)
    for group in groups.values():
        scored = {result.task: result.split for result in group}
        for name, suite in _columns(list(scored), catalogue):
            for table in TableRequest(catalogue=catalogue, results=group).make_suite_boards(
                name, suite, scored
            ):
                print_table(build_layout(table))
    # Each board's legend says what its marks mean.
    _print_notes(results, marks=False)
    print_text("see also: 'stsbench compare' (significance), --verbose (intervals, subsets)")


def _columns(tasks: Sequence[str], catalogue: opt.Cards) -> Iterator[tuple[str, Suite]]:
    """Suites to show some tasks by: the largest that are whole, which have an average, and what is in none of them."""
    left = list(tasks)
    whole = sorted(suites_within(tasks, catalogue).items(), key=lambda one: -len(one[1].tasks))
    for name, suite in whole:
        if suite.average and len(suite.tasks) > 1 and {*suite.tasks} <= {*left}:
            left = [task for task in left if task not in suite.tasks]
            yield name, suite
    if left:
        yield "", Suite(name="Scores", tasks=left, average=False)


def _task(result: Result) -> str:
    """The task, and the split where it is not the usual one."""
    return result.task if result.split in ("test", "all") else f"{result.task} ({result.split})"


def _lines(
    encoder: str, results: Sequence[Result], catalogue: opt.Cards, *, verbose: bool
) -> Iterator[ScoreLine]:
    first, *others = results
    # The worst that its encoders saw of the task's test.
    seen = {result.overlap for result in results}
    mark = next((OVERLAP_SYMBOLS[one] for one in ("gold", "text") if one in seen), "")
    yield ScoreLine(
        encoder=encoder,
        task=f"{_task(first)} {mark}".rstrip(),
        score=_spread([result.score for result in results]),
        majority=points(first.scores.get("majority")),
        interval=_ends(compute_mean_interval([results]) if others else first.interval),
        n=str(first.n),
        protocol=format_protocol(first.task, first.protocol, catalogue),
    )
    for name, found in common_clean_scores(results).items():
        seeds = [one.score for one in found if one.score is not None]
        ends = found[0].interval if len(found) == 1 else None
        score = _spread(seeds) if len(seeds) == len(found) else "–"
        yield ScoreLine("", f"  {name}", score, interval=_ends(ends), n=str(found[0].n))
    if not verbose:
        return
    for result in results if others else ():
        yield ScoreLine(
            "", f"  seed {_seed(result)}", points(result.score), interval=_ends(result.interval)
        )
    if (metric := first.protocol.get("metric")) is not None:
        for name, values in first.per_subset.items():
            yield ScoreLine(
                "", f"  {name}", points(values.get(metric)) or "–", n=f"{values['n']:.0f}"
            )


def _means(
    encoder: str, by_task: Mapping[str, Sequence[Result]], catalogue: opt.Cards
) -> Iterator[ScoreLine]:
    """A line for each suite all of whose tasks were scored, by one protocol an evaluator; seed by seed."""
    for suite in suites_within(list(by_task), catalogue).values():
        mine = [by_task[task] for task in suite.tasks]
        scores = seed_means(mine)
        if suite.average and len(mine) > 1 and scores:
            majority = points(
                suite_mean(suite.tasks, lambda task: by_task[task][0].scores.get("majority"))
            )
            yield ScoreLine(
                encoder,
                f"mean of {suite.name}",
                _spread(scores),
                majority,
                _ends(compute_mean_interval(mine)),
            )


def _print_classes(results: Sequence[Result], named: str) -> None:
    first = results[0].per_subset
    if not first or not all(set(PER_CLASS) <= set(values) for values in first.values()):
        return
    rows = []
    for name, values in first.items():
        means = [
            points(fmean(result.per_subset[name][what] for result in results)) for what in PER_CLASS
        ]
        rows.append([name, *means, f"{values['support']:.0f}"])
    seeds = f", mean of {len(results)} seeds" if len(results) > 1 else ""
    print_text(f"\nclasses of {_task(results[0])}{named}{seeds}\n")
    print_rows(["class", "precision", "recall", "F1", "n"], rows, right=[1, 2, 3, 4])


def _print_lacking(results: Sequence[Result], why: str) -> None:
    if lacking := without_columns(results):
        print_paragraph(
            f"{describe_missing_columns(lacking)}, which {why}; run: {format_rerun_command(lacking)}"
        )


def _print_notes(results: Sequence[Result], *, marks: bool) -> None:
    several = len({result.encoder for result in results}) > 1
    found: dict[tuple[str, str], dict[str, None]] = {}
    for result in results:
        for note in result.notes:
            found.setdefault((result.encoder if several else "", note), {})[result.task] = None
    for (encoder, note), tasks in found.items():
        print_paragraph(f"{f'{encoder} on ' if encoder else ''}{', '.join(tasks)}: {note}")
    if any("majority" in r.scores for r in results):
        print_text("majority: the accuracy of always answering the most frequent class")
    if any(result.clean for result in results):
        print_paragraph(
            "without …: the score of those items of which that text holds no sentence; n: how many they are"
        )
    few = {
        f"{r.task}, {one.name}": ", ".join(one.left_out)
        for r in results
        for one in r.clean
        if one.left_out
    }
    for where, subsets in few.items():
        print_paragraph(
            f"{where}: not in the mean, for fewer than {MIN_SUBSET_PAIRS} pairs are left of it: {subsets}"
        )
    for mark in sorted(
        {OVERLAP_SYMBOLS[r.overlap] for r in results if marks and r.overlap in OVERLAP_SYMBOLS}
    ):
        print_text(OVERLAP_LEGENDS[mark])
    seeds = list(
        dict.fromkeys(
            _seed(r) for r in sorted(results, key=lambda r: (r.train_seed or 0, r.eval_seed))
        )
    )
    if len(seeds) > 1:
        print_text(f"±: deviation over the seeds {', '.join(seeds)}")


def _seed(result: Result) -> str:
    """The seed of training, of evaluation where nothing was trained, or both where both are drawn."""
    if result.train_seed is None:
        return str(result.eval_seed)
    return f"{result.train_seed}/{result.eval_seed}" if result.eval_seed else str(result.train_seed)


def _spread(scores: Sequence[float]) -> str:
    mean, deviation = mean_and_deviation(scores)
    return points(mean) + ("" if deviation is None else f"±{100 * deviation:.2f}")


def _ends(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{100 * interval[0]:.2f}–{100 * interval[1]:.2f}"


GRID = ("dimensions", "embeddings")
VARIANT_COLUMNS = ("embeddings", "dimensions", "bytes", "score", "difference", "95% interval")


class VariantRow(NamedTuple):
    """One variant of an encoder: its score, and how its embeddings are kept; None where older results do not say."""

    type: str
    dimensions: int | None
    bytes: int | None
    score: float
    """The mean over tasks of the mean over seeds."""
    change: tuple[float, float, float] | None
    """The difference from the largest embedding, and the ends of its paired interval."""


def chosen_variants(
    names: Sequence[str], given: Sequence[str], params: Mapping[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """The encoders of a run with variants (``key=value,value`` each), and the parameters that all of them take."""
    lists = opt.parse_pairs("--variants", given, "key=value,value, such as dimensions=256,128,64")
    for key in lists:
        look_up("key of --variants", key, dict.fromkeys(GRID))
    grid: dict[str, list[Any]] = {
        key: [int(part) if part.isdecimal() else part for part in split_names(values)]
        for key, values in lists.items()
    }
    if twice := params.keys() & grid.keys():
        raise StsbenchError(f"--set and --variants both give '{min(twice)}'; leave out one of them")
    for name in names:
        if again := list(split_params(name))[-1][1].keys() & {*VARIANT_KEYS}:
            raise StsbenchError(
                f"'{name}' is a variant already ({min(again)}); --variants takes the encoder itself"
            )
    own = {key: value for key, value in params.items() if key != "calibration"}
    specs = [
        spec for name in names for spec in variant_specs(name, grid, params.get("calibration", ""))
    ]
    return specs, own


def print_variants(results: Sequence[Result], catalogue: opt.Cards, plot: Path | None) -> None:
    """Print a table for each encoder and protocol, and draw it where there is one."""
    groups: dict[tuple[str, str], dict[str, dict[str, list[Result]]]] = {}
    for result in results:
        stem, changes = list(split_params(result.encoder))[-1]
        encoder = variant_name(
            stem, {key: value for key, value in changes.items() if key not in VARIANT_KEYS}
        )
        held = groups.setdefault((encoder, protocol_key(result.protocol)), {})
        held.setdefault(result.encoder, {}).setdefault(result.task, []).append(result)
    figures = []
    for (encoder, _), held in groups.items():
        # A task that not every variant has is in no table.
        if not (
            tasks := [
                task
                for task in next(iter(held.values()))
                if all(task in one for one in held.values())
            ]
        ):
            continue
        rows = _variants({name: [mine[task] for task in tasks] for name, mine in held.items()})
        protocol = next(iter(held.values()))[tasks[0]][0].protocol
        similarity = f", similarity {protocol['similarity']}" if protocol.get("similarity") else ""
        how = f"protocol {format_protocol(tasks[0], protocol, catalogue)}{similarity}"
        what = tasks[0] if len(tasks) == 1 else f"mean of {len(tasks)} tasks"
        print_text(f"{encoder}: {what}, {how}\n")
        _print_variants(rows, tasks)
        figures.append(partial(_variants_figure, rows, f"score × 100, {what}", f"{encoder}, {how}"))
    _print_lacking(results, "intervals need")
    print_paragraph(*dict.fromkeys(note for result in results for note in result.notes))
    if plot is not None:
        if len(figures) > 1:
            raise StsbenchError(
                f"--plot draws one encoder under one protocol, here are {len(figures)} tables"
            )
        emit(figures[0](), plot)


def _variants(cells: Mapping[str, Sequence[Sequence[Result]]]) -> list[VariantRow]:
    types = {
        name: str(list(split_params(name))[-1][1].get("embeddings", FLOAT_TYPE)) for name in cells
    }
    sizes = {name: mine[0][0].run.get("dimensions") for name, mine in cells.items()}
    kept = {
        name: None if d is None else EMBEDDING_TYPES[types[name]].bytes(d)
        for name, d in sizes.items()
    }
    # The first of equals stays first: the encoder's own floats come before what is as large.
    largest = max(cells, key=lambda name: kept[name] or 0)
    found = compute_differences_from(largest, {largest: cells[largest], **cells})
    changes = {name: (one.difference, *one.interval()) for name, one in found.items()}
    scores = {
        name: fmean(fmean(one.score for one in seeds) for seeds in mine)
        for name, mine in cells.items()
    }
    rows = [
        VariantRow(types[name], sizes[name], kept[name], scores[name], changes.get(name))
        for name in cells
    ]
    return sorted(
        rows, key=lambda row: (list(EMBEDDING_TYPES).index(row.type), -(row.dimensions or 0))
    )


def _print_variants(variants: Sequence[VariantRow], tasks: Sequence[str]) -> None:
    rows = []
    for one in variants:
        size = ["–" if number is None else f"{number}" for number in (one.dimensions, one.bytes)]
        difference, low, high = (
            (f"{100 * number:+.2f}" for number in one.change) if one.change else ("", "", "")
        )
        rows.append([one.type, *size, points(one.score), difference, low and f"{low} to {high}"])
    print_rows(VARIANT_COLUMNS, rows, right=range(1, 6), sparse=True)
    print_text("")
    if len(tasks) > 1:
        print_paragraph(f"tasks: {', '.join(tasks)}")
    if any(one.change for one in variants):
        print_paragraph(
            "Scores are times 100. difference: from the largest embedding, with its paired 95% interval."
        )


def _variants_figure(variants: Sequence[VariantRow], values: str, title: str) -> Any:  # noqa: ANN401 - matplotlib's
    drawn = []
    for one in variants:
        if one.bytes is not None:
            change, low, high = one.change or (0.0, 0.0, 0.0)
            # Of the difference, around the score: whether two scores differ is what is asked.
            ends = (
                (100 * (one.score - change + low), 100 * (one.score - change + high))
                if one.change
                else None
            )
            drawn.append(LinePoint(one.type, one.bytes, 100 * one.score, ends))
    sizes = "bytes of an embedding; — 95% interval of the difference from the largest"
    return draw_lines(drawn, x_label=sizes, y_label=values, title=title, x_scale="log2")
