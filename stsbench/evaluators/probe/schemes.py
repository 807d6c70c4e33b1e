"""SentEval's three ways to choose and test a classifier: nested folds, folds and a test split, fixed splits.

After ``senteval/tools/validation.py``: the best penalty is the first with the highest development
accuracy *after rounding*, and a nested task's score is the mean of its folds' *rounded* accuracies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stsbench.encoders.seams import IndexArray
from stsbench.errors import DataError
from stsbench.evaluators.probe.classifier import ProbeItems, ProbeProtocol, Solver
from stsbench.evaluators.probe.draws import stratified_folds


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
