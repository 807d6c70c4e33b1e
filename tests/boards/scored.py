"""Results whose scores are those of their per-item columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.evaluators.probe.evaluator import PROTOCOLS
from stsbench.numbers.statistics import CORRELATIONS, Float64Array
from stsbench.results.folder import write_result
from stsbench.results.record import Result, digest_columns, score_name
from tests.made import SIMCSE, make_result

SENTEVAL = json.loads(json.dumps(asdict(PROTOCOLS["senteval"])))
RUN = {
    "created": "2026-01-01T00:00:00+00:00",
    "device": "cpu",
    "dtype": "float32",
    "versions": {"python": "3.11.7", "torch": "2.13.0"},
}


def sts(
    encoder: str,
    task: str,
    gold: Float64Array,
    similarity: Float64Array,
    *,
    subset: Sequence[str] = (),
    **changes: Any,
) -> Result:
    protocol = changes.get("protocol", SIMCSE)
    names = list(subset) or [""] * len(gold)
    parts = [[i for i, name in enumerate(names) if name == part] for part in dict.fromkeys(names)]
    if protocol["aggregation"] == "all":
        parts = [list(range(len(gold)))]
    correlate = CORRELATIONS[protocol["metric"]]
    values = [correlate(similarity[at], gold[at]) for at in parts]
    weights = [len(at) if protocol["aggregation"] == "wmean" else 1 for at in parts]
    items = {"subset": names, "gold": gold, "similarity": similarity}
    score = float(np.average(values, weights=weights))
    pearson = CORRELATIONS["pearson"](similarity, gold)
    scores = {"pearson.all": pearson, score_name(protocol): score}
    return _result(encoder, task, score, len(gold), items, {"scores": scores, **changes})


def probe(encoder: str, task: str, correct: Sequence[bool] | Any, **changes: Any) -> Result:
    right = np.asarray(correct, dtype=bool)
    items = {"prediction": right.astype(np.int64), "correct": right}
    return _result(
        encoder, task, float(right.mean()), len(right), items, {"protocol": SENTEVAL, **changes}
    )


def _result(
    encoder: str, task: str, score: float, n: int, items: dict[str, Any], changes: dict[str, Any]
) -> Result:
    fixed = {"n": n, "items": digest_columns(items), "per_item": items, "run": RUN, "notes": []}
    scores = {score_name(changes.get("protocol", SIMCSE)): score}
    return make_result(encoder, task, **{"score": score, "scores": scores, **fixed, **changes})


def drawn(seed: int, n: int = 60) -> tuple[Float64Array, Float64Array]:
    """Gold scores, and similarities that follow them."""
    rng = np.random.default_rng(seed)
    gold = np.clip(np.round(2 * rng.normal(size=n) + 2.5), 0, 5)
    return gold, gold / 5 + 0.3 * rng.normal(size=n)


def write(folder: Path, *results: Result) -> Path:
    for result in results:
        write_result(result, folder)
    return folder
