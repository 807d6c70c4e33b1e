"""Similarities of paired embeddings, measures of their space, and smaller embeddings.

Alignment and uniformity are those of Wang and Isola 2020, section 4.1.

Integers are those of ``quantize_embeddings`` in sentence-transformers 6.2. The range of each
dimension, from its smallest to its largest number, is divided into 255 equal steps; an integer is
the number of the step, and numbers outside the range get the first or the last step. A bit is 1
if the number is above 0. There eight bits are packed into a byte; here each is one number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.statistics import BoolArray, Float64Array

FloatArray = npt.NDArray[np.floating]


class Similarities(NamedTuple):
    """The similarities of n pairs of embeddings."""

    values: Float64Array
    """The similarity of each pair, (n,)."""
    has_zero_vector: BoolArray
    """Whether one embedding of the pair is a zero vector, (n,)."""


ROWS_AT_ONCE = 1024
"""The number of rows that are compared with all later ones at once."""


def paired_cosine(a: FloatArray, b: FloatArray) -> Similarities:
    """Return the cosine of each row of ``a`` with the same row of ``b``.

    A pair with a zero vector has cosine 0: SentEval's convention for a sentence without a known
    word. All is computed in float64: float32 rounding makes ties, and ties change ranks.

    Args:
        a: Embeddings, (n, d).
        b: Embeddings, (n, d).

    Returns:
        The cosines, (n,), and whether one embedding of the pair is a zero vector, (n,).
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    products_of_norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    has_zero_vector = products_of_norms == 0
    dots = np.einsum("nd,nd->n", x, y)
    # No division by 0.
    divisors = np.where(has_zero_vector, 1.0, products_of_norms)
    cosines = np.where(has_zero_vector, 0.0, dots / divisors)
    return Similarities(cosines, has_zero_vector)


def paired_similarities(a: FloatArray, b: FloatArray) -> tuple[Float64Array, ...]:
    """Return four similarities of each row of ``a`` with the same row of ``b``, each (n,).

    They are cosine, dot product, minus the Manhattan and minus the Euclidean distance: a higher
    number is a greater similarity.

    Args:
        a: Embeddings, (n, d).
        b: Embeddings, (n, d).
    """
    # Each returns the similarities, and which pairs have a zero vector.
    functions = (paired_cosine, paired_dot, paired_manhattan, paired_euclidean)
    return tuple(compare(a, b).values for compare in functions)


def paired_dot(a: FloatArray, b: FloatArray) -> Similarities:
    """Return the dot product of each row of ``a`` with the same row of ``b``, both (n, d).

    It is exact for whole numbers.

    Returns:
        The dot products, (n,), and whether one embedding of the pair is a zero vector, (n,).
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    has_zero_vector: BoolArray = np.logical_not(x.any(axis=1) & y.any(axis=1))
    return Similarities(np.einsum("nd,nd->n", x, y), has_zero_vector)


def paired_hamming(a: FloatArray, b: FloatArray) -> Similarities:
    """Return minus the number of bits in which each row of ``a`` and ``b`` differ, both (n, d).

    No vector of bits counts as a zero vector.
    """
    n_different = np.count_nonzero(a != b, axis=1).astype(np.float64)
    return Similarities(-n_different, np.zeros(len(a), dtype=bool))


def paired_euclidean(a: FloatArray, b: FloatArray) -> Similarities:
    """Return minus the Euclidean distance of each row of ``a`` and ``b``, both (n, d), in float64.

    No vector counts as a zero vector.
    """
    distances = np.linalg.norm(np.subtract(a, b, dtype=np.float64), axis=1)
    return Similarities(-distances, np.zeros(len(a), dtype=bool))


def paired_manhattan(a: FloatArray, b: FloatArray) -> Similarities:
    """Return minus the Manhattan distance of each row of ``a`` and ``b``, both (n, d), in float64.

    The Manhattan distance is the sum of the absolute differences.

    Returns:
        The similarities, (n,), and whether a pair has a zero vector, (n,): false for all pairs, as
        a zero vector is a point like others for a distance.
    """
    differences = np.subtract(a, b, dtype=np.float64)
    # The absolute values replace the differences, which saves memory.
    distances = np.abs(differences, out=differences).sum(axis=1)
    return Similarities(-distances, np.zeros(len(a), dtype=bool))


SIMILARITIES: Mapping[str, Callable[[FloatArray, FloatArray], Similarities]] = {
    "cosine": paired_cosine,
    "dot": paired_dot,
    "hamming": paired_hamming,
    "euclidean": paired_euclidean,
    "manhattan": paired_manhattan,
}
"""The similarities by their names in protocols: those of vector databases, and of MTEB."""


DEFAULT_SIMILARITY = "cosine"
"""The similarity of protocols unless a user chooses another one."""
FURTHER_CORRELATIONS = {"euclidean_spearman": "euclidean", "manhattan_spearman": "manhattan"}
"""Spearman's correlations that STS results have beside their score, by the names in MTEB's files;
each with its similarity, which is the name of a per-item column too."""


def are_bits(embeddings: FloatArray) -> bool:
    """Return whether embeddings (n, d) have at most two different numbers, as bits do."""
    if not embeddings.size:
        return True
    is_extreme = (embeddings == embeddings.min()) | (embeddings == embeddings.max())
    return bool(is_extreme.all())


def alignment(x: FloatArray, y: FloatArray) -> float:
    """Return the mean squared distance of each row of ``x`` to the same row of ``y``.

    A lower value is closer. Rows are scaled to length 1 first; a zero vector stays one.

    Args:
        x: Embeddings, (n, d), n of 1 or more.
        y: Embeddings, (n, d).
    """
    squared_distances = np.square(unit_rows(x) - unit_rows(y)).sum(axis=1)
    return float(squared_distances.mean())


def uniformity(x: FloatArray, t: float = 2.0) -> float:
    """Return the log of the mean of exp(-t * squared distance) over all pairs of different rows.

    A lower value is more even. Rows are scaled to length 1 first; a zero vector stays one. A block
    of ``ROWS_AT_ONCE`` rows is compared with itself and with all later rows, to bound the memory.

    Args:
        x: Embeddings, (n, d), n of 2 or more.
        t: The factor of squared distances.
    """
    unit = unit_rows(x)
    squared_norms = np.square(unit).sum(axis=1)
    sum_over_pairs = 0.0
    for start in range(0, len(unit), ROWS_AT_ONCE):
        block = unit[start : start + ROWS_AT_ONCE]
        # Squared distances to the rows of the block itself and to all later rows.
        distances = (
            squared_norms[start : start + ROWS_AT_ONCE, None]
            + squared_norms[start:]
            - 2 * (block @ unit[start:].T)
        )
        # Rounding may make a distance negative. The results replace the distances in memory.
        np.maximum(distances, 0.0, out=distances)
        terms = np.exp(-t * distances, out=distances)
        # The block with itself has each pair twice, and each row with itself once.
        block_terms = terms[:, : len(block)]
        block_sum = float(block_terms.sum() - block_terms.diagonal().sum()) / 2
        # The block with later rows has each pair once.
        later_sum = float(terms[:, len(block) :].sum())
        sum_over_pairs += later_sum + block_sum
    n = len(unit)
    n_pairs = n * (n - 1) / 2
    return float(np.log(sum_over_pairs / n_pairs))


def unit_rows(x: FloatArray) -> Float64Array:
    """Return the rows of x (n, d) at length 1, in float64; a zero vector stays one."""
    rows = np.asarray(x, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms == 0, 1.0, norms)


Float32Array = npt.NDArray[np.float32]
INTEGER_STEPS = 255
"""The number of steps of a dimension's range."""
SIGNED_OFFSET = 128
"""The difference of an unsigned and a signed integer."""


class NumberType(NamedTuple):
    """The type of an embedding's numbers: the bits of each, and whether some are below 0."""

    bits: int
    signed: bool = True

    def bytes(self, d: int) -> int:
        """Return the number of bytes of an embedding of size ``d``."""
        return math.ceil(d * self.bits / 8)


FLOAT_TYPE = "float32"
EMBEDDING_TYPES: Mapping[str, NumberType] = {
    FLOAT_TYPE: NumberType(32),
    "int8": NumberType(8),
    "uint8": NumberType(8, signed=False),
    "binary": NumberType(1),
    "ubinary": NumberType(1, signed=False),
}
"""The types of numbers by their names in sentence-transformers, where they are precisions."""


def truncate(embeddings: Float32Array, dimensions: int) -> Float32Array:
    """Cut embeddings to their first numbers, and scale them to length 1.

    A zero vector stays one. Source: Matryoshka Representation Learning,
    https://arxiv.org/abs/2205.13147.

    Args:
        embeddings: Embeddings, (n, d).
        dimensions: How many numbers of each embedding are left.

    Returns:
        The shorter embeddings, (n, dimensions).
    """
    truncated = embeddings[:, :dimensions]
    norms = np.sqrt(np.einsum("nd,nd->n", truncated, truncated, dtype=np.float64))
    # No division by 0.
    divisors = np.where(norms > 0, norms, 1.0).astype(np.float32)
    return np.asarray(truncated / divisors[:, None])


def to_integers(embeddings: Float32Array, ranges: Float32Array, *, signed: bool) -> Float32Array:
    """Return embeddings as whole numbers, (n, d), which float32 stores exactly.

    The range of each dimension is divided into 255 equal steps (``INTEGER_STEPS``). A number
    becomes the index of its step, from 0; the largest number becomes 255. Numbers outside the range
    become 0 or 255.

    Args:
        embeddings: Embeddings, (n, d).
        ranges: The smallest and the largest number of each dimension, (2, d).
        signed: Subtract 128, so that the whole numbers are from -128 to 127; else they are from 0
            to 255.
    """
    smallest, largest = ranges
    step_sizes = (largest - smallest) / INTEGER_STEPS
    # In a dimension that never varies all numbers are in step 0, for any size above 0.
    step_sizes = np.where(step_sizes == 0, np.float32(1), step_sizes)
    integers = np.clip(np.floor((embeddings - smallest) / step_sizes), 0, INTEGER_STEPS)
    if signed:
        integers -= SIGNED_OFFSET
    return np.asarray(integers.astype(np.float32))


def to_bits(embeddings: Float32Array, *, signed: bool) -> Float32Array:
    """Return 1 where a number is above 0, else -1 if ``signed`` or 0 if not, (n, d)."""
    return np.where(embeddings > 0, np.float32(1), np.float32(-1 if signed else 0))
