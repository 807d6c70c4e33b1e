"""Minibatch training that stops early, several classifiers at once, whatever computes the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stsbench.encoders.seams import IndexArray
from stsbench.evaluators.probe.classifier import ProbeItems
from stsbench.evaluators.probe.draws import Orders
from stsbench.evaluators.probe.minibatch_settings import MinibatchSettings

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Fold:
    """What one classifier is trained on, what stops it, and the order of its batches."""

    train: ProbeItems
    dev: ProbeItems
    orders: Orders


@dataclass(frozen=True)
class TrainedClassifier:
    """A classifier at its best check: ``accuracy`` on the development items, ``epochs`` trained in all."""

    weights: Any
    accuracy: float
    epochs: int


class ClassifiersInTraining(Protocol):
    """The m classifiers that take their steps together, numbered 0..m-1."""

    def train(self, epochs: range) -> None:
        """Train through these epochs."""
        ...

    def correct(self) -> IndexArray:
        """Development items each classifier now has right, (m,); anything for one dropped before."""
        ...

    def remember(self, members: Mask) -> None:
        """Keep the present weights of these classifiers, (m,), as their best."""
        ...

    def drop(self, members: Mask) -> None:
        """Train these no longer, (m,)."""
        ...

    def best(self, member: int) -> Any:  # noqa: ANN401 - whatever its trainer predicts with
        """The weights last remembered."""
        ...


class MinibatchTrainer(Protocol):
    """Trains and applies classifiers of one shape, all from the same first weights."""

    def fit(self, folds: Sequence[Fold], decays: Sequence[Sequence[float]]) -> list[list[TrainedClassifier]]:
        """Train one classifier a fold and weight decay; ``decays`` holds those of each fold."""
        ...

    def predict(self, trained: TrainedClassifier, rows: ProbeItems) -> IndexArray:
        """The class of each item, (m,)."""
        ...


def train_until_stopped(
    classifiers: ClassifiersInTraining, dev_sizes: Sequence[int], protocol: MinibatchSettings
) -> list[TrainedClassifier]:
    """Train until each classifier has failed to improve too often, or all epochs are over.

    Args:
        classifiers: numbered 0..m-1.
        dev_sizes: number of development items of each classifier, (m,).
        protocol: gives epochs a check, tenacity, most epochs.
    """
    members = len(dev_sizes)
    best, failures, ended = (np.full(members, start) for start in (-1, 0, 0))
    alive = np.ones(members, dtype=bool)
    epochs = 0
    # The toolkit tests before each check: the last check comes after max_epochs, not at it.
    while alive.any() and epochs <= protocol.max_epochs:
        classifiers.train(range(epochs, epochs + protocol.epoch_size))
        epochs += protocol.epoch_size
        ended[alive] = epochs
        correct = classifiers.correct()
        improved = alive & (correct > best)
        best[improved] = correct[improved]
        classifiers.remember(improved)
        failures += alive & ~improved
        stopped = alive & (failures > protocol.tenacity)
        classifiers.drop(stopped)
        alive &= ~stopped
    return [TrainedClassifier(classifiers.best(m), int(best[m]) / dev_sizes[m], int(ended[m])) for m in range(members)]
