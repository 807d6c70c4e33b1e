"""ConSERT's augmentations: exact counts, padding, chance; counts as its released code has them."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from stsbench.core.errors import StsbenchError
from stsbench.training.augment import (
    embedding_dropout,
    feature_cutoff,
    fgv_noise,
    token_cutoff,
    token_shuffle,
)
from tests.training.tensors import made

CUTOFFS = [token_cutoff, feature_cutoff, embedding_dropout]
T, H = 40, 24
MASK = (torch.arange(T) < torch.arange(1, T + 1)[:, None]).long()
"""Forty sentences of 1 to 40 tokens."""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def views(
    cutoff: Callable[..., torch.Tensor], mask: torch.Tensor, rate: float, seed: int = 0
) -> torch.Tensor:
    """Where ones became zeros, (b, t, h)."""
    return cutoff(torch.ones(*mask.shape, H), mask, rate=rate, generator=seeded(seed)) == 0


def test_counts_are_those_of_the_released_code():
    # _cutoff_embeddings of yym6472/ConSERT@03c9e8f, transformers/modeling_bert.py, on the same masks.
    tokens = {
        0.15: [0] * 6 + [1] * 7 + [2] * 6 + [3] * 7 + [4] * 7 + [5] * 6 + [6],
        0.2: [0] * 4 + [1] * 5 + [2] * 5 + [3] * 5 + [4] * 5 + [5] * 5 + [6] * 5 + [7] * 5 + [8],
        0.29: [
            0,
            0,
            0,
            1,
            1,
            1,
            2,
            2,
            2,
            2,
            3,
            3,
            3,
            4,
            4,
            4,
            4,
            5,
            5,
            5,
            6,
            6,
            6,
            6,
            7,
            7,
            7,
            8,
            8,
            8,
            8,
            9,
            9,
            9,
        ]
        + [10, 10, 10, 11, 11, 11],
    }
    elements = {0.15: [3, 7, 25, 72, 144], 0.2: [4, 9, 33, 96, 192], 0.29: [6, 13, 48, 139, 278]}
    for rate, expected in tokens.items():
        assert views(token_cutoff, MASK, rate).all(dim=2).sum(dim=1).tolist() == expected
        found = views(embedding_dropout, MASK, rate).sum(dim=(1, 2))
        assert found[[0, 1, 6, 19, 39]].tolist() == elements[rate]
    columns = {
        100: [10, 20, 28],
        384: [38, 76, 111],
        768: [76, 153, 222],
    }  # 0.29 of 100 is 28 in float64
    for h, expected in columns.items():
        cut = [
            feature_cutoff(torch.ones(1, 2, h), torch.ones(1, 2), rate=rate, generator=seeded())
            for rate in (0.1, 0.2, 0.29)
        ]
        assert [int((view == 0).all(dim=1).sum()) for view in cut] == expected


@pytest.mark.parametrize("side", ["right", "left", "both"])
def test_padding_is_never_cut_but_by_column(side):
    tokens = {"right": MASK, "left": MASK.flip(1), "both": MASK.roll(3, dims=1)}[side][:20]
    padding = tokens == 0
    assert not (views(token_cutoff, tokens, 0.9).any(dim=2) & padding).any()
    assert not (views(embedding_dropout, tokens, 0.9).any(dim=2) & padding).any()
    assert (views(feature_cutoff, tokens, 0.2).sum(dim=2) == int(H * 0.2)).all()
    counts = views(token_cutoff, tokens, 0.9).all(dim=2).sum(dim=1)
    assert counts.tolist() == [int(n * 0.9) for n in range(1, 21)]


@pytest.mark.parametrize("cutoff", CUTOFFS)
def test_what_is_not_cut_stays_as_it_is(cutoff):
    x = made(T, T, H, key=2)
    mask = MASK.clone()
    view = cutoff(x, mask, rate=0.2, generator=seeded())
    assert torch.equal(view[view != 0], x[view != 0])
    assert torch.equal(mask, MASK) and view.shape == x.shape and view.data_ptr() != x.data_ptr()
    for dtype in (torch.float32, torch.bfloat16):
        assert cutoff(x.to(dtype), mask, rate=0.2, generator=seeded()).dtype == dtype


@pytest.mark.parametrize("cutoff", CUTOFFS)
def test_cutoffs_follow_their_generator(cutoff):
    x = torch.ones(T, T, H)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, again = (cutoff(x, MASK, rate=0.2, generator=seeded(3)) for _ in range(2))
    other = cutoff(x, MASK, rate=0.2, generator=seeded(4))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)  # the global generator has no part in it
    generator = seeded(3)
    assert torch.equal(cutoff(x, MASK, rate=0.2, generator=generator), first)
    assert not torch.equal(cutoff(x, MASK, rate=0.2, generator=generator), first)


def test_sentences_are_drawn_one_by_one_and_every_place_alike():
    full = torch.ones(4000, 10, dtype=torch.long)
    rows = views(token_cutoff, full, 0.2).all(dim=2).float().mean(dim=0)
    columns = views(feature_cutoff, full, 0.25).all(dim=1).float().mean(dim=0)
    elements = views(embedding_dropout, full, 0.2).float().mean(dim=0)
    # Binomial deviations of 4,000 draws are 0.007: six of them.
    assert (rows - 0.2).abs().max() < 0.04
    assert (columns - 0.25).abs().max() < 0.04
    assert (elements - 0.2).abs().max() < 0.04
    pairs = Counter(map(tuple, views(token_cutoff, full, 0.2).all(dim=2).tolist()))
    assert len(pairs) == 45  # of ten


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_a_rate_outside_is_reported(rate):
    for cutoff in CUTOFFS:
        with pytest.raises(StsbenchError, match=f"rate {rate}: it must be from 0 to below 1"):
            cutoff(torch.ones(1, 2, 3), torch.ones(1, 2), rate=rate, generator=seeded())


def test_shuffle_permutes_the_tokens_and_leaves_padding():
    ids = token_shuffle(MASK, generator=seeded())
    assert ids.dtype == torch.long
    for n, row in enumerate(ids.tolist(), start=1):
        assert sorted(row[:n]) == list(range(n))
        assert row[n:] == list(range(n, T))
    moved = (ids[:, 0] != 0).float().mean()
    assert moved > 0.5  # [CLS] takes part
    assert (ids[-1] != torch.arange(T)).sum() > 30


def test_shuffle_permutes_the_position_ids_it_is_given():
    # RoBERTa counts tokens from 2 and gives padding 1.
    given = torch.where(MASK == 1, torch.arange(T) + 2, 1)
    before = given.clone()
    ids = token_shuffle(MASK, generator=seeded(), position_ids=given)
    plain = token_shuffle(MASK, generator=seeded())
    assert torch.equal(ids[MASK == 1], plain[MASK == 1] + 2)
    assert (ids[MASK == 0] == 1).all()
    assert torch.equal(given, before)


def test_noise_is_what_the_released_code_adds():
    # AdvCLSoftmaxLoss.forward of yym6472/ConSERT@03c9e8f, its lines from gradient to noise. Gradients so
    # small that the 1e-10 is a part of it.
    gradient = made(2, 3, 4, key=1) * 1e-9
    token = [0.004447353413079638, -0.00521126421469792, 0.005716607867162823, 0.002906805617592083]
    noise = fgv_noise(gradient, norm=0.01, normalise=True)
    assert noise[1, 2].tolist() == pytest.approx(token, rel=1e-11)
    assert noise.abs().sum().item() == pytest.approx(0.10735482910601875, rel=1e-11)
    token = [
        7.223413037511601e-10,
        -8.464160675798434e-10,
        9.284942293221323e-10,
        4.721247817606401e-10,
    ]
    assert fgv_noise(gradient, norm=1.0, normalise=False)[1, 2].tolist() == pytest.approx(
        token, rel=1e-11
    )


def test_noise_of_a_half_precision_gradient_neither_vanishes_nor_overflows():
    # The squares of 2e-4 and 300 are out of float16.
    gradient = torch.tensor([[[2e-4] * 4, [300.0] * 4, [0.0] * 4]], dtype=torch.float16)
    noise = fgv_noise(gradient, norm=1.0, normalise=True)
    assert noise.dtype == torch.float16
    assert noise[0].tolist() == [[0.5] * 4, [0.5] * 4, [0.0] * 4]
