"""ConSERT's removal of frequent tokens: what is counted, what is left out, what is left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.core.errors import CardError, EncoderError
from stsbench.core.registry import call_with_params
from stsbench.encoders.base import TokenIds
from stsbench.encoders.whitening import TokenRemovalEncoder, frequent_tokens
from tests.encoders.tiny import SENTENCES

TEXTS = [text for text in SENTENCES if not text.startswith("word ")]


FEW = ["a dog", "", "means a dog", "the", "the a"]
"""Texts in which the two special tokens are the most frequent."""


def removal(tiny: Any, *, make: str = "bert", k: int = 3, pooling: str = "last2", **more: Any) -> TokenRemovalEncoder:
    return TokenRemovalEncoder(str(tiny[make]), k=k, base_params={"pooling": pooling, **more.pop("base", {})}, **more)


def test_the_most_frequent_tokens():
    tokens = TokenIds.from_lists([[1, 7, 7, 2], [1, 5, 2], [], [1, 9, 2, 9]])
    assert frequent_tokens(tokens, 3).tolist() == [1, 2, 7]
    assert frequent_tokens(tokens, 5).tolist() == [1, 2, 7, 9, 5]
    assert frequent_tokens(tokens, 99).tolist() == [1, 2, 7, 9, 5]
    assert frequent_tokens(tokens, 0).tolist() == []


# What ConSERT's analysis_rep_space.py (03c9e8f) leaves out of these sentences by its k, padding aside.
OFFICIAL = {0: [101], 1: [101, 102], 2: [3, 101, 102], 3: [3, 7, 101, 102], 5: [3, 5, 7, 9, 101, 102]}
COUNTED = [[101, 7, 7, 3, 102], [101, 5, 102], [101, 102], [101, 9, 3, 9, 102, 4], [101, 8, 3, 4, 5, 102]]


def test_the_script_leaves_out_one_more():
    tokens = TokenIds.from_lists(COUNTED)
    assert {k: sorted(frequent_tokens(tokens, k + 1).tolist()) for k in OFFICIAL} == OFFICIAL


@pytest.mark.parametrize(("count", "types"), [("paper", 3), ("script", 4)])
def test_special_tokens_count_and_the_script_takes_one_more(tiny, count, types):
    encoder = removal(tiny, count=count)
    removed = encoder.fit_texts(FEW).removed
    counted = Counter(encoder.base.tokenize(FEW).ids.tolist())
    assert len(removed) == types
    assert sorted(counted[i] for i in removed.tolist()) == sorted(counted.values())[-types:]
    cls_token = int(encoder.base.tokenize(["a"]).ids[0])
    assert cls_token in removed


@pytest.mark.parametrize(
    ("make", "side"), [("bert", "right"), ("roberta", "right"), ("qwen", "left"), ("gpt2", "right")]
)
def test_the_mean_is_that_of_the_tokens_left(tiny: dict[str, Path], make: str, side: str):
    fitted = removal(tiny, make=make, base={"padding_side": side}).fit_texts(TEXTS)
    base = fitted.base
    embeddings = fitted.encode(TEXTS)
    for text, embedding in zip(TEXTS, embeddings, strict=True):
        tokens = base.tokenize([text])
        kept = ~np.isin(tokens.ids, fitted.removed)
        due = np.zeros(base.backbone.width)
        if kept.any():
            with torch.inference_mode():
                states = base.backbone.hidden_states(
                    {"input_ids": torch.from_numpy(tokens.ids[None].astype(np.int64))}, (-2, -1)
                )
            due = np.mean([state[0].double().numpy()[kept].mean(axis=0) for state in states], axis=0)
        np.testing.assert_allclose(embedding, due, atol=2e-5)


def test_a_sentence_of_removed_tokens_alone_is_a_zero_vector(tiny):
    fitted = removal(tiny).fit_texts(FEW)
    # Nothing but the two special tokens and the third most frequent.
    embeddings = fitted.encode(["", "a", "a dog"])
    assert not embeddings[:2].any()
    assert embeddings[2].any()
    assert fitted.encode([]).shape == (0, 16)
    assert removal(tiny, make="gpt2").fit_texts(TEXTS).encode([""]).any() == np.False_


def test_what_it_cannot_be_made_of(tiny):
    with pytest.raises(CardError, match="takes no mean over a transformer's tokens"):
        removal(tiny, pooling="max")
    with pytest.raises(CardError, match="key 'k': expected a whole number >= 0, not -1"):
        call_with_params(TokenRemovalEncoder, {"base": "minilm", "k": -1}, where="card")
    with pytest.raises(EncoderError, match="is fitted on texts"):
        removal(tiny).encode(["a"])
