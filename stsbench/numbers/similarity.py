"""Similarities of paired embeddings, how close and how even embeddings lie, and smaller embeddings.

Alignment and uniformity are those of Wang and Isola 2020, section 4.1. The integers are those of ``quantize_embeddings`` in
sentence-transformers 6.2: of each number, in which of 255 equal steps between the smallest and the largest of its dimension it
lies, what is outside going to the ends. Its bits say which numbers are above 0; packed eight to a byte there, they are one
number each here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating]
Similarities = tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]
"""The similarity of each pair, (n,), and which pairs held a zero vector."""
ROWS_AT_ONCE = 1024
"""So many rows are compared with all later ones at once."""


def paired_cosine(a: FloatArray, b: FloatArray) -> Similarities:
    """Return the cosine of each row of ``a`` with the same row of ``b``, and which rows held a zero vector.

    Both are (n, d). A pair with a zero vector has cosine 0: the SentEval convention for a
    sentence without a known word. Float64 throughout: float32 rounding makes ties, and ties
    change ranks.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    zero = norms == 0
    dots = np.einsum("nd,nd->n", x, y)
    return np.where(zero, 0.0, dots / np.where(zero, 1.0, norms)), zero


def paired_similarities(a: FloatArray, b: FloatArray) -> tuple[npt.NDArray[np.float64], ...]:
    """Return cosine, dot product, and minus the Manhattan and the Euclidean distance of each pair of rows.

    Both are (n, d); the higher, the more alike.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    away = x - y
    return (
        paired_cosine(x, y)[0],
        paired_dot(x, y)[0],
        -np.abs(away).sum(axis=1),
        -np.linalg.norm(away, axis=1),
    )


def paired_dot(a: FloatArray, b: FloatArray) -> Similarities:
    """Return the dot product of each row of ``a`` with the same row of ``b``, both (n, d); of whole numbers it is exact."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    zero: npt.NDArray[np.bool_] = np.logical_not(x.any(axis=1) & y.any(axis=1))
    return np.einsum("nd,nd->n", x, y), zero


def paired_hamming(a: FloatArray, b: FloatArray) -> Similarities:
    """Return minus the number of bits in which each row of ``a`` differs from that of ``b``, both (n, d); none is zero."""
    return -np.count_nonzero(a != b, axis=1).astype(np.float64), np.zeros(len(a), dtype=bool)


SIMILARITIES: Mapping[str, Callable[[FloatArray, FloatArray], Similarities]] = {
    "cosine": paired_cosine,
    "dot": paired_dot,
    "hamming": paired_hamming,
}
"""How alike two embeddings are, by the names of protocols: what vector databases compute of floats, integers and bits."""


def are_packed_bits(embeddings: FloatArray) -> bool:
    """Whether embeddings (n, d) hold no more than two different numbers."""
    if not embeddings.size:
        return True
    return bool(((embeddings == embeddings.min()) | (embeddings == embeddings.max())).all())


def alignment(x: FloatArray, y: FloatArray) -> float:
    """Return the mean squared distance of each row of ``x`` to the same row of ``y``; the lower, the closer.

    Both are (n, d), n of 1 or more, and are brought to length 1 first; a zero vector stays one.
    """
    return float((np.square(unit_rows(x) - unit_rows(y)).sum(axis=1)).mean())


def uniformity(x: FloatArray, t: float = 2.0) -> float:
    """Return the log of the mean of exp(-t * squared distance) over all distinct pairs of rows; the lower, the more even.

    ``x`` is (n, d), n of 2 or more, and is brought to length 1 first; a zero vector stays one.
    """
    unit = unit_rows(x)
    squares = np.square(unit).sum(axis=1)
    total = 0.0
    for start in range(0, len(unit), ROWS_AT_ONCE):
        block = unit[start : start + ROWS_AT_ONCE]
        distances = (
            squares[start : start + ROWS_AT_ONCE, None]
            + squares[start:]
            - 2 * (block @ unit[start:].T)
        )
        terms = np.exp(-t * np.maximum(distances, 0.0, out=distances), out=distances)
        among = terms[:, : len(block)]
        # Among themselves a block's rows meet twice, and each meets itself; later rows they meet once.
        total += (
            float(terms[:, len(block) :].sum()) + float(among.sum() - among.diagonal().sum()) / 2
        )
    return float(np.log(2 * total / (len(unit) * (len(unit) - 1))))


def unit_rows(x: FloatArray) -> npt.NDArray[np.float64]:
    """Return the rows of x (n, d) at length 1, in float64; a zero vector stays one."""
    rows = np.asarray(x, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms == 0, 1.0, norms)


Float32Array = npt.NDArray[np.float32]
INTEGER_STEPS, HALF = 255, 128


class NumberType(NamedTuple):
    """How the numbers of an embedding are kept: bits of each, and whether some are below 0."""

    bits: int
    signed: bool = True

    def bytes(self, d: int) -> int:
        """The bytes of an embedding of size d."""
        return -(-d * self.bits // 8)


FLOAT_TYPE = "float32"
EMBEDDING_TYPES: Mapping[str, NumberType] = {
    FLOAT_TYPE: NumberType(32),
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
    return np.asarray(first / np.where(lengths > 0, lengths, 1.0).astype(np.float32)[:, None])


def to_integers(embeddings: Float32Array, ranges: Float32Array, *, signed: bool) -> Float32Array:
    """Return whole numbers from -128 to 127 (``signed``), or from 0 to 255, (n, d), which float32 holds exactly.

    ``embeddings`` are (n, d), ``ranges`` the smallest and the largest number of each dimension, (2, d).
    """
    steps = (ranges[1] - ranges[0]) / INTEGER_STEPS
    # A dimension that never varies is one step.
    steps = np.where(steps == 0, np.float32(1), steps)
    integers = np.clip(np.floor((embeddings - ranges[0]) / steps), 0, INTEGER_STEPS)
    return np.asarray((integers - HALF if signed else integers).astype(np.float32))


def to_bits(embeddings: Float32Array, *, signed: bool) -> Float32Array:
    """Return 1 where a number is above 0, else -1, or 0 where bits have no sign, (n, d)."""
    return np.where(embeddings > 0, np.float32(1), np.float32(-1 if signed else 0))
