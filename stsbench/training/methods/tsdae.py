"""TSDAE: a decoder that sees nothing of a damaged sentence but its embedding says the whole one again.

Wang, Reimers and Gurevych 2021, arXiv 2104.06979, https://aclanthology.org/2021.findings-emnlp.59; details of
sentence-transformers' loss and data set of its authors.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
import transformers

from stsbench.encoders.words.tokenisers import tokeniser
from stsbench.errors import EncoderError, choose
from stsbench.training.augmentation.masking import IGNORED, mean_of_rows, row_losses
from stsbench.training.augmentation.texts import check_rate, delete_each
from stsbench.training.loop.parts import Tokens, by_length
from stsbench.training.seams import Batch, Learner, Rows
from stsbench.training.student import Student


class TSDAE(Learner):
    """A student and a decoder that shares all its weights but the attention to the embedding."""

    chunks = True

    def __init__(
        self,
        student: Student,
        *,
        deletion: float = 0.6,
        words: Literal["ptb", "whitespace"] = "ptb",
        decoder: Literal["tied", "own"] = "tied",
    ) -> None:
        """Make the decoder.

        Args:
            student: what is trained, with its language model.
            deletion: how likely a word is left out. sentence-transformers' newer example keeps words with 0.6
                instead, which is 0.4 here.
            words: what a word is: by NLTK's rules, whose detokeniser joins them again, or what blanks divide.
            decoder: ``own`` begins as the student and is trained apart from it.

        Raises:
            EncoderError: the student's architecture has no decoder with attention to an encoder; or NLTK is missing.
        """
        super().__init__(student)
        check_rate(deletion)
        self.deletion = deletion
        self.join = choose("words", words, {"ptb": _joined_by_rules, "whitespace": " ".join})
        self.split = tokeniser(words)
        tied = choose("decoder", decoder, {"tied": True, "own": False})
        self.decoder = _decoder(student.language_model if tied else copy.deepcopy(student.language_model))
        self.decoder.to(student.device)

    @classmethod
    def wants_language_model(cls, params: Mapping[str, Any]) -> bool:
        """Always: its head says the words."""
        return True

    def damaged(self, text: str, rng: np.random.Generator) -> str:
        """A text with words left out, one word at least; the empty one stays."""
        return self.join(delete_each(self.split(text), rate=self.deletion, rng=rng))

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Damaged sentences, and whole ones with the token that follows each of theirs as its label."""
        texts = [self.columns["text"][row] for row in rows.tolist()]
        tokens = self.student.tokenize([self.damaged(text, rng) for text in texts])
        whole = self.views(("text",), rows)
        labels = torch.full_like(whole["input_ids"], IGNORED)
        labels[:, :-1] = whole["input_ids"][:, 1:].where(whole["attention_mask"][:, 1:] == 1, IGNORED)
        return {"damaged": self.student.collate(tokens, np.arange(len(rows))), "whole": {**whole, "labels": labels}}

    def forward(self, **batch: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 - what collate made
        """The mean cross-entropy of the next token, over the tokens of all ranks."""
        whole, sentences = batch["whole"], self.student.embed(batch["damaged"])
        places = torch.arange(len(sentences), device=sentences.device)[:, None].expand_as(whole["labels"])

        def told(part: Tokens) -> torch.Tensor:
            states = self.decoder.base_model(
                input_ids=part["input_ids"],
                encoder_hidden_states=sentences[part["places"][:, 0]][:, None],
                use_cache=False,
            ).last_hidden_state
            return row_losses(self.decoder, states, part["labels"])

        losses = by_length({**whole, "places": places}, told, chunk=self.student.chunk)
        return {"loss": mean_of_rows(losses, whole["labels"])}


def _joined_by_rules(words: Sequence[str]) -> str:
    from nltk.tokenize.treebank import TreebankWordDetokenizer

    joined: str = TreebankWordDetokenizer().detokenize(words)
    return joined


def _decoder(language_model: Any) -> Any:  # noqa: ANN401 - transformers is untyped
    """A causal language model with attention to one embedding, all of whose other weights are those of the one given."""
    config = copy.deepcopy(language_model.config)
    config.is_decoder, config.add_cross_attention = True, True
    try:
        made: Any = transformers.AutoModelForCausalLM.from_config(config)
    except ValueError as error:
        raise EncoderError(f"TSDAE: {type(language_model).__name__} has no decoder; use a BERT or RoBERTa") from error
    modules = dict(made.named_modules())
    for name, parameter in language_model.named_parameters(remove_duplicate=False):
        home, _, own = name.rpartition(".")
        setattr(modules[home], own, parameter)
    return made
