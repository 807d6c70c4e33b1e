"""Classifiers as stacked torch tensors: hidden layers, and accelerators.

Folds with equally many training items see the same batch orders, so that their classifiers (k folds
times p penalties) take every step together: one matrix product for all. Shapes: k folds, p penalties,
b items of a batch, w features, h hidden units, c classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stsbench.encoders.base import IndexArray
from stsbench.evaluators.probe.items import EmbeddingBlock, Features, Pool, ProbeItems, combine_sides, first_weights
from stsbench.evaluators.probe.minibatch import (
    Fold,
    Mask,
    MinibatchSettings,
    TrainedClassifier,
    parse_optimiser,
    train_until_stopped,
)

STACK_VALUES = 1 << 26
"""Weights and activations of one stack at most: 256 MiB each, a handful of times over for moments and gradients."""
_SCORED_AT_ONCE = 8192


class StackedTrainer:
    """Trains classifiers of any shape as stacked tensors on one device."""

    def __init__(self, protocol: MinibatchSettings, *, seed: int, width: int, classes: int, device: str) -> None:
        """Draw the first weights, those of every classifier."""
        self.protocol, self.device = protocol, torch.device(device)
        sizes = (width, protocol.nhid, classes) if protocol.nhid else (width, classes)
        self.start, generator = first_weights(seed, sizes)
        self.draws = generator.get_state()
        self._tables: dict[int, tuple[Tensor, Tensor]] = {}

    def fit(self, folds: Sequence[Fold], decays: Sequence[Sequence[float]]) -> list[list[TrainedClassifier]]:
        """Train one classifier a fold and weight decay."""
        groups: dict[tuple[int, int, int, object], list[int]] = defaultdict(list)
        for i, fold in enumerate(folds):
            alone = i if not fold.train.pool.resident else -1
            groups[id(fold.orders), id(fold.train.pool), len(decays[i]), alone].append(i)
        found: dict[int, list[TrainedClassifier]] = {}
        for group in groups.values():
            size = self._folds_at_once(len(decays[group[0]]))
            for at in range(0, len(group), size):
                members = group[at : at + size]
                trained = self._fit_stack([folds[i] for i in members], [decays[i] for i in members])
                found.update(zip(members, trained, strict=True))
        return [found[i] for i in range(len(folds))]

    def _folds_at_once(self, penalties: int) -> int:
        """Folds whose weights and activations stay within bounds."""
        width, hidden = self.start[0].shape[1], self.protocol.nhid
        weights = penalties * sum(tensor.numel() for tensor in self.start)
        activations = self.protocol.batch_size * (width + penalties * (hidden + self.start[-1].numel()))
        return max(1, STACK_VALUES // max(weights, activations))

    def _fit_stack(self, folds: Sequence[Fold], decays: Sequence[Sequence[float]]) -> list[list[TrainedClassifier]]:
        penalties = len(decays[0])
        stack = _Stack(self, folds, decays)
        sizes = [len(fold.dev) for fold in folds for _ in range(penalties)]
        trained = train_until_stopped(stack, sizes, self.protocol)
        return [trained[at : at + penalties] for at in range(0, len(trained), penalties)]

    def predict(self, trained: TrainedClassifier, rows: ProbeItems) -> IndexArray:
        """The class of each item, (m,)."""
        weights = [tensor[None, None] for tensor in trained.weights]
        classes: IndexArray = self.classes(weights, rows)[:, 0].cpu().numpy()
        return classes

    @torch.no_grad()
    def classes(self, weights: Sequence[Tensor], rows: ProbeItems) -> Tensor:
        """The class each of one fold's classifiers, weights (1, p, …), gives each item: (n, p)."""
        parts = []
        for block in rows.pool.blocks(rows.at):
            table, places = self.on_device(rows.pool, block)
            for at in torch.split(places, _SCORED_AT_ONCE):
                x = _features(table, at, rows.pool.features)
                parts.append(_logits(weights, x[None])[0].argmax(dim=-1))
        return torch.cat(parts)

    def on_device(self, pool: Pool, block: EmbeddingBlock) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """A block's embeddings and places as tensors; a resident pool's embeddings move once."""
        places = torch.from_numpy(block.rows).to(self.device)
        table = self._tables.get(id(pool))
        if table is None:
            u = torch.tensor(block.u, device=self.device)
            table = (u, u if pool.features == "u" else torch.tensor(block.v, device=self.device))
        if pool.resident:
            self._tables[id(pool)] = table
        return table, places


class _Stack:
    """The classifiers of folds of one size, in training; member number ``fold * p + penalty``."""

    def __init__(self, trainer: StackedTrainer, folds: Sequence[Fold], decays: Sequence[Sequence[float]]) -> None:
        self.trainer, self.protocol, self.folds = trainer, trainer.protocol, list(folds)
        self.alive = np.arange(len(folds))
        k, p = len(folds), len(decays[0])
        self.shape, self.dropped = (k, p), np.zeros((k, p), dtype=bool)
        self.weights = [t.to(trainer.device).expand(k, p, *t.shape).clone().requires_grad_() for t in trainer.start]
        self.optimiser = _make_optimiser(self.protocol.optimiser, self.weights)
        self.remembered = [w.detach().clone() for w in self.weights]
        self.decay = torch.tensor(decays, device=trainer.device)  # (k, p)
        self.generator = torch.Generator()
        self.generator.set_state(trainer.draws)

    def train(self, epochs: range) -> None:
        for epoch in epochs:
            order = self.folds[0].orders.epoch(epoch)
            rows = [fold.train.select(order) for fold in self.folds]
            labels = torch.from_numpy(np.stack([r.labels for r in rows])).to(self.trainer.device)  # (k, n)
            done = 0
            for table, places in self._blocks(rows):
                for at in range(0, places.shape[1], self.protocol.batch_size):
                    batch = places[:, at : at + self.protocol.batch_size]
                    x = _features(table, batch, rows[0].pool.features)  # (k, b, w)
                    self._step(x, labels[:, done : done + batch.shape[1]])
                    done += batch.shape[1]

    def _blocks(self, rows: Sequence[ProbeItems]) -> Iterator[tuple[tuple[Tensor, Tensor], Tensor]]:
        """Embeddings and each fold's places in them, (k, m); a pool read by chunks has one fold."""
        first, *others = rows
        for block in first.pool.blocks(first.at, multiple_of=self.protocol.batch_size):
            places = np.stack([block.rows, *(r.at for r in others)])
            yield self.trainer.on_device(first.pool, EmbeddingBlock(block.u, block.v, places))

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
        return (mask / keep).to(self.trainer.device)

    def correct(self) -> IndexArray:
        found = np.zeros(self.shape, dtype=np.int64)
        for k, (fold, number) in enumerate(zip(self.folds, self.alive, strict=True)):
            classes = self.trainer.classes([w[k : k + 1] for w in self.weights], fold.dev)
            truth = torch.from_numpy(fold.dev.labels).to(classes.device)
            found[number] = (classes == truth[:, None]).sum(dim=0).cpu().numpy()
        return found.ravel()

    def remember(self, members: Mask) -> None:
        mask = torch.from_numpy(members.reshape(self.shape)[self.alive]).to(self.trainer.device)
        folds, penalties = mask.nonzero(as_tuple=True)
        into = torch.from_numpy(self.alive).to(self.trainer.device)[folds]
        for best, w in zip(self.remembered, self.weights, strict=True):
            best[into, penalties] = w.detach()[folds, penalties]

    def drop(self, members: Mask) -> None:
        """Leave out the folds that have no classifier left; one dropped alone trains on unheeded."""
        self.dropped |= members.reshape(self.shape)
        stay = np.flatnonzero(~self.dropped[self.alive].all(axis=1))
        if len(stay) == len(self.alive):
            return
        self.alive, self.folds = self.alive[stay], [self.folds[i] for i in stay]
        at = torch.from_numpy(stay).to(self.trainer.device)
        self.decay = self.decay[at]
        for w in self.weights:
            w.data, w.grad = w.data[at], None
            moments = self.optimiser.state[w]
            moments.update({name: value[at] for name, value in moments.items() if value.ndim})

    def best(self, member: int) -> list[Tensor]:
        fold, penalty = divmod(member, self.shape[1])
        return [tensor[fold, penalty] for tensor in self.remembered]


def _features(table: tuple[Tensor, Tensor], at: Tensor, kind: Features) -> Tensor:
    """Features (…, w) of the items at these places (…,) of tables of embeddings (n, d)."""
    u = table[0][at]
    return combine_sides(u, u if kind == "u" else table[1][at], kind)


def _logits(weights: Sequence[Tensor], x: Tensor, dropout: Tensor | None = None) -> Tensor:
    """Logits (k, b, p, c) of items (k, b, w): linear, or linear, dropout, sigmoid, linear."""
    first, bias, *rest = weights
    k, p, out, width = first.shape
    z = (x @ first.reshape(k, p * out, width).transpose(1, 2)).view(k, -1, p, out) + bias[:, None]
    if rest:
        z = z if dropout is None else z * dropout[:, None]
        z = torch.einsum("kbph,kpch->kbpc", z.sigmoid(), rest[0]) + rest[1][:, None]
    return z


def _make_optimiser(text: str, weights: Sequence[Tensor]) -> torch.optim.Optimizer:
    """Torch's optimiser of the name that the toolkit's notation gives, over these weights."""
    name, learning_rate, momentum = parse_optimiser(text)
    match name:
        case "adam":
            return torch.optim.Adam(weights, lr=learning_rate)
        case "rmsprop":
            return torch.optim.RMSprop(weights, lr=learning_rate)
        case "sgd":
            return torch.optim.SGD(weights, lr=learning_rate, momentum=momentum)
