"""The tables of scores that 'stsbench run' prints: one line per task, or one column per task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from stsbench.bench.protocols import format_protocol
from stsbench.boards.tables.build import TableRequest
from stsbench.boards.tables.layout import build_layout
from stsbench.boards.tables.table import OVERLAP_LEGENDS, OVERLAP_SYMBOLS
from stsbench.cli.printing import (
    fold_lines,
    format_points,
    print_paragraph,
    print_rows,
    print_table,
    print_text,
)
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.data.task import suites_within
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.results.folder import (
    describe_missing_columns,
    format_rerun_command,
    without_columns,
)
from stsbench.results.groups import group_by_encoder, seed_means, suite_mean
from stsbench.results.record import MIN_SUBSET_PAIRS, Result, common_clean_scores, protocol_key
from stsbench.significance.means import MEAN_METHOD, compute_mean_interval

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


def print_scores(results: Sequence[Result], catalogue: Catalogue, *, verbose: bool) -> None:
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
    print_text("\n" + "\n".join(fold_lines(f"scores are times 100; 95% interval: {methods}")))
    if not all(line.interval for line in means):
        print_missing_columns(results, "intervals of means need")
    _print_notes(results, marks=True)


def print_boards(results: Sequence[Result], catalogue: Catalogue) -> None:
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


def _columns(tasks: Sequence[str], catalogue: Catalogue) -> Iterator[tuple[str, Suite]]:
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
    encoder: str, results: Sequence[Result], catalogue: Catalogue, *, verbose: bool
) -> Iterator[ScoreLine]:
    first, *others = results
    # The worst that its encoders saw of the task's test.
    seen = {result.overlap for result in results}
    mark = next((OVERLAP_SYMBOLS[one] for one in ("gold", "text") if one in seen), "")
    yield ScoreLine(
        encoder=encoder,
        task=f"{_task(first)} {mark}".rstrip(),
        score=_spread([result.score for result in results]),
        majority=format_points(first.scores.get("majority")),
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
            "",
            f"  seed {_seed(result)}",
            format_points(result.score),
            interval=_ends(result.interval),
        )
    if (metric := first.protocol.get("metric")) is not None:
        for name, values in first.per_subset.items():
            yield ScoreLine(
                "", f"  {name}", format_points(values.get(metric)) or "–", n=f"{values['n']:.0f}"
            )


def _means(
    encoder: str, by_task: Mapping[str, Sequence[Result]], catalogue: Catalogue
) -> Iterator[ScoreLine]:
    """A line for each suite all of whose tasks were scored, by one protocol an evaluator; seed by seed."""
    for suite in suites_within(list(by_task), catalogue).values():
        mine = [by_task[task] for task in suite.tasks]
        scores = seed_means(mine)
        if suite.average and len(mine) > 1 and scores:
            majority = format_points(
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
            format_points(fmean(result.per_subset[name][what] for result in results))
            for what in PER_CLASS
        ]
        rows.append([name, *means, f"{values['support']:.0f}"])
    seeds = f", mean of {len(results)} seeds" if len(results) > 1 else ""
    print_text(f"\nclasses of {_task(results[0])}{named}{seeds}\n")
    print_rows(["class", "precision", "recall", "F1", "n"], rows, right=[1, 2, 3, 4])


def print_missing_columns(results: Sequence[Result], why: str) -> None:
    """Print which per-item columns are missing, what needs them and the command that makes them."""
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
    return format_points(mean) + ("" if deviation is None else f"±{100 * deviation:.2f}")


def _ends(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{100 * interval[0]:.2f}–{100 * interval[1]:.2f}"
