"""F1 of the class 1, over the same items: what each item moves of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stsbench.numbers.arrays import Float64Array


@dataclass(frozen=True, kw_only=True, eq=False)
class F1Scored:
    """Predictions whose F1 is the score.

    F1 is a ratio of two sums over items, 2 TP / (predicted + true): a share is the item's part in the ratio's first
    order (delta method; Cochran 1977, Sampling Techniques, section 6.3), (2 tp - F1 (predicted + true)) / (predicted + true).

    ``predicted`` are the classes and ``correct`` whether they are right, of each encoder (s, n) for s seeds.
    """

    predicted: Sequence[Float64Array]
    correct: Sequence[Float64Array]

    @property
    def weights(self) -> Float64Array:
        """What share of the score each item is, (n,)."""
        n = self.predicted[0].shape[1]
        return np.full(n, 1 / n)

    def scores(self, encoder: int) -> Float64Array:
        """An encoder's F1 by each seed, (s,); 0 where nothing is predicted or true."""
        hits, marked = self._counts(encoder)
        found: Float64Array = 2 * hits.sum(axis=1) / np.maximum(marked.sum(axis=1), 1)
        return found

    def shares(self, encoder: int) -> Float64Array:
        """How much each item moves an encoder's F1, by each seed, (s, n)."""
        hits, marked = self._counts(encoder)
        found: Float64Array = 2 * hits - self.scores(encoder)[:, None] * marked
        found /= np.maximum(marked.sum(axis=1, keepdims=True), 1)
        return found

    def permuted(self, first: int, second: int, *, permutations: int, rng: np.random.Generator) -> None:
        """Nothing: F1 is no sum over items, so that swaps do not add up."""

    def _counts(self, encoder: int) -> tuple[Float64Array, Float64Array]:
        """Of each item whether it is a hit, and how often it is marked as class 1, by prediction and by truth."""
        predicted = self.predicted[encoder] == 1
        # A wrong answer of two classes is the other class.
        true = np.where(self.correct[encoder] == 1, predicted, ~predicted)
        return (predicted & true).astype(np.float64), predicted.astype(np.float64) + true
