"""The interval of an encoder's mean: over tasks, over seeds, or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

import msgspec

from stsbench.compare.known import mark_of
from stsbench.compare.row_items import RowItems, RowKey, RowResults, check_alike
from stsbench.compare.variance import Contrast, difference_of, estimate
from stsbench.errors import DataError
from stsbench.numbers.arrays import IntArray
from stsbench.numbers.sharing import COLUMNS
from stsbench.results.again import lacking_columns
from stsbench.results.comparable import protocol_key
from stsbench.results.folder import columns_of
from stsbench.results.record import Result

MEAN_METHOD = "Student's t over items and seeds, with the covariance of items that share a sentence"
Interval = tuple[float, float]
OnRow = Callable[[int, int], None]
"""Is told how many rows are done, and how many there are."""
ROWS_AT_ONCE = 64
"""So many rows' items are held at a time: of seven STS tasks some 80 MB."""


def unwatched(done: int, total: int) -> None:
    """Where nobody watches."""


class MeanIntervals(NamedTuple, Generic[RowKey]):
    """The intervals of rows' means over sets of tasks, in the scores' unit; none where a row has none.

    ``lacking`` are the results whose per-item columns are not at hand or broken, ``untold`` those of which no columns tell
    which items share a sentence: with them no interval can be trusted.
    """

    intervals: dict[tuple[RowKey, tuple[int, ...]], Interval]
    lacking: list[Result]
    untold: list[Result]


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
    rows: RowResults[RowKey],
    wanted: Mapping[RowKey, Sequence[tuple[int, ...]]],
    scores: Sequence[str] = (),
    known: MutableMapping[str, Interval] | None = None,
    progress: OnRow = unwatched,
) -> MeanIntervals[RowKey]:
    """The same of many rows, of each for every set of tasks that is wanted of it; few rows' items are held at a time.

    Args:
        rows: each row's results task by task, several on one task being its seeds, none where it lacks the task.
        wanted: the places of the tasks that a mean is over; one named twice counts twice.
        scores: the score that counts on each task, a name of its results' ``scores``; without any, their own.
        known: intervals computed before, by a hash of what they were computed from; those of now are added.
        progress: is told how many rows are done, and how many there are.
    """
    found: MeanIntervals[RowKey] = MeanIntervals({}, [], [])
    alike: dict[object, dict[RowKey, Sequence[Sequence[Result]]]] = {}
    done = _Counter(len(rows), progress)
    for key, cells in rows.items():
        lacking = lacking_columns(one for seeds in cells for one in seeds)
        found.lacking.extend(lacking)
        if lacking:
            done.count()
        else:
            # Scores of other data or another protocol have other items.
            ways = tuple((s[0].data, s[0].n, protocol_key(s[0].protocol)) if s else None for s in cells)
            alike.setdefault(ways, {})[key] = cells
    for group in alike.values():
        _Group(group, wanted, scores, found, {} if known is None else known, done).add()
    places = {id(one): at for at, one in enumerate(one for cells in rows.values() for seeds in cells for one in seeds)}
    for results in (found.lacking, found.untold):
        results.sort(key=lambda one: places[id(one)])
    return found


@dataclass
class _Counter:
    """Counts the rows that are done; those read once more, for the sentences they tell, are done already."""

    total: int
    progress: OnRow
    done: int = 0

    def count(self) -> None:
        """One more row is done."""
        self.done = min(self.done + 1, self.total)
        self.progress(self.done, self.total)


class _Group(Generic[RowKey]):
    """Rows of the same items, read a few at a time."""

    def __init__(
        self,
        rows: RowResults[RowKey],
        wanted: Mapping[RowKey, Sequence[tuple[int, ...]]],
        scores: Sequence[str],
        found: MeanIntervals[RowKey],
        known: MutableMapping[str, Interval],
        done: _Counter,
    ) -> None:
        self._rows, self._wanted, self._scores, self._found, self._known = rows, wanted, scores, found, known
        self._done = done
        self._sentences: dict[int, IntArray] = {}
        """The sentences of each task's items, as any row read so far tells them."""

    def add(self) -> None:
        """Find the intervals of all rows."""
        known = {key: None for key in self._rows if self._take_known(key)}
        untold = self._read([key for key in self._rows if key not in known])
        if untold:
            # What the columns of these do not tell, those of other rows may.
            self._read(list(known))
            again = {key: None for key, tasks in untold.items() if self._sentences.keys() & set(tasks)}
            untold = {key: tasks for key, tasks in untold.items() if key not in again} | self._read(list(again))
        self._found.untold.extend(one for key, tasks in untold.items() for at in tasks for one in self._rows[key][at])

    def _take_known(self, key: RowKey) -> bool:
        """Whether all of a row's intervals were computed before."""
        marks = {tasks: mark_of(self._rows[key], tasks, self._scores) for tasks in self._wanted.get(key, ())}
        found = {(key, tasks): self._known[mark] for tasks, mark in marks.items() if mark and mark in self._known}
        self._found.intervals.update(found)
        if len(found) < len(marks):
            return False
        self._done.count()
        return True

    def _read(self, keys: Sequence[RowKey]) -> dict[RowKey, list[int]]:
        """Compute the intervals of some rows; the tasks of which nothing tells the sentences, by row."""
        untold: dict[RowKey, list[int]] = {}
        for start in range(0, len(keys), ROWS_AT_ONCE):
            read = {key: self._with_columns(self._rows[key]) for key in keys[start : start + ROWS_AT_ONCE]}
            rows = {key: cells for key, cells in read.items() if cells is not None}
            items = RowItems(rows, scores=self._scores, sentences=self._sentences)
            for key in rows:
                tasks = [at for at in items.tasks(key) if not items.told((at,))]
                untold |= {key: tasks} if tasks else {}
                self._compute(items, key, rows[key])
        return untold

    def _with_columns(self, cells: Sequence[Sequence[Result]]) -> list[list[Result]] | None:
        """A row's results with their columns; None where some are broken."""
        self._done.count()
        whole, read = True, []
        for seeds in cells:
            read.append(list(seeds))
            for at, one in enumerate(seeds):
                try:
                    read[-1][at] = msgspec.structs.replace(one, per_item=dict(columns_of(one)))
                except DataError:
                    self._found.lacking.append(one)
                    whole = False
        return read if whole else None

    def _compute(self, items: RowItems[RowKey], key: RowKey, read: Sequence[Sequence[Result]]) -> None:
        for tasks in self._wanted.get(key, ()):
            interval = _interval_of_mean(items, key, tasks)
            if interval is None:
                continue
            self._found.intervals[key, tasks] = interval
            mark = mark_of(self._rows[key], tasks, self._scores)
            # One that hangs on what another row tells is not of this row alone.
            if mark and all(any(set(COLUMNS) & set(one.per_item) for one in read[at]) for at in tasks):
                self._known[mark] = interval


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
