from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.transformer.pooling import ALIASES, Pooling
from tests.encoders.transformer.test_wk import literal_wk

Array = np.ndarray[Any, np.dtype[np.floating[Any]]]
DEPTH, WIDTH = 4, 6
NAMES = [
    "cls_before_pooler", "mean", "max", "last_token", "cls(2)", "cls(0)", "max(1)", "max(-2)",
    "mean(1,-1)", "mean(0,-1)", "mean(-2,-1)", "mean(3)", "mean(0,1,2,3,4)", "wk(0)", "wk(2)", "wk(-3)",
]  # fmt: skip


def literal_pool(name: str, states: Sequence[np.ndarray[Any, Any]]) -> Array:
    """Pool one sentence's hidden states, (t, h) a layer from the word embeddings up, token by token in float64."""
    kind, _, rest = ALIASES.get(name, name).partition("(")
    layers = [int(i) for i in rest.rstrip(")").split(",")] if rest else [-1]
    if kind == "wk":
        woven: Array = literal_wk(np.stack(states[layers[0] :]).astype(np.float64))
        return woven
    total = np.zeros(states[0].shape[1])
    for layer in layers:
        tokens = [np.asarray(token, np.float64) for token in states[layer]]
        if kind == "mean":
            total += sum(tokens) / len(tokens)
        elif kind == "max":
            total += [max(token[k] for token in tokens) for k in range(len(total))]
        else:
            total += tokens[-1] if kind == "last_token" else tokens[0]
    pooled: Array = total / len(layers)
    return pooled


def random_batch(left: bool) -> tuple[list[list[Any]], list[torch.Tensor], torch.Tensor]:
    """Hidden states of sentences of 5, 2, 9 and 3 tokens: one by one, and as one batch whose padding is large."""
    rng = np.random.default_rng(0)
    lengths = (5, 2, 9, 3)
    single = [[rng.normal(size=(t, WIDTH)) for _ in range(DEPTH + 1)] for t in lengths]
    states = np.full((DEPTH + 1, len(lengths), max(lengths), WIDTH), 1e3, dtype=np.float32)
    mask = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    for row, t in enumerate(lengths):
        place = slice(max(lengths) - t, None) if left else slice(0, t)
        states[:, row, place], mask[row, place] = np.stack(single[row]), 1
    return single, list(torch.from_numpy(states)), mask


def pooled_by(name: str, states: Sequence[torch.Tensor], mask: torch.Tensor | None) -> torch.Tensor:
    pooling = Pooling.parse(name)
    return pooling.pool([states[layer] for layer in pooling.states(len(states) - 1)], mask)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", [*NAMES, *ALIASES])
def test_poolings_are_their_loops(name, left):
    single, states, mask = random_batch(left)
    expected = [literal_pool(name, one) for one in single]
    np.testing.assert_allclose(pooled_by(name, states, mask), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_no_mask_is_a_mask_of_ones(name):
    states = [torch.from_numpy(state) for state in np.random.default_rng(1).normal(size=(DEPTH + 1, 3, 4, WIDTH))]
    ones = pooled_by(name, states, torch.ones(3, 4, dtype=torch.int64))
    torch.testing.assert_close(pooled_by(name, states, None), ones, rtol=1e-12, atol=0)


def test_the_marked_token():
    _, states, mask = random_batch(left=False)
    chosen = torch.zeros_like(mask, dtype=torch.bool)
    chosen[[0, 1, 2, 3], [4, 0, 3, 1]] = True
    expected = torch.stack([states[-1][0, 4], states[-1][1, 0], states[-1][2, 3], states[-1][3, 1]])
    assert torch.equal(Pooling.parse("mask").pool([states[-1]], mask, chosen), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_of_sixteen_bit_states_are_wider(dtype):
    # 300 tokens of 300 make 90,000: more than float16 holds, and bfloat16 rounds to 8 bits.
    states = [torch.full((1, 300, 2), 300.0, dtype=dtype), torch.full((1, 300, 2), 301.0, dtype=dtype)]
    for mask in (None, torch.ones(1, 300, dtype=torch.int64)):
        mean = Pooling.parse("mean(0,1)").pool(states, mask)
        assert mean.dtype == torch.float32
        assert mean.tolist() == [[(300 + float(states[1][0, 0, 0])) / 2] * 2]


def test_broken_padding_does_not_reach_the_embedding():
    for left in (False, True):
        _, states, mask = random_batch(left)
        broken = [state.masked_fill(mask.unsqueeze(-1) == 0, float("nan")) for state in states]
        for name in ("mean", "max", "last_token", "cls_before_pooler"):
            assert torch.equal(pooled_by(name, broken, mask), pooled_by(name, states, mask))


@pytest.mark.parametrize("name", ["cls", "mask", *NAMES])
def test_names_read_back(name):
    assert str(Pooling.parse(name)) == name
    assert Pooling.parse(str(Pooling.parse(name))) == Pooling.parse(name)


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("first_last", "mean(1,-1)"),
        ("static_last", "mean(0,-1)"),
        ("last2", "mean(-2,-1)"),
        (" mean(1 , -1) ", "mean(1,-1)"),
        ("mean(-1)", "mean"),
        ("cls(-1)", "cls_before_pooler"),
        ("max(-1)", "max"),
        ("wk(-1)", "wk(-1)"),
    ],
)
def test_other_names_of_the_same(name, canonical):
    assert str(Pooling.parse(name)) == canonical


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("meen", "'mean'"),
        ("CLS", "'cls'"),
        ("last-token", "'last_token'"),
        ("cls(1,2)", ""),
        ("wk", ""),
        ("wk(1,2)", ""),
        ("mean()", ""),
        ("mean(x)", ""),
        ("cls_before_pooler(1)", ""),
        ("mean(1,-1", ""),
        ("", ""),
    ],
)
def test_unknown_names_offer_the_nearest(name, near):
    with pytest.raises(CardError, match=r"^unknown pooling '.*; known: cls, cls_before_pooler, mean") as caught:
        Pooling.parse(name)
    assert near in str(caught.value)


@pytest.mark.parametrize("name", ["mean(1,5)", "cls(-6)", "max(9)"])
def test_layers_the_model_lacks(name):
    with pytest.raises(EncoderError, match=r"^pooling '.*' asks for layer -?\d; the model has 4$"):
        Pooling.parse(name).states(DEPTH)
