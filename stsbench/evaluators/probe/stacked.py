"""Classifiers as stacked torch tensors: hidden layers, and accelerators.

Folds with equally many training items see the same batch orders, so that their classifiers take every step together:
one matrix product for all. Shapes: k folds, p penalties, b items of a batch, w features, h hidden units, c classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from stsbench.encoders.base import IndexArray
from stsbench.evaluators.probe.items import (
    FeaturePool,
    ItemBlock,
    ProbeItems,
    ProbeRun,
    combine_sides,
    first_weights,
)
from stsbench.evaluators.probe.minibatch import (
    Fold,
    MinibatchSettings,
    MinibatchSolver,
    TrainedClassifier,
    parse_optimiser,
    train_until_stopped,
)

STACK_VALUES = 1 << 26
"""Weights and activations of one stack at most: 256 MiB each, a handful of times over for moments and gradients."""
_SCORED_AT_ONCE = 8192
OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
Table = tuple[Tensor, Tensor]
"""Embeddings of first and of second sentences, (n, d)."""


class StackedSolver(MinibatchSolver):
    """Classifiers of any shape as stacked tensors on one device."""

    def __init__(self, protocol: MinibatchSettings, run: ProbeRun) -> None:
        """Draw the first weights, those of every classifier."""
        super().__init__(protocol, run)
        self.device = torch.device(run.device)
        layers = (
            [(run.width, protocol.nhid), (protocol.nhid, run.classes)]
            if protocol.nhid
            else [run[:2]]
        )
        self.start, generator = first_weights(self.seed, *layers)
        self.draws = generator.get_state()
        self._tables: dict[int, Table] = {}

    def fit(self, folds: Sequence[Fold]) -> list[list[TrainedClassifier]]:
        """Train one classifier a fold and weight decay of it; folds of a stack stay within the memory for it."""
        groups: dict[tuple[int, int, int, object], list[int]] = defaultdict(list)
        for i, fold in enumerate(folds):
            alone = -1 if fold.train.pool.is_resident else i
            groups[id(fold.orders), id(fold.train.pool), len(fold.decays), alone].append(i)
        found: dict[int, list[TrainedClassifier]] = {}
        for (_, _, p, _), group in groups.items():
            weights = p * sum(tensor.numel() for tensor in self.start)
            activations = self.run.width + p * (self.protocol.nhid + self.run.classes)
            size = max(1, STACK_VALUES // max(weights, self.protocol.batch_size * activations))
            for at in range(0, len(group), size):
                members = group[at : at + size]
                trained = train_until_stopped(
                    _Stack(self, [folds[i] for i in members]), self.protocol
                )
                found.update(
                    {i: trained[p * place : p * (place + 1)] for place, i in enumerate(members)}
                )
        return [found[i] for i in range(len(folds))]

    def predict(self, classifier: TrainedClassifier, rows: ProbeItems) -> IndexArray:
        """The class of each item, (m,)."""
        return np.asarray(
            self.classes([w[None, None] for w in classifier.weights], rows)[:, 0].cpu().numpy()
        )

    @torch.no_grad()
    def classes(self, weights: Sequence[Tensor], rows: ProbeItems) -> Tensor:
        """The class each of one fold's classifiers, weights (1, p, …), gives each item: (n, p)."""
        parts = []
        for block in rows.blocks():
            table = self.on_device(rows.pool, block)
            for at in torch.split(torch.from_numpy(block.rows).to(self.device), _SCORED_AT_ONCE):
                x = combine_sides(table[0][at], table[1][at], rows.pool.features)
                parts.append(_logits(weights, x[None])[0].argmax(dim=-1))
        return torch.cat(parts)

    def on_device(self, pool: FeaturePool, block: ItemBlock) -> Table:
        """A block's embeddings as tensors; those of a pool in memory move once."""
        table = self._tables.get(id(pool))
        if table is None:
            u = torch.tensor(block.u, device=self.device)
            table = (u, u if block.u is block.v else torch.tensor(block.v, device=self.device))
        if pool.is_resident:
            self._tables[id(pool)] = table
        return table


class _Stack:
    """The classifiers of folds of one size, in training; member number ``fold * p + penalty``."""

    def __init__(self, solver: StackedSolver, folds: Sequence[Fold]) -> None:
        self.solver, self.protocol, self.folds = solver, solver.protocol, list(folds)
        self.decay = torch.tensor([fold.decays for fold in folds], device=solver.device)  # (k, p)
        k, p = self.decay.shape
        self.members = np.arange(k * p)
        self.weights = [
            t.to(solver.device).expand(k, p, *t.shape).clone().requires_grad_()
            for t in solver.start
        ]
        name, settings = parse_optimiser(self.protocol.optimiser)
        self.optimiser = OPTIMISERS[name](self.weights, **settings)
        self.generator = torch.Generator()
        self.generator.set_state(solver.draws)

    def train(self, epochs: range) -> None:
        """A pool read by chunks has one fold."""
        for epoch in epochs:
            order = self.folds[0].orders.permutation(epoch)
            first, *others = (fold.train.select(order) for fold in self.folds)
            for block in first.blocks(multiple_of=self.protocol.batch_size):
                table = self.solver.on_device(first.pool, block)
                places = self._tensor([block.rows, *(rows.at for rows in others)])  # (k, m)
                labels = self._tensor([block.labels, *(rows.labels for rows in others)])
                for at in range(0, places.shape[1], self.protocol.batch_size):
                    batch = slice(at, at + self.protocol.batch_size)
                    sides = [side[places[:, batch]] for side in table]
                    self._step(
                        combine_sides(sides[0], sides[1], first.pool.features), labels[:, batch]
                    )

    def _tensor(self, rows: list[npt.NDArray[np.int64]]) -> Tensor:
        return torch.from_numpy(np.stack(rows)).to(self.solver.device)

    def _step(self, x: Tensor, labels: Tensor) -> None:
        """One step of every classifier on its fold's batch: x (k, b, w), labels (k, b)."""
        z = _logits(self.weights, x, self._dropout(x.shape[1]))  # (k, b, p, c)
        truth = labels[:, :, None].expand(z.shape[:-1])
        loss = functional.cross_entropy(z.flatten(0, 2), truth.flatten(), reduction="sum")
        if self.protocol.loss == "mean":
            loss = loss / x.shape[1]
        for w, gradient in zip(self.weights, torch.autograd.grad(loss, self.weights), strict=True):
            # The optimisers take one weight decay for a whole tensor; here each classifier has its own.
            w.grad = gradient + self.decay.view(*self.decay.shape, *[1] * (w.ndim - 2)) * w.detach()
        self.optimiser.step()

    def _dropout(self, b: int) -> Tensor | None:
        """What hidden units are multiplied by, (b, h): drawn on the CPU, as torch draws there, for all alike."""
        keep = 1 - self.protocol.dropout
        if keep == 1 or not self.protocol.nhid:
            return None
        mask = torch.empty(b, self.protocol.nhid).bernoulli_(keep, generator=self.generator)
        return (mask / keep).to(self.solver.device)

    def accuracies(self) -> npt.NDArray[np.float64]:
        right = []
        for k, fold in enumerate(self.folds):
            classes = self.solver.classes([w[k : k + 1] for w in self.weights], fold.development)
            right.append((classes.cpu().numpy() == fold.development.labels[:, None]).mean(axis=0))
        return np.concatenate(right)

    def weights_at(self, place: int) -> list[Tensor]:
        fold, penalty = divmod(place, self.decay.shape[1])
        return [w[fold, penalty].detach().clone() for w in self.weights]

    def keep(self, stay: npt.NDArray[np.bool_]) -> None:
        """Leave out the folds that have no classifier left; one dropped alone trains on unheeded."""
        of_fold = stay.reshape(self.decay.shape)
        folds = np.flatnonzero(of_fold.any(axis=1))
        if len(folds) == len(of_fold):
            return
        self.members = self.members.reshape(of_fold.shape)[folds].ravel()
        self.folds = [self.folds[i] for i in folds]
        at = torch.from_numpy(folds).to(self.solver.device)
        self.decay = self.decay[at]
        for w in self.weights:
            w.data, w.grad = w.data[at], None
            moments = self.optimiser.state[w]
            moments.update({name: value[at] for name, value in moments.items() if value.ndim})


def _logits(weights: Sequence[Tensor], x: Tensor, dropout: Tensor | None = None) -> Tensor:
    """Logits (k, b, p, c) of items (k, b, w): linear, or linear, dropout, sigmoid, linear."""
    first, bias, *rest = weights
    k, p, out, width = first.shape
    z = (x @ first.reshape(k, p * out, width).transpose(1, 2)).view(k, -1, p, out) + bias[:, None]
    if rest:
        z = z if dropout is None else z * dropout[:, None]
        z = torch.einsum("kbph,kpch->kbpc", z.sigmoid(), rest[0]) + rest[1][:, None]
    return z
