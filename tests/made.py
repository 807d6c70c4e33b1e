"""Results made by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.core.catalogue import Catalogue
from stsbench.results.folder import read_item_columns, read_result
from stsbench.results.record import Result, digest_columns, score_bounds, score_name

CATALOGUE = Catalogue()
SIMCSE = {"name": "simcse", "metric": "spearman", "aggregation": "all", "similarity": "cosine"}


COLUMNS: dict[str, Any] = {
    "subset": ["news", "news", "forum"],
    "gold": np.array([0.0, 2.5, 5.0]),
    "similarity": np.array([0.1, 1 / 3, 2 / 3]),
}
"""Their Spearman correlation is 1."""
PEARSON = 0.9948497511671096


def read_items(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The per-item columns of the result at a path."""
    return read_item_columns(read_result(path))


@cache
def card_of(encoder: str) -> str | None:
    """The hash that results of this card or recipe carry; None where the name is neither."""
    stem = encoder.partition("+")[0]
    return min(CATALOGUE.digests(stem)) if CATALOGUE.is_taken(encoder) else None


def make_result(
    encoder: str = "minilm", task: str = "sts12", score: float | None = None, **changes: Any
) -> Result:
    """A Result of three pairs; every field can be given. One whose score is given holds no per-item columns."""
    columns, score = (COLUMNS, 1.0) if score is None else ({}, score)
    protocol, n = changes.get("protocol", SIMCSE), changes.get("n", 3)
    name = score_name(protocol)
    low, high = score_bounds(name)
    fields: dict[str, Any] = {
        "encoder": encoder,
        "task": task,
        "split": "test",
        "score": score,
        "protocol": protocol,
        "scores": {name: score, **({"pearson.all": PEARSON} if "similarity" in protocol else {})},
        "per_subset": {
            "news": {"spearman": 0.9999999999999999, "n": 2},
            "forum": {"n": 1},
        }
        if n == 3 and protocol == SIMCSE and "scores" not in changes
        else {},
        "interval": (max(score - 0.1, low), min(score + 0.1, high)),
        "interval_method": "none",
        "n": n,
        "zero_vectors": 0,
        "overlap": "unknown",
        "train_seed": None,
        "eval_seed": 0,
        "encoder_card": card_of(encoder),
        "fingerprint": f"print of {encoder}",
        "revision": None,
        "task_card": "c" * 64,
        "data": "d" * 64,
        "items": digest_columns(COLUMNS),
        "notes": ["a note, señor"],
        "run": {
            "created": "2026-01-01T00:00:00+00:00",
            "seconds": 0.25,
            "versions": {"python": "3.11.7"},
        },
        "per_item": columns,
    }
    return Result(**{**fields, **changes})
