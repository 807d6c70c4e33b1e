"""Two copies of one encoder: both trained apart (contrastive tension), or one fixed that guides the other (SG-OPT).

Contrastive tension: Carlsson et al. 2021, https://openreview.net/forum?id=Ov_sMNau-PF. Self-guided contrastive
learning: Kim, Yoo and Lee 2021, arXiv 2106.07345, section 3; SG, its optimised losses (SG-OPT is ``opt3``), and the
paper's baseline Contrastive (BT), whose positives are back-translations.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from stsbench.core.cards import NonNegativeFloat, PositiveFloat, PositiveInt
from stsbench.core.errors import EncoderError, TrainingError
from stsbench.data.corpora.corpus import number_texts
from stsbench.encoders.base import Encoder
from stsbench.encoders.transformer.backbone import Backbone
from stsbench.encoders.transformer.pooling import Pooling
from stsbench.training.learner import (
    Batch,
    Columns,
    ContrastiveLearner,
    Learner,
    Losses,
    Rows,
    weighted_sum,
)
from stsbench.training.loop.gather import gather_pairs, gather_views
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.objectives import (
    GivenEmbeddings,
    anchored_l2,
    library_loss,
    make_loss,
    nt_xent,
    self_guided,
)
from stsbench.training.student import fresh_layers, save_student


class TwoStudents(Learner):
    """Two copies of one student, trained independently; validation chooses between them."""

    chunks = True
    dropout_in_training = False

    def __post_init__(self) -> None:
        self.second = copy.deepcopy(self.student)
        for one in (self.student, self.second):
            self.set_dropout(one, dropout=self.dropout_in_training)

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

    negatives: PositiveInt = 7
    """Pairs of two other sentences for each pair of the same: K in the paper. A batch of b rows of the corpus has
    b * (1 + negatives) pairs; the paper's 16 is a batch_size of 2."""
    dropout_in_training: bool = False
    """The released code has it off, sentence-transformers' on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.loss = make_loss("ContrastiveTensionLoss")

    def prepare(self, columns: Columns) -> None:
        """Number the distinct texts.

        Raises TrainingError: fewer than three distinct texts: none is left for a pair of two others.
        """
        super().prepare(columns)
        (self.texts,) = number_texts(columns["text"])
        distinct = int(self.texts.max(initial=-1)) + 1
        if distinct < 3:
            raise TrainingError(
                f"the corpus has {distinct} distinct texts; contrastive tension needs at least 3"
            )

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """What each copy reads, (b * (1 + K), t), and which pairs are of one sentence."""
        anchors = np.repeat(rows, self.negatives)
        first = self._others(rng, anchors)
        second = self._others(rng, anchors, first)
        pairs = [
            np.column_stack([rows, drawn.reshape(-1, self.negatives)]).ravel()
            for drawn in (first, second)
        ]
        labels = np.tile(np.arange(1 + self.negatives) == 0, len(rows))
        read = {
            name: self.inputs(("text",), one)
            for name, one in zip(("first", "second"), pairs, strict=True)
        }
        return {**read, "labels": torch.from_numpy(labels).float()}

    def _others(self, rng: np.random.Generator, *taken: Rows) -> Rows:
        """Draw a row for each place whose text is not one of those taken there.

        The released code draws without this check: about one pair in as many as there are sentences is mislabelled.
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

    scale: PositiveFloat = 20.0
    """Of the cosines to begin with; it is trained."""
    dropout_in_training: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        loss = make_loss("ContrastiveTensionLossInBatchNegatives", column="2", scale=self.scale)
        self.loss = loss.to(self.student.device)
        self.loss.model1 = GivenEmbeddings("1")

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The symmetric cross-entropy, and beside it the scale."""
        a, b = (gather_views(one.embed(batch["views"])) for one in (self.student, self.second))
        return {"loss": library_loss(self.loss, a, b), "scale": self.loss.logit_scale.exp()}


class SelfGuided(ContrastiveLearner):
    """A sentence's [CLS] against the layers of the fixed copy, under a projection head, the weights held near their start."""

    variant: Literal["base", "opt1", "opt2", "opt3", "opt2-released", "translation"] = "opt3"
    """``base`` (SG), ``opt1``, ``opt2``, ``opt3`` (SG-OPT) contrast with the fixed copy's layers, ``opt2-released`` as the
    released code does; ``translation`` with the corpus's ``positive``, by the tuned encoder, under ``base``'s loss."""
    temperature: PositiveFloat = 0.01
    regulariser: NonNegativeFloat = 0.1
    """Lambda, the weight of the squared distance from the initial weights."""
    layer_pooling: Literal["max", "mean"] = "max"
    """Of the fixed copy's layers; ``max`` in the paper, ``mean`` by default in the code."""
    fixed_dropout: bool = False
    """The fixed copy has dropout in training, as in the released code, whose call of ``train()`` reaches it too."""
    freeze_embeddings: bool = True
    """The student's embedding module is not trained."""
    head: bool = True
    """The contrast is under a projection head, which is dropped afterwards (the paper); else bare."""
    head_width: PositiveInt = 4096

    def __post_init__(self) -> None:
        student, model = self.student, self.student.model
        self.needs = ("anchor", "positive") if self.variant == "translation" else ("text",)
        self.pooling = Pooling.parse(self.layer_pooling)
        # No module of this one's: never trained, it needs no place in checkpoints, a resumed run makes it again.
        fixed = copy.deepcopy(model).requires_grad_(False)
        self.fixed_backbone = Backbone(student.backbone.tokenizer, fixed, student.device)
        if self.freeze_embeddings:
            if not hasattr(model, "embeddings"):
                raise EncoderError(
                    f"{type(model).__name__}: no 'embeddings' to freeze; freeze_embeddings = false"
                )
            model.embeddings.requires_grad_(False)
        self.projector: torch.nn.Module = torch.nn.Identity()
        if self.head:
            first, last = fresh_layers(
                student.model, student.backbone.width, self.head_width, self.head_width
            )
            # GELU after each, the last one too.
            self.projector = torch.nn.Sequential(first, torch.nn.GELU(), last, torch.nn.GELU()).to(
                student.device
            )
        self.set_dropout(fixed, dropout=self.fixed_dropout)

    @property
    def fixed(self) -> Any:  # noqa: ANN401 - transformers is untyped
        """The copy that keeps the initial weights."""
        return self.fixed_backbone.model

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """All texts one below the other; a layer drawn for each sentence where the variant takes one."""
        batch = super().collate(rows, rng)
        if self.variant not in ("translation", "opt3"):
            batch["layers"] = torch.from_numpy(
                rng.integers(0, self.student.backbone.depth + 1, len(rows))
            )
        return batch

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The contrastive loss, and the pull towards the initial weights."""
        anchors = self.projector(self.student.embed(batch["views"]))
        if self.variant == "translation":
            contrastive = nt_xent(*gather_pairs(anchors, 2), temperature=self.temperature)
        else:
            hidden = self.fixed_layers(batch["views"])
            if "layers" in batch:
                hidden = hidden[torch.arange(len(hidden), device=hidden.device), batch["layers"]][
                    :, None
                ]
            cls, states = gather_views(anchors), gather_views(self.projector(hidden))
            contrastive = self_guided(
                cls, states, temperature=self.temperature, variant=self.variant
            )
        if not self.regulariser:
            return {"loss": contrastive}
        return weighted_sum(
            {"contrastive": contrastive, "distance": self.distance()},
            {"distance": self.regulariser},
        )

    def fixed_layers(self, tokens: Tokens) -> torch.Tensor:
        """Every layer of the fixed copy pooled, the embedding output first: (b, depth + 1, h), without gradient."""
        layers = range(self.fixed_backbone.depth + 1)

        def pooled(part: Tokens) -> torch.Tensor:
            states = self.fixed_backbone.hidden_states(part, layers)
            return torch.stack(
                [self.pooling.pool([state], part["attention_mask"]) for state in states], dim=1
            )

        with torch.no_grad():
            return self.student.compute_in_parts(tokens, pooled)

    def distance(self) -> torch.Tensor:
        """The squared distance of the student's weights from their start; frozen ones would add 0."""
        initial = dict(self.fixed.named_parameters())
        tuned = {name: p for name, p in self.student.model.named_parameters() if p.requires_grad}
        return anchored_l2(tuned, {name: initial[name] for name in tuned})
