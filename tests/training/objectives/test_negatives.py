"""SimCSE's loss with other negatives, and the contrast of dimensions: scalar loops, and what the official codes compute."""

import math
from typing import Any

import pytest
import torch

from stsbench.errors import StsbenchError, UnknownName
from stsbench.training.objectives import (
    dimension_contrast,
    info_nce,
    mixed_info_nce,
    off_dropout_info_nce,
    queued_info_nce,
)
from tests.training.tensors import cosine, made

ANCHOR, OTHER, STILL, QUEUE = (made(5, 7, key=key) for key in (1, 2, 3, 4))
NEAR = ANCHOR + OTHER
FILLED = torch.tensor([True, False, True, True, False])


def share(own: float, others: list[float]) -> float:
    """Minus the log of a logit's share among others, its own not among them."""
    return math.log(math.exp(own) + math.fsum(map(math.exp, others))) - own


def literal_queued(a: torch.Tensor, p: torch.Tensor, queue: torch.Tensor, t: float) -> float:
    losses = []
    for i in range(len(a)):
        others = [cosine(a[i], p[j]) / t for j in range(len(a)) if j != i]
        losses.append(share(cosine(a[i], p[i]) / t, others + [cosine(a[i], one) / t for one in queue]))
    return math.fsum(losses) / len(losses)


def literal_mixed(a: torch.Tensor, p: torch.Tensor, t: float, mixing: float, variant: str) -> float:
    n, losses = len(a), []

    def mix(rows: torch.Tensor, i: int) -> torch.Tensor:
        return mixing * rows[i] + (1 - mixing) * rows[(i + 1) % n]

    unit = p / p.norm(dim=1, keepdim=True)
    for i in range(n):
        others = [cosine(a[i], p[j]) / t for j in range(n) if j != i]
        if variant == "paper":
            others.append(cosine(a[i], mix(unit, i)) / t)
        else:
            # The mix of the sentence before is mostly i's own positive; that of anchor i mostly the next anchor.
            others += [0.0 if (j + 1) % n == i else cosine(a[i], mix(p, j)) / t for j in range(n)]
            others += [0.0 if (i + 1) % n == j else cosine(mix(a, i), p[j]) / t for j in range(n)]
        losses.append(share(cosine(a[i], p[i]) / t, others))
    return math.fsum(losses) / n


def literal_dimensions(x: torch.Tensor, y: torch.Tensor, t: float) -> float:
    def standard(values: list[float]) -> list[float]:
        mean = math.fsum(values) / len(values)
        variance = math.fsum((v - mean) ** 2 for v in values) / len(values)
        return [(v - mean) / math.sqrt(variance + 1e-5) for v in values]

    first, second = ([standard(column) for column in view.T.tolist()] for view in (x, y))
    logits = [[math.fsum(i * j for i, j in zip(a, b, strict=True)) / len(x) / t for b in second] for a in first]
    return math.fsum(share(row[c], row[:c] + row[c + 1 :]) for c, row in enumerate(logits)) / len(logits)


@pytest.mark.parametrize("temperature", [0.05, 0.5])
@pytest.mark.parametrize("positive", [NEAR, OTHER])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_agree_with_scalar_loops(n, positive, temperature):
    a, p, s = ANCHOR[:n], positive[:n], STILL[:n]

    def near(value: float) -> Any:
        return pytest.approx(value, rel=1e-11, abs=1e-13)

    found = queued_info_nce(a, p, QUEUE, FILLED, temperature=temperature).item()
    assert found == near(literal_queued(a, p, QUEUE[FILLED], temperature))
    for variant in ("paper", "released"):
        found = mixed_info_nce(a, p, temperature=temperature, mixing=0.2, variant=variant).item()
        assert found == near(literal_mixed(a, p, temperature, 0.2, variant))
    for part in (1.0, 0.9):
        found = off_dropout_info_nce(a, p, s, temperature=temperature, positive_share=part).item()
        each = [
            share(
                part * cosine(a[i], p[i]) / temperature,
                [cosine(s[i], s[j]) / temperature for j in range(n) if j != i],
            )
            for i in range(n)
        ]
        assert found == near(math.fsum(each) / n)
    found = dimension_contrast(a, p, temperature=temperature).item()
    assert found == near(literal_dimensions(a, p, temperature))


def test_a_queue_without_a_filled_place_is_simcse():
    empty = queued_info_nce(ANCHOR, OTHER, QUEUE, torch.zeros(5, dtype=torch.bool), temperature=0.05)
    assert empty.item() == pytest.approx(info_nce(ANCHOR, OTHER, temperature=0.05).item(), rel=1e-13)


def test_the_queue_s_loss_is_what_esimcse_computes():
    # cl_forward of caskcsg/sentemb@5eeec55, ESimCSE/esimcse/models.py, with the first three rows of the queue as pre_z1.
    official = {
        (0.05, "near"): 0.0027687175270503152,
        (0.05, "other"): 0.6961592121385055,
        (0.5, "near"): 0.8314348193469379,
        (0.5, "other"): 1.1499894358191576,
    }
    for (temperature, name), value in official.items():
        positive = {"near": NEAR, "other": OTHER}[name]
        found = queued_info_nce(ANCHOR, positive, QUEUE, torch.arange(5) < 3, temperature=temperature)
        assert found.item() == pytest.approx(value, rel=1e-11)


def test_mixed_negatives_are_what_mixcse_s_code_computes():
    # cl_forward of BDBC-KG-NLP/MixCSE_AAAI2022@884145e, mixcse/models_mix.py, lambdas = 0.25.
    official = {
        (0.05, "near"): 0.028406893872308336,
        (0.05, "other"): 1.2395779159557638,
        (0.5, "near"): 1.4161518427865205,
        (0.5, "other"): 1.8051605361198484,
    }
    for (temperature, name), value in official.items():
        positive = {"near": NEAR, "other": OTHER}[name]
        found = mixed_info_nce(ANCHOR, positive, temperature=temperature, mixing=0.25, variant="released")
        assert found.item() == pytest.approx(value, rel=1e-11)
    # The squared lengths of its gradients, at 0.05 for anchor and positive.
    a, p = ANCHOR.clone().requires_grad_(), OTHER.clone().requires_grad_()
    loss = mixed_info_nce(a, p, temperature=0.05, mixing=0.25, variant="released")
    squares = [gradient.square().sum().item() for gradient in torch.autograd.grad(loss, (a, p))]
    assert squares == pytest.approx([5.3760419742921535, 5.0482233016202], rel=1e-11)


def test_no_gradient_flows_through_a_mix():
    # Were it not so, a positive would be pushed away as part of its own mix.
    p = OTHER.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(mixed_info_nce(ANCHOR, p, temperature=0.5, mixing=0.2), p)
    moved = OTHER.clone()
    moved[0] += 1e-6 * STILL[0]
    unit = OTHER / OTHER.norm(dim=1, keepdim=True)
    mixes = 0.2 * unit + 0.8 * unit.roll(-1, 0)

    def held(positive: torch.Tensor) -> float:
        losses = []
        for i in range(5):
            others = [cosine(ANCHOR[i], positive[j]) / 0.5 for j in range(5) if j != i]
            own = cosine(ANCHOR[i], positive[i]) / 0.5
            losses.append(share(own, [*others, cosine(ANCHOR[i], mixes[i]) / 0.5]))
        return math.fsum(losses) / 5

    slope = (held(moved) - held(OTHER)) / 1e-6
    assert float(gradient[0] @ STILL[0]) == pytest.approx(slope, rel=1e-4)


def test_both_parts_are_what_simcse_plus_plus_computes():
    # cl_forward of Jiahao004/SimCSE-plus-plus@899e49b, simcse/models_re_vicreg.py: pos_ratio 1 and 0.9; then the
    # dimensions' part by itself, sw_temp 5 and 0.5. It adds log(1e-45) to what we leave out.
    official = {
        (0.05, 1.0, "near"): 1.633478759899276e-05,
        (0.05, 1.0, "other"): 0.0025618885849286953,
        (0.05, 0.9, "near"): 0.00010126038098974277,
        (0.5, 1.0, "near"): 0.48374078545483024,
        (0.5, 0.9, "other"): 0.758055405874419,
    }
    for (temperature, part, name), value in official.items():
        positive = {"near": NEAR, "other": OTHER}[name]
        found = off_dropout_info_nce(ANCHOR, positive, STILL, temperature=temperature, positive_share=part)
        assert found.item() == pytest.approx(value, rel=1e-10)
    dimensions = {
        (5.0, "near"): 1.7891328484383757,
        (5.0, "other"): 1.8417434984067487,
        (0.5, "near"): 0.9220120474333285,
        (0.5, "other"): 1.3365963989332061,
    }
    for (temperature, name), value in dimensions.items():
        found = dimension_contrast(ANCHOR, {"near": NEAR, "other": OTHER}[name], temperature=temperature)
        assert found.item() == pytest.approx(value, rel=1e-10)


def test_gradients_are_exact():
    a, p, s = (made(4, 3, key=key).requires_grad_() for key in (1, 2, 3))
    assert torch.autograd.gradcheck(lambda x, y: queued_info_nce(x, y, QUEUE[:, :3], FILLED, temperature=0.3), (a, p))
    assert torch.autograd.gradcheck(lambda x, y, z: off_dropout_info_nce(x, y, z, temperature=0.3), (a, p, s))
    assert torch.autograd.gradcheck(lambda x, y: dimension_contrast(x, y, temperature=0.3), (a, p))


def test_half_precision_is_computed_in_float32():
    a, p, s = (made(8, 16, key=key, dtype=torch.bfloat16) for key in (1, 2, 3))
    x, y, z = a.float(), p.float(), s.float()
    every = torch.ones(8, dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16):
        assert queued_info_nce(a, p, s, every, temperature=0.05).item() == (
            queued_info_nce(x, y, z, every, temperature=0.05).item()
        )
        assert mixed_info_nce(a, p, temperature=0.05, mixing=0.2).item() == (
            mixed_info_nce(x, y, temperature=0.05, mixing=0.2).item()
        )
        assert off_dropout_info_nce(a, p, s, temperature=0.05).item() == (
            off_dropout_info_nce(x, y, z, temperature=0.05).item()
        )
        assert dimension_contrast(a, p, temperature=5.0).item() == dimension_contrast(x, y, temperature=5.0).item()


def test_what_does_not_fit_is_told():
    with pytest.raises(ValueError, match=r"queue is \(5, 7\) and filled \(4,\); they must be \(m, 7\) and \(m,\)"):
        queued_info_nce(ANCHOR, OTHER, QUEUE, FILLED[:4], temperature=0.05)
    with pytest.raises(ValueError, match="no other to be mixed with"):
        mixed_info_nce(ANCHOR[:1], OTHER[:1], temperature=0.05, mixing=0.2)
    with pytest.raises(StsbenchError, match=r"mixing 1\.5: it is a share"):
        mixed_info_nce(ANCHOR, OTHER, temperature=0.05, mixing=1.5)
    with pytest.raises(UnknownName, match="unknown variant 'papers'; did you mean 'paper'"):
        mixed_info_nce(ANCHOR, OTHER, temperature=0.05, mixing=0.2, variant="papers")
    with pytest.raises(ValueError, match=r"still is \(4, 7\), but anchor is \(5, 7\)"):
        off_dropout_info_nce(ANCHOR, OTHER, STILL[:4], temperature=0.05)
    with pytest.raises(StsbenchError, match="positive_share 0"):
        off_dropout_info_nce(ANCHOR, OTHER, STILL, temperature=0.05, positive_share=0.0)
    with pytest.raises(ValueError, match="one sentence has no variance"):
        dimension_contrast(ANCHOR[:1], OTHER[:1], temperature=5.0)
    for temperature in (0.0, math.nan):
        with pytest.raises(StsbenchError, match="it must be a positive number"):
            dimension_contrast(ANCHOR, OTHER, temperature=temperature)
