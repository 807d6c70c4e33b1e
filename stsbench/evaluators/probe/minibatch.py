"""SentEval's classifier: its settings, its grid search, its early stopping, and its linear form in compiled loops.

Source: SentEval (arXiv 1803.05449), README and ``senteval/tools`` at 5d6dc11 (2020-09-25).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import StsbenchError, look_up
from stsbench.encoders.base import FloatArray, IndexArray
from stsbench.evaluators.base import NonNegativeInt, PositiveInt
from stsbench.evaluators.probe.items import (
    EpochOrders,
    ProbeItems,
    ProbeProtocol,
    ProbeRun,
    SearchResult,
    Solver,
    starting_weights,
)

Decays = Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class MinibatchSettings(ProbeProtocol, ABC):
    """SentEval's classifier: minibatch training stopped early on development accuracy.

    ``weight_decays`` is the L2 grid in the order tried (the first best wins); it is added to the gradient, not
    decoupled. ``tenacity`` counts every check without a better accuracy, never reset: training ends at failure
    ``tenacity + 1``. A check comes every ``epoch_size`` passes over the data, the last one after the first check beyond
    ``max_epochs``. ``holdout`` is the share of the training data drawn to stop the final classifier where a task has no
    validation split. ``loss``: 2018's torch summed over the batch, today's averages and ignores the toolkit's wish.
    """

    optimiser: str = "adam"
    batch_size: PositiveInt = 64
    tenacity: NonNegativeInt = 5
    epoch_size: PositiveInt = 4
    max_epochs: NonNegativeInt = 200
    nhid: NonNegativeInt = 0
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    loss: Literal["mean", "sum"] = "mean"
    weight_decays: Decays = (1e-5, 1e-4, 1e-3, 1e-2)
    holdout: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    rounding: NonNegativeInt | None = 2

    def __post_init__(self) -> None:
        """Refuse an optimiser that does not exist."""
        parse_optimiser(self.optimiser)


OPTIMISERS: dict[str, dict[str, float]] = {
    "adam": {"lr": 1e-3},
    "rmsprop": {"lr": 1e-2},
    "sgd": {"lr": float("nan"), "momentum": 0.0},
}
"""The settings of each optimiser that may be changed; all else is torch's default."""


def parse_optimiser(text: str) -> tuple[str, dict[str, float]]:
    """Read the toolkit's notation, ``"adam"`` or ``"sgd,lr=0.1,momentum=0.9"``; blanks do for commas.

    Raises UnknownName: an optimiser or a setting that does not exist here; StsbenchError: a setting that is no number,
    or ``sgd`` without ``lr``.
    """
    name, *given = text.replace(",", " ").split() or [""]
    settings = dict(look_up("optimiser", name, OPTIMISERS))
    for setting in given:
        key, _, value = setting.partition("=")
        look_up(f"setting of optimiser '{name}'", key, settings)
        try:
            settings[key] = float(value)
        except ValueError:
            raise StsbenchError(f"optimiser '{text}': '{value}' is not a number") from None
    if not settings["lr"] > 0:
        raise StsbenchError(
            f"optimiser '{text}' needs a learning rate above 0, such as '{name},lr=0.1'"
        )
    return name, settings


@dataclass(frozen=True)
class Fold:
    """What classifiers are trained on, what stops them, the order of their batches, and the weight decay of each."""

    train: ProbeItems
    development: ProbeItems
    orders: EpochOrders
    decays: Sequence[float]


@dataclass
class TrainedClassifier:
    """A classifier at its best check: ``accuracy`` on the development items, ``epochs`` trained in all."""

    weights: Any = None
    accuracy: float = -np.inf
    epochs: int = 0
    failures: int = 0


class ClassifierTraining(Protocol):
    """Classifiers that take their steps together."""

    members: npt.NDArray[np.int64]
    """Their numbers, (m,)."""

    def train(self, epochs: range) -> None:
        """Train through these epochs."""

    def accuracies(self) -> npt.NDArray[np.float64]:
        """How good each now is on its development items, (m,)."""

    def weights_at(self, place: int) -> Any:  # noqa: ANN401 - whatever its solver predicts with
        """A copy of the weights of the member at this place."""

    def keep(self, stay: npt.NDArray[np.bool_]) -> None:
        """Train on with these, (m,); others may stay where they cost nothing."""


def train_until_stopped(
    training: ClassifierTraining, protocol: MinibatchSettings
) -> list[TrainedClassifier]:
    """Train members 0..m-1 until each has failed to improve too often, or all epochs are over."""
    found = [TrainedClassifier() for _ in training.members]
    epochs = 0
    # The toolkit tests before each check: the last check comes after max_epochs, not at it.
    while len(training.members) and epochs <= protocol.max_epochs:
        training.train(range(epochs, epochs + protocol.epoch_size))
        epochs += protocol.epoch_size
        members = [found[number] for number in training.members]
        for place, (one, accuracy) in enumerate(zip(members, training.accuracies(), strict=True)):
            if one.failures > protocol.tenacity:
                continue
            one.epochs = epochs
            if accuracy > one.accuracy:
                one.weights, one.accuracy = training.weights_at(place), float(accuracy)
            else:
                one.failures += 1
        training.keep(np.array([one.failures <= protocol.tenacity for one in members]))
    return found


class MinibatchSolver(Solver, ABC):
    """Early-stopped classifiers over the grid of weight decays, all from the same first weights, drawn from the seed."""

    def __init__(self, protocol: MinibatchSettings, run: ProbeRun) -> None:
        """Keep the settings."""
        self.protocol, self.run, self.seed = protocol, run, protocol.base_seed + run.seed
        self._orders: dict[tuple[int, float], EpochOrders] = {}

    @abstractmethod
    def fit(self, folds: Sequence[Fold]) -> list[list[TrainedClassifier]]:
        """Train one classifier a fold and weight decay of it."""

    def search(self, folds: Sequence[tuple[ProbeItems, ProbeItems]]) -> SearchResult:
        """Train a classifier a fold and weight decay, each stopped by its fold's development items."""
        decays = self.protocol.weight_decays
        found = self.fit(
            [Fold(train, dev, self._orders_of(len(train), 0.0), decays) for train, dev in folds]
        )
        return SearchResult(
            np.array([[one.accuracy for one in row] for row in found]), [list(row) for row in found]
        )

    def refit(
        self, trains: Sequence[ProbeItems], choices: Sequence[int]
    ) -> list[TrainedClassifier]:
        """Train on all items but a share drawn to stop the training."""
        folds = []
        for rows, choice in zip(trains, choices, strict=True):
            orders = self._orders_of(len(rows), self.protocol.holdout)
            kept, held_out = (
                rows.select(orders.training_items),
                rows.select(orders.validation_items),
            )
            folds.append(Fold(kept, held_out, orders, [self.protocol.weight_decays[choice]]))
        return [row[0] for row in self.fit(folds)]

    def _orders_of(self, n: int, holdout: float) -> EpochOrders:
        # One stream, shared by all classifiers of that size.
        if (n, holdout) not in self._orders:
            self._orders[n, holdout] = EpochOrders(self.seed, n, holdout=holdout)
        return self._orders[n, holdout]


_LOCKSTEP_ROWS = 64
"""Weight rows trained in lockstep at most, so that they stay in the core's own cache."""
_NOT_SOFT = np.empty((0, 0), dtype=np.float32)


class CompiledSolver(MinibatchSolver):
    """Linear classifiers in compiled loops on the CPU's cores."""

    def __init__(self, protocol: MinibatchSettings, run: ProbeRun) -> None:
        """Draw the first weights, (c, w)."""
        super().__init__(protocol, run)
        self._cancelled = threading.Event()
        self._start = starting_weights(self.seed, run.width, run.classes)

    def fit(self, folds: Sequence[Fold]) -> list[list[TrainedClassifier]]:
        """Train one classifier a fold and weight decay of it."""
        total = sum(len(fold.decays) for fold in folds)
        step = max(1, min(_LOCKSTEP_ROWS // len(self._start), -(-total // self.run.threads)))
        jobs = [
            replace(fold, decays=fold.decays[at : at + step])
            for fold in folds
            for at in range(0, len(fold.decays), step)
        ]
        with ThreadPoolExecutor(self.run.threads) as pool:
            try:
                found = chain.from_iterable(list(pool.map(self._fit_lockstep, jobs)))
            except (
                BaseException
            ):  # Ctrl-C too: running jobs end with their epoch, waiting ones never start
                self._cancelled.set()
                raise
        return [list(islice(found, len(fold.decays))) for fold in folds]

    def _fit_lockstep(self, fold: Fold) -> list[TrainedClassifier]:
        return train_until_stopped(
            Lockstep(fold, self._start, self.protocol, self._cancelled), self.protocol
        )

    def predict(self, classifier: TrainedClassifier, rows: ProbeItems) -> IndexArray:
        """The class of each item, (m,)."""
        return np.asarray(_classes(classifier.weights[None], rows)[0])


class Lockstep:
    """Classifiers of one fold that differ in weight decay alone: they see the same batches."""

    def __init__(
        self, fold: Fold, start: FloatArray, protocol: MinibatchSettings, cancelled: threading.Event
    ) -> None:
        """Start all from the same weights, (c, w)."""
        self.fold, self.protocol, self.cancelled = fold, protocol, cancelled
        self.optimiser, self.settings = parse_optimiser(protocol.optimiser)
        self.decay = np.array(fold.decays, dtype=np.float32)
        self.members, self.steps = np.arange(len(self.decay)), 0
        self.weights = np.repeat(start[None], len(self.decay), axis=0)
        self.first, self.second = np.zeros_like(self.weights), np.zeros_like(self.weights)

    def train(self, epochs: range) -> None:
        """Train through these epochs."""
        from stsbench.evaluators.probe import kernels

        batch, kind = self.protocol.batch_size, kernels.FEATURE_CODES[self.fold.train.pool.features]
        for epoch in epochs:
            if self.cancelled.is_set():
                raise CancelledError
            for block in self.fold.train.select(self.fold.orders.permutation(epoch)).blocks(
                multiple_of=batch
            ):
                labels, targets = (
                    (block.labels, _NOT_SOFT)
                    if block.labels.ndim == 1
                    else (block.rows, block.labels)
                )
                self.steps = kernels.train_classifiers(
                    block.u, block.v, kind, block.rows, labels, targets, batch,
                    self.weights, self.first, self.second, self.decay,
                    kernels.OPTIMISERS[self.optimiser], self.settings["lr"], self.settings.get("momentum", 0.0),
                    self.steps, self.protocol.loss == "sum",
                )  # fmt: skip

    def accuracies(self) -> npt.NDArray[np.float64]:
        """The share of development items that each has right, (m,)."""
        return np.asarray(
            (_classes(self.weights, self.fold.development) == self.fold.development.labels).mean(
                axis=1
            )
        )

    def weights_at(self, place: int) -> FloatArray:
        """A copy of the weights at this place, (c, w)."""
        return np.array(self.weights[place])

    def keep(self, stay: npt.NDArray[np.bool_]) -> None:
        """Train on with these, (m,)."""
        if not stay.all():
            self.members, self.decay = self.members[stay], self.decay[stay]
            self.weights, self.first, self.second = (
                self.weights[stay],
                self.first[stay],
                self.second[stay],
            )


def _classes(weights: FloatArray, rows: ProbeItems) -> IndexArray:
    """The class each classifier (p, c, w) gives each item, (p, n)."""
    from stsbench.evaluators.probe import kernels

    parts = []
    for block in rows.blocks():
        classes = np.empty((len(weights), len(block.rows)), dtype=np.int64)
        kernels.predict(
            block.u,
            block.v,
            kernels.FEATURE_CODES[rows.pool.features],
            block.rows,
            weights,
            classes,
        )
        parts.append(classes)
    return np.concatenate(parts, axis=1)
