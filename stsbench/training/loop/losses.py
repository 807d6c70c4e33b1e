"""The losses of a run's batches, left where they are computed: a GPU is not waited for at each of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from stsbench.encoders.unfinished import last_checkpoint
from stsbench.errors import TrainingError

READ_EVERY = {"cpu": 1}
"""After so many batches their losses are read, by the kind of device; reading costs a CPU nothing."""
ELSEWHERE = 10


class Losses:
    """What was lost since the last validation, and the norms of gradients; all must be finite."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        """Nothing is lost yet in the run of this folder."""
        self.folder, self.every = folder, READ_EVERY.get(device.type, ELSEWHERE)
        self.last = math.nan
        """The newest that was read."""
        self._watched: list[dict[str, torch.Tensor]] = []
        self._unread: list[tuple[int, torch.Tensor]] = []

    def watch(self, losses: Mapping[str, torch.Tensor], *, step: int) -> None:
        """Take a batch's losses, without gradient, and the step that they are of; raises as :meth:`read`."""
        self._watched.append(dict(losses))
        self._unread.append((step, losses["loss"]))
        if len(self._unread) >= self.every:
            self.read()

    def watch_norm(self, gradient_norm: torch.Tensor) -> None:
        """Take the norm of the gradient of the step that the last batch ends."""
        self._watched[-1]["gradient_norm"] = gradient_norm

    def read(self) -> None:
        """Read what was not read yet: before weights are validated or written, they are known to be of finite losses.

        Raises:
            TrainingError: one is not finite; says at which step, and what was kept.
        """
        unread, self._unread = self._unread, []
        values = torch.stack([loss.float() for _, loss in unread]).tolist() if unread else []
        for (step, _), value in zip(unread, values, strict=True):
            if not math.isfinite(value):
                kept = last_checkpoint(self.folder)
                raise TrainingError(
                    f"the loss is {value} at step {step}; lower the learning rate or raise the "
                    f"temperature ({f'{kept} is complete' if kept else 'no checkpoint had been written yet'})"
                )
            self.last = value

    def means(self) -> dict[str, float]:
        """The mean of each since the last call."""
        watched, self._watched = self._watched, []
        means = {}
        for name in {name: None for one in watched for name in one}:
            found = [one[name].float() for one in watched if name in one]
            # Those of a checkpoint are on the CPU.
            values = torch.stack([value.to(found[-1].device) for value in found]).cpu()
            # A step in float16 whose gradient overflows is left out by the optimiser too.
            if (finite := values[values.isfinite()]).numel():
                means[name] = float(finite.mean())
        return means

    def state(self) -> list[dict[str, float]]:
        """All since the last validation as numbers, for a checkpoint."""
        return [{name: float(value) for name, value in losses.items()} for losses in self._watched]

    def restore(self, state: Sequence[Mapping[str, float]]) -> None:
        """Take them back."""
        self._watched = [{name: torch.tensor(value) for name, value in losses.items()} for losses in state]
        self.last = state[-1]["loss"] if state else math.nan
