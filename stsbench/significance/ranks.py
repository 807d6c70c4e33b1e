"""Ranks of encoders by their means over tasks, and letters for those that do not differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any, Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.dependence import ItemDependence
from stsbench.numbers.intervals import variance_estimators
from stsbench.numbers.statistics import BoolArray, Float64Array, IntArray
from stsbench.numbers.tails import SummedVariances, upper_tails
from stsbench.results.record import Result
from stsbench.significance.comparison_record import TestSettings
from stsbench.significance.differences import (
    TIE_TOLERANCE,
    ScoreSample,
    all_seed_errors,
    average_samples,
)
from stsbench.significance.items import (
    RowKey,
    RowResults,
    TaskSamples,
    check_comparable,
    has_one_training_seed,
    join_items,
)
from stsbench.significance.letters import assign_letters
from stsbench.significance.means import least_share_error
from stsbench.significance.paired import correct_by_holm
from stsbench.significance.rows import (
    ProgressCallback,
    RowInfluences,
    RowTasks,
    cache_key,
    has_stored_columns,
    read_array,
    score_facts,
    write_array,
)


def find_rank_intervals(differences: Float64Array, different: BoolArray) -> list[tuple[int, int]]:
    """Find the best and the worst rank that each of k rows (encoders) may have; 1 is the best.

    A row's best rank is one more than the number of rows that are significantly better. Its worst
    rank is k less the number of rows that are significantly worse. If Holm's correction over all
    pairs decides what is significant at a level of 0.05, all true ranks lie in these intervals at
    once with 95% confidence (Mogstad, Romano, Shaikh and Wilhelm 2024, with Holm's tests).

    Two rows may not differ although other rows lie significantly between them, if rows lack tasks
    or have several seeds. The worst rank of the better one is then raised to the best rank of the
    other, so that their intervals overlap.

    Args:
        differences: Element [i, j] is the score of row j minus that of row i, (k, k); NaN if the
            two cannot be compared.
        different: Whether each pair differs significantly, (k, k), symmetric.

    Returns:
        The best and the worst rank of each row.
    """
    best = 1 + np.sum(different & (differences > 0), axis=1)
    worst = len(differences) - np.sum(different & (differences < 0), axis=1)
    best_of_tied_rows = np.where(different, 0, best)
    worst = np.maximum(worst, best_of_tied_rows.max(axis=1, initial=0))
    return list(zip(best.tolist(), worst.tolist(), strict=True))


class RowStanding(NamedTuple):
    """The standing of an encoder among others.

    Attributes:
        rank: Its rank by the mean, 1 is the best.
        rank_interval: The ranks that it may have; all rows' true ranks lie in theirs at once.
        letters: Its letters in a compact letter display.
        is_best: No row is significantly better.
        tasks: The indices of the tasks that it has.
    """

    rank: int
    rank_interval: tuple[int, int]
    letters: str
    is_best: bool
    tasks: tuple[int, ...]


class Standings(NamedTuple, Generic[RowKey]):
    """The standing of each row that can be ranked.

    Attributes:
        rows: The standing by row.
        tests: The number of pairs that Holm's correction is over.
        level: The corrected p-value below which a difference is significant.
        results_without_columns: Results whose per-item columns are not available: their rows
            are ranked by their other tasks.
        results_without_sentences: Results whose columns do not say which items share a
            sentence: their items are taken as independent.
        single_seed_rows: Rows of one training seed, whose rank says nothing about the recipe.
        has_exact_letters: Rows that share a letter are not significantly different. If not, some
            are: there would be more than ``MAX_GROUPS`` letters. Rows that share none always are.
    """

    rows: Mapping[RowKey, RowStanding]
    tests: int
    level: float
    results_without_columns: Sequence[Result]
    results_without_sentences: Sequence[Result]
    single_seed_rows: Sequence[RowKey]
    has_exact_letters: bool


def rank_rows(
    rows: RowResults[RowKey],
    *,
    settings: TestSettings | None = None,
    progress: ProgressCallback | None = None,
) -> Standings[RowKey]:
    """Rank encoders by their mean over tasks, and test which of them differ significantly.

    An encoder is a row of a table. Two rows are compared by their difference on the tasks that both
    have. Its p-values are corrected by Holm's method over all pairs of rows, and decide letters
    (rows that share one do not differ) and intervals of ranks.

    Args:
        rows: Each row's results by task, one per seed; empty for a task that the row lacks.
        settings: The settings of the tests.
        progress: Called with the number of results that are read, and of all.

    Raises:
        ProtocolError: A task was scored differently; the message names the field.
        DataError: Per-item columns are broken.
    """
    settings = settings or TestSettings()
    check_comparable(rows)
    influences = RowInfluences(rows, settings.dependence, progress)
    keys = [key for key in rows if influences.shared_task_indices(key)]
    tests = _cached_tests(influences, keys, rows, settings)
    # differences[i, j] is the score of row j minus that of row i; NaN if they share no task.
    n_above = np.sum(tests.differences > TIE_TOLERANCE, axis=1)
    # By p-values that are now corrected by Holm's method; False for rows that share no task.
    is_different = _significant_differences(tests.p_values, settings.level)
    best_first = sorted(range(len(keys)), key=lambda index: int(n_above[index]))
    display = assign_letters(is_different[np.ix_(best_first, best_first)])
    letters = dict(zip(best_first, display.letters, strict=True))
    intervals = find_rank_intervals(tests.differences, is_different)
    standings = {}
    for index, key in enumerate(keys):
        standings[key] = RowStanding(
            rank=int(n_above[index]) + 1,
            rank_interval=intervals[index],
            letters=letters[index],
            is_best=intervals[index][0] == 1,
            tasks=influences.shared_task_indices(key),
        )
    single_seed_rows = [
        key
        for key in keys
        if has_one_training_seed(result for results in rows[key] for result in results)
    ]
    return Standings(
        rows=standings,
        tests=int(np.triu(np.isfinite(tests.p_values), 1).sum()),
        level=settings.level,
        results_without_columns=influences.results_without_columns,
        results_without_sentences=influences.results_without_sentences,
        single_seed_rows=single_seed_rows,
        has_exact_letters=display.is_exact,
    )


def _significant_differences(p_values: Float64Array, level: float) -> BoolArray:
    """Return which pairs differ significantly after Holm's correction, (k, k), symmetric."""
    is_tested = np.triu(np.isfinite(p_values), 1)
    is_different = np.zeros(p_values.shape, dtype=bool)
    is_different[is_tested] = np.array(correct_by_holm(p_values[is_tested].tolist())) < level
    return is_different | is_different.T


class PairTests(NamedTuple):
    """The tests of every two of k rows.

    Attributes:
        differences: The score of the column's row minus that of the row's, (k, k).
        p_values: The two-sided p-values, (k, k).
    """

    differences: Float64Array
    p_values: Float64Array


MIN_CACHED_ROWS = 100
"""With fewer rows, tests are not cached: they take no time."""
MAX_CACHED_TESTS = 4
"""The number of sets of rows whose tests are kept."""


def _cached_tests(
    influences: RowInfluences[RowKey],
    keys: Sequence[RowKey],
    rows: RowResults[RowKey],
    settings: TestSettings,
) -> PairTests:
    """Return the tests of every two of k rows (encoders), from the user's cache if they are there.

    New tests are written to the cache folder, as an array (2, k, k), if there are at least
    ``MIN_CACHED_ROWS`` rows and all results are from files.

    Args:
        influences: How much each item moves each row's score on each task.
        keys: The k rows to test.
        rows: For each row its results by task, one per seed.
        settings: The settings of the tests.

    Returns:
        Differences and p-values, (k, k) each, in the order of ``keys``.
    """
    results = [
        result for key in keys for results_of_seeds in rows[key] for result in results_of_seeds
    ]
    if len(keys) < MIN_CACHED_ROWS or not all(map(has_stored_columns, results)):
        return compare_all_pairs(influences, keys)
    # All that decides the tests: which items may depend on each other, and for each row its results
    # and the indices of the tasks that it is tested on.
    facts_by_row = [
        (list(map(score_facts, rows[key])), influences.shared_task_indices(key)) for key in keys
    ]
    file_name = f"tests-{cache_key(settings.dependence, facts_by_row)}.npy"
    cached = read_array(file_name)
    if cached is not None and cached.shape == (2, len(keys), len(keys)):
        return PairTests(*cached)
    tests = compare_all_pairs(influences, keys)
    # Only the newest files of this pattern are kept.
    write_array(file_name, np.stack(tests), keep=("tests-*.npy", MAX_CACHED_TESTS))
    return tests


def compare_all_pairs(rows: RowTasks[RowKey, Any], keys: Sequence[RowKey]) -> PairTests:
    """Test the difference of every two rows (encoders) on the tasks that both have.

    Pairs that have the same tasks in common are tested together, by matrices. For that, rows are
    grouped by their sets of tasks, and pairs of these sets by the tasks that both have.

    Args:
        rows: The scores of the rows on their tasks, and how much each item moves them.
        keys: The k rows to test.

    Returns:
        Differences (the column's row minus the row's) and p-values, (k, k) each, in the order of
        ``keys``. NaN if two rows have no task in common; p-values are NaN on the diagonal.
    """
    differences, p_values = np.full((2, len(keys), len(keys)), np.nan)
    indices_by_task_set: dict[tuple[int, ...], list[int]] = {}
    for index, key in enumerate(keys):
        indices_by_task_set.setdefault(rows.shared_task_indices(key), []).append(index)
    for tasks, set_pairs in _pairs_by_common_tasks(list(indices_by_task_set)).items():
        # The rows to test on these tasks, as indices in ``keys``: those with the same set of tasks
        # follow each other, and ``blocks`` says where.
        indices: list[int] = []
        blocks: dict[tuple[int, ...], slice] = {}
        for task_set in dict.fromkeys(task_set for pair in set_pairs for task_set in pair):
            start = len(indices)
            indices += indices_by_task_set[task_set]
            blocks[task_set] = slice(start, len(indices))
        row_pairs = [(blocks[first], blocks[second]) for first, second in set_pairs]
        tests = _test_row_pairs(rows.select(tasks), [keys[index] for index in indices], row_pairs)
        # The tests name rows by their positions in ``indices``.
        index_by_position = np.array(indices)
        firsts = index_by_position[tests.firsts]
        seconds = index_by_position[tests.seconds]
        differences[firsts, seconds] = tests.differences
        differences[seconds, firsts] = -tests.differences
        p_values[firsts, seconds] = p_values[seconds, firsts] = tests.p_values
    np.fill_diagonal(differences, 0.0)
    return PairTests(differences, p_values)


TaskSetPair = tuple[tuple[int, ...], tuple[int, ...]]
"""The tasks of one row, and those of another."""


def _pairs_by_common_tasks(
    task_sets: Sequence[tuple[int, ...]],
) -> dict[tuple[int, ...], list[TaskSetPair]]:
    """Group the pairs of sets of tasks by the tasks that both sets have.

    Many rows of a table have the same set of tasks, so it is enough to intersect each two sets.

    Args:
        task_sets: The different sets of tasks, each as indices of tasks.

    Returns:
        By common tasks the pairs of sets, also of a set with itself; pairs without a common task
        are missing.
    """
    pairs_by_tasks: dict[tuple[int, ...], list[TaskSetPair]] = {}
    for first, second in combinations_with_replacement(task_sets, 2):
        shared_task_indices = tuple(task for task in first if task in second)
        if shared_task_indices:
            pairs_by_tasks.setdefault(shared_task_indices, []).append((first, second))
    return pairs_by_tasks


class _ListedTests(NamedTuple):
    """The tests of some pairs of rows, (number of pairs,) each.

    Attributes:
        firsts: The position of each pair's first row among the rows.
        seconds: The position of its second row.
        differences: The score of the second row minus that of the first.
        p_values: The two-sided p-values.
    """

    firsts: IntArray
    seconds: IntArray
    differences: Float64Array
    p_values: Float64Array


def _test_row_pairs(
    items_by_task: Sequence[TaskSamples[RowKey]],
    keys: Sequence[RowKey],
    row_pairs: Sequence[tuple[slice, slice]],
) -> _ListedTests:
    """Test pairs of rows (encoders) by the difference of their means over tasks.

    The variance of a difference is that over items plus that of either row over seeds. The variance
    over items is estimated in one or two ways: items vary together if they share a sentence, or if
    a chain of shared sentences connects them. Each gives a p-value, and the larger one counts. With
    too few items there is no estimate, and all p-values are 1. For a single pair,
    ``EstimatedDifference.estimate`` gives the same.

    Args:
        items_by_task: The scores of the rows on each task, with the influences of its items.
        keys: The k rows.
        row_pairs: Blocks of rows and columns of the pairs to test, by position in ``keys``. A
            block with equal rows and columns stands for the pairs of different ones.

    Returns:
        For each pair the positions of its two rows, the difference (second minus first) and the
        p-value, (pairs,) each.
    """
    dependence, weights = join_items(items_by_task)
    scores, influences = _average_over_tasks(items_by_task, keys)
    seed_variances = _seed_variances(items_by_task, keys, dependence)
    firsts, seconds = _list_pairs(row_pairs, len(keys))
    differences = scores[seconds] - scores[firsts]
    n_all_pairs = len(keys) * (len(keys) - 1) // 2
    # None: all pairs, not only those of some blocks.
    blocks = None if len(firsts) == n_all_pairs else row_pairs
    matrices_by_estimator = dependence.variances_of_differences(influences, blocks)
    estimators = variance_estimators(dependence, weights)
    p_values = np.zeros(len(firsts)) if estimators else np.ones(len(firsts))
    seed_variance = seed_variances.variances[firsts] + seed_variances.variances[seconds]
    # The degrees of freedom of a sum of variances v are Satterthwaite's: (sum v)² / sum (v² / df).
    sums_of_rows = seed_variances.satterthwaite_sums
    satterthwaite_sum = sums_of_rows[firsts] + sums_of_rows[seconds]
    with np.errstate(invalid="ignore"):
        seed_df = seed_variance**2 / satterthwaite_sum
    # There may be no estimator for the second of the two matrices.
    for estimator, variance_matrix in zip(estimators, matrices_by_estimator, strict=False):
        # The variance is that of as many independent items as these are worth, n_items. It is
        # multiplied by n / (n - 1), because their mean is estimated too.
        item_df = estimator.n_items - 1
        item_variance = variance_matrix[firsts, seconds] * estimator.n_items / item_df
        # If all items move two rows equally, the estimate is 0, which proves nothing: a least
        # variance is taken in its place.
        has_no_variance = item_variance + seed_variance == 0
        item_variance = np.where(has_no_variance, least_share_error(item_df) ** 2, item_variance)
        estimator_p = _two_sided_p(differences, item_variance, item_df, seed_variance, seed_df)
        p_values = np.maximum(p_values, estimator_p)
    return _ListedTests(firsts, seconds, differences, p_values)


def _list_pairs(row_pairs: Sequence[tuple[slice, slice]], k: int) -> tuple[IntArray, IntArray]:
    """List the pairs of rows that blocks of a k x k matrix contain.

    A row forms no pair with itself, and two rows form one pair: if they are in the blocks in both
    orders, that with the lower position first counts.

    Args:
        row_pairs: Blocks of first and second rows, by their positions among the k rows.
        k: The number of rows.

    Returns:
        The positions of the first and of the second row of each pair, (pairs,) each.
    """
    is_pair = np.zeros((k, k), dtype=bool)
    for row_block, column_block in row_pairs:
        is_pair[row_block, column_block] = True
    # Below the diagonal the first row has the higher position.
    is_reversed_too = is_pair.T & np.tri(k, dtype=bool)
    is_same_row = np.eye(k, dtype=bool)
    firsts, seconds = np.nonzero(is_pair & ~is_reversed_too & ~is_same_row)
    return firsts, seconds


def _two_sided_p(
    differences: Float64Array,
    item_variances: Float64Array,
    item_df: float,
    seed_variances: Float64Array,
    seed_dfs: Float64Array,
) -> Float64Array:
    """Return the two-sided p-values of differences, (pairs,).

    Without a variance over seeds it is that of Student's t. Otherwise it is that of a statistic
    whose variance is a sum, over items and over seeds. It is 1 for equal scores, and if a variance
    is NaN.

    Args:
        differences: The differences of two rows' scores, (pairs,).
        item_variances: The variances of the differences over items, (pairs,).
        item_df: The degrees of freedom of the variances over items.
        seed_variances: The variances of the differences over seeds, (pairs,); 0 if there is none.
        seed_dfs: The degrees of freedom of the variances over seeds, (pairs,).
    """
    from scipy import special

    distances = np.abs(differences)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = 2 * special.stdtr(item_df, -distances / np.sqrt(item_variances))
    has_seeds = seed_variances > 0
    variances = SummedVariances(
        item_variances[has_seeds], item_df, seed_variances[has_seeds], seed_dfs[has_seeds]
    )
    p_values[has_seeds] = 2 * upper_tails(distances[has_seeds], variances)
    is_tie = np.isnan(item_variances + seed_variances) | (distances <= TIE_TOLERANCE)
    return np.where(is_tie, 1.0, p_values)


BLOCK_ROWS = 256
"""The number of rows whose influences on one task are collected at once."""


class _RowMeans(NamedTuple):
    """The means of k rows over tasks.

    Attributes:
        scores: The mean score of each row over tasks and seeds, (k,).
        influences: How much each of the n items of all tasks, one task after another, moves it,
            (k, n); float32, for there may be many rows.
    """

    scores: Float64Array
    influences: npt.NDArray[np.float32]


def _average_over_tasks(
    items_by_task: Sequence[TaskSamples[RowKey]], keys: Sequence[RowKey]
) -> _RowMeans:
    """Compute the mean score of each row over all tasks, and how much each item moves it.

    An item's influence is how much the score would change, to first order, if the item had more
    weight. So the influence on a mean over tasks is that on the task's score, divided by the number
    of tasks.

    Args:
        items_by_task: The scores of the rows on each task, with the influences of its items.
        keys: The k rows.

    Returns:
        The means over tasks and seeds, (k,), and the influences of all tasks' n items, (k, n),
        float32.
    """
    n_tasks = len(items_by_task)
    # A task has a weight for each of its items.
    n_items = sum(len(items.weights) for items in items_by_task)
    scores = np.zeros(len(keys))
    influences = np.empty((n_items, len(keys)), dtype=np.float32)
    # The position, among the items of all tasks, of a task's first item.
    start = 0
    for items in items_by_task:
        stop = start + len(items.weights)
        samples = [items.samples[key] for key in keys]
        scores += np.array([sample.score for sample in samples]) / n_tasks
        # A block of rows at a time, to save memory.
        for first in range(0, len(keys), BLOCK_ROWS):
            block = slice(first, first + BLOCK_ROWS)
            task_influences = np.array([_mean_influences(sample) for sample in samples[block]])
            influences[start:stop, block] = task_influences.T / np.float32(n_tasks)
        start = stop
    return _RowMeans(scores, influences.T)


def _mean_influences(sample: ScoreSample) -> npt.NDArray[Any]:
    """Return how much each item moves the mean over seeds, (n,), without a copy for one seed."""
    return sample.influences[0] if len(sample.influences) == 1 else sample.mean_influences


class _SeedVariances(NamedTuple):
    """How much the mean of each of k rows varies over seeds; 0 if no task of a row has two seeds.

    Attributes:
        variances: The variance, a sum of independent ones, (k,).
        satterthwaite_sums: The sum of v² / df over these summands v, (k,).
    """

    variances: Float64Array
    satterthwaite_sums: Float64Array


def _seed_variances(
    items_by_task: Sequence[TaskSamples[RowKey]],
    keys: Sequence[RowKey],
    dependence: ItemDependence,
) -> _SeedVariances:
    """Compute how much the mean score of each row over all tasks varies over seeds.

    Args:
        items_by_task: The scores of the rows on each task by seed, with the influences of its
            items.
        keys: The k rows.
        dependence: Which items of all tasks share a sentence.

    Returns:
        For each row the sum of its variances v over seeds, (k,), 0 for a row of single seeds; and
        the sum of v² / df, from which degrees of freedom are computed, (k,).
    """
    variances, satterthwaite_sums = np.zeros((2, len(keys)))
    for index, key in enumerate(keys):
        samples = [items.samples[key] for items in items_by_task]
        if all(len(sample.scores) == 1 for sample in samples):
            continue
        # The error over the seeds that all tasks share, or that of means over unequal seeds.
        for error in all_seed_errors(average_samples(samples, dependence), dependence):
            variances[index] += error.error**2
            satterthwaite_sums[index] += error.error**4 / error.df
    return _SeedVariances(variances, satterthwaite_sums)
