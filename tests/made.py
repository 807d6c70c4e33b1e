"""Results made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from stsbench.results import Result, columns_digest

SIMCSE = {"name": "simcse", "metric": "spearman", "aggregation": "all", "similarity": "cosine"}


def make_result(encoder: str = "minilm", task: str = "sts12", score: float = 0.5, **changes: Any) -> Result:
    """A Result of three pairs; every field can be given."""
    per_item: dict[str, Any] = {
        "subset": ["news", "news", "forum"],
        "gold": np.array([0.0, 2.5, 5.0]),
        "similarity": np.array([0.1, 1 / 3, 2 / 3]),
    }
    fields: dict[str, Any] = {
        "encoder": encoder,
        "task": task,
        "split": "test",
        "score": score,
        "protocol": SIMCSE,
        "scores": {"spearman.all": score, "pearson.all": 1 / 3},
        "per_subset": {"news": {"spearman": 0.1 + 0.2, "n": 2}, "forum": {"spearman": -1e-17, "n": 1}},
        "interval": (score - 0.1, score + 0.1),
        "interval_method": "none",
        "n": 3,
        "zero_vectors": 0,
        "overlap": "unknown",
        "train_seed": None,
        "eval_seed": 0,
        "encoder_card": None,
        "fingerprint": f"print of {encoder}",
        "revision": None,
        "task_card": "c" * 64,
        "data": "d" * 64,
        "items": columns_digest(per_item),
        "notes": ["a note, señor"],
        "run": {"created": "2026-01-01T00:00:00+00:00", "seconds": 0.25, "versions": {"python": "3.11.7"}},
        "per_item": per_item,
    }
    return Result(**{**fields, **changes})
