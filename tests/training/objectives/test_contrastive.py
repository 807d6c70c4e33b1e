"""The contrastive losses beside scalar loops, and beside what the official codes compute."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from stsbench.training.objectives import (
    dimension_contrast,
    info_nce,
    jsd_mutual_information,
    mixed_info_nce,
    nt_xent,
    off_dropout_info_nce,
    queued_info_nce,
    quick_thoughts,
)
from tests.training.tensors import cosine, made

ANCHOR, OTHER, HARD = (made(5, 7, key=key) for key in (1, 2, 3))
NEAR = ANCHOR + OTHER


def share(own: float, others: list[float]) -> float:
    """Minus the log of a logit's share among others, its own not among them."""
    return math.log(math.exp(own) + math.fsum(map(math.exp, others))) - own


def literal_info_nce(
    anchor: torch.Tensor,
    positive: torch.Tensor,
    hard: torch.Tensor | None,
    temperature: float,
    weight: float = 0.0,
) -> float:
    """Equation 5 of SimCSE, and equation 8 with alpha = e^weight: loops over scalars."""
    losses = []
    for i, one in enumerate(anchor):
        logits = [cosine(one, other) / temperature for other in positive]
        negatives = [cosine(one, other) / temperature for other in ([] if hard is None else hard)]
        # A weight of the own hard negative is added to its logit.
        weighted = [logit + weight if i == j else logit for j, logit in enumerate(negatives)]
        losses.append(share(logits[i], logits[:i] + logits[i + 1 :] + weighted))
    return math.fsum(losses) / len(losses)


def literal_nt_xent(view_a: torch.Tensor, view_b: torch.Tensor, temperature: float) -> float:
    """SimCLR's algorithm 1, over the 2n views."""
    n, views, losses = len(view_a), [*view_a, *view_b], []
    for i, view in enumerate(views):
        twin = (i + n) % (2 * n)
        others = [
            cosine(view, other) / temperature for j, other in enumerate(views) if j not in (i, twin)
        ]
        losses.append(share(cosine(view, views[twin]) / temperature, others))
    return math.fsum(losses) / len(losses)


@pytest.mark.parametrize("temperature", [0.01, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("positive", [NEAR, OTHER])
def test_agree_with_scalar_loops(n, positive, temperature):
    a, p, h = ANCHOR[:n], positive[:n], HARD[:n]
    found = info_nce(a, p, temperature=temperature).item()
    assert found == pytest.approx(literal_info_nce(a, p, None, temperature), rel=1e-11, abs=1e-13)
    for weight in (0.0, math.log(2), -1.5):
        found = info_nce(a, p, h, temperature=temperature, hard_negative_weight=weight).item()
        assert found == pytest.approx(
            literal_info_nce(a, p, h, temperature, weight), rel=1e-11, abs=1e-13
        )
    found = nt_xent(a, p, temperature=temperature).item()
    assert found == pytest.approx(literal_nt_xent(a, p, temperature), rel=1e-11, abs=1e-13)


def test_a_tiny_temperature_does_not_overflow():
    # e^1000 and e^-1000 are no float64: the sums must not be taken literally.
    a, p = torch.eye(4), -torch.eye(4)
    a.requires_grad_()
    loss = info_nce(a, p, temperature=0.001)
    assert loss.item() == pytest.approx(1000 + math.log(3), rel=1e-6)  # own -1000, the others 0
    loss = loss + nt_xent(a, p, temperature=0.001)
    (gradient,) = torch.autograd.grad(loss, a)
    assert loss.isfinite() and gradient.isfinite().all()


def test_a_zero_row_has_cosine_zero_and_a_finite_gradient():
    a = ANCHOR.clone()
    a[1] = 0
    a.requires_grad_()
    loss = info_nce(a, OTHER, temperature=0.05) + nt_xent(a, OTHER, temperature=0.05)
    (gradient,) = torch.autograd.grad(loss, a)
    assert loss.isfinite() and gradient.isfinite().all() and gradient.abs().max() < 1e3
    alone = torch.zeros(2, 3), torch.eye(2, 3)
    assert info_nce(*alone, temperature=0.05).item() == pytest.approx(math.log(2))


STILL, QUEUE = (made(5, 7, key=key) for key in (3, 4))
FILLED = torch.tensor([True, False, True, True, False])


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
    logits = [
        [math.fsum(i * j for i, j in zip(a, b, strict=True)) / len(x) / t for b in second]
        for a in first
    ]
    return math.fsum(share(row[c], row[:c] + row[c + 1 :]) for c, row in enumerate(logits)) / len(
        logits
    )


@pytest.mark.parametrize("temperature", [0.05, 0.5])
@pytest.mark.parametrize("positive", [NEAR, OTHER])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_agree_with_scalar_loops_negatives(n, positive, temperature):
    a, p, s = ANCHOR[:n], positive[:n], STILL[:n]

    def near(value: float) -> Any:
        return pytest.approx(value, rel=1e-11, abs=1e-13)

    found = queued_info_nce(a, p, QUEUE, FILLED, temperature=temperature).item()
    assert found == near(literal_info_nce(a, p, QUEUE[FILLED], temperature))
    for variant in ("paper", "released"):
        found = mixed_info_nce(a, p, temperature=temperature, mixing=0.2, variant=variant).item()
        assert found == near(literal_mixed(a, p, temperature, 0.2, variant))
    for part in (1.0, 0.9):
        found = off_dropout_info_nce(a, p, s, temperature=temperature, positive_share=part).item()
        each = []
        for i in range(n):
            others = [cosine(s[i], s[j]) / temperature for j in range(n) if j != i]
            each.append(share(part * cosine(a[i], p[i]) / temperature, others))
        assert found == near(math.fsum(each) / n)
    found = dimension_contrast(a, p, temperature=temperature).item()
    assert found == near(literal_dimensions(a, p, temperature))


THREE = torch.arange(5) < 3
ANCHORS, MEANS = made(6, 7, key=4), made(6, 2, 7, key=5).mean(dim=1)
OFFICIAL: dict[str, list[tuple[Callable[[], torch.Tensor], float]]] = {
    # cl_forward of princeton-nlp/SimCSE@49fa580, simcse/models.py, on these tensors.
    "simcse": [
        (lambda: info_nce(ANCHOR, NEAR, temperature=0.05), 0.0027662017481241063),
        (lambda: info_nce(ANCHOR, OTHER, temperature=0.5), 0.8882853608537742),
        *(
            (partial(info_nce, ANCHOR, p, HARD, temperature=t, hard_negative_weight=w), value)
            for w, near, other in (
                (0.0, 0.0030207829417553947, 1.340022098560348),
                (math.log(2), 0.003020782985576029, 1.3714915034816402),
                (-1.5, 0.0030207829077124296, 1.3148214114598655),
            )
            for p, t, value in ((NEAR, 0.05, near), (OTHER, 0.5, other))
        ),
    ],
    # AdvCLSoftmaxLoss._contrastive_loss_forward of yym6472/ConSERT@03c9e8f, before the rate 0.15.
    "consert": [
        (lambda: 2 * nt_xent(ANCHOR, NEAR, temperature=0.1), 0.07743603701956511),
        (lambda: 2 * nt_xent(ANCHOR, OTHER, temperature=0.5), 2.5763153881521523),
        (lambda: 2 * nt_xent(ANCHOR, ANCHOR, temperature=0.1), 0.018875756235207285),
    ],
    # NTXentLoss of pytorch-metric-learning 2.9.0 with the labels of JohnGiorgi/DeCLUTR@b78ac57: the 2AN points, anchors
    # then mean positives, each anchor a label of its own.
    "declutr": [
        (lambda: nt_xent(ANCHORS, MEANS, temperature=0.05), 9.215163784591692),
        (lambda: nt_xent(ANCHOR, NEAR, temperature=0.05), 0.00243442997473564),
        (lambda: nt_xent(ANCHOR, OTHER, temperature=0.5), 1.2881576940760764),
    ],
    # MultipleNegativesRankingLoss(scale=20) of sentence-transformers 6.2.0: pairs, and triplets.
    "sentence-transformers": [
        (lambda: info_nce(ANCHOR, OTHER, temperature=0.05), 0.6957745091312347),
        (lambda: info_nce(ANCHOR, OTHER, HARD, temperature=0.05), 0.7308852266639239),
    ],
    # cl_forward of caskcsg/sentemb@5eeec55, ESimCSE/esimcse/models.py, with the first three rows of the queue as pre_z1.
    "esimcse": [
        (
            lambda: queued_info_nce(ANCHOR, NEAR, QUEUE, THREE, temperature=0.05),
            0.0027687175270503152,
        ),
        (
            lambda: queued_info_nce(ANCHOR, OTHER, QUEUE, THREE, temperature=0.05),
            0.6961592121385055,
        ),
        (lambda: queued_info_nce(ANCHOR, NEAR, QUEUE, THREE, temperature=0.5), 0.8314348193469379),
        (lambda: queued_info_nce(ANCHOR, OTHER, QUEUE, THREE, temperature=0.5), 1.1499894358191576),
    ],
    # cl_forward of BDBC-KG-NLP/MixCSE_AAAI2022@884145e, mixcse/models_mix.py, lambdas = 0.25.
    "mixcse": [
        (partial(mixed_info_nce, ANCHOR, p, temperature=t, mixing=0.25, variant="released"), value)
        for p, t, value in (
            (NEAR, 0.05, 0.028406893872308336),
            (OTHER, 0.05, 1.2395779159557638),
            (NEAR, 0.5, 1.4161518427865205),
            (OTHER, 0.5, 1.8051605361198484),
        )
    ],
    # cl_forward of Jiahao004/SimCSE-plus-plus@899e49b, simcse/models_re_vicreg.py: pos_ratio 1 and 0.9; then the
    # dimensions' part by itself, sw_temp 5 and 0.5. It adds log(1e-45) to what we leave out.
    "simcse++": [
        *(
            (
                partial(off_dropout_info_nce, ANCHOR, p, STILL, temperature=t, positive_share=s),
                value,
            )
            for p, t, s, value in (
                (NEAR, 0.05, 1.0, 1.633478759899276e-05),
                (OTHER, 0.05, 1.0, 0.0025618885849286953),
                (NEAR, 0.05, 0.9, 0.00010126038098974277),
                (NEAR, 0.5, 1.0, 0.48374078545483024),
                (OTHER, 0.5, 0.9, 0.758055405874419),
            )
        ),
        (lambda: dimension_contrast(ANCHOR, NEAR, temperature=5.0), 1.7891328484383757),
        (lambda: dimension_contrast(ANCHOR, OTHER, temperature=5.0), 1.8417434984067487),
        (lambda: dimension_contrast(ANCHOR, NEAR, temperature=0.5), 0.9220120474333285),
        (lambda: dimension_contrast(ANCHOR, OTHER, temperature=0.5), 1.3365963989332061),
    ],
}


@pytest.mark.parametrize("code", OFFICIAL)
def test_the_losses_are_what_the_official_codes_compute(code):
    for loss, value in OFFICIAL[code]:
        assert loss().item() == pytest.approx(value, rel=1e-11)


def test_gradients_of_mixcse_are_its_code_s():
    # The squared lengths of its gradients, at 0.05 for anchor and positive.
    a, p = ANCHOR.clone().requires_grad_(), OTHER.clone().requires_grad_()
    loss = mixed_info_nce(a, p, temperature=0.05, mixing=0.25, variant="released")
    squares = [gradient.square().sum().item() for gradient in torch.autograd.grad(loss, (a, p))]
    assert squares == pytest.approx([5.3760419742921535, 5.0482233016202], rel=1e-11)


LOCAL, POOLED = made(4, 5, 6, key=1), made(4, 6, key=2)
LENGTHS = [5, 3, 1, 4]
MASK = (torch.arange(5) < torch.tensor(LENGTHS)[:, None]).long()


def softplus(x: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0.0)


def literal(local: torch.Tensor, mask: torch.Tensor, pooled: torch.Tensor) -> float:
    """Every token with every sentence."""
    positives, negatives = [], []
    for i, states in enumerate(local.tolist()):
        for state, token in zip(states, mask[i].tolist(), strict=True):
            for j, embedding in enumerate(pooled.tolist()):
                score = math.fsum(x * y for x, y in zip(state, embedding, strict=True))
                if token and i == j:
                    positives.append(math.log(2) - softplus(-score))
                elif token:
                    negatives.append(softplus(score) - math.log(2))
    n, b = int(mask.sum()), len(pooled)
    assert (len(positives), len(negatives)) == (n, n * (b - 1))
    return math.fsum(negatives) / (n * (b - 1)) - math.fsum(positives) / n


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 20.0, 1000.0])
@pytest.mark.parametrize("b", [2, 3, 4])
def test_agrees_with_a_double_loop(b, scale):
    local, mask, pooled = scale * LOCAL[:b], MASK[:b], POOLED[:b]
    found = jsd_mutual_information(local, mask, pooled).item()
    assert found == pytest.approx(literal(local, mask, pooled), rel=1e-12)


def test_is_what_the_released_code_computes():
    # MutualInformationLoss of yanzhangnlp/IS-BERT@ea6622c on these tensors (its masks off the GPU).
    assert jsd_mutual_information(LOCAL, MASK, POOLED).item() == pytest.approx(
        0.018593919726449526, rel=1e-11
    )
    assert jsd_mutual_information(10 * LOCAL, MASK, POOLED).item() == pytest.approx(
        5.866727960649394, rel=1e-12
    )


@pytest.mark.parametrize("score", [-21.0, 21.0])
def test_no_threshold_beyond_which_softplus_is_rounded(score):
    # Scores with the own sentence and with the other one, alike for both.
    local = torch.full((2, 1, 1), score, dtype=torch.float64)
    loss = jsd_mutual_information(
        local, torch.ones(2, 1), torch.ones(2, 1, dtype=torch.float64)
    ).item()
    assert loss == pytest.approx(softplus(score) + softplus(-score) - 2 * math.log(2), rel=1e-14)


def test_padding_has_no_part_in_it():
    expected = jsd_mutual_information(LOCAL, MASK, POOLED).item()
    garbage = LOCAL.masked_fill(MASK[:, :, None] == 0, 1e30)
    assert jsd_mutual_information(garbage, MASK, POOLED).item() == expected
    longer = (
        torch.cat([LOCAL, made(4, 3, 6, key=9)], dim=1),
        torch.cat([MASK, torch.zeros(4, 3)], dim=1),
    )
    assert jsd_mutual_information(*longer, POOLED).item() == pytest.approx(expected, rel=1e-13)
    local = garbage.requires_grad_()
    (gradient,) = torch.autograd.grad(jsd_mutual_information(local, MASK, POOLED), local)
    assert gradient.isfinite().all() and (gradient[MASK == 0] == 0).all()


def ordered_literal(first: torch.Tensor, second: torch.Tensor) -> float:
    """Sentence by sentence: its scores, the own one 0, against its neighbours in equal shares."""
    b = len(first)
    losses = []
    for i in range(b):
        scores = [
            0.0
            if i == j
            else math.fsum(
                x * y for x, y in zip(first[i].tolist(), second[j].tolist(), strict=True)
            )
            for j in range(b)
        ]
        total = math.log(math.fsum(map(math.exp, scores)))
        beside = [j for j in (i - 1, i + 1) if 0 <= j < b]
        losses.append(math.fsum(total - scores[j] for j in beside) / len(beside))
    return math.fsum(losses) / b


@pytest.mark.parametrize("b", [2, 3, 6])
def test_agrees_with_a_slow_computation(b):
    first, second = made(b, 5, key=1), made(b, 5, key=2)
    assert quick_thoughts(first, second).item() == pytest.approx(
        ordered_literal(first, second), rel=1e-13
    )


def test_is_what_the_released_code_computes_ordered():
    # The scorer and loss of lajanugen/S2V@397b8b1, src/s2v_model.py, run in TensorFlow 2.21 on these tensors.
    for b, value in {2: 0.6183082139811612, 6: 2.3723025947161562}.items():
        assert quick_thoughts(made(b, 5, key=1), made(b, 5, key=2)).item() == pytest.approx(
            value, rel=1e-13
        )


def test_large_scores_do_not_overflow_in_quick_thoughts():
    first, second = made(6, 5, key=1), made(6, 5, key=2)
    large = (1e3 * first.float()).requires_grad_()
    loss = quick_thoughts(large, 1e3 * second.float())
    (gradient,) = torch.autograd.grad(loss, large)
    assert loss.isfinite() and gradient.isfinite().all()
