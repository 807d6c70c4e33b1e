"""Smaller embeddings: fewer numbers of each, and integers or bits in the place of floats.

The integers are those of ``quantize_embeddings`` in sentence-transformers 6.2: of each number, in which of 255 equal
steps between the smallest and the largest of its dimension it lies, what is outside going to the ends. Its bits tell
which numbers are above 0; packed eight to a byte there, they are one number each here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]
STEPS, HALF = 255, 128


class NumberType(NamedTuple):
    """How the numbers of an embedding are kept: bits of each, and whether some are below 0."""

    bits: int
    signed: bool = True

    @property
    def needs_ranges(self) -> bool:
        """Whether the range of each dimension has to be known."""
        return self.bits == 8

    def bytes(self, d: int) -> int:
        """The bytes of an embedding of size d."""
        return -(-d * self.bits // 8)


FLOAT = "float32"
TYPES: Mapping[str, NumberType] = {
    FLOAT: NumberType(32),
    "int8": NumberType(8),
    "uint8": NumberType(8, signed=False),
    "binary": NumberType(1),
    "ubinary": NumberType(1, signed=False),
}
"""The precisions of sentence-transformers."""


def truncate(embeddings: Float32Array, dimensions: int) -> Float32Array:
    """Return the first numbers of each embedding at length 1, (n, d) to (n, dimensions); a zero vector stays one.

    Source: Matryoshka Representation Learning, https://arxiv.org/abs/2205.13147.
    """
    first = embeddings[:, :dimensions]
    lengths = np.sqrt(np.einsum("nd,nd->n", first, first, dtype=np.float64))
    shortened: Float32Array = first / np.where(lengths > 0, lengths, 1.0).astype(np.float32)[:, None]
    return shortened


def to_integers(embeddings: Float32Array, ranges: Float32Array, *, signed: bool) -> Float32Array:
    """Return whole numbers from -128 to 127, or from 0 to 255, (n, d), which float32 holds exactly.

    Args:
        embeddings: (n, d).
        ranges: the smallest and the largest number of each dimension, (2, d).
        signed: whether they begin at -128.
    """
    starts = ranges[0]
    steps = (ranges[1] - starts) / STEPS
    # A dimension that never varies is one step.
    steps = np.where(steps == 0, np.float32(1), steps)
    integers = np.clip(np.floor((embeddings - starts) / steps), 0, STEPS)
    whole: Float32Array = (integers - HALF if signed else integers).astype(np.float32)
    return whole


def to_bits(embeddings: Float32Array, *, signed: bool) -> Float32Array:
    """Return 1 where a number is above 0, else -1, or 0 where bits have no sign, (n, d)."""
    return np.where(embeddings > 0, np.float32(1), np.float32(-1 if signed else 0))
