"""SentEval's probes: which items train, choose and test a classifier, and the scores that come of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from stsbench.core.errors import DataError
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, Split
from stsbench.encoders.base import Embed, IndexArray
from stsbench.evaluators.base import ItemColumns, NonNegativeInt, PositiveFloat, PositiveInt, Scores
from stsbench.evaluators.probe.items import (
    Features,
    ProbeItems,
    ProbeProtocol,
    ProbeRun,
    Solver,
    make_items,
)
from stsbench.evaluators.probe.minibatch import (
    CompiledSolver,
    Decays,
    MinibatchSettings,
    MinibatchSolver,
)
from stsbench.numbers.statistics import (
    SHARE_INTERVAL_METHOD,
    read_dependence,
    sentence_columns,
    share_interval,
)

if TYPE_CHECKING:
    from stsbench.evaluators.probe.logreg import ConvergedSolver


@dataclass(frozen=True, kw_only=True)
class MinibatchProtocol(MinibatchSettings):
    """SentEval's classifier: minibatch training stopped early on development accuracy."""

    def solver(self, run: ProbeRun) -> MinibatchSolver:
        """Compiled loops for linear classifiers on the CPU; torch for hidden layers and accelerators."""
        if self.nhid == 0 and run.device == "cpu":
            return CompiledSolver(self, run)
        from stsbench.evaluators.probe.stacked import StackedSolver

        return StackedSolver(self, run)


@dataclass(frozen=True, kw_only=True)
class ConvergedProtocol(ProbeProtocol):
    """Logistic regression trained to its unique optimum: no early stop, no draws, no rounding.

    The loss is the summed cross-entropy plus ``penalty / 2`` times the squared weights, the intercept free:
    scikit-learn's with ``C = 1 / penalty``. ``penalties`` is tried from strong to weak and the first best wins; the
    final classifier is trained on all training data. The grid, 1024 to 1/64 by factors of 4, suits embeddings of length
    1 and of 30 alike. ``tolerance`` bounds the gradient by preconditioned weights, whose curvature is about 1 at most.
    """

    penalties: Annotated[tuple[PositiveFloat, ...], Meta(min_length=1)] = tuple(
        4.0**power for power in range(5, -4, -1)
    )
    tolerance: PositiveFloat = 1e-3
    max_iterations: PositiveInt = 1000

    def solver(self, run: ProbeRun) -> ConvergedSolver:
        """All folds and penalties at once."""
        from stsbench.evaluators.probe.logreg import ConvergedSolver

        return ConvergedSolver(
            self.penalties, run, tolerance=self.tolerance, max_iterations=self.max_iterations
        )


_FAST: dict[str, Any] = {
    "kfold": 5,
    "optimiser": "rmsprop",
    "batch_size": 128,
    "tenacity": 3,
    "epoch_size": 2,
}
PROTOCOLS: dict[str, ProbeProtocol] = {
    # README: "comparable with the literature"; SimCSE's test mode.
    "senteval": MinibatchProtocol(name="senteval"),
    # The same under the torch of 2018, which summed the loss over a batch.
    "senteval-sum": MinibatchProtocol(name="senteval-sum", loss="sum"),
    # README: "prototyping"; SimCSE's dev and fasttest modes.
    "senteval-fast": MinibatchProtocol(name="senteval-fast", **_FAST),
    "logreg": ConvergedProtocol(name="logreg"),
}


def run_scheme(
    splits: Mapping[str, ProbeItems], protocol: ProbeProtocol, solver: Solver, *, seed: int
) -> tuple[float, float, IndexArray]:
    """Run the scheme that the splits' names stand for; their items are in the toolkit's order.

    ``all``: every fold is predicted once, by a classifier whose penalty inner folds of the others chose. ``train`` and
    ``test``: folds of the training split choose. With ``validation``, that split does; the toolkit's final classifier
    is the chosen one trained over again, the same. Returns accuracy and development accuracy in [0, 1], and each test
    item's class in its split's order, (n,). Raises DataError: no scheme has these splits.
    """
    k, names = protocol.kfold, sorted(splits)
    if names == ["all"]:
        rounds = splits["all"].folds(k, protocol.base_seed)
        choosing = [train.folds(k, protocol.base_seed) for train, _ in rounds]
    elif names in (["test", "train"], ["test", "train", "validation"]):
        rounds, train = [(splits["train"], splits["test"])], splits["train"]
        fixed = splits.get("validation")
        choosing = [
            [(train, fixed)] if fixed is not None else train.folds(k, protocol.base_seed + seed)
        ]
    else:
        needed = "the splits all, or train and test, or train, validation and test"
        raise DataError(f"a probe needs {needed}; it has {names}")
    searched, rounding = solver.search(list(chain(*choosing))), protocol.rounding
    chosen = [
        _choose(searched.accuracy[at : at + len(choosing[0])], rounding)
        for at in range(0, len(searched.accuracy), len(choosing[0]))
    ]
    if "validation" in splits:
        classifiers = [searched.classifiers[0][chosen[0][0]]]
    else:
        classifiers = solver.refit([train for train, _ in rounds], [choice for choice, _ in chosen])
    tested = splits.get("test") or splits["all"]
    predictions, points = np.empty(len(tested), dtype=np.int64), []
    for (_, items), classifier in zip(rounds, classifiers, strict=True):
        predictions[items.at] = solver.predict(classifier, items)
        points.append(
            _points(int((predictions[items.at] == items.labels).sum()) / len(items), rounding)
        )
    accuracy = _mean_points(points, rounding)
    if rounding is None:
        accuracy = int((predictions[tested.at] == tested.labels).sum()) / len(tested)
    return accuracy, _mean_points([best for _, best in chosen], rounding), predictions


def _choose(accuracy: Any, rounding: int | None) -> tuple[int, float]:  # noqa: ANN401 - (folds, grid)
    """The place of the best mean accuracy after rounding, the first of equals, and that accuracy in points."""
    # Contiguous copies: numpy sums a column of a matrix in another order than a list of its values.
    means = [
        np.mean(column.copy()) if len(column) > 1 else float(column[0]) for column in accuracy.T
    ]
    points = [_points(mean, rounding) for mean in means]
    best = int(np.argmax(points))
    return best, float(points[best])


def _points(accuracy: float, rounding: int | None) -> float:
    """An accuracy times 100, rounded. ``round`` treats numpy's means and Python's quotients unlike: so in the toolkit."""
    return 100 * accuracy if rounding is None else round(100 * accuracy, rounding)


def _mean_points(points: Sequence[float], rounding: int | None) -> float:
    """The mean of accuracies in points, rounded again, as an accuracy in [0, 1]."""
    if rounding is None:
        return float(np.mean(points)) / 100
    return round(float(round(np.mean(points), rounding)) / 100, rounding + 2)


class ProbeEvaluator:
    """Scores one classification task by a classifier on frozen embeddings.

    The splits' names give the scheme: ``all`` nested cross-validation (MR, CR, SUBJ, MPQA); ``train`` and ``test``
    folds of train, then test (TREC, MRPC); with ``validation`` fixed splits (SST, SICK-E, SNLI, probing).

    In memory at most: the embeddings, if ``memory`` allows; else 128 MiB of them a thread. Beside them the batch orders
    (4 bytes an item and epoch) and, under ``logreg``, 1 GiB of features. Those of pairs are made batch by batch.
    """

    PROTOCOLS: ClassVar[Mapping[str, ProbeProtocol]] = PROTOCOLS

    def __init__(
        self,
        protocol: ProbeProtocol,
        *,
        f1: bool = False,
        features: Features = "u",
        nhid: NonNegativeInt | None = None,
        epoch_size: PositiveInt | None = None,
        max_epochs: NonNegativeInt | None = None,
        weight_decays: Decays | None = None,
        device: str = "cpu",
        threads: PositiveInt | None = None,
        memory: NonNegativeInt = 4 << 30,
    ) -> None:
        """Set up a probe; ``self.protocol`` then holds the fields that a Result records.

        ``f1`` reports the F1 of class 1 beside accuracy (MRPC). Features of pairs are ``abs_mul`` (MRPC, SICK-E) or
        ``concat_mul_abs`` (SNLI, whose rows are then also sorted as the toolkit sorts SNLI's); of single sentences ``u``. What
        the task fixes in place of the protocol's fields, if it has them: ``nhid`` (WordContent: 0), ``epoch_size`` (SNLI: 1),
        ``max_epochs`` (SNLI: 15) and ``weight_decays`` (SNLI: 1e-9 alone). The device is ``cpu`` or a torch device; classifiers
        with hidden units use torch anywhere. Threads are all that this process may use unless they are given; ``memory`` is how
        many bytes of embeddings are held, a larger task is read chunk by chunk.
        """
        fixed = {
            "nhid": nhid,
            "epoch_size": epoch_size,
            "max_epochs": max_epochs,
            "weight_decays": weight_decays,
        }
        changes: dict[str, Any] = {
            k: v for k, v in fixed.items() if v is not None and hasattr(protocol, k)
        }
        self.protocol = replace(protocol, **changes)
        self.f1, self.features = f1, features
        self.device, self.memory = device, memory
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.threads = threads or cores or 1

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Train, choose and test classifiers on the embeddings; seed 0 is the published run, see :class:`ProbeProtocol`.

        Raises DataError: splits that are not labelled, too small, or of no known scheme.
        """
        labelled = {name: _labelled(split) for name, split in splits.items()}
        classes = max(
            max(1 + int(split.labels.max()), len(split.classes)) for split in labelled.values()
        )
        if classes < 2:
            raise DataError("a probe needs at least two classes")
        rows: dict[str, ProbeItems] = {}
        for name, split in labelled.items():
            rows[name] = make_items(
                split,
                embed,
                self.features,
                self.memory - sum(r.pool.in_memory for r in rows.values()),
            )
        width = next(iter(rows.values())).pool.width
        solver = self.protocol.solver(ProbeRun(width, classes, seed, self.device, self.threads))
        accuracy, on_dev, predictions = run_scheme(rows, self.protocol, solver, seed=seed)
        trained, tested = (labelled.get(name) or labelled["all"] for name in ("train", "test"))
        correct, sentences = predictions == tested.labels, sentence_columns(*tested.sides)
        columns = {"prediction": predictions, "correct": correct, **sentences}
        found = self.recompute({**columns, "label": tested.labels})
        # The accuracy of always answering the training items' most frequent class.
        majority = float((tested.labels == int(np.bincount(trained.labels).argmax())).mean())
        accuracies = {"accuracy": accuracy, "dev_accuracy": on_dev, "majority": majority}
        names = list(map(str, tested.classes or trained.classes))
        names += list(map(str, range(len(names), classes)))
        zeros, constant = (
            sum(r.pool.zero_rows for r in rows.values()),
            all(r.pool.constant for r in rows.values()),
        )
        notes = [f"{zeros} embeddings are zero vectors"] if zeros else []
        if constant:
            what = "the classifier can only learn how frequent classes are"
            notes.append(f"every sentence has the same embedding: {what}")
        return replace(
            found,
            score=accuracy,
            scores={**accuracies, **found.scores, "accuracy": accuracy},
            per_subset={
                name: found.per_subset.get(str(c), _class_scores(0, 0, 0))
                for c, name in enumerate(names)
            },
            per_item=columns,
            zero_vectors=zeros,
            notes=(*notes, *solver.notes()),
        )

    def recompute(self, items: ItemColumns) -> Scores:
        """Make the share of right answers; where the true ``label`` of each item is among its columns, each class's too.

        The accuracy of a Result is this share as its protocol rounds it, of nested folds the mean. Classes are numbers.
        """
        prediction, correct = (
            np.asarray(items["prediction"]),
            np.asarray(items["correct"], dtype=bool),
        )
        share, n = float(correct.mean()), len(correct)
        scores, per_subset = {"accuracy": share}, dict[str, dict[str, float]]()
        if "label" in items:
            label = np.asarray(items["label"])
            for c in range(1 + int(max(label.max(), prediction.max()))):
                per_subset[str(c)] = _class_scores(
                    int(((prediction == c) & (label == c)).sum()),
                    int((prediction == c).sum()),
                    int((label == c).sum()),
                )
            if self.f1:
                value, decimals = per_subset["1"]["f1"], self.protocol.rounding
                # In points, as the protocol rounds accuracy.
                scores["f1"] = (
                    value
                    if decimals is None
                    else round(round(100 * value, decimals) / 100, decimals + 2)
                )
        return Scores(
            score=share,
            scores=scores,
            per_subset=per_subset,
            interval=share_interval(correct.astype(np.float64), read_dependence(items, n)),
            interval_method=SHARE_INTERVAL_METHOD,
            per_item=items,
            n=n,
        )

    def score_range(self, items: ItemColumns, split: str) -> tuple[float, float]:
        """Return the least and the greatest score that these right and wrong answers can have made.

        Let H of n items be right. Without ``rounding`` the score is H / n. With it the score is the mean of the accuracies of
        one test split or, where all items are tested in k folds, of the folds. Each accuracy in points is rounded to d decimals,
        which moves it by at most u = 10^-d / 2; their mean moves by at most u with them, and by u when it is rounded itself: by
        10^-d points in all, which are 10^-(d + 2), so 1e-4 with two decimals.

        Folds are not of one size. Stratified folds deal the items, sorted by class, out in turn, so with q = floor(n / k) and
        r = n - q k, r folds have q + 1 items and k - r have q. If A right items are in the larger folds, the mean of the folds is

            M(A) = (A / (q + 1) + (H - A) / q) / k,

        which falls with A. A is at most H and the r (q + 1) items of the larger folds, and H - A at most the (k - r) q items of
        the others. So M lies between M(min(H, r (q + 1))) and M(max(0, H - (k - r) q)). Both are reached, as nothing else binds
        which items are right: without the folds no range is narrower. It holds H / n, and has no width if k divides n.
        """
        correct = np.asarray(items["correct"], dtype=bool)
        n, right, decimals = len(correct), int(correct.sum()), self.protocol.rounding
        if decimals is None:
            return right / n, right / n
        k, reach = self.protocol.kfold, 10.0 ** -(decimals + 2)
        if split != "all" or n < k:
            return right / n - reach, right / n + reach
        size, larger = divmod(n, k)
        in_larger = min(right, larger * (size + 1)), max(0, right - (k - larger) * size)
        low, high = ((count / (size + 1) + (right - count) / size) / k for count in in_larger)
        return low - reach, high + reach


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
