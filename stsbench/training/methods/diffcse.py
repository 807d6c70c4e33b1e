"""DiffCSE: SimCSE, and beside it a second model that finds replaced tokens by the help of the sentence's embedding.

Chuang et al. 2022, https://arxiv.org/abs/2204.10298, section 3; details of the released code.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from stsbench.core.cards import Positive
from stsbench.core.errors import EncoderError
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.training.loop.gather import joint_mean, own_rows
from stsbench.training.loop.on_cpu import Tokens, by_length, is_unpadded
from stsbench.training.methods.simcse import TwoViews
from stsbench.training.objectives import info_nce
from stsbench.training.seams import IGNORED, Batch, HiddenShare, Losses, Rows, language_model_head, weighted_sum
from stsbench.training.student import fresh_layers
from stsbench.training.texts import load_masked_language_model


class DiffCSE(TwoViews):
    """In-batch contrast under a projection with batch norm, and replaced-token detection given the projected embedding.

    The student embeds without a head of its own: the projection takes its place, and is dropped after training.
    """

    variant: Literal["paper", "released"] = "paper"
    """``paper``, hidden tokens are replaced by what the generator draws; ``released``, all tokens but the first by what it,
    with dropout, holds likeliest, and padding counts in the mean over tokens."""
    detection_weight: Positive = 0.005
    """Lambda, of replaced-token detection."""
    mask_rate: HiddenShare = 0.3
    """The share of tokens hidden from the generator."""
    generator: str = ""
    """A masked language model with the student's vocabulary, which stays as it is: a folder or a name on the Hub; default
    the student's own start."""
    generator_revision: str = "unpinned"
    """Its commit on the Hub."""
    temperature: Positive = 0.05

    def __post_init__(self) -> None:
        student, width = self.student, self.student.backbone.width
        self.released = self.variant == "released"
        # Two layers, each followed by batch norm; the last of these has no weights.
        first, last = fresh_layers(student.model, width, 2 * width, width, bias=False)
        norms = [torch.nn.BatchNorm1d(2 * width), torch.nn.BatchNorm1d(width, affine=False)]
        self.projection = torch.nn.Sequential(first, norms[0], torch.nn.ReLU(), last, norms[1]).to(student.device)
        self.discriminator = copy.deepcopy(student)
        self.detector = torch.nn.Linear(width, 2).to(student.device)
        named = self.generator
        start = find_checkpoint(named, revision=self.generator_revision) if named else student.checkpoint
        tokenizer, self.guesser = load_masked_language_model(start)
        if tokenizer.get_vocab() != student.backbone.tokenizer.get_vocab():
            raise EncoderError(f"{start.folder}: a generator must have the student's vocabulary; choose another")
        self.guesser.requires_grad_(False).to(student.device)
        self.set_apart(self.guesser, dropout=self.released)

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences twice, and the same with tokens hidden."""
        batch = super().collate(rows, rng)
        return {**batch, "hidden": self.hide(batch["views"], rng, rate=self.mask_rate)}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The contrastive loss, and that of telling which tokens were replaced."""
        tokens = batch["views"]
        # Batch norm counts the sentences of all ranks.
        first, second = self.projection(torch.cat(self.embed_views(tokens))).chunk(2)
        contrastive = info_nce(first, second, temperature=self.temperature)
        edited = self.edit(tokens, batch["hidden"])
        detection = self.detect(tokens, edited, torch.cat([own_rows(first), own_rows(second)]))
        return weighted_sum({"contrastive": contrastive, "detection": detection}, {"detection": self.detection_weight})

    @torch.no_grad()
    def edit(self, tokens: Tokens, hidden: Tokens) -> torch.Tensor:
        """The token ids (b, t) with some replaced by the generator's guesses."""
        guessed = hidden["labels"] != IGNORED
        if self.released:
            guessed = tokens["attention_mask"].bool().clone()
            guessed[:, 0] = False

        def fill(part: Tokens) -> torch.Tensor:
            ids, where = part["input_ids"], part["guessed"]
            states = self.guesser.base_model(input_ids=ids, attention_mask=part["attention_mask"]).last_hidden_state
            logits = language_model_head(self.guesser)(states[where]).float()
            guesses = logits.argmax(dim=1) if self.released else torch.multinomial(logits.softmax(dim=1), 1)[:, 0]
            width = tokens["input_ids"].shape[1] - ids.shape[1]
            return F.pad(part["shown"].masked_scatter(where, guesses), (0, width))

        given = {**hidden, "guessed": guessed, "shown": tokens["input_ids"]}
        unpadded = is_unpadded(self.guesser.base_model)
        edited = by_length(given, fill, chunk=self.student.chunk, unpadded=unpadded)
        return torch.where(tokens["attention_mask"].bool(), edited, tokens["input_ids"])

    def detect(self, tokens: Tokens, edited: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """The mean cross-entropy, over the tokens of all ranks, of telling which of them were replaced.

        ``edited`` are the sentences' ids with some replaced, (b, t); ``vectors`` what stands in the place of the first
        token's embedding, (b, h).
        """
        mask = tokens["attention_mask"]
        counted = torch.ones_like(mask) if self.released else mask

        def lose(part: Tokens) -> torch.Tensor:
            given = vectors[part["row"][:, 0], None]
            (states,) = self.discriminator.hidden_states(
                {"input_ids": part["input_ids"], "attention_mask": part["real"]},
                (-1,),
                transform=lambda embeddings, _: torch.cat([given.to(embeddings.dtype), embeddings[:, 1:]], dim=1),
                padding=self.released,
            )
            logits = self.detector(states).float().transpose(1, 2)
            each = F.cross_entropy(logits, part["replaced"].long(), reduction="none")
            return (each * part["attention_mask"]).sum(dim=1)

        given = {
            "input_ids": edited,
            # What counts is computed: the parts are as wide as this says.
            "attention_mask": counted,
            "real": mask,
            "replaced": (edited != tokens["input_ids"]) & mask.bool(),
            "row": torch.arange(len(mask), device=mask.device)[:, None],
        }
        unpadded = self.discriminator.unpadded and not self.released
        losses = by_length(given, lose, chunk=self.student.chunk, unpadded=unpadded)
        return joint_mean(losses.sum(), counted.sum())
