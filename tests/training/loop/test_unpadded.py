"""A model without its padding has the states and gradients that it has with it; one that cannot is left as it is."""

import copy
import json
from typing import Any

import pytest
import torch
from transformers import AutoModel, ModernBertConfig

from stsbench.training.loop.unpadded import is_unpadded, layout_of, leave_out_padding, padding_computed

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
    return {"input_ids": torch.where(values == 1, ids, model.config.pad_token_id), "attention_mask": values}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("make", ["bert", "roberta"])
def test_states_and_gradients_are_the_padded_model_s(tiny, make, mask):
    found = []
    for unpadded in (False, True):
        model = opened(tiny[make])
        if unpadded:
            leave_out_padding(model)
        assert is_unpadded(model) is unpadded
        batch = batch_of(model, mask)
        real = batch["attention_mask"] == 1
        output = model(**batch, output_hidden_states=True)
        assert torch.equal(output.last_hidden_state, output.hidden_states[-1])
        states = torch.stack(output.hidden_states)
        assert bool(states[:, ~real].any()) == (not unpadded and not real.all())
        weight = torch.arange(states[:, real].numel(), dtype=torch.float64).view_as(states[:, real]).sin()
        (states[:, real] * weight).sum().backward()  # type: ignore[no-untyped-call]
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        found.append((states[:, real].detach(), *grads))
    assert len(found[0]) == len(found[1]) > 40
    for padded, own in zip(*found, strict=True):
        torch.testing.assert_close(own, padded, rtol=0, atol=1e-10)


def test_positions_given_are_taken(tiny):
    model = opened(tiny["bert"])
    batch = {**batch_of(model, "right"), "position_ids": torch.tensor([[5, 4, 3, 2, 1, 0]] * 3)}
    real = batch["attention_mask"] == 1
    expected = model(**batch).last_hidden_state[real]
    leave_out_padding(model)
    torch.testing.assert_close(model(**batch).last_hidden_state[real], expected, rtol=0, atol=1e-12)
    del batch["position_ids"]
    assert not torch.allclose(model(**batch).last_hidden_state[real], expected)


@pytest.mark.parametrize("make", ["gpt2", "qwen", "mpnet"])
def test_a_model_of_another_kind_is_left_as_it_is(tiny, make):
    model = opened(tiny[make])
    plain = model.forward
    leave_out_padding(model)
    assert not is_unpadded(model) and model.forward == plain and layout_of(model) is None
    batch = {"input_ids": torch.tensor([[7, 8, 9], [7, 8, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
    assert torch.equal(model(**batch).last_hidden_state, opened(tiny[make])(**batch).last_hidden_state)


def modern(local_attention: int) -> Any:
    """A ModernBERT, of whose layers two in three see tokens within half of this distance alone."""
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32,
        local_attention=local_attention, pad_token_id=0, cls_token_id=1, bos_token_id=1, sep_token_id=2, eos_token_id=2,
        initializer_range=0.5, initializer_cutoff_factor=3.0,
    )  # fmt: skip
    return AutoModel.from_config(config).double().eval()


@pytest.mark.parametrize(("longest", "unpadded"), [(4, True), (9, True), (10, False), (20, False)])
def test_sentences_beyond_a_window_of_attention_are_computed_with_their_padding(longest, unpadded):
    model = modern(16)
    mask = torch.arange(longest) < torch.tensor([3, longest, 2, longest - 1])[:, None]
    batch = {"input_ids": 7 + torch.arange(mask.numel()).view(mask.shape) % 50, "attention_mask": mask.long()}
    expected = model(**batch).last_hidden_state[mask]
    leave_out_padding(model)
    assert is_unpadded(model) and is_unpadded(model, mask) is unpadded
    found = model(**batch).last_hidden_state
    assert bool(found[~mask].any()) is not unpadded
    torch.testing.assert_close(found[mask], expected, rtol=0, atol=1e-10)


def test_a_window_that_is_counted_in_another_way_keeps_its_model_padded():
    # Half of what the attention is told: sentences of that length would see too much.
    model = modern(16)
    for layer in model.layers:
        if layer.attn.sliding_window is not None:
            layer.attn.sliding_window *= 2
    leave_out_padding(model)
    assert not is_unpadded(model)


def test_a_pooler_keeps_its_model_padded_and_other_inputs_pass(tiny):
    model = opened(tiny["bert"], pooler=True)
    leave_out_padding(model)
    assert not is_unpadded(model)
    model = opened(tiny["bert"])
    batch = batch_of(model, "right")
    plain = model(
        inputs_embeds=model.embeddings.word_embeddings(batch["input_ids"]), **mask_of(batch)
    ).last_hidden_state
    alone = model(input_ids=batch["input_ids"]).last_hidden_state
    leave_out_padding(model)
    embedded = model.embeddings.word_embeddings(batch["input_ids"])
    assert torch.equal(model(inputs_embeds=embedded, **mask_of(batch)).last_hidden_state, plain)
    assert torch.equal(model(input_ids=batch["input_ids"]).last_hidden_state, alone)


def mask_of(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"attention_mask": batch["attention_mask"]}


def test_padding_is_computed_where_it_is_asked_for(tiny):
    model = opened(tiny["bert"])
    batch = batch_of(model, "right")
    expected = model(**batch).last_hidden_state
    leave_out_padding(model)
    with padding_computed(model):
        assert torch.equal(model(**batch).last_hidden_state, expected)
    assert not model(**batch).last_hidden_state[batch["attention_mask"] == 0].any()


def test_the_layout_is_there_while_a_batch_is_computed(tiny):
    model = opened(tiny["bert"])
    leave_out_padding(model)
    seen = []

    def look(module: Any, inputs: Any, output: torch.Tensor) -> None:
        layout = layout_of(model)
        assert layout is not None and output.shape[0] == 1
        spread = layout.spread(output)
        seen.append(spread.shape)
        assert torch.equal(layout.join(spread), output)

    model.embeddings.register_forward_hook(look)
    model(**batch_of(model, "right"))
    assert seen == [(3, 6, 16)] and layout_of(model) is None


def test_a_copy_computes_with_its_own_weights(tiny):
    model = opened(tiny["bert"])
    leave_out_padding(model)
    other = copy.deepcopy(model)
    assert is_unpadded(other)
    batch = batch_of(model, "right")
    before = model(**batch).last_hidden_state.detach()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert torch.equal(model(**batch).last_hidden_state, before) and not other(**batch).last_hidden_state.any()


def test_a_saved_model_knows_nothing_of_it(tiny, tmp_path):
    model = opened(tiny["bert"])
    model.save_pretrained(tmp_path / "before")
    leave_out_padding(model)
    model.save_pretrained(tmp_path / "after")
    first, second = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("before", "after"))
    assert first == second
