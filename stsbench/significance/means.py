"""Encoders' means over tasks and seeds, their intervals and their differences."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stsbench import numbers
from stsbench.core.provenance import code_digest
from stsbench.numbers.intervals import (
    ZERO_ERROR,
    agreement_interval,
    independent_items,
    wilson_interval,
)
from stsbench.results.folder import without_columns
from stsbench.results.record import Result, protocol_key
from stsbench.significance.differences import (
    EstimatedDifference,
)
from stsbench.significance.items import (
    RowKey,
    RowResults,
    check_comparable,
    estimate_mean_difference,
    join_items,
)
from stsbench.significance.rows import RowItems


def interval_cache_key(
    results_by_task: Sequence[Sequence[Result]],
    task_indices: Sequence[int],
    score_names: Sequence[str],
) -> str | None:
    """Return a hash of all that the interval of a mean over tasks depends on, as its cache key.

    It covers scores, protocols, seeds, the hashes of the per-item columns, and the code of the
    formulas.

    Args:
        results_by_task: One encoder's results for each task, one per seed.
        task_indices: The tasks that the mean is over, by their index in ``results_by_task``.
        score_names: The score that counts on each task; empty for the results' own.

    Returns:
        32 hex digits; None if a result is not from a file. The columns of a file are compared with
        the recorded hash when they are read; for a result in memory nobody does that.
    """
    facts_by_task = []
    for task in task_indices:
        results = results_by_task[task]
        are_all_from_files = all(
            result.path is not None and not result.per_item for result in results
        )
        if not are_all_from_files:
            return None
        score_name = score_names[task] if score_names else ""
        facts = [
            (protocol_key(result.protocol), result.items, result.score, *result.seeds)
            for result in results
        ]
        facts_by_task.append((score_name, facts))
    code = code_digest(Path(__file__).parent, *map(Path, numbers.__path__))
    content = msgspec.json.encode((code, facts_by_task))
    return hashlib.sha256(content).hexdigest()[:32]


MEAN_METHOD = (
    "Student's t over items and seeds (of shares Wilson's interval by it), "
    "by shared sentences or by chains of them, whichever is wider"
)
"""How the interval of a mean is computed."""
Interval = tuple[float, float]
"""The lower and the upper bound."""


class MeanIntervals(NamedTuple):
    """The intervals of one encoder's means over sets of tasks.

    Attributes:
        intervals: The interval of each mean in the scores' unit, by the indices of its tasks;
            a mean without an interval is missing.
        results_without_columns: Results whose per-item columns are not available.
        results_without_sentences: Results whose columns do not say which items share a
            sentence: with them no interval can be trusted.
    """

    intervals: Mapping[tuple[int, ...], Interval] = {}
    results_without_columns: Sequence[Result] = ()
    results_without_sentences: Sequence[Result] = ()


def compute_mean_interval(results_by_task: Sequence[Sequence[Result]]) -> Interval | None:
    """Compute the 95% interval of one encoder's mean over tasks.

    Args:
        results_by_task: The encoder's results for each task, one per seed.

    Returns:
        The lower and the upper bound, in the scores' unit, for other items and other seeds. None if
        the per-item columns of a task are not available or do not say which items share a
        sentence, or if the error of its score cannot be computed.
    """
    tasks = tuple(range(len(results_by_task)))
    return compute_mean_intervals(results_by_task, [tasks]).intervals.get(tasks)


def compute_mean_intervals(
    results_by_task: Sequence[Sequence[Result]],
    task_sets: Collection[tuple[int, ...]],
    score_names: Sequence[str] = (),
    interval_cache: MutableMapping[str, Interval] | None = None,
) -> MeanIntervals:
    """Compute the 95% intervals of one encoder's means over several sets of tasks.

    Args:
        results_by_task: The encoder's results for each task, one per seed.
        task_sets: The tasks of each mean, by their index in ``results_by_task``; a task that
            occurs twice counts twice.
        score_names: The score that counts on each task, one of its results' ``score_names``;
            empty for the results' own.
        interval_cache: Intervals computed earlier, by ``interval_cache_key``; new ones are added.

    Returns:
        The interval of each set of tasks; a set without an interval is missing. Also the results
        whose per-item columns are missing (then there is no interval), and those whose columns do
        not say which items share a sentence.
    """
    interval_cache = {} if interval_cache is None else interval_cache
    used_tasks = {task for tasks in task_sets for task in tasks}
    # Results of other tasks are not read.
    results_by_task = [
        results if task in used_tasks else [] for task, results in enumerate(results_by_task)
    ]
    used_results = [result for results in results_by_task for result in results]
    if lacking := without_columns(used_results):
        return MeanIntervals(results_without_columns=lacking)
    cache_keys = {
        tasks: interval_cache_key(results_by_task, tasks, score_names) for tasks in task_sets
    }
    cached_intervals = {
        tasks: interval_cache[key]
        for tasks, key in cache_keys.items()
        if key and key in interval_cache
    }
    if len(cached_intervals) == len(cache_keys):
        return MeanIntervals(cached_intervals)
    # The encoder is the only row, with the key 0.
    row = RowItems({0: results_by_task}, score_names=score_names)
    intervals = {}
    for tasks, key in cache_keys.items():
        interval = _interval_of_mean(row, tasks)
        if interval is None:
            continue
        intervals[tasks] = interval
        if key:
            interval_cache[key] = interval
    results_without_sentences = [
        result
        for task, items in row.tasks.items()
        if not items.knows_sentences
        for result in results_by_task[task]
    ]
    return MeanIntervals(intervals, results_without_sentences=results_without_sentences)


def _interval_of_mean(row: RowItems[int], tasks: Sequence[int]) -> Interval | None:
    """Compute the 95% interval of one encoder's mean score over tasks.

    It is Wilson's if all scores are shares (such as accuracies), otherwise Student's t's.

    Args:
        row: The items of the encoder, which is the only row and has the key 0.
        tasks: The indices of the tasks; one that occurs twice counts twice.

    Returns:
        The lower and the upper bound; None if a task lacks items, or if it is unknown which items
        share a sentence.
    """
    counts = Counter(tasks)
    if not counts:
        return None
    if not all(task in row.tasks and row.tasks[task].knows_sentences for task in counts):
        return None
    items_by_task = row.select(list(counts))
    task_weights = [count / len(tasks) for count in counts.values()]
    mean = estimate_mean_difference(items_by_task, first=None, second=0, task_weights=task_weights)
    if all(items.paired.is_proportion for items in items_by_task):
        # By Student's t the interval of a mean near 1 would end above it, and that of 1 would
        # have no width.
        return wilson_interval(mean.difference, mean.standard_error, effective_items=mean.df + 1)
    # No item moves the correlations, for example because they are 1: Student's t's interval would
    # have no width.
    if mean.error <= ZERO_ERROR:
        scores = [score for items in items_by_task for score in items.samples[0].scores.tolist()]
        weights = join_items(items_by_task, task_weights).weights
        n_items = independent_items([mean.standard_error], weights)
        return agreement_interval(mean.difference, scores, n_items)
    low, high = mean.interval()
    return max(low, -1.0), min(high, 1.0)


def compute_differences_from(
    reference: RowKey, rows: RowResults[RowKey]
) -> dict[RowKey, EstimatedDifference]:
    """Estimate how far the mean score of each row of a table is from that of a reference row.

    A row is an encoder; its mean is over tasks.

    Args:
        reference: The key of the row whose mean is subtracted.
        rows: Each row's results by task, one per seed; all rows have the same tasks.

    Returns:
        By row the difference, row less reference, in the scores' unit, with its error over other
        items and other seeds. Rows whose per-item columns are not available are missing.

    Raises:
        ProtocolError: A task was scored differently; the message names the field.
    """
    check_comparable(rows)
    row_items = RowItems(rows)
    n_tasks = len(rows[reference])
    complete_rows = [key for key in rows if len(row_items.shared_task_indices(key)) == n_tasks]
    if reference not in complete_rows:
        return {}
    items_by_task = list(row_items.tasks.values())
    return {
        key: estimate_mean_difference(items_by_task, reference, key)
        for key in complete_rows
        if key != reference
    }
