"""BERT-flow: Glow against the PyTorch port's values, what any normalising flow must do, and the encoder that is fitted on texts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.core.errors import CardError, EncoderError
from stsbench.core.parameters import call_with_params
from stsbench.encoders.fitted import PostProcessed
from stsbench.encoders.flow import EPSILON, DecayedAdam, FlowMethod, GlowFlow, flow_encoder
from stsbench.encoders.transformer.encoder import TransformerEncoder, embed_with_dropout
from tests.encoders.fakes import Plain
from tests.encoders.tiny import SENTENCES

functional: Any = torch.autograd.functional
normal: Any = torch.distributions.Normal(torch.tensor(0.0).double(), 1.0)

# What github.com/UKPLab/pytorch-bertflow (14cdc30, torch 2.13) gives: a flow of 16 channels by level count, set by
# `given(8)`, then evaluated on 0.9 * given(5) + 0.1, then five steps of its optimiser at 1e-4, clipped at 1.
PORT: dict[int, dict[str, Any]] = {
    2: {
        "first_loss": 2.922411,
        "first_z": [
            -0.494475, -0.394679, -0.290279, 2.22183, -0.471728, 1.728762, 1.445436, 0.083624,
            -0.088276, -0.400778, -0.853749, -0.866908, -1.58778, -1.987317, -1.090853, 0.152876,
        ],
        "loss": 2.699649,
        "z": [
            1.893505, -1.280422, 0.994511, -0.326786, -0.129728, 1.392902, -0.777291, 0.244072,
            -1.208244, -0.291072, -0.637864, 0.159621, 0.023555, 1.354921, 1.912719, 0.894613,
        ],
        "losses": [5.740831, 5.560312, 5.255237, 5.673186, 5.575217],
        "after": 2.633942,
        "z_after": [-2.177925, 0.095991, 0.630144, 0.369519],
    },
    3: {
        "first_loss": 2.933569,
        "first_z": [
            -0.494475, -0.394679, -0.290279, 2.22183, -0.471728, 1.728762, 1.445436, 0.083624,
            -1.58778, -1.987317, -1.090853, 0.152876, -0.931924, -0.789605, -0.346956, 0.093724,
        ],
        "loss": 2.762396,
        "z": [
            1.893505, -1.280422, 0.994511, -0.326786, -0.129728, 1.392902, -0.777291, 0.244072,
            0.023555, 1.354921, 1.912719, 0.894613, -0.149234, -0.50529, -0.708207, -1.890061,
        ],
        "losses": [5.797944, 5.581029, 5.261332, 5.58986, 5.511312],
        "after": 2.554717,
        "z_after": [-1.6709, -0.135869, 0.47679, 0.814682],
    },
}  # fmt: skip


def given(b: int, d: int = 16) -> torch.Tensor:
    t = torch.arange(b * d, dtype=torch.float32).reshape(b, d)
    return torch.sin(t * 0.37) * 2 + torch.cos(t**2 % 11)


def by_formula(i: int, shape: torch.Size) -> torch.Tensor:
    t = torch.arange(math.prod(shape), dtype=torch.float32)
    return (0.3 * torch.sin(t * (0.5 + 0.1 * i) + i)).reshape(shape)


def made(levels: int, d: int = 16, **options: Any) -> GlowFlow:
    """A flow whose coupling networks, last layers too, have weights by a formula."""
    flow = GlowFlow(d, levels=levels, **options)
    couplings: Any = flow.couplings
    for i, coupling in enumerate(couplings):
        layers = [*coupling.inner, coupling.last]
        for j, layer in enumerate(layers):
            layer.weight.data = by_formula(3 * i + j, layer.weight.shape).to(layer.weight.dtype)
    return flow


@pytest.mark.parametrize("levels", [2, 3])
def test_the_ports_values_and_steps(levels):
    flow, due, x, y = made(levels), PORT[levels], given(8), given(5) * 0.9 + 0.1
    np.testing.assert_allclose(flow.initialise(x)[0], due["first_z"], atol=2e-5)
    found = [flow.loss(x).item(), flow.loss(y).item()]
    np.testing.assert_allclose(found, [due["first_loss"], due["loss"]], atol=1e-5)
    np.testing.assert_allclose(flow(y)[4].detach(), due["z"], atol=2e-5)
    adam = DecayedAdam(flow, FlowMethod(levels=levels, learning_rate=1e-4, decay="port"))
    losses = []
    for step in range(5):
        loss = flow.loss(x * (1 + 0.01 * step)) + flow.loss(x * 0.9 + 0.01 * step)
        losses.append(float(loss.detach()))
        adam.step(loss)
    np.testing.assert_allclose(
        [*losses, flow.loss(y).item()], [*due["losses"], due["after"]], rtol=1e-4
    )
    np.testing.assert_allclose(flow(y)[0, :4].detach(), due["z_after"], atol=1e-3)


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_log_determinant_is_that_of_the_jacobian(levels):
    flow = made(levels, d=8).double()
    flow.initialise(given(32, 8).double())
    for x in given(3, 8).double():
        jacobian: Any = functional.jacobian(lambda row: flow(row[None])[0], x)
        sign, value = torch.linalg.slogdet(jacobian)
        assert flow.log_determinant().item() == pytest.approx(float(value), abs=1e-10)
    x = given(3, 8).double()
    prior = normal.log_prob(flow(x)).sum(dim=1)
    np.testing.assert_allclose(
        flow.log_likelihood(x).detach(), (prior + flow.log_determinant()).detach(), rtol=1e-12
    )


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_first_batch_comes_out_standard(levels):
    flow = GlowFlow(16, levels=levels).double()
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(1)).double() * 3 + 7
    z = flow.initialise(x)
    np.testing.assert_allclose(z.mean(dim=0), 0, atol=1e-6)
    np.testing.assert_allclose(z.var(dim=0, unbiased=False), 1, atol=1e-5)
    # Nothing but a scale by channel has happened: the loss is known.
    deviation = x.var(dim=0, unbiased=False).sqrt() + EPSILON
    bits = (
        0.5 * math.log(2 * math.pi) + 0.5 * float((z**2).mean()) + float(deviation.log().mean())
    ) / math.log(2)
    assert flow.loss(x).item() == pytest.approx(bits, abs=1e-4)


def mixture(n: int = 512, d: int = 8) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d)) * np.linspace(0.2, 3, d)
    x[:, 1] += np.abs(x[:, 0]) * 4
    return x.astype(np.float32)


def test_training_lowers_the_loss_and_is_the_same_each_time():
    x, recipe = mixture(), FlowMethod(epochs=20, learning_rate=5e-3)
    (flow, losses), (again, same) = (recipe.train(x) for _ in range(2))
    assert losses == same and np.mean(losses[-8:]) < np.mean(losses[:8]) - 0.2
    assert all(map(torch.equal, flow.state_dict().values(), again.state_dict().values()))


def test_a_step_in_float64_by_hand():
    x, recipe = mixture(8), FlowMethod(batch_pairs=4, learning_rate=0.01, clip=0.05)
    flow, losses = recipe.train(x)
    (order,) = recipe.batches(4)
    first, second = (torch.from_numpy(x[2 * order + side]) for side in (0, 1))
    before = GlowFlow(8, seed=recipe.seed)
    before.initialise(first)
    loss = before.loss(first) + before.loss(second)
    assert losses == [pytest.approx(float(loss.detach()), rel=1e-6)]
    loss.backward()  # type: ignore[no-untyped-call]
    named = dict(before.named_parameters())
    grads = {n: p.grad.double().numpy() for n, p in named.items() if p.grad is not None}
    norm = math.sqrt(sum(float((g**2).sum()) for g in grads.values()))
    assert norm > 0.05
    for name, after in flow.named_parameters():
        g, p = grads[name] * 0.05 / norm, named[name].detach().double().numpy()
        due = p - 0.01 * (0.1 * g / (np.sqrt(0.001 * g**2) + 1e-6) + 0.01 * p)
        np.testing.assert_allclose(after.detach(), due, rtol=2e-4, atol=1e-6)


def test_batches():
    recipe = FlowMethod(batch_pairs=4, epochs=2, seed=5)
    steps = list(recipe.batches(11))
    # int(11 / 4 * 2) steps; the three pairs that fill no batch wait for the next epoch.
    assert [len(step) for step in steps] == [4] * 5
    assert len(set(np.concatenate(steps[:2]).tolist())) == 8
    assert not np.array_equal(steps[0], steps[2])
    assert [len(s) for s in recipe.batches(3)] == [3, 3]
    assert [len(s) for s in FlowMethod(epochs=0.01).batches(100)] == [32]


@pytest.mark.parametrize(
    ("method", "texts", "message"),
    [
        (FlowMethod(), 3, "a flow needs at least two pairs of texts, not 3 texts"),
        (FlowMethod(levels=4), 9, "a flow of 4 levels halves embeddings 4 times; 8 cannot be"),
    ],
)
def test_texts_that_are_too_few_or_too_narrow(method, texts, message):
    with pytest.raises(EncoderError) as caught:
        method.train(mixture()[:texts])
    assert str(caught.value) == message


def test_plain_arrays_are_fitted_as_by_the_encoder():
    x = Plain(d=8).encode(PAIRS)
    flow = GlowFlow(8, seed=1234)
    assert flow.fit(x) is flow
    np.testing.assert_array_equal(
        flow.transform(x), over(Plain(d=8)).fit_texts(PAIRS).encode(PAIRS)
    )
    method = FlowMethod(epochs=3, batch_pairs=8, learning_rate=1e-2)
    # It begins anew, and the method's own seed and levels do not count.
    flow.fit(x.tolist(), method)
    assert flow.losses_ == GlowFlow(8, seed=1234).fit(x, replace(method, seed=1, levels=1)).losses_
    assert len(flow.losses_) == 15 and np.mean(flow.losses_[-3:]) < np.mean(flow.losses_[:3])
    for wrong, message in (
        (x[:3], "two pairs of texts, not 3"),
        (x[:, :6], r"d = 8 takes embeddings \(n, 8\), not shape"),
    ):
        with pytest.raises(EncoderError, match=message):
            flow.fit(wrong)
    with pytest.raises(EncoderError, match="finite embeddings; row 1 "):
        flow.fit(np.array([[0.0] * 8, [np.inf] * 8]))


# --- the encoder ---

PAIRS = [f"text {i}" for i in range(80)]


def over(base: Any, **recipe: Any) -> PostProcessed:
    return PostProcessed(base, FlowMethod(**recipe), name="flow", fit="target")


def test_the_encoder():
    fitted = over(Plain(d=8)).fit_texts(PAIRS)
    x = Plain(d=8).encode(PAIRS)
    flow, _ = FlowMethod().train(x)
    with torch.no_grad():
        np.testing.assert_allclose(
            fitted.encode(PAIRS), flow(torch.from_numpy(x)), rtol=1e-4, atol=1e-5
        )
    np.testing.assert_array_equal(
        fitted.encode(PAIRS), np.concatenate([fitted.encode([text]) for text in PAIRS])
    )
    assert over(Plain(d=8)).train_seed == 1234


def test_dropout_is_on_while_fitting_alone(tiny: dict[str, Path]):
    base = TransformerEncoder(str(tiny["bert"]))
    plain = base.encode(SENTENCES)
    dropped = embed_with_dropout(base, SENTENCES, seed=3)
    assert np.abs(dropped - plain).max(axis=1).min() > 1e-3
    np.testing.assert_array_equal(dropped, embed_with_dropout(base, SENTENCES, seed=3))
    # The same sentence twice has two masks.
    assert SENTENCES[0] == SENTENCES[7]
    assert np.abs(dropped[0] - dropped[7]).max() > 1e-3
    np.testing.assert_array_equal(base.encode(SENTENCES), plain)
    fitted = over(base, dropout=True).fit_texts(SENTENCES)
    assert fitted.texts_to_embed() == ()
    assert not np.allclose(
        fitted.encode(SENTENCES), over(base).fit_texts(SENTENCES).encode(SENTENCES), atol=1e-3
    )


def test_what_cannot_be_is_one_line():
    with pytest.raises(EncoderError, match="'plain' .* dropout=false"):
        over(Plain(d=8), dropout=True).fit_texts(PAIRS).encode(["a"])
    wrongs: list[dict[str, Any]] = [
        {"levels": 0},
        {"epochs": 0.0},
        {"learning_rate": -1.0},
        {"seed": -1},
    ]
    for wrong in wrongs:
        with pytest.raises(CardError, match=f"key '{min(wrong)}': expected .* >=? [01]"):
            call_with_params(flow_encoder, {"base": "minilm", **wrong}, where="card")
