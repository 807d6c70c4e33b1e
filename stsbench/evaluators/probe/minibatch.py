"""SentEval's classifier: its settings, grid search, early stopping, and linear form.

The linear form is trained in compiled loops.

Source: SentEval (arXiv 1803.05449), README and ``senteval/tools`` at 5d6dc11 (2020-09-25).
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from msgspec import Meta

from stsbench.core.errors import StsbenchError, look_up
from stsbench.encoders.base import FloatArray, IndexArray
from stsbench.evaluators.base import NonNegativeInt, PositiveInt
from stsbench.evaluators.probe.items import (
    Decimals,
    EpochOrders,
    ItemBlock,
    ProbeItems,
    ProbeProtocol,
    ProbeRun,
    SearchResult,
    Solver,
    starting_weights,
)
from stsbench.numbers.statistics import BoolArray, Float64Array, IntArray

Decays = Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class MinibatchSettings(ProbeProtocol, ABC):
    """SentEval's classifier: minibatch training stopped early on development accuracy.

    ``weight_decays`` is the L2 grid in the order of trial (the first of equally good ones wins); it
    is added to the gradient, not decoupled. ``tenacity`` counts every check without a better
    accuracy, and is never reset: training ends at failure ``tenacity + 1``. There is a check after
    every ``epoch_size`` passes over the data; the last one is the first check beyond
    ``max_epochs``. ``holdout`` is the share of the training data that is drawn to stop the final
    classifier if a task has no validation split. ``loss``: torch of 2018 summed over the batch, the
    current one averages and ignores the toolkit's option.
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
    rounding: Decimals | None = 2

    def __post_init__(self) -> None:
        """Check that the optimiser exists."""
        parse_optimiser(self.optimiser)


OPTIMISERS: dict[str, dict[str, float]] = {
    "adam": {"lr": 1e-3},
    "rmsprop": {"lr": 1e-2},
    "sgd": {"lr": float("nan"), "momentum": 0.0},
}
"""The settings of each optimiser that may be changed; all others are torch's defaults."""


def parse_optimiser(text: str) -> tuple[str, dict[str, float]]:
    """Parse an optimiser as SentEval writes it: ``"adam"`` or ``"sgd,lr=0.1,momentum=0.9"``.

    Args:
        text: The optimiser and its settings; blanks may separate them in place of commas.

    Returns:
        The optimiser's name and all its settings by name, with defaults for those that the text
        does not mention: ``lr``, the learning rate, and for ``sgd`` also ``momentum``.

    Raises:
        UnknownName: The optimiser or a setting does not exist; an empty text is no name either.
        StsbenchError: A setting is not a number, ``lr`` is not above 0 and finite, or ``momentum``
            is not from 0 to below 1. The default of ``lr`` is NaN for ``sgd``, so that ``sgd``
            without ``lr`` is an error.
    """
    name, *assignments = text.replace(",", " ").split() or [""]
    # A copy of the defaults; look_up raises UnknownName for a name that is not in the table.
    settings = dict(look_up("optimiser", name, OPTIMISERS))
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        look_up(f"setting of optimiser '{name}'", key, settings)
        try:
            settings[key] = float(value)
        except ValueError:
            raise StsbenchError(f"optimiser '{text}': '{value}' is not a number") from None
    if not 0 < settings["lr"] < np.inf:
        raise StsbenchError(
            f"optimiser '{text}' needs a finite learning rate above 0, such as '{name},lr=0.1'"
        )
    # From 1 on the steps grow without end; below 0 they reverse the earlier ones.
    if not 0 <= settings.get("momentum", 0) < 1:
        raise StsbenchError(f"optimiser '{text}': momentum must be from 0 to below 1")
    return name, settings


@dataclass(frozen=True)
class Fold:
    """The items of some classifiers that see the same batches.

    Attributes:
        train: The training items.
        development: The items whose accuracy stops the training.
        orders: The order of the training items in each epoch.
        decays: The weight decay of each classifier.
    """

    train: ProbeItems
    development: ProbeItems
    orders: EpochOrders
    decays: Sequence[float]


@dataclass
class TrainedWeights:
    """The weights of a classifier, or of other maps trained like one, at their best check.

    Attributes:
        weights: The weights, in the form that their solver predicts with; None before the first
            check.
        accuracy: The accuracy on the development items, or whatever score chooses the weights.
        epochs: The number of epochs that they were trained in all.
        failures: The number of checks without a better accuracy.
    """

    weights: Any = None
    accuracy: float = -np.inf
    epochs: int = 0
    failures: int = 0


class ClassifierTraining(Protocol):
    """Classifiers that are trained together, step by step."""

    remaining_members: IntArray
    """The numbers of the classifiers that are still trained, (m,)."""

    def train(self, epochs: range) -> None:
        """Train through these epochs."""

    def accuracies(self) -> Float64Array:
        """Compute the current accuracy of each member on its development items, (m,)."""

    def weights_at(self, position: int) -> Any:  # noqa: ANN401 - whatever its solver predicts with
        """Return a copy of the weights of the member at this position."""

    def keep(self, stays: BoolArray) -> None:
        """Continue with the marked members, (m,); others may stay if they cost nothing."""


def train_until_stopped(
    training: ClassifierTraining, protocol: MinibatchSettings
) -> list[TrainedWeights]:
    """Train m classifiers together until each fails to improve too often, or all epochs are over.

    After every ``epoch_size`` epochs there is a check: the accuracy of each classifier on
    development items is measured. A classifier is stopped at check number ``tenacity + 1`` without
    a better accuracy. As in SentEval's toolkit, a better accuracy does not reset this count.

    Args:
        training: The classifiers, called members, which have the numbers 0 to m - 1; it trains
            them, measures them and drops the stopped ones.
        protocol: Gives ``epoch_size``, ``tenacity`` and ``max_epochs``.

    Returns:
        The weights and the accuracy of each member at its best check, by the members' numbers.
    """
    # Each begins without weights, with accuracy -inf: its first check is a better one.
    classifiers = [TrainedWeights() for _ in training.remaining_members]
    epochs = 0
    # The last check is the first after max_epochs, not the one at it, as in SentEval's toolkit.
    while len(training.remaining_members) and epochs <= protocol.max_epochs:
        training.train(range(epochs, epochs + protocol.epoch_size))
        epochs += protocol.epoch_size
        members = [classifiers[number] for number in training.remaining_members]
        # One for each of the members, in their order.
        accuracies = training.accuracies()
        for position, (member, accuracy) in enumerate(zip(members, accuracies, strict=True)):
            # Some kinds of training go on with a stopped member; its later checks do not count.
            if member.failures > protocol.tenacity:
                continue
            member.epochs = epochs
            if accuracy > member.accuracy:
                member.weights = training.weights_at(position)
                member.accuracy = float(accuracy)
            else:
                member.failures += 1
        training.keep(np.array([member.failures <= protocol.tenacity for member in members]))
    return classifiers


class MinibatchSolver(Solver, ABC):
    """Early-stopped classifiers over the grid of weight decays.

    All start from the same first weights, which are drawn from the seed.
    """

    def __init__(self, protocol: MinibatchSettings, run: ProbeRun) -> None:
        """Store the settings; nothing is trained."""
        self.protocol = protocol
        self.run = run
        self.seed = protocol.base_seed + run.seed
        self._orders_by_size: dict[tuple[int, float], EpochOrders] = {}
        """The orders by the number of items and the share of them that is held out."""

    @abstractmethod
    def fit(self, folds: Sequence[Fold]) -> list[list[TrainedWeights]]:
        """Train one classifier per fold and weight decay of it."""

    def search(self, folds: Sequence[tuple[ProbeItems, ProbeItems]]) -> SearchResult:
        """Train a classifier for each fold and each weight decay of the protocol.

        Args:
            folds: For each fold the training items, and the development items whose accuracy stops
                the training.

        Returns:
            The best accuracies on development items, (folds, decays), and the classifiers by fold
            and weight decay.
        """
        decays = self.protocol.weight_decays
        # Each fold gets the order of its training items in each epoch, drawn by the seed; folds of
        # equally many items share one. No items are held out of them.
        classifiers = self.fit(
            [
                Fold(train, development, self._orders(len(train), holdout=0.0), decays)
                for train, development in folds
            ]
        )
        accuracies = [
            [classifier.accuracy for classifier in classifiers_of_fold]
            for classifiers_of_fold in classifiers
        ]
        return SearchResult(np.array(accuracies), classifiers)

    def refit(self, trains: Sequence[ProbeItems], choices: Sequence[int]) -> list[TrainedWeights]:
        """Train the final classifiers, after a search has chosen their weight decays.

        A share of each classifier's items, drawn at random (``holdout``, 5% by default), is not
        trained on: the accuracy on these items stops the training.

        Args:
            trains: The items of each final classifier.
            choices: The position of the weight decay of each, in the protocol's
                ``weight_decays``.

        Returns:
            One classifier for each of ``trains``.
        """
        folds = []
        for items, choice in zip(trains, choices, strict=True):
            # The order of the training items in each epoch, drawn by the seed; all classifiers
            # with equally many items share it. Before the first epoch the items to hold out are
            # drawn: ``validation_items`` and ``training_items`` are positions in ``items``.
            orders = self._orders(len(items), self.protocol.holdout)
            folds.append(
                Fold(
                    train=items.select(orders.training_items),
                    development=items.select(orders.validation_items),
                    orders=orders,
                    decays=[self.protocol.weight_decays[choice]],
                )
            )
        # Each fold has one weight decay, and so one classifier.
        return [classifier for (classifier,) in self.fit(folds)]

    def _orders(self, n: int, holdout: float) -> EpochOrders:
        """Return the epochs' orders of n items; all classifiers with n items share them."""
        if (n, holdout) not in self._orders_by_size:
            self._orders_by_size[n, holdout] = EpochOrders(self.seed, n, holdout=holdout)
        return self._orders_by_size[n, holdout]


_MAX_LOCKSTEP_ROWS = 64
"""The maximum number of weight rows in lockstep, so that they stay in the core's own cache."""
_NO_SOFT_LABELS = np.empty((0, 0), dtype=np.float32)
"""The soft labels of items with hard labels."""


class CompiledSolver(MinibatchSolver):
    """Linear classifiers in compiled loops on the CPU's cores."""

    def __init__(self, protocol: MinibatchSettings, run: ProbeRun) -> None:
        """Draw the first weights, (c, w)."""
        super().__init__(protocol, run)
        self._cancelled = threading.Event()
        self._starting_weights = starting_weights(self.seed, run.width, run.classes)

    def fit(self, folds: Sequence[Fold]) -> list[list[TrainedWeights]]:
        """Train one classifier for each fold and each of its weight decays.

        Jobs run on several threads. A job trains classifiers of one fold with several weight decays
        together, batch by batch.

        Args:
            folds: The folds, each with its weight decays.

        Returns:
            The classifiers of each fold, in the order of its weight decays.
        """
        # The starting weights, the same for all classifiers, have a row per class.
        n_classes = len(self._starting_weights)
        n_classifiers = sum(len(fold.decays) for fold in folds)
        # There should be jobs for all threads; and the weights of a job's classifiers, a row per
        # class, should stay in the processor's cache: at most _MAX_LOCKSTEP_ROWS (64) rows.
        classifiers_per_thread = math.ceil(n_classifiers / self.run.threads)
        classifiers_in_cache = _MAX_LOCKSTEP_ROWS // n_classes
        job_size = max(1, min(classifiers_in_cache, classifiers_per_thread))
        # A job is a fold with some of its weight decays.
        jobs = [
            replace(fold, decays=fold.decays[start : start + job_size])
            for fold in folds
            for start in range(0, len(fold.decays), job_size)
        ]
        with ThreadPoolExecutor(self.run.threads) as pool:
            try:
                classifiers_by_job = list(pool.map(self._fit_lockstep, jobs))
            except BaseException:
                # Also on Ctrl-C: running jobs end with their epoch, waiting ones never start.
                self._cancelled.set()
                raise
        # Jobs are in the order of folds: each fold takes the next classifiers from one iterator.
        all_classifiers = chain.from_iterable(classifiers_by_job)
        return [list(islice(all_classifiers, len(fold.decays))) for fold in folds]

    def _fit_lockstep(self, fold: Fold) -> list[TrainedWeights]:
        """Train the classifiers of one job on this thread, together.

        Each starts from ``self._starting_weights``, (c, w), a row per class. ``self._cancelled`` is
        set if another job fails; this job then ends with CancelledError before its next epoch.

        Args:
            fold: The items, with those weight decays of the fold that are in this job.

        Returns:
            One classifier for each of its weight decays: the weights at its best check, and its
            accuracy there.
        """
        return train_until_stopped(
            Lockstep(
                fold,
                start=self._starting_weights,
                protocol=self.protocol,
                cancelled=self._cancelled,
            ),
            self.protocol,
        )

    def predict(self, classifier: TrainedWeights, items: ProbeItems) -> IndexArray:
        """Return the predicted class of each item, (m,)."""
        stack_of_one = classifier.weights[None]
        return np.asarray(_predict_classes(stack_of_one, items)[0])


class Lockstep:
    """Classifiers of one fold that differ in weight decay alone: they see the same batches.

    Attributes:
        remaining_members: The numbers of the p classifiers that are still trained, (p,).
        weights: Their weights, (p, c, w), for c classes; w is the number of features, of the bias
            and of padding, see :func:`starting_weights`.
        gradient_means: The moving means of their gradients, or SGD's momentum, (p, c, w).
        squared_gradient_means: The moving means of their squared gradients, (p, c, w).
        decays: Their weight decays, (p,).
        n_steps: The number of steps so far.
    """

    def __init__(
        self, fold: Fold, start: FloatArray, protocol: MinibatchSettings, cancelled: threading.Event
    ) -> None:
        """Start p classifiers, one for each weight decay, from the same weights.

        Args:
            fold: The items, their order in each epoch and the p weight decays.
            start: The weights of each classifier before the first step, (c, w): a row per class,
                with the bias and padding behind the features' weights.
            protocol: The settings of training; ``optimiser`` is a text such as ``"adam"``.
            cancelled: Set from another thread to end the training before the next epoch.
        """
        self.fold = fold
        self.protocol = protocol
        self.cancelled = cancelled
        # The optimiser's name, and its settings such as the learning rate.
        self.optimiser, self.settings = parse_optimiser(protocol.optimiser)
        self.decays = np.array(fold.decays, dtype=np.float32)
        # The numbers of the classifiers that are still trained: at first all.
        self.remaining_members = np.arange(len(self.decays))
        # The number of steps so far; Adam's correction of its moments depends on it.
        self.n_steps = 0
        # The weights of all classifiers, (p, c, w).
        self.weights = np.repeat(start[None], len(self.decays), axis=0)
        # The optimiser's memory of earlier gradients, one pair of arrays for all optimisers: Adam
        # uses both, SGD's momentum only the first, RMSprop only the second.
        self.gradient_means = np.zeros_like(self.weights)
        self.squared_gradient_means = np.zeros_like(self.weights)

    def train(self, epochs: range) -> None:
        """Train all remaining classifiers through these epochs.

        Args:
            epochs: The numbers of the epochs from 0; each has its own order of the items.

        Raises:
            CancelledError: Another thread has failed, or the user pressed Ctrl-C.
        """
        for epoch in epochs:
            if self.cancelled.is_set():
                raise CancelledError
            # A permutation of the positions of the training items.
            order = self.fold.orders.permutation(epoch)
            items = self.fold.train.select(order)
            # Blocks of items whose embeddings fit the memory; no batch is divided between two. If
            # all embeddings are in memory, there is one block.
            for block in items.blocks(multiple_of=self.protocol.batch_size):
                self._train_on(block)

    def _train_on(self, block: ItemBlock) -> None:
        """Train all remaining classifiers on a block of items, batch by batch.

        The compiled loops change ``self.weights`` and the optimiser's arrays in place, and return
        the number of steps so far.

        Args:
            block: The items with embeddings ``u`` of first (or only) sentences and ``v`` of second
                sentences; ``embedding_rows`` is the row of each item in both. Its labels are
                classes, (items,), or soft labels, the share of each class, (items, c).
        """
        # Imported only here, because the import compiles the loops.
        from stsbench.evaluators.probe import kernels

        labels = block.labels
        # An empty array, by which the loops know that the labels are classes.
        soft_labels = _NO_SOFT_LABELS
        has_soft_labels = block.labels.ndim > 1
        if has_soft_labels:
            soft_labels = block.labels
            # With soft labels the loops do not read ``labels``: any array of its type will do.
            labels = block.embedding_rows
        # The kind of features and the optimiser are passed as numbers. The last argument says
        # whether the loss is summed over a batch; else it is averaged.
        self.n_steps = kernels.train_classifiers(
            block.u, block.v, kernels.FEATURE_CODES[self.fold.train.pool.features],
            block.embedding_rows, labels, soft_labels, self.protocol.batch_size,
            self.weights, self.gradient_means, self.squared_gradient_means, self.decays,
            kernels.OPTIMISERS[self.optimiser],
            self.settings["lr"], self.settings.get("momentum", 0.0),
            self.n_steps, self.protocol.loss == "sum",
        )  # fmt: skip

    def accuracies(self) -> Float64Array:
        """Compute the share of development items that each classifies correctly, (m,)."""
        development = self.fold.development
        classes = _predict_classes(self.weights, development)
        return np.asarray((classes == development.labels).mean(axis=1))

    def weights_at(self, position: int) -> FloatArray:
        """Return a copy of the weights at this position, (c, w)."""
        return np.array(self.weights[position])

    def keep(self, stays: BoolArray) -> None:
        """Drop the classifiers that are not trained any further.

        Args:
            stays: Whether each of the m remaining classifiers is kept, (m,), bool.
        """
        if stays.all():
            return
        self.remaining_members = self.remaining_members[stays]
        self.decays = self.decays[stays]
        self.weights = self.weights[stays]
        self.gradient_means = self.gradient_means[stays]
        self.squared_gradient_means = self.squared_gradient_means[stays]


def _predict_classes(weights: FloatArray, items: ProbeItems) -> IndexArray:
    """Return the class that each classifier predicts for each item, (p, n).

    Args:
        weights: The weights of p classifiers, (p, c, w); w includes the bias and padding.
        items: The n items.
    """
    # Imported only here, because the import compiles the loops.
    from stsbench.evaluators.probe import kernels

    # Compiled loops know each kind of features, such as |u - v| and u * v, by a number.
    feature_code = kernels.FEATURE_CODES[items.pool.features]
    classes_by_block = []
    for block in items.blocks():
        classes = np.empty((len(weights), len(block.embedding_rows)), dtype=np.int64)
        # This fills ``classes``. An item's embeddings are row ``embedding_rows`` of u and of v.
        kernels.predict(block.u, block.v, feature_code, block.embedding_rows, weights, classes)
        classes_by_block.append(classes)
    return np.concatenate(classes_by_block, axis=1)
