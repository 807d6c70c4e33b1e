"""What the numbers of tables measure: whether they are points, and which of two is the better one."""

from __future__ import annotations

from typing import Literal, NamedTuple

from stsbench.numbers.statistics import CORRELATIONS


class Metric(NamedTuple):
    """One kind of number."""

    better: Literal["high", "low", ""] = "high"
    points: bool = True
    """Whether tables print it times 100."""


METRICS: dict[str, Metric] = {
    **{row.name: Metric(row.better) for row in CORRELATIONS.values()},
    "matthews": Metric(),
    # The best of four similarities, as early sentence-transformers reported it.
    "spearman_max": Metric(),
    "spearman_change": Metric(""),
    "spearman_edit_distance": Metric(""),
    "accuracy": Metric(),
    "f1": Metric(),
    "mean_recall": Metric(),
    "auc": Metric(),
    "map": Metric(),
    "mrr@10": Metric(),
    # A mean over tasks that are scored in different ways.
    "mixed": Metric(),
    "mse": Metric("low", points=False),
    "training_seconds": Metric("low", points=False),
    "inference_seconds": Metric("low", points=False),
    "milliseconds": Metric("low", points=False),
    "gigabytes": Metric("low", points=False),
    "steps": Metric("", points=False),
    "alignment": Metric("low", points=False),
    "uniformity": Metric("low", points=False),
    "million_parameters": Metric("", points=False),
    "dimensions": Metric("", points=False),
    "mean_norm": Metric("", points=False),
    **{f"knn{k}_{kind}": Metric("", points=False) for k in (3, 5, 7) for kind in ("distance", "dot")},
}
