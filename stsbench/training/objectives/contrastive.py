"""Contrastive losses over a batch, and what all objectives share: float32, checked shapes and temperatures, cosines.

In the formulas e(x, y) = exp(cosine(x, y) / temperature). Every loss is a mean and a scalar.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, ParamSpec

import torch
import torch.nn.functional as F

from stsbench.core.errors import StsbenchError, choose

P = ParamSpec("P")


def in_float32(objective: Callable[P, torch.Tensor]) -> Callable[P, torch.Tensor]:
    """Widen bfloat16 and float16 tensors to float32, keep autocast out, and check ``temperature`` where there is one.

    A cosine near 1 is 0.004 from the next in bfloat16: 0.08 in a logit at temperature 0.05.

    Raises:
        StsbenchError: when called with a temperature that is no positive finite number.
    """

    @functools.wraps(objective)
    def widened(*args: P.args, **kwargs: P.kwargs) -> torch.Tensor:
        temperature: Any = kwargs.get("temperature", 1.0)
        if not 0 < temperature < math.inf:
            raise StsbenchError(f"temperature {temperature}: it must be a positive number; the papers use 0.01 to 0.1")
        devices = {a.device.type for a in [*args, *kwargs.values()] if isinstance(a, torch.Tensor)}
        with torch.autocast(next(iter(devices), "cpu"), enabled=False):
            return objective(*map(_widen, args), **{name: _widen(value) for name, value in kwargs.items()})

    return widened


def _widen(value: Any) -> Any:  # noqa: ANN401 - whatever an objective takes
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(torch.promote_types(value.dtype, torch.float32))
    return value


def check_rows(**tensors: torch.Tensor) -> None:
    """Check that the tensors are (b, d), all of one shape, with a row at least.

    Raises:
        ValueError: they are not; names the tensors and their shapes.
    """
    first, *others = tensors.items()
    if first[1].ndim != 2 or first[1].shape[0] == 0:
        raise ValueError(f"{first[0]} is {tuple(first[1].shape)}; it must be (b, d) with b at least 1")
    for name, tensor in others:
        if tensor.shape != first[1].shape:
            raise ValueError(f"{name} is {tuple(tensor.shape)}, but {first[0]} is {tuple(first[1].shape)}")


def unit(x: torch.Tensor) -> torch.Tensor:
    """Return each vector along the last dimension with length 1; a zero vector stays zero, its gradient finite."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.where(length == 0, 1.0, length)


def cosines(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the cosine of every row of ``a`` (n, d) with every row of ``b`` (m, d), as (n, m)."""
    return unit(a) @ unit(b).T


SIMILARITIES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cosine": cosines,
    "dot": lambda a, b: a @ b.T,
}


def first_wins(logits: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of logits (n, m), m >= n, whose right answer in row i is column i."""
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def _diagonal(x: torch.Tensor) -> torch.Tensor:
    return torch.eye(len(x), dtype=torch.bool, device=x.device)


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

    ``-log e(i, i+) / (sum_j e(i, j+) + sum_j e(i, j-) * w_ij)``, mean over the anchors, with w_ij =
    exp(hard_negative_weight) for i = j, else 1. One direction only: a positive is no anchor, and other anchors
    are no negatives. Gao et al., 2021, https://arxiv.org/abs/2104.08821, equations 1, 5 and 8; its weight alpha is
    exp(hard_negative_weight).

    Args:
        anchor: (b, d).
        positive: (b, d), row for row the positives of the anchors.
        hard_negative: (b, d), row for row; of several an anchor (k * b, d), the second of all below the first; or None.
        temperature: divides the cosines; 0.05 in the paper.
        hard_negative_weight: added to the logit of each of an anchor's own hard negatives.
        similarity: ``dot`` leaves the lengths in (the paper's table D.1).

    Raises:
        StsbenchError: a weight without hard negatives.
    """
    check_rows(anchor=anchor, positive=positive)
    similarities = choose("similarity", similarity, SIMILARITIES)
    logits = similarities(anchor, positive) / temperature  # (b, b)
    if hard_negative is None:
        if hard_negative_weight != 0:
            raise StsbenchError(f"hard_negative_weight {hard_negative_weight} without hard negatives: leave it out")
        return first_wins(logits)
    several = torch.split(hard_negative, len(anchor))
    for one in several:
        check_rows(anchor=anchor, hard_negative=one)
    own = hard_negative_weight * _diagonal(anchor).to(logits.dtype).repeat(1, len(several))
    return first_wins(torch.cat([logits, similarities(anchor, hard_negative) / temperature + own], dim=1))


@in_float32
def nt_xent(view_a: torch.Tensor, view_b: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """Return SimCLR's loss: each of the 2n views (n, d) finds its twin, row for row, among all the others.

    ``-log e(i, i') / sum_{j != i} e(i, j)``, mean over the 2n anchors; 2n - 2 negatives an anchor.
    Chen et al., 2020, https://arxiv.org/abs/2002.05709. ConSERT's code sums the means of the two sides: its value
    is 2 times this one. DeCLUTR's, over anchors and mean positives, and the symmetric loss of the SimCSE tutorials
    are this one.
    """
    check_rows(view_a=view_a, view_b=view_b)
    twins = torch.arange(2 * len(view_a), device=view_a.device).roll(len(view_a))
    return F.cross_entropy(_among_others(view_a, view_b, temperature), twins)


def _among_others(a: torch.Tensor, b: torch.Tensor, temperature: float) -> torch.Tensor:
    """The logits (2n, 2n) of all rows of both (n, d) with all but themselves."""
    rows = torch.cat([a, b])
    return (cosines(rows, rows) / temperature).masked_fill(_diagonal(rows), -torch.inf)


@in_float32
def pairs_in_batch(u: torch.Tensor, v: torch.Tensor, targets: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """Return AnglE's in-batch loss: each sentence finds its positives among all other sentences of all pairs.

    ``-sum_j t_ij log e(i, j) / sum_{k != i} e(i, k)``, mean over the 2b sentences; one without positives adds 0.
    Where each has its own partner alone, this is NT-Xent. ``u`` and ``v`` are the first and second sentences, (b, d);
    t, bool (2b, 2b), has first sentences and then second ones in rows and columns. Li and Li, 2024,
    https://arxiv.org/abs/2309.12871, the official code's ``in_batch_negative_loss``.
    """
    check_rows(u=u, v=v)
    logits = _among_others(u, v, temperature)
    return -logits.log_softmax(dim=1).masked_fill(~targets, 0).sum() / len(logits)


@in_float32
def queued_info_nce(
    anchor: torch.Tensor, positive: torch.Tensor, queue: torch.Tensor, filled: torch.Tensor, *, temperature: float
) -> torch.Tensor:
    """Return ESimCSE's loss: SimCSE's, with a queue of embeddings that are negatives of every anchor.

    ``-log e(i, i+) / (sum_j e(i, j+) + sum_m e(i, m))``, mean over the anchors (b, d), m over the ``filled`` places, bool
    (m,), of the queue (m, d). Wu et al., 2022, https://arxiv.org/abs/2109.04380, section 3.2.
    """
    check_rows(anchor=anchor, positive=positive)
    if queue.ndim != 2 or queue.shape[1] != anchor.shape[1] or filled.shape != queue.shape[:1]:
        shapes = f"queue is {tuple(queue.shape)} and filled {tuple(filled.shape)}"
        raise ValueError(f"{shapes}; they must be (m, {anchor.shape[1]}) and (m,)")
    queued = cosines(anchor, queue).masked_fill(~filled, -torch.inf)
    return first_wins(torch.cat([cosines(anchor, positive), queued], dim=1) / temperature)


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
        ValueError: a single sentence.
        StsbenchError: a share outside [0, 1], or another variant.
    """
    check_rows(anchor=anchor, positive=positive)
    if len(anchor) == 1:
        raise ValueError("a batch of one sentence has no other to be mixed with; give two at least")
    if not 0 <= mixing <= 1:
        raise StsbenchError(f"mixing {mixing}: it is a share, from 0 to 1; MixCSE's is 0.2")

    def mix(rows: torch.Tensor) -> torch.Tensor:
        return (mixing * rows + (1 - mixing) * rows.roll(-1, 0)).detach()

    similarities = [cosines(anchor, positive)]
    if choose("variant", variant, {"paper": True, "released": False}):
        similarities.append((unit(anchor) * unit(mix(unit(positive)))).sum(dim=1, keepdim=True))
    else:
        own = _diagonal(anchor)
        similarities.append(cosines(anchor, mix(positive)).masked_fill(own.roll(1, 0), 0))
        similarities.append(cosines(mix(anchor), positive).masked_fill(own.roll(1, 1), 0))
    return first_wins(torch.cat(similarities, dim=1) / temperature)


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

    ``-log p(i) / (p(i) + sum_{j != i} e(still i, still j))``, mean over the sentences, with p(i) =
    exp(positive_share * cosine(i, i+) / temperature). Xu et al., 2023, https://arxiv.org/abs/2305.13192.

    ``positive`` are the same sentences as ``anchor``, row for row, under another dropout mask, ``still`` those without
    dropout, (b, d) each. Raises StsbenchError for a share that is not positive.
    """
    check_rows(anchor=anchor, positive=positive, still=still)
    if not 0 < positive_share < math.inf:
        raise StsbenchError(f"positive_share {positive_share}: it must be a positive number; SimCSE++'s are 1 and 0.9")
    own = positive_share * (unit(anchor) * unit(positive)).sum(dim=1)
    return first_wins(torch.where(_diagonal(anchor), own[:, None], cosines(still, still)) / temperature)


@in_float32
def dimension_contrast(view_a: torch.Tensor, view_b: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """Return SimCSE++'s dimension-wise loss: each dimension of one view (b, d) finds itself among those of the other.

    ``-log e(c, c) / sum_d e(c, d)``, mean over the dimensions, with e(c, d) = exp(the mean over sentences of z_c * z'_d /
    temperature); z and z' are the views with every dimension brought to mean 0 and variance 1 over the batch.
    Xu et al., 2023, https://arxiv.org/abs/2305.13192; in its code a batch norm without weights.

    Raises:
        ValueError: a single sentence: it has no variance.
    """
    check_rows(view_a=view_a, view_b=view_b)
    if len(view_a) == 1:
        raise ValueError("a batch of one sentence has no variance; give two at least")
    first, second = (F.batch_norm(view, None, None, training=True) for view in (view_a, view_b))
    return first_wins(first.T @ second / (len(first) * temperature))  # (d, d)


@in_float32
def jsd_mutual_information(local: torch.Tensor, mask: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    """Return IS-BERT's loss: minus the Jensen-Shannon estimate of the mutual information of tokens and sentences.

    With s the dot product of a token's state and a sentence's embedding: the mean of ``softplus(s) -
    log 2`` over tokens with all other sentences, minus the mean of ``log 2 - softplus(-s)`` over
    tokens with their own. 0 where every s is 0, and downwards from there; -2 log 2 is the least.
    Zhang et al., 2020, https://arxiv.org/abs/2009.12061.

    ``local`` are the states of the tokens, (b, t, d), with a mask (b, t), 1 at tokens, [CLS] and [SEP] among them, and 0 at
    padding; ``pooled`` the embeddings of the sentences, (b, d). Raises ValueError for a single sentence: there is no other.
    """
    if local.ndim != 3 or mask.shape != local.shape[:2]:
        raise ValueError(
            f"local is {tuple(local.shape)} and mask {tuple(mask.shape)}; they must be (b, t, d) and (b, t)"
        )
    check_rows(pooled=pooled, **{"local without its tokens": local[:, 0]})
    b = len(pooled)
    if b == 1:
        raise ValueError("a batch of one sentence has no negatives; give two at least")
    scores = local @ pooled.T  # (b, t, b)
    tokens, own = (mask != 0)[:, :, None], _diagonal(pooled)[:, None, :]
    # -logsigmoid(-s) is softplus(s), without the threshold at 20 beyond which torch's is rounded.
    positive = (math.log(2) + F.logsigmoid(scores)).masked_fill(~(tokens & own), 0)
    negative = (-F.logsigmoid(-scores) - math.log(2)).masked_fill(~(tokens & ~own), 0)
    n = tokens.sum()
    return negative.sum() / (n * (b - 1)) - positive.sum() / n


@in_float32
def quick_thoughts(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of dot products against the neighbours, mean over the sentences of a passage.

    The targets of a sentence are the ones before and after it, a half each; 1 at both ends. As in the authors' code
    the sentence itself has logit 0, so it stays in the softmax as a negative with weight 1; it is not left out.
    Logeswaran and Lee, 2018, https://arxiv.org/abs/1803.02893.

    ``first`` and ``second`` are consecutive sentences by the first and by the second encoder, (b, d).
    """
    check_rows(first=first, second=second)
    if len(first) == 1:
        raise ValueError("a passage of one sentence has no neighbours; give two at least")
    scores = (first @ second.T).masked_fill(_diagonal(first), 0)
    beside = torch.ones(len(first) - 1, dtype=scores.dtype, device=scores.device)
    targets = beside.diag(1) + beside.diag(-1)
    return F.cross_entropy(scores, targets / targets.sum(dim=1, keepdim=True))
