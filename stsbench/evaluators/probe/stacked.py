"""Classifiers as stacked torch tensors: hidden layers, and accelerators.

Folds with equally many training items see the same batch orders, so their classifiers take every
step together: one matrix product for all. Shapes: k folds, p penalties, b items of a batch, w
features, h hidden units, c classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
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
    TrainedWeights,
    parse_optimiser,
    train_until_stopped,
)
from stsbench.numbers.statistics import BoolArray, Float64Array, IntArray

MAX_STACK_VALUES = 1 << 26
"""The maximum number of weights, and of activations, of one stack.

These are 256 MiB each, and several times that with moments and gradients.
"""
_ROWS_PREDICTED_AT_ONCE = 8192
"""The maximum number of items whose classes are predicted at once."""
OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}


class DeviceEmbeddings(NamedTuple):
    """A block's embeddings as tensors."""

    u: Tensor
    """Those of first (or only) sentences, (n, d)."""
    v: Tensor
    """Those of second sentences, (n, d); the same tensor for single sentences."""


class StackedSolver(MinibatchSolver):
    """Classifiers of any shape as stacked tensors on one device.

    Attributes:
        first_weights: The weight and bias of each layer before the first step, (c, w) and (c,)
            without a hidden layer; all classifiers start from these.
        generator_state: The state of the generator after they were drawn, from which the generator
            of each stack starts: it draws dropout.
    """

    def __init__(self, protocol: MinibatchSettings, run: ProbeRun) -> None:
        """Draw the first weights, from which all classifiers start.

        Args:
            protocol: The settings of training; ``nhid`` is the number of hidden units, 0 for a
                linear classifier.
            run: The number of features (``width``), of classes, the seed and the device.
        """
        # This also sets self.seed: the protocol's ``base_seed`` plus the seed of the run.
        super().__init__(protocol, run)
        self.device = torch.device(run.device)
        # The number of inputs and of outputs of each layer.
        layers = [(run.width, run.classes)]
        if protocol.nhid:
            layers = [(run.width, protocol.nhid), (protocol.nhid, run.classes)]
        # The weight (out, in) and the bias (out,) of each layer in turn, as torch draws them, and
        # the generator after these draws. Each stack draws its dropout from this state on.
        self.first_weights, generator = first_weights(self.seed, *layers)
        self.generator_state = generator.get_state()
        self._embeddings_by_pool: dict[int, DeviceEmbeddings] = {}
        """The embeddings of pools that are in memory, by the pool's ``id``."""

    def fit(self, folds: Sequence[Fold]) -> list[list[TrainedWeights]]:
        """Train one classifier for each fold and each of its weight decays.

        Classifiers are trained in stacks, all of a stack at once: their weights are joined to one
        tensor with axes for folds and weight decays. A stack has as many folds as fit the memory
        for it. Folds may share a stack if they have the same order of items in each epoch
        (``orders``), the same embeddings (``train.pool``) and equally many weight decays.

        Args:
            folds: The folds, each with its p weight decays.

        Returns:
            The classifiers of each fold, in the order of its weight decays.
        """
        # The positions of folds that may share a stack, by what is equal for them.
        stackable_folds: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
        for index, fold in enumerate(folds):
            # A fold whose embeddings are read from a file in chunks is a stack of its own.
            own_stack = -1 if fold.train.pool.is_resident else index
            stack_key = (id(fold.orders), id(fold.train.pool), len(fold.decays), own_stack)
            stackable_folds[stack_key].append(index)
        classifiers_by_fold: dict[int, list[TrainedWeights]] = {}
        for fold_indices in stackable_folds.values():
            p = len(folds[fold_indices[0]].decays)
            max_folds = self._max_folds_per_stack(p)
            for start in range(0, len(fold_indices), max_folds):
                stack_indices = fold_indices[start : start + max_folds]
                stack = _Stack(self, [folds[index] for index in stack_indices])
                classifiers = train_until_stopped(stack, self.protocol)
                for position, index in enumerate(stack_indices):
                    # The stack's classifiers are fold after fold, p of each.
                    classifiers_by_fold[index] = classifiers[p * position : p * (position + 1)]
        return [classifiers_by_fold[index] for index in range(len(folds))]

    def _max_folds_per_stack(self, p: int) -> int:
        """Return how many folds, at least one, may be trained together in one stack.

        Neither the weights of their classifiers nor the activations of a batch (its features,
        hidden units and logits) may be more than ``MAX_STACK_VALUES``, about 67 million numbers.

        Args:
            p: The number of weight decays, and so of classifiers, of a fold.
        """
        n_weights = p * sum(tensor.numel() for tensor in self.first_weights)
        activations_per_item = self.run.width + p * (self.protocol.nhid + self.run.classes)
        n_activations = self.protocol.batch_size * activations_per_item
        return max(1, MAX_STACK_VALUES // max(n_weights, n_activations))

    def predict(self, classifier: TrainedWeights, items: ProbeItems) -> IndexArray:
        """Return the predicted class of each item, (m,).

        Args:
            classifier: A trained classifier; its weights are a list of tensors, the weight and the
                bias of each layer.
            items: The m items.
        """
        # Tensors get two axes in front, as if there were one fold and one weight decay.
        weights = [tensor[None, None] for tensor in classifier.weights]
        classes = self.predict_classes(weights, items)  # (m, 1): one column per classifier
        return np.asarray(classes[:, 0].cpu().numpy())

    @torch.no_grad()
    def predict_classes(self, weights: Sequence[Tensor], items: ProbeItems) -> Tensor:
        """Return the class that each of p classifiers predicts for each item, (n, p).

        Args:
            weights: The weights and biases of the classifiers' layers, each (1, p, ...): p
                classifiers of one fold.
            items: The n items.
        """
        classes = []
        for block in items.blocks():
            embeddings = self.move_to_device(items.pool, block)
            # The row of each item in the embeddings u of first and v of second sentences.
            block_rows = torch.from_numpy(block.embedding_rows).to(self.device)
            for rows in torch.split(block_rows, _ROWS_PREDICTED_AT_ONCE):
                x = combine_sides(embeddings.u[rows], embeddings.v[rows], items.pool.features)
                # The features of b items, (b, w), get an axis for the only fold.
                logits = _logits(weights, x[None])  # (1, b, p, c)
                classes.append(logits[0].argmax(dim=-1))  # (b, p)
        return torch.cat(classes)

    def move_to_device(self, pool: FeaturePool, block: ItemBlock) -> DeviceEmbeddings:
        """Return the embeddings of a block of items as tensors on the device.

        If the embeddings of the whole split are in memory (``pool.is_resident``), the block holds
        them all, and they are moved once. Otherwise each block has other embeddings.

        Args:
            pool: The embeddings of the split that the items are of.
            block: The items with their embeddings in memory.

        Returns:
            The embeddings ``u`` of first (or only) sentences and ``v`` of second sentences.
        """
        embeddings = self._embeddings_by_pool.get(id(pool))
        if embeddings is None:
            u = torch.tensor(block.u, device=self.device)
            # Single sentences have one array as both u and v, which is moved once.
            v = u if block.u is block.v else torch.tensor(block.v, device=self.device)
            embeddings = DeviceEmbeddings(u, v)
        if pool.is_resident:
            self._embeddings_by_pool[id(pool)] = embeddings
        return embeddings


class _Stack:
    """The classifiers of k folds of one size, in training, for p weight decays each.

    Attributes:
        folds: The k folds that are still trained.
        decay: The weight decays, (k, p).
        remaining_members: The numbers of the classifiers that are still trained, (k * p,). The
            classifier of a fold and weight decay had the number ``fold * p + decay`` at first, and
            keeps it.
        weights: The weight and bias of each layer; each tensor is (k, p, ...).
    """

    def __init__(self, solver: StackedSolver, folds: Sequence[Fold]) -> None:
        """Prepare the training of k * p classifiers at once: one per fold and weight decay.

        Each starts from a copy of the solver's first weights. Dropout is drawn by a generator that
        starts where the solver's ended after drawing those.

        Args:
            solver: Has the first weights, the settings and the device.
            folds: The k folds, each with its own items and p weight decays. They have the same
                order of items in each epoch, and their items are of the same split.
        """
        self.solver = solver
        self.protocol = solver.protocol
        self.folds = list(folds)
        self.decay = torch.tensor([fold.decays for fold in folds], device=solver.device)  # (k, p)
        k, p = self.decay.shape
        # The numbers of the classifiers that are still trained, fold by fold, p of each; keep()
        # drops finished ones.
        self.remaining_members = np.arange(k * p)
        # Each tensor gets two axes in front, (k, p, ...), with a copy for each classifier.
        self.weights = [
            tensor.to(solver.device).expand(k, p, *tensor.shape).clone().requires_grad_()
            for tensor in solver.first_weights
        ]
        name, settings = parse_optimiser(self.protocol.optimiser)
        # OPTIMISERS are torch's classes by name; the settings are ``lr`` and perhaps ``momentum``.
        # Weight decay is not among them: _step() adds it to the gradients.
        self.optimiser = OPTIMISERS[name](self.weights, **settings)
        self.generator = torch.Generator()
        self.generator.set_state(solver.generator_state)

    def train(self, epochs: range) -> None:
        """Train all remaining classifiers through these epochs.

        Args:
            epochs: The numbers of the epochs from 0; each has its own order of the items.
        """
        batch_size = self.protocol.batch_size
        for epoch in epochs:
            # A permutation of the positions 0, 1, ... of the training items.
            order = self.folds[0].orders.permutation(epoch)
            # Each fold has its own training items; all take them in the same order of positions.
            first, *further = (fold.train.select(order) for fold in self.folds)
            # If the split's embeddings are in memory, there is one block, in which an item's row is
            # its index in the split, for the items of every fold. Otherwise there are more blocks,
            # each with rows of its own, but then the stack has only one fold.
            for block in first.blocks(multiple_of=batch_size):
                embeddings = self.solver.move_to_device(first.pool, block)
                # For each of the k folds, the row in the embeddings of each of its m items, (k, m).
                rows = self._stack([block.embedding_rows, *(items.indices for items in further)])
                labels = self._stack([block.labels, *(items.labels for items in further)])
                for start in range(0, rows.shape[1], batch_size):
                    batch = slice(start, start + batch_size)
                    # The embeddings of first and second sentences, (k, b, d); of single sentences
                    # both are the same, and ``combine_sides`` takes u alone.
                    u = embeddings.u[rows[:, batch]]
                    v = embeddings.v[rows[:, batch]]
                    # One step on the features (k, b, w) of a batch: u itself, or |u - v| and u * v,
                    # or u, v, u * v and |u - v|, as the kind ``features`` says.
                    self._step(combine_sides(u, v, first.pool.features), labels[:, batch])

    def _stack(self, arrays: list[IntArray]) -> Tensor:
        """Return arrays of the k folds as one tensor (k, m) on the device.

        Args:
            arrays: One array (m,) per fold; all folds of a stack have the same number m of items.
        """
        return torch.from_numpy(np.stack(arrays)).to(self.solver.device)

    def _step(self, x: Tensor, labels: Tensor) -> None:
        """Train every classifier by one step on the batch of its fold.

        The loss is the sum over all classifiers. None depends on another's weights, so each gets
        the gradient of its own loss.

        Args:
            x: The features of the b items of each of k folds' batches, (k, b, w).
            labels: The labels of these items, (k, b).
        """
        batch_size = x.shape[1]
        # self.weights are the weight and bias of each layer, each (k, p, ...); _dropout() returns
        # factors of the hidden units, or None.
        # The logits of c classes by each of the p classifiers of a fold.
        logits = _logits(self.weights, x, self._dropout(batch_size))  # (k, b, p, c)
        # All classifiers of a fold have the same labels.
        labels_of_classifiers = labels[:, :, None].expand(logits.shape[:-1])  # (k, b, p)
        loss = functional.cross_entropy(
            logits.flatten(0, 2), labels_of_classifiers.flatten(), reduction="sum"
        )
        if self.protocol.loss == "mean":
            loss = loss / batch_size
        gradients = torch.autograd.grad(loss, self.weights)
        for weight, gradient in zip(self.weights, gradients, strict=True):
            # The optimisers take one weight decay for a tensor; here each classifier has its own,
            # (k, p), which gets an axis of 1 for each further axis of the tensor.
            further_axes = [1] * (weight.ndim - 2)
            decay = self.decay.view(*self.decay.shape, *further_axes)
            weight.grad = gradient + decay * weight.detach()
        self.optimiser.step()

    def _dropout(self, batch_size: int) -> Tensor | None:
        """Draw the factors by which dropout multiplies the hidden units in a batch.

        They are drawn on the CPU, so that they are the same on every device.

        Args:
            batch_size: The number of items b of the batch.

        Returns:
            The factors, (b, h) for h hidden units, the same for all classifiers: 0 for a dropped
            unit. None if there is no dropout or no hidden layer.
        """
        keep_probability = 1 - self.protocol.dropout
        if keep_probability == 1 or not self.protocol.nhid:
            return None
        mask = torch.empty(batch_size, self.protocol.nhid)
        mask.bernoulli_(keep_probability, generator=self.generator)
        # Kept units are scaled up, so that the mean of a unit stays.
        return (mask / keep_probability).to(self.solver.device)

    def accuracies(self) -> Float64Array:
        """Compute the accuracy of each classifier on its fold's development items, (k * p,).

        All p weight decays of the first fold come first, then those of the next fold. This is also
        the order of ``self.remaining_members``.
        """
        accuracies = []
        for index, fold in enumerate(self.folds):
            # A slice, so that the axis of folds stays.
            weights_of_fold = [tensor[index : index + 1] for tensor in self.weights]
            classes = self.solver.predict_classes(weights_of_fold, fold.development)
            is_correct = classes.cpu().numpy() == fold.development.labels[:, None]  # (n, p)
            accuracies.append(is_correct.mean(axis=0))
        return np.concatenate(accuracies)

    def weights_at(self, position: int) -> list[Tensor]:
        """Return a copy of each layer's weight and bias, of the member at this position."""
        fold, penalty = divmod(position, self.decay.shape[1])
        return [tensor[fold, penalty].detach().clone() for tensor in self.weights]

    def keep(self, stays: BoolArray) -> None:
        """Drop the folds in which all classifiers are finished.

        They are removed from all tensors and from the optimiser's state. The tensors hold whole
        folds: a finished classifier in a fold with an unfinished one is trained further, which the
        caller ignores.

        Args:
            stays: Whether each remaining classifier is unfinished, (k * p,), bool; fold by fold.
        """
        # The k remaining folds have p weight decays each: self.decay is (k, p), and
        # self.remaining_members, the numbers of the classifiers, (k * p,).
        stays_by_fold = stays.reshape(self.decay.shape)
        fold_indices = np.flatnonzero(stays_by_fold.any(axis=1))
        # No fold is finished: nothing to copy.
        if len(fold_indices) == len(stays_by_fold):
            return
        members_by_fold = self.remaining_members.reshape(stays_by_fold.shape)
        self.remaining_members = members_by_fold[fold_indices].ravel()
        self.folds = [self.folds[index] for index in fold_indices]
        indices = torch.from_numpy(fold_indices).to(self.solver.device)
        self.decay = self.decay[indices]
        for weight in self.weights:
            weight.data = weight.data[indices]
            # The last gradient still has the folds that were dropped.
            weight.grad = None
            optimiser_state = self.optimiser.state[weight]
            for name, value in optimiser_state.items():
                # The optimiser's step count has no axis of folds.
                if value.ndim:
                    optimiser_state[name] = value[indices]


def _logits(weights: Sequence[Tensor], x: Tensor, dropout: Tensor | None = None) -> Tensor:
    """Return the logits of p classifiers per fold for items, (k, b, p, c).

    Letters: k folds, b items of a batch, p weight decays, c classes, w features, h hidden units. A
    hidden layer is followed by dropout and then the sigmoid, in the order of SentEval's toolkit.

    Args:
        weights: Weight (k, p, c, w) and bias (k, p, c) of a linear classifier; or weight (k, p, h,
            w) and bias (k, p, h) of a hidden layer, then weight (k, p, c, h) and bias (k, p, c) of
            the output layer.
        x: The features of the items, (k, b, w), the same for all p classifiers of a fold.
        dropout: The factors of the hidden units, (b, h); None without dropout.
    """
    first_weight, first_bias, *output_layer = weights
    k, p, n_outputs, width = first_weight.shape
    # One matrix product for all classifiers of a fold: their outputs are columns side by side,
    # (k, w, p * n_outputs).
    matrix = first_weight.reshape(k, p * n_outputs, width).transpose(1, 2)
    z = (x @ matrix).view(k, -1, p, n_outputs) + first_bias[:, None]
    if not output_layer:
        return z
    if dropout is not None:
        z = z * dropout[:, None]
    output_weight, output_bias = output_layer
    return torch.einsum("kbph,kpch->kbpc", z.sigmoid(), output_weight) + output_bias[:, None]
