"""Encoders' means over tasks and seeds, their intervals and their differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stsbench.numbers.intervals import (
    ZERO_ERROR,
    StandardError,
    agreement_interval,
    independent_items,
    standard_errors,
    widest_first,
    wilson_interval,
)
from stsbench.results.folder import without_columns
from stsbench.results.record import Result
from stsbench.significance.differences import (
    EstimatedDifference,
    ScoreSample,
    average_samples,
    error_over_seeds,
)
from stsbench.significance.items import RowKey, RowResults, TaskItems, check_comparable, join_items
from stsbench.significance.paired import PairedCorrelation
from stsbench.significance.rows import RowItems, cache_key, has_stored_columns, score_facts


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
        32 hex digits; None if a result is not from a file.
    """
    facts_by_task = []
    for task in task_indices:
        results = results_by_task[task]
        if not all(map(has_stored_columns, results)):
            return None
        facts_by_task.append((score_names[task] if score_names else "", score_facts(results)))
    return cache_key(facts_by_task)


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
        whose per-item columns are missing (with one of them no set has an interval), and those
        whose columns do not say which items share a sentence (sets of their tasks have none).
    """
    interval_cache = {} if interval_cache is None else interval_cache
    used_tasks = {task for tasks in task_sets for task in tasks}
    # Results of other tasks are not read.
    results_by_task = [
        results if task in used_tasks else [] for task, results in enumerate(results_by_task)
    ]
    used_results = [result for results in results_by_task for result in results]
    lacking = without_columns(used_results)
    if lacking:
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
    # Compared with 0 (``first``), the difference is the mean itself. Its ``error`` is the standard
    # error, whose degrees of freedom ``df`` are the number of independent items less one.
    mean = estimate_mean_difference(items_by_task, first=None, second=0, task_weights=task_weights)
    # Scores between 0 and 1: all but correlations.
    if all(items.paired.is_proportion for items in items_by_task):
        # By Student's t the interval of a mean near 1 would end above it, and that of 1 would
        # have no width.
        return wilson_interval(mean.difference, mean.standard_error, effective_items=mean.df + 1)
    # No item moves the correlations, for example because they are 1: Student's t's interval would
    # have no width.
    if mean.error <= ZERO_ERROR:
        # The encoder's scores on all tasks with all seeds.
        scores = [score for items in items_by_task for score in items.samples[0].scores.tolist()]
        weights = join_items(items_by_task, task_weights).weights
        # How many independent items these are worth: the lower one of two estimates.
        n_items = independent_items([mean.standard_error], weights)
        return agreement_interval(mean.difference, scores, n_items)
    low, high = mean.interval()
    return max(low, -1.0), min(high, 1.0)


def estimate_mean_difference(
    tasks: Sequence[TaskItems[RowKey]],
    first: RowKey | None,
    second: RowKey,
    task_weights: Sequence[float] | None = None,
) -> EstimatedDifference:
    """Estimate the difference of two encoders' mean scores over tasks, with its standard error.

    Tasks may share sentences. If no item moves the difference of two encoders, both estimates of
    its error are 0, which proves nothing: they are replaced by one least error, for correlations of
    ranks that of Pearson's correlation. The error of one encoder's mean (``first`` is None) stays
    0. With too few items the error is infinite.

    Args:
        tasks: The items of each task, with the scores of the encoders (rows of a table).
        first: The key of the encoder whose mean is subtracted; None compares the second with 0.
        second: The key of the other encoder.
        task_weights: The tasks' shares of the mean; None weighs all equally.
    """
    # Which items of all tasks share a sentence, and each item's share of the mean.
    dependence, item_weights = join_items(tasks, task_weights)

    def mean_of(row: RowKey) -> ScoreSample:
        """Return an encoder's mean scores over tasks by seed, and how much each item moves them."""
        return average_samples([items.samples[row] for items in tasks], dependence, task_weights)

    first_mean = None if first is None else mean_of(first)
    estimate = EstimatedDifference.estimate(first_mean, mean_of(second), dependence, item_weights)
    if first is None or estimate.error > ZERO_ERROR:
        return estimate
    # ``other_error``, by a second estimate of the variance over items, is 0 too.
    least_error = _least_error(tasks, (first, second), estimate.df, task_weights)
    return estimate._replace(error=least_error, other_error=None)


def least_share_error(df: float) -> float:
    """Return the least error of a difference of two shares, such as accuracies.

    It is taken if two encoders differ on no item, so that the estimated error is 0. Wilson's
    interval for the share of items on which they differ then still has a width; Student's t with
    the returned error has an interval as wide.

    Args:
        df: The degrees of freedom of the difference, one less than the number of items.
    """
    # The half width of the interval for an error of 1 is Student's quantile.
    quantile = StandardError(1.0, df).half_width
    return quantile / (df + 1 + quantile**2)


EQUAL_VALUES_ERROR = 1e-7
"""The error of a difference of correlations if all values are equal: they are read in float32."""


def _least_error(
    tasks: Sequence[TaskItems[RowKey]],
    rows: tuple[RowKey, RowKey],
    df: float,
    task_weights: Sequence[float] | None,
) -> float:
    """Return an error for a difference of two encoders whose estimated error is 0.

    The estimate is 0 if each item moves both scores equally, which does not prove that the encoders
    are equal. Shares, such as accuracies, get :func:`least_share_error`. Correlations of ranks get
    the error of Pearson's correlation, because values may differ too little to move a rank.

    Args:
        tasks: The items of each task, with the values of the encoders (rows of a table).
        rows: The keys of the first and the second encoder.
        df: The degrees of freedom of the difference, one less than the number of items.
        task_weights: The tasks' shares of the mean; None weighs all equally.
    """
    if all(items.paired.is_proportion for items in tasks):
        return least_share_error(df)
    task_weights = task_weights or [1 / len(tasks)] * len(tasks)
    influences = []
    for items, weight in zip(tasks, task_weights, strict=True):
        paired = items.paired
        if isinstance(paired, PairedCorrelation):
            paired = replace(paired, metric="pearson")
        # ``paired`` numbers the encoders in the order of the task's samples.
        row_indices = [list(items.samples).index(row) for row in rows]
        # How much each item moves an encoder's mean score over seeds, (n,).
        first, second = (paired.influences(index).mean(axis=0) for index in row_indices)
        influences.append(weight * (second - first))
    joined = join_items(tasks, task_weights)
    # The errors by one or two estimates of the variance over items; that with the widest interval
    # counts.
    errors = standard_errors(np.concatenate(influences), joined.dependence, joined.weights)
    return max(widest_first(errors)[0].error, EQUAL_VALUES_ERROR)


class SeedSpread(NamedTuple):
    """How much a difference of two encoders varies, over items and over seeds.

    Attributes:
        items: The error of the difference over items alone, with all seeds of both encoders, by
            each way to estimate it.
        deviation: The deviation of one encoder's score over seeds beyond what items explain, in
            the quadratic mean of both.
    """

    items: Sequence[StandardError]
    deviation: float


def estimate_seed_spread(
    tasks: Sequence[TaskItems[RowKey]], first: RowKey, second: RowKey
) -> SeedSpread | None:
    """Estimate how much a difference of two means over tasks varies over items and over seeds.

    Args:
        tasks: The items of each task, with the scores of the encoders (rows of a table).
        first: The key of the encoder whose mean is subtracted.
        second: The key of the other encoder.

    Returns:
        The error of the difference over items, and the deviation of one encoder's score over seeds
        (the quadratic mean of both encoders'). None if an encoder has one seed on each task.
    """
    dependence, item_weights = join_items(tasks)
    task_weights = np.full(len(tasks), 1 / len(tasks))
    mean_influences = []
    seed_variances = []
    for row in (first, second):
        samples = [items.samples[row] for items in tasks]
        error = error_over_seeds(samples, dependence, task_weights, is_single=True)
        if error is None:
            return None
        seed_variances.append(error.error**2)
        mean_influences.append(average_samples(samples, dependence).mean_influences)
    return SeedSpread(
        items=standard_errors(np.subtract(*mean_influences), dependence, item_weights),
        deviation=float(np.mean(seed_variances)) ** 0.5,
    )


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
        items and other seeds. Rows whose per-item columns are not available on every task are
        missing; if the reference is one of them, there are no differences.

    Raises:
        ProtocolError: A task was scored differently; the message names the field.
    """
    check_comparable(rows)
    row_items = RowItems(rows)
    n_tasks = len(rows[reference])
    # shared_task_indices: the tasks on which a row has the per-item columns of all its seeds.
    complete_rows = [key for key in rows if len(row_items.shared_task_indices(key)) == n_tasks]
    if reference not in complete_rows:
        return {}
    items_by_task = list(row_items.tasks.values())
    return {
        key: estimate_mean_difference(items_by_task, reference, key)
        for key in complete_rows
        if key != reference
    }
