"""Mean and covariance of embeddings that come a chunk at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stsbench.encoders.seams import Encoder
from stsbench.errors import EncoderError

CHUNK = 65536
Array = npt.NDArray[np.float64]


class Moments:
    """Sums of squares around each chunk's own mean, joined as by Chan, Golub and LeVeque (1983), in float64.

    Attributes:
        count: embeddings seen.
        mean: their mean, (d,); of none, (0,).
        scatter: the sum of the outer products of what is left of them without the mean, (d, d).
    """

    def __init__(self) -> None:
        """See nothing yet."""
        self.count, self.mean, self.scatter = 0, np.zeros(0), np.zeros((0, 0))

    def add(self, x: npt.ArrayLike) -> None:
        """Add embeddings (n, d).

        Raises:
            EncoderError: not of two axes.
        """
        rows: Array = np.asarray(x, dtype=np.float64)
        if rows.ndim != 2:
            raise EncoderError(f"fitting takes embeddings (n, d), not shape {rows.shape}")
        if not self.count:
            d = rows.shape[1]
            self.mean, self.scatter = np.zeros(d), np.zeros((d, d))
        if len(rows):
            mean = rows.mean(axis=0)
            centred, shift = rows - mean, mean - self.mean
            n, m = self.count, len(rows)
            self.scatter += centred.T @ centred + np.outer(shift, shift) * (n * m / (n + m))
            self.mean = self.mean + shift * (m / (n + m))
            self.count = n + m

    def add_texts(self, base: Encoder, sentences: Sequence[str]) -> Moments:
        """Add an encoder's embeddings of these sentences, a chunk of them in memory at a time."""
        for start in range(0, len(sentences), CHUNK):
            self.add(base.encode(sentences[start : start + CHUNK]))
        return self
