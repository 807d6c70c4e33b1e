"""The per-item columns of many encoders on the same tasks, read once: for intervals of means, ranks and ties."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from stsbench.compare.items import Dependence, Items, joint_sharing, pair_items
from stsbench.compare.variance import Sample, mean_sample
from stsbench.errors import ProtocolError
from stsbench.numbers.arrays import Float64Array, IntArray
from stsbench.numbers.sharing import Sharing
from stsbench.results.again import has_columns
from stsbench.results.comparable import why_not_comparable
from stsbench.results.folder import columns_of
from stsbench.results.record import Result

RowKey = TypeVar("RowKey", bound=Hashable)
RowResults = Mapping[RowKey, Sequence[Sequence[Result]]]
"""Each row's results task by task, several on one task being its seeds; none where it lacks the task."""


class RowItems(Generic[RowKey]):
    """The items of rows on t tasks, which all rows that have a task have alike.

    ``names`` are the tasks'. ``lacking`` are results whose per-item columns are not at hand, ``untold`` those of which no
    columns tell which items share a sentence.
    """

    def __init__(
        self,
        rows: RowResults[RowKey],
        dependence: Dependence = "sentences",
        scores: Sequence[str] = (),
        sentences: MutableMapping[int, IntArray] | None = None,
    ) -> None:
        """Read the columns of all rows' results.

        Args:
            rows: each row's results task by task.
            dependence: whether items that share a sentence err together.
            scores: what is compared on each task: a name of its results' ``scores``; without any, their own score.
            sentences: those of tasks' items as other rows tell them; what these rows tell is added.

        Raises:
            DataError: columns are broken, or not of the same items.
        """
        self.lacking: list[Result] = []
        self.untold: list[Result] = []
        self.names: list[str] = []
        self._dependence = dependence
        self._sentences = {} if sentences is None else sentences
        self._tasks: dict[int, Items] = {}
        self._places: dict[RowKey, dict[int, int]] = {key: {} for key in rows}
        self._sharings: dict[tuple[int, ...], Sharing] = {}
        for task in range(max(map(len, rows.values()), default=0)):
            mine = {key: _one_a_seed(cells[task]) for key, cells in rows.items() if cells[task]}
            self._read(task, mine, scores[task] if scores else "")

    def _read(self, task: int, rows: Mapping[RowKey, Sequence[Result]], score: str) -> None:
        lacking = [one for seeds in rows.values() for one in seeds if not has_columns(one)]
        self.lacking += lacking
        whole = {key: seeds for key, seeds in rows.items() if all(map(has_columns, seeds))}
        if not whole:
            return
        columns = [[columns_of(one) for one in seeds] for seeds in whole.values()]
        items = pair_items(list(whole.values()), columns, self._dependence, score, self._sentences.get(task))
        if items is None:
            return
        if items.sentences is not None:
            self._sentences[task] = items.sentences
        self._tasks[task] = items
        self.names.append(next(iter(whole.values()))[0].task)
        if not items.told:
            self.untold += [one for seeds in whole.values() for one in seeds]
        for place, key in enumerate(whole):
            self._places[key][task] = place

    @property
    def all_tasks(self) -> tuple[int, ...]:
        """The tasks, by place, of which any row has items that a statistic is known of."""
        return tuple(self._tasks)

    def tasks(self, key: RowKey) -> tuple[int, ...]:
        """Those of a row."""
        return tuple(self._places[key])

    def common(self, first: RowKey, second: RowKey) -> tuple[int, ...]:
        """Those that both rows have."""
        return tuple(task for task in self._places[first] if task in self._places[second])

    def count(self, task: int) -> int:
        """The number of a task's items."""
        return len(self._tasks[task].sharing)

    def told(self, tasks: Sequence[int]) -> bool:
        """Whether it is known which items of these tasks share a sentence."""
        return all(self._tasks[task].told for task in tasks)

    def sample(self, key: RowKey, tasks: Sequence[int], weights: Sequence[float] | None = None) -> Sample:
        """A row's mean over some tasks that it has, with the items of these one after another; see mean_sample."""
        items = [self._tasks[task] for task in tasks]
        mine = [one.samples[self._places[key][task]] for one, task in zip(items, tasks, strict=True)]
        return mean_sample(mine, [one.sharing for one in items], weights)

    def sharing(self, tasks: Sequence[int]) -> Sharing:
        """The sentences that the items of these tasks share."""
        if tuple(tasks) not in self._sharings:
            self._sharings[tuple(tasks)] = joint_sharing([self._tasks[task] for task in tasks])
        return self._sharings[tuple(tasks)]

    def weights(self, tasks: Sequence[int], weights: Sequence[float] | None = None) -> Float64Array:
        """The share of each of these items in the mean over the tasks, (n,)."""
        shares = [1 / len(tasks)] * len(tasks) if weights is None else weights
        return np.concatenate([w * self._tasks[task].paired.weights for task, w in zip(tasks, shares, strict=True)])


def check_alike(rows: RowResults[RowKey]) -> None:
    """Raise ProtocolError where rows were scored in different ways or on different data; names the field."""
    for cells in zip(*rows.values(), strict=True):
        results = [one for seeds in cells for one in seeds]
        for result in results[1:]:
            why = why_not_comparable(results[0], result)
            if why:
                names = f"'{results[0].encoder}' and '{result.encoder}'"
                raise ProtocolError(f"{result.task}: {names} cannot be ranked together: {why}")


def _one_a_seed(results: Sequence[Result]) -> list[Result]:
    return list({one.items: one for one in results}.values())
