"""RankCSE: SimCSE whose two views rank a batch alike, and as teachers do.

Liu et al. 2023, arXiv 2305.16726, https://aclanthology.org/2023.acl-long.771.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from stsbench.errors import CardError, choose
from stsbench.training.loop.gather import check_negatives, gather_pairs, gather_views
from stsbench.training.objectives import info_nce, list_mle, list_net, ranking_consistency, rankings
from stsbench.training.seams import Batch, Learner, Rows, Taught
from stsbench.training.student import Student


class RankCSE(Learner):
    """The contrast of two dropout masks, consistency of their rankings, and distillation of the teachers' ranking."""

    chunks = True
    by_dropout = True

    def __init__(
        self,
        student: Student,
        *,
        teachers: list[str] | None = None,
        teacher_weights: list[float] | None = None,
        ranking: Literal["listmle", "listnet"] = "listmle",
        temperature: float = 0.05,
        ranking_temperature: float = 0.05,
        teacher_temperature: float = 0.025,
        consistency_weight: float = 1.0,
        ranking_weight: float = 1.0,
        formulas: Literal["paper", "released"] = "paper",
    ) -> None:
        """Choose a variant.

        Args:
            student: what is trained.
            teachers: encoders by name, whose embeddings come from the store; a recipe's of seed 1 is ``recipe@1``.
            teacher_weights: of their similarities, one each; default alike.
            ranking: how a teacher's ranking is learned: ``listmle`` the whole order, ``listnet`` what comes first.
            temperature: of the contrast and of the consistency.
            ranking_temperature: of the student's similarities in the distillation.
            teacher_temperature: of the teachers', for ``listnet`` alone: half of the student's in the paper, the same
                in the released code.
            consistency_weight: of the consistency; 0 leaves it out.
            ranking_weight: of the distillation; 0 leaves it out, and needs no teachers.
            formulas: as the paper prints them, or with what the released code adds, see the objectives.
        """
        super().__init__(student)
        if min(consistency_weight, ranking_weight) < 0 or not min(ranking_temperature, teacher_temperature) > 0:
            raise CardError(
                "RankCSE's weights must be 0 or more and its temperatures more than 0; 1 and 0.05 are usual"
            )
        self.teachers = list(teachers or []) if ranking_weight else []
        shares = [1.0] * len(self.teachers) if teacher_weights is None else list(teacher_weights)
        if ranking_weight and (not self.teachers or len(shares) != len(self.teachers) or not min(shares) > 0):
            raise CardError(
                f"teachers {self.teachers}, teacher_weights {shares}: give encoders to learn from, --set "
                "'teachers=[\"NAME\"]', and one weight above 0 for each; or ranking_weight 0"
            )
        self.shares = [share / sum(shares) for share in shares]
        distil: dict[str, Callable[..., torch.Tensor]] = {
            "listmle": partial(list_mle, formulas=formulas),
            "listnet": list_net,
        }
        self.distil = choose("ranking", ranking, distil)
        self.consistency = partial(ranking_consistency, temperature=temperature, formulas=formulas)
        self.temperature = temperature
        self.ranking_temperature, self.teacher_temperature = ranking_temperature, teacher_temperature
        self.consistency_weight, self.ranking_weight = consistency_weight, ranking_weight

    def take_taught(self, taught: Sequence[Taught]) -> None:
        """Keep what gives the teachers' embeddings."""
        self.taught = taught

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences twice, and each teacher's embeddings of them."""
        check_negatives(len(rows))
        batch: Batch = {"views": self.views(("text", "text"), rows)}
        if self.teachers:
            batch["taught"] = {
                name: torch.from_numpy(of(rows)) for name, of in zip(self.teachers, self.taught, strict=True)
            }
        return batch

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The sum of the losses, over the sentences of all ranks, and its parts."""
        anchor, positive = gather_pairs(self.student.embed(batch["views"]), 2)
        contrastive = info_nce(anchor, positive, temperature=self.temperature)
        parts, loss = {"contrastive": contrastive}, contrastive
        if self.consistency_weight:
            parts["consistency"] = self.consistency(anchor, positive)
            loss = loss + self.consistency_weight * parts["consistency"]
        if self.teachers:
            own = rankings(anchor, positive, temperature=self.ranking_temperature)
            parts["ranking"] = self.distil(own, self.taught_rankings(batch["taught"]))
            loss = loss + self.ranking_weight * parts["ranking"]
        return {"loss": loss, **parts}

    def taught_rankings(self, taught: dict[str, torch.Tensor]) -> torch.Tensor:
        """The teachers' cosines of all sentences of the batch with all over the temperature, their weighted mean, (b, b)."""
        gathered = [gather_views(taught[name]) for name in self.teachers]
        each = [
            share * rankings(one, one, temperature=self.teacher_temperature)
            for share, one in zip(self.shares, gathered, strict=True)
        ]
        return torch.stack(each).sum(dim=0)
