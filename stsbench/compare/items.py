"""The per-item columns of several results, put side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.compare.paired import Averaged, Correlated, Paired
from stsbench.errors import DataError
from stsbench.numbers.statistics import AGGREGATIONS, CORRELATIONS, Correlation, Parts, split_parts
from stsbench.results.folder import columns_of
from stsbench.results.record import Result


def paired(encoders: Sequence[Sequence[Result]]) -> Paired | None:
    """The per-item columns of k encoders on one task, s seeds each; None where no paired test is known.

    Raises:
        DataError: columns are missing or broken, or their items are not the same.
    """
    columns = [[columns_of(one) for one in seeds] for seeds in encoders]
    first, protocol = columns[0][0], encoders[0][0].protocol
    tested = tested_column(first, protocol)
    if tested is None:
        return None
    value, metric = tested
    if metric is None or metric.scale is None:
        return Averaged(values=_stack(columns, value))
    gold = _stack(columns, "gold")
    if not (gold == gold[0, 0]).all():
        raise DataError(f"{encoders[0][0].task}: the results' gold scores are not the same")
    parts, shares = _parts(first, protocol)
    return Correlated(values=_stack(columns, value), gold=gold[0, 0], parts=parts, weights=shares, scale=metric.scale)


class TestedColumn(NamedTuple):
    """The per-item column that a paired test compares, and the correlation with gold scores that makes the score of it."""

    name: str
    metric: Correlation | None
    """None where the score is the column's mean."""


def tested_column(columns: Collection[str], protocol: Mapping[str, Any]) -> TestedColumn | None:
    """Which of these columns a paired test compares; None where no paired test is known.

    Args:
        columns: the names of a result's per-item columns.
        protocol: how the result was scored.
    """
    for name in ("correct", "recall"):
        if name in columns:
            return TestedColumn(name, None)
    metric = CORRELATIONS.get(str(protocol.get("metric")))
    value = next((name for name in ("similarity", "prediction") if name in columns), None)
    if "gold" not in columns or value is None or metric is None or metric.scale is None:
        return None
    return TestedColumn(value, metric)


def _stack(columns: Sequence[Sequence[Mapping[str, npt.NDArray[Any]]]], name: str) -> npt.NDArray[np.float64]:
    """One column of all encoders and seeds, (k, s, n)."""
    rows = [[np.asarray(one[name], dtype=np.float64) for one in seeds if name in one] for seeds in columns]
    shapes = {row.shape for seeds in rows for row in seeds}
    if len(shapes) != 1 or {len(seeds) for seeds in rows} != {len(columns[0])}:
        raise DataError(f"the results' per-item columns '{name}' are not of the same items")
    return np.array(rows)


def _parts(columns: Mapping[str, npt.NDArray[Any]], protocol: Mapping[str, Any]) -> Parts:
    """The items that are correlated together; all of them where the protocol says nothing of subsets.

    Raises:
        DataError: an aggregation that does not exist, or of subsets that the columns do not tell.
    """
    aggregation = str(protocol.get("aggregation", "all"))
    if aggregation not in AGGREGATIONS:
        raise DataError(f"a result's aggregation '{aggregation}' is none of {', '.join(AGGREGATIONS)}")
    if AGGREGATIONS[aggregation] is None:
        return split_parts([""] * len(columns["gold"]), aggregation)
    if "subset" not in columns:
        raise DataError(f"a result is aggregated by '{aggregation}', and its per-item columns hold no subsets")
    return split_parts(columns["subset"].tolist(), aggregation)
