"""Processes that train together: their ranks, and their tensors joined, with exact gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather


def gather_views(local: torch.Tensor) -> torch.Tensor:
    """Join the rows of all ranks in rank order: (b, …) to (ranks * b, …).

    A single process gets the tensor itself. Every rank must have the same b. Each computes the loss
    of the joined batch. The gradients that the ranks send each other are summed, and what
    DistributedDataParallel averages is the gradient of one process with the joined batch.
    """
    return torch.cat(all_gather(local.contiguous())) if has_many_ranks() else local  # type: ignore[no-untyped-call]


def gather_pairs(local: torch.Tensor, views: int) -> list[torch.Tensor]:
    """Join views over ranks, each to (ranks * b, …).

    The views (views * b, …) of this rank are one below the other.
    """
    return [gather_views(view) for view in local.chunk(views)]


def local_rows(joined: torch.Tensor) -> torch.Tensor:
    """Return this rank's rows (b, …) of rows (ranks * b, …) joined by :func:`gather_views`."""
    return joined.chunk(dist.get_world_size())[dist.get_rank()] if has_many_ranks() else joined


def joint_mean(total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Return the mean of values over all ranks; 0 if there are none.

    Every rank has the same value. Its gradient is scaled so that the average over the ranks is the
    gradient of the mean.

    Args:
        total: The sum of this rank's values.
        count: The number of this rank's values.
    """
    if not has_many_ranks():
        return total / count.clamp(min=1)
    joint_sums = torch.stack([total.detach().double(), count.double()])
    dist.all_reduce(joint_sums)
    scaled_total = total * (dist.get_world_size() / joint_sums[1].clamp(min=1)).to(total.dtype)
    mean = (joint_sums[0] / joint_sums[1].clamp(min=1)).to(total.dtype)
    return scaled_total + (mean - scaled_total).detach()


def has_many_ranks() -> bool:
    """Return whether several processes train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@dataclass(frozen=True)
class ProcessGroup:
    """This process among those that train together."""

    rank: int
    ranks: int
    device: str
    _state: Any = None

    @classmethod
    def find(cls, device: str = "auto") -> ProcessGroup:
        """Return this process with its rank; the first call joins it to the others."""
        from accelerate import PartialState

        # The library joins processes on CPUs only on request.
        state = PartialState(cpu=device == "cpu" or not torch.cuda.is_available())
        own_device = str(state.device) if device == "auto" else device
        return cls(int(state.process_index), int(state.num_processes), own_device, state)

    def agree(self, proposal: bool) -> bool:
        """Return the proposal of the first process, in all of them.

        Each process has a clock of its own, and all must go the same way.
        """
        if self.ranks == 1:
            return proposal
        first_proposal = torch.tensor([proposal], dtype=torch.uint8, device=self.device)
        dist.broadcast(first_proposal, 0)
        return bool(first_proposal.item())

    def wait(self) -> None:
        """Wait until all processes have called this method."""
        self._state.wait_for_everyone()
