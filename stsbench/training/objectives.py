"""The losses of the training methods: pure functions of tensors, each the mean of its terms.

They do not depend on ranks: if several processes train, the caller gathers the rows first. They
compute in float32, or in float64 if their arguments are float64. All raise ValueError if shapes do
not fit, and StsbenchError if a temperature is not positive. Losses that torch has (cross-entropy,
squared error) are not here; losses of sentence-transformers are called by :func:`library_loss`. In
the formulas e(x, y) = exp(cosine(x, y) / temperature).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, ParamSpec

import torch
import torch.nn.functional as F
from torch import Tensor

from stsbench.core.errors import StsbenchError, UnknownName, look_up

P = ParamSpec("P")


def in_float32(objective: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Decorate a loss so that it computes in float32, and check its temperature.

    bfloat16 and float16 tensors are widened to float32, autocast is disabled, and ``temperature``,
    if any, must be positive. A cosine near 1 is 0.004 from the next number in bfloat16: 0.08 in a
    logit at temperature 0.05.
    """

    @functools.wraps(objective)
    def compute_widened(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        # Every loss takes its temperature by name.
        temperature: Any = kwargs.get("temperature", 1.0)
        if not 0 < temperature < math.inf:
            raise StsbenchError(
                f"temperature {temperature}: it must be a positive number; "
                "the papers use 0.01 to 0.1"
            )
        arguments = [*args, *kwargs.values()]
        devices = {value.device.type for value in arguments if isinstance(value, Tensor)}
        wide_kwargs = {name: _widen(value) for name, value in kwargs.items()}
        with torch.autocast(next(iter(devices), "cpu"), enabled=False):
            return objective(*map(_widen, args), **wide_kwargs)

    return compute_widened


def _widen(value: Any) -> Any:  # noqa: ANN401 - any argument of an objective
    """Return a tensor of 16-bit floats as float32; all else unchanged."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(torch.promote_types(value.dtype, torch.float32))
    return value


def check_rows(min_rows: int = 1, /, **tensors: Tensor) -> None:
    """Check that tensors are (b, d), all of one shape, with at least ``min_rows`` rows.

    The number has no keyword, because every keyword is the name of a tensor in a message.

    Raises:
        ValueError: One is not; the message names the tensor.
    """
    # The others are compared with the first.
    (name, first), *further_tensors = tensors.items()
    if first.ndim != 2 or len(first) < min_rows:
        raise ValueError(
            f"{name} is {tuple(first.shape)}; it must be (b, d) with b at least {min_rows}"
        )
    for further_name, tensor in further_tensors:
        if tensor.shape != first.shape:
            raise ValueError(
                f"{further_name} is {tuple(tensor.shape)}, but {name} is {tuple(first.shape)}"
            )


def unit(x: Tensor) -> Tensor:
    """Return each vector along the last dimension with length 1.

    A zero vector stays zero, and its gradient is finite.
    """
    lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    # A zero vector is divided by 1.
    return x / torch.where(lengths == 0, 1.0, lengths)


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Return the cosine of every row of ``a`` (n, d) with every row of ``b`` (m, d), as (n, m)."""
    return unit(a) @ unit(b).T


SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": cosines,
    "dot": lambda a, b: a @ b.T,
}


def diagonal_cross_entropy(logits: Tensor) -> Tensor:
    """Compute the cross-entropy of logits (n, m), m >= n, if column i is right in row i."""
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def _diagonal_mask(x: Tensor) -> Tensor:
    """Return True on the diagonal, bool (n, n), for a tensor of n rows."""
    return torch.eye(len(x), dtype=torch.bool, device=x.device)


@in_float32
def info_nce(
    anchor: Tensor,
    positive: Tensor,
    hard_negative: Tensor | None = None,
    *,
    temperature: float,
    hard_negative_weight: float = 0.0,
    similarity: Literal["cosine", "dot"] = "cosine",
) -> Tensor:
    """Compute SimCSE's loss: each anchor finds its positive among all positives and hard negatives.

    ``-log e(i, i+) / (sum_j e(i, j+) + sum_j e(i, j-) * w_ij)``, mean over the anchors, with w_ij =
    exp(hard_negative_weight) for i = j, else 1. One direction only: a positive is no anchor, and
    other anchors are no negatives. Gao et al., 2021, https://arxiv.org/abs/2104.08821, equations 1,
    5 and 8, whose alpha is w_ii.

    Args:
        anchor: The anchors (b, d).
        positive: The positive of each anchor (b, d).
        hard_negative: The hard negatives, (b, d), or (k * b, d) for k per anchor: the second of all
            anchors below the first. None if there are none.
        temperature: The divisor of the similarities.
        hard_negative_weight: A number added to the logit of each of an anchor's own hard negatives.
        similarity: ``cosine``, or ``dot``, which depends on the lengths too (table D.1).

    Raises:
        StsbenchError: There is a ``hard_negative_weight``, but no hard negatives.
    """
    check_rows(anchor=anchor, positive=positive)
    similarities = look_up("similarity", similarity, SIMILARITIES)
    logits = similarities(anchor, positive) / temperature  # (b, b)
    if hard_negative is None:
        if hard_negative_weight != 0:
            raise StsbenchError(
                f"hard_negative_weight {hard_negative_weight} without hard negatives: leave it out"
            )
        return diagonal_cross_entropy(logits)
    hard_negative_groups = torch.split(hard_negative, len(anchor))
    for group in hard_negative_groups:
        check_rows(anchor=anchor, hard_negative=group)
    is_own = _diagonal_mask(anchor).to(logits.dtype).repeat(1, len(hard_negative_groups))
    hard_logits = similarities(anchor, hard_negative) / temperature + hard_negative_weight * is_own
    return diagonal_cross_entropy(torch.cat([logits, hard_logits], dim=1))


@in_float32
def nt_xent(view_a: Tensor, view_b: Tensor, *, temperature: float) -> Tensor:
    """Compute SimCLR's loss: each of the 2n views finds its twin among all others.

    ``-log e(i, i') / sum_{j != i} e(i, j)``, mean over the 2n anchors, each with 2n - 2 negatives.
    Chen et al., 2020, https://arxiv.org/abs/2002.05709. ConSERT's code sums the means of the two
    sides: its value is 2 times this one. DeCLUTR's loss, over anchors and mean positives, and the
    symmetric loss of the SimCSE tutorials are this one.

    Args:
        view_a: The first view of n sentences, (n, d).
        view_b: Their second view, (n, d), row for row of the same sentences.
        temperature: The divisor of the cosines.
    """
    check_rows(view_a=view_a, view_b=view_b)
    # The twin of row i of all 2n is n rows further, around the end.
    twin_rows = torch.arange(2 * len(view_a), device=view_a.device).roll(len(view_a))
    return F.cross_entropy(_logits_without_self(view_a, view_b, temperature), twin_rows)


def _logits_without_self(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """Return the similarities (2n, 2n) of all rows with each other, over the temperature.

    The diagonal is -inf, so that no row is its own negative.

    Args:
        a: The first view of n sentences, (n, d): rows and columns 0 to n - 1.
        b: Their second view, (n, d): rows and columns n to 2n - 1.
        temperature: The divisor of the cosines.
    """
    rows = torch.cat([a, b])
    return (cosines(rows, rows) / temperature).masked_fill(_diagonal_mask(rows), -torch.inf)


@in_float32
def pairs_in_batch(u: Tensor, v: Tensor, is_positive: Tensor, *, temperature: float) -> Tensor:
    """Compute AnglE's in-batch loss: each sentence finds its positives among all other sentences.

    ``-sum_j t_ij log e(i, j) / sum_{k != i} e(i, k)``, mean over the 2b sentences; a sentence
    without positives adds 0. If its partner is the only positive of each, this is NT-Xent. Li and
    Li, 2024, https://arxiv.org/abs/2309.12871, the official code's ``in_batch_negative_loss``.

    Args:
        u: The first sentences (b, d).
        v: The second sentences (b, d).
        is_positive: t, bool (2b, 2b), with first sentences and then second ones in rows and
            columns.
        temperature: The divisor of the cosines.
    """
    check_rows(u=u, v=v)
    logits = _logits_without_self(u, v, temperature)
    return -logits.log_softmax(dim=1).masked_fill(~is_positive, 0).sum() / len(logits)


@in_float32
def queued_info_nce(
    anchor: Tensor, positive: Tensor, queue: Tensor, is_filled: Tensor, *, temperature: float
) -> Tensor:
    """Compute ESimCSE's loss: SimCSE's, with a queue of negatives of every anchor.

    ``-log e(i, i+) / (sum_j e(i, j+) + sum_m e(i, m))``, mean over the anchors. Wu et al., 2022,
    https://arxiv.org/abs/2109.04380, section 3.2.

    Args:
        anchor: The anchors (b, d).
        positive: The positive of each anchor (b, d).
        queue: The embeddings of earlier batches (m, d).
        is_filled: Whether an element of the queue holds an embedding yet, bool (m,).
        temperature: The divisor of the cosines.
    """
    check_rows(anchor=anchor, positive=positive)
    queue_cosines = cosines(anchor, queue).masked_fill(~is_filled, -torch.inf)
    return diagonal_cross_entropy(
        torch.cat([cosines(anchor, positive), queue_cosines], dim=1) / temperature
    )


@in_float32
def mixed_info_nce(
    anchor: Tensor, positive: Tensor, *, temperature: float, mixing: float, variant: str = "paper"
) -> Tensor:
    """Compute MixCSE's loss: SimCSE's, with negatives mixed from a positive and another sentence's.

    The other sentence is the next of the batch, for the last the first. With mix(x, y) = mixing * x
    + (1 - mixing) * y, without gradient, an anchor's further negative in ``paper`` is the mix of
    its own positive and the other's, both of length 1. In ``released`` the mixes have the lengths
    that the model gives. Those of all sentences are negatives of each anchor, and so are the
    cosines of all mixed anchors with all positives. If a mix consists mostly of the very sentence
    that it is compared with, the cosine is set to 0, which leaves its 1 in the denominator. Zhang
    et al., 2022, https://doi.org/10.1609/aaai.v36i10.21428.

    Args:
        anchor: The anchors (b, d).
        positive: The positive of each anchor (b, d).
        temperature: The divisor of the cosines.
        mixing: Lambda, the positive's share of a mix, released as 0.2.
        variant: ``paper`` or ``released``.
    """
    check_rows(2, anchor=anchor, positive=positive)

    def mix(rows: Tensor) -> Tensor:
        """Mix each row with the next one, the last with the first."""
        return (mixing * rows + (1 - mixing) * rows.roll(-1, 0)).detach()

    # The columns of the logits: first all positives, then the mixed negatives.
    similarities = [cosines(anchor, positive)]
    if look_up("variant", variant, IS_RELEASED):
        is_own = _diagonal_mask(anchor)
        # With a share below a half, mix i is mostly sentence i + 1: its cosine with that sentence
        # is the one that is set to 0.
        similarities.append(cosines(anchor, mix(positive)).masked_fill(is_own.roll(1, 0), 0))
        similarities.append(cosines(mix(anchor), positive).masked_fill(is_own.roll(1, 1), 0))
    else:
        # The cosine of each anchor with the mix of its own positive alone, (b, 1).
        mixed_positive = unit(mix(unit(positive)))
        similarities.append((unit(anchor) * mixed_positive).sum(dim=1, keepdim=True))
    return diagonal_cross_entropy(torch.cat(similarities, dim=1) / temperature)


@in_float32
def off_dropout_info_nce(
    anchor: Tensor,
    positive: Tensor,
    without_dropout: Tensor,
    *,
    temperature: float,
    positive_share: float = 1.0,
) -> Tensor:
    """Compute SimCSE++'s loss: positives with dropout, negatives without.

    ``-log p(i) / (p(i) + sum_{j != i} e(n_i, n_j))``, mean over the sentences, with p(i) =
    exp(positive_share * cosine(i, i+) / temperature), and n_i the sentence without dropout. Xu et
    al., 2023, https://arxiv.org/abs/2305.13192.

    Args:
        anchor: The sentences (b, d).
        positive: The same sentences under another dropout mask (b, d).
        without_dropout: The same sentences without dropout (b, d).
        temperature: The divisor of the cosines.
        positive_share: The factor of the positive's cosine.
    """
    check_rows(anchor=anchor, positive=positive, without_dropout=without_dropout)
    positive_cosines = positive_share * (unit(anchor) * unit(positive)).sum(dim=1)
    similarities = torch.where(
        _diagonal_mask(anchor),
        positive_cosines[:, None],
        cosines(without_dropout, without_dropout),
    )
    return diagonal_cross_entropy(similarities / temperature)


@in_float32
def dimension_contrast(view_a: Tensor, view_b: Tensor, *, temperature: float) -> Tensor:
    """Compute SimCSE++'s dimension-wise loss: each dimension finds itself in the other view.

    ``-log e(c, c) / sum_d e(c, d)``, mean over the dimensions, with e(c, d) = exp(the mean over
    sentences of z_c * z'_d / temperature). z and z' are the views with every dimension brought to
    mean 0 and variance 1 over the batch. Xu et al., 2023, https://arxiv.org/abs/2305.13192; in its
    code a batch norm without weights.

    Args:
        view_a: The first view of b sentences, (b, d).
        view_b: Their second view, (b, d), row for row of the same sentences.
        temperature: The divisor of the correlations.
    """
    check_rows(2, view_a=view_a, view_b=view_b)
    normalised_a, normalised_b = (
        F.batch_norm(view, None, None, training=True) for view in (view_a, view_b)
    )
    return diagonal_cross_entropy(
        normalised_a.T @ normalised_b / (len(normalised_a) * temperature)
    )  # (d, d)


@in_float32
def jsd_mutual_information(local: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
    """Compute IS-BERT's loss: minus the estimated mutual information of tokens and sentences.

    It is the Jensen-Shannon estimate. With s the dot product of a token's state and a sentence's
    embedding: the mean of ``softplus(s) - log 2`` over tokens with all other sentences, minus the
    mean of ``log 2 - softplus(-s)`` over tokens with their own. It is 0 if every s is 0, and falls
    from there to -2 log 2 at the least. Zhang et al., 2020, https://arxiv.org/abs/2009.12061.

    Args:
        local: The states of the tokens (b, t, d).
        mask: 1 at tokens, including [CLS] and [SEP], 0 at padding, (b, t).
        pooled: The embeddings of the sentences (b, d).
    """
    check_rows(2, pooled=pooled, **{"local without its tokens": local[:, 0]})
    b = len(pooled)
    scores = local @ pooled.T  # (b, t, b)
    is_token = (mask != 0)[:, :, None]
    is_own = _diagonal_mask(pooled)[:, None, :]
    # ``logsigmoid`` replaces softplus, since softplus(s) = -logsigmoid(-s) and torch's softplus is
    # rounded beyond a threshold of 20.
    positive = (math.log(2) + F.logsigmoid(scores)).masked_fill(~(is_token & is_own), 0)
    negative = (-F.logsigmoid(-scores) - math.log(2)).masked_fill(~(is_token & ~is_own), 0)
    n_tokens = is_token.sum()
    return negative.sum() / (n_tokens * (b - 1)) - positive.sum() / n_tokens


@in_float32
def quick_thoughts(first: Tensor, second: Tensor) -> Tensor:
    """Compute the cross-entropy of dot products against the neighbours of each sentence.

    It is the mean over the sentences of a passage.
    The targets of a sentence are the ones before and after it, a half each; at both ends its only
    neighbour has 1. As in the authors' code the sentence itself has logit 0, so it stays in the
    softmax as a negative with weight 1; it is not excluded. Logeswaran and Lee, 2018,
    https://arxiv.org/abs/1803.02893.

    Args:
        first: Consecutive sentences, embedded by the first encoder, (b, d).
        second: The same sentences, embedded by the second encoder, (b, d).
    """
    check_rows(2, first=first, second=second)
    scores = (first @ second.T).masked_fill(_diagonal_mask(first), 0)
    # On both diagonals beside the main one.
    neighbour_weights = torch.ones(len(first) - 1, dtype=scores.dtype, device=scores.device)
    targets = neighbour_weights.diag(1) + neighbour_weights.diag(-1)
    return F.cross_entropy(scores, targets / targets.sum(dim=1, keepdim=True))


MIN_PROBABILITY = 1e-7
"""The least probability, and the least sum of exponentials, in the released code."""
IS_RELEASED = {"paper": False, "released": True}
"""Whether the formulas are those of the released code, by name."""
Formulas = Literal["paper", "released"]


@in_float32
def rankings(a: Tensor, b: Tensor, *, temperature: float) -> Tensor:
    """Return the cosines (b, b) of all rows of ``a`` with all of ``b``, over a temperature.

    Row i ranks the sentences of ``b`` by their similarity to sentence i of ``a``.

    Args:
        a: The sentences that rank, (b, d).
        b: The sentences that are ranked, (b, d).
        temperature: The divisor of the cosines.
    """
    check_rows(a=a, b=b)
    return cosines(a, b) / temperature


@in_float32
def ranking_consistency(
    view_a: Tensor, view_b: Tensor, *, temperature: float, formulas: Formulas = "paper"
) -> Tensor:
    """Compute RankCSE's consistency: the divergence of the rankings by two views of a sentence.

    It is the Jensen-Shannon divergence, mean over sentences. With P the softmax of the cosines of
    ``view_a[i]`` with all of ``view_b``, and Q that of ``view_b[i]`` with all of ``view_a``: half
    of KL(P, M) + KL(Q, M), M = (P + Q) / 2. As released the logarithm of M is clamped from below at
    1e-7, so M is 1 everywhere: the result is minus the mean entropy of P and Q, and no divergence.
    Liu et al. 2023, https://arxiv.org/abs/2305.16726. The authors' code is not public; ``released``
    is that of a reproduction, perceptiveshawty/RankCSE, which trained the public checkpoints.

    Args:
        view_a: The first view of b sentences, (b, d).
        view_b: Their second view, (b, d), row for row of the same sentences.
        temperature: The divisor of the cosines.
        formulas: ``paper`` or ``released``.
    """
    similarities = rankings(view_a, view_b, temperature=temperature)
    # The logarithms of P and Q, (2, b, b), and that of M.
    log_rankings = torch.stack([similarities.log_softmax(dim=1), similarities.T.log_softmax(dim=1)])
    if look_up("formulas", formulas, IS_RELEASED):
        log_rankings = log_rankings.exp().clamp(min=MIN_PROBABILITY).log()
        # Logarithms of probabilities are negative, so clamped from below they are all the bound.
        log_middle = torch.full_like(log_rankings[0], MIN_PROBABILITY)
    else:
        log_middle = log_rankings.logsumexp(dim=0) - torch.log(
            torch.tensor(2.0, dtype=log_rankings.dtype)
        )
    return (log_rankings.exp() * (log_rankings - log_middle)).sum() / (2 * len(view_a))


@in_float32
def list_net(student: Tensor, teacher: Tensor) -> Tensor:
    """Compute the cross-entropy of a student's ranking against a teacher's (ListNet).

    A ranking is the distribution of which sentence comes first: ``-sum_j softmax(teacher)_ij log
    softmax(student)_ij``, j not i, mean over the sentences i. RankCSE, Liu et al. 2023,
    https://arxiv.org/abs/2305.16726.

    Args:
        student: The student's similarities of all sentences with each other, (b, b), divided by a
            temperature.
        teacher: The teacher's, (b, b), divided by a temperature of its own.
    """
    check_rows(2, student=student, teacher=teacher)
    b = len(student)
    is_other = ~_diagonal_mask(student)
    student = student[is_other].view(b, b - 1)  # without the diagonal
    teacher = teacher[is_other].view(b, b - 1)
    return -(teacher.softmax(dim=1) * student.log_softmax(dim=1)).sum() / b


@in_float32
def list_mle(student: Tensor, teacher: Tensor, *, formulas: Formulas = "paper") -> Tensor:
    """Compute minus the log likelihood of a teacher's ranking under a student (ListMLE).

    ``-sum_k log exp(s_k) / sum_{l >= k} exp(s_l)``, mean over sentences, with s the student's
    similarities of a sentence, itself included, in the teacher's falling order: the student draws
    one sentence after the other without replacement. As released 1e-7 is added to each sum of
    exponentials, each relative to the largest: similarities of the student far below the largest
    have no order among themselves. RankCSE, Liu et al. 2023, https://arxiv.org/abs/2305.16726.

    Args:
        student: The student's similarities of all sentences with each other, (b, b), divided by a
            temperature.
        teacher: The teacher's, (b, b); only their order in each row matters.
        formulas: ``paper`` or ``released``.
    """
    check_rows(student=student, teacher=teacher)
    ranked_scores = student.gather(1, teacher.argsort(dim=1, descending=True, stable=True))
    # Sums over the sentences from rank k on: cumulative sums from the end, by flipping twice.
    if look_up("formulas", formulas, IS_RELEASED):
        ranked_scores = ranked_scores - ranked_scores.amax(dim=1, keepdim=True)
        log_remainders = (ranked_scores.exp().flip(1).cumsum(dim=1) + MIN_PROBABILITY).log().flip(1)
    else:
        log_remainders = ranked_scores.flip(1).logcumsumexp(dim=1).flip(1)
    return (log_remainders - ranked_scores).sum() / len(ranked_scores)


@in_float32
def self_guided(cls: Tensor, hidden: Tensor, *, temperature: float, variant: str) -> Tensor:
    """Compute a self-guided contrastive loss, mean over its anchors.

    * ``base`` (SG): NT-Xent over the c_i and the h_i, 2b anchors.
    * ``opt1``: the c_i alone are anchors, with the loss
      ``-log e(c_i, h_i) / (sum_{j != i} e(c_i, c_j) + sum_j e(c_i, h_j))``.
    * ``opt2``: no c_j either, ``-log e(c_i, h_i) / sum_j e(c_i, h_j)``.
    * ``opt3`` (SG-OPT): every layer a positive, mean over b * k, with the loss
      ``-log e(c_i, h_ik) / (e(c_i, h_ik) + sum_{j != i, l} e(c_i, h_jl))``.
    * ``opt2-released``: opt2 as the authors' code computes it. Its denominator lacks one negative:
    the
      first h_j of the batch that is not the sentence's own. The order of the batch then matters.

    The released code stops with an error on ``base``, and equals the paper on ``opt1`` and
    ``opt3``. Kim et al., 2021, https://arxiv.org/abs/2106.07345, section 3: c_i is a sentence's
    [CLS], h_ik its k-th hidden state pooled, both after the projection head.

    Args:
        cls: The [CLS] states c (b, d).
        hidden: The pooled hidden states h (b, k, d); k is 1, a layer already drawn for each
            sentence, except for ``opt3``.
        temperature: The divisor of the cosines.
        variant: The name of a loss above.

    Raises:
        UnknownName: There is no such variant.
    """
    loss = look_up("self-guided variant", variant, SELF_GUIDED_LOSSES)
    check_rows(cls=cls, **{"each layer of hidden": hidden[:, 0]})
    return loss(cls, hidden, temperature)


def _opt1(cls: Tensor, hidden: Tensor, temperature: float) -> Tensor:
    """Compute ``opt1`` of :func:`self_guided`: other c_j and all h_j are the negatives of c_i.

    Args:
        cls: The [CLS] states c, (b, d).
        hidden: The hidden states h of one drawn layer, (b, 1, d).
        temperature: The divisor of the cosines.
    """
    is_own = _diagonal_mask(cls)
    anchor_cosines = cosines(cls, cls).masked_fill(is_own, -torch.inf)
    return diagonal_cross_entropy(
        torch.cat([cosines(cls, hidden[:, 0]), anchor_cosines], dim=1) / temperature
    )  # (b, 2b)


def _opt2_released(cls: Tensor, hidden: Tensor, temperature: float) -> Tensor:
    """Compute ``opt2-released`` of :func:`self_guided`: one negative is missing.

    Args:
        cls: The [CLS] states c, (b, d).
        hidden: The hidden states h of one drawn layer, (b, 1, d).
        temperature: The divisor of the cosines.
    """
    logits = cosines(cls, hidden[:, 0]) / temperature  # (b, b)
    is_dropped = torch.zeros_like(logits, dtype=torch.bool)
    # The first other sentence: of row 0 that is sentence 1, of all other rows sentence 0.
    is_dropped[1:, 0] = is_dropped[:1, 1:2] = True
    return diagonal_cross_entropy(logits.masked_fill(is_dropped, -torch.inf))


def _opt3(cls: Tensor, hidden: Tensor, temperature: float) -> Tensor:
    """Compute ``opt3`` of :func:`self_guided`: each layer of a sentence is a positive of its own.

    Args:
        cls: The [CLS] states c, (b, d).
        hidden: The hidden states h of all layers, (b, k, d).
        temperature: The divisor of the cosines.
    """
    b, k, _ = hidden.shape
    logits = cosines(cls, hidden.flatten(0, 1)).view(b, b, k) / temperature
    is_own = _diagonal_mask(cls)
    negatives = logits.masked_fill(is_own[:, :, None], -torch.inf).flatten(1).logsumexp(dim=1)
    # -log(e^p / (e^p + e^n)) is -logsigmoid(p - n); p is (b, k), the own layers.
    return -F.logsigmoid(logits[is_own] - negatives[:, None]).mean()


SELF_GUIDED_LOSSES: Mapping[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "base": lambda cls, hidden, temperature: nt_xent(cls, hidden[:, 0], temperature=temperature),
    "opt1": _opt1,
    "opt2": lambda cls, hidden, temperature: info_nce(cls, hidden[:, 0], temperature=temperature),
    "opt3": _opt3,
    "opt2-released": _opt2_released,
}


def anchored_l2(parameters: Mapping[str, Tensor], initial: Mapping[str, Tensor]) -> Tensor:
    """Compute the summed squared distance of all parameters from their initial values.

    This is the self-guided regulariser, without a mean and without weights: the paper multiplies it
    by 0.1. At the start it is 0, and so is its gradient. Frozen parameters add 0.

    Args:
        parameters: The parameters of the tuned encoder by name.
        initial: Their values at the start by name.
    """
    # ``mse_loss`` stores no differences, as large as the whole model, for the backward pass.
    squared_distance = functools.partial(F.mse_loss, reduction="sum")
    distances = [
        squared_distance(_widen(parameter), _widen(initial[name].detach()))
        for name, parameter in parameters.items()
    ]
    return torch.stack(distances).sum()


_FEATURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "|u-v|": lambda u, v: (u - v).abs(),
    "u*v": lambda u, v: u * v,
    "max(u,v)^2": lambda u, v: torch.maximum(u, v).square(),
}
"""Functions of the embeddings of both sentences of pairs, (b, d) each, by the feature's name."""

PAIR_FEATURES: dict[str, tuple[str, ...]] = {
    "sbert": ("u", "v", "|u-v|"),
    "infersent": ("u", "v", "|u-v|", "u*v"),
    "consert-scripts": ("u", "v", "|u-v|", "max(u,v)^2"),
}
"""Presets of features: SBERT's, which ConSERT's paper names too; InferSent's; and those that
ConSERT's scripts pass instead.

SBERT's table 6 tries further lists of features: (u, v), (|u-v|), (u*v), (|u-v|, u*v), (u, v, u*v),
(u, v, |u-v|, u*v).
"""


def feature_names(kinds: str | Sequence[str]) -> tuple[str, ...]:
    """Return the features of a preset, or a list of features as it is.

    A classifier has d inputs for each feature.

    Args:
        kinds: The name of a preset, or the names of features.

    Raises:
        UnknownName: There is no such preset or feature.
        StsbenchError: The list is empty.
    """
    # A text is the name of a preset, never of one feature.
    if isinstance(kinds, str):
        if kinds not in PAIR_FEATURES:
            hint = f"known: {', '.join(PAIR_FEATURES)}, or a list of {', '.join(_FEATURES)}"
            raise UnknownName("pair features", kinds, PAIR_FEATURES, hint=hint)
        return PAIR_FEATURES[kinds]
    if not kinds:
        raise StsbenchError(f"no pair features; name some of {', '.join(_FEATURES)}")
    for kind in kinds:
        look_up("pair feature", kind, _FEATURES)
    return tuple(kinds)


def pair_features(u: Tensor, v: Tensor, kinds: str | Sequence[str]) -> Tensor:
    """Return the features of sentence pairs, concatenated: (b, len(feature_names(kinds)) * d).

    Args:
        u: The embeddings of the first sentences, (b, d).
        v: The embeddings of the second sentences, (b, d).
        kinds: The name of a preset, or the names of features.

    Raises:
        UnknownName: There is no such preset or feature.
        StsbenchError: The list is empty.
    """
    check_rows(u=u, v=v)
    return torch.cat([_FEATURES[name](u, v) for name in feature_names(kinds)], dim=1)


class GivenEmbeddings(torch.nn.Module):
    """A stand-in for the model of a sentence-transformers loss: it returns embeddings it is given.

    So the library's losses can be called with embeddings that were computed before.
    """

    device = torch.device("cpu")
    """The device of a loss's own weights, if it has any."""

    def __init__(self, name: str = "sentence_embedding") -> None:
        """Choose the tensor of a column to return; by default the column's own embeddings."""
        super().__init__()
        self.name = name

    def forward(self, column: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the embeddings (b, d) in the form of a model's output."""
        return {"sentence_embedding": column[self.name]}


def make_loss(name: str, *values: Any, column: str = "sentence_embedding", **options: Any) -> Any:  # noqa: ANN401
    """Make a loss of sentence-transformers by name, to be called by :func:`library_loss`.

    Its model is a :class:`GivenEmbeddings`.

    Args:
        name: The name of the loss's class.
        values: Further positional arguments of the class, after the model.
        column: The key of the embeddings that the model returns: ``sentence_embedding`` for those
            of the column it is called with, or ``1``, ``2`` for those of the first, second column.
        options: Named arguments of the class.
    """
    from sentence_transformers.sentence_transformer import losses

    return getattr(losses, name)(GivenEmbeddings(column), *values, **options)


@in_float32
def library_loss(loss: Any, *embeddings: Tensor, labels: Tensor | None = None) -> Tensor:  # noqa: ANN401 - untyped
    """Compute a loss of sentence-transformers from embeddings, a scalar.

    Args:
        loss: The loss of :func:`make_loss`.
        embeddings: The embeddings of each column of sentences, (b, d).
        labels: The labels or scores (b,) if the loss has some.
    """
    # A loss with two models has both embed the same column: so each column that it is called with
    # also holds the embeddings of all columns, under their numbers from "1" on.
    embeddings_by_number = {str(number): tensor for number, tensor in enumerate(embeddings, 1)}
    check_rows(**embeddings_by_number)
    columns = [{"sentence_embedding": tensor, **embeddings_by_number} for tensor in embeddings]
    value: Tensor = loss(columns, labels)
    return value
