"""Methods that say a damaged text again: masked language modelling, and TSDAE through a sentence's embedding."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import transformers

from stsbench.core.cards import Share
from stsbench.core.errors import EncoderError
from stsbench.encoders.words.words import tokeniser
from stsbench.training.learner import (
    IGNORED,
    Batch,
    HiddenShare,
    Learner,
    Losses,
    Rows,
    mean_of_rows,
    row_losses,
)
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.student import save_student
from stsbench.training.texts import delete_each


class MaskedLanguageModel(Learner):
    """Guess hidden tokens: the pre-training of BERT, from a checkpoint or from scratch, without next sentence prediction.

    Devlin et al. 2019, https://aclanthology.org/N19-1423, section 3.1. What is saved keeps its head, and opens as an encoder too.
    """

    chunks = True
    mlm_weight = 1
    rate: HiddenShare = 0.15
    """The share of tokens that are hidden; of those 80% are masked, 10% another token, 10% left."""

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Texts with tokens hidden, and the labels."""
        return self.hide(self.inputs(["text"], rows), rng, rate=self.rate)

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The loss of guessing."""
        return {"loss": self.guessing_loss(batch)}

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the language model, head and all: a base for further training, and an encoder."""
        save_student(self.student, folder, language_model=True)


class TSDAE(Learner):
    """A decoder that sees nothing of a damaged sentence but its embedding says the whole one again.

    It shares all weights of the student but the attention to the embedding. Wang, Reimers and Gurevych 2021, arXiv 2104.06979,
    https://aclanthology.org/2021.findings-emnlp.59; details of sentence-transformers' loss and data set of its authors.
    """

    chunks = True
    mlm_weight = 1
    deletion: Share = 0.6
    """How likely a word is left out. sentence-transformers' newer example keeps words with 0.6 instead, 0.4 here."""
    words: Literal["ptb", "whitespace"] = "ptb"
    """What a word is: by NLTK's rules, whose detokeniser joins them again, or what blanks divide."""
    decoder: Literal["tied", "own"] = "tied"
    """``own`` begins as the student and is trained apart from it."""

    def __post_init__(self) -> None:
        self.split = tokeniser(self.words)
        model = self.student.language_model
        self.speaker = _decoder(model if self.decoder == "tied" else copy.deepcopy(model)).to(
            self.student.device
        )

    def damaged(self, text: str, rng: np.random.Generator) -> str:
        """A text with words left out, one word at least; the empty one stays."""
        kept = delete_each(self.split(text), rate=self.deletion, rng=rng)
        if self.words == "whitespace":
            return " ".join(kept)
        from nltk.tokenize.treebank import TreebankWordDetokenizer

        joined: str = TreebankWordDetokenizer().detokenize(kept)
        return joined

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Damaged sentences, and whole ones with the token that follows each of theirs as its label."""
        damaged = self.inputs_of_texts([self.damaged(text, rng) for text in self.texts_of(rows)])
        whole = self.inputs(("text",), rows)
        labels = torch.full_like(whole["input_ids"], IGNORED)
        labels[:, :-1] = whole["input_ids"][:, 1:].where(
            whole["attention_mask"][:, 1:] == 1, IGNORED
        )
        return {"damaged": damaged, "whole": {**whole, "labels": labels}}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """The mean cross-entropy of the next token, over the tokens of all ranks."""
        whole, sentences = batch["whole"], self.student.embed(batch["damaged"])
        places = torch.arange(len(sentences), device=sentences.device)[:, None].expand_as(
            whole["labels"]
        )

        def lose(part: Tokens) -> torch.Tensor:
            states = self.speaker.base_model(
                input_ids=part["input_ids"],
                encoder_hidden_states=sentences[part["places"][:, 0]][:, None],
                use_cache=False,
            ).last_hidden_state
            return row_losses(self.speaker, states, part["labels"])

        losses = self.student.compute_in_parts({**whole, "places": places}, lose)
        return {"loss": mean_of_rows(losses, whole["labels"])}


def _decoder(language_model: Any) -> Any:  # noqa: ANN401 - transformers is untyped
    """A causal language model with attention to one embedding, all of whose other weights are those of the one given."""
    config = copy.deepcopy(language_model.config)
    config.is_decoder, config.add_cross_attention = True, True
    try:
        made: Any = transformers.AutoModelForCausalLM.from_config(config)
    except ValueError as error:
        raise EncoderError(
            f"TSDAE: {type(language_model).__name__} has no decoder; use a BERT or RoBERTa"
        ) from error
    modules = dict(made.named_modules())
    for name, parameter in language_model.named_parameters(remove_duplicate=False):
        home, _, own = name.rpartition(".")
        setattr(modules[home], own, parameter)
    return made
