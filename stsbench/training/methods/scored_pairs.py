"""What methods share that learn from pairs of sentences with gold scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from stsbench.errors import DataError
from stsbench.training.seams import Batch, Columns, Learner, Rows

GoldScores = npt.NDArray[np.float64]
"""One of each pair, (n,)."""


class ScoredPairs(Learner):
    """A batch is pairs and their scores; a method says what of the scores it learns from."""

    chunks = True
    needs = ("first", "second", "score")

    def prepare(self, columns: Columns) -> None:
        """Take the scores; raises as :meth:`learned_scores`."""
        super().prepare(columns)
        scores = np.array(list(columns["score"]), dtype=np.float64)
        self.scores = torch.from_numpy(self.learned_scores(scores)).float()

    def learned_scores(self, scores: GoldScores) -> GoldScores:
        """What is learned from the scores of all pairs, (n,); by default they themselves.

        Raises:
            DataError: one is no number; says which.
        """
        if len(wrong := np.flatnonzero(~np.isfinite(scores))):
            raise DataError(f"row {wrong[0] + 1}: score {scores[wrong[0]]:g} is no number; leave the pair out")
        return scores

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """First sentences above second ones, and their scores (b,)."""
        return {"views": self.views(("first", "second"), rows), "scores": self.scores[torch.from_numpy(rows)]}
