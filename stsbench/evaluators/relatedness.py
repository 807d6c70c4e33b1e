"""SentEval's supervised relatedness: a regressor on pairs of frozen embeddings, and its correlation with gold scores.

Source: SentEval (arXiv 1803.05449), ``senteval/tools/relatedness.py`` and ``senteval/sick.py`` at 5d6dc11;
the soft labels are those of Tai et al. (arXiv 1503.00075), section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from stsbench.core.errors import DataError, EncoderError
from stsbench.data.splits import PairSplit, Split
from stsbench.encoders.base import Embed, FloatArray
from stsbench.evaluators.probe.items import Orders, make_pool, token_counts
from stsbench.evaluators.seams import Count, FromZero, Items, Positive, Scores, by_name
from stsbench.numbers.statistics import (
    CORRELATION_METHOD,
    CORRELATIONS,
    Float64Array,
    correlation_interval,
    sentence_columns,
    sharing_from,
    split_parts,
)

CorrelationName = Literal["pearson", "spearman"]
CLASSES = 5
MEMORY = 4 << 30


@dataclass(frozen=True, kw_only=True)
class RelatednessProtocol:
    """How the regressor is trained, chosen and scored.

    ``metric`` on the test split is the score, ``selection`` on the validation split chooses the weights.
    A check comes every ``epoch_size`` passes over the data, the last one after the first check beyond
    ``max_epochs``; training ends at check ``tenacity + 1`` without a better value, counted in all and never
    reset. ``loss``: 2018's torch summed the squared errors over a batch, today's averages them and ignores
    the toolkit's wish. An evaluation with seed ``s`` is the toolkit's run with its seed set to
    ``base_seed + s``; seed 0 is the published one, 1111.
    """

    name: str
    metric: CorrelationName = "pearson"
    selection: CorrelationName = "pearson"
    base_seed: int = 1111
    data_order: Literal["length,gold"] = "length,gold"
    optimiser: Literal["adam"] = "adam"
    learning_rate: Positive = 1e-3
    batch_size: Count = 64
    epoch_size: Count = 50
    max_epochs: FromZero = 1000
    tenacity: FromZero = 3
    loss: Literal["mean", "sum"] = "mean"


PROTOCOLS: dict[str, RelatednessProtocol] = by_name(
    # SentEval. DeCLUTR's tables are senteval(metric=spearman): chosen by Pearson, scored by Spearman.
    RelatednessProtocol(name="senteval"),
    # SimCSE's modified SentEval: STSBenchmark-finetune and SICKRelatedness-finetune.
    RelatednessProtocol(name="senteval-spearman", metric="spearman", selection="spearman"),
)


class Regressor(NamedTuple):
    """Weights (c, w) at the best check, the value of that check, and the epochs trained in all."""

    weights: FloatArray
    dev: float
    epochs: int


@dataclass(frozen=True)
class OrderedPairs:
    """One split in the toolkit's order, which is ``order`` (n,): embeddings u and v (n, d), gold scores (n,).

    ``zeros`` counts the sentences whose embedding is a zero vector.
    """

    u: FloatArray
    v: FloatArray
    gold: Float64Array
    order: npt.NDArray[np.int64]
    zeros: int

    def predict(self, weights: FloatArray) -> Float64Array:
        """The score that the regressor expects of each pair, (n,): its probabilities dotted with 1..5."""
        width = 2 * self.u.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):  # reported once predictions are seen not to be finite
            features = np.concatenate([np.abs(self.u - self.v), self.u * self.v], axis=1)
            probabilities = softmax(features @ weights[:, :width].T + weights[:, width], axis=1)
        return probabilities.astype(np.float64) @ np.arange(1.0, CLASSES + 1)


class RelatednessEvaluator:
    """Scores a task of pairs with gold scores by a regressor trained on its training split."""

    PROTOCOLS: ClassVar[Mapping[str, RelatednessProtocol]] = PROTOCOLS

    def __init__(self, protocol: RelatednessProtocol) -> None:
        """Take the protocol that a Result records."""
        self.protocol = protocol

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Train on ``train``, choose on ``validation``, score ``test``.

        Args:
            splits: three PairSplits of these names, gold scores from 0 to 5.
            embed: sentences to embeddings.
            seed: 0 is the published run.

        Raises:
            DataError: other splits, gold scores outside 0 to 5, or all the same.
            EncoderError: embeddings of a wrong shape, not finite, or too large to train on.
        """
        if set(splits) != {"train", "validation", "test"}:
            raise DataError(f"a regressor needs the splits train, validation and test; it has {sorted(splits)}")
        train, validation, test = (make_pairs(splits[name], embed, name) for name in ("train", "validation", "test"))
        regressor = train_regressor(train, validation, self.protocol, seed=self.protocol.base_seed + seed)
        predictions, gold = np.empty_like(test.gold), np.empty_like(test.gold)
        predictions[test.order], gold[test.order] = test.predict(regressor.weights), test.gold
        if not np.isfinite(predictions).all():
            raise EncoderError("the regressor's predictions are not finite: the embeddings are too large to train on")
        found = self.recompute({"gold": gold, "prediction": predictions, **sentence_columns(*splits["test"].sides)})
        zeros, notes = train.zeros + validation.zeros + test.zeros, list(found.notes)
        if zeros:
            notes.insert(0, f"{zeros} sentences have a zero vector as embedding")
        scores = {**found.scores, f"dev_{self.protocol.selection}": regressor.dev}
        return replace(found, scores=scores, zero_vectors=zeros, notes=tuple(notes))

    def recompute(self, items: Items) -> Scores:
        """Correlate the regressor's ``prediction`` of each pair with its ``gold`` score."""
        prediction, gold = (np.asarray(items[name], dtype=np.float64) for name in ("prediction", "gold"))
        scores = {metric: correlate(prediction, gold, metric) for metric in get_args(CorrelationName)}
        same = "every test pair gets the same prediction: no correlation exists, and 0 stands for it"
        return Scores(
            score=scores[self.protocol.metric],
            scores={**scores, "mse": float(np.mean((prediction - gold) ** 2))},
            interval=correlation_interval(
                scores[self.protocol.metric],
                self.protocol.metric,
                prediction,
                gold,
                parts=split_parts([""] * len(gold), "all"),
                sharing=sharing_from(items, len(gold)),
            ),
            interval_method=CORRELATION_METHOD,
            per_item=items,
            n=len(gold),
            notes=(same,) if np.ptp(prediction) == 0 else (),
        )


def make_pairs(split: Split, embed: Embed, name: str) -> OrderedPairs:
    """Embed a split and put it in the order in which the toolkit trains: by token counts, then gold score.

    Raises:
        DataError: no pairs with gold scores from 0 to 5, or all scores the same.
        EncoderError: embeddings of a wrong shape, or not finite; names the sentence.
    """
    if not isinstance(split, PairSplit):
        raise DataError("the evaluator 'relatedness' scores sentence pairs with gold scores")
    if split.n < 2 or np.ptp(split.gold) == 0:
        raise DataError(f"split '{name}' has fewer than two different gold scores; no correlation exists")
    if not (split.gold.min() >= 0 and split.gold.max() <= CLASSES):
        raise DataError(f"split '{name}' has gold scores outside 0 to {CLASSES}: no soft labels can be made of them")
    order = np.lexsort([split.gold, token_counts(split.sentences2), token_counts(split.sentences1)])
    pool = make_pool(split, embed, "abs_mul", MEMORY)
    u, v = (side.take(order) for side in pool.sides)
    return OrderedPairs(u, v, split.gold[order], order, pool.zero_rows)


def soft_labels(gold: Float64Array) -> FloatArray:
    """Spread each score over the classes beside it, (n, 5): 3.2 is 0.8 of class 3 and 0.2 of class 4.

    Below 1 there is no class 0 to take a share: a score of 0.3 is 0.3 of class 1 and nothing else, a
    score of 0 no class at all. So in the toolkit, and STS-B has such scores.
    """
    floor = np.floor(gold)
    labels = np.zeros((len(gold), CLASSES + 2), dtype=np.float32)  # classes 0 and 6 take what is dropped
    rows = np.arange(len(gold))
    labels[rows, floor.astype(np.int64)] = floor - gold + 1
    labels[rows, floor.astype(np.int64) + 1] = gold - floor
    return np.ascontiguousarray(labels[:, 1:-1])


def train_regressor(
    train: OrderedPairs, validation: OrderedPairs, protocol: RelatednessProtocol, *, seed: int
) -> Regressor:
    """Train until the value on the validation split has failed to improve too often, or all epochs are over."""
    from stsbench.evaluators.probe.kernels import relatedness_loop, starting_weights

    train_epoch = relatedness_loop()
    targets, orders = soft_labels(train.gold), Orders(seed, len(train.gold))
    weights = starting_weights(seed, 2 * train.u.shape[1], CLASSES)
    first, second, kept = np.zeros_like(weights), np.zeros_like(weights), weights
    best, failures, epochs, steps = -np.inf, 0, 0, 0
    # The toolkit tests before each check: the last check comes after max_epochs, not at it.
    while failures <= protocol.tenacity and epochs <= protocol.max_epochs:
        for epoch in range(epochs, epochs + protocol.epoch_size):
            steps = train_epoch(
                train.u, train.v, targets, orders.epoch(epoch), protocol.batch_size,
                weights, first, second, protocol.learning_rate, steps, protocol.loss == "sum",
            )  # fmt: skip
        epochs += protocol.epoch_size
        value = correlate(validation.predict(weights), validation.gold, protocol.selection)
        if value > best:
            best, kept = value, weights.copy()
        else:
            failures += 1
    return Regressor(kept, best, epochs)


def correlate(predictions: Float64Array, gold: Float64Array, metric: str) -> float:
    """Correlation of predictions with gold scores; 0 where there is none, as in the toolkit."""
    if not np.isfinite(predictions).all() or np.ptp(predictions) == 0:
        return 0.0
    return CORRELATIONS[metric](predictions, gold)
