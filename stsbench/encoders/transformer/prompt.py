"""The text around a sentence: a prompt before it, or a template with a place for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.base import IndexArray, valid_text

PLACE = "{}"
"""Where the sentence goes in a template."""
ENDINGS = (".", "?", '"', "'")
"""What PromptBERT's evaluation takes for the end of a sentence; an exclamation mark is not among them."""


@dataclass(frozen=True)
class Prompt:
    """What is put around every sentence before it is tokenised: ``text`` before it, or a ``template`` that holds it once or twice.

    ``add_full_stop`` first puts a full stop after a sentence that does not end in one of ``. ? " '``. Raises CardError: text and
    template are both given, or the template has neither one place nor two.
    """

    text: str = ""
    template: str = ""
    add_full_stop: bool = False

    def __post_init__(self) -> None:
        """Check what is given."""
        if self.text and self.template:
            raise CardError("give 'prompt' or 'prompt_template', not both")
        if self.template and self.places not in (1, 2):
            raise CardError("prompt_template needs one {} where the sentence goes, or two for echo embeddings")

    @property
    def places(self) -> int:
        """How often the sentence stands in what is embedded."""
        return self.template.count(PLACE) if self.template else 1

    def facts(self) -> list[str]:
        """What decides an embedding, for its fingerprint."""
        escaped = self.text.replace("{", "{{").replace("}", "}}")
        return [self.text, self.template or f"{escaped}{PLACE}", *(["add_full_stop"] if self.add_full_stop else [])]

    def around(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return the sentences with this text around each."""
        if self.add_full_stop:
            sentences = [with_full_stop(sentence) for sentence in sentences]
        parts = self.template.split(PLACE) if self.template else [self.text, ""]
        return [sentence.join(parts) for sentence in sentences] if any(parts) or len(parts) > 2 else sentences


def with_full_stop(sentence: str) -> str:
    """Return the sentence with the full stop that PromptBERT's evaluation adds; the empty one stays empty."""
    return sentence if not sentence or sentence.endswith(ENDINGS) else f"{sentence}."


def cut_to_fit(tokenizer: Any, prompt: Prompt, sentences: Sequence[str], max_length: int | None) -> list[str]:  # noqa: ANN401 - transformers
    """The sentences as text that can be tokenised, cut at their ends where they and their template have more tokens than ``max_length``.

    Raises:
        CardError: the template alone has more. EncoderError: the tokenizer does not tell which token is which text.
    """
    texts = [valid_text(sentence) for sentence in sentences]
    if max_length is None or not texts:
        return texts
    sizes = map(len, _ids(tokenizer, prompt.around(texts)))
    return [
        _cut(tokenizer, prompt, text, max_length) if size > max_length else text
        for text, size in zip(texts, sizes, strict=True)
    ]


def _ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:  # noqa: ANN401 - transformers
    found: list[list[int]] = tokenizer(list(texts), return_attention_mask=False, verbose=False)["input_ids"]
    return found


def _cut(tokenizer: Any, prompt: Prompt, sentence: str, max_length: int) -> str:  # noqa: ANN401 - transformers
    ends = [end for _, end in _offsets(tokenizer, sentence, add_special_tokens=False)]
    text, kept = sentence, len(ends)
    while (over := len(_ids(tokenizer, prompt.around([text]))[0]) - max_length) > 0:
        if not kept:
            raise CardError(f"max_length {max_length} leaves nothing of a sentence beside prompt_template")
        kept = max(0, kept - -(-over // prompt.places))
        text = sentence[: ends[kept - 1]] if kept else ""
    return text


def _offsets(tokenizer: Any, text: str, **options: bool) -> list[tuple[int, int]]:  # noqa: ANN401 - transformers
    if not tokenizer.is_fast:
        what = f"{type(tokenizer).__name__} does not tell which token is which text"
        raise EncoderError(f"{what}; a template of two {{}} needs it")
    encoded = tokenizer(text, return_offsets_mapping=True, verbose=False, **options)
    found: list[tuple[int, int]] = encoded["offset_mapping"]
    return found


def second_copies(tokenizer: Any, prompt: Prompt, sentences: Sequence[str]) -> IndexArray:  # noqa: ANN401 - transformers
    """Which tokens are those of the sentence's second copy, (n, 2): the first, and the one after the last.

    A token that begins with the blank before the copy is one of it.
    """
    before, between, _ = prompt.template.split(PLACE)
    spans = np.zeros((len(sentences), 2), dtype=np.int64)
    for row, (text, sentence) in enumerate(zip(prompt.around(sentences), sentences, strict=True)):
        copy = with_full_stop(sentence) if prompt.add_full_stop else sentence
        start = len(before) + len(copy) + len(between)
        of_copy = [at for at, (a, b) in enumerate(_offsets(tokenizer, text)) if a < start + len(copy) and b > start]
        if of_copy:
            spans[row] = of_copy[0], of_copy[-1] + 1
    return spans
