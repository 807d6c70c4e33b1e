"""PromptBERT: the mask token of a template stands for the sentence; two templates make the views of a contrast.

Jiang et al. 2022, arXiv 2201.04337, https://aclanthology.org/2022.emnlp-main.603; details of the official code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.seams import Encoder
from stsbench.encoders.transformer.pooling import MaskToken, last_of
from stsbench.encoders.transformer.prompt import Prompt
from stsbench.errors import CardError, choose
from stsbench.training.head import make_head
from stsbench.training.loop.gather import check_negatives, gather_views
from stsbench.training.loop.parts import Tokens, by_length
from stsbench.training.loop.saving import save_student
from stsbench.training.objectives import info_nce
from stsbench.training.seams import Batch, Learner, Rows
from stsbench.training.student import Student, StudentEncoder
from stsbench.training.templates import MaskTemplate


class PromptBERT(Learner):
    """In-batch contrast of a sentence in two templates, with what each template says by itself taken off."""

    chunks = True

    def __init__(
        self,
        student: Student,
        *,
        template: str = 'This sentence of "{}" means [MASK] .',
        second_template: str = 'This sentence : "{}" means [MASK] .',
        temperature: float = 0.05,
        denoise: bool = True,
        head: bool = True,
        add_full_stop: bool = True,
        validation: Literal["as_tests", "released"] = "as_tests",
    ) -> None:
        """Choose a variant.

        Args:
            student: what is trained; its pooling must be ``mask``.
            template: around anchors, and around every sentence in tests.
            second_template: around positives; the same one leaves dropout alone to tell the views apart.
            temperature: divides the similarities.
            denoise: take off the embedding that a template has without a sentence, at the positions it has around it.
            head: the contrast is under a linear layer and tanh, which is dropped afterwards.
            add_full_stop: in tests, put a full stop after a sentence that has none; never in training.
            validation: how weights are chosen: as tests embed, or as in the released code, denoised and without
                the full stop.
        """
        super().__init__(student)
        if {str(one) for one in (student.pooling, student.test_pooling, student.validation_pooling)} != {"mask"}:
            raise CardError("PromptBERT embeds by the mask token of its templates: each pooling must be 'mask'")
        prompts = [Prompt(template=text) for text in (template, second_template)]
        self.templates = [MaskTemplate.make(prompt, student) for prompt in prompts]
        self.tested = replace(prompts[0], add_full_stop=add_full_stop)
        self.temperature, self.denoise = temperature, denoise
        self.as_released = choose("validation", validation, {"as_tests": False, "released": True})
        made = make_head("fresh", student.model, [], student.checkpoint) if head else torch.nn.Identity()
        self.head = made.to(student.device)

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences in the first template above those in the second."""
        check_negatives(len(rows))
        texts = [self.columns["text"][row] for row in rows.tolist()]
        tokens = TokenIds.join([template.tokens(self.student, texts) for template in self.templates])
        return {"views": self.student.collate(tokens, np.arange(len(tokens)))}

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The contrastive loss over the sentences of all ranks."""
        views = self.at_mask(batch["views"]).chunk(2)
        masks = batch["views"]["attention_mask"].chunk(2)
        if self.denoise:
            views = tuple(map(self.denoised, views, masks, self.templates))
        anchor, positive = (gather_views(self.head(view)) for view in views)
        return {"loss": info_nce(anchor, positive, temperature=self.temperature)}

    def at_mask(self, tokens: Tokens) -> torch.Tensor:
        """The last layer's state of each row's mask token, (b, h)."""
        mask = self.student.backbone.tokenizer.mask_token_id

        def embed(part: Tokens) -> torch.Tensor:
            states = self.student.hidden_states(part, (-1,))
            return MaskToken().pool(states, part["attention_mask"], last_of(part["input_ids"], mask))

        chunk = self.student.chunk if torch.is_grad_enabled() else None
        return by_length(tokens, embed, chunk=chunk, unpadded=self.student.unpadded(tokens))

    def denoised(self, embeddings: torch.Tensor, mask: torch.Tensor, template: MaskTemplate) -> torch.Tensor:
        """Embeddings (b, h) less the template's own; sentences of one length have that in common, with its dropout."""
        own = mask.sum(dim=1) - template.size
        lengths, which = own.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        return embeddings - self.at_mask(template.alone(self.student, lengths))[which]

    def encoders(self) -> list[Encoder]:
        """The student in its first template."""
        return [_Prompted(self)]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the transformer, and the template that sentences are embedded in."""
        save_student(self.student, folder, prompt=self.tested)


class _Prompted(StudentEncoder):
    """The student as validation sees it."""

    def __init__(self, learner: PromptBERT) -> None:
        super().__init__(learner.student, "student")
        self.learner = learner

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        learner = self.learner
        prompt = learner.templates[0].prompt if learner.as_released else learner.tested
        return super().tokenize(prompt.around(sentences))

    def embed(self, tokens: Tokens) -> torch.Tensor:
        found = self.learner.at_mask(tokens)
        if not self.learner.as_released:
            return found
        return self.learner.denoised(found, tokens["attention_mask"], self.learner.templates[0])
