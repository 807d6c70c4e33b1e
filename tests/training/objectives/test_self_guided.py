"""The self-guided losses and their regulariser against scalar loops and the authors' code."""

import itertools
import math

import pytest
import torch

from stsbench.training.objectives import anchored_l2, self_guided
from tests.training.tensors import cosine, made

CLS = made(4, 6, key=1)
HIDDEN = made(4, 3, 6, key=2) + CLS[:, None]
ONE_LAYER = ["base", "opt1", "opt2", "opt2-released"]
VARIANTS = [*ONE_LAYER, "opt3"]


def literal(cls: torch.Tensor, hidden: torch.Tensor, temperature: float, variant: str) -> float:
    """The paper's equations, one logarithm at a time; of the released opt2, its list of columns."""
    b, k, _ = hidden.shape

    def e(x: torch.Tensor, y: torch.Tensor) -> float:
        return math.exp(cosine(x, y) / temperature)

    losses = []
    for i in range(b):
        others = [j for j in range(b) if j != i]
        own = e(cls[i], hidden[i, 0])
        to_hidden = math.fsum(e(cls[i], hidden[j, 0]) for j in others)
        to_cls = math.fsum(e(cls[i], cls[j]) for j in others)
        if variant == "base":
            backwards = own + math.fsum(
                e(hidden[i, 0], cls[j]) + e(hidden[i, 0], hidden[j, 0]) for j in others
            )
            losses += [-math.log(own / (own + to_hidden + to_cls)), -math.log(own / backwards)]
        elif variant == "opt1":
            losses.append(-math.log(own / (own + to_hidden + to_cls)))
        elif variant == "opt2":
            losses.append(-math.log(own / (own + to_hidden)))
        elif variant == "opt2-released":
            losses.append(
                -math.log(own / (own + math.fsum(e(cls[i], hidden[j, 0]) for j in others[1:])))
            )
        else:
            negatives = math.fsum(
                e(cls[i], hidden[j, layer]) for j, layer in itertools.product(others, range(k))
            )
            for layer in range(k):
                own = e(cls[i], hidden[i, layer])
                losses.append(-math.log(own / (own + negatives)))
    assert len(losses) == {"base": 2 * b, "opt3": b * k}.get(variant, b)
    return math.fsum(losses) / len(losses)


@pytest.mark.parametrize("temperature", [0.01, 0.05, 0.5])
@pytest.mark.parametrize("b", [1, 2, 3, 4])
@pytest.mark.parametrize("variant", VARIANTS)
def test_agree_with_the_equations(variant, b, temperature):
    layers = 3 if variant == "opt3" else 1
    cls, hidden = CLS[:b], HIDDEN[:b, :layers]
    found = self_guided(cls, hidden, temperature=temperature, variant=variant).item()
    assert found == pytest.approx(literal(cls, hidden, temperature, variant), rel=1e-11, abs=1e-13)


def test_are_what_the_released_code_computes():
    # NTXentLossOpt1, NTXentLossOpt2 and NTXentLoss of galsang/SG-BERT@23d5ebe, loss.py, on these
    # tensors. Its NTXentLossOriginal (base) raises: 2b rows of logits, b labels.
    official = {
        0.05: {
            "opt1": 0.7670183028007402,
            "opt2-released": 0.7474574520692733,
            "opt3": 1.6966686207173474,
        },
        0.5: {
            "opt1": 1.2041224712785195,
            "opt2-released": 0.7974665792172722,
            "opt3": 1.5448709118356623,
        },
    }
    for temperature, values in official.items():
        for variant, value in values.items():
            hidden = HIDDEN if variant == "opt3" else HIDDEN[:, :1]
            found = self_guided(CLS, hidden, temperature=temperature, variant=variant).item()
            assert found == pytest.approx(value, rel=1e-12)
    for b, value in {2: 0.0, 3: 0.39208261938414707}.items():
        found = self_guided(
            CLS[:b], HIDDEN[:b, :1], temperature=0.5, variant="opt2-released"
        ).item()
        assert found == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("b", [1, 2, 5])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_tiny_temperature_does_not_overflow(variant, b):
    cls = torch.eye(b, 6).requires_grad_()
    hidden = -cls[:, None].detach().expand(b, 2 if variant == "opt3" else 1, 6)
    loss = self_guided(cls, hidden, temperature=0.001, variant=variant)
    (gradient,) = torch.autograd.grad(loss, cls)
    assert loss.isfinite() and gradient.isfinite().all()


NOW = {"weight": made(3, 2, key=1), "bias": made(5, key=2)}
START = {"weight": made(3, 2, key=3), "bias": made(5, key=4)}


def test_the_regulariser_is_the_sum_of_all_squares():
    squares = [
        (x - y) ** 2
        for name in NOW
        for x, y in zip(NOW[name].flatten().tolist(), START[name].flatten().tolist(), strict=True)
    ]
    assert anchored_l2(NOW, START).item() == pytest.approx(math.fsum(squares), rel=1e-14)
    # Loss.compute_diff of galsang/SG-BERT@23d5ebe on these tensors.
    assert anchored_l2(NOW, START).item() == pytest.approx(17.93528274921818, rel=1e-14)


def test_the_regulariser_starts_at_zero_with_zero_gradient():
    now = {name: value.clone().requires_grad_() for name, value in START.items()}
    loss = anchored_l2(now, START)
    gradients = torch.autograd.grad(loss, list(now.values()))
    assert loss.item() == 0 and all((gradient == 0).all() for gradient in gradients)


def test_the_regulariser_of_half_precision_parameters_is_float32():
    # 1 and 1 + 2^-7 are neighbours in bfloat16; 5,000 squares of 2^-7 are not summed in it.
    now, start = (
        torch.full((5000,), 1 + 2**-7, dtype=torch.bfloat16),
        torch.ones(5000, dtype=torch.bfloat16),
    )
    loss = anchored_l2({"w": now}, {"w": start})
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(5000 * 2**-14, rel=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert anchored_l2({"w": now.float()}, {"w": start.float()}).item() == loss.item()
