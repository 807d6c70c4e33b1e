"""Processes that train together: their ranks, and their tensors joined, with exact gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather

from stsbench.encoders.accelerator import resolve_device_name


def gather_over_ranks(local: torch.Tensor) -> torch.Tensor:
    """Join the rows of all training processes (ranks), in rank order; a single one gets its own.

    Each rank can then compute the loss of the joined batch. Gradients flow back through the joining
    to the rank that made a row, and are summed there: so the average over the ranks, which torch's
    DistributedDataParallel takes, is the gradient of one process with the joined batch.

    Args:
        local: This rank's rows, (b, …); every rank must have the same b.

    Returns:
        The rows of all ranks, (ranks * b, …).
    """
    if not has_many_ranks():
        return local
    return torch.cat(all_gather(local.contiguous()))  # type: ignore[no-untyped-call]


def gather_pairs(local: torch.Tensor, views: int) -> list[torch.Tensor]:
    """Split the rows of this training process (rank) into views, and join each over all ranks.

    A view is one of the forms in which each of b sentences was embedded, for example with another
    dropout mask.

    Args:
        local: This rank's rows (views * b, …): the b rows of one view, then those of the next.
        views: The number of views.

    Returns:
        The rows of each view, (ranks * b, …) each.
    """
    return [gather_over_ranks(view) for view in local.chunk(views)]


def rows_of_this_rank(joined: torch.Tensor) -> torch.Tensor:
    """Return this rank's rows (b, …) of rows (ranks * b, …) joined by :func:`gather_over_ranks`."""
    return joined.chunk(dist.get_world_size())[dist.get_rank()] if has_many_ranks() else joined


def mean_over_ranks(total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Return the mean of values over all training processes (ranks), a scalar; 0 without values.

    Every rank returns the same mean. The gradient of a rank's result is scaled so that the average
    of these gradients over the ranks, which torch's DistributedDataParallel takes, is the gradient
    of the mean.

    Args:
        total: The sum of this rank's values, a scalar.
        count: The number of this rank's values, a scalar.
    """
    if not has_many_ranks():
        return total / count.clamp(min=1)
    joint_sums = torch.stack([total.detach().double(), count.double()])
    # In place: each rank then has the sums over all ranks.
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
            device: The device of this process; ``auto`` leaves the choice to the library
                accelerate.
        """
        from accelerate import PartialState

        # On CPUs the library connects processes only on request. ``auto`` is resolved to the device
        # that was set for this process, else to its accelerator, else to "cpu".
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
        """Return the first process's proposal in every process; a single one gets its own.

        Proposals may differ, for example because each process has its own clock; but all processes
        must decide alike, whether to save or stop. Every process must call this method.

        Args:
            proposal: The decision that this process would take alone.
        """
        if self.ranks == 1:
            return proposal
        first_proposal = torch.tensor([proposal], dtype=torch.uint8, device=self.device)
        dist.broadcast(first_proposal, 0)
        return bool(first_proposal.item())

    def wait(self) -> None:
        """Wait until all processes have called this method."""
        self._state.wait_for_everyone()
