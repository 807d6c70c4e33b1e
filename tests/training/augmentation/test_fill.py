"""A masked language model's guesses: the likeliest other word at each place, and nothing but words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from stsbench.errors import EncoderError
from stsbench.training.augmentation.fill import MaskedFill, whole_words
from stsbench.training.augmentation.texts import replace_masked
from tests.encoders.tiny import make_bert, make_roberta
from tests.training.students import WORDS


def test_the_likeliest_other_word(masked_lm: Path) -> None:
    fill = MaskedFill(str(masked_lm), device="cpu")
    words, at = ["the", "big", "dog", "runs", "today"], [1, 4]
    ids = fill.tokenizer("the [MASK] dog runs [MASK]", return_tensors="pt")
    with torch.no_grad():
        logits = fill.model(**ids).logits[0, [2, 5]]
    # Literally: by falling probability, the first that is a word and not the one that was there.
    expected = []
    for row, place in zip(logits, at, strict=True):
        ranked = [fill.tokenizer.convert_ids_to_tokens(i) for i in row.argsort(descending=True).tolist()]
        expected.append(next(w for w in ranked if w in WORDS and w != words[place]))
    assert fill(words, at) == expected
    made = replace_masked(words * 3, fill=fill, rate=0.4, rng=np.random.default_rng(0))
    assert sum(a != b for a, b in zip(made, words * 3, strict=True)) == 6


def test_words_behind_the_longest_input_stay(masked_lm: Path) -> None:
    fill = MaskedFill(str(masked_lm), device="cpu")
    words = ["dog"] * 60
    # 40 tokens are read: the mark at the beginning, 38 words, the mark at the end.
    made = fill(words, [0, 37, 38, 59])
    assert [guess != "dog" for guess in made] == [True, True, False, False]


def test_only_whole_words_are_guessed(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(make_bert(tmp_path / "bert"))
    words = whole_words(tokenizer, len(tokenizer) + 3)
    known = dict(zip(tokenizer.convert_ids_to_tokens(range(len(tokenizer))), words, strict=False))
    assert (known["dog"], known["7"]) == ("dog", "7")
    assert [known[token] for token in ("##a", "[MASK]", "[CLS]", ".", "'")] == [""] * 5
    assert words[-3:] == [""] * 3
    tokenizer = AutoTokenizer.from_pretrained(make_roberta(tmp_path / "roberta"))
    known = dict(
        zip(tokenizer.convert_ids_to_tokens(range(len(tokenizer))), whole_words(tokenizer, len(tokenizer)), strict=True)
    )
    assert all(word == "" for token, word in known.items() if not token.startswith("Ġ"))


def test_a_checkpoint_without_a_language_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="bert: no masked language model: the weights lack 'cls.predictions"):
        MaskedFill(str(make_bert(tmp_path / "bert")), device="cpu")
