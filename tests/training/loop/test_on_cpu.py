"""Steps on a CPU: dropout from fewer bits, attention in groups, models without padding; no gradient changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint
from transformers import AutoModel, ModernBertConfig

from stsbench.encoders.transformer.flat import (
    layout_of,
    omits_padding,
    padding_computed,
    try_omitting_padding,
)
from stsbench.training.loop import on_cpu
from stsbench.training.loop.on_cpu import (
    FewBitsDropout,
    GroupedAttention,
    LengthGroups,
    attend_in_groups,
    draw_dropout_mask,
    speed_up,
)


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.15, 0.5, 0.9])
def test_so_many_are_dropped_and_the_mean_stays(rate):
    torch.manual_seed(0)
    n = 1_000_003
    keep, grown = draw_dropout_mask(torch.Size([n]), rate)
    deviation = (rate * (1 - rate) / n) ** 0.5
    assert abs(float((~keep).double().mean()) - rate) < 4 * deviation + 2**-17
    assert grown * (1 - rate) == pytest.approx(1, rel=1e-4)
    # Neighbours share a draw of torch's: none says anything of another.
    for apart in (1, 2, 3, 4, 5):
        both = float((~keep[apart:] & ~keep[:-apart]).double().mean())
        assert abs(both - rate**2) < 5 * deviation


def test_what_is_kept_grows_and_has_the_gradient_of_what_was_done():
    torch.manual_seed(0)
    values = torch.randn(7, 5, 3, dtype=torch.float64, requires_grad=True)
    result = FewBitsDropout(0.25)(values)
    (gradient,) = torch.autograd.grad(result.sum(), values)
    assert {0.0, 4 / 3} == set(gradient.flatten().tolist())
    assert torch.equal(gradient * values, result)


def test_draws_repeat_with_torch_s_own_generator_and_where_results_are_computed_again():
    drop, values = FewBitsDropout(0.5), torch.ones(1000, requires_grad=True)
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        found.append(drop(values))
    assert torch.equal(*found) and not torch.equal(found[0], drop(values))
    result = checkpoint(drop, values, use_reentrant=False)
    (gradient,) = torch.autograd.grad(result.sum(), values)
    assert torch.equal(gradient, result)


def test_plain_dropouts_alone_are_replaced_with_their_rate_and_mode():
    class Own(torch.nn.Dropout):
        pass

    plain = torch.nn.Dropout(0.3)
    module = torch.nn.Sequential(plain, Own(0.2), torch.nn.Dropout(0.1, inplace=True))
    plain.eval()
    speed_up(torch.nn.Sequential(module))
    assert [type(one) for one in module] == [FewBitsDropout, Own, torch.nn.Dropout]
    assert module[0].p == 0.3 and not module[0].training


LENGTHS = [9, 9, 7, 7, 3, 1]
HEADS, WIDTH, FILL, SCALE = 3, 4, 5, 0.7


def heads_of(*, seed: int) -> torch.Tensor:
    made = torch.randn(
        sum(LENGTHS) + FILL, HEADS, WIDTH, generator=torch.Generator().manual_seed(seed)
    )
    return made.double().requires_grad_()


def attended(
    parts: Sequence[torch.Tensor], groups: LengthGroups, *, rate: float = 0.0
) -> torch.Tensor:
    q, k, v = parts
    result: torch.Tensor = GroupedAttention.apply(q, k, v, groups, SCALE, rate)  # type: ignore[no-untyped-call]
    return result


def literal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Token by token and head by head."""
    result, start = torch.zeros_like(q), 0
    for length in LENGTHS:
        own = range(start, start + length)
        for head in range(HEADS):
            for i in own:
                scores = torch.stack([SCALE * q[i, head] @ k[j, head] for j in own])
                shares = scores.exp() / scores.exp().sum()
                result[i, head] = torch.stack([shares[j - start] * v[j, head] for j in own]).sum(
                    dim=0
                )
        start += length
    return result


@pytest.mark.parametrize("group_cost", [0, 8, 1000])
def test_it_is_what_each_sentence_would_have_alone_with_its_gradients(monkeypatch, group_cost):
    monkeypatch.setattr(on_cpu, "GROUP_COST", group_cost)
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


def test_gradients_with_dropout_are_those_of_what_was_drawn():
    groups = LengthGroups(np.array(LENGTHS), HEADS, sum(LENGTHS))

    def drawn_alike(*parts: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return attended(parts, groups, rate=0.4)

    parts = [heads_of(seed=seed)[: sum(LENGTHS)].detach().requires_grad_() for seed in range(3)]
    assert torch.autograd.gradcheck(drawn_alike, parts, fast_mode=True)
    assert not torch.equal(drawn_alike(*parts), attended(parts, groups))


def test_under_autocast_it_is_float32_whatever_comes():
    groups = LengthGroups(np.array(LENGTHS), HEADS, sum(LENGTHS) + FILL)
    parts = [heads_of(seed=seed).detach().bfloat16().requires_grad_() for seed in range(3)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = attended(parts, groups)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, attended([part.float() for part in parts], groups))
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert all(part.grad is not None and part.grad.dtype is torch.bfloat16 for part in parts)


MASKS = {
    "right": [[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0]],
    "left": [[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]],
    "holes": [[1, 0, 1, 1, 0, 0], [1, 1, 0, 1, 1, 1], [1, 0, 0, 0, 0, 1]],
    "none": [[1, 1, 1, 1, 1, 1]] * 3,
}


def opened(folder: Any, *, pooler: bool = False) -> Any:
    model = AutoModel.from_pretrained(str(folder)).double().eval()
    if not pooler and hasattr(model, "pooler"):
        model.pooler = None
    return model


def batch_of(model: Any, mask: str) -> dict[str, torch.Tensor]:
    values = torch.tensor(MASKS[mask])
    ids = torch.arange(7, 7 + values.numel()).view(values.shape)
    return {
        "input_ids": torch.where(values == 1, ids, model.config.pad_token_id),
        "attention_mask": values,
    }


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("make", ["bert", "roberta"])
def test_states_and_gradients_are_the_padded_model_s(tiny, make, mask):
    found = []
    for unpadded in (False, True):
        model = opened(tiny[make])
        if unpadded:
            try_omitting_padding(model, attend_in_groups)
        assert omits_padding(model) is unpadded
        batch = batch_of(model, mask)
        real = batch["attention_mask"] == 1
        output = model(**batch, output_hidden_states=True)
        assert torch.equal(output.last_hidden_state, output.hidden_states[-1])
        states = torch.stack(output.hidden_states)
        assert bool(states[:, ~real].any()) == (not unpadded and not real.all())
        weight = (
            torch.arange(states[:, real].numel(), dtype=torch.float64)
            .view_as(states[:, real])
            .sin()
        )
        (states[:, real] * weight).sum().backward()  # type: ignore[no-untyped-call]
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        found.append((states[:, real].detach(), *grads))
    assert len(found[0]) == len(found[1]) > 40
    for padded, own in zip(*found, strict=True):
        torch.testing.assert_close(own, padded, rtol=0, atol=1e-10)


@pytest.mark.parametrize("make", ["gpt2", "qwen", "mpnet"])
def test_a_model_of_another_kind_is_left_as_it_is(tiny, make):
    model = opened(tiny[make])
    plain = model.forward
    try_omitting_padding(model, attend_in_groups)
    assert not omits_padding(model) and model.forward == plain and layout_of(model) is None
    batch = {
        "input_ids": torch.tensor([[7, 8, 9], [7, 8, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    }
    assert torch.equal(
        model(**batch).last_hidden_state, opened(tiny[make])(**batch).last_hidden_state
    )


def test_attention_that_sees_so_far_only_keeps_its_model_padded():
    config = ModernBertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32,
        local_attention=16, pad_token_id=0, cls_token_id=1, bos_token_id=1, sep_token_id=2, eos_token_id=2,
    )  # fmt: skip
    model = AutoModel.from_config(config)
    try_omitting_padding(model, attend_in_groups)
    assert not omits_padding(model)


def test_other_inputs_pass_to_the_padded_model(tiny):
    model = opened(tiny["bert"])
    batch = batch_of(model, "right")
    ids, mask = batch["input_ids"], batch["attention_mask"]
    inputs = (
        {"input_ids": ids},
        {"inputs_embeds": model.embeddings.word_embeddings(ids), "attention_mask": mask},
    )
    plain = [model(**one).last_hidden_state for one in inputs]
    try_omitting_padding(model, attend_in_groups)
    assert all(
        torch.equal(model(**one).last_hidden_state, due)
        for one, due in zip(inputs, plain, strict=True)
    )


def test_padding_is_computed_where_it_is_asked_for_and_given_positions_are_taken(tiny):
    model = opened(tiny["bert"])
    batch = batch_of(model, "right")
    turned = {**batch, "position_ids": torch.tensor([[5, 4, 3, 2, 1, 0]] * 3)}
    real = batch["attention_mask"] == 1
    expected, moved = (model(**one).last_hidden_state for one in (batch, turned))
    try_omitting_padding(model, attend_in_groups)
    with padding_computed(model):
        assert torch.equal(model(**batch).last_hidden_state, expected)
    assert not model(**batch).last_hidden_state[~real].any() and not torch.allclose(
        moved[real], expected[real]
    )
    torch.testing.assert_close(
        model(**turned).last_hidden_state[real], moved[real], rtol=0, atol=1e-12
    )


def test_a_copy_computes_with_its_own_weights(tiny):
    model = opened(tiny["bert"])
    try_omitting_padding(model, attend_in_groups)
    other = copy.deepcopy(model)
    assert omits_padding(other)
    batch = batch_of(model, "right")
    before = model(**batch).last_hidden_state.detach()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert (
        torch.equal(model(**batch).last_hidden_state, before)
        and not other(**batch).last_hidden_state.any()
    )


def test_a_saved_model_knows_nothing_of_it(tiny, tmp_path):
    model = opened(tiny["bert"])
    model.save_pretrained(tmp_path / "before")
    try_omitting_padding(model, attend_in_groups)
    model.save_pretrained(tmp_path / "after")
    first, second = (
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("before", "after")
    )
    assert first == second
