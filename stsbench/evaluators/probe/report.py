"""From predictions to scores: accuracy, its interval, the majority baseline, each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.data.splits import LabelledPairSplit, LabelledSplit
from stsbench.evaluators.probe.pool import Pool
from stsbench.evaluators.probe.schemes import ProbeOutcome
from stsbench.evaluators.seams import Scores
from stsbench.numbers.intervals import SHARE_METHOD, share_interval, sharing_from
from stsbench.numbers.sharing import sentence_columns


class Labelled(NamedTuple):
    """The splits of a task and its number of classes."""

    splits: Mapping[str, LabelledSplit | LabelledPairSplit]
    classes: int

    @property
    def trained(self) -> LabelledSplit | LabelledPairSplit:
        """The split that classifiers are trained on."""
        return self.splits.get("train") or self.splits["all"]

    @property
    def tested(self) -> LabelledSplit | LabelledPairSplit:
        """The split whose every item is predicted."""
        return self.splits.get("test") or self.splits["all"]

    def name(self, label: int) -> str:
        """What a class is called."""
        names = self.tested.classes or self.trained.classes
        return str(names[label]) if label < len(names) else str(label)


def make_probe_scores(task: Labelled, outcome: ProbeOutcome, *, f1: bool, rounding: int | None) -> Scores:
    """Put an outcome into numbers.

    ``majority`` is the accuracy of always answering the training items' most frequent class. F1 is
    that of class 1, rounded in points as the protocol rounds accuracy.
    """
    truth = task.tested.labels
    correct = outcome.predictions == truth
    per_class = [_class_scores(outcome.predictions == c, truth == c) for c in range(task.classes)]
    most_frequent = int(np.bincount(task.trained.labels).argmax())
    sentences = sentence_columns(*task.tested.sides)
    scores = {
        "accuracy": outcome.accuracy,
        "dev_accuracy": outcome.dev_accuracy,
        "majority": float((truth == most_frequent).mean()),
    }
    if f1:
        value = per_class[1]["f1"]
        scores["f1"] = value if rounding is None else round(round(100 * value, rounding) / 100, rounding + 2)
    return Scores(
        score=outcome.accuracy,
        scores=scores,
        per_subset={task.name(c): per_class[c] for c in range(task.classes)},
        interval=share_interval(correct.astype(np.float64), sharing_from(sentences, len(truth))),
        interval_method=SHARE_METHOD,
        per_item={"prediction": outcome.predictions, "correct": correct, **sentences},
        n=len(truth),
    )


def _class_scores(predicted: npt.NDArray[np.bool_], true: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Precision, recall, F1 and support of one class; what has no items is 0."""
    hits, found, support = int((predicted & true).sum()), int(predicted.sum()), int(true.sum())
    return {
        "precision": hits / found if found else 0.0,
        "recall": hits / support if support else 0.0,
        "f1": 2 * hits / (found + support) if found + support else 0.0,
        "support": float(support),
    }


def embedding_notes(pools: Sequence[Pool]) -> tuple[str, ...]:
    """What a reader of the score must know of the embeddings."""
    notes = []
    zeros = sum(pool.zero_rows for pool in pools)
    if zeros:
        notes.append(f"{zeros} embeddings are zero vectors")
    if all(pool.constant for pool in pools):
        notes.append("every sentence has the same embedding: the classifier can only learn how frequent classes are")
    return tuple(notes)
