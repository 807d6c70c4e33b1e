"""The losses of the training methods: pure functions of tensors, mean-reduced, scalar out.

They know nothing of ranks: under several processes the caller gathers the rows first. They compute in float32, or in
float64 if that is what they are given. All raise ValueError where shapes do not fit, and StsbenchError where a
temperature is not positive. What torch has already (cross-entropy, squared error) is not here; losses of
sentence-transformers are taken by :func:`library_loss`. In the formulas e(x, y) = exp(cosine(x, y) / temperature).
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
    """Widen bfloat16 and float16 tensors to float32, keep autocast out, and check ``temperature`` where there is one.

    A cosine near 1 is 0.004 from the next in bfloat16: 0.08 in a logit at temperature 0.05.
    """

    @functools.wraps(objective)
    def widened(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        temperature: Any = kwargs.get("temperature", 1.0)
        if not 0 < temperature < math.inf:
            raise StsbenchError(
                f"temperature {temperature}: it must be a positive number; the papers use 0.01 to 0.1"
            )
        devices = {a.device.type for a in [*args, *kwargs.values()] if isinstance(a, Tensor)}
        with torch.autocast(next(iter(devices), "cpu"), enabled=False):
            return objective(
                *map(_widen, args), **{name: _widen(value) for name, value in kwargs.items()}
            )

    return widened


def _widen(value: Any) -> Any:  # noqa: ANN401 - whatever an objective takes
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(torch.promote_types(value.dtype, torch.float32))
    return value


def check_rows(least: int = 1, /, **tensors: Tensor) -> None:
    """Raise ValueError, naming the tensor, where they are not (b, d), all of one shape, with so many rows at least."""
    (name, first), *others = tensors.items()
    if first.ndim != 2 or len(first) < least:
        raise ValueError(
            f"{name} is {tuple(first.shape)}; it must be (b, d) with b at least {least}"
        )
    for other, tensor in others:
        if tensor.shape != first.shape:
            raise ValueError(
                f"{other} is {tuple(tensor.shape)}, but {name} is {tuple(first.shape)}"
            )


def unit(x: Tensor) -> Tensor:
    """Return each vector along the last dimension with length 1; a zero vector stays zero, its gradient finite."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.where(length == 0, 1.0, length)


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Return the cosine of every row of ``a`` (n, d) with every row of ``b`` (m, d), as (n, m)."""
    return unit(a) @ unit(b).T


SIMILARITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": cosines,
    "dot": lambda a, b: a @ b.T,
}


def diagonal_cross_entropy(logits: Tensor) -> Tensor:
    """Return the cross-entropy of logits (n, m), m >= n, whose right answer in row i is column i."""
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def _diagonal(x: Tensor) -> Tensor:
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
    """Return SimCSE's loss: each anchor finds its positive among all positives and hard negatives.

    ``-log e(i, i+) / (sum_j e(i, j+) + sum_j e(i, j-) * w_ij)``, mean over the anchors, with w_ij =
    exp(hard_negative_weight) for i = j, else 1. One direction only: a positive is no anchor, and other anchors
    are no negatives. Gao et al., 2021, https://arxiv.org/abs/2104.08821, equations 1, 5 and 8, whose alpha is w_ii.

    ``anchor`` and ``positive`` are (b, d), row for row, and so are hard negatives; of several an anchor they are
    (k * b, d), the second of all below the first. ``hard_negative_weight`` is added to the logit of each of an anchor's
    own; raises StsbenchError for one without any. ``similarity`` ``dot`` leaves the lengths in (table D.1).
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
    several = torch.split(hard_negative, len(anchor))
    for one in several:
        check_rows(anchor=anchor, hard_negative=one)
    own = hard_negative_weight * _diagonal(anchor).to(logits.dtype).repeat(1, len(several))
    return diagonal_cross_entropy(
        torch.cat([logits, similarities(anchor, hard_negative) / temperature + own], dim=1)
    )


@in_float32
def nt_xent(view_a: Tensor, view_b: Tensor, *, temperature: float) -> Tensor:
    """Return SimCLR's loss: each of the 2n views (n, d) finds its twin, row for row, among all the others.

    ``-log e(i, i') / sum_{j != i} e(i, j)``, mean over the 2n anchors; 2n - 2 negatives an anchor. Chen et al., 2020,
    https://arxiv.org/abs/2002.05709. ConSERT's code sums the means of the two sides: its value is 2 times this one.
    DeCLUTR's, over anchors and mean positives, and the symmetric loss of the SimCSE tutorials are this one.
    """
    check_rows(view_a=view_a, view_b=view_b)
    twins = torch.arange(2 * len(view_a), device=view_a.device).roll(len(view_a))
    return F.cross_entropy(_among_others(view_a, view_b, temperature), twins)


def _among_others(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """The logits (2n, 2n) of all rows of both (n, d) with all but themselves."""
    rows = torch.cat([a, b])
    return (cosines(rows, rows) / temperature).masked_fill(_diagonal(rows), -torch.inf)


@in_float32
def pairs_in_batch(u: Tensor, v: Tensor, targets: Tensor, *, temperature: float) -> Tensor:
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
    anchor: Tensor, positive: Tensor, queue: Tensor, filled: Tensor, *, temperature: float
) -> Tensor:
    """Return ESimCSE's loss: SimCSE's, with a queue of embeddings that are negatives of every anchor.

    ``-log e(i, i+) / (sum_j e(i, j+) + sum_m e(i, m))``, mean over the anchors (b, d), m over the ``filled`` places,
    bool (m,), of the queue (m, d). Wu et al., 2022, https://arxiv.org/abs/2109.04380, section 3.2.
    """
    check_rows(anchor=anchor, positive=positive)
    queued = cosines(anchor, queue).masked_fill(~filled, -torch.inf)
    return diagonal_cross_entropy(
        torch.cat([cosines(anchor, positive), queued], dim=1) / temperature
    )


@in_float32
def mixed_info_nce(
    anchor: Tensor, positive: Tensor, *, temperature: float, mixing: float, variant: str = "paper"
) -> Tensor:
    """Return MixCSE's loss: SimCSE's, with hard negatives mixed of a positive and another sentence's.

    The other sentence is the next of the batch, of the last the first. With mix(x, y) = mixing * x + (1 - mixing) * y,
    without gradient, an anchor's further negative in ``paper`` is the mix of its own positive and the other's, both of
    length 1. In ``released`` the mixes have the lengths that the model gives; those of all sentences are negatives
    of each anchor, and so are the cosines of all mixed anchors with all positives; where a mix holds most of the
    very sentence that it is compared with, the cosine is set to 0, which leaves its 1 in the denominator.
    Zhang et al., 2022, https://doi.org/10.1609/aaai.v36i10.21428.

    ``anchor`` and ``positive`` are (b, d), row for row; ``mixing`` is lambda, the positive's share, released as 0.2.
    """
    check_rows(2, anchor=anchor, positive=positive)

    def mix(rows: Tensor) -> Tensor:
        return (mixing * rows + (1 - mixing) * rows.roll(-1, 0)).detach()

    similarities = [cosines(anchor, positive)]
    if look_up("variant", variant, FORMULAS):
        own = _diagonal(anchor)
        similarities.append(cosines(anchor, mix(positive)).masked_fill(own.roll(1, 0), 0))
        similarities.append(cosines(mix(anchor), positive).masked_fill(own.roll(1, 1), 0))
    else:
        similarities.append((unit(anchor) * unit(mix(unit(positive)))).sum(dim=1, keepdim=True))
    return diagonal_cross_entropy(torch.cat(similarities, dim=1) / temperature)


@in_float32
def off_dropout_info_nce(
    anchor: Tensor,
    positive: Tensor,
    still: Tensor,
    *,
    temperature: float,
    positive_share: float = 1.0,
) -> Tensor:
    """Return SimCSE++'s loss: positives with dropout, negatives without.

    ``-log p(i) / (p(i) + sum_{j != i} e(still i, still j))``, mean over the sentences, with p(i) =
    exp(positive_share * cosine(i, i+) / temperature). Xu et al., 2023, https://arxiv.org/abs/2305.13192.

    All are (b, d), row for row of the same sentences: ``positive`` under another dropout mask, ``still`` without one.
    """
    check_rows(anchor=anchor, positive=positive, still=still)
    own = positive_share * (unit(anchor) * unit(positive)).sum(dim=1)
    return diagonal_cross_entropy(
        torch.where(_diagonal(anchor), own[:, None], cosines(still, still)) / temperature
    )


@in_float32
def dimension_contrast(view_a: Tensor, view_b: Tensor, *, temperature: float) -> Tensor:
    """Return SimCSE++'s dimension-wise loss: each dimension of one view (b, d) finds itself among those of the other.

    ``-log e(c, c) / sum_d e(c, d)``, mean over the dimensions, with e(c, d) = exp(the mean over sentences of
    z_c * z'_d / temperature); z and z' are the views with every dimension brought to mean 0 and variance 1 over the
    batch. Xu et al., 2023, https://arxiv.org/abs/2305.13192; in its code a batch norm without weights.
    """
    check_rows(2, view_a=view_a, view_b=view_b)
    first, second = (F.batch_norm(view, None, None, training=True) for view in (view_a, view_b))
    return diagonal_cross_entropy(first.T @ second / (len(first) * temperature))  # (d, d)


@in_float32
def jsd_mutual_information(local: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
    """Return IS-BERT's loss: minus the Jensen-Shannon estimate of the mutual information of tokens and sentences.

    With s the dot product of a token's state and a sentence's embedding: the mean of ``softplus(s) - log 2`` over
    tokens with all other sentences, minus the mean of ``log 2 - softplus(-s)`` over tokens with their own. 0 where
    every s is 0, and downwards from there; -2 log 2 is the least. Zhang et al., 2020, https://arxiv.org/abs/2009.12061.

    ``local`` are the states of the tokens, (b, t, d), with a mask (b, t), 1 at tokens, [CLS] and [SEP] among them, and
    0 at padding; ``pooled`` the embeddings of the sentences, (b, d).
    """
    check_rows(2, pooled=pooled, **{"local without its tokens": local[:, 0]})
    b = len(pooled)
    scores = local @ pooled.T  # (b, t, b)
    tokens, own = (mask != 0)[:, :, None], _diagonal(pooled)[:, None, :]
    # -logsigmoid(-s) is softplus(s), without the threshold at 20 beyond which torch's is rounded.
    positive = (math.log(2) + F.logsigmoid(scores)).masked_fill(~(tokens & own), 0)
    negative = (-F.logsigmoid(-scores) - math.log(2)).masked_fill(~(tokens & ~own), 0)
    n = tokens.sum()
    return negative.sum() / (n * (b - 1)) - positive.sum() / n


@in_float32
def quick_thoughts(first: Tensor, second: Tensor) -> Tensor:
    """Return the cross-entropy of dot products against the neighbours, mean over the sentences of a passage.

    The targets of a sentence are the ones before and after it, a half each; 1 at both ends. As in the authors' code
    the sentence itself has logit 0, so it stays in the softmax as a negative with weight 1; it is not left out.
    Logeswaran and Lee, 2018, https://arxiv.org/abs/1803.02893.

    ``first`` and ``second`` are consecutive sentences by the first and by the second encoder, (b, d).
    """
    check_rows(2, first=first, second=second)
    scores = (first @ second.T).masked_fill(_diagonal(first), 0)
    beside = torch.ones(len(first) - 1, dtype=scores.dtype, device=scores.device)
    targets = beside.diag(1) + beside.diag(-1)
    return F.cross_entropy(scores, targets / targets.sum(dim=1, keepdim=True))


LEAST = 1e-7
"""What the released code keeps probabilities, and sums of exponentials, above."""
FORMULAS = {"paper": False, "released": True}
Formulas = Literal["paper", "released"]


@in_float32
def rankings(a: Tensor, b: Tensor, *, temperature: float) -> Tensor:
    """Return the cosines of all rows of ``a`` (b, d) with all of ``b`` (b, d), divided by a temperature: (b, b)."""
    check_rows(a=a, b=b)
    return cosines(a, b) / temperature


@in_float32
def ranking_consistency(
    view_a: Tensor, view_b: Tensor, *, temperature: float, formulas: Formulas = "paper"
) -> Tensor:
    """Return RankCSE's consistency: the Jensen-Shannon divergence of how each view of a sentence ranks the other views, mean over sentences.

    With P the softmax of the cosines of ``view_a[i]`` with all of ``view_b``, and Q that of ``view_b[i]`` with all of
    ``view_a``: half of KL(P, M) + KL(Q, M), M = (P + Q) / 2. As released the logarithm of M is clamped from below at
    1e-7, so M is 1 everywhere: what is left is minus the mean entropy of P and Q, and no divergence. The views are
    (b, d), row for row of the same sentences. Liu et al. 2023, https://arxiv.org/abs/2305.16726. The authors' code is
    not public; ``released`` is that of a reproduction, perceptiveshawty/RankCSE, which trained the public checkpoints.
    """
    similarities = rankings(view_a, view_b, temperature=temperature)
    logs = torch.stack(
        [similarities.log_softmax(dim=1), similarities.T.log_softmax(dim=1)]
    )  # (2, b, b)
    if look_up("formulas", formulas, FORMULAS):
        logs = logs.exp().clamp(min=LEAST).log()
        middle = torch.full_like(logs[0], LEAST)
    else:
        middle = logs.logsumexp(dim=0) - torch.log(torch.tensor(2.0, dtype=logs.dtype))
    return (logs.exp() * (logs - middle)).sum() / (2 * len(view_a))


@in_float32
def list_net(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the cross-entropy of a student's ranking against a teacher's, by which sentence comes first.

    ``-sum_j softmax(teacher)_ij log softmax(student)_ij``, j not i, mean over the sentences i. Both are similarities
    (b, b), each divided by a temperature of its own.
    """
    check_rows(2, student=student, teacher=teacher)
    b, others = len(student), ~_diagonal(student)
    student, teacher = (one[others].view(b, b - 1) for one in (student, teacher))
    return -(teacher.softmax(dim=1) * student.log_softmax(dim=1)).sum() / b


@in_float32
def list_mle(student: Tensor, teacher: Tensor, *, formulas: Formulas = "paper") -> Tensor:
    """Return minus the log likelihood of a teacher's ranking under a student's similarities, mean over sentences.

    ``-sum_k log exp(s_k) / sum_{l >= k} exp(s_l)``, s the similarities of a sentence in the teacher's falling order,
    itself among them. As released 1e-7 is added to each sum, of exponentials over the largest: what is far below it in
    the student's similarities has no order of its own. Both are similarities (b, b), the student's divided by a
    temperature; of the teacher's the order alone counts.
    """
    check_rows(student=student, teacher=teacher)
    ranked = student.gather(1, teacher.argsort(dim=1, descending=True, stable=True))
    if look_up("formulas", formulas, FORMULAS):
        ranked = ranked - ranked.amax(dim=1, keepdim=True)
        below = (ranked.exp().flip(1).cumsum(dim=1) + LEAST).log().flip(1)
    else:
        below = ranked.flip(1).logcumsumexp(dim=1).flip(1)
    return (below - ranked).sum() / len(ranked)


@in_float32
def self_guided(cls: Tensor, hidden: Tensor, *, temperature: float, variant: str) -> Tensor:
    """Return a self-guided contrastive loss, mean over its anchors.

    * ``base`` (SG): NT-Xent over the c_i and the h_i, 2b anchors.
    * ``opt1``: the c_i alone are anchors, ``-log e(c_i, h_i) / (sum_{j != i} e(c_i, c_j) + sum_j e(c_i, h_j))``.
    * ``opt2``: no c_j either, ``-log e(c_i, h_i) / sum_j e(c_i, h_j)``.
    * ``opt3`` (SG-OPT): every layer a positive, ``-log e(c_i, h_ik) / (e(c_i, h_ik) + sum_{j != i, l} e(c_i, h_jl))``,
      mean over b * k.
    * ``opt2-released``: opt2 as the authors' code computes it. Its denominator lacks one negative: the
      first h_j of the batch that is not the sentence's own. The order of the batch then matters.

    The released code stops with an error on ``base``, and equals the paper on ``opt1`` and ``opt3``. Kim et al., 2021,
    https://arxiv.org/abs/2106.07345, section 3: c_i is a sentence's [CLS], h_ik its k-th hidden state pooled, both
    after the projection head: ``cls`` (b, d) and ``hidden`` (b, k, d); k is 1, a layer already drawn for each sentence,
    but for ``opt3``. Raises UnknownName for another variant.
    """
    chosen = look_up("self-guided variant", variant, SELF_GUIDED)
    check_rows(cls=cls, **{"each layer of hidden": hidden[:, 0]})
    return chosen(cls, hidden, temperature)


def _opt1(cls: Tensor, hidden: Tensor, temperature: float) -> Tensor:
    own = _diagonal(cls)
    others = cosines(cls, cls).masked_fill(own, -torch.inf)
    return diagonal_cross_entropy(
        torch.cat([cosines(cls, hidden[:, 0]), others], dim=1) / temperature
    )  # (b, 2b)


def _opt2_released(cls: Tensor, hidden: Tensor, temperature: float) -> Tensor:
    logits = cosines(cls, hidden[:, 0]) / temperature  # (b, b)
    dropped = torch.zeros_like(logits, dtype=torch.bool)
    dropped[1:, 0] = dropped[:1, 1:2] = True
    return diagonal_cross_entropy(logits.masked_fill(dropped, -torch.inf))


def _opt3(cls: Tensor, hidden: Tensor, temperature: float) -> Tensor:
    b, k, _ = hidden.shape
    logits = cosines(cls, hidden.flatten(0, 1)).view(b, b, k) / temperature
    own = _diagonal(cls)
    negatives = logits.masked_fill(own[:, :, None], -torch.inf).flatten(1).logsumexp(dim=1)
    return -F.logsigmoid(logits[own] - negatives[:, None]).mean()


SELF_GUIDED: Mapping[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "base": lambda cls, hidden, temperature: nt_xent(cls, hidden[:, 0], temperature=temperature),
    "opt1": _opt1,
    "opt2": lambda cls, hidden, temperature: info_nce(cls, hidden[:, 0], temperature=temperature),
    "opt3": _opt3,
    "opt2-released": _opt2_released,
}


def anchored_l2(parameters: Mapping[str, Tensor], initial: Mapping[str, Tensor]) -> Tensor:
    """Return the squared distance of all parameters from their initial values, summed: the self-guided regulariser.

    No mean and no weights: the paper multiplies it by 0.1. At the start it is 0, its gradient too. Both are by name:
    those of the encoder that is tuned, and their values to start with. Parameters that are frozen add 0.
    """
    # It keeps no difference for the backward pass, a whole model of them.
    squared = functools.partial(F.mse_loss, reduction="sum")
    distances = [
        squared(_widen(one), _widen(initial[name].detach())) for name, one in parameters.items()
    ]
    return torch.stack(distances).sum()


_FEATURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "|u-v|": lambda u, v: (u - v).abs(),
    "u*v": lambda u, v: u * v,
    "max(u,v)^2": lambda u, v: torch.maximum(u, v).square(),
}

PAIR_FEATURES: dict[str, tuple[str, ...]] = {
    "sbert": ("u", "v", "|u-v|"),
    "infersent": ("u", "v", "|u-v|", "u*v"),
    "consert-scripts": ("u", "v", "|u-v|", "max(u,v)^2"),
}
"""SBERT's, which ConSERT's paper names too; InferSent's; and what ConSERT's scripts pass instead.

SBERT's table 6 tries others, given one by one: (u, v), (|u-v|), (u*v), (|u-v|, u*v), (u, v, u*v), (u, v, |u-v|, u*v).
"""


def feature_names(kinds: str | Sequence[str]) -> tuple[str, ...]:
    """Return the features of a preset, or those named one by one; a classifier has d inputs for each.

    Raises UnknownName: no such preset or feature; StsbenchError: none at all.
    """
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
    """Return the features of sentence pairs, (b, d) each, side by side: (b, len(feature_names(kinds)) * d); raises as that."""
    check_rows(u=u, v=v)
    return torch.cat([_FEATURES[name](u, v) for name in feature_names(kinds)], dim=1)


class GivenEmbeddings(torch.nn.Module):
    """What a loss of sentence-transformers takes for a model: it embeds sentences by passing the embeddings it is given."""

    device = torch.device("cpu")
    """Where a loss makes its own weights, if it has any."""

    def __init__(self, name: str = "sentence_embedding") -> None:
        """Choose what of a column is passed; by default its own embeddings."""
        super().__init__()
        self.name = name

    def forward(self, column: dict[str, Tensor]) -> dict[str, Tensor]:
        """Pass the embeddings (b, d) as a model does."""
        return {"sentence_embedding": column[self.name]}


def made_loss(name: str, *values: Any, column: str = "sentence_embedding", **options: Any) -> Any:  # noqa: ANN401
    """Make one of sentence-transformers' losses by its name, with :class:`GivenEmbeddings` as its model."""
    from sentence_transformers.sentence_transformer import losses

    return getattr(losses, name)(GivenEmbeddings(column), *values, **options)


@in_float32
def library_loss(loss: Any, *embeddings: Tensor, labels: Tensor | None = None) -> Tensor:  # noqa: ANN401 - untyped
    """Return the value of one of sentence-transformers' losses, made with :class:`GivenEmbeddings` as its model.

    ``embeddings`` are of each column of sentences, (b, d); ``labels`` (b,), where the loss has some. Each column has
    all the others' too, under their numbers from "1" on: some losses have two models embed one column.
    """
    numbered = {str(number): column for number, column in enumerate(embeddings, 1)}
    check_rows(**numbered)
    value: Tensor = loss(
        [{"sentence_embedding": column, **numbered} for column in embeddings], labels
    )
    return value
