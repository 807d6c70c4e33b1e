"""Similarities of paired embeddings, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt


def paired_cosine(
    a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
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


def paired_similarities(
    a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]
) -> tuple[npt.NDArray[np.float64], ...]:
    """Return cosine, dot product, and minus the Manhattan and the Euclidean distance of each pair of rows.

    Both are (n, d); the higher, the more alike.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    difference = x - y
    dots = np.einsum("nd,nd->n", x, y)
    return paired_cosine(x, y)[0], dots, -np.abs(difference).sum(axis=1), -np.linalg.norm(difference, axis=1)


Similarities = tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]
"""The similarity of each pair, (n,), and which pairs held a zero vector."""


def paired_dot(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]) -> Similarities:
    """Return the dot product of each row of ``a`` with the same row of ``b``, both (n, d); of whole numbers it is exact."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    zero: npt.NDArray[np.bool_] = np.logical_not(x.any(axis=1) & y.any(axis=1))
    return np.einsum("nd,nd->n", x, y), zero


def paired_hamming(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]) -> Similarities:
    """Return minus the number of places where each row of ``a`` differs from the same row of ``b``, both (n, d).

    Rows are bits; none is a zero vector.
    """
    return -np.count_nonzero(a != b, axis=1).astype(np.float64), np.zeros(len(a), dtype=bool)


SIMILARITIES: Mapping[str, Callable[[npt.NDArray[np.floating], npt.NDArray[np.floating]], Similarities]] = {
    "cosine": paired_cosine,
    "dot": paired_dot,
    "hamming": paired_hamming,
}
"""How alike two embeddings are, by the names of protocols: what vector databases compute of floats, integers and bits."""


def are_bits(embeddings: npt.NDArray[np.floating]) -> bool:
    """Whether embeddings (n, d) hold no more than two different numbers."""
    if not embeddings.size:
        return True
    return bool(((embeddings == embeddings.min()) | (embeddings == embeddings.max())).all())
