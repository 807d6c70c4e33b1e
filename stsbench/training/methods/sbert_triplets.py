"""Triplets with in-batch negatives, as sentence-transformers trains on NLI (its MultipleNegativesRankingLoss).

Cosines times a scale of 20, softmax over all positives and negatives of the batch: that is supervised
SimCSE's loss at temperature 0.05, and computed by it. What differs is the order of the corpus.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

import numpy as np

from stsbench.errors import CardError
from stsbench.training.corpus import number_texts
from stsbench.training.methods.simcse import SimCSE
from stsbench.training.seams import Columns, Rows
from stsbench.training.student import Student


class SBERTTriplets(SimCSE):
    """SimCSE's supervised loss over batches in which no text occurs twice."""

    def __init__(
        self, student: Student, *, views: Literal["pairs", "triplets"] = "triplets", scale: float = 20.0
    ) -> None:
        """Choose the columns and the scale.

        Args:
            student: what is trained.
            views: anchors with positives, or with negatives too.
            scale: of the cosine; the inverse of SimCSE's temperature.
        """
        if not scale > 0:
            raise CardError(f"scale {scale}: must be more than 0; 20 is usual")
        super().__init__(student, views=views, temperature=1 / scale)

    def prepare(self, columns: Columns) -> None:
        """Number the distinct texts, (n, columns)."""
        super().prepare(columns)
        self.texts = number_texts(*(columns[name] for name in self.needs)).T

    def order(self, count: int, rng: np.random.Generator, *, batch: int) -> Rows:
        """Shuffled, then rows put off that share a text with one before them in their batch.

        A batch takes the first rows left that share none. Where no more such are left, the last
        rows come as they are: a corpus with one text in most rows has no other order.
        """
        waiting = deque(super().order(count, rng, batch=batch).tolist())
        placed: list[int] = []
        while waiting:
            taken = self._distinct(waiting, batch)
            placed += taken
            if len(taken) < batch:
                placed += waiting
                break
        return np.array(placed, dtype=np.int64)

    def _distinct(self, waiting: deque[int], batch: int) -> list[int]:
        """Take from the front of those waiting up to one batch of rows without a common text."""
        seen: set[int] = set()
        taken: list[int] = []
        put_off: list[int] = []
        while waiting and len(taken) < batch:
            row = waiting.popleft()
            texts = self.texts[row].tolist()
            if seen.isdisjoint(texts):
                taken.append(row)
                seen.update(texts)
            else:
                put_off.append(row)
        waiting.extendleft(reversed(put_off))
        return taken
