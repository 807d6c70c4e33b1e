"""Prompts: the text around each sentence, and the tokens of the sentence within it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.base import IndexArray
from stsbench.encoders.metadata import replace_lone_surrogates

PLACEHOLDER = "{}"
"""The place of the sentence in a template."""
SENTENCE_ENDINGS = (".", "?", '"', "'")
"""The ends of a sentence for PromptBERT's evaluation; an exclamation mark is not among them."""


@dataclass(frozen=True)
class Prompt:
    """The text that is put around every sentence before it is tokenised.

    Attributes:
        prefix: A text before the sentence.
        template: A text with one place for the sentence, ``{}``, or two; in place of ``prefix``.
        add_full_stop: First put a full stop after a sentence that does not end in one of
            ``. ? " '``.

    Raises:
        CardError: There are both a prefix and a template, or the template has neither one place for
            the sentence nor two.
    """

    prefix: str = ""
    template: str = ""
    add_full_stop: bool = False

    def __post_init__(self) -> None:
        """Check that there is no prefix beside a template, and one or two places in the template.

        ``self.n_copies`` is the number of ``{}`` in the template.

        Raises:
            CardError: There are both, or another number of ``{}``.
        """
        if self.prefix and self.template:
            raise CardError("give 'prompt' or 'prompt_template', not both")
        if self.template and self.n_copies not in (1, 2):
            raise CardError(
                "prompt_template needs one {} where the sentence goes, or two for echo embeddings"
            )

    @property
    def n_copies(self) -> int:
        """The number of copies of the sentence in the text to embed."""
        return self.template.count(PLACEHOLDER) if self.template else 1

    def __str__(self) -> str:
        """Return the text with ``{}`` in place of the sentence; empty if nothing is put around."""
        template = self.fingerprint_fields()[1]
        if self.add_full_stop:
            return f"{template} (with a full stop)"
        return "" if template == PLACEHOLDER else template

    def fingerprint_fields(self) -> list[str]:
        """Return everything in this prompt that can change an embedding, for its fingerprint.

        Returns:
            The prefix; the template, or, if it is empty, the prefix with its own braces doubled
            and then ``{}``; and the word ``add_full_stop`` if that is set.
        """
        escaped_prefix = self.prefix.replace("{", "{{").replace("}", "}}")
        fields = [self.prefix, self.template or f"{escaped_prefix}{PLACEHOLDER}"]
        if self.add_full_stop:
            fields.append("add_full_stop")
        return fields

    def wrap(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return the sentences with the text of this prompt around each, ready to be tokenised.

        If ``add_full_stop`` is set, a full stop is first added to a sentence that ends in none of
        ``. ? " '``, unless it is empty. A template with ``{}`` twice gets each sentence twice. With
        neither prefix nor template, or with the template ``{}``, no text is put around.
        """
        if self.add_full_stop:
            sentences = [add_missing_full_stop(sentence) for sentence in sentences]
        parts = self.template.split(PLACEHOLDER) if self.template else [self.prefix, ""]
        if parts == ["", ""]:
            return sentences
        # The parts of "a{}b{}c" are a, b and c. `join` puts the sentence between each two of them.
        return [sentence.join(parts) for sentence in sentences]


def add_missing_full_stop(sentence: str) -> str:
    """Return the sentence with a full stop, unless it ends in one of ``SENTENCE_ENDINGS``.

    So does PromptBERT's evaluation. The empty sentence stays empty.
    """
    return sentence if not sentence or sentence.endswith(SENTENCE_ENDINGS) else f"{sentence}."


def cut_to_fit(
    tokenizer: Any,  # noqa: ANN401 - transformers is untyped
    prompt: Prompt,
    sentences: Sequence[str],
    max_length: int | None,
) -> list[str]:
    """Return the sentences without their prompt, cut so that each fits together with its prompt.

    A tokenizer that cuts a long text may remove the end of the prompt. So the sentence is cut at
    its end before the prompt is put around it. Half a surrogate pair, which is no valid character,
    is replaced.

    Args:
        tokenizer: A tokenizer of transformers.
        prompt: The text around each sentence.
        sentences: The sentences.
        max_length: The maximum number of tokens of a sentence with its prompt; None for any number.

    Raises:
        CardError: The prompt alone has more tokens.
        EncoderError: The tokenizer does not give the positions of tokens in the text.
    """
    texts = [replace_lone_surrogates(sentence) for sentence in sentences]
    if max_length is not None and texts:
        # The ids of each text with its prompt and special tokens, uncut.
        for row, ids in enumerate(_token_ids(tokenizer, prompt.wrap(texts))):
            if len(ids) > max_length:
                texts[row] = _cut_sentence(
                    tokenizer, prompt, sentence=texts[row], max_length=max_length
                )
    return texts


def _token_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:  # noqa: ANN401 - transformers
    """Return the token ids of each text, with special tokens and uncut."""
    encoded = tokenizer(list(texts), return_attention_mask=False, verbose=False)
    ids_of_texts: list[list[int]] = encoded["input_ids"]
    return ids_of_texts


def _cut_sentence(tokenizer: Any, prompt: Prompt, sentence: str, max_length: int) -> str:  # noqa: ANN401 - transformers
    """Return a sentence, cut at its end so that it fits a maximum length together with its prompt.

    Args:
        tokenizer: A fast tokenizer of transformers.
        prompt: The text around the sentence, which is not cut.
        sentence: The sentence without the prompt.
        max_length: The maximum number of tokens, special tokens included.

    Raises:
        CardError: The prompt alone is too long.
        EncoderError: The tokenizer does not tell where tokens are in the text.
    """
    # Where each token of the sentence ends, in characters from the beginning of the sentence.
    token_ends = [end for _, end in _token_offsets(tokenizer, sentence, add_special_tokens=False)]
    n_tokens = len(token_ends)
    text = sentence
    # Repeated, because at its new end a cut text may have other tokens than the whole one had.
    while True:
        (ids,) = _token_ids(tokenizer, prompt.wrap([text]))  # uncut, with special tokens
        excess = len(ids) - max_length
        if excess <= 0:
            return text
        if not n_tokens:
            raise CardError(
                f"max_length {max_length} leaves nothing of a sentence beside prompt_template"
            )
        # If the prompt has two copies of the sentence, each loses half of the tokens in excess.
        n_tokens = max(0, n_tokens - math.ceil(excess / prompt.n_copies))
        text = sentence[: token_ends[n_tokens - 1]] if n_tokens else ""


def _token_offsets(tokenizer: Any, text: str, **options: bool) -> list[tuple[int, int]]:  # noqa: ANN401 - transformers
    """Tokenise a text and return where each token is in it.

    Args:
        tokenizer: A tokenizer of transformers.
        text: The text to tokenise.
        options: Options of the tokenizer's call, such as ``add_special_tokens``.

    Returns:
        For each token the index of its first character, and of the character after its last. Both
        are 0 for a special token.

    Raises:
        EncoderError: The tokenizer cannot tell: it is not a fast one, written in Rust.
    """
    if not tokenizer.is_fast:
        raise EncoderError(
            f"{type(tokenizer).__name__} does not tell which token is which text; "
            "this prompt_template needs it"
        )
    encoded = tokenizer(text, return_offsets_mapping=True, verbose=False, **options)
    offsets: list[tuple[int, int]] = encoded["offset_mapping"]
    return offsets


def second_copy_spans(tokenizer: Any, prompt: Prompt, sentences: Sequence[str]) -> IndexArray:  # noqa: ANN401 - transformers
    """Return which tokens of each text belong to the second copy of the sentence in it.

    A token that belongs to the copy only in part is one of them.

    Args:
        tokenizer: A fast tokenizer of transformers.
        prompt: A prompt whose template has two places for the sentence.
        sentences: The sentences without the prompt.

    Returns:
        For each sentence the index of the first such token in the text with its prompt, and the
        index after the last, (n, 2). Both are 0 for an empty sentence.
    """
    before, between, _ = prompt.template.split(PLACEHOLDER)
    spans = np.zeros((len(sentences), 2), dtype=np.int64)
    for row, (text, sentence) in enumerate(zip(prompt.wrap(sentences), sentences, strict=True)):
        # `wrap` adds the same full stop to each copy.
        copy = add_missing_full_stop(sentence) if prompt.add_full_stop else sentence
        # The text is: before, first copy, between, second copy, and the rest. Where the second
        # copy begins and ends is counted in characters of the text.
        copy_start = len(before) + len(copy) + len(between)
        copy_stop = copy_start + len(copy)
        # The indices of the tokens that overlap these characters; special tokens, which are at
        # (0, 0), do not.
        copy_tokens = [
            position
            for position, (start, stop) in enumerate(_token_offsets(tokenizer, text))
            if start < copy_stop and stop > copy_start
        ]
        if copy_tokens:
            spans[row] = copy_tokens[0], copy_tokens[-1] + 1
    return spans
