"""SBERT's classification objective: the relation of two sentences from their embeddings and how they differ.

Reimers and Gurevych 2019, https://aclanthology.org/D19-1410, section 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stsbench.errors import CardError, DataError, did_you_mean
from stsbench.training.objectives import GivenEmbeddings, feature_names, given_columns
from stsbench.training.seams import Batch, Columns, Learner, Rows
from stsbench.training.student import Student

LABELS = {"contradiction": 0, "entailment": 1, "neutral": 2}
"""The classes, numbered as in the authors' code."""
FEATURES = {
    "concatenation_sent_rep": {"u", "v"},
    "concatenation_sent_difference": {"|u-v|"},
    "concatenation_sent_multiplication": {"u*v"},
}
"""What the classifier can be given, as sentence-transformers' loss calls it: all of table 6."""


class SBERT(Learner):
    """Softmax over the relations of natural language inference; the classifier is gone afterwards."""

    chunks = True
    needs = ("first", "second", "label")

    def __init__(
        self,
        student: Student,
        *,
        features: str | list[str] = "sbert",
        bias: bool = True,
    ) -> None:
        """Add the classifier.

        Args:
            student: what is trained.
            features: what the classifier is given: a preset (``sbert``: u, v, |u-v|), or features one by
                one, as in table 6: u with v, |u-v|, u*v.
            bias: whether the classifier has one, as in the authors' code; the paper's formula has none.
        """
        super().__init__(student)
        from sentence_transformers.sentence_transformer.losses import SoftmaxLoss

        self.softmax = SoftmaxLoss(GivenEmbeddings(), student.backbone.width, len(LABELS), **_switches(features))
        if not bias:
            self.softmax.classifier.register_parameter("bias", None)
        self.softmax.to(student.device)

    def prepare(self, columns: Columns) -> None:
        """Number the labels.

        Raises:
            DataError: a label that is not one of the three.
        """
        super().prepare(columns)
        found = list(columns["label"])
        for name in dict.fromkeys(found):
            if name not in LABELS:
                raise DataError(
                    f"label '{name}'{did_you_mean(str(name), LABELS)}; known: {', '.join(LABELS)} "
                    "(leave out pairs without one)"
                )
        self.labels = torch.tensor([LABELS[name] for name in found])

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """First sentences above second ones, and the labels (b,)."""
        return {"views": self.views(("first", "second"), rows), "labels": self.labels[torch.from_numpy(rows)]}

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The cross-entropy, and beside it the share of pairs classified rightly."""
        u, v = self.student.embed(batch["views"]).chunk(2)
        _, logits = self.softmax(given_columns(u, v), None)
        logits = logits.float()
        accuracy = (logits.argmax(dim=1) == batch["labels"]).float().mean()
        return {"loss": self.softmax.loss_fct(logits, batch["labels"]), "accuracy": accuracy}


def _switches(features: str | list[str]) -> dict[str, bool]:
    """Which of :data:`FEATURES` are on."""
    asked = set(feature_names(features))
    switches = {name: group <= asked for name, group in FEATURES.items()}
    if left := asked.difference(*(group for name, group in FEATURES.items() if switches[name])):
        raise CardError(f"features: SBERT's classifier does not take {min(left)} by itself; give u with v, |u-v|, u*v")
    return switches
