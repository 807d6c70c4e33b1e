"""Encoders compared on the same items: differences, intervals, p-values, and sentences on which are significant."""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from stsbench.core.errors import DataError
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.results.folder import describe_missing_columns, format_rerun_command, without_columns
from stsbench.results.record import Result, protocol_key
from stsbench.significance.items import (
    Dependence,
    ResultsByEncoder,
    TaskItems,
    estimate_mean_difference,
    has_one_training_seed,
    join_items,
    match_tasks,
    pair_items,
)
from stsbench.significance.paired import Williams, combine_williams, holm


@dataclass(frozen=True, kw_only=True)
class TestSettings:
    """How much is drawn, from which seed, at which level a difference counts as real, and which items err together."""

    n_draws: int = 2000
    n_permutations: int = 9999
    seed: int = 0
    level: float = 0.05
    dependence: Dependence = "sentences"

    def rng(self, task: str) -> np.random.Generator:
        """The draws of one task, whatever other tasks there are."""
        return np.random.default_rng([self.seed, zlib.crc32(task.encode())])


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two encoders on one task, or on the mean of several: second minus first, never times 100.

    ``interval`` is the 95% interval over other items and seeds. ``p`` is Student's; of one task, one seed a
    side and items that share no sentence it is of the paired permutation test (of McNemar's exact one for items
    right or wrong). ``p_williams`` is of Williams' test of independent items, ``p_corrected`` is ``p`` after
    Holm's correction over ``family`` tests. They are None where the results' per-item columns allow no paired test. ``seeds``
    are the first's and the second's; ``one_run`` names those of the two that were trained once alone, whose
    difference says nothing of their recipe.
    """

    first: str
    second: str
    task: str
    tasks: Sequence[str]
    split: str
    protocol: Mapping[str, Any]
    n: int
    seeds: tuple[int, int]
    scores: tuple[float, float]
    deviations: tuple[float, float] | None
    difference: float
    interval: tuple[float, float] | None = None
    p: float | None = None
    p_williams: float | None = None
    one_run: Sequence[str] = ()
    p_corrected: float | None = None
    real: bool = False
    family: int = 0

    @property
    def is_average(self) -> bool:
        """Whether this is a mean over tasks."""
        return len(self.tasks) > 1


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All pairs of encoders: their differences by task, then on the means, and notes on what was left out."""

    encoders: Sequence[str]
    differences: Sequence[Difference]
    level: float
    dependence: Dependence = "sentences"
    """Which items were taken to err together."""
    notes: Sequence[str] = field(default_factory=list)

    def pairs(self) -> Iterator[tuple[str, str, list[Difference]]]:
        """Each pair of encoders with its differences."""
        for first, second in itertools.combinations(self.encoders, 2):
            yield (
                first,
                second,
                [d for d in self.differences if (d.first, d.second) == (first, second)],
            )


class MeasuredDifference(NamedTuple):
    """A pair's difference on one task, and the items that it was measured on, kept for the mean over tasks."""

    difference: Difference
    items: TaskItems[str] | None = None
    williams: Williams | None = None


def compare(
    encoders: Mapping[str, Sequence[Result]],
    *,
    tasks: Sequence[str] | None = None,
    protocol: str | None = None,
    effort: TestSettings | None = None,
) -> Comparison:
    """Compare every pair of encoders on the tasks that all of them have.

    Holm's correction is taken over the tasks of all pairs, and by itself over the means of all pairs.
    Encoders are the results of at least two, by what they are called: of these tasks alone, and of the protocol of this name.

    Raises:
        ProtocolError: a task was scored in different ways, or on different data; names the field.
        DataError: no task in common, or per-item columns missing or broken.
    """
    effort = effort or TestSettings()
    columns, notes = match_tasks(encoders, tasks=tasks, protocol=protocol)
    if lacking := without_columns(
        one for cells in columns for seeds in cells.values() for one in seeds
    ):
        raise DataError(
            f"{describe_missing_columns(lacking)}, which tests need; run: {format_rerun_command(lacking)}"
        )
    found: dict[tuple[str, str], list[MeasuredDifference]] = {}
    for measured in (one for cells in columns for one in compare_on_task(cells, effort)):
        found.setdefault((measured.difference.first, measured.difference.second), []).append(
            measured
        )
    by_task = _corrected(
        [one.difference for group in found.values() for one in group], effort.level
    )
    means = _corrected([mean for group in found.values() for mean in _means(group)], effort.level)
    items = [
        (one.difference.task, one.items) for group in found.values() for one in group if one.items
    ]
    unknown = list(dict.fromkeys(task for task, one in items if not one.knows_sentences))
    if unknown and effort.dependence != "none":
        older = [
            one
            for cells in columns
            for seeds in cells.values()
            for one in seeds
            if one.task in unknown
        ]
        why = "taken as independent, for no result says which items share a sentence"
        notes.append(f"{', '.join(unknown)}: {why}; run: {format_rerun_command(older)}")
    for name in encoders:
        seeds_of = ([(one.train_seed, one.items) for one in cells[name]] for cells in columns)
        alike = [len(set(seeds)) > len({items for _, items in seeds}) for seeds in seeds_of]
        if tasks := [
            cells[name][0].task
            for cells, are_alike in zip(columns, alike, strict=True)
            if are_alike
        ]:
            notes.append(
                f"{name}: several training seeds have the same items on {', '.join(tasks)}; are they one training?"
            )
    return Comparison(
        encoders=list(encoders),
        differences=[*by_task, *means],
        level=effort.level,
        dependence=effort.dependence,
        notes=notes,
    )


def compare_on_task(cells: ResultsByEncoder, effort: TestSettings) -> Iterator[MeasuredDifference]:
    """Every pair's difference on one task, before any correction.

    Raises:
        DataError: per-item columns are missing, broken, or of other items.
    """
    items, names = pair_items(cells, effort.dependence), list(cells)
    for pair in itertools.combinations(range(len(names)), 2):
        first, second = (names[at] for at in pair)
        bare = _untested(cells, first, second)
        if items is None:
            yield MeasuredDifference(bare)
            continue
        found, test, exact = estimate_mean_difference([items], first, second), None, None
        if join_items([items])[0].are_independent:
            test = items.paired.williams(*pair)
            if len(items.samples[first].scores) == len(items.samples[second].scores) == 1:
                # Every pair has the same draws, so that a third encoder changes nothing between two.
                rng = effort.rng(f"{items.task} swaps")
                exact = items.paired.exact_p(*pair, n_permutations=effort.n_permutations, rng=rng)
        # A probe's score is a mean of rounded folds, a hair off its items' mean: the interval is moved by that hair.
        interval, p = (
            found._replace(difference=bare.difference).interval(),
            found.p if exact is None else exact,
        )
        yield MeasuredDifference(
            replace(bare, interval=interval, p=p, p_williams=test.p if test else None), items, test
        )


def _untested(cells: ResultsByEncoder, first: str, second: str) -> Difference:
    a, b = (mean_and_deviation([one.score for one in cells[name]]) for name in (first, second))
    result = cells[first][0]
    return Difference(
        first=first,
        second=second,
        task=result.task,
        tasks=(result.task,),
        split=result.split,
        protocol=result.protocol,
        n=result.n,
        seeds=(len(cells[first]), len(cells[second])),
        scores=(a.mean, b.mean),
        deviations=None
        if a.deviation is None or b.deviation is None
        else (a.deviation, b.deviation),
        difference=b.mean - a.mean,
        one_run=tuple(name for name in (first, second) if has_one_training_seed(cells[name])),
    )


def _means(group: Sequence[MeasuredDifference]) -> Iterator[Difference]:
    """The mean over all tasks of one protocol; of a task scored on several splits by the split that the others have."""
    ways: dict[tuple[str, str], list[MeasuredDifference]] = {}
    splits: dict[str, set[str]] = {}
    for one in group:
        splits.setdefault(one.difference.task, set()).add(one.difference.split)
    alone = Counter(next(iter(found)) for found in splits.values() if len(found) == 1)
    usual = next((split for split, _ in alone.most_common(1)), None)
    for one in group:
        mixed = len(splits[one.difference.task]) > 1 and one.difference.split != usual
        ways.setdefault(
            (protocol_key(one.difference.protocol), one.difference.split if mixed else ""), []
        ).append(one)
    for same in ways.values():
        if len(same) > 1:
            yield mean_difference(same)


def mean_difference(group: Sequence[MeasuredDifference]) -> Difference:
    """The difference of two encoders' means over several tasks, which may share sentences."""
    parts, k = [one.difference for one in group], len(group)
    known = [one.items for one in group if one.items is not None]
    williams = [one.williams for one in group if one.williams is not None]
    difference = float(np.mean([part.difference for part in parts]))
    tested = (
        estimate_mean_difference(known, parts[0].first, parts[0].second)
        if len(known) == k
        else None
    )
    return replace(
        parts[0],
        task=f"mean of {k}",
        tasks=tuple(part.task for part in parts),
        n=sum(part.n for part in parts),
        seeds=(min(part.seeds[0] for part in parts), min(part.seeds[1] for part in parts)),
        scores=(
            float(np.mean([p.scores[0] for p in parts])),
            float(np.mean([p.scores[1] for p in parts])),
        ),
        deviations=None,
        difference=difference,
        interval=tested._replace(difference=difference).interval() if tested else None,
        p=tested.p if tested else None,
        p_williams=combine_williams(williams, np.full(k, 1 / k)).p if len(williams) == k else None,
    )


def _corrected(differences: Sequence[Difference], level: float) -> list[Difference]:
    tested = [d for d in differences if d.p is not None]
    corrected = dict(
        zip(map(id, tested), holm([d.p for d in tested if d.p is not None]), strict=True)
    )
    pairs = ((one, corrected.get(id(one))) for one in differences)
    return [
        replace(one, p_corrected=p, real=p is not None and p < level, family=len(tested))
        for one, p in pairs
    ]


DIFFERENCE_COLUMNS = ["task", "A", "B", "B - A", "95% interval", "p", "Williams", "Holm"]


def describe_comparison(comparison: Comparison) -> list[str]:
    """For each pair of encoders, which differences are significant."""
    corrected, made = _correction_said(comparison), []
    for first, second, differences in comparison.pairs():
        once = " and ".join(dict.fromkeys(name for d in differences for name in d.one_run))
        alone = f" {once}: one training seed, so this says nothing of the recipe." if once else ""
        made.append(f"{_sentences(first, second, differences)}. {corrected}.{alone}")
    return made


def label_tasks(differences: Sequence[Difference]) -> Mapping[tuple[str, str], str]:
    """What each task and split is called in tables and figures: the split is named where a task was scored on several."""
    splits: dict[str, set[str]] = {}
    for d in differences:
        splits.setdefault(d.task, set()).add(d.split)
    return {
        (task, one): f"{task} ({one})" if len(all_) > 1 else task
        for task, all_ in splits.items()
        for one in all_
    }


def _sentences(first: str, second: str, differences: Sequence[Difference]) -> str:
    tasks, labels = [d for d in differences if not d.is_average], label_tasks(differences)
    tested = [d for d in tasks if d.p is not None]
    real, chance = [d for d in tested if d.real], [d for d in tested if not d.real]
    parts = []
    for winner, loser, sign in ((second, first, 1), (first, second, -1)):
        won = [d for d in real if sign * d.difference > 0]
        if won:
            listed = ", ".join(
                f"{labels[d.task, d.split]} ({_signed(100 * d.difference * sign, 2)})" for d in won
            )
            count = f"{len(won)} of {_count(len(tasks), 'task')}: " if len(tasks) > 1 else ""
            parts.append(f"{winner} is better than {loser} on {count}{listed}")
    if chance:
        parts.append(_chance(first, second, chance, len(real)))
    untested = [labels[d.task, d.split] for d in tasks if d.p is None]
    if untested:
        parts.append(f"No paired test is known for {', '.join(untested)}")
    parts += [_mean(d) for d in differences if d.is_average and d.p is not None]
    return ". ".join(parts)


def _correction_said(comparison: Comparison) -> str:
    tested = [d for d in comparison.differences if d.p is not None]
    tasks, means = ([d for d in tested if d.is_average is average] for average in (False, True))
    over = []
    if tasks:
        pairs = _count(len({(d.first, d.second) for d in tasks}), "pair")
        each = _count(len({(d.task, d.split, protocol_key(d.protocol)) for d in tasks}), "task")
        over.append(f"{_count(len(tasks), 'test')} ({pairs} of encoders, {each})")
    if means:
        over.append(f"{_count(len(means), 'test')} of means")
    level = f"Level {comparison.level:g}"
    return (
        f"{level}; Holm's correction over {' and, by itself, over '.join(over)}" if over else level
    )


def _chance(first: str, second: str, chance: Sequence[Difference], real: int) -> str:
    if real:
        return f"No significant difference on the other {_count(len(chance), 'task')}"
    where = chance[0].task if len(chance) == 1 else f"any of {len(chance)} tasks"
    smallest = min(
        d.p_corrected if d.p_corrected is not None else d.p for d in chance if d.p is not None
    )
    at = "p" if len(chance) == 1 else "lowest p"
    return f"No significant difference between {first} and {second} on {where} ({at} {describe_p(smallest)})"


def _mean(mean: Difference) -> str:
    better = mean.second if mean.difference > 0 else mean.first
    size, p = (
        f"{100 * abs(mean.difference):.2f} points",
        describe_p(mean.p if mean.p_corrected is None else mean.p_corrected),
    )
    if mean.real:
        return f"{better} is better by {size} in the {mean.task} tasks (p {p})"
    return f"No significant difference in the {mean.task} tasks: {size} (p {p})"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def describe_notes(comparison: Comparison) -> list[str]:
    """What the columns mean, and what was left out."""
    independent = comparison.dependence == "none"
    return [
        *comparison.notes,
        f"Scores are times 100; differences are of unrounded scores. Items {'are taken as independent' if independent else 'that share a sentence are not independent'}.",
        "p: Student's t; of one task and one seed a side, whose items share no sentence, a paired permutation test (McNemar's of right or wrong).",
        "Holm: p corrected for all comparisons above; docs/statistics.md says more.",
    ]


def difference_columns(differences: Sequence[Difference]) -> tuple[list[str], list[list[str]]]:
    """The heads and rows of a table, one row a difference; a column in which nothing is known is left out."""
    labels, rows = label_tasks(differences), []
    for d in differences:
        # Large ends of an interval are not known to two decimals.
        ends = [_signed(100 * end, 1 if abs(end) >= 0.1 else 2) for end in d.interval or ()]
        spreads = [f"±{100 * one:.2f}" for one in d.deviations or ()] or ["", ""]
        scores = [
            f"{100 * score:.2f}{spread}" for score, spread in zip(d.scores, spreads, strict=True)
        ]
        ps = map(format_p, (d.p, d.p_williams, d.p_corrected))
        rows.append(
            [
                labels[d.task, d.split],
                *scores,
                _signed(100 * d.difference, 2),
                " to ".join(ends) or "–",
                *ps,
            ]
        )
    known = [at for at in range(len(DIFFERENCE_COLUMNS)) if any(row[at] != "–" for row in rows)]
    return [DIFFERENCE_COLUMNS[at] for at in known], [[row[at] for at in known] for row in rows]


def _signed(points: float, decimals: int) -> str:
    # What prints as zero has no sign.
    text = f"{points:+.{decimals}f}"
    return text if float(text) else text[1:]


def describe_p(p: float | None) -> str:
    """A p-value in a sentence: ``= .051`` or ``< .001``."""
    text = format_p(p)
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


def format_p(p: float | None) -> str:
    """A p-value in a table: three decimals, or that it is below them."""
    return "–" if p is None else "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
