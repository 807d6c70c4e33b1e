"""Packed linear layers against torch's own, models packed against themselves, and chosen products."""

import copy
from itertools import product
from pathlib import Path

import pytest
import torch
import transformers

from stsbench.core import settings
from stsbench.encoders.transformer import cpu_kernels
from stsbench.encoders.transformer.cpu_kernels import (
    ACTIVATIONS,
    SUPPORTED_TYPES,
    ChosenLinear,
    PackedLinear,
    PackedOutput,
    ProductChoice,
    choose_products,
    fastest_products,
    pack_linears,
)
from stsbench.encoders.transformer.encoder import TransformerEncoder

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


@pytest.mark.parametrize(
    ("capability", "is_packed"), [("AVX2", False), ("AVX512", True), ("DEFAULT", True)]
)
def test_float32_is_packed_where_that_is_faster(masked_lm, monkeypatch, capability, is_packed):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    encoder = TransformerEncoder(str(masked_lm), pooling="mean", device="cpu")
    assert encoder.encode(["Two words."]).shape[0] == 1
    assert ("PackedLinear" in kinds_of(encoder.backbone.model)) == is_packed


WIDTH, OUTPUTS = 144, 128
LAYOUTS = {
    "rows": lambda: torch.randn(6, WIDTH),
    "batch": lambda: torch.randn(2, 3, WIDTH),
    "vector": lambda: torch.randn(WIDTH),
    "columns": lambda: torch.randn(WIDTH, 6).T,
    "expanded": lambda: torch.randn(WIDTH).expand(6, WIDTH),
    "part": lambda: torch.randn(6, 2 * WIDTH)[:, WIDTH:],
}


def chosen_layer(monkeypatch, products: ProductChoice, *, bias: bool = True) -> torch.nn.Linear:
    monkeypatch.setattr(cpu_kernels, "fastest_products", lambda: products)
    layer = torch.nn.Linear(WIDTH, OUTPUTS, bias=bias)
    choose_products(torch.nn.Sequential(layer))
    return layer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("by_onednn", list(product([True, False], repeat=3)))
def test_each_product_has_the_values_of_float64(monkeypatch, bias, layout, by_onednn):
    torch.manual_seed(0)
    layer = chosen_layer(monkeypatch, ProductChoice(*by_onednn), bias=bias)
    assert (type(layer) is ChosenLinear) is any(by_onednn)
    literal = copy.deepcopy(layer).double()
    values = []
    for some_layer in (layer, literal):
        torch.manual_seed(1)
        x = LAYOUTS[layout]().to(some_layer.weight.dtype).detach().requires_grad_()
        output = some_layer(x)
        # A sum's gradient is expanded; the other one differs at each element.
        scale = torch.arange(output.numel(), dtype=x.dtype).view_as(output).cos()
        total = (output * scale).sum() + output.sum()
        gradients = torch.autograd.grad(total, [x, *some_layer.parameters()])
        values.append([output, *torch.autograd.grad(some_layer(x).sum(), x), *gradients])
    for computed, expected in zip(*values, strict=True):
        assert computed.dtype is torch.float32
        torch.testing.assert_close(computed.double(), expected, rtol=1e-6, atol=1e-5)


def test_gradients_are_of_the_parts_that_need_one(monkeypatch):
    layer = chosen_layer(monkeypatch, ProductChoice(True, True, True))
    layer.weight.requires_grad_(False)
    x = torch.randn(3, WIDTH, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None and layer.bias.grad is not None and layer.weight.grad is None
    with torch.no_grad():
        assert not layer(x).requires_grad


def test_other_types_subclasses_and_small_layers_keep_torch_s_own_product(monkeypatch):
    class Own(torch.nn.Linear):
        pass

    layer = chosen_layer(monkeypatch, ProductChoice(True, True, True))
    others = torch.nn.Sequential(Own(WIDTH, OUTPUTS), torch.nn.Linear(8, 8))
    choose_products(others)
    assert [type(other) for other in others] == [Own, torch.nn.Linear]
    x = torch.randn(3, WIDTH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype is torch.bfloat16
    assert layer(x[:0]).shape == (0, OUTPUTS)
    plain = torch.nn.functional.linear
    assert torch.equal(layer.double()(x.double()), plain(x.double(), layer.weight, layer.bias))


def test_shared_weights_stay_shared_and_names_stay(monkeypatch):
    monkeypatch.setattr(cpu_kernels, "fastest_products", lambda: ProductChoice(True, True, True))
    model = torch.nn.ModuleDict(
        {"in": torch.nn.Embedding(OUTPUTS, WIDTH), "out": torch.nn.Linear(WIDTH, OUTPUTS)}
    )
    model["out"].weight = model["in"].weight
    names = list(model.state_dict())
    choose_products(model)
    assert type(model["out"]) is ChosenLinear and list(model.state_dict()) == names
    model["out"](model["in"](torch.tensor([3, 4]))).sum().backward()
    assert model["in"].weight.grad is model["out"].weight.grad


@pytest.fixture
def small_times(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(cpu_kernels, "TIMED_SHAPE", (8, 8))
    return settings.cache_folder() / "products"


def test_products_are_timed_once_and_stored_by_processor_and_threads(small_times, monkeypatch):
    monkeypatch.setattr(cpu_kernels, "MIN_GAIN", 0.0)
    assert fastest_products() == (True, True, True)
    monkeypatch.setattr(cpu_kernels, "MIN_GAIN", float("inf"))
    assert fastest_products() == (True, True, True)
    monkeypatch.setattr(cpu_kernels, "processor", lambda: "another processor")
    assert fastest_products() == (False, False, False)
    files = sorted(small_times.iterdir())
    assert len(files) == 2
    for path in files:
        path.write_text("[true]")
    assert fastest_products() == (False, False, False)


def test_products_are_chosen_without_a_cache_too(small_times, monkeypatch):
    small_times.write_text("no folder")
    monkeypatch.setattr(cpu_kernels, "MIN_GAIN", 0.0)
    assert fastest_products() == (True, True, True)
