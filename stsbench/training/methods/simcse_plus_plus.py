"""SimCSE++: SimCSE with negatives that have no dropout, and a contrast of dimensions beside that of sentences.

Xu, Shao, Chen and Liu 2023, https://arxiv.org/abs/2305.13192; details of the released code.
"""

from __future__ import annotations

from typing import Any

import torch

from stsbench.errors import CardError
from stsbench.training.loop.gather import gather_views
from stsbench.training.methods.two_views import TwoViews
from stsbench.training.objectives import dimension_contrast, info_nce, off_dropout_info_nce
from stsbench.training.student import Student


class SimCSEPlusPlus(TwoViews):
    """In-batch contrast of sentences, negatives without dropout, beside the contrast of their embeddings' dimensions."""

    def __init__(
        self,
        student: Student,
        *,
        off_dropout: bool = True,
        positive_share: float = 1.0,
        dimension_weight: float = 0.1,
        dimension_temperature: float = 5.0,
        temperature: float = 0.05,
    ) -> None:
        """Choose a variant; each of the two parts can be left out.

        Args:
            student: what is trained.
            off_dropout: negatives are of a third pass, without dropout; else SimCSE's.
            positive_share: multiplies the positive's cosine, where negatives have no dropout.
            dimension_weight: of the contrast of dimensions; 0 leaves it out.
            dimension_temperature: of that contrast.
            temperature: of the cosine.
        """
        super().__init__(student)
        if dimension_weight < 0:
            raise CardError(
                f"dimension_weight {dimension_weight:g}: give 0 for none, or more; the paper's code has 0.1"
            )
        if not off_dropout and positive_share != 1:
            raise CardError("positive_share is of negatives without dropout; leave it out, or off_dropout = false")
        self.off_dropout, self.positive_share, self.temperature = off_dropout, positive_share, temperature
        self.dimension_weight, self.dimension_temperature = dimension_weight, dimension_temperature

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The contrast of sentences, and beside it that of dimensions."""
        tokens = batch["views"]
        anchor, positive = self.embed_views(tokens)
        if self.off_dropout:
            once = {name: values[: len(values) // 2] for name, values in tokens.items()}
            still = gather_views(self.student.embed(once, dropout=False))
            share = self.positive_share
            sentences = off_dropout_info_nce(
                anchor, positive, still, temperature=self.temperature, positive_share=share
            )
        else:
            sentences = info_nce(anchor, positive, temperature=self.temperature)
        if not self.dimension_weight:
            return {"loss": sentences}
        dimensions = dimension_contrast(anchor, positive, temperature=self.dimension_temperature)
        loss = sentences + self.dimension_weight * dimensions
        return {"loss": loss, "sentences": sentences, "dimensions": dimensions}
