"""Two copies of one encoder: trained independently, or one fixed that guides the other.

Contrastive tension: Carlsson et al. 2021, https://openreview.net/forum?id=Ov_sMNau-PF. Self-guided
contrastive learning: Kim, Yoo and Lee 2021, arXiv 2106.07345, section 3; SG, its optimised losses
(SG-OPT is ``opt3``), and the paper's baseline Contrastive (BT), whose positives are
back-translations.
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
    with_weighted_sum,
)
from stsbench.training.loop.gather import gather_over_ranks, gather_pairs
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.objectives import (
    GivenEmbeddings,
    anchored_l2,
    library_loss,
    make_loss,
    nt_xent,
    self_guided,
)
from stsbench.training.saving import save_student
from stsbench.training.student import fresh_layers


class TwoStudents(Learner):
    """Two copies of one student, trained independently; validation chooses between them."""

    chunks = True
    dropout_in_training = False

    def __post_init__(self) -> None:
        """Copy the student; both copies have dropout in training only if the method wants it."""
        self.second = copy.deepcopy(self.student)
        for student in (self.student, self.second):
            self.set_dropout(student, dropout=self.dropout_in_training)

    def encoders(self) -> list[Encoder]:
        """Return both copies."""
        return [self.student.encoder("first"), self.second.encoder("second")]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write one copy, the first if ``chosen`` is 0."""
        save_student((self.student, self.second)[chosen], folder)


class ContrastiveTension(TwoStudents):
    """Pairs of sentences, some of a sentence with itself, classified by raw dot product.

    The paper prints ``-log sigmoid(1 - z)`` for the dot product z of two different sentences; its
    code computes ``-log (1 - sigmoid(z))``, and so does sentence-transformers' loss, which is used
    here.
    """

    negatives: PositiveInt = 7
    """The number of pairs of two different sentences for each pair of the same: K in the paper. A
    batch of b rows of the corpus has b * (1 + negatives) pairs; the paper's 16 is a batch_size of
    2."""
    dropout_in_training: bool = False
    """Whether dropout is on in training: off in the released code, on in sentence-transformers'."""

    def __post_init__(self) -> None:
        """Copy the student, and make the library's loss."""
        super().__post_init__()
        self.loss = make_loss("ContrastiveTensionLoss")

    def prepare(self, columns: Columns) -> None:
        """Store the corpus, and number its distinct texts.

        Args:
            columns: The corpus: ``text``.

        Raises:
            TrainingError: There are fewer than three distinct texts: a sentence is contrasted with
                pairs of two others.
        """
        super().prepare(columns)
        # The number of each row's text, (n,): texts are numbered from 0 as they first occur, so
        # the largest number plus 1 is the count of distinct texts.
        (self.texts,) = number_texts(columns["text"])
        n_distinct = int(self.texts.max(initial=-1)) + 1
        if n_distinct < 3:
            raise TrainingError(
                f"the corpus has {n_distinct} distinct texts; contrastive tension needs at least 3"
            )

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make contrastive tension's batch of pairs of sentences.

        For each row of the corpus there are 1 + K pairs, with K the setting ``negatives``: first
        the sentence with itself, labelled 1, and then K pairs of two other sentences, labelled 0.
        Of each pair one encoder embeds the first sentence and another the second.

        Args:
            rows: The rows of the corpus, (b,).
            rng: The generator of the other sentences.

        Returns:
            ``first`` and ``second``, the model inputs (b * (1 + K), t) of the sentences for each
            encoder, anchor by anchor; and ``labels``, (b * (1 + K),).
        """
        anchors = np.repeat(rows, self.negatives)
        # Rows of the corpus, (b * K,) each: two different sentences, neither of them the anchor.
        first = self._draw_other_texts(rng, anchors)
        second = self._draw_other_texts(rng, anchors, first)
        # True at the first pair of each anchor, that of the anchor with itself.
        labels = np.tile(np.arange(1 + self.negatives) == 0, len(rows))
        return {
            "first": self.inputs(("text",), self._with_anchors(rows, first)),
            "second": self.inputs(("text",), self._with_anchors(rows, second)),
            "labels": torch.from_numpy(labels).float(),
        }

    def _with_anchors(self, rows: Rows, negative_rows: Rows) -> Rows:
        """Put each anchor's row before the rows of its K negatives (the setting ``negatives``).

        Args:
            rows: The rows of the anchors, (b,).
            negative_rows: The rows of their negatives, anchor by anchor, (b * K,).

        Returns:
            All rows, (b * (1 + K),).
        """
        return np.column_stack([rows, negative_rows.reshape(-1, self.negatives)]).ravel()

    def _draw_other_texts(self, rng: np.random.Generator, *excluded: Rows) -> Rows:
        """Draw rows of the corpus whose texts differ from those of other rows, by position.

        Rows with an excluded text are drawn again until there are none; the corpus has at least
        three distinct texts, so there is always another one. The authors' code does not
        check this: there about one pair of n, with n sentences, is of the same sentence, but is
        labelled as one of different sentences.

        Args:
            rng: The generator of the draws.
            excluded: Arrays of rows of the corpus, (m,) each.

        Returns:
            The drawn rows, (m,): the text at position i is none of the texts of ``excluded`` at i.
        """
        drawn_rows = rng.integers(len(self.texts), size=len(excluded[0]))  # one per position
        while True:
            # True at each position whose text is excluded there; equal numbers are equal texts.
            is_excluded = np.logical_or.reduce(
                [self.texts[drawn_rows] == self.texts[rows] for rows in excluded]
            )
            if not is_excluded.any():
                return drawn_rows
            drawn_rows[is_excluded] = rng.integers(len(self.texts), size=int(is_excluded.sum()))

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return contrastive tension's loss as ``loss``, and two numbers only to be recorded.

        The loss is the mean binary cross-entropy over this process's pairs; the logit of a pair is
        the dot product of its two embeddings. ``same`` is the mean dot product of pairs of one
        sentence, ``others`` that of pairs of two; both grow if the encoders collapse.

        Args:
            batch: What :meth:`collate` made: ``first`` and ``second``, model inputs for each of two
                encoders, and ``labels``, 1 for pairs of one sentence, else 0.
        """
        # The second encoder began as a copy of the student.
        first = self.student.embed(batch["first"])
        second = self.second.embed(batch["second"])
        dot_products = (first * second).sum(dim=1).detach()
        is_same = batch["labels"].bool()
        # The library's loss, ``ContrastiveTensionLoss``, is the sum over the pairs.
        loss = library_loss(self.loss, first, second, labels=batch["labels"]) / len(is_same)
        return {
            "loss": loss,
            "same": dot_products[is_same].mean(),
            "others": dot_products[~is_same].mean(),
        }


class ContrastiveTensionInBatch(TwoStudents):
    """Each copy finds the other's embedding of the same sentence in the batch, by cosine.

    The loss is that of sentence-transformers.
    """

    scale: PositiveFloat = 20.0
    """The initial factor of the cosines; it is trained."""
    dropout_in_training: bool = True

    def __post_init__(self) -> None:
        """Copy the student as the second encoder, and make the loss with a trained scale.

        The loss is ``ContrastiveTensionLossInBatchNegatives`` of sentence-transformers.
        """
        super().__post_init__()
        # The loss embeds sentences itself, by two models: model2, its argument, and model1, a copy
        # of model2 that it makes. Here both models are stand-ins that return embeddings computed
        # before, which ``library_loss`` passes by number. Model2 returns "2", the embeddings of the
        # second encoder; its copy would too, so it is replaced by a model that returns "1".
        loss = make_loss("ContrastiveTensionLossInBatchNegatives", column="2", scale=self.scale)
        self.loss = loss.to(self.student.device)
        self.loss.model1 = GivenEmbeddings("1")

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return the symmetric cross-entropy as ``loss``, and the ``scale``, only to be recorded.

        Each sentence by the first encoder finds itself among all by the second, and the reverse,
        over the sentences of all training processes; the loss is the mean of both cross-entropies.
        The scale is the trained factor of the cosines; ``logit_scale`` is its logarithm.

        Args:
            batch: What :meth:`collate` made: ``views``, the model inputs of the sentences, each
                once.
        """
        first = gather_over_ranks(self.student.embed(batch["views"]))
        second = gather_over_ranks(self.second.embed(batch["views"]))
        return {
            "loss": library_loss(self.loss, first, second),
            "scale": self.loss.logit_scale.exp(),
        }


class SelfGuided(ContrastiveLearner):
    """A sentence's [CLS] against the layers of the fixed copy, under a projection head.

    The weights are held near their start.
    """

    variant: Literal["base", "opt1", "opt2", "opt3", "opt2-released", "translation"] = "opt3"
    """``base`` (SG), ``opt1``, ``opt2``, ``opt3`` (SG-OPT) contrast with the fixed copy's layers,
    ``opt2-released`` as the released code does; ``translation`` with the corpus's ``positive``,
    embedded by the tuned encoder, under ``base``'s loss."""
    temperature: PositiveFloat = 0.01
    regulariser: NonNegativeFloat = 0.1
    """Lambda, the weight of the squared distance from the initial weights."""
    layer_pooling: Literal["max", "mean"] = "max"
    """The pooling of the fixed copy's layers; ``max`` in the paper, ``mean`` by default in the
    code."""
    fixed_dropout: bool = False
    """Whether the fixed copy has dropout in training, as in the released code, whose call of
    ``train()`` reaches it too."""
    freeze_embeddings: bool = True
    """Whether the student's embedding module is not trained."""
    head: bool = True
    """Whether the contrast is under a projection head, which is not saved (the paper); otherwise it
    is of the embeddings themselves."""
    head_width: PositiveInt = 4096

    def __post_init__(self) -> None:
        """Copy the student's model as the one that stays fixed, and make the projection head.

        This is self-guided contrastive learning: the student is trained, and a fixed copy gives
        hidden states as positives. The head is between embeddings and the loss.

        Raises:
            EncoderError: The embeddings are to be frozen, but the model has no such module.
        """
        student = self.student
        model = student.model
        # The columns of the corpus that the method reads.
        self.needs = ("anchor", "positive") if self.variant == "translation" else ("text",)
        # How one vector is made of the tokens' states in a layer of the fixed copy: their maximum
        # or mean.
        self.pooling = Pooling.parse(self.layer_pooling)
        # ``Backbone`` is no torch module, so the copy is not stored in checkpoints: it is never
        # trained, and a resumed run copies it again.
        fixed = copy.deepcopy(model).requires_grad_(False)
        self.fixed_backbone = Backbone(
            student.backbone.tokenizer, model=fixed, device=student.device
        )
        if self.freeze_embeddings:
            if not hasattr(model, "embeddings"):
                raise EncoderError(
                    f"{type(model).__name__}: no 'embeddings' to freeze; freeze_embeddings = false"
                )
            model.embeddings.requires_grad_(False)
        self.projector: torch.nn.Module = torch.nn.Identity()
        if self.head:
            first_layer, last_layer = fresh_layers(
                student.model, student.backbone.width, self.head_width, self.head_width
            )
            # An activation follows the last layer too. The contrast has ``head_width`` dimensions.
            self.projector = torch.nn.Sequential(
                first_layer, torch.nn.GELU(), last_layer, torch.nn.GELU()
            ).to(student.device)
        # Without dropout the fixed copy stays in evaluation mode while the student is trained.
        self.set_dropout(fixed, dropout=self.fixed_dropout)

    @property
    def fixed(self) -> Any:  # noqa: ANN401 - transformers is untyped
        """The copy with the initial weights."""
        return self.fixed_backbone.model

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch of sentences, and for some variants of the loss draw a layer for each.

        Args:
            rows: The rows of the corpus, (b,).
            rng: The generator of the layers.

        Returns:
            ``views``, the model inputs of the texts, those of one column of the corpus below those
            of the other; and for variants that contrast a sentence with one layer of the fixed
            copy, ``layers``, (b,): the index of its hidden state, 0 for the embedding output.
        """
        batch = super().collate(rows, rng)
        if self.variant not in ("translation", "opt3"):
            batch["layers"] = torch.from_numpy(
                rng.integers(0, self.student.backbone.depth + 1, len(rows))
            )
        return batch

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return the losses of self-guided contrastive learning, and as ``loss`` their sum.

        ``contrastive`` contrasts the student's embeddings with layers of its fixed copy; for the
        variant ``translation``, with those of the sentences' translations. ``distance`` is that of
        the weights from their start; ``regulariser`` is its weight, and if that is 0, ``loss`` is
        the contrast alone.

        Args:
            batch: What :meth:`collate` made: ``views``, the model inputs of the texts, and for some
                variants ``layers``, the layer of the fixed copy that was drawn for each sentence,
                (b,).
        """
        embeddings = self.projector(self.student.embed(batch["views"]))
        if self.variant == "translation":
            contrastive = nt_xent(*gather_pairs(embeddings, views=2), temperature=self.temperature)
        else:
            pooled_layers = self.pool_fixed_layers(batch["views"])  # (b, depth + 1, h)
            if "layers" in batch:
                rows = torch.arange(len(pooled_layers), device=pooled_layers.device)
                # Each sentence's drawn layer alone, (b, 1, h).
                pooled_layers = pooled_layers[rows, batch["layers"]][:, None]
            contrastive = self_guided(
                gather_over_ranks(embeddings),
                gather_over_ranks(self.projector(pooled_layers)),
                temperature=self.temperature,
                variant=self.variant,
            )
        if not self.regulariser:
            return {"loss": contrastive}
        losses = {"contrastive": contrastive, "distance": self.distance()}
        return with_weighted_sum(losses, {"distance": self.regulariser})

    def pool_fixed_layers(self, tokens: Tokens) -> torch.Tensor:
        """Embed sentences by each layer of the fixed copy of the student, without gradient.

        ``pooling`` makes one vector of the states of a layer: their maximum or mean over the
        tokens.

        Args:
            tokens: The model inputs, (b, t) each.

        Returns:
            The pooled hidden states (b, depth + 1, h); layer 0 is the embedding output.
        """
        layers = range(self.fixed_backbone.depth + 1)

        def pool_layers(part: Tokens) -> torch.Tensor:
            """Return the pooled hidden states of some rows, (b', depth + 1, h)."""
            # A list with the states (b', t', h) of each layer.
            states = self.fixed_backbone.hidden_states(part, layers)
            return torch.stack(
                [self.pooling.pool([state], part["attention_mask"]) for state in states], dim=1
            )

        # Perhaps in parts of similar length; the results are in the order of the batch.
        with torch.no_grad():
            return self.student.compute_in_parts(tokens, pool_layers)

    def distance(self) -> torch.Tensor:
        """Return the squared distance of the student's weights from their start, a scalar.

        It is the sum over all weights of the squared difference, no mean and no root. The fixed
        copy (``fixed``) has the weights of the start. Frozen weights are omitted, as they would add
        0.
        """
        initial = dict(self.fixed.named_parameters())
        tuned = {
            name: weight
            for name, weight in self.student.model.named_parameters()
            if weight.requires_grad
        }
        return anchored_l2(tuned, {name: initial[name] for name in tuned})
