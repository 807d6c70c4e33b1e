"""SentEval's supervised relatedness: a regressor on pairs of frozen embeddings, and its correlation with gold scores.

Source: SentEval (arXiv 1803.05449), ``senteval/tools/relatedness.py`` and ``senteval/sick.py`` at 5d6dc11;
the soft labels are those of Tai et al. (arXiv 1503.00075), section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from scipy.special import softmax

from stsbench.core.errors import DataError, EncoderError
from stsbench.data.splits import PairSplit, Split
from stsbench.encoders.base import Embed, FloatArray
from stsbench.evaluators.base import (
    ItemColumns,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Scores,
    require_splits,
    score_pairs,
)
from stsbench.evaluators.probe.evaluator import MinibatchProtocol
from stsbench.evaluators.probe.items import EpochOrders, ProbeItems, make_items, starting_weights
from stsbench.evaluators.probe.minibatch import (
    Fold,
    Lockstep,
    TrainedClassifier,
    train_until_stopped,
)
from stsbench.numbers.statistics import CORRELATIONS, Float64Array, sentence_columns

CorrelationName = Literal["pearson", "spearman"]
CLASSES = 5
MEMORY = 4 << 30


@dataclass(frozen=True, kw_only=True)
class RelatednessProtocol:
    """How the regressor is trained, chosen and scored.

    ``metric`` on the test split is the score, ``selection`` on the validation split chooses the weights. A check comes
    every ``epoch_size`` passes over the data, the last one after the first check beyond ``max_epochs``; training ends
    at check ``tenacity + 1`` without a better value, counted in all and never reset. ``loss``: 2018's torch summed the
    squared errors over a batch, today's averages them and ignores the toolkit's wish. An evaluation with seed ``s`` is
    the toolkit's run with its seed set to ``base_seed + s``; seed 0 is the published one, 1111.
    """

    name: str
    metric: CorrelationName = "pearson"
    selection: CorrelationName = "pearson"
    base_seed: int = 1111
    data_order: Literal["length,gold"] = "length,gold"
    optimiser: Literal["adam"] = "adam"
    learning_rate: PositiveFloat = 1e-3
    batch_size: PositiveInt = 64
    epoch_size: PositiveInt = 50
    max_epochs: NonNegativeInt = 1000
    tenacity: NonNegativeInt = 3
    loss: Literal["mean", "sum"] = "mean"


PROTOCOLS = {
    # DeCLUTR's tables are senteval(metric=spearman): chosen by Pearson, scored by Spearman.
    "senteval": RelatednessProtocol(name="senteval"),
    # SimCSE's modified SentEval: STSBenchmark-finetune and SICKRelatedness-finetune.
    "senteval-spearman": RelatednessProtocol(
        name="senteval-spearman", metric="spearman", selection="spearman"
    ),
}


@dataclass(frozen=True)
class RelatednessEvaluator:
    """Scores a task of pairs with gold scores by a regressor trained on its training split."""

    PROTOCOLS: ClassVar[Mapping[str, RelatednessProtocol]] = PROTOCOLS

    protocol: RelatednessProtocol

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Train on ``train``, choose on ``validation``, score ``test``; seed 0 is the published run.

        Raises DataError: other splits, gold scores outside 0 to 5, or all the same; EncoderError: embeddings too large
        to train on.
        """
        rows = {
            name: _pairs(name, split, embed)
            for name, split in require_splits(
                splits, PairSplit, "relatedness", "sentence pairs with gold scores"
            ).items()
        }
        trained = self.train(rows["train"], rows["validation"], seed=self.protocol.base_seed + seed)
        test = rows["test"]
        predictions, gold = np.empty(len(test)), np.empty(len(test))
        predictions[test.at], gold[test.at] = expected_scores(trained.weights, test), test.labels
        if not np.isfinite(predictions).all():
            raise EncoderError(
                "the regressor's predictions are not finite: the embeddings are too large to train on"
            )
        found = self.recompute(
            {"gold": gold, "prediction": predictions, **sentence_columns(*splits["test"].sides)}
        )
        zeros, notes = sum(one.pool.zero_rows for one in rows.values()), list(found.notes)
        if zeros:
            notes.insert(0, f"{zeros} sentences have a zero vector as embedding")
        scores = {**found.scores, f"dev_{self.protocol.selection}": trained.accuracy}
        return replace(found, scores=scores, zero_vectors=zeros, notes=tuple(notes))

    def train(self, train: ProbeItems, validation: ProbeItems, *, seed: int) -> TrainedClassifier:
        """Train until the value on the validation split has failed to improve too often, or all epochs are over."""
        own = self.protocol
        shared = ("name", "batch_size", "tenacity", "epoch_size", "max_epochs", "loss")
        facts: dict[str, Any] = {key: getattr(own, key) for key in shared}
        rules = MinibatchProtocol(optimiser=f"{own.optimiser},lr={own.learning_rate}", **facts)
        fold = Fold(
            replace(train, labels=soft_labels(train.labels)),
            validation,
            EpochOrders(seed, len(train)),
            [0.0],
        )
        regressor = _Regressor(
            fold, starting_weights(seed, train.pool.width, CLASSES), rules, Event()
        )
        regressor.selection = own.selection
        (trained,) = train_until_stopped(regressor, rules)
        return trained

    def recompute(self, items: ItemColumns) -> Scores:
        """Correlate the regressor's ``prediction`` of each pair with its ``gold`` score."""
        prediction, gold = (
            np.asarray(items[name], dtype=np.float64) for name in ("prediction", "gold")
        )
        scores = {
            metric: correlate(prediction, gold, metric) for metric in get_args(CorrelationName)
        }
        same = (
            "every test pair gets the same prediction: no correlation exists, and 0 stands for it"
        )
        return score_pairs(
            items,
            prediction,
            metric=self.protocol.metric,
            score=scores[self.protocol.metric],
            scores={**scores, "mse": float(np.mean((prediction - gold) ** 2))},
            notes=(same,) if np.ptp(prediction) == 0 else (),
        )


def soft_labels(gold: Float64Array) -> FloatArray:
    """Spread each score over the classes beside it, (n, 5): 3.2 is 0.8 of class 3 and 0.2 of class 4.

    Below 1 there is no class 0 to take a share: a score of 0.3 is 0.3 of class 1 and nothing else, a
    score of 0 no class at all. So in the toolkit, and STS-B has such scores.
    """
    floor = np.floor(gold)
    labels = np.zeros(
        (len(gold), CLASSES + 2), dtype=np.float32
    )  # classes 0 and 6 take what is dropped
    rows = np.arange(len(gold))
    labels[rows, floor.astype(np.int64)] = floor - gold + 1
    labels[rows, floor.astype(np.int64) + 1] = gold - floor
    return np.ascontiguousarray(labels[:, 1:-1])


class _Regressor(Lockstep):
    """Checked by correlation; its classes are the scores 1 to 5."""

    selection: CorrelationName

    def accuracies(self) -> Float64Array:
        dev = self.fold.development
        return np.array(
            [correlate(expected_scores(self.weights[0], dev), dev.labels, self.selection)]
        )


def expected_scores(weights: FloatArray, pairs: ProbeItems) -> Float64Array:
    """The score that the regressor expects of each pair, (n,): its probabilities dotted with 1..5."""
    width, parts = pairs.pool.width, []
    for block in pairs.blocks():
        u, v = block.u[block.rows], block.v[block.rows]
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # reported once predictions are seen not to be finite
            features = np.concatenate([np.abs(u - v), u * v], axis=1)
            probabilities = softmax(features @ weights[:, :width].T + weights[:, width], axis=1)
        parts.append(probabilities.astype(np.float64) @ np.arange(1.0, CLASSES + 1))
    return np.concatenate(parts)


def _pairs(name: str, split: PairSplit, embed: Embed) -> ProbeItems:
    if split.n < 2 or np.ptp(split.gold) == 0:
        raise DataError(
            f"split '{name}' has fewer than two different gold scores; no correlation exists"
        )
    if not (split.gold.min() >= 0 and split.gold.max() <= CLASSES):
        raise DataError(
            f"split '{name}' has gold scores outside 0 to {CLASSES}: no soft labels can be made of them"
        )
    return make_items(split, embed, "abs_mul", MEMORY)


def correlate(predictions: Float64Array, gold: Float64Array, metric: str) -> float:
    """Correlation of predictions with gold scores; 0 where there is none, as in the toolkit."""
    if not np.isfinite(predictions).all() or np.ptp(predictions) == 0:
        return 0.0
    return CORRELATIONS[metric](predictions, gold)
