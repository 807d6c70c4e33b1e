"""The two in-batch contrastive losses: one direction (SimCSE), and all views against all (SimCLR)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F

from stsbench.errors import StsbenchError, choose
from stsbench.training.objectives.arithmetic import check_rows, check_temperature, cosines, dots, in_float32


@in_float32
def info_nce(
    anchor: torch.Tensor,
    positive: torch.Tensor,
    hard_negative: torch.Tensor | None = None,
    *,
    temperature: float,
    hard_negative_weight: float = 0.0,
    similarity: Literal["cosine", "dot"] = "cosine",
) -> torch.Tensor:
    """Return SimCSE's loss: each anchor finds its positive among all positives and hard negatives.

    ``-log e(i, i+) / (sum_j e(i, j+) + sum_j e(i, j-) * w_ij)``, mean over the anchors, with
    e = exp(cosine / temperature) and w_ij = exp(hard_negative_weight) for i = j, else 1. One
    direction only: a positive is no anchor, and other anchors are no negatives.

    Gao et al., 2021, https://arxiv.org/abs/2104.08821, equations 1, 5 and 8; its weight alpha is
    exp(hard_negative_weight).

    Args:
        anchor: (b, d).
        positive: (b, d), row for row the positives of the anchors.
        hard_negative: (b, d), row for row; of several an anchor (k * b, d), the second of all below the first; or None.
        temperature: divides the cosines; 0.05 in the paper.
        hard_negative_weight: added to the logit of each of an anchor's own hard negatives.
        similarity: ``dot`` leaves the lengths in (the paper's table D.1).

    Raises:
        ValueError: shapes that do not fit.
        StsbenchError: a temperature that is not positive; a weight without hard negatives.
    """
    check_temperature(temperature)
    check_rows(anchor=anchor, positive=positive)
    targets = torch.arange(len(anchor), device=anchor.device)
    similarities = choose("similarity", similarity, {"cosine": cosines, "dot": dots})
    logits = similarities(anchor, positive) / temperature  # (b, b)
    if hard_negative is None:
        if hard_negative_weight != 0:
            raise StsbenchError(f"hard_negative_weight {hard_negative_weight} without hard negatives: leave it out")
        return F.cross_entropy(logits, targets)
    several = torch.split(hard_negative, len(anchor))
    for one in several:
        check_rows(anchor=anchor, hard_negative=one)
    hard = similarities(anchor, hard_negative) / temperature
    own = hard_negative_weight * torch.eye(len(anchor), dtype=hard.dtype, device=hard.device)
    return F.cross_entropy(torch.cat([logits, hard + own.repeat(1, len(several))], dim=1), targets)  # (b, (1 + k) b)


@in_float32
def nt_xent(view_a: torch.Tensor, view_b: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """Return SimCLR's loss: each of the 2n views finds its twin among all the others.

    ``-log e(i, i') / sum_{j != i} e(i, j)``, mean over the 2n anchors, with e = exp(cosine /
    temperature). 2n - 2 negatives an anchor.

    Chen et al., 2020, https://arxiv.org/abs/2002.05709. ConSERT's code sums the means of the two
    sides: its value is 2 times this one. DeCLUTR's, over anchors and mean positives, and the
    symmetric loss of the SimCSE tutorials are this one.

    Args:
        view_a: (n, d).
        view_b: (n, d), row for row the other views of the same n.
        temperature: divides the cosines.

    Raises:
        ValueError: shapes that do not fit.
        StsbenchError: a temperature that is not positive.
    """
    check_temperature(temperature)
    check_rows(view_a=view_a, view_b=view_b)
    views = torch.cat([view_a, view_b])
    logits = cosines(views, views) / temperature  # (2n, 2n)
    logits = logits.masked_fill(torch.eye(len(views), dtype=torch.bool, device=logits.device), -torch.inf)
    twins = torch.arange(len(views), device=logits.device).roll(len(view_a))
    return F.cross_entropy(logits, twins)


@in_float32
def pairs_in_batch(u: torch.Tensor, v: torch.Tensor, targets: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """Return AnglE's in-batch loss: each sentence finds its positives among all other sentences of all pairs.

    ``-sum_j t_ij log e(i, j) / sum_{k != i} e(i, k)``, mean over the 2b sentences, with e = exp(cosine /
    temperature); a sentence without positives adds 0. Where each has its own partner alone, this is NT-Xent.

    Li and Li, 2024, https://arxiv.org/abs/2309.12871, the official code's ``in_batch_negative_loss``.

    Args:
        u: (b, d), the first sentences.
        v: (b, d), the second ones, row for row.
        targets: t, bool (2b, 2b), rows and columns first sentences and then second ones.
        temperature: divides the cosines.

    Raises:
        ValueError: shapes that do not fit.
        StsbenchError: a temperature that is not positive.
    """
    check_temperature(temperature)
    check_rows(u=u, v=v)
    sentences = torch.cat([u, v])
    logits = cosines(sentences, sentences) / temperature  # (2b, 2b)
    logits = logits.masked_fill(torch.eye(len(sentences), dtype=torch.bool, device=logits.device), -torch.inf)
    return -logits.log_softmax(dim=1).masked_fill(~targets, 0).sum() / len(sentences)
