"""Rank intervals: which ranks an encoder would have over other draws of the items."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stsbench.compare.comparison import Effort
from stsbench.compare.row_items import RowItems, RowKey
from stsbench.compare.variance import Sample, joint_draws
from stsbench.numbers.arrays import Float64Array


def rank_intervals(
    rows: RowItems[RowKey], keys: Sequence[RowKey], *, effort: Effort, level: float = 0.95
) -> dict[RowKey, tuple[int, int]]:
    """The 95% interval of each row's rank by its mean over tasks, 1 the best.

    All rows move together over other items, and each by itself over other seeds. In a draw a row's rank is one more than the
    number of those above it (Goldstein and Spiegelhalter 1996), each of two being scored on the tasks that both have.

    Args:
        rows: the items of all rows.
        keys: the rows that are ranked; each has at least one task.
        effort: draws and seed.
        level: how much of the draws an interval holds.
    """
    if not keys:
        return {}
    drawn = _draws(rows, keys, effort)
    found = {}
    for key in keys:
        pairs = [(rows.common(key, other), other) for other in keys]
        above = [drawn[other, tasks] > drawn[key, tasks] for tasks, other in pairs if tasks]
        ranks = 1 + np.sum(above, axis=0)
        low, high = np.quantile(ranks, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
        found[key] = int(low), int(high)
    return found


def _draws(
    rows: RowItems[RowKey], keys: Sequence[RowKey], effort: Effort
) -> dict[tuple[RowKey, tuple[int, ...]], Float64Array]:
    """Each row's mean over the tasks that it shares with any other, as each draw has it, (draws,)."""
    means = list(dict.fromkeys((key, tasks) for key in keys for other in keys if (tasks := rows.common(key, other))))
    starts = np.cumsum([0, *map(rows.count, rows.all_tasks)])
    samples = []
    for key, tasks in means:
        mean = rows.sample(key, tasks)
        # The items of tasks that it lacks, or that are left out, move it not at all.
        shares = np.zeros((len(mean.shares), starts[-1]))
        shares[:, np.concatenate([np.arange(*starts[rows.all_tasks.index(t) :][:2]) for t in tasks])] = mean.shares
        samples.append(Sample(mean.scores, shares, mean.seeds, mean.drift))
    owners = [keys.index(key) for key, _ in means]
    rng = effort.rng(" ".join(rows.names))
    drawn = joint_draws(samples, rows.sharing(rows.all_tasks), draws=effort.draws, rng=rng, owners=owners)
    return dict(zip(means, drawn, strict=True))
