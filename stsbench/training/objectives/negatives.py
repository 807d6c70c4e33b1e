"""SimCSE's loss with other negatives: of a queue, mixed, or without dropout; and the contrast of dimensions."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from stsbench.errors import StsbenchError, choose
from stsbench.training.objectives.arithmetic import check_rows, check_temperature, cosines, in_float32, unit


@in_float32
def queued_info_nce(
    anchor: torch.Tensor, positive: torch.Tensor, queue: torch.Tensor, filled: torch.Tensor, *, temperature: float
) -> torch.Tensor:
    """Return ESimCSE's loss: SimCSE's, with a queue of embeddings that are negatives of every anchor.

    ``-log e(i, i+) / (sum_j e(i, j+) + sum_m e(i, m))``, mean over the anchors, with e = exp(cosine / temperature) and m over
    the filled places of the queue. Wu et al., 2022, https://arxiv.org/abs/2109.04380, section 3.2.

    Args:
        anchor: (b, d).
        positive: (b, d), row for row.
        queue: (m, d).
        filled: bool (m,), the places of the queue that count.
        temperature: divides the cosines.

    Raises:
        ValueError: shapes that do not fit.
        StsbenchError: a temperature that is not positive.
    """
    check_temperature(temperature)
    check_rows(anchor=anchor, positive=positive)
    if queue.ndim != 2 or queue.shape[1] != anchor.shape[1] or filled.shape != queue.shape[:1]:
        shapes = f"queue is {tuple(queue.shape)} and filled {tuple(filled.shape)}"
        raise ValueError(f"{shapes}; they must be (m, {anchor.shape[1]}) and (m,)")
    queued = cosines(anchor, queue).masked_fill(~filled, -torch.inf)
    logits = torch.cat([cosines(anchor, positive), queued], dim=1) / temperature
    return F.cross_entropy(logits, torch.arange(len(anchor), device=anchor.device))


@in_float32
def mixed_info_nce(
    anchor: torch.Tensor, positive: torch.Tensor, *, temperature: float, mixing: float, variant: str = "paper"
) -> torch.Tensor:
    """Return MixCSE's loss: SimCSE's, with hard negatives mixed of a positive and another sentence's.

    The other sentence is the next of the batch, of the last the first. With mix(x, y) = mixing * x + (1 - mixing) * y,
    without gradient, an anchor's further negative in ``paper`` is the mix of its own positive and the other's, both of
    length 1. In ``released`` the mixes have the lengths that the model gives; those of all sentences are negatives
    of each anchor, and so are the cosines of all mixed anchors with all positives; where a mix holds most of the
    very sentence that it is compared with, the cosine is set to 0, which leaves its 1 in the denominator.

    Zhang et al., 2022, https://doi.org/10.1609/aaai.v36i10.21428.

    Args:
        anchor: (b, d), b at least 2.
        positive: (b, d), row for row.
        temperature: divides the cosines.
        mixing: lambda, the share of the positive; 0.2 in the released script.
        variant: ``paper`` or ``released``.

    Raises:
        ValueError: shapes that do not fit, or a single sentence.
        StsbenchError: a temperature that is not positive, a share outside [0, 1], or another variant.
    """
    check_temperature(temperature)
    check_rows(anchor=anchor, positive=positive)
    b = len(anchor)
    if b == 1:
        raise ValueError("a batch of one sentence has no other to be mixed with; give two at least")
    if not 0 <= mixing <= 1:
        raise StsbenchError(f"mixing {mixing}: it is a share, from 0 to 1; MixCSE's is 0.2")
    similarities = [cosines(anchor, positive)]
    if choose("variant", variant, {"paper": True, "released": False}):
        mixed = _mixed(unit(positive), mixing)
        similarities.append((unit(anchor) * unit(mixed)).sum(dim=1, keepdim=True))
    else:
        eye = torch.eye(b, dtype=torch.bool, device=anchor.device)
        similarities.append(cosines(anchor, _mixed(positive, mixing)).masked_fill(eye.roll(1, 0), 0))
        similarities.append(cosines(_mixed(anchor, mixing), positive).masked_fill(eye.roll(1, 1), 0))
    logits = torch.cat(similarities, dim=1) / temperature
    return F.cross_entropy(logits, torch.arange(b, device=anchor.device))


def _mixed(rows: torch.Tensor, share: float) -> torch.Tensor:
    """Each row with the next one, without gradient."""
    return (share * rows + (1 - share) * rows.roll(-1, 0)).detach()


@in_float32
def off_dropout_info_nce(
    anchor: torch.Tensor,
    positive: torch.Tensor,
    still: torch.Tensor,
    *,
    temperature: float,
    positive_share: float = 1.0,
) -> torch.Tensor:
    """Return SimCSE++'s loss: positives with dropout, negatives without.

    ``-log p(i) / (p(i) + sum_{j != i} exp(cosine(still i, still j) / temperature))``, mean over the sentences, with p(i) =
    exp(positive_share * cosine(i, i+) / temperature). Xu et al., 2023, https://arxiv.org/abs/2305.13192.

    Args:
        anchor: (b, d).
        positive: (b, d), row for row: the same sentences under another dropout mask.
        still: (b, d), row for row: the same sentences without dropout.
        temperature: divides the cosines.
        positive_share: multiplies the positive's cosine.

    Raises:
        ValueError: shapes that do not fit.
        StsbenchError: a temperature or a share that is not positive.
    """
    check_temperature(temperature)
    check_rows(anchor=anchor, positive=positive, still=still)
    if not 0 < positive_share < float("inf"):
        raise StsbenchError(f"positive_share {positive_share}: it must be a positive number; SimCSE++'s are 1 and 0.9")
    own = positive_share * (unit(anchor) * unit(positive)).sum(dim=1)
    eye = torch.eye(len(anchor), dtype=torch.bool, device=anchor.device)
    logits = torch.where(eye, own[:, None], cosines(still, still)) / temperature
    return F.cross_entropy(logits, torch.arange(len(anchor), device=anchor.device))


@in_float32
def dimension_contrast(view_a: torch.Tensor, view_b: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """Return SimCSE++'s dimension-wise loss: each dimension of one view finds itself among those of the other.

    ``-log e(c, c) / sum_d e(c, d)``, mean over the dimensions, with e(c, d) = exp(the mean over sentences of z_c * z'_d /
    temperature); z and z' are the views with every dimension brought to mean 0 and variance 1 over the batch.
    Xu et al., 2023, https://arxiv.org/abs/2305.13192; in its code a batch norm without weights.

    Args:
        view_a: (b, d), b at least 2.
        view_b: (b, d), row for row.
        temperature: divides the correlations.

    Raises:
        ValueError: shapes that do not fit, or a single sentence: it has no variance.
        StsbenchError: a temperature that is not positive.
    """
    check_temperature(temperature)
    check_rows(view_a=view_a, view_b=view_b)
    if len(view_a) == 1:
        raise ValueError("a batch of one sentence has no variance; give two at least")
    first, second = (F.batch_norm(view, None, None, training=True) for view in (view_a, view_b))
    logits = first.T @ second / (len(first) * temperature)  # (d, d)
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))
