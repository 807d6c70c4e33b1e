"""Scores over a part of a Result's items, from its per-item columns alone: nothing is embedded again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.compare.items import pair_items
from stsbench.compare.paired import Averaged, Correlated
from stsbench.errors import DataError
from stsbench.numbers.intervals import FEWEST, correlation_interval, share_interval
from stsbench.numbers.sharing import COLUMNS, sentence_columns, sentences_of
from stsbench.results.folder import columns_of
from stsbench.results.record import CleanScore, Result


def clean_scores(results: Sequence[Result]) -> dict[str, list[CleanScore]]:
    """The clean scores that all of an encoder's Results on a task have, one a Result, by what tables call them."""
    by_name = [{one.name: one for one in result.clean} for result in results]
    return {name: [one[name] for one in by_name] for name in by_name[0] if all(name in one for one in by_name)}


class PartScore(NamedTuple):
    """The score of a part of the items, its 95% interval and how many they are; of too few there is no score."""

    n: int
    score: float | None
    interval: tuple[float, float] | None


def score_without(result: Result, sentences: list[str]) -> PartScore:
    """The score over the items that hold none of these sentences.

    The score of a probe is the share of right answers, where that of all items is a mean over folds.

    Raises:
        DataError: the per-item columns are missing or broken, or tell neither sentences nor a score.
    """
    columns = columns_of(result)
    held = sentences_of(columns)
    if held is None:
        known = "the items are no sentences" if "recall" in columns else f"its per-item columns lack {COLUMNS[0]}"
        raise DataError(f"{result.encoder} on {result.task}: no part of the items has a score: {known}")
    seen = np.isin(held, sentence_columns(sentences)[COLUMNS[0]])
    kept = np.array([not any(item) for item in seen])
    if kept.all():
        return PartScore(result.n, result.score, result.interval)
    return _scored(result, columns, kept)


def _scored(result: Result, columns: Mapping[str, npt.NDArray[Any]], kept: npt.NDArray[np.bool_]) -> PartScore:
    n = int(kept.sum())
    if n < FEWEST:
        return PartScore(n, None, None)
    items = pair_items([[result]], [[{name: column[kept] for name, column in columns.items()}]])
    if items is None:
        raise DataError(f"{result.encoder} on {result.task}: nobody knows how its per-item columns make a score")
    found = items.paired
    score = float(found.scores(0)[0])
    if isinstance(found, Averaged):
        return PartScore(n, score, share_interval(found.values[0][0], items.sharing))
    if not isinstance(found, Correlated) or np.isnan(score):
        return PartScore(n, None, None)
    ends = correlation_interval(
        score, found.metric, found.values[0][0], found.gold, parts=found.parts, sharing=items.sharing
    )
    return PartScore(n, score, ends)
