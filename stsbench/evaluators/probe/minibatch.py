"""The settings of SentEval's classifier, and its notation of optimisers.

Source: SentEval (arXiv 1803.05449), README and ``senteval/tools`` at 5d6dc11 (2020-09-25).
"""

from __future__ import annotations

import threading
from abc import ABC
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import StsbenchError, UnknownName
from stsbench.encoders.base import FloatArray, IndexArray
from stsbench.evaluators.probe.items import Orders, ProbeItems, ProbeProtocol
from stsbench.evaluators.seams import Count, FromZero

Decays = Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class MinibatchSettings(ProbeProtocol, ABC):
    """SentEval's classifier: minibatch training stopped early on development accuracy.

    ``weight_decays`` is the L2 grid in the order tried (the first best wins); it is added to the
    gradient, not decoupled. ``tenacity`` counts every check without a better accuracy, never reset:
    training ends at failure ``tenacity + 1``. A check comes every ``epoch_size`` passes over the
    data, the last one after the first check beyond ``max_epochs``. ``holdout`` is the share of the
    training data drawn to stop the final classifier where a task has no validation split.
    ``loss``: 2018's torch summed over the batch, today's averages and ignores the toolkit's wish.
    """

    optimiser: str = "adam"
    batch_size: Count = 64
    tenacity: FromZero = 5
    epoch_size: Count = 4
    max_epochs: FromZero = 200
    nhid: FromZero = 0
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    loss: Literal["mean", "sum"] = "mean"
    weight_decays: Decays = (1e-5, 1e-4, 1e-3, 1e-2)
    holdout: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    rounding: int | None = 2

    def __post_init__(self) -> None:
        """Refuse an optimiser that does not exist."""
        parse_optimiser(self.optimiser)


class Optimiser(NamedTuple):
    """An optimiser and its settings; all else is torch's default."""

    name: Literal["adam", "rmsprop", "sgd"]
    learning_rate: float
    momentum: float = 0.0


_DEFAULTS: dict[str, Optimiser] = {
    "adam": Optimiser("adam", 1e-3),
    "rmsprop": Optimiser("rmsprop", 1e-2),
    "sgd": Optimiser("sgd", float("nan")),
}


def parse_optimiser(text: str) -> Optimiser:
    """Read the toolkit's notation, ``"adam"`` or ``"sgd,lr=0.1,momentum=0.9"``; blanks do for commas.

    Raises:
        UnknownName: an optimiser or a setting that does not exist here.
        StsbenchError: a setting that is no number, or ``sgd`` without ``lr``.
    """
    name, *settings = text.replace(",", " ").split() or [""]
    if name not in _DEFAULTS:
        raise UnknownName("optimiser", name, _DEFAULTS)
    optimiser = _DEFAULTS[name]
    known = ["lr", "momentum"] if name == "sgd" else ["lr"]
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in known:
            raise UnknownName(f"setting of optimiser '{name}'", key, known)
        try:
            number = float(value)
        except ValueError:
            raise StsbenchError(f"optimiser '{text}': '{value}' is not a number") from None
        optimiser = optimiser._replace(learning_rate=number) if key == "lr" else optimiser._replace(momentum=number)
    if not optimiser.learning_rate > 0:
        raise StsbenchError(f"optimiser '{text}' needs a learning rate above 0, such as '{name},lr=0.1'")
    return optimiser


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


_LOCKSTEP_ROWS = 64
"""Weight rows trained in lockstep at most, so that they stay in the core's own cache."""


class CompiledTrainer:
    """Trains linear classifiers with compiled loops on the CPU's cores."""

    def __init__(self, protocol: MinibatchSettings, *, seed: int, width: int, classes: int, threads: int) -> None:
        """Draw the first weights, those of every classifier: (c, w)."""
        from stsbench.evaluators.probe.kernels import starting_weights

        self.protocol, self.threads = protocol, threads
        self._cancelled = threading.Event()
        self.start = starting_weights(seed, width, classes)

    def fit(self, folds: Sequence[Fold], decays: Sequence[Sequence[float]]) -> list[list[TrainedClassifier]]:
        """Train one classifier a fold and weight decay."""
        total = sum(map(len, decays))
        step = max(1, min(_LOCKSTEP_ROWS // len(self.start), -(-total // self.threads)))
        jobs = [
            (fold, fold_decays[at : at + step])
            for fold, fold_decays in zip(folds, decays, strict=True)
            for at in range(0, len(fold_decays), step)
        ]
        with ThreadPoolExecutor(self.threads) as pool:
            futures = [pool.submit(self._fit_lockstep, *job) for job in jobs]
            try:
                for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                    future.result()
            except BaseException:  # Ctrl-C too: running jobs end with their epoch, waiting ones never start
                self._cancelled.set()
                pool.shutdown(cancel_futures=True)
                raise
        found = iter(futures)
        return [[t for _ in range(0, len(own), step) for t in next(found).result()] for own in decays]

    def _fit_lockstep(self, fold: Fold, decays: Sequence[float]) -> list[TrainedClassifier]:
        classifiers = _Lockstep(fold, decays, self.start, self.protocol, self._cancelled)
        return train_until_stopped(classifiers, [len(fold.dev)] * len(decays), self.protocol)

    def predict(self, trained: TrainedClassifier, rows: ProbeItems) -> IndexArray:
        """The class of each item, (m,)."""
        classes: IndexArray = _predict(trained.weights[None], rows)[0]
        return classes


class _Lockstep:
    """Classifiers of one fold that differ in weight decay alone: they see the same batches."""

    def __init__(
        self,
        fold: Fold,
        decays: Sequence[float],
        start: FloatArray,
        protocol: MinibatchSettings,
        cancelled: threading.Event,
    ) -> None:
        self.cancelled = cancelled
        self.fold, self.protocol, self.optimiser = fold, protocol, parse_optimiser(protocol.optimiser)
        self.members = np.arange(len(decays))
        self.weights = np.repeat(start[None], len(decays), axis=0)
        self.first, self.second = np.zeros_like(self.weights), np.zeros_like(self.weights)
        self.decay = np.array(decays, dtype=np.float32)
        self.remembered = self.weights.copy()
        self.steps = 0

    def train(self, epochs: range) -> None:
        from stsbench.evaluators.probe import kernels

        batch = self.protocol.batch_size
        for epoch in epochs:
            if self.cancelled.is_set():
                raise CancelledError
            rows = self.fold.train.select(self.fold.orders.epoch(epoch))
            done = 0
            for block in rows.pool.blocks(rows.at, multiple_of=batch):
                labels = rows.labels[done : done + len(block.rows)]
                done += len(block.rows)
                self.steps = kernels.train_classifiers(
                    block.u, block.v, kernels.KINDS[rows.pool.features], block.rows, labels, batch,
                    self.weights, self.first, self.second, self.decay,
                    kernels.OPTIMISERS[self.optimiser.name], self.optimiser.learning_rate, self.optimiser.momentum,
                    self.steps, self.protocol.loss == "sum",
                )  # fmt: skip

    def correct(self) -> IndexArray:
        found = np.zeros(len(self.remembered), dtype=np.int64)
        found[self.members] = (_predict(self.weights, self.fold.dev) == self.fold.dev.labels).sum(axis=1)
        return found

    def remember(self, members: Mask) -> None:
        here = members[self.members]
        self.remembered[self.members[here]] = self.weights[here]

    def drop(self, members: Mask) -> None:
        stay = ~members[self.members]
        if not stay.all():
            self.members, self.decay = self.members[stay], self.decay[stay]
            self.weights, self.first, self.second = self.weights[stay], self.first[stay], self.second[stay]

    def best(self, member: int) -> FloatArray:
        weights: FloatArray = self.remembered[member]
        return weights


def _predict(weights: FloatArray, rows: ProbeItems) -> IndexArray:
    """The class each classifier (p, c, w) gives each item, (p, n)."""
    from stsbench.evaluators.probe import kernels

    parts = []
    for block in rows.pool.blocks(rows.at):
        classes = np.empty((len(weights), len(block.rows)), dtype=np.int64)
        kernels.predict(block.u, block.v, kernels.KINDS[rows.pool.features], block.rows, weights, classes)
        parts.append(classes)
    return np.concatenate(parts, axis=1)
