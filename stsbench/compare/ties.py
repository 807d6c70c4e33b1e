"""Which encoders of a board can be told apart: every two tested on the mean over the tasks that both have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.compare.comparison import Effort
from stsbench.compare.letters import letter_display
from stsbench.compare.paired import holm
from stsbench.compare.ranks import rank_intervals
from stsbench.compare.row_items import RowItems, RowKey, RowResults, check_alike
from stsbench.compare.variance import ROUNDING, Sample, over_seeds
from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.sharing import Sharing
from stsbench.results.record import Result


class RowStanding(NamedTuple):
    """How an encoder stands among others: its rank by the mean and what other items and seeds may make of it.

    ``letters`` are those of a compact letter display. ``is_best``: it is the best, or not significantly different from it.
    ``tasks`` are the places of the tasks that it has.
    """

    rank: int
    ranks: tuple[int, int]
    letters: str
    is_best: bool
    tasks: tuple[int, ...]


class Standings(NamedTuple, Generic[RowKey]):
    """The standing of each row that can be ranked, and over how many pairs of them Holm's correction was taken."""

    rows: Mapping[RowKey, RowStanding]
    tests: int
    level: float
    lacking: Sequence[Result]
    """Results that have no per-item columns at hand: their rows are ranked by their other tasks."""
    untold: Sequence[Result]
    """Results of which no columns tell which items share a sentence: they are taken as independent."""


def standings(rows: RowResults[RowKey], *, effort: Effort | None = None) -> Standings[RowKey]:
    """The ranks of encoders by their mean over tasks, with 95% intervals, and which of them can be told apart.

    Two rows are compared on the tasks that both have, by their difference there: a task that one lacks neither lowers nor
    raises it. Each difference is tested as ``compare`` tests means; p-values are corrected by Holm's method over all pairs.

    Args:
        rows: each row's results task by task, several on one task being its seeds, none where it lacks the task.
        effort: draws, seed, level, and which items err together.

    Raises:
        ProtocolError: rows were scored in different ways or on different data; names the field.
        DataError: per-item columns are broken.
    """
    effort = effort or Effort()
    check_alike(rows)
    items = RowItems(rows, effort.dependence)
    keys = [key for key in rows if items.tasks(key)]
    differences, p = paired_tests(items, keys)
    above = np.sum(differences > ROUNDING, axis=1)
    order = sorted(range(len(keys)), key=lambda at: int(above[at]))
    different = _different(p, effort.level)[np.ix_(order, order)]
    letters = letter_display(different)
    ranks = rank_intervals(items, keys, effort=effort)
    found = {
        keys[at]: RowStanding(
            int(above[at]) + 1, ranks[keys[at]], letters[place], not different[0, place], items.tasks(keys[at])
        )
        for place, at in enumerate(order)
    }
    tests = int(np.isfinite(p).sum()) // 2
    return Standings({key: found[key] for key in keys}, tests, effort.level, items.lacking, items.untold)


def _different(p: Float64Array, level: float) -> npt.NDArray[np.bool_]:
    """Which differences are significant after Holm's correction, (k, k) of the p-values of all pairs."""
    tested = np.triu(np.isfinite(p), 1)
    found = np.zeros(p.shape, dtype=bool)
    found[tested] = np.array(holm(p[tested].tolist())) < level
    return found | found.T


def paired_tests(rows: RowItems[RowKey], keys: Sequence[RowKey]) -> tuple[Float64Array, Float64Array]:
    """Every two rows' difference on the tasks that both have, column less row, and its p-value; both (k, k).

    NaN where they have no task in common, and as the p-value on the diagonal.
    """
    differences, p = np.full((2, len(keys), len(keys)), np.nan)
    for tasks, pairs in _common_tasks(rows, keys).items():
        places = sorted({at for pair in pairs for at in pair})
        at = np.array(pairs).T
        samples = {place: rows.sample(keys[place], tasks) for place in places}
        sharing = rows.sharing(tasks)
        found = _tests(list(samples.values()), sharing, rows.weights(tasks))
        within = np.searchsorted(places, at)
        differences[*at], p[*at] = (matrix[*within] for matrix in found)
        differences[*at[::-1]], p[*at[::-1]] = -differences[*at], p[*at]
    np.fill_diagonal(differences, 0.0)
    return differences, p


def _common_tasks(rows: RowItems[RowKey], keys: Sequence[RowKey]) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """The pairs of rows by the tasks that both have."""
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for first in range(len(keys)):
        for second in range(first + 1, len(keys)):
            both = rows.common(keys[first], keys[second])
            if both:
                found.setdefault(both, []).append((first, second))
    return found


def _tests(samples: Sequence[Sample], sharing: Sharing, weights: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Differences and p-values of every two samples at once, both (k, k): what ``difference_of`` gives of each pair."""
    from scipy import stats

    scores = np.array([sample.score for sample in samples])
    differences = scores[None, :] - scores[:, None]
    count = sharing.effective_items(weights)
    if count < 2:
        return differences, np.ones_like(differences)
    shares = np.array([sample.shares.mean(axis=0) for sample in samples])
    items = sharing.variances_of_differences(shares) * count / (count - 1)
    of_seeds = [[one for one in (over_seeds(s, sharing), *s.drift) if one is not None] for s in samples]
    seeds = np.array([sum(one.error**2 for one in parts) for parts in of_seeds])
    doubts = np.array([sum(one.error**4 / one.df for one in parts) for parts in of_seeds])
    total = items + seeds[:, None] + seeds[None, :]
    doubt = items**2 / (count - 1) + doubts[:, None] + doubts[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        df = np.where(doubt > 0, total**2 / doubt, count - 1)
        p = 2 * stats.t.sf(np.abs(differences) / np.sqrt(total), df)
    p = np.where(np.isnan(total), 1.0, np.where(total > 0, p, 0.0))
    return differences, np.where(np.abs(differences) <= ROUNDING, 1.0, p)
