"""What a training of its own goes on from after it was stopped: one file, whole or not there."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from stsbench.encoders.unfinished import STATE
from stsbench.errors import TrainingError, one_line
from stsbench.files.whole import write_whole


@dataclass(frozen=True)
class TrainingState:
    """All that a training changes: tensors by name, in place, and the optimiser's own."""

    tensors: Mapping[str, torch.Tensor]
    optimiser: torch.optim.Optimizer | None = None

    def state(self) -> dict[str, torch.Tensor]:
        """Everything by name, and where the generator stands."""
        found = {f"learnt.{name}": tensor.detach() for name, tensor in self.tensors.items()}
        own = self.optimiser.state_dict()["state"] if self.optimiser else {}
        for number, values in own.items():
            found |= {f"optimiser.{number}.{key}": value for key, value in values.items() if value is not None}
        return {**found, "random": torch.get_rng_state()}

    def rates(self) -> list[float]:
        """The learning rate of each of the optimiser's groups."""
        return [group["lr"] for group in self.optimiser.param_groups] if self.optimiser else []

    def restore(self, state: Mapping[str, torch.Tensor], rates: Sequence[float]) -> None:
        """Put everything back."""
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(state[f"learnt.{name}"])
        if self.optimiser:
            own: dict[int, dict[str, torch.Tensor]] = {}
            for name, value in state.items():
                if name.startswith("optimiser."):
                    _, number, key = name.split(".", 2)
                    own.setdefault(int(number), {})[key] = value
            self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": own})
            for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
                group["lr"] = rate
        torch.set_rng_state(state["random"])


def write_state(folder: Path, learnt: TrainingState, *, rounds: Sequence[Any], best: float | None) -> None:
    """Write all that is learnt, and the rounds so far."""
    facts = {"rounds": [asdict(one) for one in rounds], "best": best, "rates": learnt.rates()}
    write_whole(folder / STATE, save(learnt.state(), {"facts": json.dumps(facts)}))


def read_state(folder: Path, learnt: TrainingState) -> dict[str, Any] | None:
    """Put back what was written last and return its rounds and best; None where nothing was.

    Raises:
        TrainingError: it is another training's: the text is another, or a size.
    """
    if not (folder / STATE).is_file():
        return None
    try:
        with safe_open(folder / STATE, framework="pt") as stored:
            facts: dict[str, Any] = json.loads(stored.metadata()["facts"])
            state = {name: stored.get_tensor(name) for name in stored.keys()}
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise TrainingError(
            f"{folder / STATE}: cannot be read: {one_line(error)}; pass --fresh to train again"
        ) from error
    for name, tensor in learnt.tensors.items():
        if f"learnt.{name}" not in state or state[f"learnt.{name}"].shape != tensor.shape:
            raise TrainingError(f"{folder}: its checkpoint is of another training; pass --fresh to train again")
    learnt.restore(state, facts["rates"])
    return facts


def forget_state(folder: Path) -> None:
    """Remove what was written, where anything was."""
    shutil.rmtree((folder / STATE).parent, ignore_errors=True)


def count_learnt(folder: Path) -> int:
    """How many numbers are learnt, by what was written last."""
    with safe_open(folder / STATE, framework="pt") as stored:
        names = [name for name in stored.keys() if name.startswith("learnt.")]
        return sum(math.prod(stored.get_slice(name).get_shape()) for name in names)
