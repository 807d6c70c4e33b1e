"""Templates with a mask token around sentences: as tokens, and without a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.transformer.prompt import PLACE, Prompt
from stsbench.encoders.transformer.templates import cut_to_fit
from stsbench.errors import CardError
from stsbench.training.loop.parts import Tokens
from stsbench.training.student import Student


@dataclass(frozen=True)
class MaskTemplate:
    """A prompt with one place for a sentence and one mask token, and the tokens before and after the sentence."""

    prompt: Prompt
    before: list[int]
    after: list[int]

    @classmethod
    def make(cls, prompt: Prompt, student: Student) -> MaskTemplate:
        """Read a prompt with a student's tokenizer.

        Raises:
            CardError: the tokenizer has no mask token, or the prompt not one of it or of places for a sentence.
        """
        tokenizer: Any = student.backbone.tokenizer
        mask = tokenizer.mask_token
        if mask is None or prompt.places != 1 or prompt.template.count(mask) != 1:
            raise CardError(f"template '{prompt.template}' needs one {PLACE} where the sentence goes and one {mask}")
        first, last = (tokenizer(part)["input_ids"] for part in prompt.template.split(PLACE))
        # One special token stands at each end, as with BERT and RoBERTa.
        return cls(prompt, first[:-1], last[1:])

    @property
    def size(self) -> int:
        """Tokens without a sentence, special ones included."""
        return len(self.before) + len(self.after)

    def tokens(self, student: Student, sentences: Sequence[str]) -> TokenIds:
        """The token ids of sentences in the template; one that is too long is cut, never the template."""
        cut = cut_to_fit(student.backbone.tokenizer, self.prompt, sentences, student.max_length)
        return student.tokenize(self.prompt.around(cut))

    def alone(self, student: Student, lengths: torch.Tensor) -> Tokens:
        """The template without a sentence, at the positions that it has around sentences of so many tokens (k,): (k, t)."""
        ids = torch.tensor([*self.before, *self.after], device=lengths.device).repeat(len(lengths), 1)
        mask = torch.ones_like(ids)
        positions = student.backbone.positions(mask).clone()
        positions[:, len(self.before) :] += lengths[:, None]
        return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
