"""Tensors of all ranks as one, with exact gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from stsbench.errors import CardError


class _Gather(torch.autograd.Function):
    """All ranks' tensors, one below the other; backwards, all ranks' gradients of the own one summed."""

    @staticmethod
    def forward(context: Any, local: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - torch names no type
        pieces = [torch.empty_like(local) for _ in range(dist.get_world_size())]
        dist.all_gather(pieces, local)
        context.rows = len(local)
        return torch.cat(pieces)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - as above
        (gradient,) = gradients
        # A copy: the gradient may be another one's too.
        summed = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed)
        start = dist.get_rank() * context.rows
        return summed[start : start + context.rows]


def gather_views(local: torch.Tensor) -> torch.Tensor:
    """Join the rows of all ranks in rank order: (b, …) to (ranks * b, …); alone, the tensor itself.

    Every rank must have the same b. Each rank then computes the loss of the joined batch; the
    gradients it sends back to the others are summed, and what DistributedDataParallel
    averages over ranks is the gradient that one process with the joined batch has.
    """
    if not _many():
        return local
    joined: torch.Tensor = _Gather.apply(local.contiguous())  # type: ignore[no-untyped-call]
    return joined


def check_negatives(rows: int) -> None:
    """Raise CardError where a batch of so many sentences has none that another is to be told apart from."""
    if rows < 2 and not _many():
        raise CardError("[training] batch_size 1: a sentence's negatives are the others of its batch; give 2 or more")


def gather_pairs(local: torch.Tensor, views: int) -> list[torch.Tensor]:
    """Join over ranks the views that stand one below the other: (views * b, …) to one (ranks * b, …) a view."""
    return [gather_views(view) for view in local.chunk(views)]


def own_rows(joined: torch.Tensor) -> torch.Tensor:
    """This rank's rows of what :func:`gather_views` has joined: (ranks * b, …) to (b, …)."""
    return joined.chunk(dist.get_world_size())[dist.get_rank()] if _many() else joined


def joint_mean(total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """The mean over all ranks of values whose local sum and number are given; 0 where there are none.

    Scaled so that the average over ranks of the gradients is the mean's own.
    """
    if _many():
        count = count.clone()
        dist.all_reduce(count)
        total = total * dist.get_world_size()
    return total / count.clamp(min=1)


def _many() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
