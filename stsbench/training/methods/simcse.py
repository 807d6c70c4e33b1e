"""SimCSE: contrast a sentence with its own second dropout mask, or with an entailed one.

Gao, Yao and Chen 2021, arXiv 2104.08821; unsupervised section 3, supervised section 4.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from stsbench.errors import CardError, choose
from stsbench.training.augmentation.masking import masked_language_model_loss
from stsbench.training.loop.gather import check_negatives, gather_pairs, gather_views
from stsbench.training.loop.parts import Tokens
from stsbench.training.objectives import info_nce, nt_xent
from stsbench.training.seams import Batch, Learner, Rows
from stsbench.training.student import Student

PAIRING: dict[str, tuple[str, ...]] = {
    "dropout": ("text",),
    "pairs": ("anchor", "positive"),
    "triplets": ("anchor", "positive", "negative"),
    "two_negatives": ("anchor", "positive", "negative", "second_negative"),
}


class SimCSE(Learner):
    """In-batch contrast of two views, with hard negatives where the corpus has them."""

    chunks = True

    def __init__(
        self,
        student: Student,
        *,
        views: Literal["dropout", "pairs", "triplets", "two_negatives"] = "dropout",
        loss: Literal["one_direction", "symmetric"] = "one_direction",
        temperature: float = 0.05,
        similarity: Literal["cosine", "dot"] = "cosine",
        hard_negative_weight: float = 0.0,
        contrastive_weight: float = 1.0,
        mlm_weight: float = 0.0,
        mlm_rate: float = 0.15,
        mlm_decoder: Literal["tied", "copied"] = "tied",
        legacy_masked_input: bool = False,
        two_encoders: bool = False,
    ) -> None:
        """Choose a variant.

        Args:
            student: what is trained.
            views: the positive is the sentence again (``dropout``), or the corpus's; ``two_negatives`` has two hard negatives
                a row (table 7).
            loss: ``one_direction`` as released, N - 1 negatives (N more with hard ones);
                ``symmetric``, the 2N-sided NT-Xent of many tutorials.
            temperature: divides the similarities.
            similarity: ``dot`` leaves the lengths in (table D.1); for ``one_direction`` alone.
            hard_negative_weight: added to the logit of a row's own hard negative: alpha = exp(weight)
                in equation 8.
            contrastive_weight: of the contrastive loss. The released code trained supervised models on four GPUs, where
                its gradient was a quarter and that of masked language modelling whole: 0.25 makes that again.
            mlm_weight: of the auxiliary masked language modelling; 0 for none (section 3 and table D.2).
            mlm_rate: the share of tokens hidden for it.
            mlm_decoder: ``copied`` as released: the layer that names the tokens begins as the word embeddings and is
                trained apart from them; ``tied``, the two stay one, as in the checkpoint.
            legacy_masked_input: the contrast too sees hidden tokens, as in the code that made the
                paper's MLM tables (princeton-nlp/SimCSE, pull request 121).
            two_encoders: positives and hard negatives are encoded by a second model, which begins as the first, is trained
                beside it and not kept (section 4).
        """
        super().__init__(student)
        _check_together(views, loss, similarity)
        if mlm_weight < 0:
            raise CardError(f"mlm_weight {mlm_weight:g}: give 0 for none, or more; the paper has 0.1")
        if contrastive_weight <= 0:
            raise CardError(f"contrastive_weight {contrastive_weight:g}: give more than 0; 1 is the paper's")
        if two_encoders and mlm_weight:
            raise CardError("two encoders have no masked language modelling beside them; leave 'mlm_weight' out")
        self.second = copy.deepcopy(student) if two_encoders else None
        self.contrastive_weight = contrastive_weight
        self.by_dropout = views == "dropout" and not two_encoders
        self.names = self.needs = choose("views", views, PAIRING)
        one_direction = partial(info_nce, hard_negative_weight=hard_negative_weight, similarity=similarity)
        losses: dict[str, Callable[..., torch.Tensor]] = {"one_direction": one_direction, "symmetric": nt_xent}
        self.contrast = partial(choose("loss", loss, losses), temperature=temperature)
        self.mlm_weight, self.mlm_rate, self.legacy_masked_input = mlm_weight, mlm_rate, legacy_masked_input
        if mlm_weight and choose("mlm_decoder", mlm_decoder, {"tied": False, "copied": True}):
            decoder: Any = student.language_model.get_output_embeddings()  # type: ignore[union-attr]
            decoder.weight = torch.nn.Parameter(decoder.weight.detach().clone())

    @classmethod
    def wants_language_model(cls, params: Mapping[str, Any]) -> bool:
        """Where the auxiliary objective is on."""
        return bool(params.get("mlm_weight", 0.0))

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """All views one below the other; with MLM, the same with tokens hidden."""
        if len(self.names) < 3:
            check_negatives(len(rows))
        names = self.names * 2 if len(self.names) == 1 else self.names
        batch: Batch = {"views": self.views(names, rows)}
        if self.mlm_weight:
            tokens = batch["views"]
            hidden, labels = self.hide(tokens, rng, rate=self.mlm_rate)
            batch["hidden"] = {"input_ids": hidden, "labels": labels}
            if self.legacy_masked_input:
                tokens["input_ids"] = hidden
        return batch

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The contrastive loss, and the auxiliary one where it is on."""
        tokens = batch["views"]
        anchor, positive, *hard = self._embed(tokens)
        contrastive = self.contrast(anchor, positive, *([torch.cat(hard)] if hard else []))
        if not self.mlm_weight:
            return {"loss": self.contrastive_weight * contrastive}
        hidden = batch["hidden"]
        mlm = masked_language_model_loss(
            self.student.language_model,
            hidden["input_ids"],
            tokens["attention_mask"],
            hidden["labels"],
            chunk=self.student.chunk,
        )
        loss = self.contrastive_weight * contrastive + self.mlm_weight * mlm
        return {"loss": loss, "contrastive": contrastive, "mlm": mlm}

    def _embed(self, tokens: Tokens) -> list[torch.Tensor]:
        """The embeddings of each view, (b, h)."""
        views = max(2, len(self.names))
        if self.second is None:
            return gather_pairs(self.student.embed(tokens), views)
        rows = len(tokens["input_ids"]) // views
        first = self.student.embed({name: values[:rows] for name, values in tokens.items()})
        others = self.second.embed({name: values[rows:] for name, values in tokens.items()})
        return [gather_views(first), *gather_pairs(others, views - 1)]


def _check_together(views: str, loss: str, similarity: str) -> None:
    """Refuse what the symmetric loss cannot be of."""
    if loss == "symmetric" and len(choose("views", views, PAIRING)) > 2:
        raise CardError("the symmetric loss takes no hard negatives; use views = 'pairs'")
    if loss == "symmetric" and similarity == "dot":
        raise CardError("the symmetric loss is of cosines; use loss = 'one_direction' with similarity = 'dot'")
