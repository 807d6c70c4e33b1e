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

    bfloat16 and float16 tensors are converted to float32, and torch's automatic mixed precision
    (autocast) is disabled. The reason: in bfloat16 a cosine near 1 is 0.004 from the next number,
    which is 0.08 in a logit at temperature 0.05.

    Args:
        objective: The loss: a function from tensors to a scalar.

    Returns:
        A function with the arguments of ``objective``. It raises StsbenchError if its named
        argument ``temperature`` is not positive.
    """

    @functools.wraps(objective)
    def compute_in_float32(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        """Return the loss that the decorated function ``objective`` computes in float32."""
        # Every loss takes its temperature by name; a loss without one passes the check.
        temperature: Any = kwargs.get("temperature", 1.0)
        if not 0 < temperature < math.inf:
            raise StsbenchError(
                f"temperature {temperature}: it must be a positive number; "
                "the papers use 0.01 to 0.1"
            )
        arguments = [*args, *kwargs.values()]
        devices = [value.device.type for value in arguments if isinstance(value, Tensor)]
        float32_args = map(_at_least_float32, args)
        float32_kwargs = {name: _at_least_float32(value) for name, value in kwargs.items()}
        # All tensors are on one device, and autocast is disabled for its type.
        with torch.autocast(devices[0], enabled=False):
            return objective(*float32_args, **float32_kwargs)

    return compute_in_float32


def _at_least_float32(value: Any) -> Any:  # noqa: ANN401 - any argument of an objective
    """Convert a tensor of 16-bit floats to float32; return any other value unchanged."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.to(torch.promote_types(value.dtype, torch.float32))
    return value


def check_equal_shapes(min_rows: int = 1, /, **tensors: Tensor) -> None:
    """Check that tensors are (b, d), all of one shape, with at least ``min_rows`` rows.

    Args:
        min_rows: The least number of rows b. It is positional, because every keyword is the name
            of a tensor.
        tensors: The tensors by the name that a message gives them.

    Raises:
        ValueError: A tensor is not of this shape.
    """
    # The first tensor is checked by itself, the others are compared with it.
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


def to_unit_length(x: Tensor) -> Tensor:
    """Divide the vectors along the last dimension of ``x`` by their Euclidean lengths.

    A zero vector stays zero, and its gradient is finite.

    Args:
        x: The vectors, (…, d).

    Returns:
        The vectors of length 1, (…, d).
    """
    lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # (…, 1)
    # A zero vector is divided by 1.
    return x / torch.where(lengths == 0, 1.0, lengths)


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Return the cosine of every row of ``a`` (n, d) with every row of ``b`` (m, d), as (n, m)."""
    return to_unit_length(a) @ to_unit_length(b).T


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

    ``-log e(i, i+) / (sum_j e(i, j+) + sum_j e(i, j-) * w_ij)``, mean over the anchors i. Here
    e(x, y) = exp(similarity(x, y) / temperature), j+ is the positive and j- the hard negative of
    anchor j, and w_ij is exp(hard_negative_weight) for i = j, else 1. One direction only: a
    positive is no anchor, and other anchors are no negatives. Gao et al., 2021,
    https://arxiv.org/abs/2104.08821, equations 1, 5 and 8, whose alpha is w_ii.

    Args:
        anchor: The anchors (b, d).
        positive: The positive of each anchor (b, d).
        hard_negative: The hard negatives: (b, d), or (k * b, d) if each anchor has k of its own.
            Rows 0 to b - 1 are the first of each anchor, the next b rows the second, and so on.
            None if there are none.
        temperature: The divisor of the similarities.
        hard_negative_weight: A number added to the logit of each of an anchor's own hard negatives.
        similarity: ``cosine``, or ``dot``, the dot product, which depends on the lengths of the
            vectors too (the paper's table D.1).

    Returns:
        The loss, a scalar.

    Raises:
        StsbenchError: There is a ``hard_negative_weight``, but no hard negatives.
    """
    check_equal_shapes(anchor=anchor, positive=positive)
    similarities = look_up("similarity", similarity, SIMILARITIES)
    logits = similarities(anchor, positive) / temperature  # (b, b), the right ones on the diagonal
    if hard_negative is None:
        if hard_negative_weight != 0:
            raise StsbenchError(
                f"hard_negative_weight {hard_negative_weight} without hard negatives: leave it out"
            )
        return diagonal_cross_entropy(logits)
    hard_negative_groups = torch.split(hard_negative, len(anchor))
    for group in hard_negative_groups:
        check_equal_shapes(anchor=anchor, hard_negative=group)
    # (b, k * b): 1 where a hard negative belongs to the anchor itself, else 0.
    is_own = _diagonal_mask(anchor).to(logits.dtype).repeat(1, len(hard_negative_groups))
    hard_logits = similarities(anchor, hard_negative) / temperature + hard_negative_weight * is_own
    return diagonal_cross_entropy(torch.cat([logits, hard_logits], dim=1))


@in_float32
def nt_xent(view_a: Tensor, view_b: Tensor, *, temperature: float) -> Tensor:
    """Compute SimCLR's loss (NT-Xent): each of 2n views finds the other view of its sentence.

    ``-log e(i, i') / sum_{j != i} e(i, j)``, mean over the 2n views i, with e(x, y) =
    exp(cosine(x, y) / temperature) and i' the other view of i's sentence. So each view has 2n - 2
    negatives. Chen et al., 2020, https://arxiv.org/abs/2002.05709.

    DeCLUTR's loss, over anchors and mean positives, and the symmetric loss of the SimCSE tutorials
    are the same. ConSERT's code sums the means over the first and over the second views, which is
    2 times this value.

    Args:
        view_a: The first view of n sentences, (n, d).
        view_b: Their second view, (n, d), row for row of the same sentences.
        temperature: The divisor of the cosines.
    """
    check_equal_shapes(view_a=view_a, view_b=view_b)
    # The other view of row i of all 2n is n rows further, counted around the end.
    other_view_rows = torch.arange(2 * len(view_a), device=view_a.device).roll(len(view_a))
    return F.cross_entropy(_logits_without_self(view_a, view_b, temperature), other_view_rows)


def _logits_without_self(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """Return the cosines (2n, 2n) of all rows with each other, divided by the temperature.

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

    ``-sum_j t_ij log(e(i, j) / sum_{k != i} e(i, k))``, mean over the 2b sentences i, with e(x, y)
    = exp(cosine(x, y) / temperature) and t_ij 1 if j is a positive of i, else 0. A sentence without
    positives adds 0. If the only positive of each sentence is the other one of its pair, this is
    NT-Xent. Li and Li, 2024, https://arxiv.org/abs/2309.12871, the official code's
    ``in_batch_negative_loss``.

    Args:
        u: The embeddings of the first sentences of the pairs (b, d).
        v: The embeddings of the second sentences (b, d).
        is_positive: t, bool (2b, 2b), False on the diagonal. Rows and columns 0 to b - 1 are the
            first sentences, the others the second ones.
        temperature: The divisor of the cosines.
    """
    check_equal_shapes(u=u, v=v)
    logits = _logits_without_self(u, v, temperature)  # (2b, 2b), -inf on the diagonal
    return -logits.log_softmax(dim=1).masked_fill(~is_positive, 0).sum() / len(logits)


@in_float32
def queued_info_nce(
    anchor: Tensor, positive: Tensor, queue: Tensor, is_filled: Tensor, *, temperature: float
) -> Tensor:
    """Compute ESimCSE's loss: SimCSE's, with embeddings of earlier batches as further negatives.

    ``-log e(i, i+) / (sum_j e(i, j+) + sum_q e(i, q))``, mean over the anchors i, with j+ the
    positive of anchor j, q the rows of the queue, and e(x, y) = exp(cosine(x, y) / temperature). Wu
    et al., 2022, https://arxiv.org/abs/2109.04380, section 3.2.

    Args:
        anchor: The anchors (b, d).
        positive: The positive of each anchor (b, d).
        queue: The embeddings of earlier batches (m, d), negatives of every anchor.
        is_filled: Whether a row of the queue holds an embedding yet, bool (m,).
        temperature: The divisor of the cosines.
    """
    check_equal_shapes(anchor=anchor, positive=positive)
    queue_cosines = cosines(anchor, queue).masked_fill(~is_filled, -torch.inf)
    return diagonal_cross_entropy(
        torch.cat([cosines(anchor, positive), queue_cosines], dim=1) / temperature
    )


@in_float32
def mixed_info_nce(
    anchor: Tensor, positive: Tensor, *, temperature: float, mixing: float, variant: str = "paper"
) -> Tensor:
    """Compute MixCSE's loss: SimCSE's, with negatives mixed from the embeddings of two sentences.

    A sentence i is mixed with the next of the batch, i + 1, and the last with the first: mix_i =
    mixing * x_i + (1 - mixing) * x_{i+1}, without gradient. The variants differ in the negatives
    that are added to those of SimCSE:

    * ``paper``: anchor i has one more, the mix of positives i and i + 1, both of length 1.
    * ``released``, as the authors' code: vectors are mixed with the lengths that the model gave
      them. Each anchor has the mixes of all positives as negatives, and further logits are the
      cosines of all mixed anchors with all positives. If a mix consists mostly of the sentence that
      it is compared with, which for ``mixing`` below a half is i + 1, the cosine is set to 0. Then
      the term exp(0) = 1 stays in the denominator.

    Zhang et al., 2022, https://doi.org/10.1609/aaai.v36i10.21428.

    Args:
        anchor: The anchors (b, d).
        positive: The positive of each anchor (b, d).
        temperature: The divisor of the cosines.
        mixing: The share of a sentence in its own mix, lambda in the paper; 0.2 in the authors'
            code.
        variant: ``paper`` or ``released``.
    """
    # With a single row there is no other sentence to mix with: at least two.
    check_equal_shapes(2, anchor=anchor, positive=positive)

    def mix(rows: Tensor) -> Tensor:
        """Mix each row with the next one, the last with the first."""
        return (mixing * rows + (1 - mixing) * rows.roll(-1, 0)).detach()

    # The columns of the logits: first all positives, then the mixed negatives.
    similarities = [cosines(anchor, positive)]
    # True for ``released``, False for ``paper``.
    if look_up("variant", variant, IS_RELEASED_FORMULA):
        is_own = _diagonal_mask(anchor)
        # Rolled by one, the diagonal marks the cosines of mix i with sentence i + 1.
        similarities.append(cosines(anchor, mix(positive)).masked_fill(is_own.roll(1, 0), 0))
        similarities.append(cosines(mix(anchor), positive).masked_fill(is_own.roll(1, 1), 0))
    else:
        # The cosine of each anchor with the mix of its own positive alone, (b, 1).
        mixed_positive = to_unit_length(mix(to_unit_length(positive)))
        similarities.append((to_unit_length(anchor) * mixed_positive).sum(dim=1, keepdim=True))
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

    ``-log p(i) / (p(i) + sum_{j != i} e(n_i, n_j))``, mean over the sentences i. Here p(i) =
    exp(positive_share * cosine(i, i+) / temperature), n_i is sentence i without dropout, and
    e(x, y) = exp(cosine(x, y) / temperature). Xu et al., 2023, https://arxiv.org/abs/2305.13192.

    Args:
        anchor: The sentences (b, d).
        positive: The same sentences under another dropout mask (b, d).
        without_dropout: The same sentences without dropout (b, d).
        temperature: The divisor of the cosines.
        positive_share: The factor of the positive's cosine.
    """
    check_equal_shapes(anchor=anchor, positive=positive, without_dropout=without_dropout)
    positive_cosines = positive_share * (to_unit_length(anchor) * to_unit_length(positive)).sum(
        dim=1
    )
    # (b, b): the cosines of the positives on the diagonal, those of negatives elsewhere.
    similarities = torch.where(
        _diagonal_mask(anchor),
        positive_cosines[:, None],
        cosines(without_dropout, without_dropout),
    )
    return diagonal_cross_entropy(similarities / temperature)


@in_float32
def dimension_contrast(view_a: Tensor, view_b: Tensor, *, temperature: float) -> Tensor:
    """Compute SimCSE++'s dimension-wise loss: each dimension finds itself in the other view.

    It is ``-log e(k, k) / sum_l e(k, l)``, mean over the dimensions k. Here e(k, l) =
    exp(correlation of dimension k of the first view with dimension l of the second / temperature),
    with the correlation over the b sentences. Xu et al., 2023, https://arxiv.org/abs/2305.13192;
    their code brings each dimension to mean 0 and variance 1 by a batch norm without weights.

    Args:
        view_a: The first view of b sentences, (b, d).
        view_b: Their second view, (b, d), row for row of the same sentences.
        temperature: The divisor of the correlations.
    """
    check_equal_shapes(2, view_a=view_a, view_b=view_b)
    # Each dimension with mean 0 and variance 1 over the sentences, (b, d).
    normalised_a, normalised_b = (
        F.batch_norm(view, None, None, training=True) for view in (view_a, view_b)
    )
    # The correlations over the temperature, (d, d).
    logits = normalised_a.T @ normalised_b / (len(normalised_a) * temperature)
    return diagonal_cross_entropy(logits)


@in_float32
def jsd_mutual_information(local: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
    """Compute IS-BERT's loss: minus the estimated mutual information of tokens and sentences.

    Mutual information is how much a token tells about which sentence it is from; this is its
    Jensen-Shannon estimate. Let s be the dot product of a token's state and a sentence's embedding.
    The loss is the mean of ``softplus(s) - log 2`` over all tokens, each with every other sentence,
    minus the mean of ``log 2 - softplus(-s)`` over all tokens, each with its own sentence. It is 0
    if every s is 0, and at the least -2 log 2. Zhang et al., 2020,
    https://arxiv.org/abs/2009.12061.

    Args:
        local: The states of the tokens (b, t, d).
        mask: 1 at tokens, including [CLS] and [SEP], 0 at padding, (b, t).
        pooled: The embeddings of the sentences (b, d).
    """
    # The states of the first tokens stand for the shape of ``local``.
    check_equal_shapes(2, pooled=pooled, **{"local without its tokens": local[:, 0]})
    b = len(pooled)
    scores = local @ pooled.T  # s, (b, t, b): each token of each sentence with every sentence
    is_token = (mask != 0)[:, :, None]  # (b, t, 1)
    is_own = _diagonal_mask(pooled)[:, None, :]  # (b, 1, b): the token's own sentence
    # ``logsigmoid`` replaces softplus, since softplus(s) = -logsigmoid(-s) and torch's softplus is
    # rounded beyond a threshold of 20.
    positive = (math.log(2) + F.logsigmoid(scores)).masked_fill(~(is_token & is_own), 0)
    negative = (-F.logsigmoid(-scores) - math.log(2)).masked_fill(~(is_token & ~is_own), 0)
    n_tokens = is_token.sum()
    return negative.sum() / (n_tokens * (b - 1)) - positive.sum() / n_tokens


@in_float32
def quick_thoughts(first: Tensor, second: Tensor) -> Tensor:
    """Compute Quick-Thoughts' loss: each sentence of a passage finds its neighbours.

    It is the cross-entropy of a softmax over the sentences of the passage, mean over them. The
    logit of sentence j for sentence i is the dot product of i by the first encoder with j by the
    second. The target distribution of a sentence has a half at the sentence before it and a half at
    the one after it; the first and the last have one neighbour with 1. The sentence itself has
    logit 0, so it stays in the softmax as a negative with the term exp(0) = 1, as in the authors'
    code. Logeswaran and Lee, 2018, https://arxiv.org/abs/1803.02893.

    Args:
        first: Consecutive sentences, embedded by the first encoder, (b, d).
        second: The same sentences, embedded by the second encoder, (b, d).
    """
    check_equal_shapes(2, first=first, second=second)
    scores = (first @ second.T).masked_fill(_diagonal_mask(first), 0)
    # 1 on both diagonals beside the main one; then each row is divided by its sum.
    neighbour_weights = torch.ones(len(first) - 1, dtype=scores.dtype, device=scores.device)
    targets = neighbour_weights.diag(1) + neighbour_weights.diag(-1)
    return F.cross_entropy(scores, targets / targets.sum(dim=1, keepdim=True))


MIN_PROBABILITY = 1e-7
"""The least probability, and the least sum of exponentials, in the released code."""
IS_RELEASED_FORMULA = {"paper": False, "released": True}
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
    check_equal_shapes(a=a, b=b)
    return cosines(a, b) / temperature


@in_float32
def ranking_consistency(
    view_a: Tensor, view_b: Tensor, *, temperature: float, formulas: Formulas = "paper"
) -> Tensor:
    """Compute RankCSE's consistency: the divergence of the rankings by two views of a sentence.

    For sentence i let P be the softmax of the cosines, divided by the temperature, of ``view_a[i]``
    with all of ``view_b``, and Q that of ``view_b[i]`` with all of ``view_a``. The loss is the
    Jensen-Shannon divergence (KL(P, M) + KL(Q, M)) / 2 with M = (P + Q) / 2, mean over the
    sentences. Liu et al. 2023, https://arxiv.org/abs/2305.16726.

    The authors' code is not public. ``released`` is the code of a reproduction,
    perceptiveshawty/RankCSE, which trained the public checkpoints. It clamps the logarithm of M
    from below at 1e-7, as if that were a probability: so the logarithm is 1e-7 everywhere, and the
    loss is minus the mean entropy of P and Q, which is no divergence.

    Args:
        view_a: The first view of b sentences, (b, d).
        view_b: Their second view, (b, d), row for row of the same sentences.
        temperature: The divisor of the cosines.
        formulas: ``paper`` or ``released``.
    """
    similarities = rankings(view_a, view_b, temperature=temperature)  # (b, b), cosines
    # The logarithms of P and Q, (2, b, b), and that of M.
    log_rankings = torch.stack([similarities.log_softmax(dim=1), similarities.T.log_softmax(dim=1)])
    # True for ``released``, False for ``paper``.
    if look_up("formulas", formulas, IS_RELEASED_FORMULA):
        log_rankings = log_rankings.exp().clamp(min=MIN_PROBABILITY).log()
        # Logarithms of probabilities are negative: clamped from below at a positive number, all
        # equal that number.
        log_middle = torch.full_like(log_rankings[0], MIN_PROBABILITY)
    else:
        log_of_2 = torch.log(torch.tensor(2.0, dtype=log_rankings.dtype))
        log_middle = log_rankings.logsumexp(dim=0) - log_of_2
    return (log_rankings.exp() * (log_rankings - log_middle)).sum() / (2 * len(view_a))


@in_float32
def list_net(student: Tensor, teacher: Tensor) -> Tensor:
    """Compute the cross-entropy of a student's ranking against a teacher's (ListNet).

    A ranking by sentence i is here the distribution of which other sentence is most similar to it.
    The loss is ``-sum_{j != i} softmax(teacher)_ij log softmax(student)_ij``, mean over the
    sentences i. RankCSE, Liu et al. 2023, https://arxiv.org/abs/2305.16726.

    Args:
        student: The student's similarities of all sentences with each other, (b, b), divided by a
            temperature.
        teacher: The teacher's, (b, b), divided by a temperature of its own.
    """
    # A ranking needs another sentence: fewer than two raise ValueError.
    check_equal_shapes(2, student=student, teacher=teacher)
    b = len(student)
    is_other = ~_diagonal_mask(student)
    student_others = student[is_other].view(b, b - 1)  # without the diagonal
    teacher_others = teacher[is_other].view(b, b - 1)
    return -(teacher_others.softmax(dim=1) * student_others.log_softmax(dim=1)).sum() / b


@in_float32
def list_mle(student: Tensor, teacher: Tensor, *, formulas: Formulas = "paper") -> Tensor:
    """Compute minus the log likelihood of a teacher's ranking under a student (ListMLE).

    For one sentence let s_1, s_2, ... be the student's similarities with all sentences, itself
    included, in the order in which the teacher ranks these, the most similar first. The loss is
    ``-sum_k log(exp(s_k) / sum_{l >= k} exp(s_l))``, mean over the sentences: the probability that
    a student who draws sentences one by one without replacement draws them in this order. RankCSE,
    Liu et al. 2023, https://arxiv.org/abs/2305.16726.

    ``released`` is the code of a reproduction, perceptiveshawty/RankCSE. It divides the
    exponentials by the largest and adds 1e-7 (``MIN_PROBABILITY``) to each of their sums: so the
    order among similarities far below the largest has no effect.

    Args:
        student: The student's similarities of all sentences with each other, (b, b), divided by a
            temperature.
        teacher: The teacher's, (b, b); only their order in each row matters.
        formulas: ``paper`` or ``released``.
    """
    check_equal_shapes(student=student, teacher=teacher)
    # Column k of each row is s_k, (b, b).
    ranked_scores = student.gather(1, teacher.argsort(dim=1, descending=True, stable=True))
    # Column k: the logarithm of the sum over l >= k, by a cumulative sum of the flipped columns.
    # The condition is true for ``released``, false for ``paper``.
    if look_up("formulas", formulas, IS_RELEASED_FORMULA):
        ranked_scores = ranked_scores - ranked_scores.amax(dim=1, keepdim=True)
        log_remainders = (ranked_scores.exp().flip(1).cumsum(dim=1) + MIN_PROBABILITY).log().flip(1)
    else:
        log_remainders = ranked_scores.flip(1).logcumsumexp(dim=1).flip(1)
    return (log_remainders - ranked_scores).sum() / len(ranked_scores)


@in_float32
def self_guided(cls: Tensor, hidden: Tensor, *, temperature: float, variant: str) -> Tensor:
    """Compute a self-guided contrastive loss, mean over its anchors.

    The [CLS] state of a sentence finds the pooled hidden states of the same sentence. Let c_i be
    the [CLS] state of sentence i and h_ik its hidden state of layer k, pooled, both after the
    projection head; h_i is that of one layer drawn at random. With e(x, y) = exp(cosine(x, y) /
    temperature) the variants are:

    * ``base`` (SG): NT-Xent over the c_i and the h_i, which are 2b anchors.
    * ``opt1``: only the c_i are anchors, with the loss
      ``-log e(c_i, h_i) / (sum_{j != i} e(c_i, c_j) + sum_j e(c_i, h_j))``.
    * ``opt2``: other c_j are no negatives: ``-log e(c_i, h_i) / sum_j e(c_i, h_j)``.
    * ``opt3`` (SG-OPT): every layer is a positive; the mean is over b * k pairs, with the loss
      ``-log e(c_i, h_ik) / (e(c_i, h_ik) + sum_{j != i, l} e(c_i, h_jl))``.
    * ``opt2-released``: opt2 as the authors' code computes it. Its denominator lacks one negative,
      the first h_j of the batch with j != i; so the order of the batch matters.

    The authors' code stops with an error on ``base``, and equals the paper on ``opt1`` and
    ``opt3``. Kim et al., 2021, https://arxiv.org/abs/2106.07345, section 3.

    Args:
        cls: The [CLS] states c (b, d).
        hidden: The pooled hidden states h (b, k, d). For ``opt3`` k is the number of layers;
            otherwise k is 1, the layer that the caller has drawn for each sentence.
        temperature: The divisor of the cosines.
        variant: The name of a loss above.

    Raises:
        UnknownName: There is no such variant.
    """
    # The function of the variant, from ``cls``, ``hidden`` and the temperature to the loss.
    loss = look_up("self-guided variant", variant, SELF_GUIDED_LOSSES)
    check_equal_shapes(cls=cls, **{"each layer of hidden": hidden[:, 0]})
    return loss(cls, hidden, temperature)


def _opt1(cls: Tensor, hidden: Tensor, temperature: float) -> Tensor:
    """Compute the self-guided loss ``opt1``: the negatives of c_i are all c_j and h_j, j not i.

    Its positive is h_i, the hidden state of the same sentence.

    Args:
        cls: The [CLS] states c, (b, d).
        hidden: The hidden states h of one drawn layer, (b, 1, d).
        temperature: The divisor of the cosines.
    """
    is_own = _diagonal_mask(cls)
    # No [CLS] state is its own negative.
    anchor_cosines = cosines(cls, cls).masked_fill(is_own, -torch.inf)
    return diagonal_cross_entropy(
        torch.cat([cosines(cls, hidden[:, 0]), anchor_cosines], dim=1) / temperature
    )  # (b, 2b)


def _opt2_released(cls: Tensor, hidden: Tensor, temperature: float) -> Tensor:
    """Compute the self-guided loss ``opt2`` with the authors' code's error: a negative is missing.

    The [CLS] state c_i finds h_i, the hidden state of its sentence, among the h_j of all sentences
    but the first with j != i.

    Args:
        cls: The [CLS] states c, (b, d).
        hidden: The hidden states h of one drawn layer, (b, 1, d).
        temperature: The divisor of the cosines.
    """
    logits = cosines(cls, hidden[:, 0]) / temperature  # (b, b)
    is_dropped = torch.zeros_like(logits, dtype=torch.bool)
    # The first other sentence is sentence 1 for row 0, and sentence 0 for all other rows.
    is_dropped[:1, 1:2] = True
    is_dropped[1:, 0] = True
    return diagonal_cross_entropy(logits.masked_fill(is_dropped, -torch.inf))


def _opt3(cls: Tensor, hidden: Tensor, temperature: float) -> Tensor:
    """Compute the self-guided loss ``opt3``: each layer of a sentence is a positive of its own.

    The negatives of a [CLS] state are all layers of all other sentences. The loss is the mean over
    the b * k positives.

    Args:
        cls: The [CLS] states c, (b, d).
        hidden: The hidden states h of all layers, (b, k, d).
        temperature: The divisor of the cosines.
    """
    b, k, _ = hidden.shape
    # Each [CLS] state with every layer of every sentence.
    logits = cosines(cls, hidden.flatten(0, 1)).view(b, b, k) / temperature
    is_own = _diagonal_mask(cls)
    positives = logits[is_own]  # p, (b, k): the layers of the same sentence
    other_logits = logits.masked_fill(is_own[:, :, None], -torch.inf).flatten(1)  # (b, b * k)
    negatives = other_logits.logsumexp(dim=1, keepdim=True)  # n, (b, 1)
    # -log(e^p / (e^p + e^n)) is -logsigmoid(p - n).
    return -F.logsigmoid(positives - negatives).mean()


SELF_GUIDED_LOSSES: Mapping[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "base": lambda cls, hidden, temperature: nt_xent(cls, hidden[:, 0], temperature=temperature),
    "opt1": _opt1,
    "opt2": lambda cls, hidden, temperature: info_nce(cls, hidden[:, 0], temperature=temperature),
    "opt3": _opt3,
    "opt2-released": _opt2_released,
}


def anchored_l2(parameters: Mapping[str, Tensor], initial: Mapping[str, Tensor]) -> Tensor:
    """Compute the summed squared distance of all parameters from their initial values.

    This is the regulariser of self-guided contrastive learning (Kim et al., 2021). It is no mean
    and has no factor; the paper multiplies it by 0.1. At the start of the training it is 0, and so
    is its gradient. Frozen parameters add 0.

    Args:
        parameters: The parameters of the trained encoder by name.
        initial: Their values at the start of the training by name.
    """
    # A subtraction would store the differences, as large as the whole model, for the backward
    # pass; ``mse_loss`` stores none.
    squared_distance = functools.partial(F.mse_loss, reduction="sum")
    distances = [
        squared_distance(_at_least_float32(parameter), _at_least_float32(initial[name].detach()))
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
"""Functions from the embeddings of both sentences of pairs, (b, d) each, by the feature's name."""

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
    """Return the names of pair features: those of a preset, or the given names after a check.

    A pair feature makes one vector (d,) of the embeddings u and v of a pair, for example their
    product or difference; the vectors of all features are the inputs of a classifier.

    Args:
        kinds: The name of a preset, or the names of features.

    Raises:
        UnknownName: There is no such preset or feature.
        StsbenchError: The list is empty.
    """
    # A string is always the name of a preset, even if there is a feature of that name.
    if isinstance(kinds, str):
        if kinds not in PAIR_FEATURES:
            hint = f"known: {', '.join(PAIR_FEATURES)}, or a list of {', '.join(_FEATURES)}"
            raise UnknownName("pair features", kinds, PAIR_FEATURES, hint=hint)
        return PAIR_FEATURES[kinds]
    if not kinds:
        raise StsbenchError(f"no pair features; name some of {', '.join(_FEATURES)}")
    # Only the check: it raises UnknownName.
    for kind in kinds:
        look_up("pair feature", kind, _FEATURES)
    return tuple(kinds)


def pair_features(u: Tensor, v: Tensor, kinds: str | Sequence[str]) -> Tensor:
    """Return the features of sentence pairs, such as u * v or |u - v|, as inputs of a classifier.

    Args:
        u: The embeddings of the first sentences, (b, d).
        v: The embeddings of the second sentences, (b, d).
        kinds: The name of a preset of k features, or the names of k features.

    Returns:
        The features one after the other, (b, k * d).

    Raises:
        UnknownName: There is no such preset or feature.
        StsbenchError: The list is empty.
    """
    check_equal_shapes(u=u, v=v)
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
    """Make a loss of the library sentence-transformers, to be called by :func:`library_loss`.

    Such a loss embeds sentences itself, by a model. Here the model is a :class:`GivenEmbeddings`,
    which is called with embeddings, computed before, and returns them unchanged.

    Args:
        name: The name of the loss's class.
        values: Further positional arguments of the class, after the model.
        column: Which embeddings the model returns: ``sentence_embedding`` for those of the column
            of sentences it is called with, or ``1``, ``2`` for always those of the first, second
            column.
        options: Named arguments of the class.

    Returns:
        The loss, an object of the library.
    """
    from sentence_transformers.sentence_transformer import losses

    return getattr(losses, name)(GivenEmbeddings(column), *values, **options)


@in_float32
def library_loss(loss: Any, *embeddings: Tensor, labels: Tensor | None = None) -> Tensor:  # noqa: ANN401 - untyped
    """Compute a loss of sentence-transformers, a scalar, from embeddings instead of sentences.

    Args:
        loss: The loss that :func:`make_loss` has returned.
        embeddings: The embeddings of each column of sentences, (b, d) each: first sentences,
            second sentences, and so on.
        labels: The labels or scores (b,); None if the loss uses none.
    """
    # The models of the loss return one of the tensors of a column, by its name. A loss with two
    # models lets both embed the same column. So that the second model can return other embeddings,
    # each column also holds those of all columns, by their numbers from "1" on.
    embeddings_by_number = {str(number): tensor for number, tensor in enumerate(embeddings, 1)}
    check_equal_shapes(**embeddings_by_number)
    columns = [{"sentence_embedding": tensor, **embeddings_by_number} for tensor in embeddings]
    value: Tensor = loss(columns, labels)
    return value
