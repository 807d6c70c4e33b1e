"""AnglE: the order of scored pairs by the angle of complex numbers, beside cosines and in-batch negatives.

Li and Li 2024, arXiv 2309.12871, https://aclanthology.org/2024.acl-long.101; details of the official code.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from stsbench.errors import CardError, choose
from stsbench.training.loop.gather import gather_pairs, gather_views
from stsbench.training.methods.scored_pairs import ScoredPairs
from stsbench.training.objectives import GivenEmbeddings, library_loss, pairs_in_batch
from stsbench.training.student import Student


class AnglE(ScoredPairs):
    """Three losses over one batch of pairs: two of order, by angle and by cosine, and one of contrast."""

    def __init__(
        self,
        student: Student,
        *,
        angle_weight: float = 0.02,
        cosine_weight: float = 1.0,
        contrastive_weight: float = 1.0,
        angle_scale: float = 20.0,
        cosine_scale: float = 20.0,
        temperature: float = 0.05,
        lowest_positive: float = 1.0,
        positives: Literal["own", "released"] = "own",
    ) -> None:
        """Choose a variant.

        Args:
            student: what is trained.
            angle_weight: of the order by angle; the official code's values for STS-B.
            cosine_weight: of the order by cosine, CoSENT's loss; 0 leaves it out.
            contrastive_weight: of the contrast with the other sentences of the batch; 0 leaves it out.
            angle_scale: of the angles, the inverse of a temperature.
            cosine_scale: of the cosines that are ordered.
            temperature: of the contrast.
            lowest_positive: pairs of this score and above are positives in the contrast, as released; others have none.
            positives: ``released`` with the others that the code takes for positives by mistake where scores are not
                0 and 1: it multiplies a sentence's number by its score, and equal products meet.
        """
        super().__init__(student)
        weights = {"angle": angle_weight, "cosine": cosine_weight, "contrastive": contrastive_weight}
        if min(weights.values()) < 0 or not any(weights.values()):
            raise CardError("angle_weight, cosine_weight and contrastive_weight: give 0 or more, one above 0")
        if not min(angle_scale, cosine_scale, lowest_positive) > 0:
            raise CardError("angle_scale, cosine_scale and lowest_positive must be more than 0; 20, 20 and 1 are usual")
        from sentence_transformers.sentence_transformer.losses import AnglELoss, CoSENTLoss

        self.weights = {name: weight for name, weight in weights.items() if weight}
        self.orders = {
            "angle": AnglELoss(GivenEmbeddings(), scale=angle_scale),
            "cosine": CoSENTLoss(GivenEmbeddings(), scale=cosine_scale),
        }
        self.temperature, self.lowest_positive = temperature, lowest_positive
        self.by_product = choose("positives", positives, {"own": False, "released": True})

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The weighted sum, over the pairs of all ranks, and its parts."""
        u, v = gather_pairs(self.student.embed(batch["views"]), 2)
        scores = gather_views(batch["scores"])
        parts = {
            name: library_loss(self.orders[name], u, v, labels=scores)
            if name in self.orders
            else pairs_in_batch(u, v, self.targets(scores), temperature=self.temperature)
            for name in self.weights
        }
        return {"loss": torch.stack([self.weights[name] * part for name, part in parts.items()]).sum(), **parts}

    def targets(self, scores: torch.Tensor) -> torch.Tensor:
        """Which sentences are positives of which, bool (2b, 2b), all first sentences before all second ones."""
        b = len(scores)
        rows = torch.arange(2 * b, device=scores.device)
        partners = rows.roll(b)
        positive = (scores >= self.lowest_positive).repeat(2)
        numbers, others = rows, partners
        if self.by_product:
            # The code has each pair's sentences side by side, and scores cut to whole numbers.
            times = scores.floor().long().repeat(2)
            side_by_side = 2 * (rows % b) + rows // b
            numbers, others = side_by_side * times, side_by_side[partners] * times
        return (others[:, None] == numbers[None, :]) & positive[:, None] & positive[None, :]
