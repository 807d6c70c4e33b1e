"""Encoders' means over tasks and seeds: intervals, ranks, and which do not differ significantly."""

from __future__ import annotations

import hashlib
import string
from collections import Counter
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from itertools import product
from pathlib import Path
from typing import Generic, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench import numbers
from stsbench.core.provenance import code_digest
from stsbench.numbers.intervals import (
    ItemDependence,
    StandardError,
    variance_estimators,
    wilson_interval,
)
from stsbench.numbers.statistics import Float64Array
from stsbench.results.folder import without_columns
from stsbench.results.record import Result, protocol_key
from stsbench.significance.comparison import TestSettings
from stsbench.significance.differences import (
    TIE_TOLERANCE,
    EstimatedDifference,
    ScoreSample,
    all_seed_errors,
    average_samples,
)
from stsbench.significance.items import (
    RowItems,
    RowKey,
    RowResults,
    check_comparable,
    estimate_mean_difference,
    has_one_training_seed,
    join_items,
    least_share_error,
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
    "by shared sentences or by chains of them, whichever is wider"
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
        error = StandardError(mean.error, mean.df)
        return wilson_interval(mean.difference, error, effective_items=mean.df + 1)
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


MAX_GROUPS = 52
"""The number of groups of letters beyond which groups are not divided any further.

With gaps their number may grow exponentially with the number of rows.
"""


class LetterDisplay(NamedTuple):
    """The letters of k encoders.

    Attributes:
        letters: Each encoder's letters, (k,).
        is_exact: All significant differences are displayed. If not, some encoders share a letter
            although they differ, because there would be more than ``MAX_GROUPS`` groups.
    """

    letters: Sequence[str]
    is_exact: bool


class _Groups(NamedTuple):
    masks: list[int]
    """Groups as bit masks of encoders."""
    is_exact: bool
    """No group has two encoders that differ."""


def assign_letters(different: npt.NDArray[np.bool_]) -> LetterDisplay:
    """Assign letters to k encoders, so that two share one if they do not differ significantly.

    The groups are the largest ranges of encoders of which the first and the last do not differ.
    If an encoder within a range differs from another one, as can be with gaps, ranges are divided
    by insert and absorb (Piepho 2004, section 2.2). A group whose pairs are all in other groups is
    then removed (his sweeping, of whole groups).

    Args:
        different: Which pairs differ significantly, (k, k), symmetric; encoders best first.

    Returns:
        The letters; the first encoder has ``a``. After ``z`` come ``A`` to ``Z``, then ``.a``.
    """
    k = len(different)
    groups = _insert_and_absorb(_find_ranges(different), different)
    members_by_group = [_members(mask, k) for mask in _sweep(groups.masks, k)]
    letters_by_encoder = [""] * k
    n_letters = len(string.ascii_letters)
    for index, members in enumerate(sorted(members_by_group)):
        letter = "." * (index // n_letters) + string.ascii_letters[index % n_letters]
        for encoder in members:
            letters_by_encoder[encoder] += letter
    return LetterDisplay(letters_by_encoder, groups.is_exact)


def _find_ranges(different: npt.NDArray[np.bool_]) -> list[int]:
    """Find the largest ranges of encoders of which the first and the last do not differ.

    Returns:
        Bit masks of encoders; every pair that does not differ is in one of the ranges.
    """
    k = len(different)
    if not k:
        return []
    last_tied = k - 1 - np.argmax(~different[:, ::-1], axis=1)
    stops = 1 + np.maximum.accumulate(last_tied)
    # A range that ends where the one before it ends lies within that one.
    starts = np.flatnonzero(np.diff(stops, prepend=0))
    return [(1 << int(stops[start])) - (1 << int(start)) for start in starts]


def _insert_and_absorb(groups: list[int], different: npt.NDArray[np.bool_]) -> _Groups:
    """Divide groups until none has two encoders that differ.

    All differences of an encoder are inserted at once: a group that has the encoder and some of
    its rivals becomes two, one without the encoder and one without the rivals. Dividing stops
    where more than ``MAX_GROUPS`` groups would be left after sweeping.
    """
    for encoder, row in enumerate(np.triu(different, 1)):
        rivals = int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little")
        divided_groups = _split(groups, 1 << encoder, rivals)
        if divided_groups == groups:
            continue
        if len(divided_groups) > MAX_GROUPS:
            divided_groups = _sweep(divided_groups, len(different))
        if len(divided_groups) > MAX_GROUPS:
            return _Groups(groups, is_exact=False)
        groups = divided_groups
    return _Groups(groups, is_exact=True)


def _members(group: int, k: int) -> list[int]:
    """List which of k encoders are in a group, a bit mask of encoders."""
    return [encoder for encoder in range(k) if group >> encoder & 1]


def _split(groups: list[int], encoder: int, rivals: int) -> list[int]:
    """Split each group that contains an encoder and rivals of it; all are bit masks."""
    remaining = []
    parts = set()
    for group in groups:
        if group & encoder and group & rivals:
            parts.add(group & ~encoder)
            parts.add(group & ~rivals)
        else:
            remaining.append(group)
    for part in sorted(parts, key=int.bit_count, reverse=True):
        # No group lies within a part: it would have lain within the group that was split.
        if not any(part & group == part for group in remaining):
            remaining.append(part)
    return remaining


def _sweep(groups: Sequence[int], k: int) -> list[int]:
    """Remove groups of which every pair is in another one, trying the smallest first.

    Args:
        groups: The groups as bit masks of encoders.
        k: The number of encoders.
    """
    groups = sorted(groups, key=int.bit_count)
    indices_by_group = [np.array(_members(group, k)) for group in groups]
    is_member = np.zeros((len(groups), k), dtype=np.float32)
    for group_row, indices in zip(is_member, indices_by_group, strict=True):
        group_row[indices] = 1
    # An encoder that is alone in its group forms a pair with itself.
    n_groups_by_pair = is_member.T @ is_member
    remaining = []
    for group, indices in zip(groups, indices_by_group, strict=True):
        # The pairs of the first and the last member decide in most cases.
        first, last = indices[[0, -1]]
        pairs = np.ix_(indices, indices)
        is_covered = (
            n_groups_by_pair[first, indices].min() > 1
            and n_groups_by_pair[last, indices].min() > 1
            and n_groups_by_pair[pairs].min() > 1
        )
        if is_covered:
            n_groups_by_pair[pairs] -= 1
        else:
            remaining.append(group)
    return remaining


def find_rank_intervals(
    differences: Float64Array, different: npt.NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Find the ranks that each of k rows may have by its significant differences, 1 is the best.

    A row's best rank is one more than the number of rows that are significantly better, its
    worst rank is k less the number of those that are significantly worse. If Holm's correction
    over all pairs decides what is significant, all true ranks lie in these intervals at once with
    the level's confidence (Mogstad, Romano, Shaikh and Wilhelm 2024, with Holm's tests).

    If two rows do not differ, but other rows lie significantly between them, as can be with gaps
    or seeds, the better one's worst rank is the worse one's best rank, so that the two overlap.

    Args:
        differences: The score of the column's row minus that of the row's, (k, k); NaN if the two
            cannot be compared.
        different: Which pairs differ significantly, (k, k), symmetric.
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
    rows: RowResults[RowKey], *, settings: TestSettings | None = None
) -> Standings[RowKey]:
    """Rank encoders by their mean over tasks, and test which of them differ significantly.

    Two rows are compared by their difference on the tasks that both have: a task that one lacks
    neither lowers nor raises it. Each difference is tested as ``compare`` tests means; p-values
    are corrected by Holm's method over all pairs, and decide letters and intervals of ranks.

    Args:
        rows: Each row's results by task, one per seed; empty for a task that the row lacks.
        settings: The settings of the tests.

    Raises:
        ProtocolError: A task was scored differently; the message names the field.
        DataError: Per-item columns are broken.
    """
    settings = settings or TestSettings()
    check_comparable(rows)
    row_items = RowItems(rows, settings.dependence)
    keys = [key for key in rows if row_items.common_tasks(key)]
    tests = compare_all_pairs(row_items, keys)
    n_above = np.sum(tests.differences > TIE_TOLERANCE, axis=1)
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
        level=settings.level,
        results_without_columns=row_items.results_without_columns,
        results_without_sentences=row_items.results_without_sentences,
        single_seed_rows=single_seed_rows,
        has_exact_letters=display.is_exact,
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
    for tasks, (firsts, seconds) in _pairs_by_common_tasks(rows, keys).items():
        indices = np.union1d(firsts, seconds)
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


class _Pairs(NamedTuple):
    """The indices of the rows of pairs, (number of pairs,) each; the first is the smaller one."""

    firsts: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.int64]


def _pairs_by_common_tasks(
    rows: RowItems[RowKey], keys: Sequence[RowKey]
) -> dict[tuple[int, ...], _Pairs]:
    """Return the pairs of rows by the tasks that both have; pairs without any are missing."""
    tasks_by_row = [rows.common_tasks(key) for key in keys]
    # Many rows have the same tasks, so sets of tasks are intersected once, not for each pair.
    task_sets = list(dict.fromkeys(tasks_by_row))
    set_by_row = np.array([task_sets.index(tasks) for tasks in tasks_by_row], dtype=np.int64)
    number_by_tasks: dict[tuple[int, ...], int] = {}
    numbers = np.zeros((len(task_sets), len(task_sets)), dtype=np.int64)
    for first, second in product(range(len(task_sets)), repeat=2):
        common_tasks = tuple(task for task in task_sets[first] if task in task_sets[second])
        numbers[first, second] = number_by_tasks.setdefault(common_tasks, len(number_by_tasks))
    firsts, seconds = np.triu_indices(len(keys), 1)
    number_by_pair = numbers[set_by_row[firsts], set_by_row[seconds]]
    pairs_by_tasks = {}
    for tasks, number in number_by_tasks.items():
        is_pair = number_by_pair == number
        if tasks and is_pair.any():
            pairs_by_tasks[tasks] = _Pairs(firsts[is_pair], seconds[is_pair])
    return pairs_by_tasks


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
    influences = np.array([sample.mean_influences for sample in samples])
    errors_by_sample = [all_seed_errors(sample, dependence) for sample in samples]
    seed_variances = np.array(
        [sum(error.error**2 for error in errors) for errors in errors_by_sample]
    )
    seed_terms = np.array(
        [sum(error.error**4 / error.df for error in errors) for errors in errors_by_sample]
    )
    estimators = variance_estimators(dependence, weights)
    p_values = np.zeros_like(differences) if estimators else np.ones_like(differences)
    for estimator in estimators:
        item_df = estimator.n_items - 1
        item_variances = (
            estimator.variances_of_differences(influences) * estimator.n_items / item_df
        )
        variances = item_variances + seed_variances[:, None] + seed_variances[None, :]
        # Equal influences of all items are no proof that shares differ by a constant.
        variances = np.where(variances == 0, least_share_error(item_df) ** 2, variances)
        terms = item_variances**2 / item_df + seed_terms[:, None] + seed_terms[None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            df = np.where(terms > 0, variances**2 / terms, item_df)
            estimator_p = 2 * special.stdtr(df, -np.abs(differences) / np.sqrt(variances))
        is_tie = np.isnan(variances) | (np.abs(differences) <= TIE_TOLERANCE)
        p_values = np.maximum(p_values, np.where(is_tie, 1.0, estimator_p))
    return PairTests(differences, p_values)
