"""A masked language model's guesses for words, for :func:`stsbench.training.augmentation.texts.replace_masked`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers

from stsbench.encoders.checkpoints.checkpoint import Checkpoint, find_checkpoint
from stsbench.encoders.devices import open_device
from stsbench.encoders.transformer.opening import load_model, load_tokenizer
from stsbench.errors import EncoderError

WORD_STARTS = ("Ġ", "▁")
"""What byte-pair and SentencePiece vocabularies begin a word with; WordPiece marks what goes on instead."""


class MaskedFill:
    """Words and positions to the likeliest other word for each, all of them masked at once.

    SimCSE's "MLM 15%" uses BERT-base and says no more; here a guess is one whole word of the vocabulary, with a
    letter or digit, and never the word that was there. What lies behind the model's longest input stays.
    """

    def __init__(self, model: str, *, revision: str = "unpinned", device: str = "auto") -> None:
        """Load a masked language model.

        Args:
            model: a checkpoint's folder or its name on the Hub.
            revision: its commit on the Hub.
            device: ``auto`` is a GPU where there is one.

        Raises:
            SourceError: it cannot be had.
            EncoderError: it is no masked language model.
        """
        checkpoint = find_checkpoint(model, revision=revision)
        self.tokenizer, loaded = load_masked_language_model(checkpoint)
        self.device = open_device(device)
        self.model = loaded.eval().to(self.device)
        self.max_length = checkpoint.max_length()
        self.words: list[str] = whole_words(self.tokenizer, loaded.config.vocab_size)
        self.never = torch.tensor([not word for word in self.words], device=self.device)

    def __call__(self, words: Sequence[str], positions: Sequence[int]) -> list[str]:
        """Return a new word for each position, given in order."""
        masked = list(words)
        for at in positions:
            masked[at] = self.tokenizer.mask_token
        batch = self.tokenizer(
            " ".join(masked), truncation=self.max_length is not None, max_length=self.max_length, return_tensors="pt"
        ).to(self.device)
        asked = batch["input_ids"][0] == self.tokenizer.mask_token_id
        with torch.inference_mode():
            logits = self.model(**batch).logits[0, asked].masked_fill(self.never, -torch.inf)
        guesses = [self._likeliest(row, words[at]) for row, at in zip(logits, positions, strict=False)]
        return guesses + [words[at] for at in positions[len(guesses) :]]

    def _likeliest(self, logits: torch.Tensor, word: str) -> str:
        best: list[str] = [self.words[i] for i in logits.topk(min(8, len(self.words))).indices.tolist()]
        return next(guess for guess in best if guess and guess.lower() != word.lower())


def load_masked_language_model(checkpoint: Checkpoint) -> tuple[Any, Any]:
    """Load the tokenizer and the model of a checkpoint, on the CPU.

    Raises:
        EncoderError: it is no masked language model.
    """
    tokenizer = load_tokenizer(checkpoint)
    model, missing = load_model(transformers.AutoModelForMaskedLM, checkpoint, dtype="float32")
    if missing or tokenizer.mask_token_id is None:
        lacks = f"the weights lack '{missing[0]}'" if missing else "its tokenizer has no mask token"
        raise EncoderError(f"{checkpoint.folder}: no masked language model: {lacks}")
    return tokenizer, model


def whole_words(tokenizer: Any, size: int) -> list[str]:  # noqa: ANN401 - transformers is untyped
    """Each token's word, empty for special tokens, parts of words and punctuation."""
    tokens = tokenizer.convert_ids_to_tokens(range(min(size, len(tokenizer))))
    tokens += [""] * (size - len(tokens))
    special = set(tokenizer.all_special_tokens)
    begins = any(token.startswith(WORD_STARTS) for token in tokens)
    found = []
    for at, token in enumerate(tokens):
        whole = token.startswith(WORD_STARTS) if begins else not token.startswith("##")
        word = tokenizer.decode([at]).strip() if whole and token and token not in special else ""
        found.append(word if word.isalnum() else "")
    return found
