"""The per-item columns of several results, put side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.compare.f1 import F1Scored
from stsbench.compare.paired import Averaged, Correlated, Paired
from stsbench.compare.variance import Sample
from stsbench.errors import DataError
from stsbench.numbers.arrays import Float64Array, IntArray
from stsbench.numbers.sharing import Sharing, sentences_of
from stsbench.numbers.statistics import AGGREGATIONS, CORRELATIONS, Correlation, Parts, split_parts
from stsbench.results.folder import columns_of
from stsbench.results.record import Result

MEANS = {"correct": "accuracy", "recall": "mean_recall"}
"""The score that is the mean of a per-item column."""
Dependence = Literal["sentences", "none"]
"""Whether items that share a sentence are taken to err together, or every item by itself."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """The items of one task, what they say of k encoders, and which sentences they hold, (n, m), where it is known."""

    paired: Paired
    samples: Sequence[Sample]
    sentences: IntArray | None
    sharing: Sharing
    told: bool
    """Whether it is known which items share a sentence; images, whose recall is the score, hold none."""


def read_paired_items(encoders: Sequence[Sequence[Result]], dependence: Dependence = "sentences") -> Items | None:
    """The per-item columns of k encoders on one task, each with its seeds; None where no paired test is known.

    Raises:
        DataError: columns are missing or broken, or their items are not the same.
    """
    return pair_items(encoders, [[columns_of(one) for one in seeds] for seeds in encoders], dependence)


def pair_items(
    encoders: Sequence[Sequence[Result]],
    columns: Sequence[Sequence[Mapping[str, npt.NDArray[Any]]]],
    dependence: Dependence = "sentences",
    score: str = "",
    sentences: IntArray | None = None,
) -> Items | None:
    """The same of columns that are read: those of each encoder's Results.

    Args:
        encoders: each encoder's Results.
        columns: theirs.
        dependence: whether items that share a sentence err together.
        score: another score than the Results' own.
        sentences: the items' sentences, where these columns do not tell them.
    """
    found = _paired(encoders[0][0], columns, score)
    if found is None:
        return None
    sentences = _sentences(columns, sentences) if dependence == "sentences" else None
    n = len(found.weights)
    return Items(
        paired=found,
        samples=[_sample(found, at, seeds) for at, seeds in enumerate(encoders)],
        sentences=sentences,
        sharing=Sharing.none(n) if sentences is None else Sharing(sentences),
        told=sentences is not None or "recall" in columns[0][0],
    )


def joint_sharing(tasks: Sequence[Items]) -> Sharing:
    """The sentences of several tasks' items, one task after another: items of different tasks may share one."""
    rows, alone = [], -1
    for one in tasks:
        n = len(one.sharing)
        if one.sentences is None:
            # Negative numbers are no sentence's: every such item is by itself.
            rows.append(np.repeat(np.arange(alone, alone - n, -1)[:, None], 2, axis=1))
            alone -= n
        else:
            rows.append(np.stack([one.sentences[:, 0], one.sentences[:, -1]], axis=1))
    return Sharing(np.concatenate(rows))


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
    for name in MEANS:
        if name in columns:
            return TestedColumn(name, None)
    metric = CORRELATIONS.get(str(protocol.get("metric")))
    value = next((name for name in ("similarity", "prediction") if name in columns), None)
    if "gold" not in columns or value is None or metric is None:
        return None
    return TestedColumn(value, metric)


def _paired(result: Result, columns: Sequence[Sequence[Mapping[str, npt.NDArray[Any]]]], score: str) -> Paired | None:
    first, protocol = columns[0][0], dict(result.protocol)
    if score == "f1":
        return _f1_scored(columns) if {"prediction", "correct"} <= set(first) else None
    metric, _, aggregation = score.partition(".")
    protocol |= {"metric": metric} if metric else {}
    protocol |= {"aggregation": aggregation} if aggregation else {}
    tested = tested_column(first, protocol)
    # The mean of a column is one score; those beside it, such as the best rank, are of no column.
    if tested is None or (tested.metric is None and metric not in ("", MEANS[tested.name])):
        return None
    values = _stack(columns, tested.name)
    if tested.metric is None:
        return Averaged(values=values)
    gold = _stack(columns, "gold")
    if not all((rows == gold[0][0]).all() for rows in gold):
        raise DataError(f"{result.task}: the results' gold scores are not the same")
    return Correlated(values=values, gold=gold[0][0], parts=_parts(first, protocol), metric=tested.metric.name)


def _f1_scored(columns: Sequence[Sequence[Mapping[str, npt.NDArray[Any]]]]) -> F1Scored | None:
    """None of more than two classes: a wrong answer does not tell which was right."""
    predicted = _stack(columns, "prediction")
    if max(row.max(initial=0) for row in predicted) > 1:
        return None
    return F1Scored(predicted=predicted, correct=_stack(columns, "correct"))


def _sample(found: Paired, encoder: int, results: Sequence[Result]) -> Sample:
    """An encoder's scores by seed: by training seed where there are several, averaged over evaluation seeds."""
    trained = len({one.train_seed for one in results}) > 1
    keys = [one.train_seed if trained else one.eval_seed for one in results]
    seeds = tuple(dict.fromkeys(keys))
    scores, shares = found.scores(encoder), found.shares(encoder)
    members = [[at for at, key in enumerate(keys) if key == seed] for seed in seeds]
    return Sample(
        np.array([scores[at].mean() for at in members]),
        np.array([shares[at].mean(axis=0) for at in members]),
        tuple(("training" if trained else "evaluation", seed) for seed in seeds) if len(seeds) > 1 else (),
    )


def _sentences(
    columns: Sequence[Sequence[Mapping[str, npt.NDArray[Any]]]], otherwise: IntArray | None
) -> IntArray | None:
    """The items' sentences as any of the results tells them."""
    known = (sentences_of(one) for seeds in columns for one in seeds)
    return next((one for one in known if one is not None), otherwise)


def _stack(columns: Sequence[Sequence[Mapping[str, npt.NDArray[Any]]]], name: str) -> list[Float64Array]:
    """One column of each encoder, (s, n)."""
    rows = [[np.asarray(one[name], dtype=np.float64) for one in seeds if name in one] for seeds in columns]
    shapes = {row.shape for seeds in rows for row in seeds}
    if len(shapes) != 1 or [len(seeds) for seeds in rows] != [len(seeds) for seeds in columns]:
        raise DataError(f"the results' per-item columns '{name}' are not of the same items")
    return [np.array(seeds) for seeds in rows]


def _parts(columns: Mapping[str, npt.NDArray[Any]], protocol: Mapping[str, Any]) -> Parts:
    """The items that are correlated together; all of them where the protocol says nothing of subsets.

    Raises:
        DataError: an aggregation that does not exist, or of subsets that the columns do not tell.
    """
    aggregation = str(protocol.get("aggregation", "all"))
    if aggregation not in AGGREGATIONS:
        raise DataError(f"a result's aggregation '{aggregation}' is not one of {', '.join(AGGREGATIONS)}")
    if AGGREGATIONS[aggregation] is None:
        return split_parts([""] * len(columns["gold"]), aggregation)
    if "subset" not in columns:
        raise DataError(f"a result is aggregated by '{aggregation}', and its per-item columns hold no subsets")
    return split_parts(columns["subset"].tolist(), aggregation)
