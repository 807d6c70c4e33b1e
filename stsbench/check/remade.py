"""All numbers of a Result made again from its per-item columns, without an encoder.

What other splits or the labels of training items decide (``dev_accuracy``, ``majority``) cannot be made again, and is
held to what it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from stsbench.errors import cut
from stsbench.evaluators.retrieval.ranks import Ranks, mean_scores, recall_of_images
from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.statistics import AGGREGATIONS, CORRELATIONS, split_parts, subset_indices
from stsbench.results.checks import ROUNDING
from stsbench.results.items import Arrays
from stsbench.results.record import Result

Problems = Iterator[str]
POINTS = 1e-4
"""Accuracies and F1 of probes are rounded to a hundredth of a point."""


def remade_problems(result: Result, columns: Arrays) -> list[str] | None:
    """How a Result's numbers differ from those that its items make; None where nobody knows how they are made.

    The interval is not among them, see :mod:`stsbench.check.intervals`.

    Args:
        result: whose ``scores`` and ``per_subset`` are made again.
        columns: its per-item columns, which make its score.
    """
    make = next((make for field, make in MAKERS.items() if field in result.protocol), None)
    return list(make(result, columns)) if make is not None else None


def _sts(result: Result, columns: Arrays) -> Problems:
    """Every metric by every aggregation, and of each subset."""
    gold, similarity, subset = columns["gold"], columns["similarity"], columns["subset"].tolist()
    for name, value in result.scores.items():
        metric, _, aggregation = name.partition(".")
        if metric not in CORRELATIONS or aggregation not in AGGREGATIONS:
            yield f"field 'scores': '{cut(name)}' is not a score of pairs"
            continue
        indices, shares = split_parts(subset, aggregation)
        made = float(np.dot(shares, [_correlation(metric, similarity[at], gold[at]) for at in indices]))
        yield from _differs(f"field 'scores': '{cut(name)}'", value, made)
    yield from _sts_subsets(result, gold, similarity, subset)


def _sts_subsets(result: Result, gold: Float64Array, similarity: Float64Array, subset: Sequence[str]) -> Problems:
    parts = subset_indices(subset)
    if result.per_subset and set(result.per_subset) != set(parts):
        yield f"field 'per_subset': its {len(result.per_subset)} subsets are not the items' {len(parts)}"
        return
    for name, values in result.per_subset.items():
        at = parts[name]
        for metric, value in values.items():
            known = metric in CORRELATIONS
            made = (
                float(len(at)) if metric == "n" else _correlation(metric, similarity[at], gold[at]) if known else None
            )
            yield from _differs(f"field 'per_subset': '{cut(name)}': '{cut(metric)}'", value, made)


def _correlation(metric: str, values: Float64Array, gold: Float64Array) -> float:
    return CORRELATIONS[metric](values, gold) if np.ptp(values) and np.ptp(gold) else 0.0


def _regressor(result: Result, columns: Arrays) -> Problems:
    gold, prediction = columns["gold"], columns["prediction"]
    made = {metric: _correlation(metric, prediction, gold) for metric in CORRELATIONS}
    made["mse"] = float(np.mean((prediction - gold) ** 2))
    for name, value in result.scores.items():
        if not name.startswith("dev_"):
            yield from _differs(f"field 'scores': '{cut(name)}'", value, made.get(name))


def _probe(result: Result, columns: Arrays) -> Problems:
    """Accuracy is held to its items where these are read; precision needs them alone, recall the class's support too."""
    prediction, correct = columns["prediction"], columns["correct"].astype(bool)
    for label, (name, values) in enumerate(result.per_subset.items()):
        hits, found = int((correct & (prediction == label)).sum()), int((prediction == label).sum())
        support = values.get("support", 0.0)
        made = {
            "precision": hits / found if found else 0.0,
            "recall": hits / support if support else 0.0,
            "f1": 2 * hits / (found + support) if found + support else 0.0,
            "support": max(support, float(hits)),
        }
        for metric, value in values.items():
            yield from _differs(f"field 'per_subset': '{cut(name)}': '{cut(metric)}'", value, made.get(metric))
    classes = list(result.per_subset.values())
    for name, value in result.scores.items():
        if name == "f1" and len(classes) > 1:
            yield from _differs("field 'scores': 'f1'", value, classes[1].get("f1"), off=POINTS)
        if name == "majority" and classes:
            shares = [one.get("support", 0.0) / result.n for one in classes]
            nearest = min(shares, key=lambda share: abs(share - value))
            yield from _differs("field 'scores': 'majority'", value, nearest)


def _retrieval(result: Result, columns: Arrays) -> Problems:
    """Ranks within folds of images make every recall."""
    size, per_image = (int(result.protocol[key]) for key in ("fold_images", "captions_per_image"))
    names = ["i2t_rank", *(f"t2i_rank_{at + 1}" for at in range(per_image))]
    if missing := [name for name in names if name not in columns]:
        yield f"lacks the column '{missing[0]}'"
        return
    ranks = Ranks(columns["i2t_rank"], np.stack([columns[name] for name in names[1:]], axis=1))
    if not np.allclose(recall_of_images(ranks), columns["recall"], rtol=0, atol=ROUNDING):
        yield "column 'recall' is not what the ranks make"
    starts = range(0, result.n, size)
    made = mean_scores([Ranks(ranks.i2t[at : at + size], ranks.t2i[at : at + size]) for at in starts])
    made["mean_recall"] = float(np.mean([value for name, value in made.items() if ".recall@" in name]))
    for name, value in result.scores.items():
        if not name.startswith("dev_"):
            yield from _differs(f"field 'scores': '{cut(name)}'", value, made.get(name))


MAKERS: Mapping[str, Callable[[Result, Arrays], Problems]] = {
    "similarity": _sts,
    "selection": _regressor,
    "kfold": _probe,
    "fold_images": _retrieval,
}
"""What makes the numbers of one evaluator's results, by a field that its protocols alone have."""


def _differs(what: str, value: float, made: float | None, *, off: float = ROUNDING) -> Problems:
    if made is None:
        yield f"{what} is not a number that the items give"
    elif not abs(value - made) <= off:
        yield f"{what} is {value:.6g}, the items make {made:.6g}"
