"""Which of how many processes this is, and which device is its own; accelerate knows every launcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """A process among those that train together."""

    rank: int
    ranks: int
    device: str
    _state: Any = None

    @classmethod
    def find(cls, device: str = "auto") -> Place:
        """Find this process's place; the first call joins it to the others."""
        import torch
        from accelerate import PartialState

        # Without being told it is on CPUs alone, the library would not join processes there.
        state = PartialState(cpu=device == "cpu" or not torch.cuda.is_available())
        own = str(state.device) if device == "auto" else device
        return cls(int(state.process_index), int(state.num_processes), own, state)

    def agree(self, wish: bool) -> bool:
        """What the first process wishes, in all of them: each has a clock of its own, and all must take the same way."""
        if self.ranks == 1:
            return wish
        import torch

        told = torch.tensor([wish], dtype=torch.uint8, device=self.device)
        torch.distributed.broadcast(told, 0)
        return bool(told.item())

    def wait(self) -> None:
        """Wait for all the others to come here."""
        self._state.wait_for_everyone()
