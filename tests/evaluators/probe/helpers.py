"""Small data, and the literal reference: one classifier at a time, in plain torch, as SentEval's paper and code say."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import StratifiedKFold

from stsbench.data.splits import LabelledPairSplit, LabelledSplit
from stsbench.encoders.base import FloatArray
from stsbench.evaluators.probe import MinibatchProtocol

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
    """Different sentences of one to nine tokens."""
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
    return LabelledSplit(sentences=texts, labels=labels), Embedder(dict(zip(texts, vectors, strict=True)))


def make_pairs(n: int, *, classes: int = 2, d: int = 6, seed: int = 0) -> tuple[LabelledPairSplit, Embedder]:
    """Labelled pairs; a higher class has second sentences further from the first."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    first = rng.normal(size=(n, d))
    second = first + rng.normal(size=(n, d)) * (0.3 + 1.5 * labels[:, None])
    texts1, texts2 = sentences(n, f"a{seed}-", rng), sentences(n, f"b{seed}-", rng)
    vectors = dict(zip([*texts1, *texts2], np.concatenate([first, second]).astype(np.float32), strict=True))
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
    "sgd,lr=0.05,momentum=0.9": lambda p, **settings: torch.optim.SGD(p, lr=0.05, momentum=0.9, **settings),
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
        return _train_one(x, y, dev, protocol, decay, classes)


def _train_one(
    x: FloatArray,
    y: IntArray,
    dev: tuple[FloatArray, IntArray] | None,
    protocol: MinibatchProtocol,
    decay: float,
    classes: int,
) -> One:
    width = x.shape[1]
    if protocol.nhid:
        hidden = (torch.nn.Linear(width, protocol.nhid), torch.nn.Dropout(protocol.dropout), torch.nn.Sigmoid())
        model = torch.nn.Sequential(*hidden, torch.nn.Linear(protocol.nhid, classes))
    else:
        model = torch.nn.Sequential(torch.nn.Linear(width, classes))
    optimiser = OPTIMISERS[protocol.optimiser](model.parameters(), weight_decay=decay)
    if dev is None:
        drawn = np.random.permutation(len(x))  # noqa: NPY002
        out = int(protocol.holdout * len(x))
        dev = x[drawn[:out]], y[drawn[:out]]
        x, y = x[drawn[out:]], y[drawn[out:]]
    best, best_accuracy, failures, epochs = copy.deepcopy(model), -1.0, 0, 0
    while epochs <= protocol.max_epochs:
        for _ in range(protocol.epoch_size):
            _train_epoch(model, optimiser, x, y, protocol)
        epochs += protocol.epoch_size
        accuracy = float((One(model, 0, 0).predict(dev[0]) == dev[1]).mean())
        if accuracy > best_accuracy:
            best, best_accuracy = copy.deepcopy(model), accuracy
        elif failures == protocol.tenacity:
            break
        else:
            failures += 1
    return One(best, best_accuracy, epochs)


def _train_epoch(
    model: torch.nn.Module, optimiser: torch.optim.Optimizer, x: FloatArray, y: IntArray, protocol: MinibatchProtocol
) -> None:
    model.train()
    order = torch.from_numpy(np.random.permutation(len(x)))  # noqa: NPY002
    for batch in torch.split(order, protocol.batch_size):
        logits = model(torch.from_numpy(x)[batch])
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y)[batch], reduction=protocol.loss)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()


class Reference(NamedTuple):
    """What the literal toolkit finds: accuracies in points, and each test item's class in the order given."""

    accuracy: float
    dev_accuracy: float
    predictions: IntArray


def nested_reference(x: FloatArray, y: IntArray, protocol: MinibatchProtocol, *, seed: int = 1111) -> Reference:
    """Nested cross-validation, loop by loop."""
    classes = int(y.max()) + 1
    predictions, dev_scores, test_scores = np.empty(len(y), dtype=np.int64), [], []
    for train, test in StratifiedKFold(protocol.kfold, shuffle=True, random_state=1111).split(x, y):
        scores = []
        for decay in protocol.weight_decays:
            found = []
            for fit, dev in StratifiedKFold(protocol.kfold, shuffle=True, random_state=1111).split(x[train], y[train]):
                held_out = x[train][dev], y[train][dev]
                one = train_one(
                    x[train][fit], y[train][fit], held_out, protocol, decay=decay, classes=classes, seed=seed
                )
                found.append(one.accuracy)
            scores.append(round(100 * np.mean(found), 2))
        dev_scores.append(np.max(scores))
        decay = protocol.weight_decays[int(np.argmax(scores))]
        one = train_one(x[train], y[train], None, protocol, decay=decay, classes=classes, seed=seed)
        predictions[test] = one.predict(x[test])
        test_scores.append(round(100 * float((predictions[test] == y[test]).mean()), 2))
    return Reference(float(round(np.mean(test_scores), 2)), float(round(np.mean(dev_scores), 2)), predictions)


def kfold_reference(
    train: tuple[FloatArray, IntArray], test: tuple[FloatArray, IntArray], protocol: MinibatchProtocol, *, seed: int
) -> Reference:
    """Folds of train choose, test is tested."""
    x, y = train
    classes = int(y.max()) + 1
    scores = []
    for decay in protocol.weight_decays:
        found = []
        for fit, dev in StratifiedKFold(protocol.kfold, shuffle=True, random_state=seed).split(x, y):
            one = train_one(x[fit], y[fit], (x[dev], y[dev]), protocol, decay=decay, classes=classes, seed=seed)
            found.append(one.accuracy)
        scores.append(round(100 * np.mean(found), 2))
    decay = protocol.weight_decays[int(np.argmax(scores))]
    predictions = train_one(x, y, None, protocol, decay=decay, classes=classes, seed=seed).predict(test[0])
    return Reference(round(100 * float((predictions == test[1]).mean()), 2), np.max(scores), predictions)


def fixed_reference(
    train: tuple[FloatArray, IntArray],
    dev: tuple[FloatArray, IntArray],
    test: tuple[FloatArray, IntArray],
    protocol: MinibatchProtocol,
) -> Reference:
    """The development split chooses, the chosen classifier is trained again and tested."""
    classes = int(train[1].max()) + 1

    def fit(decay: float) -> One:
        return train_one(*train, dev, protocol, decay=decay, classes=classes)

    scores = [round(100 * fit(decay).accuracy, 2) for decay in protocol.weight_decays]
    predictions = fit(protocol.weight_decays[int(np.argmax(scores))]).predict(test[0])
    return Reference(round(100 * float((predictions == test[1]).mean()), 2), max(scores), predictions)
