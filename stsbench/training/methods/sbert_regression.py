"""SBERT's regression objective: the cosine of two sentences is their gold score.

Reimers and Gurevych 2019, https://aclanthology.org/D19-1410, sections 3 and 4.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stsbench.errors import CardError, DataError
from stsbench.training.methods.scored_pairs import GoldScores, ScoredPairs
from stsbench.training.objectives import GivenEmbeddings, library_loss
from stsbench.training.student import Student


class SBERTRegression(ScoredPairs):
    """Squared error between the cosine and the gold score, scaled to at most 1."""

    def __init__(self, student: Student, *, highest_score: float = 5.0) -> None:
        """Choose the scale.

        Args:
            student: what is trained.
            highest_score: of the corpus; scores are divided by it.
        """
        super().__init__(student)
        if highest_score <= 0:
            raise CardError(f"highest_score {highest_score}: must be more than 0; STS-B's is 5")
        self.highest_score = highest_score
        from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

        self.loss = CosineSimilarityLoss(GivenEmbeddings())

    def learned_scores(self, scores: GoldScores) -> GoldScores:
        """The scores from 0 to 1.

        Raises:
            DataError: a score below 0 or above the highest.
        """
        wrong = np.flatnonzero(~((scores >= 0) & (scores <= self.highest_score)))
        if len(wrong):
            raise DataError(
                f"row {wrong[0] + 1}: score {scores[wrong[0]]:g} is not from 0 to {self.highest_score:g}; "
                "set highest_score to the corpus's"
            )
        return scores / self.highest_score

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The mean squared error."""
        u, v = self.student.embed(batch["views"]).chunk(2)
        return {"loss": library_loss(self.loss, u, v, labels=batch["scores"])}
