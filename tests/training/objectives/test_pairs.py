"""What classifiers of pairs are given, and losses of sentence-transformers over embeddings that are there."""

from __future__ import annotations

import math

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import (
    ContrastiveTensionLoss,
    ContrastiveTensionLossInBatchNegatives,
    MultipleNegativesRankingLoss,
)

from stsbench.training.objectives import (
    PAIR_FEATURES,
    GivenEmbeddings,
    feature_names,
    info_nce,
    library_loss,
    pair_features,
)
from tests.training.tensors import cosine, in_batch_tension, made

U = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
V = torch.tensor([[4.0, -5.0], [0.5, -1.0]])
BY_HAND = {
    "u": [[1.0, -2.0], [0.5, 3.0]],
    "v": [[4.0, -5.0], [0.5, -1.0]],
    "|u-v|": [[3.0, 3.0], [0.0, 4.0]],
    "u*v": [[4.0, 10.0], [0.25, -3.0]],
    "max(u,v)^2": [[16.0, 4.0], [0.25, 9.0]],
}


@pytest.mark.parametrize("kind", BY_HAND)
def test_each_feature_by_hand(kind):
    assert pair_features(U, V, [kind]).tolist() == BY_HAND[kind]


@pytest.mark.parametrize(
    ("preset", "features"),
    [
        ("sbert", ["u", "v", "|u-v|"]),  # 3d; ConSERT's paper too
        ("infersent", ["u", "v", "|u-v|", "u*v"]),
        (
            "consert-scripts",
            ["u", "v", "|u-v|", "max(u,v)^2"],
        ),  # _reps_to_output of yym6472/ConSERT@03c9e8f
    ],
)
def test_presets(preset, features):
    found = pair_features(U, V, preset)
    assert found.shape == (2, 2 * len(features)) == (2, 2 * len(feature_names(preset)))
    assert found.tolist() == [sum((BY_HAND[f][i] for f in features), []) for i in range(2)]
    assert torch.equal(found, pair_features(U, V, features))
    assert set(PAIR_FEATURES) == {"sbert", "infersent", "consert-scripts"}


def test_the_dtype_stays_and_gradients_pass():
    u, v = made(3, 4, key=1).requires_grad_(), made(3, 4, key=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: pair_features(x, y, list(BY_HAND)), (u, v))
    assert pair_features(U.bfloat16(), V.bfloat16(), "sbert").dtype == torch.bfloat16
    same = made(3, 4, key=1).requires_grad_()
    (gradient,) = torch.autograd.grad(pair_features(same, same, ["|u-v|"]).sum(), same)
    assert (gradient == 0).all()


A, B = made(16, 6, key=1), made(16, 6, key=2)
LABELS = torch.tensor([1.0] + [0.0] * 7 + [1.0] + [0.0] * 7)
"""The authors' batch: twice one sentence with itself and seven pairs of others."""


def tension(a: torch.Tensor, b: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return library_loss(ContrastiveTensionLoss(GivenEmbeddings()), a, b, labels=labels)


def ranking(*columns: torch.Tensor) -> torch.Tensor:
    return library_loss(MultipleNegativesRankingLoss(GivenEmbeddings(), scale=10.0), *columns)


def literal(a: torch.Tensor, b: torch.Tensor, labels: torch.Tensor) -> float:
    """The binary cross-entropy, pair by pair."""
    losses = []
    for x, y, label in zip(a.tolist(), b.tolist(), labels.tolist(), strict=True):
        same = 1 / (1 + math.exp(-math.fsum(i * j for i, j in zip(x, y, strict=True))))
        losses.append(-math.log(same if label else 1 - same))
    return math.fsum(losses)


def test_tension_agrees_with_the_definition_and_the_released_code():
    found = tension(A, B, LABELS).item()
    assert found == pytest.approx(literal(A, B, LABELS), rel=1e-13)
    # compareSents and the loss of FreddeFrallan/Contrastive-Tension@75293a8, run in TensorFlow 2.21: the mean.
    assert found / 16 == pytest.approx(1.8274503143732737, rel=1e-13)
    # As sentence-transformers 6.2.0 gave it.
    assert found == pytest.approx(29.239205029972375, rel=1e-13)
    assert tension(A[:1], B[:1], LABELS[:1]).item() == pytest.approx(
        literal(A[:1], B[:1], LABELS[:1]), rel=1e-13
    )


def test_the_second_case_is_not_the_one_the_paper_prints():
    a, b = torch.tensor([[2.0]]), torch.tensor([[1.0]])
    loss = tension(a, b, torch.tensor([0])).item()
    assert loss == pytest.approx(math.log1p(math.exp(2)), rel=1e-6)  # -log (1 - sigmoid(2))
    assert abs(loss - math.log1p(math.exp(2 - 1))) > 0.5  # -log sigmoid(1 - 2)


def literal_in_batch(a: torch.Tensor, b: torch.Tensor, scale: float) -> float:
    losses = []
    for one, other in ((a, b), (b, a)):
        for i in range(len(a)):
            scores = [scale * cosine(one[i], other[j]) for j in range(len(a))]
            losses.append(math.log(math.fsum(map(math.exp, scores))) - scores[i])
    return math.fsum(losses) / len(losses)


@pytest.mark.parametrize("scale", [2.0, 20.0])
def test_in_batch_tension_is_info_nce_both_ways(scale):
    a, b = made(5, 7, key=1), made(5, 7, key=2)
    found = in_batch_tension(a, b, scale).item()
    assert found == pytest.approx(literal_in_batch(a, b, scale), rel=1e-12)
    # As sentence-transformers 6.2.0 gave it, with two fixed encoders.
    assert found == pytest.approx(
        {20.0: 0.3840544827142392, 2.0: 0.8906215220954081}[scale], rel=1e-12
    )
    both = info_nce(a, b, temperature=1 / scale) + info_nce(b, a, temperature=1 / scale)
    assert found == pytest.approx(both.item() / 2, rel=1e-12)


def test_ranking_is_info_nce_with_and_without_negatives():
    a, b, c = made(5, 7, key=1), made(5, 7, key=2), made(5, 7, key=3)
    assert ranking(a, b).item() == pytest.approx(info_nce(a, b, temperature=0.1).item(), rel=1e-12)
    assert ranking(a, b, c).item() == pytest.approx(
        info_nce(a, b, c, temperature=0.1).item(), rel=1e-12
    )


def test_the_scale_is_learned():
    scale = torch.tensor(20.0, dtype=torch.float64, requires_grad=True)
    a, b = made(4, 3, key=1).requires_grad_(), made(4, 3, key=2).requires_grad_()
    assert torch.autograd.gradcheck(in_batch_tension, (a, b, scale))
    ((name, parameter),) = ContrastiveTensionLossInBatchNegatives(
        GivenEmbeddings("2")
    ).named_parameters()
    assert (
        name == "logit_scale"
        and parameter.requires_grad
        and parameter.exp().item() == pytest.approx(20)
    )
