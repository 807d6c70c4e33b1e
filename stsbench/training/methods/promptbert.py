"""Templates with a mask token around sentences: as tokens, and without a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from stsbench.core.cards import Positive
from stsbench.core.errors import CardError
from stsbench.encoders.base import Encoder, TokenIds
from stsbench.encoders.transformer.pooling import PLACE, MaskToken, Prompt, cut_to_fit, last_of
from stsbench.training.loop.gather import gather_views
from stsbench.training.loop.on_cpu import Tokens, by_length
from stsbench.training.objectives import info_nce
from stsbench.training.seams import Batch, Learner, Losses, Rows
from stsbench.training.student import PoolerHead, Student, StudentEncoder, save_student


class MaskTemplate:
    """A prompt with one place for a sentence and one mask token, as a student's tokenizer reads it.

    Raises CardError: the tokenizer has no mask token, or the prompt not one of it or of places for a sentence.
    """

    def __init__(self, prompt: Prompt, student: Student) -> None:
        """Read the prompt."""
        tokenizer: Any = student.backbone.tokenizer
        mask = tokenizer.mask_token
        if mask is None or prompt.places != 1 or prompt.template.count(mask) != 1:
            raise CardError(f"template '{prompt.template}' needs one {PLACE} where the sentence goes and one {mask}")
        first, last = (tokenizer(part)["input_ids"] for part in prompt.template.split(PLACE))
        self.prompt, self.student = prompt, student
        # One special token stands at each end, as with BERT and RoBERTa.
        self.before, self.own = len(first) - 1, [*first[:-1], *last[1:]]
        self.size = len(self.own)
        """Tokens without a sentence, special ones included."""

    def tokens(self, sentences: Sequence[str]) -> TokenIds:
        """The token ids of sentences in the template; one that is too long is cut, never the template."""
        cut = cut_to_fit(self.student.backbone.tokenizer, self.prompt, sentences, self.student.max_length)
        return self.student.tokenize(self.prompt.around(cut))

    def alone(self, lengths: torch.Tensor) -> Tokens:
        """The template without a sentence, at the positions that it has around sentences of so many tokens (k,): (k, t)."""
        ids = torch.tensor(self.own, device=lengths.device).repeat(len(lengths), 1)
        mask = torch.ones_like(ids)
        positions = self.student.backbone.positions(mask).clone()
        positions[:, self.before :] += lengths[:, None]
        return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}


class PromptBERT(Learner):
    """In-batch contrast of a sentence in two templates, with what each template says by itself taken off."""

    chunks = True
    batch_negatives = "joint"
    template: str = 'This sentence of "{}" means [MASK] .'
    """Around anchors, and around every sentence in tests."""
    second_template: str = 'This sentence : "{}" means [MASK] .'
    """Around positives; the same one leaves dropout alone to tell the views apart."""
    temperature: Positive = 0.05
    denoise: bool = True
    """Take off the embedding that a template has without a sentence, at the positions it has around it."""
    head: bool = True
    """The contrast is under a linear layer and tanh, which is dropped afterwards."""
    add_full_stop: bool = True
    """In tests, put a full stop after a sentence that has none; never in training."""
    validation: Literal["as_tests", "released"] = "as_tests"
    """How weights are chosen: as tests embed, or as in the released code, denoised and without the full stop."""

    def __post_init__(self) -> None:
        self.student.need_pooling("mask", "PromptBERT embeds by the mask token of its templates")
        prompts = [Prompt(template=text) for text in (self.template, self.second_template)]
        self.templates = [MaskTemplate(prompt, self.student) for prompt in prompts]
        self.tested = replace(prompts[0], add_full_stop=self.add_full_stop)
        self.projector = PoolerHead(self.student.model) if self.head else torch.nn.Identity()
        self.projector.to(self.student.device)

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences in the first template above those in the second."""
        texts = [self.columns["text"][row] for row in rows.tolist()]
        tokens = TokenIds.join([template.tokens(texts) for template in self.templates])
        return {"views": self.student.collate(tokens, np.arange(len(tokens)))}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The contrastive loss over the sentences of all ranks."""
        views = self.at_mask(batch["views"]).chunk(2)
        masks = batch["views"]["attention_mask"].chunk(2)
        if self.denoise:
            views = tuple(map(self.denoised, views, masks, self.templates))
        anchor, positive = (gather_views(self.projector(view)) for view in views)
        return {"loss": info_nce(anchor, positive, temperature=self.temperature)}

    def at_mask(self, tokens: Tokens) -> torch.Tensor:
        """The last layer's state of each row's mask token, (b, h)."""
        mask = self.student.backbone.tokenizer.mask_token_id

        def embed(part: Tokens) -> torch.Tensor:
            states = self.student.hidden_states(part, (-1,))
            return MaskToken().pool(states, part["attention_mask"], last_of(part["input_ids"], mask))

        chunk = self.student.chunk if torch.is_grad_enabled() else None
        return by_length(tokens, embed, chunk=chunk, unpadded=self.student.unpadded)

    def denoised(self, embeddings: torch.Tensor, mask: torch.Tensor, template: MaskTemplate) -> torch.Tensor:
        """Embeddings (b, h) less the template's own; sentences of one length have that in common, with its dropout."""
        own = mask.sum(dim=1) - template.size
        lengths, which = own.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        return embeddings - self.at_mask(template.alone(lengths))[which]

    def encoders(self) -> list[Encoder]:
        """The student in its first template."""
        if self.validation == "as_tests":
            return [StudentEncoder(self.student, embed=self.at_mask, around=self.tested.around)]
        first = self.templates[0]

        def embed(tokens: Tokens) -> torch.Tensor:
            return self.denoised(self.at_mask(tokens), tokens["attention_mask"], first)

        return [StudentEncoder(self.student, embed=embed, around=first.prompt.around)]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the transformer, and the template that sentences are embedded in."""
        save_student(self.student, folder, prompt=self.tested)
