from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch

from stsbench.core.errors import EncoderError
from stsbench.encoders.transformer import pooling
from stsbench.encoders.transformer.pooling import wk_layers, wk_pool

Array = npt.NDArray[np.floating]

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
    states = states + 0.3 * np.sin(0.41 * k * (j + 1) + i + shift)
    return states


def literal_wk(states: Array, *, window: int = 2, released: bool = True) -> Array:
    """WK of one sentence (l, t, h), [SEP] included, as published: a QR for every token and layer."""
    tokens = [_literal_token(states[:, i], window, released) for i in range(states.shape[1] - 1)]
    spreads = []
    for i in range(states.shape[1] - 1):
        unit = states[:, i] / np.linalg.norm(states[:, i], axis=1, keepdims=True)
        spreads.append(np.var([unit[k] @ unit[k + 1] for k in range(len(unit) - 1)]))
    embedding: Array = np.average(tokens, axis=0, weights=spreads)
    return embedding


def _literal_token(x: Array, window: int, released: bool) -> Array:
    alignment, novelty = [], []
    for k in range(len(x)):
        below = x[max(k - window, 0) : k]
        if released and k < window <= len(x):
            below = x[:0]
        stack = np.concatenate([below, x[k + 1 : k + 1 + window], x[k : k + 1]])
        triangle = np.linalg.qr(stack.T)[1]
        r = triangle[:, -1]
        columns = triangle[:-1, :-1] / np.linalg.norm(triangle[:-1, :-1], axis=0)
        similarity = columns.mean(axis=1) @ r[:-1] / np.linalg.norm(r[:-1])
        alignment.append(1 / (2 * len(stack) * similarity))
        novelty.append(abs(r[-1]) / np.linalg.norm(r))
    alpha = np.array(alignment) / sum(alignment) + np.array(novelty) / sum(novelty)
    token: Array = alpha / alpha.sum() @ x
    return token


def pool_one(states: Array, **options: bool | int) -> Array:
    """Our embedding of one sentence (l, t, h)."""
    pooled: Array = wk_pool([torch.tensor(state)[None] for state in states], None, **options)[0].numpy()  # type: ignore[arg-type]
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


@pytest.mark.parametrize("released", [True, False])
@pytest.mark.parametrize(
    ("layers", "tokens", "width", "window"), [(3, 2, 8, 2), (5, 9, 6, 2), (9, 6, 32, 2), (9, 5, 16, 1), (7, 4, 16, 3)]
)
def test_agrees_with_a_qr_for_every_token_and_layer(layers, tokens, width, window, released):
    states = np.random.default_rng(layers).normal(size=(layers, tokens, width)) + 0.7
    expected = literal_wk(states, window=window, released=released)
    np.testing.assert_allclose(pool_one(states, window=window, released_window=released), expected, rtol=1e-9)


def test_published_values():
    first, second = waves(13, 7, 12), waves(13, 7, 12, shift=1)[:, :4]
    layers = list(wk_layers(4, depth=12))
    assert layers == [4, 5, 6, 7, 8, 9, 10, 11, 12]
    states, mask = padded([first[layers], second[layers]])
    np.testing.assert_allclose(wk_pool(states, mask), numbers(OFFICIAL), rtol=0, atol=1e-13)
    np.testing.assert_allclose(pool_one(first[layers].astype(np.float32)), numbers(PORT)[0], rtol=0, atol=2e-6)


@pytest.mark.parametrize("left", [False, True])
def test_a_padded_batch_is_its_single_sentences(left):
    rng = np.random.default_rng(1)
    sentences = [rng.normal(size=(5, tokens, 8)) for tokens in (7, 2, 1, 4)]
    states, mask = padded(sentences, left=left)
    np.testing.assert_array_equal(wk_pool(states, mask), [pool_one(s) for s in sentences])


def test_short_sentences():
    states = waves(5, 3, 12)
    # [CLS] [SEP]: all the weight is on [CLS]. One token alone is kept. Nothing at all gives zeros.
    np.testing.assert_allclose(pool_one(states[:, :2]), _literal_token(states[:, 0], 2, True), rtol=1e-12)
    np.testing.assert_allclose(pool_one(states[:, :1]), _literal_token(states[:, 0], 2, True), rtol=1e-12)
    np.testing.assert_array_equal(pool_one(states[:, :0]), np.zeros(12))


@pytest.mark.parametrize("chunk", [1, 2, 5, 12])
def test_chunks_change_nothing(chunk, monkeypatch):
    rng = np.random.default_rng(2)
    states, mask = padded([rng.normal(size=(4, tokens, 8)) for tokens in (5, 4, 5, 1, 3)])
    whole = wk_pool(states, mask)
    monkeypatch.setattr(pooling, "CHUNK", chunk)
    assert torch.equal(wk_pool(states, mask), whole)


def test_layers_all_alike_give_the_mean_of_the_tokens():
    tokens = np.random.default_rng(6).normal(size=(4, 8))
    np.testing.assert_allclose(pool_one(np.stack([tokens] * 5)), tokens[:-1].mean(axis=0), rtol=1e-9)


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


@pytest.mark.parametrize(("dtype", "out"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)])
def test_embeddings_are_float32_or_wider(dtype, out):
    states = [torch.tensor(state, dtype=dtype, requires_grad=True)[None] for state in waves(4, 3, 8)]
    pooled = wk_pool(states, None)
    assert pooled.dtype == out
    assert not pooled.requires_grad


def test_layers_by_start():
    assert wk_layers(0, depth=4) == (0, 1, 2, 3, 4)
    assert wk_layers(-3, depth=12) == (10, 11, 12)
    assert len(wk_layers(4, depth=24)) == 21


@pytest.mark.parametrize(("start", "left"), [(3, 2), (4, 1), (5, 0), (9, 0), (-2, 2), (-6, 0)])
def test_too_few_layers_is_one_clear_line(start, left):
    message = rf"pooling 'wk\({start}\)' leaves {left} of the model's 5 hidden states \(0 to 4\); it needs 3 at least"
    with pytest.raises(EncoderError, match=f"^{message}$"):
        wk_layers(start, depth=4)
