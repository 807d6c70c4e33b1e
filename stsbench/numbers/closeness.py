"""How close pairs lie and how evenly embeddings spread: alignment and uniformity (Wang and Isola 2020, section 4.1)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ROWS = 1024
"""So many rows are compared with all later ones at once."""


def alignment(x: npt.NDArray[np.floating], y: npt.NDArray[np.floating]) -> float:
    """Return the mean squared distance of each row of ``x`` to the same row of ``y``; the lower, the closer.

    Both are (n, d), n of 1 or more, and are brought to length 1 first; a zero vector stays one.
    """
    return float((np.square(unit_rows(x) - unit_rows(y)).sum(axis=1)).mean())


def uniformity(x: npt.NDArray[np.floating], t: float = 2.0) -> float:
    """Return the log of the mean of exp(-t * squared distance) over all distinct pairs of rows; the lower, the more even.

    ``x`` is (n, d), n of 2 or more, and is brought to length 1 first; a zero vector stays one.
    """
    unit = unit_rows(x)
    squares = np.square(unit).sum(axis=1)
    total = 0.0
    for start in range(0, len(unit), ROWS):
        block = unit[start : start + ROWS]
        distances = squares[start : start + ROWS, None] + squares[start:] - 2 * (block @ unit[start:].T)
        terms = np.exp(-t * np.maximum(distances, 0.0, out=distances), out=distances)
        among = terms[:, : len(block)]
        # Among themselves a block's rows meet twice, and each meets itself; later rows they meet once.
        total += float(terms[:, len(block) :].sum()) + float(among.sum() - among.diagonal().sum()) / 2
    return float(np.log(2 * total / (len(unit) * (len(unit) - 1))))


def unit_rows(x: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the rows of x (n, d) at length 1, in float64; a zero vector stays one."""
    rows = np.asarray(x, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms == 0, 1.0, norms)
