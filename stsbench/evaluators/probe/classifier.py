"""What a classifier of probes is: its settings, the items it is trained on, and what trains it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from stsbench.encoders.seams import IndexArray
from stsbench.errors import StsbenchError
from stsbench.evaluators.probe.pool import Pool


@dataclass(frozen=True)
class ProbeItems:
    """Some items of a pool, in an order: their places ``at`` (m,) and ``labels`` (m,)."""

    pool: Pool
    at: IndexArray
    labels: IndexArray

    def __len__(self) -> int:
        """Number of items."""
        return len(self.at)

    def select(self, positions: IndexArray) -> ProbeItems:
        """The items at these positions."""
        return ProbeItems(self.pool, self.at[positions], self.labels[positions])


class Searched(NamedTuple):
    """What a search over the grid found: ``accuracy`` (folds, grid) on development items, and the classifiers."""

    accuracy: npt.NDArray[np.float64]
    classifiers: list[list[Any]]


class Solver(Protocol):
    """Trains classifiers over a grid of penalties."""

    def search(self, folds: Sequence[tuple[ProbeItems, ProbeItems]]) -> Searched:
        """Train a classifier a fold (training items, development items) and penalty."""
        ...

    def refit(self, trains: Sequence[ProbeItems], choices: Sequence[int]) -> list[Any]:
        """Train one final classifier on each of these, with the penalty of this place in the grid."""
        ...

    def predict(self, classifier: Any, rows: ProbeItems) -> IndexArray:  # noqa: ANN401 - what search and refit return
        """The class of each item, (m,)."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What a reader of the score must know of the training."""
        ...


class ProbeRun(NamedTuple):
    """One run of a probe: ``width`` features an item, ``classes``, the seed, and what of the machine it may use."""

    width: int
    classes: int
    seed: int
    device: str
    threads: int


@dataclass(frozen=True, kw_only=True)
class ProbeProtocol(ABC):
    """A classifier of probes with its settings: what every protocol fixes, and what trains it.

    Seeds: an evaluation with seed ``s`` is the toolkit's run with its seed set to ``base_seed + s``;
    seed 0 is the published one, 1111. The outer and inner folds of nested cross-validation stay at
    ``base_seed`` whatever the seed, as they do in the toolkit; those of k-fold tasks follow it.

    ``rounding`` is the number of decimals that accuracies in points are cut to wherever the toolkit does
    so: before penalties are compared and before folds are averaged. None: nothing is rounded, and the
    score is the share of all items right.
    """

    name: str
    kfold: int = 10
    base_seed: int = 1111
    data_order: Literal["length,label"] = "length,label"
    rounding: int | None = None

    def __post_init__(self) -> None:
        """Refuse invalid values, which a user may have asked for."""
        check_fields(self, {"kfold": self.kfold >= 2})

    @abstractmethod
    def solver(self, run: ProbeRun) -> Solver:
        """Return what trains this classifier. Heavy imports belong here: protocols are listed without them."""


def check_fields(protocol: ProbeProtocol, makes_sense: Mapping[str, bool]) -> None:
    """Refuse a protocol whose fields are not all as they must be; names the first.

    Raises:
        StsbenchError: a field that is not.
    """
    for name, good in makes_sense.items():
        if not good:
            raise StsbenchError(f"protocol '{protocol.name}': {name} = {getattr(protocol, name)!r} is invalid")
