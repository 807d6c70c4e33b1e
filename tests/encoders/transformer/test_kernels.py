"""Packed linear layers against torch's own, and models of the library packed against themselves."""

import copy

import pytest
import torch
import transformers

from stsbench.encoders.transformer.cpu_kernels import (
    ACTIVATIONS,
    SUPPORTED_TYPES,
    PackedLinear,
    PackedOutput,
    pack_linears,
)

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch has no oneDNN"
)
SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
}


def made(kind: str, **settings: object) -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SIZES, **settings})
    model: torch.nn.Module = transformers.AutoModel.from_config(config).eval()
    return model


def kinds_of(model: torch.nn.Module) -> list[str]:
    return [type(module).__name__ for module in model.modules()]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 7), (5, 7), (3, 4, 7), (0, 7)])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_a_packed_layer_is_the_layer_and_its_activation(bias, shape, activation):
    torch.manual_seed(0)
    linear = torch.nn.Linear(7, 9, bias=bias)
    x, literal = torch.randn(shape), copy.deepcopy(linear).double()
    with torch.inference_mode():
        found = PackedLinear(linear, activation)(x).double()
        torch.testing.assert_close(
            found, ACTIVATIONS[activation](literal(x.double())), rtol=0, atol=2e-6
        )


@pytest.mark.parametrize(
    ("kind", "settings", "outputs"),
    [
        ("bert", {}, 4),
        ("bert", {"hidden_act": "gelu_new"}, 4),
        ("bert", {"hidden_act": "relu"}, 4),
        ("bert", {"hidden_act": "quick_gelu"}, 4),
        ("roberta", {}, 4),
        ("xlm-roberta", {}, 4),
        ("electra", {"embedding_size": 12}, 4),
        ("mpnet", {}, 2),
        ("distilbert", {"dim": 16, "hidden_dim": 24, "n_heads": 2, "n_layers": 2}, 0),
        ("deberta-v2", {}, 4),
        ("megatron-bert", {}, 0),
        ("albert", {"embedding_size": 12}, 0),
        ("modernbert", {"global_attn_every_n_layers": 1}, 0),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_packed_model_embeds_as_before(kind, settings, outputs, dtype):
    model = made(kind, **settings).to(dtype)
    packed = copy.deepcopy(model)
    pack_linears(packed)
    ids, mask = torch.randint(2, 50, (3, 6)), torch.ones((3, 6), dtype=torch.int64)
    mask[1, 4:] = 0
    with torch.inference_mode():
        before, after = (
            one(input_ids=ids, attention_mask=mask).last_hidden_state for one in (model, packed)
        )
    torch.testing.assert_close(after, before, rtol=0, atol=2e-5 if dtype == torch.float32 else 0.15)
    assert "PackedLinear" in kinds_of(packed) or dtype != torch.float32
    assert "Linear" not in kinds_of(packed) or dtype != torch.float32
    if dtype == torch.float32:
        assert kinds_of(packed).count("PackedOutput") == outputs


class Scaled(torch.nn.Module):
    """Layers of BERT's names that are put together otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.LayerNorm, self.dropout = (
            torch.nn.Linear(6, 6),
            torch.nn.LayerNorm(6),
            torch.nn.Dropout(0.5),
        )

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        normalised: torch.Tensor = self.LayerNorm(
            self.dense(x) + 0.5 * (x if residual is None else residual)
        )
        return normalised


class Alone(Scaled):
    def forward(self, x: torch.Tensor, *, twice: bool = False) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x)


class Before(torch.nn.Module):
    """An activation that comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.intermediate_act_fn = torch.nn.Linear(6, 6), torch.nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.dense(self.intermediate_act_fn(x))
        return found


@pytest.mark.parametrize("kind", [Scaled, Alone, Before])
def test_layers_that_are_put_together_otherwise_keep_their_ways(kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential(kind()).eval()
    given = [torch.randn(2, 6)] * (2 if kind is Scaled else 1)
    with torch.inference_mode():
        before = model[0](*given)
        pack_linears(model)
        assert not isinstance(model[0], PackedOutput)
        assert isinstance(model[0].dense, PackedLinear)
        torch.testing.assert_close(model[0](*given), before, rtol=0, atol=1e-6)


def test_a_type_that_onednn_does_not_take_here_stays(monkeypatch):
    monkeypatch.setitem(SUPPORTED_TYPES, torch.bfloat16, lambda: False)
    model = made("bert").to(torch.bfloat16)
    pack_linears(model)
    assert "PackedLinear" not in kinds_of(model)
