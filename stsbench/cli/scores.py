"""The table that ``stsbench run`` prints: a line a task, seeds put together, means of suites."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stsbench.bench.tasks import protocol_as_asked
from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import Suite
from stsbench.cli.printing import console, folded, print_rows, say, say_words
from stsbench.cli.tables import print_table
from stsbench.compare.clean import clean_scores
from stsbench.compare.means import MEAN_METHOD, mean_interval
from stsbench.data.task import suites_within
from stsbench.leaderboard.tables.layout import OVERLAP_SAID, OVERLAPS, lay_out
from stsbench.leaderboard.tables.suite import suite_boards, suite_table
from stsbench.numbers.spread import spread
from stsbench.results.again import command_again, lacking_columns, lacking_said
from stsbench.results.comparable import protocol_key
from stsbench.results.groups import gather_runs
from stsbench.results.record import Result

COLUMNS = ("encoder", "task", "score", "majority", "95% interval", "n", "protocol")
NUMBERS = ("score", "majority", "95% interval", "n")
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


class ScoredSeeds(NamedTuple):
    """One encoder on one task: a Result a seed, in the order of the seeds given."""

    encoder: str
    task: str
    results: Sequence[Result]

    @property
    def majority(self) -> float | None:
        """The accuracy of always answering the most frequent class; None where nothing is classified."""
        return self.results[0].scores.get("majority")

    @property
    def name(self) -> str:
        """The task, and the split where it is not the usual one."""
        split = self.results[0].split
        return self.task if split in ("test", "all") else f"{self.task} ({split})"


def print_scores(results: Sequence[Result], catalogue: Catalogue, *, verbose: bool) -> None:
    """Print the results' table, with ``verbose`` every seed, subset and class, and the results' notes.

    A task whose test sentences the encoder was trained on carries the mark that tables of results have.
    """
    cells = _gather(results, catalogue)
    lines = [
        line
        for cell in cells
        for line in (_line(cell, catalogue), *_clean_lines(cell), *(_details(cell) if verbose else ()))
    ]
    encoders = list(dict.fromkeys(cell.encoder for cell in cells))
    for encoder in encoders:
        lines += _means(encoder, [cell for cell in cells if cell.encoder == encoder], catalogue)
    # What all lines lack, and the only encoder's name, need no column.
    shown = [at for at in range(len(COLUMNS)) if any(line[at] for line in lines)]
    if len(encoders) == 1:
        say(f"{encoders[0]}\n")
        shown.remove(0)
    columns = [COLUMNS[at] for at in shown]
    right = [at for at, column in enumerate(columns) if column in NUMBERS]
    print_rows(columns, [[line[at] for at in shown] for line in lines], right=right)
    if verbose:
        for cell in cells:
            _print_classes(cell, named=len(encoders) > 1)
    means = [line for line in lines if line.score and (line.n == "" or "±" in line.score)]
    _print_intervals(results, any_mean=any(line.interval for line in means))
    if not all(line.interval for line in means):
        _print_lacking(results)
    _print_notes(results, marks=True)


def print_boards(results: Sequence[Result], catalogue: Catalogue) -> None:
    """Print the results of several encoders: a line an encoder and a column a task, a table for each protocol."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(protocol_key(result.protocol), []).append(result)
    for group in groups.values():
        scored = {result.task: result.split for result in group}
        for name, suite in _columns(list(scored), catalogue):
            for board in suite_boards(group, name, suite, scored=scored):
                print_table(lay_out(suite_table(board, suite, name, catalogue)))
    # Each board's legend says what its marks mean.
    _print_notes(results, marks=False)
    say("see also: 'stsbench compare' (significance), --verbose (intervals, subsets)")


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


def _gather(results: Sequence[Result], catalogue: Catalogue) -> list[ScoredSeeds]:
    """Results by encoder and task: what only has the same name is another encoder."""
    found: dict[tuple[str, str, str], list[Result]] = {}
    names = {id(result): runs.name for runs in gather_runs(results, catalogue) for result in runs.results}
    for result in results:
        if id(result) in names:
            found.setdefault((names[id(result)], result.task, result.split), []).append(result)
    return [ScoredSeeds(encoder, task, mine) for (encoder, task, _), mine in found.items()]


def _line(cell: ScoredSeeds, catalogue: Catalogue) -> Line:
    first, *others = cell.results
    return Line(
        encoder=cell.encoder,
        task=f"{cell.name} {_mark(cell)}".rstrip(),
        score=_spread([result.score for result in cell.results]),
        majority=_points(cell.majority),
        interval=_mean_interval([cell]) if others else _interval(first),
        n=str(first.n),
        protocol=protocol_as_asked(cell.task, first.protocol, catalogue),
    )


def _clean_lines(cell: ScoredSeeds) -> Iterator[Line]:
    """A line on each training text whose sentences were left out: the score, and how many items are left."""
    for name, found in clean_scores(cell.results).items():
        seeds = [one.score for one in found if one.score is not None]
        ends = found[0].interval if len(found) == 1 else None
        score = _spread(seeds) if len(seeds) == len(found) else "–"
        yield Line("", f"  {name}", score, interval=_ends(ends) if ends else "", n=str(found[0].n))


def _details(cell: ScoredSeeds) -> Iterator[Line]:
    """A line a seed where there are several, and one a subset."""
    if len(cell.results) > 1:
        for result in cell.results:
            yield Line("", f"  seed {_seed(result)}", _points(result.score), interval=_interval(result))
    first = cell.results[0]
    metric = first.protocol.get("metric")
    if metric is not None:
        for name, values in first.per_subset.items():
            yield Line("", f"  {name}", _points(values.get(metric)) or "–", n=f"{values['n']:.0f}")


def _means(encoder: str, cells: Sequence[ScoredSeeds], catalogue: Catalogue) -> Iterator[Line]:
    """A line for each suite all of whose tasks were scored, by one protocol an evaluator; seed by seed."""
    by_task = {cell.task: cell for cell in cells}
    for suite in suites_within(list(by_task), catalogue).values():
        mine = [by_task[task] for task in suite.tasks]
        seeds = {tuple(map(_seed, cell.results)) for cell in mine}
        if suite.average and len(mine) > 1 and len(seeds) == 1:
            rounds = zip(*([result.score for result in cell.results] for cell in mine), strict=True)
            levels = [cell.majority for cell in mine if cell.majority is not None]
            majority = statistics.fmean(levels) if len(levels) == len(mine) else None
            scores = [statistics.fmean(one) for one in rounds]
            interval = _mean_interval(mine)
            yield Line(encoder, f"mean of {suite.name}", _spread(scores), _points(majority), interval=interval)


def _print_classes(cell: ScoredSeeds, *, named: bool) -> None:
    """A table of each class's precision, recall and F1, means over seeds; nothing for other tasks."""
    first = cell.results[0].per_subset
    if not first or not all(set(PER_CLASS) <= set(values) for values in first.values()):
        return
    rows = [
        [
            name,
            *(f"{100 * statistics.fmean(r.per_subset[name][what] for r in cell.results):.2f}" for what in PER_CLASS),
            f"{values['support']:.0f}",
        ]
        for name, values in first.items()
    ]
    seeds = f", mean of {len(cell.results)} seeds" if len(cell.results) > 1 else ""
    say(f"\nclasses of {cell.name}{f', {cell.encoder}' if named else ''}{seeds}\n")
    print_rows(["class", "precision", "recall", "F1", "n"], rows, right=[1, 2, 3, 4])


def _print_intervals(results: Sequence[Result], *, any_mean: bool) -> None:
    means = [f"of means, {MEAN_METHOD}"] if any_mean else []
    methods = "; ".join(dict.fromkeys([*(r.interval_method for r in results), *means]))
    say("\n" + "\n".join(folded(f"scores are times 100; 95% interval: {methods}", console().width)))


def _print_lacking(results: Sequence[Result]) -> None:
    """Say why means have no interval, where per-item columns are missing, and what makes them."""
    lacking = lacking_columns(results)
    if lacking:
        say_words(f"{lacking_said(lacking)}, which intervals of means need; run: {command_again(lacking)}")


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
    for mark in sorted({OVERLAPS[r.overlap] for r in results if marks and r.overlap in OVERLAPS}):
        say(OVERLAP_SAID[mark])
    seeds = list(dict.fromkeys(_seed(r) for r in sorted(results, key=lambda r: (r.train_seed or 0, r.eval_seed))))
    if len(seeds) > 1:
        say(f"±: deviation over the seeds {', '.join(seeds)}")


def _mark(cell: ScoredSeeds) -> str:
    """The worst that its encoders saw of the task's test, as a mark."""
    found = {result.overlap for result in cell.results}
    return next((OVERLAPS[one] for one in ("gold", "text") if one in found), "")


def _seed(result: Result) -> str:
    """The seed of training, of evaluation where nothing was trained, or both where both are drawn."""
    if result.train_seed is None:
        return str(result.eval_seed)
    return f"{result.train_seed}/{result.eval_seed}" if result.eval_seed else str(result.train_seed)


def _points(score: float | None) -> str:
    return "" if score is None else f"{100 * score:.2f}"


def _spread(scores: Sequence[float]) -> str:
    """The mean of seeds and their deviation, or the only score."""
    mean, deviation = spread(scores)
    return _points(mean) + ("" if deviation is None else f"±{100 * deviation:.2f}")


def _interval(result: Result) -> str:
    return _ends(result.interval)


def _mean_interval(cells: Sequence[ScoredSeeds]) -> str:
    found = mean_interval([cell.results for cell in cells])
    return _ends(found) if found else ""


def _ends(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{100 * low:.2f}–{100 * high:.2f}"
