"""The features of one split: read from its embeddings, never held as a whole for pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.encoders.seams import Embed, Embeddings, FloatArray, IndexArray
from stsbench.errors import DataError, EncoderError

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
        side_zeros, side_constant = _inspect(view, side)
        zeros, constant = zeros + side_zeros, constant and side_constant
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


def _inspect(view: Embeddings, texts: Sequence[str]) -> tuple[int, bool]:
    """Count the zero rows and tell whether all rows are the same; stop at one that is not finite."""
    n, d = view.shape
    step = max(1, CHUNK_BYTES // (4 * d))
    zeros, constant, first = 0, True, view.take(np.zeros(1, dtype=np.int64))
    for start in range(0, n, step):
        rows = view.take(np.arange(start, min(start + step, n)))
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            sentence = texts[start + int(bad[0])]
            raise EncoderError(f"the embedding of '{sentence[:80]}' is not finite (NaN or infinity)")
        zeros += int((~rows.any(axis=1)).sum())
        constant = constant and bool((rows == first).all())
    return zeros, constant
