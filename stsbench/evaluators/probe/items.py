"""The items of a probe: features, read from embeddings and never held as a whole for pairs; orders, folds and first weights."""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import DataError
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.encoders.base import Embed, EmbeddingRows, FloatArray, IndexArray
from stsbench.evaluators.base import inspect_embeddings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Features = Literal["u", "abs_mul", "concat_mul_abs"]
BLOCKS: dict[Features, int] = {"u": 1, "abs_mul": 2, "concat_mul_abs": 4}
"""How many embedding sizes wide each kind of features is."""
LANES = 16
"""Compiled loops have their weights in rows of a multiple of so many."""
CHUNK_BYTES, CHUNK_VALUES = 128 << 20, 1 << 22
"""Bytes of embeddings read at once, and numbers of features made at once, at most."""


@dataclass(frozen=True)
class FeaturePool:
    """One split's embeddings, from which the features of any of its items are made.

    A single sentence gives ``u``; a pair ``[|u - v|, u * v]`` (``abs_mul``) or ``[u, v, u * v, |u - v|]``
    (``concat_mul_abs``). ``sides`` are arrays where they fit the memory granted, else views, read chunk by chunk.
    """

    sides: tuple[EmbeddingRows, ...]
    features: Features
    zero_rows: int
    constant: bool

    @property
    def in_memory(self) -> int:
        """Bytes of embeddings held in memory."""
        return (
            sum(4 * side.shape[0] * side.shape[1] for side in self.sides) if self.is_resident else 0
        )

    @property
    def is_resident(self) -> bool:
        """Whether its embeddings are in memory."""
        return isinstance(self.sides[0], np.ndarray)

    @property
    def width(self) -> int:
        """Number of features of an item."""
        return BLOCKS[self.features] * int(self.sides[0].shape[1])


class ItemBlock(NamedTuple):
    """Some items: embeddings in memory ``u``, ``v`` (m, d), where their own are in them ``rows`` (k,), ``labels`` (k, …)."""

    u: FloatArray
    v: FloatArray
    rows: IndexArray
    labels: npt.NDArray[Any]


@dataclass(frozen=True)
class ProbeItems:
    """Some items of a pool, in an order: their places ``at`` (m,) and ``labels``, (m,) or soft ones (m, c)."""

    pool: FeaturePool
    at: IndexArray
    labels: npt.NDArray[Any]

    def __len__(self) -> int:
        """Number of items."""
        return len(self.at)

    def select(self, positions: IndexArray) -> ProbeItems:
        """The items at these positions."""
        return ProbeItems(self.pool, self.at[positions], self.labels[positions])

    def folds(self, k: int, seed: int) -> list[tuple[ProbeItems, ProbeItems]]:
        """Training and held-out items of k stratified folds; raises DataError where no class has k items."""
        from sklearn.model_selection import StratifiedKFold

        if np.bincount(self.labels).max(initial=0) < k:
            raise DataError(f"{len(self)} labelled items are too few for {k} folds")
        with warnings.catch_warnings():
            # A class rarer than k is missing from some folds: so in the toolkit.
            warnings.filterwarnings(
                "ignore", message="The least populated class", category=UserWarning
            )
            cut = StratifiedKFold(k, shuffle=True, random_state=seed).split(self.at, self.labels)
            return [(self.select(train), self.select(held_out)) for train, held_out in cut]

    def blocks(self, *, multiple_of: int = 1) -> Iterator[ItemBlock]:
        """The items in order: at once if their pool is in memory, else by chunks of a multiple of so many items."""
        sides = self.pool.sides
        if self.pool.is_resident:
            yield ItemBlock(np.asarray(sides[0]), np.asarray(sides[-1]), self.at, self.labels)
            return
        size = CHUNK_BYTES // (4 * sides[0].shape[1] * len(sides))
        size = max(1, size // multiple_of) * multiple_of
        for start in range(0, len(self), size):
            chunk = self.at[start : start + size]
            # In the order of the file, whatever the order asked for: fewer pages are touched.
            by_place = np.argsort(chunk)
            read = [
                np.require(side.take(chunk[by_place]), np.float32, ["C", "W"]) for side in sides
            ]
            yield ItemBlock(
                read[0], read[-1], np.argsort(by_place), self.labels[start : start + size]
            )

    def features(
        self, device: torch.device | str = "cpu", size: int = CHUNK_VALUES
    ) -> Iterator[Tensor]:
        """The features of the items in order, (<= size, w) float64, 32 MiB at a time at most."""
        import torch

        kind, size = self.pool.features, max(1, min(size, CHUNK_VALUES // self.pool.width))
        for block in self.blocks():
            for start in range(0, len(block.rows), size):
                at = block.rows[start : start + size]
                u = torch.from_numpy(block.u[at]).to(device)
                v = u if kind == "u" else torch.from_numpy(block.v[at]).to(device)
                yield combine_sides(u, v, kind).double()


def combine_sides(u: Tensor, v: Tensor, kind: Features) -> Tensor:
    """Features (…, w) of items from the embeddings of their sentences, (…, d) each."""
    import torch

    if kind == "u":
        return u
    away, product = (u - v).abs(), u * v
    return torch.cat([away, product] if kind == "abs_mul" else [u, v, product, away], dim=-1)


AnySplit = LabelledSplit | LabelledPairSplit | PairSplit


def make_items(split: AnySplit, embed: Embed, features: Features, memory: int) -> ProbeItems:
    """A split's items in the toolkit's order, with their labels or gold scores; of SNLI's features, in SNLI's order.

    Of embeddings ``memory`` bytes may be held. Raises DataError: pairs with features of sentences, or the reverse.
    """
    pairs = len(split.sides) == 2
    if pairs == (features == "u"):
        what, fit = (
            ("pairs", "'abs_mul' or 'concat_mul_abs'") if pairs else ("single sentences", "'u'")
        )
        raise DataError(f"the task's {what} need features {fit}, not '{features}'")
    sides: list[EmbeddingRows] = [embed(side) for side in split.sides]
    if sum(4 * side.shape[0] * side.shape[1] for side in sides) <= memory:
        sides = [np.require(np.asarray(side), np.float32, ["C", "W", "A"]) for side in sides]
    looks = [inspect_embeddings(side) for side in sides]
    pool = FeaturePool(
        tuple(sides),
        features,
        sum(look.zero_vectors for look in looks),
        all(look.is_constant for look in looks),
    )
    order = toolkit_order(split, second_first=features == "concat_mul_abs")
    answers = split.gold if isinstance(split, PairSplit) else split.labels
    return ProbeItems(pool, order, answers[order])


def toolkit_order(split: AnySplit, *, second_first: bool = False) -> IndexArray:
    """Return the indices that sort a split as the toolkit does, shape (n,).

    By token count, then label (``binary.py``, ``sst.py``, ``trec.py``, ``probing.py``); pairs by the count of the
    first, then of the second sentence, then label (``mrpc.py``, ``sick.py``). Ties keep the order of the file. With
    ``second_first`` as ``snli.py``: second sentence first, and labels by their *names*, for there they are strings.
    """
    # The toolkit's loaders split lines at white space.
    counts = [
        np.array([len(sentence.split()) for sentence in side], dtype=np.int64)
        for side in split.sides
    ]
    if isinstance(split, PairSplit):
        return np.lexsort([split.gold, *reversed(counts)])
    labels = split.labels
    if not second_first:
        return np.lexsort([labels, *reversed(counts)])
    if len(split.classes):
        labels = np.argsort(np.argsort(np.asarray(split.classes), kind="stable"))[labels]
    return np.lexsort([labels, *counts])


class EpochOrders:
    """The order of the training items in each epoch, for one training size; drawn when first asked for.

    With ``holdout``, the first draw of the stream sets aside that share of the items: ``kept`` and
    ``held_out`` are their positions, and the epochs permute what is kept.
    """

    def __init__(self, seed: int, n: int, *, holdout: float = 0.0) -> None:
        """Start the stream for n items; raises DataError where they are too few to hold any out."""
        self._rng = np.random.RandomState(seed)  # noqa: NPY002 - the toolkit's generator
        self._lock = threading.Lock()
        self._epochs: list[npt.NDArray[np.int32]] = []
        self.validation_items, self.training_items = np.empty(0, dtype=np.int64), np.arange(n)
        if holdout:
            self.validation_items, self.training_items = np.split(
                self._rng.permutation(n), [int(holdout * n)]
            )
            if not len(self.validation_items):
                raise DataError(f"{n} training items are too few to hold {holdout:.0%} of them out")

    def permutation(self, at: int) -> IndexArray:
        """The order of epoch ``at``: positions within ``kept``, (len(kept),)."""
        with self._lock:
            while len(self._epochs) <= at:
                self._epochs.append(
                    self._rng.permutation(len(self.training_items)).astype(np.int32)
                )
            return self._epochs[at].astype(np.int64)


def first_weights(seed: int, *layers: tuple[int, int]) -> tuple[list[Tensor], torch.Generator]:
    """The weights and biases that torch's linear layers of these sizes (in, out) start from, after seeding.

    Returns weight (out, in) and bias (out,) of each layer, and the generator as they left it.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for fan_in, fan_out in layers:
        weight = torch.empty(fan_out, fan_in)
        torch.nn.init.kaiming_uniform_(weight, a=5**0.5, generator=generator)
        bound = fan_in**-0.5
        tensors += [weight, torch.empty(fan_out).uniform_(-bound, bound, generator=generator)]
    return tensors, generator


def starting_weights(seed: int, width: int, classes: int) -> FloatArray:
    """The first weights with their biases in the column after them, padded with zeros as the loops want them."""
    (weight, bias), _ = first_weights(seed, (width, classes))
    start: FloatArray = np.zeros((classes, -(-(width + 1) // LANES) * LANES), dtype=np.float32)
    start[:, :width], start[:, width] = weight.numpy(), bias.numpy()
    return start


class SearchResult(NamedTuple):
    """What a search over the grid found: ``accuracy`` (folds, grid) on development items, and the classifiers."""

    accuracy: npt.NDArray[np.float64]
    classifiers: list[list[Any]]


class Solver(Protocol):
    """Trains classifiers over a grid of penalties."""

    def search(self, folds: Sequence[tuple[ProbeItems, ProbeItems]]) -> SearchResult:
        """Train a classifier a fold (training items, development items) and penalty."""

    def refit(self, trains: Sequence[ProbeItems], choices: Sequence[int]) -> list[Any]:
        """Train one final classifier on each of these, with the penalty of this place in the grid."""

    def predict(self, classifier: Any, rows: ProbeItems) -> IndexArray:  # noqa: ANN401 - what search and refit return
        """The class of each item, (m,)."""

    def notes(self) -> tuple[str, ...]:
        """What a reader of the score must know of the training; nothing where it always ends."""
        return ()


class ProbeRun(NamedTuple):
    """One run of a probe: ``width`` features an item, ``classes``, the seed, and what of the machine it may use."""

    width: int
    classes: int
    seed: int = 0
    device: str = "cpu"
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class ProbeProtocol(ABC):
    """A classifier of probes with its settings: what every protocol fixes, and what trains it.

    Seeds: an evaluation with seed ``s`` is the toolkit's run with its seed set to ``base_seed + s``;
    seed 0 is the published one, 1111. The outer and inner folds of nested cross-validation stay at
    ``base_seed`` whatever the seed, as they do in the toolkit; those of k-fold tasks follow it.

    ``rounding`` is the number of decimals that accuracies in points are cut to where the toolkit does so: before
    penalties are compared and before folds are averaged. None: none is, and the score is the share of items right.
    """

    name: str
    kfold: Annotated[int, Meta(ge=2)] = 10
    base_seed: int = 1111
    data_order: Literal["length,label"] = "length,label"
    rounding: Annotated[int, Meta(ge=0)] | None = None

    @abstractmethod
    def solver(self, run: ProbeRun) -> Solver:
        """Return what trains this classifier. Heavy imports belong here: protocols are listed without them."""
