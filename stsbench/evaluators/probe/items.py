"""The items of a probe: their features, orders, folds, and the first weights of classifiers.

Features of pairs are made from embeddings batch by batch and never stored as a whole.
"""

from __future__ import annotations

import math
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
from stsbench.evaluators.base import BaseSeed, inspect_embeddings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Features = Literal["u", "abs_mul", "concat_mul_abs"]
FEATURE_WIDTHS: dict[Features, int] = {"u": 1, "abs_mul": 2, "concat_mul_abs": 4}
"""The width of each kind of features, in embedding sizes."""
SIMD_LANES = 16
"""The compiled loops need rows of weights whose length is a multiple of this."""
MAX_CHUNK_BYTES = 128 << 20
"""The maximum number of bytes of embeddings read at once."""
MAX_CHUNK_VALUES = 1 << 22
"""The maximum number of features, over all items, made at once."""


@dataclass(frozen=True)
class FeaturePool:
    """One split's embeddings, from which the features of any of its items are made.

    Attributes:
        sides: The embeddings (n, d) of the first and, for pairs, of the second sentences: arrays
            if they fit into the memory for them, otherwise views that are read chunk by chunk.
        features: The kind of features. A single sentence gives ``u``; a pair gives
            ``[|u - v|, u * v]`` (``abs_mul``) or ``[u, v, u * v, |u - v|]`` (``concat_mul_abs``).
        zero_rows: The number of embeddings that are zero vectors.
        is_constant: All embeddings of each side are the same.
    """

    sides: tuple[EmbeddingRows, ...]
    features: Features
    zero_rows: int
    is_constant: bool

    @property
    def resident_bytes(self) -> int:
        """The bytes of embeddings in memory; 0 if they are read chunk by chunk."""
        return sum(side.nbytes for side in self.sides if isinstance(side, np.ndarray))

    @property
    def is_resident(self) -> bool:
        """Whether its embeddings are in memory."""
        return isinstance(self.sides[0], np.ndarray)

    @property
    def width(self) -> int:
        """The number of features of an item."""
        return FEATURE_WIDTHS[self.features] * int(self.sides[0].shape[1])


class ItemBlock(NamedTuple):
    """Some items with embeddings in memory, among which are theirs."""

    u: FloatArray
    """Embeddings of first (or only) sentences, (m, d)."""
    v: FloatArray
    """Embeddings of second sentences, (m, d); the same as ``u`` for single sentences."""
    embedding_rows: IndexArray
    """The row of each item in ``u`` and ``v``, (k,)."""
    labels: npt.NDArray[Any]
    """The label of each item, (k,), or its soft labels, (k, c)."""


@dataclass(frozen=True)
class ProbeItems:
    """Some items of a pool, in an order.

    Attributes:
        pool: The embeddings of their split.
        indices: Their indices in the split, (m,).
        labels: Their labels, (m,), or soft labels, (m, c).
    """

    pool: FeaturePool
    indices: IndexArray
    labels: npt.NDArray[Any]

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.indices)

    def select(self, positions: IndexArray) -> ProbeItems:
        """Return the items at these positions.

        Args:
            positions: Positions among these items, (k,), not indices in the split.
        """
        return ProbeItems(self.pool, self.indices[positions], self.labels[positions])

    def folds(self, k: int, seed: int) -> list[tuple[ProbeItems, ProbeItems]]:
        """Divide the items into k stratified folds: each has about the same share of each class.

        Args:
            k: The number of folds.
            seed: The seed by which the items of each class are shuffled first.

        Returns:
            For each fold two sets: the items of all other folds, to train on, and its own items,
            which are held out.

        Raises:
            DataError: No class has k items.
        """
        from sklearn.model_selection import StratifiedKFold

        if np.bincount(self.labels).max(initial=0) < k:
            raise DataError(f"{len(self)} labelled items are too few for {k} folds")
        splitter = StratifiedKFold(k, shuffle=True, random_state=seed)
        with warnings.catch_warnings():
            # A class of fewer than k items is missing from some folds, as in SentEval's toolkit.
            warnings.filterwarnings(
                "ignore", message="The least populated class", category=UserWarning
            )
            return [
                (self.select(train), self.select(held_out))
                for train, held_out in splitter.split(self.indices, self.labels)
            ]

    def blocks(self, *, multiple_of: int = 1) -> Iterator[ItemBlock]:
        """Yield the items in order, in blocks with their embeddings in memory.

        If the embeddings of the whole split are in memory (``self.pool.is_resident``), there is one
        block: all items, with the embeddings of the whole split. An item's row in these is its
        index in the split, ``self.indices``. Otherwise the embeddings are in a file. A block then
        has the embeddings of its own items only: ``MAX_CHUNK_BYTES`` at most, unless
        ``multiple_of`` items have more.

        Args:
            multiple_of: Each block but the last has a multiple of this number of items.

        Yields:
            The embeddings ``u`` of first sentences and ``v`` of second ones (single sentences: the
            same again), the row in these of each item, and the label of each item.
        """
        sides = self.pool.sides
        if self.pool.is_resident:
            yield ItemBlock(
                u=np.asarray(sides[0]),
                v=np.asarray(sides[-1]),
                embedding_rows=self.indices,
                labels=self.labels,
            )
            return
        bytes_per_float32 = 4
        bytes_per_item = bytes_per_float32 * sides[0].shape[1] * len(sides)
        items_in_memory = MAX_CHUNK_BYTES // bytes_per_item
        size = max(1, items_in_memory // multiple_of) * multiple_of
        for start in range(0, len(self), size):
            block_indices = self.indices[start : start + size]
            # Reading in the order of the file, not of the items, touches fewer pages.
            file_order = np.argsort(block_indices)
            indices_in_file_order = block_indices[file_order]
            embeddings = [
                np.require(side.take(indices_in_file_order), np.float32, ["C", "W"])
                for side in sides
            ]
            yield ItemBlock(
                u=embeddings[0],
                v=embeddings[-1],
                # The inverse of the permutation: the row at which each item was put.
                embedding_rows=np.argsort(file_order),
                labels=self.labels[start : start + size],
            )

    def features(
        self, device: torch.device | str = "cpu", max_items: int | None = None
    ) -> Iterator[Tensor]:
        """Yield the features of the items in order, chunk by chunk.

        A chunk has at most ``max_items`` items and at most ``MAX_CHUNK_VALUES`` features in all,
        but always one item at least.

        Args:
            device: The device of torch on which they are computed.
            max_items: The maximum number of items of a chunk, if a caller needs smaller ones.

        Yields:
            The features of the r items of a chunk, (r, w) float64: of single sentences the
            embedding, of pairs what :func:`combine_sides` makes of both embeddings.
        """
        import torch

        feature_kind = self.pool.features
        # ``width`` is w, the number of features of an item.
        items_per_chunk = MAX_CHUNK_VALUES // self.pool.width
        if max_items is not None:
            items_per_chunk = min(items_per_chunk, max_items)
        items_per_chunk = max(1, items_per_chunk)
        for block in self.blocks():
            for start in range(0, len(block.embedding_rows), items_per_chunk):
                # The rows of these items in the block's embeddings.
                rows = block.embedding_rows[start : start + items_per_chunk]
                u = torch.from_numpy(block.u[rows]).to(device)
                # Single sentences have no second side.
                v = u if feature_kind == "u" else torch.from_numpy(block.v[rows]).to(device)
                yield combine_sides(u, v, feature_kind).double()


def combine_sides(u: Tensor, v: Tensor, kind: Features) -> Tensor:
    """Return the features of items, computed from the embeddings of their sentences.

    Args:
        u: The embeddings of first (or only) sentences, (..., d).
        v: The embeddings of second sentences, (..., d); not read for kind ``u``.
        kind: ``u``; ``abs_mul``, which is ``[|u - v|, u * v]``; or ``concat_mul_abs``, which is
            ``[u, v, u * v, |u - v|]``.

    Returns:
        The features, (..., w), where w is d, 2 * d or 4 * d.
    """
    import torch

    if kind == "u":
        return u
    difference = (u - v).abs()
    product = u * v
    if kind == "abs_mul":
        return torch.cat([difference, product], dim=-1)
    return torch.cat([u, v, product, difference], dim=-1)


AnySplit = LabelledSplit | LabelledPairSplit | PairSplit


def make_items(split: AnySplit, embed: Embed, features: Features, memory: int) -> ProbeItems:
    """Embed a split, and return its items in the order in which SentEval's toolkit sorts them.

    Args:
        split: The split, of single sentences or of pairs; its labels or gold scores are the items'
            labels.
        embed: Embeds sentences.
        features: The kind of features that items have, see :func:`combine_sides`. The items of
            ``concat_mul_abs``, the features for the task SNLI, are sorted as SNLI's script does.
        memory: The maximum number of bytes of embeddings in memory; more are read chunk by chunk.

    Returns:
        The items with their labels, and the pool of embeddings that their features are made from.

    Raises:
        DataError: The split has pairs and the features are those of sentences, or the reverse.
    """
    has_pairs = len(split.sides) == 2
    needs_pairs = features != "u"
    if has_pairs != needs_pairs:
        kind = "pairs" if has_pairs else "single sentences"
        choices = "'abs_mul' or 'concat_mul_abs'" if has_pairs else "'u'"
        raise DataError(f"the task's {kind} need features {choices}, not '{features}'")
    # ``embed`` returns views of embeddings, which are read only when their rows are taken.
    sides: list[EmbeddingRows] = [embed(side) for side in split.sides]
    bytes_per_float32 = 4
    if sum(bytes_per_float32 * side.shape[0] * side.shape[1] for side in sides) <= memory:
        # The compiled training loops need contiguous, writable, aligned float32 arrays.
        sides = [np.require(np.asarray(side), np.float32, ["C", "W", "A"]) for side in sides]
    checks = [inspect_embeddings(side) for side in sides]
    pool = FeaturePool(
        tuple(sides),
        features,
        zero_rows=sum(check.zero_vectors for check in checks),
        is_constant=all(check.is_constant for check in checks),
    )
    order = toolkit_order(split, second_first=features == "concat_mul_abs")
    labels = split.gold if isinstance(split, PairSplit) else split.labels
    return ProbeItems(pool, indices=order, labels=labels[order])


def toolkit_order(split: AnySplit, *, second_first: bool = False) -> IndexArray:
    """Return the indices that sort the items of a split as SentEval's toolkit does, (n,).

    Its scripts sort by these keys, and leave ties in the order of the file:

    - Single sentences: number of tokens, label (``binary.py``, ``sst.py``, ``trec.py``,
      ``probing.py``).
    - Pairs: number of tokens of the first sentence, of the second sentence, label (``mrpc.py``,
      ``sick.py``).
    - Pairs of SNLI (``snli.py``): number of tokens of the second sentence, of the first sentence,
      *name* of the label, because labels are strings there.

    Args:
        split: The split. Its gold scores take the place of labels if it has such.
        second_first: Sort as ``snli.py``, unless the split has gold scores.
    """
    # Like the toolkit's loaders, count the words between white space.
    token_counts = [
        np.array([len(sentence.split()) for sentence in side], dtype=np.int64)
        for side in split.sides
    ]
    # The last key of ``lexsort`` counts most: here the first sentence, before the second.
    by_first_sentence = list(reversed(token_counts))
    if isinstance(split, PairSplit):
        return np.lexsort([split.gold, *by_first_sentence])
    if not second_first:
        return np.lexsort([split.labels, *by_first_sentence])
    labels = split.labels
    # Labels are numbers of classes. If the classes have names, labels are replaced by the ranks of
    # these names in alphabetical order.
    if len(split.classes):
        classes_by_name = np.argsort(np.asarray(split.classes), kind="stable")
        # The inverse of a permutation.
        rank_of_class = np.argsort(classes_by_name)
        labels = rank_of_class[labels]
    by_second_sentence = token_counts
    return np.lexsort([labels, *by_second_sentence])


class EpochOrders:
    """The order of the training items in each epoch, for one training size.

    Orders are drawn when they are first requested, one after the other from one stream, as in the
    toolkit. With ``holdout``, the first draw of the stream holds out that share of the items:
    ``validation_items`` and ``training_items`` are positions, and the epochs permute the training
    items. Threads may share it.
    """

    def __init__(self, seed: int, n: int, *, holdout: float = 0.0) -> None:
        """Start the random stream from which the order of each epoch is drawn.

        If a share of the items is held out, to validate on, these items are drawn first.

        Args:
            seed: The seed of the stream.
            n: The number of items.
            holdout: The share of the items to hold out; 0 holds out none, and draws nothing for it.

        Raises:
            DataError: The items are too few to hold any out.
        """
        self._rng = np.random.RandomState(seed)  # noqa: NPY002 - the toolkit's generator
        self._lock = threading.Lock()
        """Held while an order is drawn: all threads must see the same orders."""
        self._epochs: list[npt.NDArray[np.int32]] = []
        """The orders drawn so far, one per epoch."""
        self.validation_items = np.empty(0, dtype=np.int64)
        self.training_items = np.arange(n)
        if holdout:
            # A random permutation, cut behind the held-out items.
            self.validation_items, self.training_items = np.split(
                self._rng.permutation(n), [int(holdout * n)]
            )
            if not len(self.validation_items):
                raise DataError(f"{n} training items are too few to hold {holdout:.0%} of them out")

    def permutation(self, epoch: int) -> IndexArray:
        """Return the order of an epoch: positions within ``training_items``, one per item."""
        with self._lock:
            while len(self._epochs) <= epoch:
                permutation = self._rng.permutation(len(self.training_items))
                self._epochs.append(permutation.astype(np.int32))
            return self._epochs[epoch].astype(np.int64)


class FirstWeights(NamedTuple):
    """The weights that layers start from."""

    tensors: list[Tensor]
    """The weight (out, in) and the bias (out,) of each layer."""
    generator: torch.Generator
    """The generator after all draws."""


def first_weights(seed: int, *layers: tuple[int, int]) -> FirstWeights:
    """Draw the weights and biases that torch's linear layers start from, by a seed.

    They are those of ``torch.nn.Linear`` after ``torch.manual_seed(seed)`` (weights by Kaiming's
    uniform distribution with a = sqrt(5), biases uniform within 1 / sqrt(in)). Torch's global
    generator is not used.

    Args:
        seed: The seed of torch's generator.
        layers: The sizes (in, out) of each layer.

    Returns:
        The weight (out, in) and the bias (out,) of each layer in turn, and the generator after
        these draws.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for fan_in, fan_out in layers:
        weight = torch.empty(fan_out, fan_in)
        torch.nn.init.kaiming_uniform_(weight, a=5**0.5, generator=generator)
        bound = fan_in**-0.5
        tensors += [weight, torch.empty(fan_out).uniform_(-bound, bound, generator=generator)]
    return FirstWeights(tensors, generator)


def starting_weights(seed: int, width: int, classes: int) -> FloatArray:
    """Draw the first weights of a linear classifier, in the layout of the compiled training loops.

    Args:
        seed: The seed of torch's generator.
        width: The number of features.
        classes: The number of classes.

    Returns:
        One row per class: its ``width`` weights, its bias, and zeros up to a multiple of
        ``SIMD_LANES`` columns.
    """
    # One layer has one weight (classes, width) and one bias (classes,). The second result, torch's
    # generator after the draws, is not needed.
    (weight, bias), _ = first_weights(seed, (width, classes))
    columns_with_bias = width + 1
    n_columns = math.ceil(columns_with_bias / SIMD_LANES) * SIMD_LANES
    start: FloatArray = np.zeros((classes, n_columns), dtype=np.float32)
    start[:, :width] = weight.numpy()
    start[:, width] = bias.numpy()
    return start


class SearchResult(NamedTuple):
    """The classifiers of a search over the grid."""

    accuracy: npt.NDArray[np.float64]
    """Their accuracies on development items, (folds, grid)."""
    classifiers: list[list[Any]]
    """The classifiers, by fold and position in the grid."""


class Solver(Protocol):
    """Trains classifiers over a grid of penalties."""

    def search(self, folds: Sequence[tuple[ProbeItems, ProbeItems]]) -> SearchResult:
        """Train a classifier per penalty and fold.

        Args:
            folds: The training items and the development items of each fold.
        """

    def refit(self, trains: Sequence[ProbeItems], choices: Sequence[int]) -> list[Any]:
        """Train a final classifier on each set of items.

        Args:
            trains: The sets of items.
            choices: The position of each one's penalty in the grid.
        """

    def predict(self, classifier: Any, items: ProbeItems) -> IndexArray:  # noqa: ANN401
        """Return the predicted class of each item, (m,)."""

    def notes(self) -> tuple[str, ...]:
        """Return facts on the training that a reader of the score must know; empty if none."""
        return ()


Decimals = Annotated[int, Meta(ge=0, le=12)]
"""A number of decimals to round to; of many more numpy makes NaN."""


class ProbeRun(NamedTuple):
    """One run of a probe, and the part of the machine that it may use."""

    width: int
    """The number of features of an item."""
    classes: int
    """The number of classes."""
    seed: int = 0
    device: str = "cpu"
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class ProbeProtocol(ABC):
    """A classifier of probes with its settings: the fields that every protocol has.

    Seeds: an evaluation with seed ``s`` is the toolkit's run with its seed set to
    ``base_seed + s``; seed 0 is the published one, 1111. The outer and inner folds of nested
    cross-validation stay at ``base_seed`` whatever the seed, as they do in the toolkit; those of
    k-fold tasks follow it.

    ``rounding`` is the number of decimals to which accuracies in points are rounded at the steps at
    which the toolkit does so: before penalties are compared and before folds are averaged. If it is
    None, nothing is rounded, and the score is the share of correct items.
    """

    name: str
    kfold: Annotated[int, Meta(ge=2)] = 10
    base_seed: BaseSeed = 1111
    data_order: Literal["length,label"] = "length,label"
    rounding: Decimals | None = None

    @abstractmethod
    def solver(self, run: ProbeRun) -> Solver:
        """Return the solver that trains this classifier.

        Heavy imports belong into this method: protocols are listed without them.
        """
