"""SentEval's classifier: its grid search, on the trainer that suits the classifier and the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stsbench.encoders.seams import IndexArray
from stsbench.evaluators.probe.classifier import ProbeItems, ProbeRun, Searched, Solver
from stsbench.evaluators.probe.draws import Orders
from stsbench.evaluators.probe.minibatch_settings import MinibatchSettings
from stsbench.evaluators.probe.training import Fold, MinibatchTrainer, TrainedClassifier


class MinibatchSolver:
    """Early-stopped classifiers over the grid of weight decays."""

    def __init__(self, protocol: MinibatchSettings, trainer: MinibatchTrainer, *, seed: int) -> None:
        """Take the trainer, which holds the first weights drawn from the same seed."""
        self.protocol, self.trainer, self.seed = protocol, trainer, seed
        self._orders: dict[tuple[int, float], Orders] = {}

    def search(self, folds: Sequence[tuple[ProbeItems, ProbeItems]]) -> Searched:
        """Train a classifier a fold and weight decay, each stopped by its fold's development items."""
        jobs = [Fold(train, dev, self._orders_of(len(train), 0.0)) for train, dev in folds]
        found = self.trainer.fit(jobs, [self.protocol.weight_decays] * len(jobs))
        return Searched(np.array([[t.accuracy for t in row] for row in found]), [list(row) for row in found])

    def refit(self, trains: Sequence[ProbeItems], choices: Sequence[int]) -> list[TrainedClassifier]:
        """Train on all items but a share drawn to stop the training."""
        jobs = []
        for rows in trains:
            orders = self._orders_of(len(rows), self.protocol.holdout)
            jobs.append(Fold(rows.select(orders.kept), rows.select(orders.held_out), orders))
        found = self.trainer.fit(jobs, [(self.protocol.weight_decays[choice],) for choice in choices])
        return [row[0] for row in found]

    def predict(self, classifier: TrainedClassifier, rows: ProbeItems) -> IndexArray:
        """The class of each item, (m,)."""
        return self.trainer.predict(classifier, rows)

    def notes(self) -> tuple[str, ...]:
        """Nothing: early stopping always ends."""
        return ()

    def _orders_of(self, n: int, holdout: float) -> Orders:
        """The batch orders of n training items: one stream, shared by all classifiers of that size."""
        if (n, holdout) not in self._orders:
            self._orders[n, holdout] = Orders(self.seed, n, holdout=holdout)
        return self._orders[n, holdout]


@dataclass(frozen=True, kw_only=True)
class MinibatchProtocol(MinibatchSettings):
    """SentEval's classifier: minibatch training stopped early on development accuracy."""

    def solver(self, run: ProbeRun) -> Solver:
        """The same first weights, drawn from the seed, for every classifier of the grid."""
        seed = self.base_seed + run.seed
        return MinibatchSolver(self, self._trainer(run, seed), seed=seed)

    def _trainer(self, run: ProbeRun, seed: int) -> MinibatchTrainer:
        """Compiled loops for linear classifiers on the CPU; torch for hidden layers and accelerators."""
        if self.nhid == 0 and run.device == "cpu":
            from stsbench.evaluators.probe.compiled import CompiledTrainer

            return CompiledTrainer(self, seed=seed, width=run.width, classes=run.classes, threads=run.threads)
        from stsbench.evaluators.probe.stacked import StackedTrainer

        return StackedTrainer(self, seed=seed, width=run.width, classes=run.classes, device=run.device)
