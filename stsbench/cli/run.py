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

from stsbench.api.names import Names, check_own_name
from stsbench.bench.plan import Cell, RunPlan, TextLeftOut, protocol_as_asked
from stsbench.bench.run import EXECUTORS, EncoderForecast, forecast_run, run
from stsbench.boards.tables.build import Asked
from stsbench.boards.tables.table import OVERLAP_SAID, OVERLAPS, lay_out
from stsbench.cli import options as opt
from stsbench.cli.config import join_assignments, resolved
from stsbench.cli.printing import complain, emit, folded, points, print_json, print_rows, print_table, say, say_words
from stsbench.cli.progress import describe_origin, run_progress
from stsbench.core.cards import Suite
from stsbench.core.errors import StsbenchError, choose, duration, split_names, variants
from stsbench.data.task import suites_within
from stsbench.encoders.base import variant_name
from stsbench.encoders.fitted import KEYS, variant_specs
from stsbench.encoders.runs import trained_runs, unfinished_runs
from stsbench.numbers.similarity import FLOAT, TYPES
from stsbench.numbers.statistics import spread
from stsbench.plots.draw import LinePoint, draw_lines
from stsbench.results.folder import command_again, lacking_columns, lacking_said, result_to_json
from stsbench.results.groups import gather_runs, seed_means, suite_mean
from stsbench.results.record import FEW_PAIRS, Result, clean_scores, protocol_key
from stsbench.significance.means import MEAN_METHOD, differences_from, mean_interval

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
    params = opt.parse_assignments(join_assignments(assign, (context.default_map or {}).get("assign", [])))
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
        encoders=chosen, called=_called(chosen, own_names, catalogue), params=params, catalogue=catalogue, out=results,
        tasks=tasks or ("sts" if specs else "quickstart"), protocol=protocol, data=data, split=split, fresh=fresh,
        seeds=opt.parse_seeds(seeds), store=opt.kept_in(store, no_store=no_store), on=on, timeout=timeout,
        gpus_per_encoder=gpus_per_encoder, clean=TextLeftOut(clean, near, corpora) if clean else None,
    )  # fmt: skip
    EXECUTORS.load_at(on)
    if dry_run:
        code = _forecast(settings, as_json=as_json)
    else:
        code = _carry_out(settings, plot, of_variants=bool(variants), verbose=verbose, as_json=as_json)
    _complain_of_unfinished(specs)
    return code


def _complain_of_unfinished(names: Sequence[str]) -> None:
    # Where the folder of runs cannot be read, that has failed already; where no seed is done, that is the run's failure.
    with suppress(StsbenchError):
        for unfinished in (one for name in names if trained_runs(name) for one in unfinished_runs(name)):
            complain(f"not scored: {unfinished}")


def _check_options(context: opt.Context, on: str) -> opt.Given:
    given = opt.Given.of(context)
    given.apart("--dry-run", "--verbose", "--plot", "--clean")
    given.apart("--json", "--verbose", "--plot")
    given.apart("--variants", "--name", "--verbose", "--no-store", "--clean")
    given.needs("--variants", "--plot")
    given.needs("--clean", "--near", "--corpora")
    given.placed(on, "--gpus-per-encoder", "--timeout")
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


def _called(encoders: Sequence[str], names: Sequence[str], catalogue: opt.Cards) -> dict[str, str]:
    if names and len(names) != len(encoders):
        raise StsbenchError(f"--name gives {len(names)} names for {len(encoders)} encoders; give one name each")
    for name in names:
        check_own_name(name, catalogue)
        if list(names).count(name) > 1:
            raise StsbenchError(f"--name '{name}' is given twice; results of two encoders would be mixed")
    return dict(zip(encoders, names, strict=True)) if names else {}


def _forecast(settings: RunPlan, *, as_json: bool) -> int:
    with run_progress(None, events=as_json) as progress:
        forecasts = list(forecast_run(settings, progress.listener()))
    if as_json:
        print_json({"encoders": [_forecast_facts(one) for one in forecasts], "failures": [*progress.failures]})
        return progress.code
    lines = [
        [part.name, task, protocol, *(_seeds(cells, task, protocol) for cells in (part.done, part.missing))]
        for part in (one.part for one in forecasts)
        for task, protocol in dict.fromkeys((cell.task, cell.protocol) for cell in part.cells)
    ]
    if lines:
        print_rows(["encoder", "task", "protocol", "seeds done", "missing"], lines)
        done, missing = (sum(len(getattr(one.part, what)) for one in forecasts) for what in ("done", "missing"))
        origin = describe_origin((result for one in forecasts for result in one.part.done.values()), settings.out)
        say(f"{done} of {done + missing} scores are done{origin}, {missing} are missing")
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


def _forecast_facts(forecast: EncoderForecast) -> dict[str, object]:
    part = forecast.part
    cells = {what: [dataclasses.asdict(cell) for cell in getattr(part, what)] for what in ("done", "missing")}
    counts = {"to_embed": part.to_embed, "tokens": part.tokens}
    return {"name": part.name, **cells, **counts, "embedding": forecast.embedding, "seconds": forecast.seconds}


COLUMNS = ("encoder", "task", "score", "majority", "95% interval", "n", "protocol")
PER_CLASS = ("precision", "recall", "f1")


class Line(NamedTuple):
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
    names = {id(result): runs.name for runs in gather_runs(results, catalogue) for result in runs.results}
    for result in results:
        if name := names.get(id(result)):
            found.setdefault(name, {}).setdefault((result.task, result.split), []).append(result)
    cells = [(encoder, seeds) for encoder, mine in found.items() for seeds in mine.values()]
    lines = [line for encoder, seeds in cells for line in _lines(encoder, seeds, catalogue, verbose=verbose)]
    for encoder, mine in found.items():
        lines += _means(encoder, {seeds[0].task: seeds for seeds in mine.values()}, catalogue)
    if len(found) == 1:
        say(f"{cells[0][0]}\n")
        lines = [line._replace(encoder="") for line in lines]
    print_rows(COLUMNS, lines, right=range(2, 6), sparse=True)
    if verbose:
        for encoder, seeds in cells:
            _print_classes(seeds, f", {encoder}" if len(found) > 1 else "")
    means = [line for line in lines if line.score and (line.n == "" or "±" in line.score)]
    of_means = [f"of means, {MEAN_METHOD}"] if any(line.interval for line in means) else []
    methods = "; ".join(dict.fromkeys([*(r.interval_method for r in results), *of_means]))
    say("\n" + "\n".join(folded(f"scores are times 100; 95% interval: {methods}")))
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
            for table in Asked(catalogue=catalogue, results=group).suite_boards(name, suite, scored):
                print_table(lay_out(table))
    # Each board's legend says what its marks mean.
    _print_notes(results, marks=False)
    say("see also: 'stsbench compare' (significance), --verbose (intervals, subsets)")


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


def _lines(encoder: str, results: Sequence[Result], catalogue: opt.Cards, *, verbose: bool) -> Iterator[Line]:
    first, *others = results
    # The worst that its encoders saw of the task's test.
    seen = {result.overlap for result in results}
    mark = next((OVERLAPS[one] for one in ("gold", "text") if one in seen), "")
    yield Line(
        encoder=encoder,
        task=f"{_task(first)} {mark}".rstrip(),
        score=_spread([result.score for result in results]),
        majority=points(first.scores.get("majority")),
        interval=_ends(mean_interval([results]) if others else first.interval),
        n=str(first.n),
        protocol=protocol_as_asked(first.task, first.protocol, catalogue),
    )
    for name, found in clean_scores(results).items():
        seeds = [one.score for one in found if one.score is not None]
        ends = found[0].interval if len(found) == 1 else None
        score = _spread(seeds) if len(seeds) == len(found) else "–"
        yield Line("", f"  {name}", score, interval=_ends(ends), n=str(found[0].n))
    if not verbose:
        return
    for result in results if others else ():
        yield Line("", f"  seed {_seed(result)}", points(result.score), interval=_ends(result.interval))
    if (metric := first.protocol.get("metric")) is not None:
        for name, values in first.per_subset.items():
            yield Line("", f"  {name}", points(values.get(metric)) or "–", n=f"{values['n']:.0f}")


def _means(encoder: str, by_task: Mapping[str, Sequence[Result]], catalogue: opt.Cards) -> Iterator[Line]:
    """A line for each suite all of whose tasks were scored, by one protocol an evaluator; seed by seed."""
    for suite in suites_within(list(by_task), catalogue).values():
        mine = [by_task[task] for task in suite.tasks]
        scores = seed_means(mine)
        if suite.average and len(mine) > 1 and scores:
            majority = points(suite_mean(suite.tasks, lambda task: by_task[task][0].scores.get("majority")))
            yield Line(encoder, f"mean of {suite.name}", _spread(scores), majority, _ends(mean_interval(mine)))


def _print_classes(results: Sequence[Result], named: str) -> None:
    first = results[0].per_subset
    if not first or not all(set(PER_CLASS) <= set(values) for values in first.values()):
        return
    rows = []
    for name, values in first.items():
        means = [points(fmean(result.per_subset[name][what] for result in results)) for what in PER_CLASS]
        rows.append([name, *means, f"{values['support']:.0f}"])
    seeds = f", mean of {len(results)} seeds" if len(results) > 1 else ""
    say(f"\nclasses of {_task(results[0])}{named}{seeds}\n")
    print_rows(["class", "precision", "recall", "F1", "n"], rows, right=[1, 2, 3, 4])


def _print_lacking(results: Sequence[Result], why: str) -> None:
    if lacking := lacking_columns(results):
        say_words(f"{lacking_said(lacking)}, which {why}; run: {command_again(lacking)}")


def _print_notes(results: Sequence[Result], *, marks: bool) -> None:
    several = len({result.encoder for result in results}) > 1
    found: dict[tuple[str, str], dict[str, None]] = {}
    for result in results:
        for note in result.notes:
            found.setdefault((result.encoder if several else "", note), {})[result.task] = None
    for (encoder, note), tasks in found.items():
        say_words(f"{f'{encoder} on ' if encoder else ''}{', '.join(tasks)}: {note}")
    if any("majority" in r.scores for r in results):
        say("majority: the accuracy of always answering the most frequent class")
    if any(result.clean for result in results):
        say_words("without …: the score of those items of which that text holds no sentence; n: how many they are")
    few = {f"{r.task}, {one.name}": ", ".join(one.left_out) for r in results for one in r.clean if one.left_out}
    for where, subsets in few.items():
        say_words(f"{where}: not in the mean, for fewer than {FEW_PAIRS} pairs are left of it: {subsets}")
    for mark in sorted({OVERLAPS[r.overlap] for r in results if marks and r.overlap in OVERLAPS}):
        say(OVERLAP_SAID[mark])
    seeds = list(dict.fromkeys(_seed(r) for r in sorted(results, key=lambda r: (r.train_seed or 0, r.eval_seed))))
    if len(seeds) > 1:
        say(f"±: deviation over the seeds {', '.join(seeds)}")


def _seed(result: Result) -> str:
    """The seed of training, of evaluation where nothing was trained, or both where both are drawn."""
    if result.train_seed is None:
        return str(result.eval_seed)
    return f"{result.train_seed}/{result.eval_seed}" if result.eval_seed else str(result.train_seed)


def _spread(scores: Sequence[float]) -> str:
    mean, deviation = spread(scores)
    return points(mean) + ("" if deviation is None else f"±{100 * deviation:.2f}")


def _ends(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{100 * interval[0]:.2f}–{100 * interval[1]:.2f}"


GRID = ("dimensions", "embeddings")
VARIANT_COLUMNS = ("embeddings", "dimensions", "bytes", "score", "difference", "95% interval")


class Variant(NamedTuple):
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
        choose("key of --variants", key, dict.fromkeys(GRID))
    grid: dict[str, list[Any]] = {
        key: [int(part) if part.isdecimal() else part for part in split_names(values)] for key, values in lists.items()
    }
    if twice := params.keys() & grid.keys():
        raise StsbenchError(f"--set and --variants both give '{min(twice)}'; leave out one of them")
    for name in names:
        if again := list(variants(name))[-1][1].keys() & {*KEYS}:
            raise StsbenchError(f"'{name}' is a variant already ({min(again)}); --variants takes the encoder itself")
    own = {key: value for key, value in params.items() if key != "calibration"}
    specs = [spec for name in names for spec in variant_specs(name, grid, params.get("calibration", ""))]
    return specs, own


def print_variants(results: Sequence[Result], catalogue: opt.Cards, plot: Path | None) -> None:
    """Print a table for each encoder and protocol, and draw it where there is one."""
    groups: dict[tuple[str, str], dict[str, dict[str, list[Result]]]] = {}
    for result in results:
        stem, changes = list(variants(result.encoder))[-1]
        encoder = variant_name(stem, {key: value for key, value in changes.items() if key not in KEYS})
        held = groups.setdefault((encoder, protocol_key(result.protocol)), {})
        held.setdefault(result.encoder, {}).setdefault(result.task, []).append(result)
    figures = []
    for (encoder, _), held in groups.items():
        # A task that not every variant has is in no table.
        if not (tasks := [task for task in next(iter(held.values())) if all(task in one for one in held.values())]):
            continue
        rows = _variants({name: [mine[task] for task in tasks] for name, mine in held.items()})
        protocol = next(iter(held.values()))[tasks[0]][0].protocol
        similarity = f", similarity {protocol['similarity']}" if protocol.get("similarity") else ""
        how = f"protocol {protocol_as_asked(tasks[0], protocol, catalogue)}{similarity}"
        what = tasks[0] if len(tasks) == 1 else f"mean of {len(tasks)} tasks"
        say(f"{encoder}: {what}, {how}\n")
        _print_variants(rows, tasks)
        figures.append(partial(_variants_figure, rows, f"score × 100, {what}", f"{encoder}, {how}"))
    _print_lacking(results, "intervals need")
    say_words(*dict.fromkeys(note for result in results for note in result.notes))
    if plot is not None:
        if len(figures) > 1:
            raise StsbenchError(f"--plot draws one encoder under one protocol, here are {len(figures)} tables")
        emit(figures[0](), plot)


def _variants(cells: Mapping[str, Sequence[Sequence[Result]]]) -> list[Variant]:
    types = {name: str(list(variants(name))[-1][1].get("embeddings", FLOAT)) for name in cells}
    sizes = {name: mine[0][0].run.get("dimensions") for name, mine in cells.items()}
    kept = {name: None if d is None else TYPES[types[name]].bytes(d) for name, d in sizes.items()}
    # The first of equals stays first: the encoder's own floats come before what is as large.
    largest = max(cells, key=lambda name: kept[name] or 0)
    found = differences_from(largest, {largest: cells[largest], **cells})
    changes = {name: (one.difference, *one.interval()) for name, one in found.items()}
    scores = {name: fmean(fmean(one.score for one in seeds) for seeds in mine) for name, mine in cells.items()}
    rows = [Variant(types[name], sizes[name], kept[name], scores[name], changes.get(name)) for name in cells]
    return sorted(rows, key=lambda row: (list(TYPES).index(row.type), -(row.dimensions or 0)))


def _print_variants(variants: Sequence[Variant], tasks: Sequence[str]) -> None:
    rows = []
    for one in variants:
        size = ["–" if number is None else f"{number}" for number in (one.dimensions, one.bytes)]
        difference, low, high = (f"{100 * number:+.2f}" for number in one.change) if one.change else ("", "", "")
        rows.append([one.type, *size, points(one.score), difference, low and f"{low} to {high}"])
    print_rows(VARIANT_COLUMNS, rows, right=range(1, 6), sparse=True)
    say("")
    if len(tasks) > 1:
        say_words(f"tasks: {', '.join(tasks)}")
    if any(one.change for one in variants):
        say_words("Scores are times 100. difference: from the largest embedding, with its paired 95% interval.")


def _variants_figure(variants: Sequence[Variant], values: str, title: str) -> Any:  # noqa: ANN401 - matplotlib's
    drawn = []
    for one in variants:
        if one.bytes is not None:
            change, low, high = one.change or (0.0, 0.0, 0.0)
            # Of the difference, around the score: whether two scores differ is what is asked.
            ends = (100 * (one.score - change + low), 100 * (one.score - change + high)) if one.change else None
            drawn.append(LinePoint(one.type, one.bytes, 100 * one.score, ends))
    sizes = "bytes of an embedding; — 95% interval of the difference from the largest"
    return draw_lines(drawn, sizes=sizes, values=values, title=title, scale="log2")
