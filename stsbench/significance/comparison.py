"""Compare encoders on the same items: differences, intervals, p-values, and a summary in words."""

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
    """The settings of tests.

    Attributes:
        n_permutations: How many permutations to draw for a permutation test.
        seed: The seed of all permutations.
        level: The corrected p-value below which a difference counts as real.
        dependence: Which items are taken to vary together.
    """

    n_permutations: int = 9999
    seed: int = 0
    level: float = 0.05
    dependence: Dependence = "sentences"

    def rng(self, task: str) -> np.random.Generator:
        """Return the generator of a task's draws, which depend on no other task."""
        return np.random.default_rng([self.seed, zlib.crc32(task.encode())])


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference of two encoders on one task or on the mean of several, never times 100.

    ``interval``, ``p``, ``p_williams`` and ``p_corrected`` are None if the results' per-item
    columns allow no such test.

    Attributes:
        first: The name of the encoder whose score is subtracted.
        second: The name of the other encoder.
        task: The task's name, or the label of the mean.
        tasks: The tasks that the mean is over, or the only one.
        split: The split that was scored.
        protocol: The protocol by which it was scored.
        n: The number of items.
        seeds: The numbers of seeds of the first and the second encoder.
        scores: Their scores.
        deviations: Their deviations over seeds; None if one of them has a single seed, and for a
            mean over tasks.
        difference: The second score minus the first.
        interval: The 95% interval of the difference over other items and other seeds.
        p: The p-value by Student's t. For one task with one seed per encoder, if no items share
            a sentence, that of the paired permutation test, which is McNemar's exact one if
            items are right or wrong.
        p_williams: The p-value of Williams' test, for independent items.
        one_run: The names of those of the two that were trained with a single seed: their
            difference says nothing about the recipe.
        p_corrected: ``p`` after Holm's correction over ``family`` tests.
        real: The corrected p-value is below the level.
        family: The number of tests that the correction is over.
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
        """True if this is a mean over tasks."""
        return len(self.tasks) > 1


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences of all pairs of encoders.

    Attributes:
        encoders: The names of the encoders.
        differences: The differences by task, then those of means.
        level: The corrected p-value below which a difference counts as real.
        dependence: Which items were taken to vary together.
        notes: Messages for the user, for example on tasks that were skipped.
    """

    encoders: Sequence[str]
    differences: Sequence[Difference]
    level: float
    dependence: Dependence = "sentences"
    notes: Sequence[str] = field(default_factory=list)

    def pairs(self) -> Iterator[tuple[str, str, list[Difference]]]:
        """Yield the names of each pair of encoders, first and second, with its differences."""
        for first, second in itertools.combinations(self.encoders, 2):
            differences = [
                difference
                for difference in self.differences
                if (difference.first, difference.second) == (first, second)
            ]
            yield first, second, differences


class MeasuredDifference(NamedTuple):
    """A pair's difference on one task, with all that a mean over tasks needs.

    Attributes:
        difference: The difference, before any correction.
        items: The task's items; None if no paired test is known.
        williams: Williams' test; None if there is none.
    """

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

    Holm's correction is taken over the tasks of all pairs, and by itself over the means of all
    pairs.

    Args:
        encoders: The results of at least two encoders, by the encoder's name.
        tasks: The tasks to compare; None for all.
        protocol: The name of the only protocol to compare; None for all.
        effort: The settings of the tests.

    Raises:
        ProtocolError: A task was scored differently; the message names the field.
        DataError: No task is common to all, or per-item columns are missing or broken.
    """
    effort = effort or TestSettings()
    matched = match_tasks(encoders, tasks=tasks, protocol=protocol)
    all_results = [
        result
        for results_by_encoder in matched.results
        for results in results_by_encoder.values()
        for result in results
    ]
    if lacking := without_columns(all_results):
        raise DataError(
            f"{describe_missing_columns(lacking)}, which tests need; "
            f"run: {format_rerun_command(lacking)}"
        )
    measured_by_pair: dict[tuple[str, str], list[MeasuredDifference]] = {}
    for results_by_encoder in matched.results:
        for measured in compare_on_task(results_by_encoder, effort):
            pair = measured.difference.first, measured.difference.second
            measured_by_pair.setdefault(pair, []).append(measured)
    differences = []
    means: list[Difference] = []
    items_by_task: dict[str, list[TaskItems[str]]] = {}
    for pair_differences in measured_by_pair.values():
        means.extend(_means(pair_differences))
        for measured in pair_differences:
            differences.append(measured.difference)
            if measured.items:
                items_by_task.setdefault(measured.difference.task, []).append(measured.items)
    notes = matched.notes
    if effort.dependence != "none":
        notes += _describe_unknown_sentences(items_by_task, all_results)
    for name in encoders:
        notes += _describe_equal_trainings(name, [results[name] for results in matched.results])
    return Comparison(
        encoders=list(encoders),
        differences=[*_corrected(differences, effort.level), *_corrected(means, effort.level)],
        level=effort.level,
        dependence=effort.dependence,
        notes=notes,
    )


def _describe_unknown_sentences(
    items_by_task: Mapping[str, Sequence[TaskItems[str]]], results: Sequence[Result]
) -> list[str]:
    """Name the tasks for which it is unknown which items share a sentence; empty if none."""
    unknown = [
        task
        for task, task_items in items_by_task.items()
        if not all(items.knows_sentences for items in task_items)
    ]
    if not unknown:
        return []
    command = format_rerun_command([result for result in results if result.task in unknown])
    reason = "taken as independent, for no result says which items share a sentence"
    return [f"{', '.join(unknown)}: {reason}; run: {command}"]


def _describe_equal_trainings(name: str, results_by_task: Sequence[Sequence[Result]]) -> list[str]:
    """Name the tasks on which training seeds of an encoder have equal items; empty if none."""
    tasks = []
    for results in results_by_task:
        seed_items = {(result.train_seed, result.items) for result in results}
        if len(seed_items) > len({result.items for result in results}):
            tasks.append(results[0].task)
    if not tasks:
        return []
    return [
        f"{name}: several training seeds have the same items on {', '.join(tasks)}; "
        "are they one training?"
    ]


def compare_on_task(cells: ResultsByEncoder, effort: TestSettings) -> Iterator[MeasuredDifference]:
    """Yield every pair's difference on one task, before any correction.

    Args:
        cells: Each encoder's results on the task, one per seed.
        effort: The settings of the tests.

    Raises:
        DataError: Per-item columns are missing, broken, or of other items.
    """
    items = pair_items(cells, effort.dependence)
    for (first_index, first), (second_index, second) in itertools.combinations(enumerate(cells), 2):
        untested = _compare_without_test(cells, first, second)
        if items is None:
            yield MeasuredDifference(untested)
            continue
        estimate = estimate_mean_difference([items], first, second)
        p = estimate.p
        williams = None
        if join_items([items]).dependence.are_independent:
            williams = items.paired.williams(first_index, second_index)
            if len(items.samples[first].scores) == len(items.samples[second].scores) == 1:
                exact_p = items.paired.exact_p(
                    first_index,
                    second_index,
                    n_permutations=effort.n_permutations,
                    # Every pair has the same draws: a third encoder changes nothing between two.
                    rng=effort.rng(f"{items.task} swaps"),
                )
                p = p if exact_p is None else exact_p
        # A probe's score is a mean of rounded folds and differs from its items' mean by rounding:
        # the interval is centred on the difference of the scores.
        interval = estimate._replace(difference=untested.difference).interval()
        difference = replace(
            untested, interval=interval, p=p, p_williams=williams.p if williams else None
        )
        yield MeasuredDifference(difference, items, williams)


def _compare_without_test(cells: ResultsByEncoder, first: str, second: str) -> Difference:
    """Return the difference of the mean scores on one task, without a test."""
    first_mean = mean_and_deviation([result.score for result in cells[first]])
    second_mean = mean_and_deviation([result.score for result in cells[second]])
    deviations = None
    if first_mean.deviation is not None and second_mean.deviation is not None:
        deviations = (first_mean.deviation, second_mean.deviation)
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
        scores=(first_mean.mean, second_mean.mean),
        deviations=deviations,
        difference=second_mean.mean - first_mean.mean,
        one_run=tuple(name for name in (first, second) if has_one_training_seed(cells[name])),
    )


def _means(group: Sequence[MeasuredDifference]) -> Iterator[Difference]:
    """Yield one pair's mean over all tasks of each protocol.

    A task that was scored on several splits counts by the split that most other tasks have.
    """
    splits_by_task: dict[str, set[str]] = {}
    for measured in group:
        splits = splits_by_task.setdefault(measured.difference.task, set())
        splits.add(measured.difference.split)
    single_splits = Counter(
        next(iter(splits)) for splits in splits_by_task.values() if len(splits) == 1
    )
    usual_split = next((split for split, _ in single_splits.most_common(1)), None)
    groups: dict[tuple[str, str], list[MeasuredDifference]] = {}
    for measured in group:
        difference = measured.difference
        is_unusual = len(splits_by_task[difference.task]) > 1 and difference.split != usual_split
        key = protocol_key(difference.protocol), difference.split if is_unusual else ""
        groups.setdefault(key, []).append(measured)
    for comparable in groups.values():
        if len(comparable) > 1:
            yield mean_difference(comparable)


def mean_difference(group: Sequence[MeasuredDifference]) -> Difference:
    """Compute the difference of two encoders' means over several tasks.

    The tasks may share sentences.

    Args:
        group: The pair's difference on each task.
    """
    n_tasks = len(group)
    differences = [measured.difference for measured in group]
    items = [measured.items for measured in group if measured.items is not None]
    tests = [measured.williams for measured in group if measured.williams is not None]
    first, second = differences[0].first, differences[0].second
    mean = float(np.mean([difference.difference for difference in differences]))
    interval = p = p_williams = None
    if len(items) == n_tasks:
        estimate = estimate_mean_difference(items, first, second)
        interval = estimate._replace(difference=mean).interval()
        p = estimate.p
    if len(tests) == n_tasks:
        p_williams = combine_williams(tests, np.full(n_tasks, 1 / n_tasks)).p
    return replace(
        differences[0],
        task=f"mean of {n_tasks}",
        tasks=tuple(difference.task for difference in differences),
        n=sum(difference.n for difference in differences),
        seeds=(
            min(difference.seeds[0] for difference in differences),
            min(difference.seeds[1] for difference in differences),
        ),
        scores=(
            float(np.mean([difference.scores[0] for difference in differences])),
            float(np.mean([difference.scores[1] for difference in differences])),
        ),
        deviations=None,
        difference=mean,
        interval=interval,
        p=p,
        p_williams=p_williams,
    )


def _corrected(differences: Sequence[Difference], level: float) -> list[Difference]:
    """Return the differences with Holm's correction over those that were tested."""
    p_values = [difference.p for difference in differences if difference.p is not None]
    corrected_p_values = iter(holm(p_values))
    corrected = []
    for difference in differences:
        p = None if difference.p is None else next(corrected_p_values)
        is_real = p is not None and p < level
        corrected.append(replace(difference, p_corrected=p, real=is_real, family=len(p_values)))
    return corrected


DIFFERENCE_COLUMNS = ["task", "A", "B", "B - A", "95% interval", "p", "Williams", "Holm"]


def describe_comparison(comparison: Comparison) -> list[str]:
    """Describe for each pair of encoders which differences are significant, one text per pair."""
    correction = _describe_correction(comparison)
    texts = []
    for first, second, differences in comparison.pairs():
        single_runs = dict.fromkeys(
            name for difference in differences for name in difference.one_run
        )
        warning = ""
        if single_runs:
            names = " and ".join(single_runs)
            warning = f" {names}: one training seed, so this says nothing of the recipe."
        texts.append(f"{_sentences(first, second, differences)}. {correction}.{warning}")
    return texts


def label_tasks(differences: Sequence[Difference]) -> Mapping[tuple[str, str], str]:
    """Return the label of each task and split in tables and figures.

    It contains the split if the task was scored on several.
    """
    splits_by_task: dict[str, set[str]] = {}
    for difference in differences:
        splits_by_task.setdefault(difference.task, set()).add(difference.split)
    return {
        (task, split): f"{task} ({split})" if len(splits) > 1 else task
        for task, splits in splits_by_task.items()
        for split in splits
    }


def _sentences(first: str, second: str, differences: Sequence[Difference]) -> str:
    """Describe one pair: tasks won by each, tasks without a difference, untested ones, means."""
    labels = label_tasks(differences)
    on_tasks = [difference for difference in differences if not difference.is_average]
    tested = [difference for difference in on_tasks if difference.p is not None]
    significant = [difference for difference in tested if difference.real]
    insignificant = [difference for difference in tested if not difference.real]
    sentences = []
    for winner, loser, sign in ((second, first, 1), (first, second, -1)):
        won = [difference for difference in significant if sign * difference.difference > 0]
        if won:
            tasks = ", ".join(
                f"{labels[difference.task, difference.split]} "
                f"({_signed(100 * difference.difference * sign, decimals=2)})"
                for difference in won
            )
            count = ""
            if len(on_tasks) > 1:
                count = f"{len(won)} of {_count(len(on_tasks), 'task')}: "
            sentences.append(f"{winner} is better than {loser} on {count}{tasks}")
    if insignificant:
        sentences.append(_describe_insignificant(first, second, insignificant, len(significant)))
    untested = [
        labels[difference.task, difference.split] for difference in on_tasks if difference.p is None
    ]
    if untested:
        sentences.append(f"No paired test is known for {', '.join(untested)}")
    sentences += [
        _describe_mean(difference)
        for difference in differences
        if difference.is_average and difference.p is not None
    ]
    return ". ".join(sentences)


def _describe_correction(comparison: Comparison) -> str:
    """Return the level, and over which families of tests Holm's correction was made."""
    tested = [difference for difference in comparison.differences if difference.p is not None]
    on_tasks = [difference for difference in tested if not difference.is_average]
    n_means = len(tested) - len(on_tasks)
    families = []
    if on_tasks:
        pairs = {(difference.first, difference.second) for difference in on_tasks}
        tasks = {
            (difference.task, difference.split, protocol_key(difference.protocol))
            for difference in on_tasks
        }
        families.append(
            f"{_count(len(on_tasks), 'test')} "
            f"({_count(len(pairs), 'pair')} of encoders, {_count(len(tasks), 'task')})"
        )
    if n_means:
        families.append(f"{_count(n_means, 'test')} of means")
    level = f"Level {comparison.level:g}"
    if not families:
        return level
    return f"{level}; Holm's correction over {' and, by itself, over '.join(families)}"


def _describe_insignificant(
    first: str, second: str, insignificant: Sequence[Difference], n_significant: int
) -> str:
    """Return the sentence on the tasks without a significant difference, and the lowest p."""
    n_tasks = len(insignificant)
    if n_significant:
        return f"No significant difference on the other {_count(n_tasks, 'task')}"
    p_values = [
        difference.p if difference.p_corrected is None else difference.p_corrected
        for difference in insignificant
    ]
    smallest = describe_p(min(p for p in p_values if p is not None))
    tasks = insignificant[0].task if n_tasks == 1 else f"any of {n_tasks} tasks"
    p_label = "p" if n_tasks == 1 else "lowest p"
    return (
        f"No significant difference between {first} and {second} on {tasks} ({p_label} {smallest})"
    )


def _describe_mean(mean: Difference) -> str:
    better = mean.second if mean.difference > 0 else mean.first
    points = f"{100 * abs(mean.difference):.2f} points"
    p = describe_p(mean.p if mean.p_corrected is None else mean.p_corrected)
    if mean.real:
        return f"{better} is better by {points} in the {mean.task} tasks (p {p})"
    return f"No significant difference in the {mean.task} tasks: {points} (p {p})"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def describe_notes(comparison: Comparison) -> list[str]:
    """Explain the columns of a comparison's table, after the comparison's own notes."""
    dependence = "that share a sentence are not independent"
    if comparison.dependence == "none":
        dependence = "are taken as independent"
    return [
        *comparison.notes,
        f"Scores are times 100; differences are of unrounded scores. Items {dependence}.",
        "p: Student's t; of one task and one seed a side, whose items share no sentence, "
        "a paired permutation test (McNemar's of right or wrong).",
        "Holm: p corrected for all comparisons above; docs/statistics.md says more.",
    ]


def difference_columns(differences: Sequence[Difference]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of a table, one row per difference.

    Columns without any value are omitted.
    """
    labels = label_tasks(differences)
    rows = [_difference_row(difference, labels) for difference in differences]
    filled = [
        column
        for column in range(len(DIFFERENCE_COLUMNS))
        if any(row[column] != "–" for row in rows)
    ]
    heads = [DIFFERENCE_COLUMNS[column] for column in filled]
    return heads, [[row[column] for column in filled] for row in rows]


def _difference_row(difference: Difference, labels: Mapping[tuple[str, str], str]) -> list[str]:
    """Return the cells of a difference, one per column of ``DIFFERENCE_COLUMNS``."""
    # Bounds of a wide interval are not known to two decimals.
    bounds = [
        _signed(100 * bound, decimals=1 if abs(bound) >= 0.1 else 2)
        for bound in difference.interval or ()
    ]
    deviations = ["", ""]
    if difference.deviations:
        deviations = [f"±{100 * deviation:.2f}" for deviation in difference.deviations]
    scores = [
        f"{100 * score:.2f}{deviation}"
        for score, deviation in zip(difference.scores, deviations, strict=True)
    ]
    return [
        labels[difference.task, difference.split],
        *scores,
        _signed(100 * difference.difference, decimals=2),
        " to ".join(bounds) or "–",
        format_p(difference.p),
        format_p(difference.p_williams),
        format_p(difference.p_corrected),
    ]


def _signed(points: float, decimals: int) -> str:
    # What prints as zero has no sign.
    text = f"{points:+.{decimals}f}"
    return text if float(text) else text[1:]


def describe_p(p: float | None) -> str:
    """Return a p-value as part of a sentence: ``= .051`` or ``< .001``."""
    text = format_p(p)
    return f"< {text[1:]}" if text.startswith("<") else f"= {text}"


def format_p(p: float | None) -> str:
    """Return a p-value as printed in a table: three decimals, or ``<.001``; a dash for None."""
    if p is None:
        return "–"
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
