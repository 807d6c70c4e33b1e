"""Processes that train together: their ranks, and their tensors joined, with exact gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather

from stsbench.encoders.accelerator import resolve_device_name


def gather_over_ranks(local: torch.Tensor) -> torch.Tensor:
    """Join the rows of all ranks in rank order: (b, …) to (ranks * b, …).

    A single process gets the tensor itself. Every rank must have the same b. Each computes the loss
    of the joined batch. The gradients that the ranks send each other are summed, and what
    DistributedDataParallel averages is the gradient of one process with the joined batch.
    """
    return torch.cat(all_gather(local.contiguous())) if has_many_ranks() else local  # type: ignore[no-untyped-call]


def gather_pairs(local: torch.Tensor, views: int) -> list[torch.Tensor]:
    """Split this rank's rows into views, and join each over all ranks, to (ranks * b, …).

    Args:
        local: This rank's rows (views * b, …): the b rows of one view, then those of the next.
        views: The number of views.
    """
    return [gather_over_ranks(view) for view in local.chunk(views)]


def rows_of_this_rank(joined: torch.Tensor) -> torch.Tensor:
    """Return this rank's rows (b, …) of rows (ranks * b, …) joined by :func:`gather_over_ranks`."""
    return joined.chunk(dist.get_world_size())[dist.get_rank()] if has_many_ranks() else joined


def mean_over_ranks(total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
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
    # Each rank then has the sums of all ranks.
    dist.all_reduce(joint_sums)
    joint_total, joint_count = joint_sums[0], joint_sums[1].clamp(min=1)
    scaled_total = total * (dist.get_world_size() / joint_count).to(total.dtype)
    mean = (joint_total / joint_count).to(total.dtype)
    # The value is ``mean``, as the difference is added without gradient; the gradient is that of
    # ``scaled_total``.
    return scaled_total + (mean - scaled_total).detach()


def has_many_ranks() -> bool:
    """Return whether several processes train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@dataclass(frozen=True)
class ProcessGroup:
    """This process among those that train together.

    Attributes:
        rank: The number of this process, from 0; process 0 writes the files.
        ranks: The number of processes.
        device: The device of this process.
    """

    rank: int
    ranks: int
    device: str
    _state: Any = None
    """The library's state, by which processes wait for each other."""

    @classmethod
    def find(cls, device: str = "auto") -> ProcessGroup:
        """Return this process with its rank; the first call connects it to the other processes.

        Args:
            device: The device of this process; ``auto`` leaves the choice to the library.
        """
        from accelerate import PartialState

        # On CPUs the library connects processes only on request.
        is_on_cpu = device == "cpu" or resolve_device_name("auto") == "cpu"
        state = PartialState(cpu=is_on_cpu)
        process_device = str(state.device) if device == "auto" else device
        return cls(
            rank=int(state.process_index),
            ranks=int(state.num_processes),
            device=process_device,
            _state=state,
        )

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
