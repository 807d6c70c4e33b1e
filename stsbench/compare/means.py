"""The interval of an encoder's mean: over tasks, over seeds, or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple

import msgspec

from stsbench.compare.row_items import RowItems, RowKey, RowResults, check_alike
from stsbench.compare.variance import Contrast, difference_of, estimate
from stsbench.errors import DataError
from stsbench.results.comparable import protocol_key
from stsbench.results.folder import columns_of
from stsbench.results.record import Result

MEAN_METHOD = "Student's t over items and seeds, with the covariance of items that share a sentence"
Interval = tuple[float, float]


class MeanIntervals(NamedTuple, Generic[RowKey]):
    """The intervals of rows' means over sets of tasks, in the scores' unit; none where a row has none.

    ``lacking`` are the results whose per-item columns are not at hand or broken, ``untold`` those of which no columns tell
    which items share a sentence: with them no interval can be trusted.
    """

    intervals: Mapping[tuple[RowKey, tuple[int, ...]], Interval]
    lacking: Sequence[Result]
    untold: Sequence[Result]


def mean_interval(cells: Sequence[Sequence[Result]]) -> Interval | None:
    """The 95% interval of one encoder's mean over tasks, over other items and other seeds.

    Args:
        cells: the encoder's results on each task, one a seed.

    Returns:
        Low and high, in the scores' unit; None where a task has no per-item columns at hand, no statistic is known
        of them, or they do not tell which items share a sentence.
    """
    tasks = tuple(range(len(cells)))
    return mean_intervals({0: cells}, {0: [tasks]}).intervals.get((0, tasks))


def mean_intervals(
    rows: RowResults[RowKey], wanted: Mapping[RowKey, Sequence[tuple[int, ...]]], scores: Sequence[str] = ()
) -> MeanIntervals[RowKey]:
    """The same of many rows, of each for every set of tasks that is wanted of it; items are read once.

    Args:
        rows: each row's results task by task, several on one task being its seeds, none where it lacks the task.
        wanted: the places of the tasks that a mean is over; one named twice counts twice.
        scores: the score that counts on each task, a name of its results' ``scores``; without any, their own.
    """
    intervals: dict[tuple[RowKey, tuple[int, ...]], Interval] = {}
    lacking: list[Result] = []
    untold: list[Result] = []
    given: dict[int, Result] = {}
    alike: dict[object, dict[RowKey, Sequence[Sequence[Result]]]] = {}
    for key, cells in rows.items():
        read = [[_with_columns(one) for one in seeds] for seeds in cells]
        given |= {
            id(one): was for held, seeds in zip(read, cells, strict=True) for one, was in zip(held, seeds, strict=True)
        }
        missing = [
            one
            for seeds, held in zip(cells, read, strict=True)
            for one, one_read in zip(seeds, held, strict=True)
            if not one_read.per_item
        ]
        lacking += missing
        if not missing:
            # Scores of other data or another protocol have other items.
            ways = tuple((s[0].data, s[0].n, protocol_key(s[0].protocol)) if s else None for s in read)
            alike.setdefault(ways, {})[key] = read
    for group in alike.values():
        items = RowItems(group, scores=scores)
        untold += [given[id(one)] for one in items.untold]
        for key in group:
            for tasks in wanted.get(key, ()):
                interval = _interval_of_mean(items, key, tasks)
                if interval is not None:
                    intervals[key, tasks] = interval
    return MeanIntervals(intervals, lacking, untold)


def _with_columns(result: Result) -> Result:
    """The Result with its per-item columns read; without any where they are missing or broken."""
    try:
        return msgspec.structs.replace(result, per_item=dict(columns_of(result)))
    except DataError:
        return result


def _interval_of_mean(rows: RowItems[RowKey], key: RowKey, tasks: Sequence[int]) -> Interval | None:
    counts = Counter(tasks)
    if not counts or not counts.keys() <= set(rows.tasks(key)) or not rows.told(tuple(counts)):
        return None
    places, shares = tuple(counts), [count / len(tasks) for count in counts.values()]
    low, high = estimate(
        rows.sample(key, places, shares), rows.sharing(places), rows.weights(places, shares)
    ).interval()
    return max(low, -1.0), min(high, 1.0)


def differences_from(reference: RowKey, rows: RowResults[RowKey]) -> dict[RowKey, Contrast]:
    """How far the mean of each other row is from that of one of them, over other items and seeds: row less reference.

    Args:
        reference: the row that the others are compared with.
        rows: each row's results task by task, all rows having the same tasks.

    Returns:
        The differences in the scores' unit, by row; none where per-item columns are not at hand.

    Raises:
        ProtocolError: rows were scored in different ways or on different data; names the field.
    """
    check_alike(rows)
    items = RowItems(rows)
    tasks = tuple(range(len(rows[reference])))
    able = [key for key in rows if items.tasks(key) == tasks]
    if reference not in able:
        return {}
    first, sharing, weights = items.sample(reference, tasks), items.sharing(tasks), items.weights(tasks)
    others = (key for key in able if key != reference)
    return {key: difference_of(first, items.sample(key, tasks), sharing, weights) for key in others}
