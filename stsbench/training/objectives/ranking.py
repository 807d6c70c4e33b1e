"""RankCSE's objectives: two views that rank a batch alike, and a student that ranks it as its teachers do.

Liu et al. 2023, https://arxiv.org/abs/2305.16726. The authors' code is not public; ``released`` is that of a
reproduction, perceptiveshawty/RankCSE, with which the public checkpoints were trained.
"""

from __future__ import annotations

from typing import Literal

import torch

from stsbench.core.errors import choose
from stsbench.training.objectives.contrastive import check_rows, cosines, in_float32

LEAST = 1e-7
"""What the released code keeps probabilities, and sums of exponentials, above."""
FORMULAS = {"paper": False, "released": True}


@in_float32
def rankings(a: torch.Tensor, b: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """Return the cosines of all rows of ``a`` (b, d) with all of ``b`` (b, d), divided by a temperature: (b, b)."""
    check_rows(a=a, b=b)
    return cosines(a, b) / temperature


@in_float32
def ranking_consistency(
    view_a: torch.Tensor,
    view_b: torch.Tensor,
    *,
    temperature: float,
    formulas: Literal["paper", "released"] = "paper",
) -> torch.Tensor:
    """Return the Jensen-Shannon divergence of how each view of a sentence ranks the other views, mean over sentences.

    With P the softmax of the cosines of ``view_a[i]`` with all of ``view_b``, and Q that of ``view_b[i]`` with all of
    ``view_a``: half of KL(P, M) + KL(Q, M), M = (P + Q) / 2. As released the logarithm of M is clamped from below
    at 1e-7, so M is 1 everywhere: what is left is minus the mean entropy of P and Q, and no divergence.
    The views are (b, d), row for row of the same sentences.
    """
    similarities = rankings(view_a, view_b, temperature=temperature)
    logs = torch.stack([similarities.log_softmax(dim=1), similarities.T.log_softmax(dim=1)])  # (2, b, b)
    if choose("formulas", formulas, FORMULAS):
        logs = logs.exp().clamp(min=LEAST).log()
        middle = torch.full_like(logs[0], LEAST)
    else:
        middle = logs.logsumexp(dim=0) - torch.log(torch.tensor(2.0, dtype=logs.dtype))
    return (logs.exp() * (logs - middle)).sum() / (2 * len(view_a))


@in_float32
def list_net(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of a student's ranking against a teacher's, by which sentence comes first.

    ``-sum_j softmax(teacher)_ij log softmax(student)_ij``, j not i, mean over the sentences i. Both are similarities (b, b),
    each divided by a temperature of its own. Raises ValueError for a single sentence.
    """
    check_rows(student=student, teacher=teacher)
    b = len(student)
    if b < 2:
        raise ValueError("a batch of one sentence has no others to rank; give two at least")
    others = ~torch.eye(b, dtype=torch.bool, device=student.device)
    student, teacher = (one[others].view(b, b - 1) for one in (student, teacher))
    return -(teacher.softmax(dim=1) * student.log_softmax(dim=1)).sum() / len(student)


@in_float32
def list_mle(
    student: torch.Tensor, teacher: torch.Tensor, *, formulas: Literal["paper", "released"] = "paper"
) -> torch.Tensor:
    """Return minus the log likelihood of a teacher's ranking under a student's similarities, mean over sentences.

    ``-sum_k log exp(s_k) / sum_{l >= k} exp(s_l)``, s the similarities of a sentence in the teacher's falling order,
    itself among them. As released 1e-7 is added to each sum, of exponentials over the largest: what is far
    below it in the student's similarities has no order of its own. Both are similarities (b, b), the student's divided by
    a temperature; of the teacher's the order alone counts.
    """
    check_rows(student=student, teacher=teacher)
    ranked = student.gather(1, teacher.argsort(dim=1, descending=True, stable=True))
    if choose("formulas", formulas, FORMULAS):
        ranked = ranked - ranked.amax(dim=1, keepdim=True)
        below = (ranked.exp().flip(1).cumsum(dim=1) + LEAST).log().flip(1)
    else:
        below = ranked.flip(1).logcumsumexp(dim=1).flip(1)
    return (below - ranked).sum() / len(ranked)
