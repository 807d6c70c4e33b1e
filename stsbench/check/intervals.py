"""95% intervals made again from per-item columns, those of many results at once.

Results of the same data, protocol and seed have the same bootstrap samples: these are drawn once for all, and gold scores
are ranked once. The numbers are those of the evaluators, summed in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.evaluators.sts import RESAMPLES
from stsbench.numbers.statistics import (
    CORRELATIONS,
    Correlation,
    Counts,
    FloatArray,
    Scale,
    percentile_interval,
    resample,
    split_parts,
)
from stsbench.results.comparable import protocol_key
from stsbench.results.record import Result, columns_digest

OFF = 1e-6
"""Sums in another order, and quantiles between them, differ by less."""


class Job(NamedTuple):
    """A Result whose interval is made again, and its per-item columns."""

    result: Result
    columns: Mapping[str, npt.NDArray[Any]]


class _Method(NamedTuple):
    """How an interval was made: of which column, and the intervals of several results of the same data and seed."""

    column: str
    make: Callable[[FloatArray, Job], list[tuple[float, float]]]


def interval_problems(jobs: Sequence[Job]) -> list[str | None]:
    """How each Result's interval differs from that of its items, or that nobody knows how it was made; None: it does not."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for at, (result, columns) in enumerate(jobs):
        # Not by what results say of their data: by what is drawn from.
        of_data = columns_digest({name: columns[name] for name in ("gold", "subset") if name in columns})
        facts = of_data, result.n, result.eval_seed, protocol_key(result.protocol)
        groups.setdefault((*facts, result.interval_method), []).append(at)
    found: list[str | None] = [None] * len(jobs)
    for group in groups.values():
        mine = [jobs[at] for at in group]
        method = METHODS.get(mine[0].result.interval_method)
        if method is None:
            continue
        values = np.stack([np.asarray(job.columns[method.column], dtype=np.float64) for job in mine])
        for at, job, (low, high) in zip(group, mine, method.make(values, mine[0]), strict=True):
            told = job.result.interval
            if not max(abs(told[0] - low), abs(told[1] - high)) <= OFF:
                ends = f"{told[0]:.6g} to {told[1]:.6g}"
                found[at] = f"field 'interval': {ends}, the items make {low:.6g} to {high:.6g}"
    return found


def is_known(result: Result) -> bool:
    """Whether a Result's interval can be made again."""
    return result.interval_method in METHODS


def _correlated(values: FloatArray, job: Job) -> list[tuple[float, float]]:
    """Intervals of a correlation; averages over subsets are drawn within each subset."""
    gold, protocol = job.columns["gold"].astype(np.float64), job.result.protocol
    metric, aggregation = CORRELATIONS[protocol["metric"]], protocol.get("aggregation", "all")
    subset = job.columns["subset"].tolist() if "subset" in job.columns else [""] * len(gold)
    rng = np.random.default_rng(job.result.eval_seed)
    drawn = np.zeros((len(values), RESAMPLES))
    for at, share in zip(*split_parts(subset, aggregation), strict=True):
        start = 0
        correlate = _resampled(metric, values[:, at], gold[at])
        for counts in resample(len(at), resamples=RESAMPLES, rng=rng):
            drawn[:, start : start + len(counts)] += share * correlate(counts)
            start += len(counts)
    # A regressor that tells nothing apart: 0 stands for the correlation that there is none of.
    return [percentile_interval(row) if np.ptp(value) else (0.0, 0.0) for row, value in zip(drawn, values, strict=True)]


def _resampled(metric: Correlation, values: FloatArray, gold: FloatArray) -> Callable[[Counts], FloatArray]:
    """What makes the correlations of k encoders' values (k, n) within bootstrap samples, (k, b)."""
    if metric.scale is None:
        return lambda counts: np.stack([metric.resampled(row, gold, counts) for row in values])
    return _Weighted(metric.scale, values, gold)


class _Weighted:
    """Pearson's correlation of scaled values with scaled gold scores, within samples given as counts."""

    def __init__(self, scale: Scale, values: FloatArray, gold: FloatArray) -> None:
        self.rows, self.gold = [scale.drawn(row) for row in values], scale.drawn(gold)

    def __call__(self, counts: Counts) -> FloatArray:
        weights, total = counts.astype(np.float64), counts.sum(axis=1)
        gold = np.broadcast_to(self.gold(counts), counts.shape)
        above = gold - (np.einsum("bn,bn->b", weights, gold) / total)[:, None]
        weighted = weights * above
        of_gold = np.einsum("bn,bn->b", weighted, above)
        return np.stack([self._row(scaled(counts), weights, total, weighted, of_gold) for scaled in self.rows])

    @staticmethod
    def _row(
        x: FloatArray, weights: FloatArray, total: Counts, weighted: FloatArray, of_gold: FloatArray
    ) -> FloatArray:
        x = np.broadcast_to(x - x.mean(), weights.shape)
        sums = np.einsum("bn,bn->b", weights, x)
        spread = np.einsum("bn,bn,bn->b", weights, x, x) - sums**2 / total
        flat = (spread <= 0) | (of_gold <= 0)
        root = np.sqrt(np.where(flat, 1.0, spread * of_gold))
        return np.where(flat, np.nan, np.einsum("bn,bn->b", weighted, x) / root)


def _averaged(values: FloatArray, job: Job) -> list[tuple[float, float]]:
    """Intervals of a mean."""
    samples = resample(values.shape[1], resamples=RESAMPLES, rng=np.random.default_rng(job.result.eval_seed))
    means = np.concatenate([values @ counts.T for counts in samples], axis=1) / values.shape[1]
    return [percentile_interval(row) for row in means]


def _shares(values: FloatArray, job: Job) -> list[tuple[float, float]]:
    """Wilson's intervals of the share of items that are right."""
    from scipy.stats import binomtest

    found = [binomtest(int(row.sum()), len(row)).proportion_ci(method="wilson") for row in values]
    return [(float(one.low), float(one.high)) for one in found]


METHODS: Mapping[str, _Method] = {
    f"percentile bootstrap over pairs, {RESAMPLES} resamples": _Method("similarity", _correlated),
    f"percentile bootstrap over test pairs, {RESAMPLES} resamples": _Method("prediction", _correlated),
    f"percentile bootstrap over test images with their captions, {RESAMPLES} resamples": _Method("recall", _averaged),
    "Wilson score interval of the items right": _Method("correct", _shares),
}
"""By what results call them."""
