"""Contrastive tension: two copies of a model that agree on the same sentence and differ on others.

Carlsson et al. 2021, https://openreview.net/forum?id=Ov_sMNau-PF.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stsbench.core.cards import Count, Positive
from stsbench.core.errors import TrainingError
from stsbench.data.corpora.load import number_texts
from stsbench.encoders.base import Encoder
from stsbench.training.loop.gather import gather_views
from stsbench.training.objectives import GivenEmbeddings, library_loss
from stsbench.training.seams import Batch, Columns, Learner, Losses, Rows
from stsbench.training.student import save_student


class TwoStudents(Learner):
    """Two copies of one student, trained independently; validation chooses between them."""

    chunks = True
    dropout_in_training = False

    def __post_init__(self) -> None:
        self.second = copy.deepcopy(self.student)
        for one in (self.student, self.second):
            self.set_apart(one, dropout=self.dropout_in_training)

    def encoders(self) -> list[Encoder]:
        """Both copies."""
        return [self.student.encoder("first"), self.second.encoder("second")]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the chosen copy."""
        save_student((self.student, self.second)[chosen], folder)


class ContrastiveTension(TwoStudents):
    """Pairs of sentences, one in so many of a sentence with itself, classified by raw dot product.

    The paper prints ``-log sigmoid(1 - z)`` for the dot product z of two other sentences; its code
    computes ``-log (1 - sigmoid(z))``, and so does sentence-transformers' loss, taken here.
    """

    negatives: Count = 7
    """Pairs of two other sentences for each pair of the same: K in the paper. A batch of b rows of the corpus has
    b * (1 + negatives) pairs; the paper's 16 is a batch_size of 2."""
    dropout_in_training: bool = False
    """The released code has it off, sentence-transformers' on."""

    def __post_init__(self) -> None:
        from sentence_transformers.sentence_transformer.losses import ContrastiveTensionLoss

        super().__post_init__()
        self.loss = ContrastiveTensionLoss(GivenEmbeddings())

    def prepare(self, columns: Columns) -> None:
        """Number the distinct texts.

        Raises TrainingError: fewer than three distinct texts: none is left for a pair of two others.
        """
        super().prepare(columns)
        (self.texts,) = number_texts(columns["text"])
        distinct = int(self.texts.max(initial=-1)) + 1
        if distinct < 3:
            raise TrainingError(f"the corpus has {distinct} distinct texts; contrastive tension needs at least 3")

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """What each copy reads, (b * (1 + K), t), and which pairs are of one sentence."""
        anchors = np.repeat(rows, self.negatives)
        first = self._others(rng, anchors)
        second = self._others(rng, anchors, first)
        pairs = [np.column_stack([rows, drawn.reshape(-1, self.negatives)]).ravel() for drawn in (first, second)]
        labels = np.tile(np.arange(1 + self.negatives) == 0, len(rows))
        read = {name: self.inputs(("text",), one) for name, one in zip(("first", "second"), pairs, strict=True)}
        return {**read, "labels": torch.from_numpy(labels).float()}

    def _others(self, rng: np.random.Generator, *taken: Rows) -> Rows:
        """Draw a row for each place whose text is not one of those taken there.

        The released code draws without this check: about one pair in as many as there are sentences is
        then of one sentence and labelled otherwise.
        """
        drawn = rng.integers(len(self.texts), size=len(taken[0]))
        while True:
            same = np.logical_or.reduce([self.texts[drawn] == self.texts[rows] for rows in taken])
            if not same.any():
                return drawn
            drawn[same] = rng.integers(len(self.texts), size=int(same.sum()))

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The mean binary cross-entropy, and beside it both kinds of pairs' mean dot product: it grows in a collapse."""
        a, b = self.student.embed(batch["first"]), self.second.embed(batch["second"])
        dots, same = (a * b).sum(dim=1).detach(), batch["labels"].bool()
        # Theirs is the sum over the pairs.
        loss = library_loss(self.loss, a, b, labels=batch["labels"]) / len(same)
        return {"loss": loss, "same": dots[same].mean(), "others": dots[~same].mean()}


class ContrastiveTensionInBatch(TwoStudents):
    """Each copy finds the other's embedding of the same sentence in the batch, by cosine (sentence-transformers)."""

    scale: Positive = 20.0
    """Of the cosines to begin with; it is trained."""
    dropout_in_training: bool = True

    def __post_init__(self) -> None:
        from sentence_transformers.sentence_transformer.losses import ContrastiveTensionLossInBatchNegatives as Loss

        super().__post_init__()
        self.loss = Loss(GivenEmbeddings("2"), scale=self.scale).to(self.student.device)
        self.loss.model1 = GivenEmbeddings("1")

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The symmetric cross-entropy, and beside it the scale."""
        a, b = (gather_views(one.embed(batch["views"])) for one in (self.student, self.second))
        return {"loss": library_loss(self.loss, a, b), "scale": self.loss.logit_scale.exp()}
