"""SentEval's probes: which items train, choose and test a classifier, and its scores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta

from stsbench.core.errors import DataError
from stsbench.core.wording import format_count
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
from stsbench.numbers.dependence import DOMINANT_COMPONENT_NOTE, read_dependence, sentence_columns
from stsbench.numbers.intervals import SHARE_INTERVAL_METHOD, share_interval

if TYPE_CHECKING:
    from stsbench.evaluators.probe.logreg import ConvergedSolver


@dataclass(frozen=True, kw_only=True)
class MinibatchProtocol(MinibatchSettings):
    """SentEval's classifier: minibatch training stopped early on development accuracy."""

    def solver(self, run: ProbeRun) -> MinibatchSolver:
        """Make the solver: compiled for linear classifiers on the CPU, otherwise one in torch."""
        if self.nhid == 0 and run.device == "cpu":
            return CompiledSolver(self, run)
        from stsbench.evaluators.probe.stacked import StackedSolver

        return StackedSolver(self, run)


@dataclass(frozen=True, kw_only=True)
class ConvergedProtocol(ProbeProtocol):
    """Logistic regression trained to its unique optimum: no early stop, no draws, no rounding.

    The loss is the summed cross-entropy plus ``penalty / 2`` times the squared weights, the
    intercept free: scikit-learn's with ``C = 1 / penalty``. ``penalties`` is tried from strong to
    weak and the first of equally good ones wins; the final classifier is trained on all training
    data. The grid, 1024 to 1/64 by factors of 4, suits embeddings of length 1 and of length 30.
    ``tolerance`` bounds the gradient by preconditioned weights, whose curvature is about 1 at most.
    """

    penalties: Annotated[tuple[PositiveFloat, ...], Meta(min_length=1)] = tuple(
        4.0**power for power in range(5, -4, -1)
    )
    tolerance: PositiveFloat = 1e-3
    max_iterations: PositiveInt = 1000

    def solver(self, run: ProbeRun) -> ConvergedSolver:
        """Make the solver, which trains all folds and penalties at once."""
        from stsbench.evaluators.probe.logreg import ConvergedSolver

        return ConvergedSolver(
            self.penalties, run, tolerance=self.tolerance, max_iterations=self.max_iterations
        )


_FAST_SETTINGS: dict[str, Any] = {
    "kfold": 5,
    "optimiser": "rmsprop",
    "batch_size": 128,
    "tenacity": 3,
    "epoch_size": 2,
}
PROTOCOLS: dict[str, ProbeProtocol] = {
    # README: "comparable with the literature"; SimCSE's test mode.
    "senteval": MinibatchProtocol(name="senteval"),
    # The same under torch of 2018, which summed the loss over a batch.
    "senteval-sum": MinibatchProtocol(name="senteval-sum", loss="sum"),
    # README: "prototyping"; SimCSE's dev and fasttest modes.
    "senteval-fast": MinibatchProtocol(name="senteval-fast", **_FAST_SETTINGS),
    "logreg": ConvergedProtocol(name="logreg"),
}


class SchemeResult(NamedTuple):
    """The outcome of a probe's scheme."""

    accuracy: float
    """The accuracy on the test items, in [0, 1]."""
    development_accuracy: float
    """The mean accuracy of the chosen classifiers on their development items, in [0, 1]."""
    predictions: IndexArray
    """The predicted class of each test item, in the order of its split, (n,)."""


class _Round(NamedTuple):
    """One final classifier of a scheme."""

    train: ProbeItems
    """The items that it is trained on."""
    test: ProbeItems
    """The items that it is tested on."""
    folds: list[tuple[ProbeItems, ProbeItems]]
    """The training and development items of the classifiers that choose its penalty."""


def run_scheme(
    splits: Mapping[str, ProbeItems], protocol: ProbeProtocol, solver: Solver, *, seed: int
) -> SchemeResult:
    """Choose, train and test classifiers by the scheme that the splits' names stand for.

    - ``all``: nested cross-validation. Each fold is tested once, by a classifier whose penalty was
      chosen by cross-validation inside the other folds.
    - ``train`` and ``test``: cross-validation on the training split chooses the penalty.
    - ``train``, ``validation`` and ``test``: the accuracy on the validation split chooses it.

    Args:
        splits: The items of each split, in the order of SentEval's toolkit.
        protocol: Gives the number of folds, their seed and the rounding.
        solver: ``search`` trains a classifier per fold and penalty, ``refit`` one per round.
        seed: The seed of the evaluation; 0 is the run of SentEval's toolkit.

    Returns:
        The accuracy on the test items, the mean development accuracy of the chosen penalties, and
        the predicted class of each test item.

    Raises:
        DataError: No scheme has these splits.
    """
    rounds = _plan_rounds(splits, protocol, seed)
    # All rounds' folds are searched in one call, so that they are trained together. The accuracies
    # are (folds, penalties), the classifiers a list per fold with one for each penalty.
    folds_of_all_rounds = list(chain.from_iterable(round_.folds for round_ in rounds))
    search = solver.search(folds_of_all_rounds)
    # Each round has equally many folds, and chooses by the accuracies on its own.
    folds_per_round = len(rounds[0].folds)
    choices = [
        _choose(search.accuracy[start : start + folds_per_round], protocol.rounding)
        for start in range(0, len(folds_of_all_rounds), folds_per_round)
    ]
    if "validation" in splits:
        # There is one round with one fold. The toolkit trains the chosen classifier once more,
        # which gives the same classifier.
        (classifiers_of_grid,) = search.classifiers
        (choice,) = choices
        classifiers = [classifiers_of_grid[choice.position]]
    else:
        classifiers = solver.refit(
            [round_.train for round_ in rounds], [choice.position for choice in choices]
        )
    # Each item of the split ``all`` is tested once, in one of the rounds. Predictions are stored at
    # the items' indices in the split.
    test_items = splits.get("test") or splits["all"]
    predictions = np.empty(len(test_items), dtype=np.int64)
    points = []  # the accuracies of the rounds, times 100
    for round_, classifier in zip(rounds, classifiers, strict=True):
        predictions[round_.test.indices] = solver.predict(classifier, round_.test)
        round_accuracy = _accuracy(predictions, round_.test)
        points.append(_points(round_accuracy, protocol.rounding))
    # The toolkit averages the rounded accuracies of the rounds; otherwise the score is exact.
    if protocol.rounding is None:
        accuracy = _accuracy(predictions, test_items)
    else:
        accuracy = _mean_points(points, protocol.rounding)
    development_accuracy = _mean_points([choice.points for choice in choices], protocol.rounding)
    return SchemeResult(accuracy, development_accuracy, predictions)


def _plan_rounds(
    splits: Mapping[str, ProbeItems], protocol: ProbeProtocol, seed: int
) -> list[_Round]:
    """Return the rounds of training and test that a task's splits are made for.

    A round has items to train on, items to test, and folds that choose the penalty: pairs of
    training and development items.

    - A split ``all``: k rounds, each of which tests one fold; all its folds are from a fixed seed,
      as in SentEval's toolkit.
    - Splits train and test: one round, whose folds divide the training split by the seed.
    - Splits train, validation and test: one round with one fold, the two splits themselves.

    Args:
        splits: The items of each split by name.
        protocol: Gives the number of folds and their seed.
        seed: The seed of the evaluation, added to the protocol's.

    Raises:
        DataError: The splits are none of these.
    """
    k = protocol.kfold
    names = sorted(splits)
    if names == ["all"]:
        return [
            _Round(train, test, train.folds(k, protocol.base_seed))
            for train, test in splits["all"].folds(k, protocol.base_seed)
        ]
    if names == ["test", "train"]:
        folds = splits["train"].folds(k, protocol.base_seed + seed)
        return [_Round(train=splits["train"], test=splits["test"], folds=folds)]
    if names == ["test", "train", "validation"]:
        folds = [(splits["train"], splits["validation"])]
        return [_Round(train=splits["train"], test=splits["test"], folds=folds)]
    raise DataError(
        "a probe needs the splits all, or train and test, or train, validation and test; "
        f"it has {names}"
    )


def _accuracy(predictions: IndexArray, items: ProbeItems) -> float:
    """Return the share of items that are predicted correctly.

    Args:
        predictions: The predicted classes of the whole split, by index in it.
        items: Some or all items of the split.
    """
    return int((predictions[items.indices] == items.labels).sum()) / len(items)


class _Choice(NamedTuple):
    position: int
    """The position of the chosen penalty in the grid."""
    points: float
    """Its mean development accuracy times 100, rounded."""


def _choose(accuracy: Any, rounding: int | None) -> _Choice:  # noqa: ANN401 - (folds, grid)
    """Choose the penalty with the best mean accuracy, the first of equals.

    Means are rounded first, with the number types of SentEval's toolkit at each step: the last
    digit decides which penalties are equal.

    Args:
        accuracy: Accuracies on development items in [0, 1], (folds, penalties).
        rounding: The number of decimals of accuracies in points (times 100); None if nothing is
            rounded.

    Returns:
        The position of the penalty and its mean accuracy in points.
    """
    means: list[Any] = []
    for accuracies_of_penalty in accuracy.T:
        if len(accuracies_of_penalty) > 1:
            # The toolkit averages a list. numpy sums a column of a matrix in another order than a
            # list, but a contiguous copy of the column in the same order.
            means.append(np.mean(accuracies_of_penalty.copy()))
        else:
            # The toolkit has Python's float here, which ``round`` treats otherwise than numpy's.
            means.append(float(accuracies_of_penalty[0]))
    points = [_points(mean, rounding) for mean in means]
    best = int(np.argmax(points))
    return _Choice(best, float(points[best]))


def _points(accuracy: float, rounding: int | None) -> float:
    """Return an accuracy in points: times 100, and rounded.

    Args:
        accuracy: An accuracy in [0, 1]. It may be numpy's or Python's float: ``round`` treats them
            differently, and callers use the same type as SentEval's toolkit.
        rounding: The number of decimals in points; None if nothing is rounded.
    """
    return 100 * accuracy if rounding is None else round(100 * accuracy, rounding)


def _mean_points(points: Sequence[float], rounding: int | None) -> float:
    """Return the mean of accuracies in points, rounded again, as an accuracy in [0, 1].

    Args:
        points: Accuracies times 100.
        rounding: The number of decimals in points; None if nothing is rounded.
    """
    if rounding is None:
        return float(np.mean(points)) / 100
    mean = float(round(np.mean(points), rounding))
    # A share in [0, 1] needs two decimals more than points.
    return round(mean / 100, rounding + 2)


class ProbeEvaluator:
    """Scores one classification task by a classifier on frozen embeddings.

    The splits' names give the scheme: ``all`` is nested cross-validation (MR, CR, SUBJ, MPQA);
    ``train`` and ``test`` are folds of train, then test (TREC, MRPC); with ``validation`` the
    splits are fixed (SST, SICK-E, SNLI, probing).

    The memory holds at most the embeddings, if ``memory`` allows, otherwise 128 MiB of them per
    thread; further the batch orders (4 bytes per item and epoch) and, under ``logreg``, 1 GiB of
    features. Features of pairs are made batch by batch.
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
        """Store the settings of a probe, a classifier that is trained on sentence embeddings.

        Four arguments replace fields of the protocol for one task: ``nhid``, ``epoch_size``,
        ``max_epochs`` and ``weight_decays``. None leaves the field; a field that the protocol does
        not have is ignored.

        Args:
            protocol: The settings of training and scoring.
            f1: Report the F1 of class 1 beside accuracy (task MRPC).
            features: ``u`` for single sentences; for pairs ``abs_mul`` (MRPC, SICK-E) or
                ``concat_mul_abs`` (SNLI), see ``combine_sides`` in ``items.py``.
            nhid: The number of hidden units (WordContent: 0).
            epoch_size: The number of epochs between two checks (SNLI: 1).
            max_epochs: The number of epochs after which the next check is the last (SNLI: 15).
            weight_decays: The penalties to choose from (SNLI: 1e-9 alone).
            device: ``cpu`` or another device of torch.
            threads: The number of threads; by default that of the cores this process may use.
            memory: The maximum number of bytes of embeddings in memory, 4 GiB by default; a larger
                task is read chunk by chunk.
        """
        task_values = {
            "nhid": nhid,
            "epoch_size": epoch_size,
            "max_epochs": max_epochs,
            "weight_decays": weight_decays,
        }
        changes: dict[str, Any] = {
            name: value
            for name, value in task_values.items()
            if value is not None and hasattr(protocol, name)
        }
        self.protocol = replace(protocol, **changes)
        registered = self.PROTOCOLS.get(protocol.name, protocol)
        # The fields that the protocol was requested with, and that the task's card replaces.
        self._replacement_notes = [
            f"{name} is {value}, as the task's card says, not {getattr(protocol, name)}"
            for name, value in changes.items()
            if getattr(protocol, name) not in (value, getattr(registered, name))
        ]
        self.f1 = f1
        self.features = features
        self.device = device
        self.memory = memory
        # Only Linux has os.sched_getaffinity, the cores that this process may use.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.threads = threads or cores or 1

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Train, choose and test classifiers on the embeddings.

        Args:
            splits: The task's splits: ``all``; or ``train``, ``test`` and perhaps ``validation``.
            embed: Embeds sentences.
            seed: The seed of the evaluation; 0 is the run of SentEval's toolkit.

        Returns:
            The accuracy as the score, with the accuracies on development items and of the most
            frequent class, the scores of each class, and the predictions as per-item columns.

        Raises:
            DataError: The splits are not labelled, too small, or of no known scheme.
        """
        labelled_splits = {name: _check_labelled(split) for name, split in splits.items()}
        n_classes = _count_classes(labelled_splits.values())
        items_by_split = self._make_items(labelled_splits, embed)
        pools = [items.pool for items in items_by_split.values()]
        run = ProbeRun(pools[0].width, n_classes, seed, self.device, self.threads)
        solver = self.protocol.solver(run)
        accuracy, development_accuracy, predictions = run_scheme(
            items_by_split, self.protocol, solver, seed=seed
        )
        # A task whose only split is ``all`` trains and tests on its folds.
        train, test = (
            labelled_splits.get(name) or labelled_splits["all"] for name in ("train", "test")
        )
        columns = {
            "prediction": predictions,
            "correct": predictions == test.labels,
            **sentence_columns(*test.sides),
        }
        result = self.recompute({**columns, "label": test.labels})
        most_frequent_class = int(np.bincount(train.labels).argmax())
        accuracies = {
            "accuracy": accuracy,
            "dev_accuracy": development_accuracy,
            # The accuracy of always predicting the most frequent class.
            "majority": float((test.labels == most_frequent_class).mean()),
        }
        named_classes = list(map(str, test.classes or train.classes))
        # A class without a name has its number.
        numbered_classes = list(map(str, range(len(named_classes), n_classes)))
        no_items = _class_scores(n_hits=0, n_predicted=0, support=0)
        per_subset = {
            name: result.per_subset.get(str(class_index), no_items)
            for class_index, name in enumerate([*named_classes, *numbered_classes])
        }
        zero_vectors = sum(pool.zero_rows for pool in pools)
        notes = _describe_embeddings(zero_vectors, all(pool.is_constant for pool in pools))
        return replace(
            result,
            score=accuracy,
            # The recomputed accuracy is not rounded as the protocol demands.
            scores={**accuracies, **result.scores, "accuracy": accuracy},
            per_subset=per_subset,
            per_item=columns,
            zero_vectors=zero_vectors,
            notes=(*notes, *result.notes, *solver.notes(), *self._replacement_notes),
        )

    def _make_items(
        self, splits: Mapping[str, LabelledSplit | LabelledPairSplit], embed: Embed
    ) -> dict[str, ProbeItems]:
        """Embed the splits one after the other, and return the items of each by its name.

        The limit ``self.memory``, in bytes, is for the embeddings of all splits together. A split
        that does not fit into what earlier splits left free is read from its file chunk by chunk.

        Args:
            splits: The splits by name.
            embed: Embeds sentences.
        """
        items_by_split: dict[str, ProbeItems] = {}
        free_bytes = self.memory
        for name, split in splits.items():
            items = make_items(split, embed, self.features, memory=free_bytes)
            # 0 for a split that is read chunk by chunk.
            free_bytes -= items.pool.resident_bytes
            items_by_split[name] = items
        return items_by_split

    def recompute(self, items: ItemColumns) -> Scores:
        """Compute the share of correct predictions and the scores of each class.

        Args:
            items: Columns of length n: ``prediction`` and ``label``, numbers of classes;
                ``correct``; and those that tell which items share sentences. Without ``label``
                there are no scores of classes.

        Returns:
            The score is the share. A Result's own score may differ from it a little, because it
            may be rounded, or averaged over folds. ``per_subset`` has precision, recall, F1 and
            support of each class, by its number as text.
        """
        prediction = np.asarray(items["prediction"])
        correct = np.asarray(items["correct"], dtype=bool)
        share = float(correct.mean())
        n = len(correct)
        scores = {"accuracy": share}
        per_subset: dict[str, dict[str, float]] = {}
        if "label" in items:
            label = np.asarray(items["label"])
            # Not only the classes of labels: a class may occur in predictions alone, and F1 is of
            # class 1, even if no item is of it.
            for class_index in range(1 + int(max(label.max(), prediction.max(), self.f1))):
                is_predicted = prediction == class_index
                is_true = label == class_index
                per_subset[str(class_index)] = _class_scores(
                    int((is_predicted & is_true).sum()),
                    int(is_predicted.sum()),
                    int(is_true.sum()),
                )
            # The F1 of class 1, which SentEval's toolkit reports for MRPC, in [0, 1]. It is rounded
            # as the protocol rounds accuracy.
            if self.f1:
                scores["f1"] = self._round(per_subset["1"]["f1"])
        dependence = read_dependence(items, n)
        # A group of items that share sentences may have more than half of all items; then a note
        # says so.
        is_dominated = dependence.has_dominant_component(np.full(n, 1 / n))
        return Scores(
            score=share,
            scores=scores,
            per_subset=per_subset,
            notes=(DOMINANT_COMPONENT_NOTE,) if is_dominated else (),
            interval=share_interval(correct.astype(np.float64), dependence),
            interval_method=SHARE_INTERVAL_METHOD,
            per_item=items,
            n=n,
        )

    def _round(self, value: float) -> float:
        """Round a value in [0, 1] in points, as the protocol rounds accuracy."""
        decimals = self.protocol.rounding
        if decimals is None:
            return value
        return round(round(100 * value, decimals) / 100, decimals + 2)

    def score_range(self, items: ItemColumns, split: str) -> tuple[float, float]:
        """Return the lowest and the highest score in [0, 1] that the predictions allow.

        Scores that protocols round are not determined by the items (column ``correct``) alone. With
        H of n items correct:

        - Without rounding the score is H / n.
        - Rounding: the accuracy of each test split or fold, in points (times 100), is rounded to d
          decimals, and so is their mean. Each moves the score by 10^-d / 2 points at most, both by
          10^-d points, which are 10^-(d + 2).
        - A split ``all`` is tested in k folds. The score is the mean of their accuracies, but
          the items do not tell their folds. With q = floor(n / k) (``size``) and r = n - q k
          (``n_larger``), r folds have q + 1 items and the others q. If A correct items are in the
          larger folds (``in_larger``), the mean is M(A) = (A / (q + 1) + (H - A) / q) / k, which
          falls with A. A is at most H and r (q + 1), and at least 0 and H - (k - r) q. So M of
          the largest and of the smallest A are the bounds, and both are possible.

        Args:
            items: The per-item columns, with ``correct``: 1 for a right prediction, else 0.
            split: The name of the split that the items are of: ``all`` or ``test``.
        """
        is_correct = np.asarray(items["correct"], dtype=bool)
        n = len(is_correct)
        n_correct = int(is_correct.sum())
        decimals = self.protocol.rounding
        if decimals is None:
            return n_correct / n, n_correct / n
        k = self.protocol.kfold
        rounding_error = 10.0 ** -(decimals + 2)
        # One accuracy, not a mean over folds. No run has fewer items than folds, but a file may.
        if split != "all" or n < k:
            return n_correct / n - rounding_error, n_correct / n + rounding_error
        size, n_larger = divmod(n, k)
        most_in_larger = min(n_correct, n_larger * (size + 1))
        least_in_larger = max(0, n_correct - (k - n_larger) * size)
        low, high = (
            (in_larger / (size + 1) + (n_correct - in_larger) / size) / k
            for in_larger in (most_in_larger, least_in_larger)
        )
        return low - rounding_error, high + rounding_error


def _describe_embeddings(zero_vectors: int, is_constant: bool) -> list[str]:
    """Return notes on embeddings that carry no information; empty if there are none.

    Args:
        zero_vectors: The number of embeddings that are zero vectors.
        is_constant: Whether every sentence has the same embedding.
    """
    notes = []
    if zero_vectors:
        notes.append(f"{format_count(zero_vectors, 'zero vector')} among the embeddings")
    if is_constant:
        notes.append(
            "every sentence has the same embedding: "
            "the classifier can only learn how frequent classes are"
        )
    return notes


def _class_scores(n_hits: int, n_predicted: int, support: int) -> dict[str, float]:
    """Return precision, recall, F1 and support of one class by name; a quotient by 0 items is 0.

    Args:
        n_hits: The number of items of the class that are predicted as the class.
        n_predicted: The number of items that are predicted as the class.
        support: The number of items of the class.
    """
    return {
        "precision": n_hits / n_predicted if n_predicted else 0.0,
        "recall": n_hits / support if support else 0.0,
        "f1": 2 * n_hits / (n_predicted + support) if n_predicted + support else 0.0,
        "support": float(support),
    }


def _count_classes(splits: Iterable[LabelledSplit | LabelledPairSplit]) -> int:
    """Return the number of classes of a task, in all its splits.

    Labels are numbers of classes from 0; ``classes`` are their names. A class may have a name but
    no items, or items but no name.

    Args:
        splits: All splits of the task.

    Raises:
        DataError: There are fewer than two.
    """
    n_classes = max(max(1 + int(split.labels.max()), len(split.classes)) for split in splits)
    if n_classes < 2:
        raise DataError("a probe needs at least two classes")
    return n_classes


def _check_labelled(split: Split) -> LabelledSplit | LabelledPairSplit:
    """Return the split unchanged if its items have classes, and if it has items at all.

    Raises:
        DataError: Its items have no classes, or there are no items.
    """
    if not isinstance(split, LabelledSplit | LabelledPairSplit):
        raise DataError("the evaluator 'probe' scores sentences or pairs that have a class")
    if not split.n:
        raise DataError("a split of the probe is empty")
    return split
