"""Triplets with in-batch negatives, as sentence-transformers trains on NLI (its MultipleNegativesRankingLoss).

Cosines times a scale of 20, softmax over all positives and negatives of the batch: that is supervised
SimCSE's loss at temperature 0.05. What differs is the order of the corpus.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Literal

import numpy as np
import torch

from stsbench.data.corpora.corpus import number_texts
from stsbench.errors import CardError, choose
from stsbench.training.loop.gather import check_negatives, gather_pairs
from stsbench.training.methods.simcse import PAIRING
from stsbench.training.objectives import GivenEmbeddings, library_loss
from stsbench.training.seams import Batch, Columns, Learner, Rows
from stsbench.training.student import Student


class SBERTTriplets(Learner):
    """Each anchor finds its positive, over batches in which no text occurs twice."""

    chunks = True

    def __init__(
        self, student: Student, *, views: Literal["pairs", "triplets"] = "triplets", scale: float = 20.0
    ) -> None:
        """Choose the columns and the scale.

        Args:
            student: what is trained.
            views: anchors with positives, or with negatives too.
            scale: of the cosine; the inverse of SimCSE's temperature.
        """
        super().__init__(student)
        if not 0 < scale < math.inf:
            raise CardError(f"scale {scale}: must be more than 0; 20 is usual")
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

        self.needs = choose("views", views, PAIRING)
        self.loss = MultipleNegativesRankingLoss(GivenEmbeddings(), scale=scale)

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

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """All columns one below the other."""
        if len(self.needs) < 3:
            check_negatives(len(rows))
        return {"views": self.views(self.needs, rows)}

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The cross-entropy over the sentences of all ranks."""
        columns = gather_pairs(self.student.embed(batch["views"]), len(self.needs))
        return {"loss": library_loss(self.loss, *columns)}
