"""Linear classifiers in compiled loops: one fold a task of the thread pool, its penalties in lockstep."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait

import numpy as np

from stsbench.encoders.seams import FloatArray, IndexArray
from stsbench.evaluators.probe import kernels
from stsbench.evaluators.probe.classifier import ProbeItems
from stsbench.evaluators.probe.draws import first_weights
from stsbench.evaluators.probe.minibatch_settings import MinibatchSettings, parse_optimiser
from stsbench.evaluators.probe.pool import BLOCKS
from stsbench.evaluators.probe.training import Fold, Mask, TrainedClassifier, train_until_stopped

_OPTIMISERS = {"adam": kernels.ADAM, "rmsprop": kernels.RMSPROP, "sgd": kernels.SGD}
_FEATURES = dict(zip(BLOCKS, (kernels.U, kernels.ABS_MUL, kernels.CONCAT_MUL_ABS), strict=True))
_LOCKSTEP_ROWS = 64
"""Weight rows trained in lockstep at most, so that they stay in the core's own cache."""


class CompiledTrainer:
    """Trains linear classifiers with compiled loops on the CPU's cores."""

    def __init__(self, protocol: MinibatchSettings, *, seed: int, width: int, classes: int, threads: int) -> None:
        """Draw the first weights, those of every classifier: (c, w)."""
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
                    block.u, block.v, _FEATURES[rows.pool.features], block.rows, labels, batch,
                    self.weights, self.first, self.second, self.decay,
                    _OPTIMISERS[self.optimiser.name], self.optimiser.learning_rate, self.optimiser.momentum,
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


def starting_weights(seed: int, width: int, classes: int) -> FloatArray:
    """The first weights with their biases in the column after them, padded with zeros as the loops want them."""
    (weight, bias), _ = first_weights(seed, (width, classes))
    start: FloatArray = np.zeros((classes, -(-(width + 1) // kernels.LANES) * kernels.LANES), dtype=np.float32)
    start[:, :width], start[:, width] = weight.numpy(), bias.numpy()
    return start


def _predict(weights: FloatArray, rows: ProbeItems) -> IndexArray:
    """The class each classifier (p, c, w) gives each item, (p, n)."""
    parts = []
    for block in rows.pool.blocks(rows.at):
        classes = np.empty((len(weights), len(block.rows)), dtype=np.int64)
        kernels.predict(block.u, block.v, _FEATURES[rows.pool.features], block.rows, weights, classes)
        parts.append(classes)
    return np.concatenate(parts, axis=1)
