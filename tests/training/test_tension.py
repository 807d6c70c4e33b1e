"""Contrastive tension against scalar loops, the authors' loss and sentence-transformers'."""

import math

import pytest
import torch

from stsbench.training.objectives import contrastive_tension, contrastive_tension_in_batch, info_nce
from tests.training.tensors import cosine, made

A, B = made(16, 6, key=1), made(16, 6, key=2)
LABELS = torch.tensor([1.0] + [0.0] * 7 + [1.0] + [0.0] * 7)
"""The authors' batch: twice one sentence with itself and seven pairs of others."""


def literal(a: torch.Tensor, b: torch.Tensor, labels: torch.Tensor) -> float:
    """The binary cross-entropy, pair by pair."""
    losses = []
    for x, y, label in zip(a.tolist(), b.tolist(), labels.tolist(), strict=True):
        same = 1 / (1 + math.exp(-math.fsum(i * j for i, j in zip(x, y, strict=True))))
        losses.append(-math.log(same if label else 1 - same))
    return math.fsum(losses) / len(losses)


def test_agrees_with_the_definition_and_the_released_code():
    found = contrastive_tension(A, B, LABELS).item()
    assert found == pytest.approx(literal(A, B, LABELS), rel=1e-13)
    # compareSents and the loss of FreddeFrallan/Contrastive-Tension@75293a8, run in TensorFlow 2.21.
    assert found == pytest.approx(1.8274503143732737, rel=1e-13)
    # sentence-transformers 6.2.0, ContrastiveTensionLoss: the sum.
    assert 16 * found == pytest.approx(29.239205029972375, rel=1e-13)
    assert contrastive_tension(A[:1], B[:1], LABELS[:1]).item() == pytest.approx(
        literal(A[:1], B[:1], LABELS[:1]), rel=1e-13
    )


def test_the_second_case_is_not_the_one_the_paper_prints():
    a, b = torch.tensor([[2.0]]), torch.tensor([[1.0]])
    loss = contrastive_tension(a, b, torch.tensor([0])).item()
    assert loss == pytest.approx(math.log1p(math.exp(2)), rel=1e-6)  # -log (1 - sigmoid(2))
    assert abs(loss - math.log1p(math.exp(2 - 1))) > 0.5  # -log sigmoid(1 - 2)


def test_labels_of_any_type():
    expected = contrastive_tension(A, B, LABELS).item()
    assert contrastive_tension(A, B, LABELS.bool()).item() == expected
    assert contrastive_tension(A, B, LABELS.long()).item() == expected


def test_dot_products_are_raw():
    assert contrastive_tension(3 * A, B, LABELS).item() == pytest.approx(literal(3 * A, B, LABELS), rel=1e-13)
    assert abs(contrastive_tension(3 * A, B, LABELS) - contrastive_tension(A, B, LABELS)) > 0.1


def test_large_dot_products_do_not_overflow():
    a = torch.full((2, 4), 100.0).requires_grad_()
    b = torch.tensor([[-100.0] * 4, [100.0] * 4])
    loss = contrastive_tension(a, b, torch.tensor([1, 0]))
    (gradient,) = torch.autograd.grad(loss, a)
    assert loss.item() == pytest.approx(40_000) and gradient.isfinite().all()


def literal_in_batch(a: torch.Tensor, b: torch.Tensor, scale: float) -> float:
    losses = []
    for one, other in ((a, b), (b, a)):
        for i in range(len(a)):
            scores = [scale * cosine(one[i], other[j]) for j in range(len(a))]
            losses.append(math.log(math.fsum(map(math.exp, scores))) - scores[i])
    return math.fsum(losses) / len(losses)


@pytest.mark.parametrize("scale", [2.0, 20.0])
def test_in_batch_agrees_with_the_definition_and_sentence_transformers(scale):
    a, b = made(5, 7, key=1), made(5, 7, key=2)
    found = contrastive_tension_in_batch(a, b, scale).item()
    assert found == pytest.approx(literal_in_batch(a, b, scale), rel=1e-12)
    # ContrastiveTensionLossInBatchNegatives of sentence-transformers 6.2.0 with two fixed encoders.
    assert found == pytest.approx({20.0: 0.3840544827142392, 2.0: 0.8906215220954081}[scale], rel=1e-12)
    both = info_nce(a, b, temperature=1 / scale) + info_nce(b, a, temperature=1 / scale)
    assert found == pytest.approx(both.item() / 2, rel=1e-12)


def test_the_scale_can_be_learned():
    scale = torch.tensor(20.0, dtype=torch.float64, requires_grad=True)
    a, b = made(4, 3, key=1).requires_grad_(), made(4, 3, key=2).requires_grad_()
    assert torch.autograd.gradcheck(contrastive_tension_in_batch, (a, b, scale))
    assert contrastive_tension_in_batch(a, b, scale).item() == contrastive_tension_in_batch(a, b, 20.0).item()


def test_gradients_are_exact():
    a, b = made(4, 3, key=1).requires_grad_(), made(4, 3, key=2).requires_grad_()
    labels = torch.tensor([1, 0, 0, 1])
    assert torch.autograd.gradcheck(lambda x, y: contrastive_tension(x, y, labels), (a, b))


def test_precision():
    single = A.float(), B.float()
    exact = contrastive_tension(A, B, LABELS).item(), contrastive_tension_in_batch(A, B, 20.0).item()
    found = contrastive_tension(*single, LABELS), contrastive_tension_in_batch(*single, 20.0)
    assert [f.dtype for f in found] == [torch.float32] * 2
    assert [f.item() for f in found] == pytest.approx(exact, rel=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        inside = contrastive_tension(*single, LABELS), contrastive_tension_in_batch(*single, 20.0)
    assert [f.item() for f in inside] == [f.item() for f in found]
    half = A.bfloat16(), B.bfloat16()
    wide = half[0].float(), half[1].float()
    assert contrastive_tension(*half, LABELS).item() == contrastive_tension(*wide, LABELS).item()
    assert contrastive_tension_in_batch(*half, 20.0).item() == contrastive_tension_in_batch(*wide, 20.0).item()


def test_what_does_not_fit_is_told():
    with pytest.raises(ValueError, match=r"b is \(15, 6\), but a is \(16, 6\)"):
        contrastive_tension(A, B[1:], LABELS)
    with pytest.raises(ValueError, match=r"labels is \(16, 1\), but a is \(16, 6\)"):
        contrastive_tension(A, B, LABELS[:, None])
    with pytest.raises(ValueError, match=r"b is \(15, 6\), but a is \(16, 6\)"):
        contrastive_tension_in_batch(A, B[1:], 20.0)
