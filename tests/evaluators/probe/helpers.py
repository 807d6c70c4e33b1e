"""Small data, and the literal reference: one classifier at a time, in plain torch, as SentEval's paper and code say."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import StratifiedKFold
from torch.nn.functional import cross_entropy

from stsbench.data.splits import LabelledPairSplit, LabelledSplit
from stsbench.encoders.base import FloatArray
from stsbench.evaluators.probe.evaluator import MinibatchProtocol

IntArray = npt.NDArray[np.int64]


class View:
    """Embeddings as a store hands them out; counts what is taken."""

    def __init__(self, rows: FloatArray) -> None:
        self.rows, self.shape, self.most_taken = rows, (rows.shape[0], rows.shape[1]), 0

    def take(self, indices: IntArray) -> FloatArray:
        self.most_taken = max(self.most_taken, len(indices))
        return self.rows[indices]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        return self.rows


@dataclass
class Embedder:
    """Maps each sentence to a row of its own."""

    vectors: dict[str, FloatArray]

    def __call__(self, sentences: Sequence[str]) -> View:
        return View(np.stack([self.vectors[s] for s in sentences]))


def sentences(n: int, tag: str, rng: np.random.Generator) -> list[str]:
    return [" ".join([f"{tag}{i}", *["x"] * int(rng.integers(0, 9))]) for i in range(n)]


def make_split(
    n: int, *, classes: int = 2, d: int = 12, seed: int = 0, tag: str = "s"
) -> tuple[LabelledSplit, Embedder]:
    """Labelled sentences whose embeddings tell the class half way."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = np.random.default_rng(99).normal(size=(classes, d))
    vectors = (0.7 * centres[labels] + rng.normal(size=(n, d))).astype(np.float32)
    texts = sentences(n, tag, rng)
    return LabelledSplit(sentences=texts, labels=labels), Embedder(
        dict(zip(texts, vectors, strict=True))
    )


def make_pairs(
    n: int, *, classes: int = 2, d: int = 6, seed: int = 0
) -> tuple[LabelledPairSplit, Embedder]:
    """Labelled pairs; a higher class has second sentences further from the first."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    first = rng.normal(size=(n, d))
    second = first + rng.normal(size=(n, d)) * (0.3 + 1.5 * labels[:, None])
    texts1, texts2 = sentences(n, f"a{seed}-", rng), sentences(n, f"b{seed}-", rng)
    vectors = dict(
        zip([*texts1, *texts2], np.concatenate([first, second]).astype(np.float32), strict=True)
    )
    return LabelledPairSplit(sentences1=texts1, sentences2=texts2, labels=labels), Embedder(vectors)


class One(NamedTuple):
    """A classifier trained alone: at its best check, and after how many epochs it ended."""

    model: torch.nn.Module
    accuracy: float
    epochs: int

    def predict(self, x: FloatArray) -> IntArray:
        self.model.eval()
        with torch.no_grad():
            return np.asarray(self.model(torch.from_numpy(x)).argmax(dim=1))


OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
    "sgd,lr=0.1": lambda parameters, **settings: torch.optim.SGD(parameters, lr=0.1, **settings),
    "sgd,lr=0.05,momentum=0.9": lambda p, **settings: torch.optim.SGD(
        p, lr=0.05, momentum=0.9, **settings
    ),
}


def train_one(
    x: FloatArray,
    y: IntArray,
    dev: tuple[FloatArray, IntArray] | None,
    protocol: MinibatchProtocol,
    *,
    decay: float,
    classes: int,
    seed: int = 1111,
) -> One:
    """Train one classifier; without development items it draws its own."""
    with torch.random.fork_rng():
        np.random.seed(seed)  # noqa: NPY002 - the toolkit's generator
        torch.manual_seed(seed)
        layers: list[torch.nn.Module] = [torch.nn.Linear(x.shape[1], protocol.nhid or classes)]
        if protocol.nhid:
            layers += [
                torch.nn.Dropout(protocol.dropout),
                torch.nn.Sigmoid(),
                torch.nn.Linear(protocol.nhid, classes),
            ]
        model = torch.nn.Sequential(*layers)
        optimiser = OPTIMISERS[protocol.optimiser](model.parameters(), weight_decay=decay)
        if dev is None:
            drawn = np.random.permutation(len(x))  # noqa: NPY002
            out = int(protocol.holdout * len(x))
            dev = x[drawn[:out]], y[drawn[:out]]
            x, y = x[drawn[out:]], y[drawn[out:]]
        best, best_accuracy, failures, epochs = copy.deepcopy(model), -1.0, 0, 0
        while epochs <= protocol.max_epochs and failures <= protocol.tenacity:
            for _ in range(protocol.epoch_size):
                model.train()
                order = torch.from_numpy(np.random.permutation(len(x)))  # noqa: NPY002
                for batch in torch.split(order, protocol.batch_size):
                    logits, truth = model(torch.from_numpy(x)[batch]), torch.from_numpy(y)[batch]
                    optimiser.zero_grad()
                    torch.autograd.backward(cross_entropy(logits, truth, reduction=protocol.loss))
                    optimiser.step()
            epochs += protocol.epoch_size
            accuracy = float((One(model, 0, 0).predict(dev[0]) == dev[1]).mean())
            if accuracy > best_accuracy:
                best, best_accuracy = copy.deepcopy(model), accuracy
            else:
                failures += 1
    return One(best, best_accuracy, epochs)


class Reference(NamedTuple):
    """What the literal toolkit finds: accuracies in points, and each test item's class in the order given."""

    accuracy: float
    dev_accuracy: float
    predictions: IntArray


Cut = tuple[IntArray, IntArray]
"""Positions to train on, and positions to predict."""


def cuts(at: IntArray, y: IntArray, k: int, seed: int) -> list[Cut]:
    """The k folds of the items at these positions."""
    folds = StratifiedKFold(k, shuffle=True, random_state=seed).split(at, y[at])
    return [(at[train], at[held_out]) for train, held_out in folds]


def literal_reference(
    x: FloatArray,
    y: IntArray,
    rounds: Sequence[tuple[Cut, Sequence[Cut]]],
    protocol: MinibatchProtocol,
    *,
    seed: int,
) -> Reference:
    """In each round some cuts choose the weight decay; a lone one stops the final classifier too."""
    classes, predictions = int(y.max()) + 1, np.full(len(y), -1)
    dev_scores, test_scores = list[float](), list[float]()
    for (train, test), choosing in rounds:
        scores, alone = list[float](), len(choosing) == 1
        for decay in protocol.weight_decays:
            found = [
                train_one(
                    x[fit],
                    y[fit],
                    (x[dev], y[dev]),
                    protocol,
                    decay=decay,
                    classes=classes,
                    seed=seed,
                ).accuracy
                for fit, dev in choosing
            ]
            # A lone accuracy is Python's own number, a mean numpy's: they round unlike.
            mean: Any = found[0] if alone else np.mean(found)
            scores.append(round(100 * mean, 2))
        dev_scores.append(np.max(scores))
        decay = protocol.weight_decays[int(np.argmax(scores))]
        stop = (x[choosing[0][1]], y[choosing[0][1]]) if alone else None
        one = train_one(x[train], y[train], stop, protocol, decay=decay, classes=classes, seed=seed)
        predictions[test] = one.predict(x[test])
        test_scores.append(round(100 * float((predictions[test] == y[test]).mean()), 2))
    return Reference(
        float(round(np.mean(test_scores), 2)), float(round(np.mean(dev_scores), 2)), predictions
    )
