"""95% intervals made again from per-item columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.intervals import (
    CORRELATION_METHOD,
    IMAGE_METHOD,
    SHARE_METHOD,
    correlation_interval,
    share_interval,
    sharing_from,
)
from stsbench.numbers.sharing import Sharing
from stsbench.numbers.statistics import split_parts
from stsbench.results.record import Result

OFF = 1e-6
"""Sums in another order differ by less."""


class Job(NamedTuple):
    """A Result whose interval is made again, and its per-item columns."""

    result: Result
    columns: Mapping[str, npt.NDArray[Any]]


def interval_problem(job: Job) -> str | None:
    """How a Result's interval differs from that of its items; None where it does not, or nobody knows how it was made."""
    method = METHODS.get(job.result.interval_method)
    if method is None:
        return None
    (low, high), told = method(job), job.result.interval
    if max(abs(told[0] - low), abs(told[1] - high)) <= OFF:
        return None
    return f"field 'interval': {told[0]:.6g} to {told[1]:.6g}, the items make {low:.6g} to {high:.6g}"


def can_remake_interval(result: Result) -> bool:
    """Whether a Result's interval can be made again."""
    return result.interval_method in METHODS


def _of_correlation(job: Job) -> tuple[float, float]:
    columns, protocol, n = job.columns, job.result.protocol, job.result.n
    subset: Sequence[str] = columns["subset"].tolist() if "subset" in columns else [""] * n
    name = next(name for name in ("similarity", "prediction") if name in columns)
    return correlation_interval(
        job.result.score,
        protocol["metric"],
        columns[name].astype(np.float64),
        columns["gold"].astype(np.float64),
        parts=split_parts(subset, protocol.get("aggregation", "all")),
        sharing=sharing_from(columns, n),
    )


METHODS: Mapping[str, Callable[[Job], tuple[float, float]]] = {
    CORRELATION_METHOD: _of_correlation,
    SHARE_METHOD: lambda job: share_interval(
        job.columns["correct"].astype(np.float64), sharing_from(job.columns, job.result.n)
    ),
    IMAGE_METHOD: lambda job: share_interval(job.columns["recall"].astype(np.float64), Sharing.none(job.result.n)),
}
"""By what results call them."""
