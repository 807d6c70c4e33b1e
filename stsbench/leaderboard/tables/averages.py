"""Averages of a row: as the paper rounds them and exact, refused where a cell is missing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from stsbench.errors import choose
from stsbench.leaderboard.published.specs import AverageFacts
from stsbench.leaderboard.tables.runs import Series
from stsbench.leaderboard.tables.table import Number, Terms
from stsbench.numbers.spread import spread


def mean_of(terms: Terms, value: Callable[[str], float | None]) -> float | None:
    """The mean of columns, a list of them counting as one; None where one is missing."""
    means = []
    for term in terms:
        values = [value(key) for key in ([term] if isinstance(term, str) else term)]
        known = [v for v in values if v is not None]
        if len(known) < len(values) or not values:
            return None
        means.append(statistics.fmean(known))
    return statistics.fmean(means) if means else None


def published_average(terms: Terms, numbers: Mapping[str, Number]) -> float | None:
    """The exact mean of printed cells."""
    return mean_of(terms, lambda key: numbers[key].value if key in numbers else None)


ROUNDINGS: Mapping[str, Callable[[Terms, Mapping[str, float], int], float | None]] = {
    "cells": lambda terms, means, d: _rounded(mean_of(terms, lambda key: round(means[key], d)), d),
    "once": lambda terms, means, d: _rounded(mean_of(terms, means.get), d),
    "never": lambda terms, means, d: mean_of(terms, means.get),
}
"""How papers round the average of a row: columns, their values and the decimals to what is shown."""


def _rounded(value: float | None, decimals: int) -> float | None:
    return None if value is None else round(value, decimals)


def measured_averages(
    terms: Terms, columns: Mapping[str, Series], facts: AverageFacts, decimals: int
) -> tuple[Number, Number] | None:
    """The average as the paper rounds it, and the exact one; None where a cell is missing.

    The deviation is that of the averages of single seeds, where every cell has the same seeds.
    """
    means = {key: statistics.fmean(one.values()) for key, one in columns.items() if one}
    exact = mean_of(terms, means.get)
    if exact is None:
        return None
    shown = choose("rounding", facts.rounding, ROUNDINGS)(terms, means, decimals) or 0.0
    used = [key for term in terms for key in ([term] if isinstance(term, str) else term)]
    deviation = _deviation(terms, [columns[key] for key in used], columns)
    seeds = max(len(columns[key]) for key in used)
    return Number(shown, deviation, seeds=seeds), Number(exact, deviation, seeds=seeds)


def _deviation(terms: Terms, used: Sequence[Series], columns: Mapping[str, Series]) -> float | None:
    seeds = set(used[0])
    if len(seeds) < 2 or any(set(one) != seeds for one in used):
        return None
    by_seed = [mean_of(terms, lambda key, seed=seed: columns[key].get(seed)) for seed in seeds]  # type: ignore[misc]
    return spread([mean for mean in by_seed if mean is not None]).deviation
