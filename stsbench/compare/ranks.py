"""Rank intervals: which ranks an encoder would have over other draws of the items."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from stsbench.compare.comparison import Effort
from stsbench.compare.items import joint_sharing, read_paired_items
from stsbench.compare.paired import rank_intervals_of_draws
from stsbench.compare.variance import joint_draws, mean_sample
from stsbench.errors import ProtocolError
from stsbench.results.comparable import why_not_comparable
from stsbench.results.record import Result

Key = TypeVar("Key", bound=Hashable)


def rank_intervals(
    rows: Mapping[Key, Sequence[Result]], tasks: Sequence[str], *, effort: Effort | None = None
) -> dict[Key, tuple[int, int]]:
    """The 95% interval of each row's rank by its mean over tasks, 1 the best.

    All rows move together over other items, and each by itself over other seeds; several results of a row on a
    task are its seeds. A row that lacks a task, or whose score has no per-item statistic, has no interval, and
    the others are ranked without it.

    Args:
        rows: each row's results, at least one a task; results of other tasks are ignored.
        tasks: the columns that the mean is over.
        effort: draws, seed, and which items err together.

    Raises:
        ProtocolError: rows were scored in different ways or on different data; names the field.
        DataError: per-item columns are missing or broken.
    """
    effort = effort or Effort()
    whole = {key: [[m for m in row if m.task == task] for task in tasks] for key, row in rows.items()}
    whole = {key: cells for key, cells in whole.items() if cells and all(cells)}
    _check_alike(list(whole.values()), tasks)
    columns = (
        [
            read_paired_items([_one_a_seed(row[at]) for row in whole.values()], effort.dependence)
            for at in range(len(tasks))
        ]
        if whole
        else []
    )
    tested = [items for items in columns if items is not None]
    if not tested or len(tested) < len(columns):
        return {}
    sharings = [items.sharing for items in tested]
    samples = [mean_sample([items.samples[at] for items in tested], sharings) for at in range(len(whole))]
    drawn = joint_draws(samples, joint_sharing(tested), draws=effort.draws, rng=effort.rng(" ".join(tasks)))
    return dict(zip(whole, rank_intervals_of_draws(drawn), strict=True))


def _one_a_seed(results: Sequence[Result]) -> list[Result]:
    return list({one.items: one for one in results}.values())


def _check_alike(rows: Sequence[Sequence[Sequence[Result]]], tasks: Sequence[str]) -> None:
    for at, task in enumerate(tasks):
        results = [one for row in rows for one in row[at]]
        for result in results[1:]:
            why = why_not_comparable(results[0], result)
            if why:
                names = f"'{results[0].encoder}' and '{result.encoder}'"
                raise ProtocolError(f"{task}: {names} cannot be ranked together: {why}")
