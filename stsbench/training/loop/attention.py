"""Attention over sentences laid end to end, on a CPU: in groups of like length, in few large products of matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.amp import custom_bwd, custom_fwd

from stsbench.training.loop.dropout import draw_kept
from stsbench.training.loop.parts import cheapest_cuts

GROUP_COST = 48
"""What a group more costs, in padded tokens: from 20 to 200 a step takes as long."""


def round_up(count: int) -> int:
    """A count that recurs, at most 3 % above: memory of a known size is had again, and a product of a known shape."""
    step = 1 << max(count.bit_length() - 6, 0)
    return -(-count // step) * step


class LengthGroup(NamedTuple):
    """Sentences whose attention is computed at once: rows of width, from a place among the rows of all groups on."""

    start: int
    rows: int
    width: int
    hidden: torch.Tensor | None
    """What is padding, bool (rows, 1, width); None: nothing."""

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """This group's part (rows, width, d) of the values (p, d) of all groups."""
        return values[self.start : self.start + self.rows * self.width].view(self.rows, self.width, -1)


class LengthGroups:
    """Where the heads of tokens laid end to end stand in groups of like length.

    Args:
        lengths: of the sentences (n,), falling.
        heads: of the attention, h.
        size: of tokens laid end to end, N: those after the sentences' own are of none.
    """

    def __init__(self, lengths: npt.NDArray[np.int64], heads: int, size: int) -> None:
        """Cut the sentences into groups, padded to P tokens."""
        first = np.cumsum(lengths) - lengths
        cuts = [*cheapest_cuts(lengths, GROUP_COST), len(lengths)]
        self.groups: list[LengthGroup] = []
        taken, real = [], []
        at = 0
        for begin, end in zip(cuts, cuts[1:], strict=False):
            columns = np.arange(lengths[begin])
            inside = columns < lengths[begin:end, None]
            tokens = np.where(inside, first[begin:end, None] + columns, 0)
            heads_of = tokens[:, None] * heads + np.arange(heads)[:, None]
            taken.append(heads_of.ravel())
            real.append(np.broadcast_to(inside[:, None], heads_of.shape).ravel())
            hidden = None if inside.all() else torch.from_numpy(np.repeat(~inside, heads, axis=0)[:, None])
            self.groups.append(LengthGroup(at, (end - begin) * heads, len(columns), hidden))
            at += heads_of.size
        where, is_real = np.concatenate(taken), np.concatenate(real)
        back = np.zeros(size * heads, dtype=np.int64)
        back[where[is_real]] = np.flatnonzero(is_real)
        self._own = int(is_real.sum())
        self._taken = torch.from_numpy(np.pad(where, (0, round_up(at) - at)))
        self._back = torch.from_numpy(back)

    def sort(self, values: torch.Tensor) -> torch.Tensor:
        """Values (N, h, d) of heads as those of all groups (P h, d); at padding stand any."""
        return values.reshape(-1, values.shape[-1]).index_select(0, self._taken)

    def sort_with_zeros(self, values: torch.Tensor) -> torch.Tensor:
        """The same with zeros at padding."""
        rows = values.reshape(-1, values.shape[-1])
        groups = rows.new_zeros((len(self._taken), rows.shape[1]))
        return groups.index_copy_(0, self._back[: self._own], rows[: self._own])

    def put_back(self, values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Values of all groups (P h, d) as those of heads, in their shape (N, h, d); zeros at tokens of no sentence."""
        rows = values.index_select(0, self._back)
        rows[self._own :] = 0
        return rows.view(shape)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    groups: LengthGroups,
    *,
    scale: float,
    rate: float = 0.0,
) -> torch.Tensor:
    """softmax(scale Q K^T) V of each sentence's own tokens, with dropout of the weights.

    Kept for the gradient are the weights of each sentence with itself, as torch keeps them where there is dropout, and a
    byte each for what was drawn.

    Args:
        query: (N, h, d), and so are key and value; under autocast taken in float32, which is as fast for small heads.
        key: as above.
        value: as above.
        groups: where the sentences are.
        scale: what scores are multiplied by.
        rate: of dropout.

    Returns:
        (N, h, d), zeros at tokens of no sentence.
    """
    result: torch.Tensor = _Attention.apply(query, key, value, groups, scale, rate)  # type: ignore[no-untyped-call]
    return result


class _Attention(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's own
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        groups: LengthGroups,
        scale: float,
        rate: float,
    ) -> torch.Tensor:
        q, k, v = (groups.sort(part) for part in (query, key, value))
        q.mul_(scale)
        result = torch.empty_like(q)
        weights, keeps = [], []
        for group in groups.groups:
            scores = torch.bmm(group.of(q), group.of(k).transpose(1, 2))
            if group.hidden is not None:
                scores.masked_fill_(group.hidden, torch.finfo(scores.dtype).min)
            share = torch.softmax(scores, dim=-1)
            keep, ctx.grown = draw_kept(scores.shape, rate) if rate else (None, 1.0)
            torch.bmm(_dropped(share, keep, ctx.grown), group.of(v), out=group.of(result))
            weights.append(share)
            keeps.append(keep)
        ctx.groups, ctx.scale = groups, scale
        ctx.save_for_backward(q, k, v, *weights, *keeps)
        return groups.put_back(result, query.shape)

    @staticmethod
    @custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401 - torch's own
        q, k, v, *rest = ctx.saved_tensors
        groups = ctx.groups.groups
        due = ctx.groups.sort_with_zeros(gradient)
        of_q, of_k, of_v = (torch.empty_like(part) for part in (q, k, v))
        for group, weights, keep in zip(groups, rest[: len(groups)], rest[len(groups) :], strict=True):
            used = _dropped(weights, keep, ctx.grown)
            torch.bmm(used.transpose(1, 2), group.of(due), out=group.of(of_v))
            of_used = torch.bmm(group.of(due), group.of(v).transpose(1, 2))
            of_weights = _dropped(of_used, keep, ctx.grown)
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            torch.bmm(of_scores, group.of(k), out=group.of(of_q))
            torch.bmm(of_scores.transpose(1, 2), group.of(q), out=group.of(of_k))
        of_q.mul_(ctx.scale)
        return *(ctx.groups.put_back(part, gradient.shape) for part in (of_q, of_k, of_v)), None, None, None


def _dropped(values: torch.Tensor, keep: torch.Tensor | None, grown: float) -> torch.Tensor:
    return values if keep is None else (values * keep).mul_(grown)
