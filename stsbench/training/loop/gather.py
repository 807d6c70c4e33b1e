"""Processes that train together: which is which, and their tensors as one, with exact gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather


def gather_views(local: torch.Tensor) -> torch.Tensor:
    """Join the rows of all ranks in rank order: (b, …) to (ranks * b, …); alone, the tensor itself.

    Every rank must have the same b. Each computes the loss of the joined batch; the gradients it sends back to the
    others are summed, and what DistributedDataParallel averages is the gradient of one process with the joined batch.
    """
    return torch.cat(all_gather(local.contiguous())) if many_ranks() else local  # type: ignore[no-untyped-call]


def gather_pairs(local: torch.Tensor, views: int) -> list[torch.Tensor]:
    """Join over ranks the views that stand one below the other: (views * b, …) to one (ranks * b, …) a view."""
    return [gather_views(view) for view in local.chunk(views)]


def own_rows(joined: torch.Tensor) -> torch.Tensor:
    """This rank's rows of what :func:`gather_views` has joined: (ranks * b, …) to (b, …)."""
    return joined.chunk(dist.get_world_size())[dist.get_rank()] if many_ranks() else joined


def joint_mean(total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """The mean over all ranks of values whose local sum and number are given; 0 where there are none.

    Every rank has the same value. Its gradient is scaled so that the ranks' average is the mean's own.
    """
    if not many_ranks():
        return total / count.clamp(min=1)
    joint = torch.stack([total.detach().double(), count.double()])
    dist.all_reduce(joint)
    own = total * (dist.get_world_size() / joint[1].clamp(min=1)).to(total.dtype)
    mean = (joint[0] / joint[1].clamp(min=1)).to(total.dtype)
    return own + (mean - own).detach()


def many_ranks() -> bool:
    """Whether several processes train together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@dataclass(frozen=True)
class ProcessGroup:
    """A process among those that train together."""

    rank: int
    ranks: int
    device: str
    _state: Any = None

    @classmethod
    def find(cls, device: str = "auto") -> ProcessGroup:
        """Find this process's place; the first call joins it to the others."""
        from accelerate import PartialState

        # The library joins processes on CPUs only when asked to.
        state = PartialState(cpu=device == "cpu" or not torch.cuda.is_available())
        own = str(state.device) if device == "auto" else device
        return cls(int(state.process_index), int(state.num_processes), own, state)

    def agree(self, wish: bool) -> bool:
        """What the first process wishes, in all of them: each has a clock of its own, and all must take the same way."""
        if self.ranks == 1:
            return wish
        wished = torch.tensor([wish], dtype=torch.uint8, device=self.device)
        dist.broadcast(wished, 0)
        return bool(wished.item())

    def wait(self) -> None:
        """Wait for all the others to come here."""
        self._state.wait_for_everyone()
