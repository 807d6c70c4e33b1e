"""Sentences in templates: a sentence that is too long is cut, never its template, and where its second copy stands is told.

Echo embeddings (Springer et al. 2024, arXiv 2402.15449) give a decoder the sentence twice and pool the second copy, whose
tokens have seen the whole sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stsbench.encoders.seams import IndexArray
from stsbench.encoders.transformer.prompt import PLACE, Prompt, with_full_stop
from stsbench.errors import CardError, EncoderError


def cut_to_fit(tokenizer: Any, prompt: Prompt, sentences: Sequence[str], max_length: int | None) -> list[str]:  # noqa: ANN401 - transformers
    """The sentences as text that can be tokenised, cut at their ends where they and their template have more tokens than ``max_length``.

    Raises:
        CardError: the template alone has more. EncoderError: the tokenizer does not tell which token is which text.
    """
    from stsbench.encoders.transformer.opening import valid_text

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
        raise EncoderError(
            f"{type(tokenizer).__name__} does not tell which token is which text; a template of two {{}} needs it"
        )
    found: list[tuple[int, int]] = tokenizer(text, return_offsets_mapping=True, verbose=False, **options)[
        "offset_mapping"
    ]
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
