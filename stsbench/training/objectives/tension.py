"""Contrastive tension: two encoders that agree on the same sentence and differ on others.

Carlsson et al., 2021, https://openreview.net/forum?id=Ov_sMNau-PF.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from stsbench.training.objectives.arithmetic import check_rows, cosines, in_float32


@in_float32
def contrastive_tension(a: torch.Tensor, b: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the binary cross-entropy of raw dot products: 1 for a sentence with itself, 0 for two others.

    ``-log sigmoid(z)`` or ``-log (1 - sigmoid(z))`` with z = a . b, mean over the pairs. The paper
    prints ``-log sigmoid(1 - z)`` for the second; its code computes this. sentence-transformers'
    ContrastiveTensionLoss is the sum instead of the mean.

    Args:
        a: (n, d), by the first encoder.
        b: (n, d), by the second.
        labels: (n,), 1 or True where both encode the same sentence.

    Raises:
        ValueError: shapes that do not fit.
    """
    check_rows(a=a, b=b)
    if labels.shape != a.shape[:1]:
        raise ValueError(f"labels is {tuple(labels.shape)}, but a is {tuple(a.shape)}")
    dots = (a * b).sum(dim=1)
    return F.binary_cross_entropy_with_logits(dots, labels.to(dots.dtype))


@in_float32
def contrastive_tension_in_batch(a: torch.Tensor, b: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
    """Return the in-batch variant: each encoder finds the other's embedding of the same sentence, by cosine.

    Cross-entropy over rows and over columns of ``scale * cosine``, averaged: info_nce both ways.
    It is sentence-transformers' ContrastiveTensionLossInBatchNegatives, no part of the paper.

    Args:
        a: (b, d), by the first encoder.
        b: (b, d), by the second, of the same sentences.
        scale: the inverse of a temperature; learned there, from 20 on.

    Raises:
        ValueError: shapes that do not fit.
    """
    check_rows(a=a, b=b)
    scores = cosines(a, b) * scale
    targets = torch.arange(len(a), device=a.device)
    return (F.cross_entropy(scores, targets) + F.cross_entropy(scores.T, targets)) / 2
