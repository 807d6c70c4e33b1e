"""CoSENT: pairs of a higher gold score are to have the higher cosine.

Su 2022, https://kexue.fm/archives/8847; Huang et al. 2024, https://doi.org/10.1109/TASLP.2024.3402087.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from stsbench.errors import CardError
from stsbench.training.loop.gather import gather_pairs, gather_views
from stsbench.training.methods.scored_pairs import ScoredPairs
from stsbench.training.objectives import GivenEmbeddings, library_loss
from stsbench.training.student import Student


class CoSENT(ScoredPairs):
    """The order of a batch's cosines, over all pairs of pairs whose scores differ; what the scores are does not count."""

    def __init__(self, student: Student, *, scale: float = 20.0) -> None:
        """Choose the scale.

        Args:
            student: what is trained.
            scale: of the cosines; 20 in the author's code.
        """
        super().__init__(student)
        if not 0 < scale < math.inf:
            raise CardError(f"scale {scale}: must be more than 0; 20 is usual")
        from sentence_transformers.sentence_transformer.losses import CoSENTLoss

        self.loss = CoSENTLoss(GivenEmbeddings(), scale=scale)

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The logarithm of one plus the sum over wrongly ordered pairs, those of all ranks together."""
        u, v = gather_pairs(self.student.embed(batch["views"]), 2)
        return {"loss": library_loss(self.loss, u, v, labels=gather_views(batch["scores"]))}
