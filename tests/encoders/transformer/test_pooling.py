"""Poolings against their loops, WK against a QR for every token and layer, and the text around a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.transformer import sbert_wk
from stsbench.encoders.transformer.pooling import POOLING_ALIASES, Pooling
from stsbench.encoders.transformer.prompt import Prompt
from stsbench.encoders.transformer.sbert_wk import wk_pool
from tests.encoders.transformer.literal import (
    POOLINGS,
    Array,
    literal_pool,
    literal_token,
    literal_wk,
)

DEPTH, WIDTH = 4, 6


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
    return pooling.pool([states[layer] for layer in pooling.layer_indices(len(states) - 1)], mask)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", [*POOLINGS, *POOLING_ALIASES])
def test_poolings_are_their_loops(name, left):
    single, states, mask = random_batch(left)
    expected = [literal_pool(name, one) for one in single]
    np.testing.assert_allclose(pooled_by(name, states, mask), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", POOLINGS)
def test_no_mask_is_a_mask_of_ones(name):
    states = [
        torch.from_numpy(state)
        for state in np.random.default_rng(1).normal(size=(DEPTH + 1, 3, 4, WIDTH))
    ]
    ones = pooled_by(name, states, torch.ones(3, 4, dtype=torch.int64))
    torch.testing.assert_close(pooled_by(name, states, None), ones, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_of_sixteen_bit_states_are_wider(dtype):
    # 300 tokens of 300 make 90,000: more than float16 holds, and bfloat16 rounds to 8 bits.
    states = [
        torch.full((1, 300, 2), 300.0, dtype=dtype),
        torch.full((1, 300, 2), 301.0, dtype=dtype),
    ]
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


@pytest.mark.parametrize("name", ["cls", "mask", *POOLINGS])
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
    with pytest.raises(
        CardError, match=r"^unknown pooling '.*; known: cls, cls_before_pooler, mean"
    ) as caught:
        Pooling.parse(name)
    assert near in str(caught.value)


# utils.py of BinWang28/SBERT-WK-Sentence-Embedding at 889e669, 'dissecting', window 2, start 4, run in float64 on
# waves(layers=13, tokens=7, width=12) and the same with shift=1 cut to 4 tokens.
OFFICIAL = """
 0.195246878147780  0.245931043021198 -0.029255118151316 -0.384707068047945 -0.332364621092353  0.145741206550975
 0.501215186883125  0.297699493391339 -0.254135240961639 -0.534844669229430 -0.236192757738373  0.267524567656167
 0.528269391091452 -0.024246897557208 -0.457927480326681 -0.706557474727628 -0.497065713685177  0.007859663708486
 0.470423880805591  0.615313912148103  0.377418127434331 -0.068861424066527 -0.433967699209713 -0.503478485416186
"""
# sentence_transformers/models/WKPooling.py at v0.3.9, layer_start=4, float32, on the same: the first sentence.
PORT = """
 0.19524685  0.24593069 -0.02925530 -0.38470694 -0.33236426  0.14574134
 0.50121500  0.29769920 -0.25413525 -0.53484440 -0.23619261  0.26752454
"""


def numbers(text: str) -> npt.NDArray[np.float64]:
    """A table of numbers as rows of 12."""
    return np.array([float(word) for word in text.split()]).reshape(-1, 12)


def waves(layers: int, tokens: int, width: int, shift: int = 0) -> npt.NDArray[np.float64]:
    """Hidden states (l, t, h) in closed form; adjacent layers have a cosine near 0.9."""
    k, i, j = np.ogrid[:layers, :tokens, :width]
    states: npt.NDArray[np.float64] = np.sin(1.3 * i + 0.7 * j + 0.11 * i * j + shift)
    return states + 0.3 * np.sin(0.41 * k * (j + 1) + i + shift)  # type: ignore[no-any-return]


def pool_one(states: Array) -> Array:
    pooled: Array = wk_pool([torch.tensor(state)[None] for state in states], None)[0].numpy()
    return pooled


def padded(
    sentences: Sequence[Array], *, left: bool = False, filler: float = np.nan
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Sentences (l, t_i, h) as one batch: states (b, t, h) and mask (b, t)."""
    layers, _, width = sentences[0].shape
    longest = max(s.shape[1] for s in sentences)
    batch = np.full((layers, len(sentences), longest, width), filler)
    mask = np.zeros((len(sentences), longest), dtype=np.int64)
    for row, sentence in enumerate(sentences):
        tokens = sentence.shape[1]
        place = slice(longest - tokens, longest) if left else slice(0, tokens)
        batch[:, row, place], mask[row, place] = sentence, 1
    return list(torch.tensor(batch)), torch.tensor(mask)


@pytest.mark.parametrize(("layers", "tokens", "width"), [(3, 2, 8), (5, 9, 6), (9, 6, 32)])
def test_agrees_with_a_qr_for_every_token_and_layer(layers, tokens, width):
    states = np.random.default_rng(layers).normal(size=(layers, tokens, width)) + 0.7
    np.testing.assert_allclose(pool_one(states), literal_wk(states), rtol=1e-9)


def test_published_values():
    first, second = waves(13, 7, 12), waves(13, 7, 12, shift=1)[:, :4]
    layers = list(Pooling.parse("wk(4)").layer_indices(12))
    assert layers == [4, 5, 6, 7, 8, 9, 10, 11, 12]
    states, mask = padded([first[layers], second[layers]])
    np.testing.assert_allclose(wk_pool(states, mask), numbers(OFFICIAL), rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        pool_one(first[layers].astype(np.float32)), numbers(PORT)[0], rtol=0, atol=2e-6
    )


@pytest.mark.parametrize("left", [False, True])
def test_a_padded_batch_is_its_single_sentences(left):
    rng = np.random.default_rng(1)
    sentences = [rng.normal(size=(5, tokens, 8)) for tokens in (7, 2, 1, 4)]
    states, mask = padded(sentences, left=left)
    np.testing.assert_array_equal(wk_pool(states, mask), [pool_one(s) for s in sentences])


def test_short_sentences():
    states = waves(5, 3, 12)
    # [CLS] [SEP]: all the weight is on [CLS]. One token alone is kept. Nothing at all gives zeros.
    np.testing.assert_allclose(pool_one(states[:, :2]), literal_token(states[:, 0]), rtol=1e-12)
    np.testing.assert_allclose(pool_one(states[:, :1]), literal_token(states[:, 0]), rtol=1e-12)
    np.testing.assert_array_equal(pool_one(states[:, :0]), np.zeros(12))


@pytest.mark.parametrize("chunk", [1, 2, 5, 12])
def test_chunks_change_nothing(chunk, monkeypatch):
    rng = np.random.default_rng(2)
    states, mask = padded([rng.normal(size=(4, tokens, 8)) for tokens in (5, 4, 5, 1, 3)])
    whole = wk_pool(states, mask)
    monkeypatch.setattr(sbert_wk, "TOKENS_AT_ONCE", chunk)
    assert torch.equal(wk_pool(states, mask), whole)


def test_layers_all_alike_give_the_mean_of_the_tokens():
    tokens = np.random.default_rng(6).normal(size=(4, 8))
    np.testing.assert_allclose(
        pool_one(np.stack([tokens] * 5)), tokens[:-1].mean(axis=0), rtol=1e-9
    )


@pytest.mark.parametrize("layer", [0, 2, slice(None)])
def test_zero_states_and_orthogonal_layers_stay_finite(layer):
    states = waves(5, 4, 8)
    states[layer, 1] = 0
    assert np.isfinite(pool_one(states)).all()
    assert np.isfinite(pool_one(np.eye(5)[:, None, :].repeat(3, axis=1))).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_token_breaks_its_sentence_only(value):
    sentences = [waves(5, 4, 8, shift) for shift in range(3)]
    sentences[1][2, 1, 3] = value
    sentences[2][2, -1, 3] = value  # [SEP] does not count
    states, mask = padded(sentences)
    assert torch.isnan(wk_pool(states, mask)).any(dim=1).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("dtype", "out"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)]
)
def test_embeddings_are_float32_or_wider(dtype, out):
    states = [
        torch.tensor(state, dtype=dtype, requires_grad=True)[None] for state in waves(4, 3, 8)
    ]
    pooled = wk_pool(states, None)
    assert pooled.dtype == out
    assert not pooled.requires_grad


@pytest.mark.parametrize(("start", "left"), [(3, 2), (4, 1), (5, 0), (9, 0), (-2, 2), (-6, 0)])
def test_too_few_layers_is_one_clear_line(start, left):
    message = rf"pooling 'wk\({start}\)' leaves {left} of the model's 5 hidden states \(0 to 4\); it needs 3 at least"
    with pytest.raises(EncoderError, match=f"^{message}$"):
        Pooling.parse(f"wk({start})").layer_indices(4)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (Prompt(), "a dog"),
        (Prompt("query: "), "query: a dog"),
        (Prompt("{} and {"), "{} and {a dog"),
        (Prompt(template="so {} it is"), "so a dog it is"),
        (Prompt(template="{}"), "a dog"),
        (Prompt(template="again: {}, {}"), "again: a dog, a dog"),
        (Prompt("the ", add_full_stop=True), "the a dog."),
        (Prompt(template='"{}" means', add_full_stop=True), '"a dog." means'),
    ],
)
def test_text_goes_around_a_sentence(prompt, expected):
    assert list(prompt.wrap(["a dog"])) == [expected]


def test_a_full_stop_where_promptberts_evaluation_adds_one():
    ended = ["a dog.", "a dog?", 'a "dog"', "a 'dog'", ""]
    assert Prompt(add_full_stop=True).wrap(ended) == ended
    others = ["a dog", "a dog!", "a dog ", "a dog\u2019"]
    assert Prompt(add_full_stop=True).wrap(others) == [f"{other}." for other in others]


def test_the_facts_are_those_that_fingerprints_have_always_held():
    assert Prompt().fingerprint_fields() == ["", "{}"]
    assert Prompt("a {b}").fingerprint_fields() == ["a {b}", "a {{b}}{}"]
    assert Prompt(template="x {} y", add_full_stop=True).fingerprint_fields() == [
        "",
        "x {} y",
        "add_full_stop",
    ]
