"""SentEval's supervised relatedness: a regressor on pairs of frozen embeddings.

The score is the correlation of its predictions with gold scores.

Source: SentEval (arXiv 1803.05449), ``senteval/tools/relatedness.py`` and ``senteval/sick.py`` at
5d6dc11; the soft labels are those of Tai et al. (arXiv 1503.00075), section 5.2.
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
    BaseSeed,
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
from stsbench.evaluators.probe.minibatch import Fold, Lockstep, TrainedWeights, train_until_stopped
from stsbench.numbers.dependence import sentence_columns
from stsbench.numbers.statistics import CORRELATIONS, Float64Array

CorrelationName = Literal["pearson", "spearman"]
N_CLASSES = 5
"""The number of classes of the classifier, which stand for the scores 1 to 5."""
MAX_EMBEDDINGS_BYTES = 4 << 30
"""The maximum number of bytes of a split's embeddings in memory."""


@dataclass(frozen=True, kw_only=True)
class RelatednessProtocol:
    """How the regressor is trained, chosen and scored.

    ``metric`` on the test split is the score, ``selection`` on the validation split chooses the
    weights. There is a check after every ``epoch_size`` passes over the data; the last one is the
    first check beyond ``max_epochs``. Training ends at the check that is number ``tenacity + 1``
    without a better value; these are counted in all and never reset. ``loss``: torch of 2018 summed
    the squared errors over a batch; the current one averages them and ignores the toolkit's option.
    An evaluation with seed ``s`` is the toolkit's run with its seed set to ``base_seed + s``; seed
    0 is the published one, 1111.
    """

    name: str
    metric: CorrelationName = "pearson"
    selection: CorrelationName = "pearson"
    base_seed: BaseSeed = 1111
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
        """Train a regressor on embeddings of sentence pairs, and score its predictions.

        It predicts the gold score of a pair, the similarity from 0 to 5 that people gave it. It is
        trained on split ``train``; the epoch whose weights are used is chosen on ``validation``;
        the score is a correlation over ``test``.

        Args:
            splits: These three splits, pairs with gold scores.
            embed: Embeds sentences.
            seed: Added to the protocol's ``base_seed``; 0 is the run of SentEval's toolkit.

        Returns:
            The correlation as score, other correlations, and the predictions per item.

        Raises:
            DataError: The splits are others, or gold scores are outside 0 to 5 or all the same.
            EncoderError: The embeddings are too large to train on.
        """
        pair_splits = require_splits(
            splits,
            split_type=PairSplit,
            evaluator="relatedness",
            scored_items="sentence pairs with gold scores",
        )
        items_by_split = {
            name: _make_pairs(name, split, embed) for name, split in pair_splits.items()
        }
        trained = self.train(
            items_by_split["train"],
            items_by_split["validation"],
            seed=self.protocol.base_seed + seed,
        )
        test = items_by_split["test"]
        predictions = np.empty(len(test))
        gold = np.empty(len(test))
        # Items are sorted as SentEval's toolkit sorts them; test.indices are their rows in the
        # split, which is the order of the columns.
        predictions[test.indices] = expected_scores(trained.weights, test)
        gold[test.indices] = test.labels
        if not np.isfinite(predictions).all():
            raise EncoderError(
                "the regressor's predictions are not finite: "
                "the embeddings are too large to train on"
            )
        # The further columns tell which pairs share a sentence.
        test_scores = self.recompute(
            {"gold": gold, "prediction": predictions, **sentence_columns(*splits["test"].sides)}
        )
        # The number of zero vectors among the embeddings of all splits.
        zero_vectors = sum(items.pool.zero_rows for items in items_by_split.values())
        notes = list(test_scores.notes)
        if zero_vectors:
            notes.insert(0, f"{zero_vectors} sentences have a zero vector as embedding")
        # For a regressor, the field "accuracy" holds the best correlation on the validation pairs.
        scores = {**test_scores.scores, f"dev_{self.protocol.selection}": trained.accuracy}
        return replace(test_scores, scores=scores, zero_vectors=zero_vectors, notes=tuple(notes))

    def train(self, train: ProbeItems, validation: ProbeItems, *, seed: int) -> TrainedWeights:
        """Train the regressor until its validation correlation fails to improve too often.

        Training ends at the last epoch of the protocol at the latest. The regressor is the same
        classifier that scores classification tasks (``minibatch.py``), with two changes: its labels
        are shares of five classes, and a correlation in place of the accuracy chooses the weights.

        Args:
            train: The pairs to learn from, with gold scores as labels.
            validation: The pairs whose correlation chooses the weights.
            seed: The seed of the first weights and of the order of items in each epoch.

        Returns:
            The weights (5, w) at their best check, where w is the number of features and the bias,
            padded; and as ``accuracy`` the correlation at that check.
        """
        protocol = self.protocol
        # The fields that both protocols, of the regressor and of the classifier, have.
        shared_fields = ("name", "batch_size", "tenacity", "epoch_size", "max_epochs", "loss")
        shared_values: dict[str, Any] = {name: getattr(protocol, name) for name in shared_fields}
        training_protocol = MinibatchProtocol(
            optimiser=f"{protocol.optimiser},lr={protocol.learning_rate}", **shared_values
        )
        fold = Fold(
            train=replace(train, labels=soft_labels(train.labels)),
            development=validation,
            orders=EpochOrders(seed, len(train)),
            # One classifier is trained for each weight decay: here a single one, without decay.
            decays=[0.0],
        )
        # Drawn by the seed, (5, w), a row per class.
        weights = starting_weights(seed, train.pool.width, N_CLASSES)
        # An event that is never set: nothing cancels this training.
        # A _Regressor's "accuracy" at a check is the correlation on ``fold.development``.
        regressor = _Regressor(fold, weights, training_protocol, cancelled=Event())
        # The name of the correlation by which the weights are chosen.
        regressor.selection = protocol.selection
        (trained,) = train_until_stopped(regressor, training_protocol)
        return trained

    def recompute(self, items: ItemColumns) -> Scores:
        """Correlate the regressor's ``prediction`` of each pair with its ``gold`` score.

        If all predictions are the same, correlations are 0, and a note says so.

        Args:
            items: The columns ``prediction`` and ``gold``, and those that tell which pairs share
                sentences, each of length n.

        Returns:
            The score is the correlation that the protocol names. The other correlations and the
            mean squared error ``mse`` are in its field ``scores``.
        """
        prediction, gold = (
            np.asarray(items[name], dtype=np.float64) for name in ("prediction", "gold")
        )
        # CorrelationName is the type of the two names: ``pearson`` and ``spearman``.
        scores = {
            metric: correlate(prediction, gold, metric) for metric in get_args(CorrelationName)
        }
        notes = []
        if np.ptp(prediction) == 0:
            notes.append(
                "every test pair gets the same prediction: "
                "no correlation exists, and 0 stands for it"
            )
        # This adds the 95% interval of the score.
        return score_pairs(
            items,
            prediction,
            metric=self.protocol.metric,
            score=scores[self.protocol.metric],
            scores={**scores, "mse": float(np.mean((prediction - gold) ** 2))},
            notes=notes,
        )


def soft_labels(gold: Float64Array) -> FloatArray:
    """Divide each gold score between the two nearest classes.

    Classes are the whole scores 1 to 5. For example, 3.2 is 0.8 of class 3 and 0.2 of class 4.
    There is no class 0, so a score below 1 loses that share: 0.3 is 0.3 of class 1, and 0 is no
    class at all. SentEval's toolkit does the same, and the data set STS-B has such scores.

    Args:
        gold: The gold scores, (n,), from 0 to 5.

    Returns:
        The share of each class 1 to 5, (n, 5).
    """
    floor = np.floor(gold)
    # A column for each whole score 0 to 6. The first and the last are no classes; they are cut off
    # at the end. A score of 5 puts 0 into column 6.
    labels = np.zeros((len(gold), N_CLASSES + 2), dtype=np.float32)
    rows = np.arange(len(gold))
    lower_class = floor.astype(np.int64)
    labels[rows, lower_class] = floor - gold + 1
    labels[rows, lower_class + 1] = gold - floor
    return np.ascontiguousarray(labels[:, 1:-1])


class _Regressor(Lockstep):
    """Checked by a correlation in place of the accuracy; its classes are the scores 1 to 5."""

    selection: CorrelationName

    def accuracies(self) -> Float64Array:
        """Return the correlation on the validation pairs, of the only member, (1,)."""
        pairs = self.fold.development
        predictions = expected_scores(self.weights[0], pairs)
        return np.array([correlate(predictions, pairs.labels, self.selection)])


def expected_scores(weights: FloatArray, pairs: ProbeItems) -> Float64Array:
    """Return the score that a trained regressor predicts for each pair, (n,).

    It is the mean of the scores 1 to 5 by the probabilities that the regressor gives them. The
    features of a pair with embeddings u and v are ``|u - v|`` and ``u * v``.

    Args:
        weights: The weights of the classes, (5, w): one per feature, then the bias, then padding.
        pairs: The n pairs, with their embeddings.
    """
    # The number of features; the column behind them holds the biases.
    width = pairs.pool.width
    scores = []
    for block in pairs.blocks():
        # The embeddings of the first and the second sentences of the pairs of a block.
        u = block.u[block.embedding_rows]
        v = block.v[block.embedding_rows]
        # The caller reports predictions that are not finite.
        with np.errstate(over="ignore", invalid="ignore"):
            features = np.concatenate([np.abs(u - v), u * v], axis=1)
            logits = features @ weights[:, :width].T + weights[:, width]
            probabilities = softmax(logits, axis=1)
        class_scores = np.arange(1.0, N_CLASSES + 1)
        scores.append(probabilities.astype(np.float64) @ class_scores)
    return np.concatenate(scores)


def _make_pairs(name: str, split: PairSplit, embed: Embed) -> ProbeItems:
    """Return the pairs of a split as items that the regressor can be trained on.

    The features of a pair are ``|u - v|`` and ``u * v``, where u and v are the embeddings of its
    sentences. Its label is the gold score, from 0 to ``N_CLASSES``, which is 5.

    The items are sorted as in SentEval's toolkit: by the number of words of the first sentence, of
    the second one, then by gold score. Their ``indices`` are their rows in the split.

    Args:
        name: The split's name, for messages.
        split: The split.
        embed: Embeds sentences.

    Raises:
        DataError: The gold scores are all equal, or outside the classes.
    """
    if split.n < 2 or np.ptp(split.gold) == 0:
        raise DataError(
            f"split '{name}' has fewer than two different gold scores; no correlation exists"
        )
    if not (split.gold.min() >= 0 and split.gold.max() <= N_CLASSES):
        raise DataError(
            f"split '{name}' has gold scores outside 0 to {N_CLASSES}: "
            "no soft labels can be made of them"
        )
    # Embeddings of at most 4 GiB are held in memory.
    return make_items(split, embed, features="abs_mul", memory=MAX_EMBEDDINGS_BYTES)


def correlate(predictions: Float64Array, gold: Float64Array, metric: str) -> float:
    """Return the correlation of predictions with gold scores, 0 if it is undefined.

    It is undefined if predictions are all equal or not finite. SentEval's toolkit also takes 0
    then, so that training goes on.

    Args:
        predictions: The predicted scores, (n,).
        gold: The gold scores, (n,).
        metric: The correlation, ``pearson`` or ``spearman``.
    """
    if not np.isfinite(predictions).all() or np.ptp(predictions) == 0:
        return 0.0
    return CORRELATIONS[metric](predictions, gold)
