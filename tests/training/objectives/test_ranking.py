"""RankCSE's objectives: scalar loops, the released code's values and quirks, exact gradients."""

import math

import pytest
import torch

from stsbench.training.objectives import list_mle, list_net, ranking_consistency
from tests.training.tensors import cosine, made

U, V, Z = made(6, 8, key=1), made(6, 8, key=2), made(6, 8, key=3)


def similarities(a: torch.Tensor, b: torch.Tensor, temperature: float) -> torch.Tensor:
    return torch.tensor([[cosine(x, y) / temperature for y in b] for x in a], dtype=torch.float64)


STUDENT, TEACHER = similarities(U, V, 0.05), similarities(Z, Z, 0.05)


def softmax(row: list[float]) -> list[float]:
    shares = [math.exp(value) for value in row]
    return [share / math.fsum(shares) for share in shares]


@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_consistency_is_the_divergence_of_both_rankings(temperature):
    there, back = similarities(U, V, temperature).tolist(), similarities(V, U, temperature).tolist()
    total = 0.0
    for first, second in zip(map(softmax, there), map(softmax, back), strict=True):
        for p, q in zip(first, second, strict=True):
            total += p * math.log(2 * p / (p + q)) / 2 + q * math.log(2 * q / (p + q)) / 2
    found = ranking_consistency(U, V, temperature=temperature).item()
    assert found == pytest.approx(total / 6, rel=1e-10) and found > 0.001


def test_as_released_consistency_is_minus_the_entropy():
    found = ranking_consistency(U, V, temperature=0.05, formulas="released").item()
    # Divergence of perceptiveshawty/RankCSE@17c5226, run in torch 2.13.
    assert found == pytest.approx(-0.1693880524288629, rel=1e-12)
    # Views that rank alike are not at its least; what ranks nothing is.
    assert ranking_consistency(U, U, temperature=0.05, formulas="released").item() > -math.log(6)
    ones = torch.ones(6, 8, dtype=torch.float64)
    assert ranking_consistency(
        ones, ones, temperature=0.05, formulas="released"
    ).item() == pytest.approx(-math.log(6), rel=1e-6)


def test_list_net_is_the_cross_entropy_over_the_others():
    total = 0.0
    for i in range(6):
        own, theirs = (
            [row[j] for j in range(6) if j != i]
            for row in (STUDENT[i].tolist(), TEACHER[i].tolist())
        )
        total -= sum(q * math.log(p) for p, q in zip(softmax(own), softmax(theirs), strict=True))
    found = list_net(STUDENT, TEACHER).item()
    assert found == pytest.approx(total / 6, rel=1e-10)
    # ListNet of perceptiveshawty/RankCSE@17c5226, both temperatures 0.05, run in torch 2.13.
    assert found == pytest.approx(8.147701138995876, rel=1e-12)


def test_list_mle_is_the_likelihood_of_the_teacher_s_order():
    total = 0.0
    for own, theirs in zip(STUDENT.tolist(), TEACHER.tolist(), strict=True):
        order = sorted(range(6), key=lambda j: -theirs[j])
        for k, j in enumerate(order):
            total -= own[j] - math.log(math.fsum(math.exp(own[other]) for other in order[k:]))
    assert list_mle(STUDENT, TEACHER).item() == pytest.approx(total / 6, rel=1e-10)
    assert list_mle(STUDENT, TEACHER**3).item() == list_mle(STUDENT, TEACHER).item()


def test_as_released_list_mle_has_no_order_far_below():
    # ListMLE of perceptiveshawty/RankCSE@17c5226, run in torch 2.13.
    found = list_mle(STUDENT, TEACHER, formulas="released").item()
    assert found == pytest.approx(24.249823786580166, rel=1e-12)
    assert list_mle(STUDENT, TEACHER).item() != pytest.approx(found, rel=1e-3)


def test_large_similarities_do_not_overflow():
    student = (2000 * STUDENT).requires_grad_()
    for loss in (list_net(student, TEACHER), list_mle(student, TEACHER)):
        (gradient,) = torch.autograd.grad(loss, student)
        assert loss.isfinite() and gradient.isfinite().all()
