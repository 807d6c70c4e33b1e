"""A batch laid end to end gives the padded batch's states, embeddings and gradients; or its model stays as it is."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    ModernBertConfig,
    T5Config,
    T5EncoderModel,
)

from stsbench.core import provenance
from stsbench.encoders.engine.drift import read_environment
from stsbench.encoders.engine.embed import embed_all
from stsbench.encoders.transformer import flat
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.flat import TokenLayout, try_omitting_padding
from tests.encoders.fakes import Plain
from tests.encoders.transformer.segments import attend_literally
from tests.training.students import sentences

MODERN_BERT = ModernBertConfig(
    vocab_size=60, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32,
    local_attention=6, pad_token_id=0, cls_token_id=1, bos_token_id=1, sep_token_id=2, eos_token_id=2,
)  # fmt: skip
LENGTHS = (4, 11, 1, 7)


def opened(tiny: Any, architecture: str) -> Any:
    torch.manual_seed(0)
    if architecture == "modernbert":
        return AutoModel.from_config(MODERN_BERT).double().eval()
    return AutoModel.from_pretrained(str(tiny[architecture])).double().eval()


def batch_of() -> dict[str, torch.Tensor]:
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    ids = torch.arange(7, 7 + mask.numel()).view(mask.shape) % 50 + 3
    return {"input_ids": torch.where(mask == 1, ids, 0), "attention_mask": mask}


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert", "gpt2", "qwen"])
def test_states_and_gradients_are_those_of_the_padded_model(tiny, architecture):
    outcomes = []
    for is_flat in (False, True):
        model = opened(tiny, architecture)
        batch = batch_of()
        if architecture == "roberta":
            batch["input_ids"][batch["attention_mask"] == 0] = model.config.pad_token_id
        if is_flat:
            assert try_omitting_padding(model, attend_literally) == ""
        is_token = batch["attention_mask"] == 1
        output = model(**batch, output_hidden_states=True)
        states = torch.stack(output.hidden_states)[:, is_token]
        weight = torch.arange(states.numel(), dtype=torch.float64).view_as(states).sin()
        (states * weight).sum().backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        pooled = output.pooler_output if architecture in ("bert", "roberta") else states
        outcomes.append((states.detach(), pooled.detach(), *gradients))
    assert len(outcomes[0]) == len(outcomes[1]) > 15
    for padded, own in zip(*outcomes, strict=True):
        torch.testing.assert_close(own, padded, rtol=0, atol=1e-10)


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_a_classifier_of_pairs_reads_the_states_of_its_flat_model(tiny, architecture):
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(str(tiny[architecture]), num_labels=1)
    model = AutoModelForSequenceClassification.from_config(config).double().eval()
    batch = batch_of()
    batch["input_ids"][batch["attention_mask"] == 0] = config.pad_token_id
    second = torch.arange(max(LENGTHS)) > 2
    if architecture == "bert":
        batch["token_type_ids"] = second.long().expand(len(LENGTHS), -1)
    expected = model(**batch).logits
    assert try_omitting_padding(model.base_model, attend_literally) == ""
    shapes = []
    model.base_model.embeddings.register_forward_hook(
        lambda module, inputs, output: shapes.append(output.shape[:2])
    )
    torch.testing.assert_close(model(**batch).logits, expected, rtol=0, atol=1e-10)
    assert shapes == [(1, sum(LENGTHS))]


def test_a_model_that_cannot_stays_as_it_is_and_the_reason_is_there(tiny):
    batch = batch_of()
    t5 = T5Config(vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
    models = [opened(tiny, "mpnet"), T5EncoderModel(t5).eval(), opened(tiny, "bert")]
    models[2].set_attn_implementation("eager")
    for model in models:
        expected = model(**batch).last_hidden_state
        reason = try_omitting_padding(model, attend_literally)
        assert reason.startswith(type(model).__name__) and len(reason) > 25
        assert not flat.omits_padding(model) and flat.layout_of(model) is None
        assert torch.equal(model(**batch).last_hidden_state, expected)
    assert "an attention of its own ('eager')" in reason


def test_a_model_whose_states_would_differ_stays_as_it_is(tiny):
    def attend_to_all(query: Any, key: Any, value: Any, layout: Any, **options: Any) -> Any:
        layout.cu_seqlens = layout.cu_seqlens[[0, -1]]
        return attend_literally(query, key, value, layout, **options)

    model = opened(tiny, "bert")
    assert "mixes up sentences" in try_omitting_padding(model, attend_to_all)
    assert not flat.omits_padding(model)


class _WrongGradient(torch.autograd.Function):
    """The same values, with a gradient that is twice as large, or none at all."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, raises: bool) -> torch.Tensor:
        ctx.raises = raises
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        if ctx.raises:
            raise RuntimeError("no gradient of this kernel")
        return 2 * gradient, None


@pytest.mark.parametrize("raises", [False, True])
def test_a_model_is_trained_with_padding_if_its_gradients_would_differ(tiny, raises):
    def attend(*arguments: Any, **options: Any) -> Any:
        attended = attend_literally(*arguments, **options)
        return _WrongGradient.apply(attended, raises)  # type: ignore[no-untyped-call]

    model = opened(tiny, "bert")
    reason = try_omitting_padding(model, attend, for_training=True)
    assert ("no gradient of this kernel" if raises else "mixes up sentences") in reason
    assert not flat.omits_padding(model)
    assert try_omitting_padding(model, attend) == ""
    trained = opened(tiny, "bert")
    assert try_omitting_padding(trained, attend_literally, for_training=True) == ""
    frozen = opened(tiny, "bert").requires_grad_(False)
    assert try_omitting_padding(frozen, attend_literally, for_training=True) == ""


@pytest.mark.parametrize(
    "pooling", ["mean", "cls", "cls_before_pooler", "max", "last_token", "first_last", "wk(1)"]
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_embeddings_are_those_of_padded_batches_with_one_layout_each(
    masked_lm, tiny, monkeypatch, pooling, side
):
    checkpoint = str(tiny["bert"] if pooling == "cls" else masked_lm)
    made: list[int] = []

    class CountedLayout(TokenLayout):
        def __init__(self, mask: torch.Tensor, attention: flat.SegmentAttention) -> None:
            made.append(len(mask))
            super().__init__(mask, attention)

    texts = sentences(40)
    embeddings = []
    for is_flat in (False, True):
        encoder = TransformerEncoder(
            checkpoint, pooling=pooling, padding_side=side, normalise=True, device="cpu"
        )
        model = encoder.backbone.model
        if is_flat:
            assert try_omitting_padding(model, attend_literally) == ""
        # Computed once per encoder, with a small batch.
        assert not encoder.backbone.depends_on_padding
        monkeypatch.setattr(flat, "TokenLayout", CountedLayout)
        embeddings.append(embed_all(encoder, texts))
        monkeypatch.undo()
    assert made == [40]
    # The head of the small model makes rounding larger.
    tolerance = 2e-6 if pooling == "cls" else 1e-6
    assert np.abs(embeddings[0] - embeddings[1]).max() < tolerance


def test_ends_of_sentences_are_those_of_the_mask():
    mask = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 0, 0]])
    layout = TokenLayout(mask, attend_literally)
    # On a CPU, a batch is filled up to a size that recurs: here there is one.
    assert layout.cu_seqlens.tolist() == [0, 3, 5, 6] and layout.max_length == 3
    assert layout.cu_seqlens.dtype == torch.int32 and layout.size == 6
    values = torch.arange(12).view(3, 4)
    assert layout.remove_padding(values).tolist() == [[5, 6, 7, 0, 1, 8]]
    assert torch.equal(layout.restore_padding(layout.remove_padding(values)), values * mask)
    long_mask = torch.ones((1, 1001), dtype=torch.long)
    layout = TokenLayout(long_mask, attend_literally)
    assert layout.cu_seqlens.tolist() == [0, 1001, 1008] and layout.size == 1008


def test_a_cpu_has_no_attention_over_segments_and_a_gpu_has():
    assert flat.find_attention(torch.device("cpu")) is None
    assert flat.find_attention(torch.device("cuda")) is flat.attend_on_gpu


OPTIONS: dict[str, Any] = {"scale": 0.3, "dropout": 0.0, "causal": False, "window": None}


def test_without_a_package_torch_accepts_the_call_of_its_kernel(tiny):
    # Tensors without numbers: torch checks the call, and computes shapes.
    layout: Any = SimpleNamespace(
        cu_seqlens=torch.zeros(3, dtype=torch.int32, device="meta"), max_length=5
    )
    query = torch.zeros((8, 4, 16), device="meta", requires_grad=True)
    key, value = torch.zeros((2, 8, 2, 16), device="meta", requires_grad=True)
    result = flat.attend_on_gpu(query, key, value, layout, **OPTIONS)
    assert result.shape == (8, 4, 16) and result.grad_fn is not None
    with pytest.raises(ValueError, match="needs flash-attn"):
        flat.attend_on_gpu(query, key, value, layout, **{**OPTIONS, "window": 3})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_flash_attn_is_called_in_half_precision(monkeypatch, dtype):
    calls: list[dict[str, Any]] = []

    def flash_attn_varlen_func(q: Any, k: Any, v: Any, *segments: Any, **options: Any) -> Any:
        calls.append(options)
        assert segments[0] is segments[1] is layout.cu_seqlens and segments[2:] == (5, 5)
        return q

    monkeypatch.setitem(
        sys.modules, "flash_attn", SimpleNamespace(flash_attn_varlen_func=flash_attn_varlen_func)
    )
    monkeypatch.setattr(flat, "is_flash_attn_2_available", lambda: True)
    layout: Any = SimpleNamespace(
        cu_seqlens=torch.zeros(3, dtype=torch.int32, device="meta"), max_length=5
    )
    query = torch.zeros((8, 4, 16), dtype=dtype, device="meta")
    flat.attend_on_gpu(query, query, query, layout, **OPTIONS)
    if dtype == torch.float32:
        assert not calls
        return
    flat.attend_on_gpu(query, query, query, layout, **{**OPTIONS, "window": 3, "causal": True})
    assert [call["window_size"] for call in calls] == [(-1, -1), (2, 2)]
    assert calls[1] == {
        "dropout_p": 0.0,
        "softmax_scale": 0.3,
        "causal": True,
        "window_size": (2, 2),
        "deterministic": False,
    }


@pytest.mark.parametrize("there", [True, False])
def test_the_version_of_flash_attn_is_part_of_the_environment(monkeypatch, there):
    monkeypatch.setattr(
        provenance, "version_of", lambda package: "2.8" if there and package == "flash-attn" else ""
    )
    assert read_environment(Plain()).get("flash-attn") == ("2.8" if there else None)
