"""Two encoders of which one has more noise, and a comparison that takes no time."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from stsbench.results.record import Result
from stsbench.significance.comparison_record import TestSettings
from tests.boards.scored import drawn, sts

FEW = TestSettings(n_permutations=99)
SUBSETS = ["news"] * 20 + ["forum"] * 40


def pair(
    task: str = "sts12", *, shift: float = 0.4, n: int = 60, **changes: Any
) -> tuple[Result, Result]:
    """Two encoders on one task, the second with more noise."""
    gold, similarity = drawn(1, n)
    noise = np.random.default_rng(2).normal(size=n)
    return sts("a", task, gold, similarity, **changes), sts(
        "b", task, gold, similarity + shift * noise, **changes
    )


def told(result: Result, start: int = 0) -> Result:
    """The result with a sentence of its own in each item."""
    sentences = {"sentence1": np.arange(start, start + result.n, dtype=np.uint32)}
    return msgspec.structs.replace(result, per_item={**result.per_item, **sentences})
