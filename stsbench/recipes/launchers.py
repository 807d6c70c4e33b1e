"""Who carries out trainings: this process, or the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from stsbench.encoders.trained import TrainedRun
from stsbench.recipes.plan import TrainPlan
from stsbench.recipes.train import carry_out
from stsbench.registry.names import Registry

if TYPE_CHECKING:
    from stsbench.training.loop.selection import OnProgress


class CarryOut(Protocol):
    """Trains a recipe for one seed, see :func:`stsbench.recipes.train.carry_out`."""

    def __call__(self, plan: TrainPlan, *, on_progress: OnProgress) -> TrainedRun:
        """Return the run, of now or of before."""


Launcher = Callable[[str, int | None, Callable[[str], None]], AbstractContextManager[CarryOut]]
"""Given where it is to be (``ray://HOST:PORT``), how many devices train together (None: all), and what tells the
user a line; what it yields trains one plan after another."""


@contextmanager
def in_this_process(on: str, devices: int | None, noticed: Callable[[str], None]) -> Iterator[CarryOut]:
    """This process, or all those that ``torchrun`` has started."""
    yield carry_out


LAUNCHERS = Registry(
    "place of training",
    {"local": "stsbench.recipes.launchers:in_this_process", "ray": "stsbench.recipes.on_ray:launched_on_ray"},
    group="launchers",
    wanted="a context manager, see stsbench.recipes.launchers:Launcher",
)


def trained_on(on: str, devices: int | None, noticed: Callable[[str], None]) -> AbstractContextManager[CarryOut]:
    """The launcher that ``on`` names; ``name://address`` is the one of that name.

    Raises:
        UnknownName: there is none; offers the nearest.
    """
    launcher: Launcher = LAUNCHERS.load_at(on)
    return launcher(on, devices, noticed)
