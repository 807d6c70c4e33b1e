"""SentEval's classifier: its grid search, on the trainer that suits the classifier and the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import DataError
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, Split
from stsbench.encoders.base import Embed, IndexArray
from stsbench.evaluators.probe.items import (
    Features,
    Orders,
    ProbeItems,
    ProbeProtocol,
    ProbeRun,
    Searched,
    Solver,
    make_pool,
    stratified_folds,
    toolkit_order,
)
from stsbench.evaluators.probe.minibatch import Decays, Fold, MinibatchSettings, MinibatchTrainer, TrainedClassifier
from stsbench.evaluators.seams import Count, FromZero, Items, Positive, Scores, by_name
from stsbench.numbers.statistics import SHARE_METHOD, sentence_columns, share_interval, sharing_from

if TYPE_CHECKING:
    from stsbench.evaluators.probe.logreg import ConvergedSolver


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
            from stsbench.evaluators.probe.minibatch import CompiledTrainer

            return CompiledTrainer(self, seed=seed, width=run.width, classes=run.classes, threads=run.threads)
        from stsbench.evaluators.probe.stacked import StackedTrainer

        return StackedTrainer(self, seed=seed, width=run.width, classes=run.classes, device=run.device)


@dataclass(frozen=True, kw_only=True)
class ConvergedProtocol(ProbeProtocol):
    """Logistic regression trained to its unique optimum: no early stop, no draws, no rounding.

    The loss is the summed cross-entropy plus ``penalty / 2`` times the squared weights, the
    intercept free: scikit-learn's with ``C = 1 / penalty``. ``penalties`` is tried from strong to
    weak and the first best wins; the final classifier is trained on all training data. The grid,
    1024 to 1/64 by factors of 4, suits embeddings of length 1 and of length 30 alike. ``tolerance``
    bounds the gradient, measured in preconditioned weights, whose curvature is about 1 at most.
    """

    penalties: Annotated[tuple[Positive, ...], Meta(min_length=1)] = tuple(4.0**power for power in range(5, -4, -1))
    tolerance: Positive = 1e-3
    max_iterations: Count = 1000

    def solver(self, run: ProbeRun) -> ConvergedSolver:
        """All folds and penalties at once."""
        from stsbench.evaluators.probe.logreg import ConvergedSolver

        return ConvergedSolver(
            self.penalties,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            classes=run.classes,
            device=run.device,
        )


PROTOCOLS: dict[str, ProbeProtocol] = by_name(
    # README: "comparable with the literature"; SimCSE's test mode.
    MinibatchProtocol(name="senteval"),
    # The same under the torch of 2018, which summed the loss over a batch.
    MinibatchProtocol(name="senteval-sum", loss="sum"),
    # README: "prototyping"; SimCSE's dev and fasttest modes.
    MinibatchProtocol(name="senteval-fast", kfold=5, optimiser="rmsprop", batch_size=128, tenacity=3, epoch_size=2),
    ConvergedProtocol(name="logreg"),
)


@dataclass(frozen=True)
class ProbeOutcome:
    """Accuracy and development accuracy in [0, 1], and each test item's class in its split's order, (n,)."""

    accuracy: float
    dev_accuracy: float
    predictions: IndexArray


def run_scheme(splits: Mapping[str, ProbeItems], protocol: ProbeProtocol, solver: Solver, *, seed: int) -> ProbeOutcome:
    """Run the scheme that the splits' names stand for; their items are in the toolkit's order.

    Raises:
        DataError: no scheme has these splits.
    """
    names = set(splits)
    if names == {"all"}:
        return _nested(splits["all"], protocol, solver)
    if names == {"train", "test"}:
        return _kfold(splits["train"], splits["test"], protocol, solver, seed=protocol.base_seed + seed)
    if names == {"train", "validation", "test"}:
        return _fixed(splits["train"], splits["validation"], splits["test"], protocol, solver)
    raise DataError(
        f"a probe needs the splits all, or train and test, or train, validation and test; it has {sorted(names)}"
    )


def _nested(rows: ProbeItems, protocol: ProbeProtocol, solver: Solver) -> ProbeOutcome:
    """Every fold is predicted once, by a classifier whose penalty inner folds of the others chose."""
    outer = stratified_folds(rows.labels, protocol.kfold, protocol.base_seed)
    trains = [rows.select(train) for train, _ in outer]
    folds = [fold for train in trains for fold in _folds(train, protocol.kfold, protocol.base_seed)]
    found = solver.search(folds).accuracy.reshape(len(outer), protocol.kfold, -1)
    chosen = [_choose([_mean(column) for column in inner.T], protocol.rounding) for inner in found]
    classifiers = solver.refit(trains, [choice for choice, _ in chosen])

    predictions = np.empty(len(rows), dtype=np.int64)
    fold_accuracies = []
    for (_, held_out), classifier in zip(outer, classifiers, strict=True):
        items = rows.select(held_out)
        predictions[items.at] = solver.predict(classifier, items)
        fold_accuracies.append(_points(_accuracy(predictions, items), protocol.rounding))
    accuracy = _accuracy(predictions, rows) if protocol.rounding is None else _mean_points(fold_accuracies, protocol)
    return ProbeOutcome(accuracy, _mean_points([best for _, best in chosen], protocol), predictions)


def _kfold(train: ProbeItems, test: ProbeItems, protocol: ProbeProtocol, solver: Solver, *, seed: int) -> ProbeOutcome:
    """Folds of the training split choose the penalty; a classifier trained on all of it is tested."""
    accuracy = solver.search(_folds(train, protocol.kfold, seed)).accuracy
    choice, dev = _choose([_mean(column) for column in accuracy.T], protocol.rounding)
    (classifier,) = solver.refit([train], [choice])
    return _tested(classifier, test, dev, protocol, solver)


def _fixed(
    train: ProbeItems, validation: ProbeItems, test: ProbeItems, protocol: ProbeProtocol, solver: Solver
) -> ProbeOutcome:
    """The validation split chooses; the toolkit's final classifier is the chosen one trained over again, the same."""
    searched = solver.search([(train, validation)])
    choice, dev = _choose([float(a) for a in searched.accuracy[0]], protocol.rounding)
    return _tested(searched.classifiers[0][choice], test, dev, protocol, solver)


def _tested(classifier: object, test: ProbeItems, dev: float, protocol: ProbeProtocol, solver: Solver) -> ProbeOutcome:
    predictions = np.empty(len(test), dtype=np.int64)
    predictions[test.at] = solver.predict(classifier, test)
    accuracy = _points(_accuracy(predictions, test), protocol.rounding)
    return ProbeOutcome(_mean_points([accuracy], protocol), _mean_points([dev], protocol), predictions)


def _folds(rows: ProbeItems, k: int, seed: int) -> list[tuple[ProbeItems, ProbeItems]]:
    return [(rows.select(train), rows.select(held_out)) for train, held_out in stratified_folds(rows.labels, k, seed)]


def _accuracy(predictions: IndexArray, rows: ProbeItems) -> float:
    return int((predictions[rows.at] == rows.labels).sum()) / len(rows)


def _mean(accuracies: npt.NDArray[np.float64]) -> np.float64:
    # A contiguous copy: numpy sums a column of a matrix in another order than a list of its values.
    return np.float64(np.mean(accuracies.copy()))


def _choose(accuracies: Sequence[float], rounding: int | None) -> tuple[int, float]:
    """The place of the best accuracy after rounding, the first of equals, and that accuracy in points."""
    points = [_points(accuracy, rounding) for accuracy in accuracies]
    best = int(np.argmax(points))
    return best, float(points[best])


def _points(accuracy: float, rounding: int | None) -> float:
    """An accuracy times 100, rounded. ``round`` treats numpy's means and Python's quotients unlike: so in the toolkit."""
    return 100 * accuracy if rounding is None else round(100 * accuracy, rounding)


def _mean_points(points: Sequence[float], protocol: ProbeProtocol) -> float:
    """The mean of accuracies in points, rounded again, as an accuracy in [0, 1]."""
    if protocol.rounding is None:
        return float(np.mean(points)) / 100
    return round(float(round(np.mean(points), protocol.rounding)) / 100, protocol.rounding + 2)


class ProbeEvaluator:
    """Scores one classification task by a classifier on frozen embeddings.

    The splits' names give the scheme: ``all`` nested cross-validation (MR, CR, SUBJ, MPQA); ``train``
    and ``test`` folds of train, then test (TREC, MRPC); with ``validation`` fixed splits (SST,
    SICK-E, SNLI, probing).

    In memory at most: the embeddings, if ``memory`` allows; else 128 MiB of them a thread. Beside them the
    batch orders (4 bytes an item and epoch) and, under ``logreg``, 1 GiB of features. Features of pairs
    are made batch by batch, never all at once.
    """

    PROTOCOLS: ClassVar[Mapping[str, ProbeProtocol]] = PROTOCOLS

    def __init__(
        self,
        protocol: ProbeProtocol,
        *,
        f1: bool = False,
        features: Features = "u",
        nhid: FromZero | None = None,
        epoch_size: Count | None = None,
        max_epochs: FromZero | None = None,
        weight_decays: Decays | None = None,
        device: str = "cpu",
        threads: Count | None = None,
        memory: FromZero = 4 << 30,
    ) -> None:
        """Set up a probe; ``self.protocol`` then holds the fields that a Result records.

        Args:
            protocol: how classifiers are trained, chosen and rounded.
            f1: report the F1 of class 1 beside accuracy (MRPC).
            features: of pairs: ``abs_mul`` (MRPC, SICK-E) or ``concat_mul_abs`` (SNLI, whose rows
                are then also sorted as the toolkit sorts SNLI's); of single sentences ``u``.
            nhid: what the task fixes in place of the protocol's hidden units, if it has any (WordContent: 0).
            epoch_size: likewise its passes between checks (SNLI: 1).
            max_epochs: likewise its most epochs (SNLI: 15).
            weight_decays: likewise its grid (SNLI: 1e-9 alone).
            device: ``cpu`` or a torch device; classifiers with hidden units use torch anywhere.
            threads: of the CPU; default: all that this process may use.
            memory: bytes of embeddings held in memory; a larger task is read chunk by chunk.
        """
        fixed = {"nhid": nhid, "epoch_size": epoch_size, "max_epochs": max_epochs, "weight_decays": weight_decays}
        own = {field.name for field in fields(protocol)}
        changes: dict[str, Any] = {name: value for name, value in fixed.items() if name in own and value is not None}
        self.protocol = replace(protocol, **changes)
        self.f1, self.features = f1, features
        self.device, self.memory = device, memory
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.threads = threads or cores or 1

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Train, choose and test classifiers on the embeddings of these splits.

        Args:
            splits: ``all``; ``train`` and ``test``; or those and ``validation``.
            embed: sentences to embeddings.
            seed: 0 is the published run; see :class:`ProbeProtocol`.

        Raises:
            DataError: splits that are not labelled, too small, or of no known scheme.
            EncoderError: embeddings that are not finite, or of a wrong shape.
        """
        labelled = {name: _labelled(split) for name, split in splits.items()}
        classes = max(max(1 + int(split.labels.max()), len(split.classes)) for split in labelled.values())
        if classes < 2:
            raise DataError("a probe needs at least two classes")
        rows: dict[str, ProbeItems] = {}
        for name, split in labelled.items():
            free = self.memory - sum(r.pool.held for r in rows.values())
            order = toolkit_order(split, second_first=self.features == "concat_mul_abs")
            rows[name] = ProbeItems(make_pool(split, embed, self.features, free), order, split.labels[order])
        width = next(iter(rows.values())).pool.width
        solver = self.protocol.solver(ProbeRun(width, classes, seed, self.device, self.threads))
        outcome = run_scheme(rows, self.protocol, solver, seed=seed)
        trained, tested = (labelled.get(name) or labelled["all"] for name in ("train", "test"))
        correct, sentences = outcome.predictions == tested.labels, sentence_columns(*tested.sides)
        columns = {"prediction": outcome.predictions, "correct": correct, **sentences}
        found = self.recompute({**columns, "label": tested.labels})
        # The accuracy of always answering the training items' most frequent class.
        majority = float((tested.labels == int(np.bincount(trained.labels).argmax())).mean())
        accuracies = {"accuracy": outcome.accuracy, "dev_accuracy": outcome.dev_accuracy, "majority": majority}
        names = list(map(str, tested.classes or trained.classes))
        names += list(map(str, range(len(names), classes)))
        zeros, constant = sum(r.pool.zero_rows for r in rows.values()), all(r.pool.constant for r in rows.values())
        notes = [f"{zeros} embeddings are zero vectors"] if zeros else []
        if constant:
            what = "the classifier can only learn how frequent classes are"
            notes.append(f"every sentence has the same embedding: {what}")
        return replace(
            found,
            score=outcome.accuracy,
            scores={**accuracies, **found.scores, "accuracy": outcome.accuracy},
            per_subset={name: found.per_subset.get(str(c), _class_scores(0, 0, 0)) for c, name in enumerate(names)},
            per_item=columns,
            zero_vectors=zeros,
            notes=(*notes, *solver.notes()),
        )

    def recompute(self, items: Items) -> Scores:
        """Make the share of right answers; where the true ``label`` of each item is among its columns, each class's too.

        The accuracy of a Result is this share as its protocol rounds it, of nested folds the mean of theirs. Classes have
        their numbers for names.
        """
        prediction, correct = np.asarray(items["prediction"]), np.asarray(items["correct"], dtype=bool)
        share, n = float(correct.mean()), len(correct)
        scores, per_subset = {"accuracy": share}, dict[str, dict[str, float]]()
        if "label" in items:
            label = np.asarray(items["label"])
            for c in range(1 + int(max(label.max(), prediction.max()))):
                per_subset[str(c)] = _class_scores(
                    int(((prediction == c) & (label == c)).sum()), int((prediction == c).sum()), int((label == c).sum())
                )
            if self.f1:
                value, decimals = per_subset["1"]["f1"], self.protocol.rounding
                # In points, as the protocol rounds accuracy.
                scores["f1"] = value if decimals is None else round(round(100 * value, decimals) / 100, decimals + 2)
        return Scores(
            score=share,
            scores=scores,
            per_subset=per_subset,
            interval=share_interval(correct.astype(np.float64), sharing_from(items, n)),
            interval_method=SHARE_METHOD,
            per_item=items,
            n=n,
        )


def _class_scores(hits: int, found: int, support: int) -> dict[str, float]:
    """Precision, recall, F1 and support of one class; what has no items is 0."""
    return {
        "precision": hits / found if found else 0.0,
        "recall": hits / support if support else 0.0,
        "f1": 2 * hits / (found + support) if found + support else 0.0,
        "support": float(support),
    }


def _labelled(split: Split) -> LabelledSplit | LabelledPairSplit:
    if not isinstance(split, LabelledSplit | LabelledPairSplit):
        raise DataError("the evaluator 'probe' scores sentences or pairs that have a class")
    if not split.n:
        raise DataError("a split of the probe is empty")
    return split
