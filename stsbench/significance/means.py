"""Encoders' means over tasks and seeds: their intervals, their ranks, and which do not differ significantly."""

from __future__ import annotations

import hashlib
import string
from collections import Counter
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from functools import cache
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Generic, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench import numbers
from stsbench.numbers.statistics import Float64Array, ItemDependence, StandardError, wilson_interval
from stsbench.results.folder import verified, without_columns
from stsbench.results.record import Result, protocol_key
from stsbench.significance.comparison import TestSettings
from stsbench.significance.items import (
    RowItems,
    RowKey,
    RowResults,
    check_comparable,
    estimate_mean_difference,
    has_one_training_seed,
    join_items,
)
from stsbench.significance.paired import (
    TIE_TOLERANCE,
    EstimatedDifference,
    ScoreSample,
    average_samples,
    draw_scores,
    holm,
    seed_error,
)


def interval_cache_key(
    cells: Sequence[Sequence[Result]], tasks: Sequence[int], score_names: Sequence[str]
) -> str | None:
    """A hash of scores, protocols, seeds, per-item columns by their own hash, and formulas, 32 hex digits.

    ``cells`` are a row's results task by task, ``tasks`` the places of those that the mean is over, ``score_names`` the score that
    counts on each. None of results that lie in no file: nothing says that their columns have the hash they name.
    """
    results = [one for at in tasks for one in cells[at]]
    if not all(one.path is not None and not one.per_item for one in results):
        return None
    of_tasks = (
        [(protocol_key(one.protocol), one.items, one.score, *one.seeds) for one in cells[at]]
        for at in tasks
    )
    facts = [
        (score_names[at] if score_names else "", of_task)
        for at, of_task in zip(tasks, of_tasks, strict=True)
    ]
    return hashlib.sha256(msgspec.json.encode((_formulas(), facts))).hexdigest()[:32]


@cache
def _formulas() -> str:
    """A hash of the sources that compute intervals, and of the packages that these use."""
    files = [
        file
        for folder in (Path(__file__).parent, *map(Path, numbers.__path__))
        for file in folder.glob("*.py")
    ]
    sources = b"".join(file.read_bytes() for file in sorted(files))
    versions = " ".join(version(name) for name in ("numpy", "scipy"))
    return hashlib.sha256(sources + versions.encode()).hexdigest()


MEAN_METHOD = "Student's t over items and seeds (of shares Wilson's interval by it), with the covariance of items that share a sentence"
Interval = tuple[float, float]
ProgressCallback = Callable[[int, int], None]
"""Gets how many rows are done, and how many there are."""


class MeanIntervals(NamedTuple):
    """The intervals of one encoder's means over sets of tasks, in the scores' unit; none where there is none.

    ``lacking`` are the results whose per-item columns are not at hand or broken, ``without_texts`` those of which no columns tell
    which items share a sentence: with them no interval can be trusted.
    """

    intervals: Mapping[tuple[int, ...], Interval] = {}
    results_without_columns: Sequence[Result] = ()
    results_without_sentences: Sequence[Result] = ()


def compute_mean_interval(cells: Sequence[Sequence[Result]]) -> Interval | None:
    """The 95% interval of one encoder's mean over tasks, over other items and other seeds, in the scores' unit.

    ``cells`` are its results on each task, one a seed. None where a task has no per-item columns at hand, no statistic is known
    of them, or they do not tell which items share a sentence.
    """
    tasks = tuple(range(len(cells)))
    return compute_mean_intervals(cells, [tasks]).intervals.get(tasks)


def compute_mean_intervals(
    cells: Sequence[Sequence[Result]],
    wanted: Collection[tuple[int, ...]],
    score_names: Sequence[str] = (),
    interval_cache: MutableMapping[str, Interval] | None = None,
) -> MeanIntervals:
    """The same of several sets of tasks.

    ``wanted`` are the places of the tasks that a mean is over, one named twice counting twice; ``score_names`` the score that counts on
    each task, a name of its results' ``score_names``, or without any their own. ``interval_cache`` are intervals computed before, by a hash of
    what they were computed from; those of now are added.
    """
    cells = [
        seeds if any(at in tasks for tasks in wanted) else [] for at, seeds in enumerate(cells)
    ]
    interval_cache, every = (
        {} if interval_cache is None else interval_cache,
        [one for seeds in cells for one in seeds],
    )
    if lacking := without_columns(every):
        return MeanIntervals(results_without_columns=lacking)
    marks = {tasks: interval_cache_key(cells, tasks, score_names) for tasks in wanted}
    found = {
        tasks: interval_cache[mark]
        for tasks, mark in marks.items()
        if mark and mark in interval_cache
    }
    if len(found) == len(marks):
        return MeanIntervals(found)
    read = verified(every, keep=True)
    if broken := {problem.path for problem in read.problems}:
        return MeanIntervals(results_without_columns=[one for one in every if one.path in broken])
    held = iter(read.results)
    rows = RowItems({0: [[next(held) for _ in seeds] for seeds in cells]}, score_names=score_names)
    found = {tasks: ends for tasks in marks if (ends := _interval_of_mean(rows, tasks)) is not None}
    interval_cache.update(
        {mark: found[tasks] for tasks, mark in marks.items() if mark and tasks in found}
    )
    silent = [
        one for at, items in rows.tasks.items() if not items.knows_sentences for one in cells[at]
    ]
    return MeanIntervals(found, results_without_sentences=silent)


def _interval_of_mean(rows: RowItems[int], tasks: Sequence[int]) -> Interval | None:
    """The interval of the mean of the only row over these tasks; None where one of them tells none."""
    counts = Counter(tasks)
    if not counts or not all(at in rows.tasks and rows.tasks[at].knows_sentences for at in counts):
        return None
    items, shares = rows.select(list(counts)), [count / len(tasks) for count in counts.values()]
    found = estimate_mean_difference(items, None, 0, shares)
    if all(one.paired.is_proportion for one in items):
        # By Student's law the interval of a mean near 1 would end above it, and that of 1 would have no width.
        sharing, weights = join_items(items, shares)
        worth = sharing.effective_sample_size(weights)
        return wilson_interval(found.difference, StandardError(found.error, found.df), worth)
    low, high = found.interval()
    return max(low, -1.0), min(high, 1.0)


def compute_differences_from(
    reference: RowKey, rows: RowResults[RowKey]
) -> dict[RowKey, EstimatedDifference]:
    """How far the mean of each other row is from that of one of them, over other items and seeds: row less reference.

    All rows have the same tasks. Differences are in the scores' unit; there is none where per-item columns are not at hand.

    Raises:
        ProtocolError: rows were scored in different ways or on different data; names the field.
    """
    check_comparable(rows)
    found = RowItems(rows)
    able = [key for key in rows if len(found.common_tasks(key)) == len(rows[reference])]
    items = list(found.tasks.values())
    return {
        key: estimate_mean_difference(items, reference, key)
        for key in able
        if reference in able and key != reference
    }


def assign_letters(different: npt.NDArray[np.bool_]) -> list[str]:
    """Letters of k encoders by insert and absorb (Piepho 2004, section 2.2), (k,).

    All start in one group. For each significant difference, a group that holds both of its encoders becomes two, one without
    the first and one without the second; a group that lies within another is absorbed by it. A group whose pairs all stand
    in other groups is then left out (his sweeping, of whole groups).

    Args:
        different: whether the difference of two encoders is significant, (k, k), symmetric; encoders best first.

    Returns:
        The letters of each encoder, ``a`` being the first one's. After ``z`` come ``A`` to ``Z``, then ``.a``.
    """
    k = len(different)
    groups = [(1 << k) - 1] if k else []
    for first, second in zip(*np.nonzero(np.triu(different, 1)), strict=True):
        groups = _split(groups, 1 << int(first), 1 << int(second))
    members = sorted(
        [place for place in range(k) if group >> place & 1] for group in _swept(groups, k)
    )
    found, signs = [""] * k, string.ascii_letters
    for at, group in enumerate(members):
        for place in group:
            found[place] += "." * (at // len(signs)) + signs[at % len(signs)]
    return found


def _split(groups: list[int], first: int, second: int) -> list[int]:
    kept = [group for group in groups if not (group & first and group & second)]
    parts = [
        group & ~one
        for group in groups
        if group & first and group & second
        for one in (first, second)
    ]
    for part in sorted(set(parts), key=int.bit_count, reverse=True):
        # No group lies within a part: it would have lain within the group that was split.
        if not any(part & group == part for group in kept):
            kept.append(part)
    return kept


def _swept(groups: list[int], k: int) -> list[int]:
    # Without those of which every pair stands in another, the smallest looked at first.
    kept = sorted(groups, key=int.bit_count)
    for group in list(kept):
        others = [other for other in kept if other != group]
        places = [place for place in range(k) if group >> place & 1]
        # Of an encoder alone the pair is with itself.
        pairs = [1 << a | 1 << b for a in places for b in places if a <= b]
        if all(any(pair & other == pair for other in others) for pair in pairs):
            kept = others
    return kept


def rank_intervals(
    rows: RowItems[RowKey], keys: Sequence[RowKey], *, effort: TestSettings, level: float = 0.95
) -> dict[RowKey, tuple[int, int]]:
    """The 95% interval of each row's rank by its mean over tasks, 1 the best; each has at least one task.

    All rows move together over other items, and each by itself over other seeds. In a draw a row's rank is one more than the
    number of those above it (Goldstein and Spiegelhalter 1996), each of two being scored on the tasks that both have.
    """
    if not keys:
        return {}
    drawn = _draws(rows, keys, effort)
    found = {}
    for key in keys:
        pairs = [(rows.common_tasks(key, other), other) for other in keys]
        above = [drawn[other, tasks] > drawn[key, tasks] for tasks, other in pairs if tasks]
        ranks = 1 + np.sum(above, axis=0)
        low, high = np.quantile(ranks, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
        found[key] = int(low), int(high)
    return found


def _draws(
    rows: RowItems[RowKey], keys: Sequence[RowKey], effort: TestSettings
) -> dict[tuple[RowKey, tuple[int, ...]], Float64Array]:
    """Each row's mean over the tasks that it shares with any other, as each draw has it, (draws,)."""
    means = list(
        dict.fromkeys(
            (key, tasks)
            for key in keys
            for other in keys
            if (tasks := rows.common_tasks(key, other))
        )
    )
    starts = dict(
        zip(
            rows.tasks,
            np.cumsum([0, *(len(one.sentences) for one in rows.tasks.values())]),
            strict=False,
        )
    )
    every, _ = join_items(list(rows.tasks.values()))
    samples = []
    for key, tasks in means:
        items = rows.select(tasks)
        mean = average_samples([one.samples[key] for one in items], join_items(items)[0])
        # The items of tasks that it lacks, or that are left out, move it not at all.
        shares = np.zeros((len(mean.influences), len(every)))
        shares[
            :,
            np.concatenate([starts[at] + np.arange(len(rows.tasks[at].sentences)) for at in tasks]),
        ] = mean.influences
        samples.append(ScoreSample(mean.scores, shares, mean.seeds, mean.seed_errors))
    owners = [keys.index(key) for key, _ in means]
    rng = effort.rng(" ".join(one.task for one in rows.tasks.values()))
    drawn = draw_scores(samples, every, n_draws=effort.n_draws, rng=rng, owners=owners)
    return dict(zip(means, drawn, strict=True))


class RowStanding(NamedTuple):
    """How an encoder stands among others: its rank by the mean and what other items and seeds may make of it.

    ``letters`` are those of a compact letter display. ``is_best``: it is the best, or not significantly different from it.
    ``tasks`` are the places of the tasks that it has.
    """

    rank: int
    rank_interval: tuple[int, int]
    letters: str
    is_best: bool
    tasks: tuple[int, ...]


class Standings(NamedTuple, Generic[RowKey]):
    """The standing of each row that can be ranked, and over how many pairs of them Holm's correction was taken."""

    rows: Mapping[RowKey, RowStanding]
    tests: int
    level: float
    results_without_columns: Sequence[Result]
    """Results that have no per-item columns at hand: their rows are ranked by their other tasks."""
    results_without_sentences: Sequence[Result]
    """Results of which no columns tell which items share a sentence: they are taken as independent."""
    single_seed_rows: Sequence[RowKey]
    """Rows of one training seed alone, whose rank says nothing of their recipe."""


def rank_rows(rows: RowResults[RowKey], *, effort: TestSettings | None = None) -> Standings[RowKey]:
    """The ranks of encoders by their mean over tasks, with 95% intervals, and which of them differ significantly.

    Two rows are compared on the tasks that both have, by their difference there: a task that one lacks neither lowers nor
    raises it. Each difference is tested as ``compare`` tests means; p-values are corrected by Holm's method over all pairs.

    Args:
        rows: each row's results task by task, several on one task being its seeds, none where it lacks the task.
        effort: draws, seed, level, and which items err together.

    Raises:
        ProtocolError: rows were scored in different ways or on different data; names the field.
        DataError: per-item columns are broken.
    """
    effort = effort or TestSettings()
    check_comparable(rows)
    items = RowItems(rows, effort.dependence)
    keys = [key for key in rows if items.common_tasks(key)]
    differences, p = compare_all_pairs(items, keys)
    above = np.sum(differences > TIE_TOLERANCE, axis=1)
    order = sorted(range(len(keys)), key=lambda at: int(above[at]))
    tested, different = np.triu(np.isfinite(p), 1), np.zeros(p.shape, dtype=bool)
    different[tested] = np.array(holm(p[tested].tolist())) < effort.level
    different = (different | different.T)[np.ix_(order, order)]
    letters = assign_letters(different)
    ranks = rank_intervals(items, keys, effort=effort)
    found = {}
    for at, key in enumerate(keys):
        place = order.index(at)
        rank, is_best = int(above[at]) + 1, not different[0, place]
        found[key] = RowStanding(rank, ranks[key], letters[place], is_best, items.common_tasks(key))
    once = [key for key in keys if has_one_training_seed(one for cell in rows[key] for one in cell)]
    return Standings(
        found,
        int(tested.sum()),
        effort.level,
        items.results_without_columns,
        items.results_without_sentences,
        once,
    )


def compare_all_pairs(
    rows: RowItems[RowKey], keys: Sequence[RowKey]
) -> tuple[Float64Array, Float64Array]:
    """Every two rows' difference on the tasks that both have, column less row, and its p-value; both (k, k).

    NaN where they have no task in common, and as the p-value on the diagonal.
    """
    differences, p = np.full((2, len(keys), len(keys)), np.nan)
    by_tasks: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for (first, one), (second, other) in combinations(enumerate(keys), 2):
        if both := rows.common_tasks(one, other):
            by_tasks.setdefault(both, []).append((first, second))
    for tasks, pairs in by_tasks.items():
        places = sorted({at for pair in pairs for at in pair})
        at = np.array(pairs).T
        items = rows.select(tasks)
        sharing, weights = join_items(items)
        samples = [
            average_samples([one.samples[keys[place]] for one in items], sharing)
            for place in places
        ]
        found = _tests(samples, sharing, weights)
        within = np.searchsorted(places, at)
        differences[*at], p[*at] = (matrix[*within] for matrix in found)
        differences[*at[::-1]], p[*at[::-1]] = -differences[*at], p[*at]
    np.fill_diagonal(differences, 0.0)
    return differences, p


def _tests(
    samples: Sequence[ScoreSample], sharing: ItemDependence, weights: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Differences and p-values of every two samples at once, both (k, k): what ``Contrast.estimate`` gives of each pair."""
    from scipy import special

    scores = np.array([sample.score for sample in samples])
    differences = scores[None, :] - scores[:, None]
    count = sharing.effective_sample_size(weights)
    if count < 2:
        return differences, np.ones_like(differences)
    shares = np.array([sample.influences.mean(axis=0) for sample in samples])
    items = sharing.variances_of_differences(shares) * count / (count - 1)
    of_seeds = [
        [one for one in (seed_error(s, sharing), *s.seed_errors) if one is not None]
        for s in samples
    ]
    seeds = np.array([sum(one.error**2 for one in parts) for parts in of_seeds])
    doubts = np.array([sum(one.error**4 / one.df for one in parts) for parts in of_seeds])
    total = items + seeds[:, None] + seeds[None, :]
    doubt = items**2 / (count - 1) + doubts[:, None] + doubts[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(doubt > 0, total**2 / doubt, count - 1)
        p = 2 * special.stdtr(df, -np.abs(differences) / np.sqrt(total))
    return differences, np.where(np.isnan(total) | (np.abs(differences) <= TIE_TOLERANCE), 1.0, p)
