"""Encoders' means over tasks and seeds: intervals, ranks, and which do not differ significantly."""

from __future__ import annotations

import hashlib
import string
from collections import Counter
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Generic, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench import numbers
from stsbench.core.provenance import code_digest
from stsbench.numbers.statistics import Float64Array, ItemDependence, StandardError, wilson_interval
from stsbench.results.folder import without_columns
from stsbench.results.record import Result, protocol_key
from stsbench.significance.comparison import TestSettings
from stsbench.significance.differences import (
    TIE_TOLERANCE,
    EstimatedDifference,
    ScoreSample,
    all_seed_errors,
    average_samples,
    draw_scores,
)
from stsbench.significance.items import (
    RowItems,
    RowKey,
    RowResults,
    check_comparable,
    estimate_mean_difference,
    has_one_training_seed,
    join_items,
)
from stsbench.significance.paired import holm


def interval_cache_key(
    results_by_task: Sequence[Sequence[Result]],
    task_indices: Sequence[int],
    score_names: Sequence[str],
) -> str | None:
    """Hash all that an interval of a mean depends on.

    These are scores, protocols, seeds, per-item columns by their own hash, and the formulas.

    Args:
        results_by_task: One encoder's results for each task, one per seed.
        task_indices: The tasks that the mean is over, by their index in ``results_by_task``.
        score_names: The score that counts on each task; empty for the results' own.

    Returns:
        32 hex digits; None if a result is not on disk, because nothing then guarantees that its
        per-item columns are those that its hash names.
    """
    facts_by_task = []
    for task in task_indices:
        results = results_by_task[task]
        if any(result.path is None or result.per_item for result in results):
            return None
        facts = [
            (protocol_key(result.protocol), result.items, result.score, *result.seeds)
            for result in results
        ]
        facts_by_task.append((score_names[task] if score_names else "", facts))
    code = code_digest(Path(__file__).parent, *map(Path, numbers.__path__))
    content = msgspec.json.encode((code, facts_by_task))
    return hashlib.sha256(content).hexdigest()[:32]


MEAN_METHOD = (
    "Student's t over items and seeds (of shares Wilson's interval by it), "
    "with the covariance of items that share a sentence"
)
"""How the interval of a mean is computed."""
Interval = tuple[float, float]
"""The lower and the upper bound."""
ProgressCallback = Callable[[int, int], None]
"""Called with the number of rows that are done and the number of all rows."""


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
        The interval over other items and other seeds, in the scores' unit. None if the per-item
        columns of a task are not available or do not say which items share a sentence, or if
        its score has no known statistic.
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
    """
    interval_cache = {} if interval_cache is None else interval_cache
    used_tasks = {task for tasks in task_sets for task in tasks}
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
    row = RowItems({0: results_by_task}, score_names=score_names)
    intervals = {}
    for tasks, key in cache_keys.items():
        if (interval := _interval_of_mean(row, tasks)) is not None:
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
    """Compute the interval of the mean of the only row, whose key is 0, over these tasks.

    Returns:
        The interval; None if a task lacks items, or if it is unknown which share a sentence.
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
        joined = join_items(items_by_task, task_weights)
        return wilson_interval(
            mean.difference,
            StandardError(mean.error, mean.df),
            joined.dependence.effective_sample_size(joined.weights),
        )
    low, high = mean.interval()
    return max(low, -1.0), min(high, 1.0)


def compute_differences_from(
    reference: RowKey, rows: RowResults[RowKey]
) -> dict[RowKey, EstimatedDifference]:
    """Estimate how far each other row's mean is from that of a reference row.

    Args:
        reference: The row whose mean is subtracted.
        rows: Each row's results by task, one per seed; all rows have the same tasks.

    Returns:
        The differences, row less reference, over other items and other seeds, in the scores'
        unit. Rows whose per-item columns are not available are missing.

    Raises:
        ProtocolError: A task was scored differently; the message names the field.
    """
    check_comparable(rows)
    row_items = RowItems(rows)
    n_tasks = len(rows[reference])
    complete_rows = [key for key in rows if len(row_items.common_tasks(key)) == n_tasks]
    if reference not in complete_rows:
        return {}
    items_by_task = list(row_items.tasks.values())
    return {
        key: estimate_mean_difference(items_by_task, reference, key)
        for key in complete_rows
        if key != reference
    }


def assign_letters(different: npt.NDArray[np.bool_]) -> list[str]:
    """Assign letters to k encoders by insert and absorb (Piepho 2004, section 2.2).

    All start in one group. For each significant difference, a group with both of its encoders
    becomes two, one without the first and one without the second; a group that lies within
    another is absorbed by it. A group whose pairs are all in other groups is then removed (his
    sweeping, of whole groups).

    Args:
        different: Which pairs differ significantly, (k, k), symmetric; encoders best first.

    Returns:
        The letters of each encoder, (k,); the first one has ``a``. After ``z`` come ``A`` to
        ``Z``, then ``.a``.
    """
    k = len(different)
    groups = [(1 << k) - 1] if k else []
    for first, second in zip(*np.nonzero(np.triu(different, 1)), strict=True):
        groups = _split(groups, 1 << int(first), 1 << int(second))
    members_by_group = sorted(_members(group, k) for group in _swept(groups, k))
    letters_by_encoder = [""] * k
    n_letters = len(string.ascii_letters)
    for index, members in enumerate(members_by_group):
        letter = "." * (index // n_letters) + string.ascii_letters[index % n_letters]
        for encoder in members:
            letters_by_encoder[encoder] += letter
    return letters_by_encoder


def _members(group: int, k: int) -> list[int]:
    """List which of k encoders are in a group, a bit mask of encoders."""
    return [encoder for encoder in range(k) if group >> encoder & 1]


def _split(groups: list[int], first: int, second: int) -> list[int]:
    """Split each group that contains two encoders; groups and encoders are bit masks."""
    remaining = []
    parts = set()
    for group in groups:
        if group & first and group & second:
            parts.add(group & ~first)
            parts.add(group & ~second)
        else:
            remaining.append(group)
    for part in sorted(parts, key=int.bit_count, reverse=True):
        # No group lies within a part: it would have lain within the group that was split.
        if not any(part & group == part for group in remaining):
            remaining.append(part)
    return remaining


def _swept(groups: list[int], k: int) -> list[int]:
    """Remove groups of which every pair is in another one, trying the smallest first."""
    remaining = sorted(groups, key=int.bit_count)
    for group in list(remaining):
        rest = [candidate for candidate in remaining if candidate != group]
        members = _members(group, k)
        # An encoder that is alone in its group forms a pair with itself.
        pairs = [
            1 << first | 1 << second for first in members for second in members if first <= second
        ]
        if all(any(pair & candidate == pair for candidate in rest) for pair in pairs):
            remaining = rest
    return remaining


def rank_intervals(
    rows: RowItems[RowKey], keys: Sequence[RowKey], *, effort: TestSettings, level: float = 0.95
) -> dict[RowKey, tuple[int, int]]:
    """Compute the interval of each row's rank by its mean over tasks, 1 is the best.

    All rows move together over other items, and each by itself over other seeds. In a draw a
    row's rank is one more than the number of rows above it (Goldstein and Spiegelhalter 1996);
    two rows are compared by the tasks that both have.

    Args:
        rows: The rows' items.
        keys: The rows to rank, which have at least one task each.
        effort: The number of draws and their seed.
        level: The share of draws within the interval.
    """
    if not keys:
        return {}
    drawn_means = _draw_means(rows, keys, effort)
    intervals = {}
    for key in keys:
        is_above = []
        for rival in keys:
            tasks = rows.common_tasks(key, rival)
            if tasks:
                is_above.append(drawn_means[rival, tasks] > drawn_means[key, tasks])
        ranks = 1 + np.sum(is_above, axis=0)
        low, high = np.quantile(ranks, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
        intervals[key] = int(low), int(high)
    return intervals


def _draw_means(
    rows: RowItems[RowKey], keys: Sequence[RowKey], effort: TestSettings
) -> dict[tuple[RowKey, tuple[int, ...]], Float64Array]:
    """Draw each row's mean over the tasks that it shares with each other row, (draws,) each."""
    # A dictionary, for distinct means in the order of rows.
    means: dict[tuple[RowKey, tuple[int, ...]], None] = {}
    for key in keys:
        for rival in keys:
            if tasks := rows.common_tasks(key, rival):
                means[key, tasks] = None
    positions = _item_positions(rows)
    dependence = join_items(list(rows.tasks.values())).dependence
    samples = []
    for key, tasks in means:
        items_by_task = rows.select(tasks)
        mean = average_samples(
            [items.samples[key] for items in items_by_task], join_items(items_by_task).dependence
        )
        # Items of tasks that are not in the mean do not move it.
        influences = np.zeros((len(mean.influences), len(dependence)))
        influences[:, np.concatenate([positions[task] for task in tasks])] = mean.influences
        samples.append(ScoreSample(mean.scores, influences, mean.seeds, mean.seed_errors))
    owners = [keys.index(key) for key, _ in means]
    rng = effort.rng(" ".join(items.task for items in rows.tasks.values()))
    drawn_scores = draw_scores(samples, dependence, n_draws=effort.n_draws, rng=rng, owners=owners)
    return dict(zip(means, drawn_scores, strict=True))


def _item_positions(rows: RowItems[RowKey]) -> dict[int, npt.NDArray[np.int64]]:
    """Return the positions of each task's items among the items of all tasks."""
    positions = {}
    start = 0
    for task, items in rows.tasks.items():
        stop = start + len(items.sentences)
        positions[task] = np.arange(start, stop)
        start = stop
    return positions


class RowStanding(NamedTuple):
    """The standing of an encoder among others.

    Attributes:
        rank: Its rank by the mean, 1 is the best.
        rank_interval: The 95% interval of the rank over other items and seeds.
        letters: Its letters in a compact letter display.
        is_best: It is the best, or not significantly different from it.
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
    """

    rows: Mapping[RowKey, RowStanding]
    tests: int
    level: float
    results_without_columns: Sequence[Result]
    results_without_sentences: Sequence[Result]
    single_seed_rows: Sequence[RowKey]


def rank_rows(rows: RowResults[RowKey], *, effort: TestSettings | None = None) -> Standings[RowKey]:
    """Rank encoders by their mean over tasks, and test which of them differ significantly.

    Two rows are compared by their difference on the tasks that both have: a task that one lacks
    neither lowers nor raises it. Each difference is tested as ``compare`` tests means; p-values
    are corrected by Holm's method over all pairs.

    Args:
        rows: Each row's results by task, one per seed; empty for a task that the row lacks.
        effort: The settings of the tests.

    Raises:
        ProtocolError: A task was scored differently; the message names the field.
        DataError: Per-item columns are broken.
    """
    effort = effort or TestSettings()
    check_comparable(rows)
    row_items = RowItems(rows, effort.dependence)
    keys = [key for key in rows if row_items.common_tasks(key)]
    tests = compare_all_pairs(row_items, keys)
    n_above = np.sum(tests.differences > TIE_TOLERANCE, axis=1)
    is_different = _significant_differences(tests.p_values, effort.level)
    best_first = sorted(range(len(keys)), key=lambda index: int(n_above[index]))
    letters = assign_letters(is_different[np.ix_(best_first, best_first)])
    intervals = rank_intervals(row_items, keys, effort=effort)
    standings = {}
    for index, key in enumerate(keys):
        standings[key] = RowStanding(
            rank=int(n_above[index]) + 1,
            rank_interval=intervals[key],
            letters=letters[best_first.index(index)],
            is_best=not is_different[best_first[0], index],
            tasks=row_items.common_tasks(key),
        )
    single_seed_rows = [
        key
        for key in keys
        if has_one_training_seed(result for results in rows[key] for result in results)
    ]
    return Standings(
        rows=standings,
        tests=int(np.triu(np.isfinite(tests.p_values), 1).sum()),
        level=effort.level,
        results_without_columns=row_items.results_without_columns,
        results_without_sentences=row_items.results_without_sentences,
        single_seed_rows=single_seed_rows,
    )


def _significant_differences(p_values: Float64Array, level: float) -> npt.NDArray[np.bool_]:
    """Return which pairs differ significantly after Holm's correction, (k, k), symmetric."""
    is_tested = np.triu(np.isfinite(p_values), 1)
    is_different = np.zeros(p_values.shape, dtype=bool)
    is_different[is_tested] = np.array(holm(p_values[is_tested].tolist())) < level
    return is_different | is_different.T


class PairTests(NamedTuple):
    """The tests of every two of k rows.

    Attributes:
        differences: The score of the column's row minus that of the row's, (k, k).
        p_values: The two-sided p-values, (k, k).
    """

    differences: Float64Array
    p_values: Float64Array


def compare_all_pairs(rows: RowItems[RowKey], keys: Sequence[RowKey]) -> PairTests:
    """Test the difference of every two rows on the tasks that both have.

    Returns:
        The tests in the order of ``keys``. NaN if two rows have no task in common; p-values are
        NaN on the diagonal.
    """
    differences, p_values = np.full((2, len(keys), len(keys)), np.nan)
    pairs_by_tasks: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for first, second in combinations(range(len(keys)), 2):
        if tasks := rows.common_tasks(keys[first], keys[second]):
            pairs_by_tasks.setdefault(tasks, []).append((first, second))
    for tasks, pairs in pairs_by_tasks.items():
        firsts, seconds = np.array(pairs).T
        indices = sorted({index for pair in pairs for index in pair})
        items_by_task = rows.select(tasks)
        dependence, weights = join_items(items_by_task)
        samples = [
            average_samples([items.samples[keys[index]] for items in items_by_task], dependence)
            for index in indices
        ]
        tests = _tests(samples, dependence, weights)
        cells = np.searchsorted(indices, firsts), np.searchsorted(indices, seconds)
        differences[firsts, seconds] = tests.differences[cells]
        differences[seconds, firsts] = -tests.differences[cells]
        p_values[firsts, seconds] = tests.p_values[cells]
        p_values[seconds, firsts] = tests.p_values[cells]
    np.fill_diagonal(differences, 0.0)
    return PairTests(differences, p_values)


def _tests(
    samples: Sequence[ScoreSample], dependence: ItemDependence, weights: Float64Array
) -> PairTests:
    """Test every two samples at once, as ``EstimatedDifference.estimate`` tests one pair.

    The degrees of freedom are Satterthwaite's: the squared sum of the variances divided by the
    sum of variance² / df.
    """
    from scipy import special

    scores = np.array([sample.score for sample in samples])
    differences = scores[None, :] - scores[:, None]
    n_items = dependence.effective_sample_size(weights)
    if n_items < 2:
        return PairTests(differences, np.ones_like(differences))
    influences = np.array([sample.mean_influences for sample in samples])
    item_variances = dependence.variances_of_differences(influences) * n_items / (n_items - 1)
    errors_by_sample = [all_seed_errors(sample, dependence) for sample in samples]
    seed_variances = np.array(
        [sum(error.error**2 for error in errors) for errors in errors_by_sample]
    )
    seed_terms = np.array(
        [sum(error.error**4 / error.df for error in errors) for errors in errors_by_sample]
    )
    variances = item_variances + seed_variances[:, None] + seed_variances[None, :]
    terms = item_variances**2 / (n_items - 1) + seed_terms[:, None] + seed_terms[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(terms > 0, variances**2 / terms, n_items - 1)
        p_values = 2 * special.stdtr(df, -np.abs(differences) / np.sqrt(variances))
    is_tie = np.isnan(variances) | (np.abs(differences) <= TIE_TOLERANCE)
    return PairTests(differences, np.where(is_tie, 1.0, p_values))
