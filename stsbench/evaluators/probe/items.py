"""The features of one split: read from its embeddings, never held as a whole for pairs."""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import DataError, EncoderError, UnknownName
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.encoders.base import Embed, Embeddings, FloatArray, IndexArray
from stsbench.evaluators.seams import inspect

if TYPE_CHECKING:
    import torch
    from torch import Tensor


Features = Literal["u", "abs_mul", "concat_mul_abs"]
BLOCKS: dict[Features, int] = {"u": 1, "abs_mul": 2, "concat_mul_abs": 4}
"""How many embedding sizes wide each kind of features is."""
CHUNK_BYTES = 128 << 20


class EmbeddingBlock(NamedTuple):
    """Embeddings in memory and where some items' rows are in them: ``u``, ``v`` (m, d), ``rows`` (k,)."""

    u: FloatArray
    v: FloatArray
    rows: IndexArray


@dataclass(frozen=True)
class Pool:
    """One split's embeddings, from which the features of any of its items are made.

    A single sentence gives ``u``; a pair ``[|u - v|, u * v]`` (``abs_mul``) or
    ``[u, v, u * v, |u - v|]`` (``concat_mul_abs``). ``sides`` holds one array or view a sentence:
    arrays where they fit the memory granted, else the views, read chunk by chunk.
    """

    sides: tuple[Embeddings, ...]
    features: Features
    resident: bool
    zero_rows: int
    constant: bool

    @property
    def d(self) -> int:
        """Embedding size."""
        return self.sides[0].shape[1]

    @property
    def held(self) -> int:
        """Bytes of embeddings held in memory."""
        return sum(4 * side.shape[0] * side.shape[1] for side in self.sides) if self.resident else 0

    @property
    def width(self) -> int:
        """Number of features of an item."""
        return BLOCKS[self.features] * self.d

    def blocks(self, rows: IndexArray, *, multiple_of: int = 1) -> Iterator[EmbeddingBlock]:
        """Yield the embeddings of these items in order: at once if resident, else by chunks.

        A chunk holds at most 128 MiB of embeddings, and a multiple of ``multiple_of`` items.
        """
        if self.resident:
            u, v = np.asarray(self.sides[0]), np.asarray(self.sides[-1])
            yield EmbeddingBlock(u, v, rows)
            return
        size = CHUNK_BYTES // (4 * self.d * len(self.sides))
        size = max(1, size // multiple_of) * multiple_of
        for start in range(0, len(rows), size):
            chunk = rows[start : start + size]
            # In the order of the file, whatever the order asked for: fewer pages are touched.
            by_place = np.argsort(chunk)
            sides = [side.take(chunk[by_place]) for side in self.sides]
            yield EmbeddingBlock(sides[0], sides[-1], np.argsort(by_place))


def make_pool(
    split: LabelledSplit | LabelledPairSplit | PairSplit, embed: Embed, features: Features, memory: int
) -> Pool:
    """Embed a split's sentences and check them.

    Args:
        split: sentences or pairs.
        embed: sentences to embeddings.
        features: kind of features; pairs need one of two sentences, single sentences ``u``.
        memory: bytes of embeddings that may be held.

    Raises:
        DataError: pairs with features of single sentences, or the reverse.
        EncoderError: embeddings of a wrong shape, or not finite; names the sentence.
    """
    pairs = not isinstance(split, LabelledSplit)
    if pairs == (features == "u"):
        what, fit = ("pairs", "'abs_mul' or 'concat_mul_abs'") if pairs else ("single sentences", "'u'")
        raise DataError(f"the task's {what} need features {fit}, not '{features}'")
    texts = [split.sentences] if isinstance(split, LabelledSplit) else [split.sentences1, split.sentences2]
    views = [embed(side) for side in texts]
    for side, view in zip(texts, views, strict=True):
        if view.shape != (len(side), views[0].shape[1]):
            raise EncoderError(f"{len(side)} sentences gave embeddings of shape {tuple(view.shape)}, not (n, d)")
    resident = sum(4 * view.shape[0] * view.shape[1] for view in views) <= memory
    sides: list[Embeddings] = list(views)
    if resident:
        sides = [_Rows(np.asarray(view)) for view in views]
    zeros, constant = 0, True
    for side, view in zip(texts, sides, strict=True):
        looked = inspect(view, side)
        zeros, constant = zeros + looked.zeros, constant and looked.constant
    return Pool(tuple(sides), features, resident, zeros, constant)


class _Rows:
    """Embeddings in memory, (n, d) float32, rows one after another."""

    def __init__(self, rows: FloatArray) -> None:
        self.rows: FloatArray = np.require(rows, np.float32, ["C", "A"])
        self.shape: tuple[int, int] = (self.rows.shape[0], self.rows.shape[1])

    def take(self, indices: IndexArray) -> FloatArray:
        return self.rows[indices]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        return self.rows


def toolkit_order(split: LabelledSplit | LabelledPairSplit, *, second_first: bool = False) -> npt.NDArray[np.int64]:
    """Return the indices that sort a split as the toolkit does, shape (n,).

    By token count, then label (``binary.py``, ``sst.py``, ``trec.py``, ``probing.py``); pairs by the
    count of the first, then of the second sentence, then label (``mrpc.py``, ``sick.py``). Ties keep
    the order of the file: Python's sort is stable. With ``second_first`` as ``snli.py``: second
    sentence first, and labels by their *names*, for there they are still strings.
    """
    if isinstance(split, LabelledSplit):
        keys = [split.labels, token_counts(split.sentences)]
    elif second_first:
        names = np.asarray(split.classes) if len(split.classes) else np.arange(int(split.labels.max()) + 1)
        rank = np.argsort(np.argsort(names, kind="stable"), kind="stable")
        keys = [rank[split.labels], token_counts(split.sentences1), token_counts(split.sentences2)]
    else:
        keys = [split.labels, token_counts(split.sentences2), token_counts(split.sentences1)]
    return np.lexsort(keys)


def token_counts(sentences: Sequence[str]) -> npt.NDArray[np.int64]:
    """Tokens of each sentence, (n,): the toolkit's loaders split lines at white space."""
    return np.array([len(s.split()) for s in sentences], dtype=np.int64)


class Orders:
    """The order of the training items in each epoch, for one training size; drawn when first asked for.

    With ``holdout``, the first draw of the stream sets aside that share of the items: ``kept`` and
    ``held_out`` are their positions, and the epochs permute what is kept.
    """

    def __init__(self, seed: int, n: int, *, holdout: float = 0.0) -> None:
        """Start the stream for n items.

        Raises:
            DataError: too few items to hold any out.
        """
        self._rng = np.random.RandomState(seed)  # noqa: NPY002 - the toolkit's generator
        self._lock = threading.Lock()
        self._epochs: list[npt.NDArray[np.int32]] = []
        self.held_out, self.kept = np.empty(0, dtype=np.int64), np.arange(n)
        if holdout:
            drawn = self._rng.permutation(n)
            self.held_out, self.kept = np.split(drawn, [int(holdout * n)])
            if not len(self.held_out):
                raise DataError(f"{n} training items are too few to hold {holdout:.0%} of them out")

    def epoch(self, at: int) -> IndexArray:
        """The order of epoch ``at``: positions within ``kept``, (len(kept),)."""
        with self._lock:
            while len(self._epochs) <= at:
                self._epochs.append(self._rng.permutation(len(self.kept)).astype(np.int32))
            return self._epochs[at].astype(np.int64)


def stratified_folds(labels: IndexArray, k: int, seed: int) -> list[tuple[IndexArray, IndexArray]]:
    """The k stratified folds of these labels (n,): training and held-out positions.

    Raises:
        DataError: no class has k items.
    """
    from sklearn.model_selection import StratifiedKFold

    if np.bincount(labels).max(initial=0) < k:
        raise DataError(f"{len(labels)} labelled items are too few for {k} folds")
    with warnings.catch_warnings():
        # A class rarer than k is missing from some folds: so in the toolkit.
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        return list(StratifiedKFold(k, shuffle=True, random_state=seed).split(np.empty((len(labels), 0)), labels))


def first_weights(seed: int, sizes: tuple[int, ...]) -> tuple[list[torch.Tensor], torch.Generator]:
    """The weights and biases that torch's linear layers of these sizes start from, after seeding.

    Args:
        seed: the classifier's.
        sizes: features, hidden units if there are any, classes.

    Returns:
        Weight (out, in) and bias (out,) of each layer, and the generator as they left it.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for fan_in, fan_out in zip(sizes, sizes[1:], strict=False):
        weight = torch.empty(fan_out, fan_in)
        torch.nn.init.kaiming_uniform_(weight, a=5**0.5, generator=generator)
        bound = fan_in**-0.5
        tensors += [weight, torch.empty(fan_out).uniform_(-bound, bound, generator=generator)]
    return tensors, generator


@dataclass(frozen=True)
class ProbeItems:
    """Some items of a pool, in an order: their places ``at`` (m,) and ``labels`` (m,)."""

    pool: Pool
    at: IndexArray
    labels: IndexArray

    def __len__(self) -> int:
        """Number of items."""
        return len(self.at)

    def select(self, positions: IndexArray) -> ProbeItems:
        """The items at these positions."""
        return ProbeItems(self.pool, self.at[positions], self.labels[positions])


class Searched(NamedTuple):
    """What a search over the grid found: ``accuracy`` (folds, grid) on development items, and the classifiers."""

    accuracy: npt.NDArray[np.float64]
    classifiers: list[list[Any]]


class Solver(Protocol):
    """Trains classifiers over a grid of penalties."""

    def search(self, folds: Sequence[tuple[ProbeItems, ProbeItems]]) -> Searched:
        """Train a classifier a fold (training items, development items) and penalty."""
        ...

    def refit(self, trains: Sequence[ProbeItems], choices: Sequence[int]) -> list[Any]:
        """Train one final classifier on each of these, with the penalty of this place in the grid."""
        ...

    def predict(self, classifier: Any, rows: ProbeItems) -> IndexArray:  # noqa: ANN401 - what search and refit return
        """The class of each item, (m,)."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What a reader of the score must know of the training."""
        ...


class ProbeRun(NamedTuple):
    """One run of a probe: ``width`` features an item, ``classes``, the seed, and what of the machine it may use."""

    width: int
    classes: int
    seed: int
    device: str
    threads: int


@dataclass(frozen=True, kw_only=True)
class ProbeProtocol(ABC):
    """A classifier of probes with its settings: what every protocol fixes, and what trains it.

    Seeds: an evaluation with seed ``s`` is the toolkit's run with its seed set to ``base_seed + s``;
    seed 0 is the published one, 1111. The outer and inner folds of nested cross-validation stay at
    ``base_seed`` whatever the seed, as they do in the toolkit; those of k-fold tasks follow it.

    ``rounding`` is the number of decimals that accuracies in points are cut to wherever the toolkit does
    so: before penalties are compared and before folds are averaged. None: nothing is rounded, and the
    score is the share of all items right.
    """

    name: str
    kfold: Annotated[int, Meta(ge=2)] = 10
    base_seed: int = 1111
    data_order: Literal["length,label"] = "length,label"
    rounding: int | None = None

    @abstractmethod
    def solver(self, run: ProbeRun) -> Solver:
        """Return what trains this classifier. Heavy imports belong here: protocols are listed without them."""


CHUNK_VALUES = 1 << 22


def combine_sides(u: Tensor, v: Tensor, kind: Features) -> Tensor:
    """Features (…, w) of items from the embeddings of their sentences, (…, d) each."""
    import torch

    if kind == "u":
        return u
    if kind == "abs_mul":
        return torch.cat([(u - v).abs(), u * v], dim=-1)
    if kind == "concat_mul_abs":
        return torch.cat([u, v, u * v, (u - v).abs()], dim=-1)
    raise UnknownName("features", kind, get_args(Features))


def feature_chunks(
    pool: Pool, at: IndexArray, device: torch.device | str = "cpu", size: int = CHUNK_VALUES
) -> Iterator[Tensor]:
    """The features of these items in order, (<= size, w) float64, 32 MiB at a time at most."""
    import torch

    size = max(1, min(size, CHUNK_VALUES // pool.width))
    for block in pool.blocks(at):
        for start in range(0, len(block.rows), size):
            places = block.rows[start : start + size]
            u = torch.from_numpy(block.u[places]).to(device)
            v = u if pool.features == "u" else torch.from_numpy(block.v[places]).to(device)
            yield combine_sides(u, v, pool.features).double()
