"""MixCSE: SimCSE with hard negatives mixed of a sentence's positive and another sentence.

Zhang, Zhang, Mensah, Liu and Mao 2022, https://doi.org/10.1609/aaai.v36i10.21428; details of the released code.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch

from stsbench.training.methods.two_views import TwoViews
from stsbench.training.objectives import mixed_info_nce
from stsbench.training.student import Student


class MixCSE(TwoViews):
    """In-batch contrast with mixed negatives, through which no gradient flows."""

    def __init__(
        self,
        student: Student,
        *,
        variant: Literal["paper", "released"] = "paper",
        mixing: float = 0.2,
        temperature: float = 0.05,
    ) -> None:
        """Choose a variant.

        Args:
            student: what is trained.
            variant: ``paper``, one mixed negative an anchor; ``released``, those of the whole batch, of anchors too.
            mixing: lambda, the positive's share of a mixed negative.
            temperature: of the cosine.
        """
        super().__init__(student)
        self.loss = partial(mixed_info_nce, temperature=temperature, mixing=mixing, variant=variant)
        # What it cannot be is told before anything is trained.
        self.loss(torch.eye(2), torch.eye(2))

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """SimCSE's loss with more negatives."""
        return {"loss": self.loss(*self.embed_views(batch["views"]))}
