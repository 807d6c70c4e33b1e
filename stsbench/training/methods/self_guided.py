"""Self-guided contrastive learning: a sentence's [CLS] against the layers of a fixed copy of the same encoder.

Kim, Yoo and Lee 2021, arXiv 2106.07345, section 3; SG, its optimised losses (SG-OPT is ``opt3``),
and the paper's baseline Contrastive (BT), whose positives are back-translations.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import numpy as np
import torch

from stsbench.core.cards import Count, NotNegative, Positive
from stsbench.core.errors import EncoderError
from stsbench.encoders.transformer.backbone import Backbone
from stsbench.encoders.transformer.pooling import Pooling
from stsbench.training.loop.gather import gather_views
from stsbench.training.loop.on_cpu import Tokens, by_length
from stsbench.training.objectives import anchored_l2, nt_xent, self_guided
from stsbench.training.seams import Batch, Learner, Losses, Rows, weighted_sum
from stsbench.training.student import fresh_layers


class SelfGuided(Learner):
    """Contrast under a projection head, with the weights held near their start."""

    chunks = True
    batch_negatives = "joint"
    variant: Literal["base", "opt1", "opt2", "opt3", "opt2-released", "translation"] = "opt3"
    """``base`` (SG), ``opt1``, ``opt2``, ``opt3`` (SG-OPT) contrast with the fixed copy's layers, ``opt2-released`` as the
    released code computes it; ``translation`` with the corpus's ``positive``, through the same tuned encoder, under the loss
    of ``base``."""
    temperature: Positive = 0.01
    regulariser: NotNegative = 0.1
    """Lambda, the weight of the squared distance from the initial weights."""
    layer_pooling: Literal["max", "mean"] = "max"
    """Of the fixed copy's layers; ``max`` in the paper, ``mean`` by default in the code."""
    fixed_dropout: bool = False
    """The fixed copy has dropout in training, as in the released code, whose call of ``train()`` reaches it too."""
    freeze_embeddings: bool = True
    """The student's embedding module is not trained."""
    head: bool = True
    """The contrast is under a projection head, which is dropped afterwards (the paper); else bare."""
    head_width: Count = 4096
    """Of the head's two layers."""

    def __post_init__(self) -> None:
        student = self.student
        self.needs = ("anchor", "positive") if self.variant == "translation" else ("text",)
        self.pooling = Pooling.parse(self.layer_pooling)
        # No module of this one's: never trained, it needs no place in checkpoints, a resumed run makes it again.
        fixed = copy.deepcopy(student.model).requires_grad_(False)
        self.fixed_backbone = Backbone(student.backbone.tokenizer, fixed, student.device)
        if self.freeze_embeddings:
            if not hasattr(student.model, "embeddings"):
                raise EncoderError(
                    f"{type(student.model).__name__}: no 'embeddings' to freeze; freeze_embeddings = false"
                )
            student.model.embeddings.requires_grad_(False)
        self.projector: torch.nn.Module = torch.nn.Identity()
        if self.head:
            first, last = fresh_layers(student.model, student.backbone.width, self.head_width, self.head_width)
            # GELU after each, the last one too.
            self.projector = torch.nn.Sequential(first, torch.nn.GELU(), last, torch.nn.GELU()).to(student.device)
        self.set_apart(fixed, dropout=self.fixed_dropout)

    @property
    def fixed(self) -> Any:  # noqa: ANN401 - transformers is untyped
        """The copy that keeps the initial weights."""
        return self.fixed_backbone.model

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """All texts one below the other; a layer drawn for each sentence where the variant takes one."""
        batch = super().collate(rows, rng)
        if self.variant not in ("translation", "opt3"):
            batch["layers"] = torch.from_numpy(rng.integers(0, self.student.backbone.depth + 1, len(rows)))
        return batch

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The contrastive loss, and the pull towards the initial weights."""
        anchors = self.projector(self.student.embed(batch["views"]))
        if self.variant == "translation":
            first, second = (gather_views(view) for view in anchors.chunk(2))
            contrastive = nt_xent(first, second, temperature=self.temperature)
        else:
            hidden = self.fixed_layers(batch["views"])
            if "layers" in batch:
                hidden = hidden[torch.arange(len(hidden), device=hidden.device), batch["layers"]][:, None]
            cls, states = gather_views(anchors), gather_views(self.projector(hidden))
            contrastive = self_guided(cls, states, temperature=self.temperature, variant=self.variant)
        if not self.regulariser:
            return {"loss": contrastive}
        return weighted_sum({"contrastive": contrastive, "distance": self.distance()}, {"distance": self.regulariser})

    def fixed_layers(self, tokens: Tokens) -> torch.Tensor:
        """Every layer of the fixed copy pooled, the embedding output first: (b, depth + 1, h), without gradient."""
        layers = range(self.fixed_backbone.depth + 1)

        def pooled(part: Tokens) -> torch.Tensor:
            states = self.fixed_backbone.hidden_states(part, layers)
            return torch.stack([self.pooling.pool([state], part["attention_mask"]) for state in states], dim=1)

        with torch.no_grad():
            return by_length(tokens, pooled, chunk=self.student.chunk)

    def distance(self) -> torch.Tensor:
        """The squared distance of the student's weights from their start; frozen ones would add 0."""
        initial = dict(self.fixed.named_parameters())
        tuned = {name: p for name, p in self.student.model.named_parameters() if p.requires_grad}
        return anchored_l2(tuned, {name: initial[name] for name in tuned})
