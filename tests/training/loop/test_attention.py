"""Attention in groups is each sentence's own, to the last digits of float64, and so are its gradients."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from stsbench.training.loop import attention
from stsbench.training.loop.attention import LengthGroups, attend, round_up

LENGTHS = [9, 9, 7, 7, 3, 1]
HEADS, WIDTH, FILL, SCALE = 3, 4, 5, 0.7


def heads_of(*, seed: int) -> torch.Tensor:
    made = torch.randn(sum(LENGTHS) + FILL, HEADS, WIDTH, generator=torch.Generator().manual_seed(seed))
    return made.double().requires_grad_()


def attended(parts: Sequence[torch.Tensor], groups: LengthGroups, *, rate: float = 0.0) -> torch.Tensor:
    q, k, v = parts
    return attend(q, k, v, groups, scale=SCALE, rate=rate)


def literal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Token by token and head by head."""
    result, start = torch.zeros_like(q), 0
    for length in LENGTHS:
        own = range(start, start + length)
        for head in range(HEADS):
            for i in own:
                scores = torch.stack([SCALE * q[i, head] @ k[j, head] for j in own])
                shares = scores.exp() / scores.exp().sum()
                result[i, head] = torch.stack([shares[j - start] * v[j, head] for j in own]).sum(dim=0)
        start += length
    return result


@pytest.mark.parametrize("group_cost", [0, 8, 1000])
def test_it_is_what_each_sentence_would_have_alone_with_its_gradients(monkeypatch, group_cost):
    monkeypatch.setattr(attention, "GROUP_COST", group_cost)
    groups = LengthGroups(np.array(LENGTHS), HEADS, sum(LENGTHS) + FILL)
    parts = [heads_of(seed=seed) for seed in range(3)]
    found = attended(parts, groups)
    expected = literal(*parts)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    assert not found[sum(LENGTHS) :].any()
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(9)).double()
    gradients = [torch.autograd.grad((each * weight).sum(), parts) for each in (found, expected)]
    for own, due in zip(*gradients, strict=True):
        torch.testing.assert_close(own, due, rtol=0, atol=1e-13)


def test_the_number_of_groups_follows_their_cost(monkeypatch):
    counts = []
    for cost in (0, 8, 1000):
        monkeypatch.setattr(attention, "GROUP_COST", cost)
        counts.append(len(LengthGroups(np.array(LENGTHS), HEADS, sum(LENGTHS)).groups))
    assert counts == [4, 2, 1]


def test_gradients_with_dropout_are_those_of_what_was_drawn():
    groups = LengthGroups(np.array(LENGTHS), HEADS, sum(LENGTHS))

    def drawn_alike(*parts: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return attended(parts, groups, rate=0.4)

    parts = [heads_of(seed=seed)[: sum(LENGTHS)].detach().requires_grad_() for seed in range(3)]
    assert torch.autograd.gradcheck(drawn_alike, parts, fast_mode=True)
    assert not torch.equal(drawn_alike(*parts), attended(parts, groups))


def test_dropout_leaves_the_mean_where_it_is():
    groups = LengthGroups(np.array(LENGTHS), HEADS, sum(LENGTHS) + FILL)
    parts = [heads_of(seed=seed).detach() for seed in range(3)]
    torch.manual_seed(0)
    mean = torch.stack([attended(parts, groups, rate=0.2) for _ in range(4000)]).mean(dim=0)
    torch.testing.assert_close(mean, attended(parts, groups), rtol=0, atol=0.05)


def test_under_autocast_it_is_float32_whatever_comes():
    groups = LengthGroups(np.array(LENGTHS), HEADS, sum(LENGTHS) + FILL)
    parts = [heads_of(seed=seed).detach().bfloat16().requires_grad_() for seed in range(3)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = attended(parts, groups)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, attended([part.float() for part in parts], groups))
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert all(part.grad is not None and part.grad.dtype is torch.bfloat16 for part in parts)


def test_sizes_recur_and_are_hardly_larger():
    sizes = [round_up(count) for count in range(1, 5000)]
    assert all(count <= size <= count * 33 / 32 for count, size in enumerate(sizes, 1))
    assert len(set(sizes)) < 300 and sizes == sorted(sizes)
    assert round_up(0) == 0
