"""Embeddings of another engine, changed row by row when they are asked for: nothing is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stsbench.encoders.seams import Embed, Embeddings, FloatArray

OfRows = Callable[[FloatArray], FloatArray]
"""From embeddings (n, d) to (n, k), each row by itself."""


@dataclass(frozen=True)
class TransformedEmbeddings:
    """A read-only (n, k) view of changed embeddings."""

    view: Embeddings
    transform: OfRows

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and embedding size."""
        n = self.view.shape[0]
        return n, self.take(np.arange(min(n, 1))).shape[1]

    def take(self, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Return these rows, (len(indices), k)."""
        return self.transform(self.view.take(indices))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        """Return all rows, (n, k)."""
        rows = self.transform(np.asarray(self.view))
        return rows if dtype is None else rows.astype(dtype, copy=False)


@dataclass(frozen=True)
class TransformedEngine:
    """What evaluators are handed in the place of an engine."""

    engine: Embed
    transform: OfRows

    def __call__(self, sentences: Sequence[str]) -> TransformedEmbeddings:
        """Return the (n, k) embeddings of these sentences."""
        return TransformedEmbeddings(self.engine(sentences), self.transform)
