"""Methods that reconstruct a damaged text: masked language modelling and TSDAE.

TSDAE reconstructs it from the sentence's embedding alone.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import transformers

from stsbench.core.cards import Share
from stsbench.core.errors import EncoderError
from stsbench.encoders.words.words import make_tokeniser
from stsbench.training.learner import (
    IGNORED_LABEL,
    Batch,
    HiddenShare,
    Learner,
    Losses,
    Rows,
    label_loss_sums,
    mean_label_loss,
)
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.saving import save_student
from stsbench.training.texts import delete_each


class MaskedLanguageModel(Learner):
    """Guess hidden tokens: the pre-training of BERT, from a checkpoint or from scratch.

    There is no next sentence prediction. Devlin et al. 2019, https://aclanthology.org/N19-1423,
    section 3.1. The saved model has its head, and opens as an encoder too.
    """

    chunks = True
    mlm_weight = 1
    rate: HiddenShare = 0.15
    """The share of tokens that are hidden: 80% of them by the mask, 10% by another token, and 10%
    are unchanged."""

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch of texts for masked language modelling, with some tokens hidden.

        Each token but the special ones is chosen with probability ``rate``. Of the chosen tokens
        80% become the mask token, 10% a random token, and 10% stay.

        Args:
            rows: The rows of the corpus, (b,).
            rng: The generator of the hidden tokens.

        Returns:
            The model inputs (b, t) by name, and ``labels`` (b, t): the true ids of chosen
            tokens, and -100, which the loss ignores, at all others.
        """
        return self.hide_tokens(self.inputs(["text"], rows), rng, rate=self.rate)

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return the loss of guessing the hidden tokens."""
        return {"loss": self.hidden_token_loss(batch)}

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the language model with its head: a base for further training, and an encoder."""
        save_student(self.student, folder, language_model=True)


class TSDAE(Learner):
    """Reconstruct a sentence by a decoder whose only input from the damaged one is its embedding.

    The decoder shares all weights of the student but the attention to the embedding. Wang, Reimers
    and Gurevych 2021, arXiv 2104.06979, https://aclanthology.org/2021.findings-emnlp.59; details of
    sentence-transformers' loss and data set of its authors.
    """

    chunks = True
    mlm_weight = 1
    deletion: Share = 0.6
    """The probability that a word is deleted. sentence-transformers' newer example keeps words with
    probability 0.6 instead, 0.4 here."""
    words: Literal["ptb", "whitespace"] = "ptb"
    """The division into words: by NLTK's rules, whose detokeniser joins them again, or at
    blanks."""
    decoder: Literal["tied", "own"] = "tied"
    """``tied`` shares the student's weights; ``own`` begins as the student and is trained
    independently."""

    def __post_init__(self) -> None:
        """Make the decoder, from the student's own weights or from a copy of them."""
        self.split = make_tokeniser(self.words)
        model = self.student.language_model
        base = model if self.decoder == "tied" else copy.deepcopy(model)
        # The decoder; the name is in checkpoints.
        self.speaker = _make_decoder(base).to(self.student.device)

    def damage(self, text: str, rng: np.random.Generator) -> str:
        """Return a text with some words deleted; at least one stays, an empty text stays empty.

        Each word is deleted with the probability ``deletion``. If all would be, a random one stays.
        ``words`` names how the text is split: at ``whitespace``, or by nltk's rules of the Penn
        Treebank, which divide punctuation from words; these rules also join the words again.

        Args:
            text: The text.
            rng: The generator of the deletions.
        """
        kept_words = delete_each(self.split(text), rate=self.deletion, rng=rng)
        if self.words == "whitespace":
            return " ".join(kept_words)
        from nltk.tokenize.treebank import TreebankWordDetokenizer

        damaged_text: str = TreebankWordDetokenizer().detokenize(kept_words)
        return damaged_text

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make TSDAE's batch: sentences with words deleted, and the original ones.

        Each word is deleted with the probability ``deletion``, but at least one stays.

        Args:
            rows: The rows of the corpus, (b,).
            rng: The generator of the deletions.

        Returns:
            ``damaged``, the model inputs of the damaged sentences; and ``original``, those of the
            original ones, with ``labels`` (b, t): the id of the next token at each position, or
            -100, which the loss ignores, if there is none.
        """
        damaged = self.inputs_of_texts([self.damage(text, rng) for text in self.texts_of(rows)])
        original = self.inputs(("text",), rows)
        # The label at a position is the token behind it; the last token and padding have none.
        labels = torch.full_like(original["input_ids"], IGNORED_LABEL)
        is_next_token = original["attention_mask"][:, 1:] == 1
        labels[:, :-1] = original["input_ids"][:, 1:].where(is_next_token, IGNORED_LABEL)
        return {"damaged": damaged, "original": {**original, "labels": labels}}

    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return TSDAE's loss as ``loss``: a decoder restores sentences from their embeddings.

        The student embeds the damaged sentences. The decoder (``speaker``) guesses each next token
        of the original sentence from its earlier tokens and the embedding. The loss is the mean
        cross-entropy over the tokens of all training processes.

        Args:
            batch: What :meth:`collate` made, model inputs: the ``damaged`` sentences, and the
                ``original`` ones with ``labels``.
        """
        original = batch["original"]
        embeddings = self.student.embed(batch["damaged"])
        rows = torch.arange(len(embeddings), device=embeddings.device)
        # The index of each row in the batch, as a (b, t) tensor, so that it is split into parts
        # with the other inputs.
        sentence_rows = rows[:, None].expand_as(original["labels"])

        def compute_losses(part: Tokens) -> torch.Tensor:
            """Return the sum of the tokens' losses of each row of a part, (b',).

            A part is some rows of the batch, in any order; the caller restores the order.
            """
            # The embeddings of the part's damaged sentences.
            part_embeddings = embeddings[part["sentence_rows"][:, 0]]
            # The decoder attends to one state, the damaged sentence's embedding, and to earlier
            # tokens. It needs no mask, as padding is behind all tokens.
            states = self.speaker.base_model(
                input_ids=part["input_ids"],
                encoder_hidden_states=part_embeddings[:, None],
                use_cache=False,
            ).last_hidden_state
            # The head of the decoder guesses the tokens that have a label.
            return label_loss_sums(self.speaker, states, part["labels"])

        decoder_inputs = {**original, "sentence_rows": sentence_rows}
        loss_sums = self.student.compute_in_parts(decoder_inputs, compute_losses)
        return {"loss": mean_label_loss(loss_sums, original["labels"])}


def _make_decoder(language_model: Any) -> Any:  # noqa: ANN401 - transformers is untyped
    """Make a decoder, which guesses the next token of a text from earlier ones and an embedding.

    It shares all weights of ``language_model`` (the same tensors, those of the head too), so that
    training one trains both.
    Only the attention to the embedding has weights of its own, which are fresh.

    Args:
        language_model: A masked language model of transformers with its head: the encoder in
            training, or a copy of it.

    Raises:
        EncoderError: The model's architecture has no decoder.
    """
    config = copy.deepcopy(language_model.config)
    config.is_decoder = True
    config.add_cross_attention = True
    try:
        decoder: Any = transformers.AutoModelForCausalLM.from_config(config)
    except ValueError as error:
        raise EncoderError(
            f"TSDAE: {type(language_model).__name__} has no decoder; use a BERT or RoBERTa"
        ) from error
    modules = dict(decoder.named_modules())
    # Both have the same names of weights; put the language model's into the decoder.
    for name, parameter in language_model.named_parameters(remove_duplicate=False):
        module_name, _, parameter_name = name.rpartition(".")
        setattr(modules[module_name], parameter_name, parameter)
    return decoder
