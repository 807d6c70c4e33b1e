"""Compiled products of the probe: many directions times the rows of a matrix that are asked for, and back.

Rows are read where they lie, several of them with several directions at a time, so that each number read is used more
than once. BLAS wants rows side by side, and for products this small a call of it takes as long as the product.
"""

from __future__ import annotations

import numpy as np

from stsbench.encoders.seams import FloatArray, IndexArray
from stsbench.evaluators.probe.compilation import helper

_ITEMS, _TILE, _PAIR = 8, 4, 2
_ZERO = np.float32(0)


@helper
def logits(x: FloatArray, items: IndexArray, columns: int, directions: FloatArray, z: FloatArray) -> None:
    """Fill z (pk, g) with these rows of x, as many columns of them, times the directions (pk, w)."""
    whole = len(directions) // _TILE * _TILE
    for at in range(0, len(items), _ITEMS):
        for k in range(whole, len(directions)):
            _dot_eight(x, items[at : at + _ITEMS], columns, directions[k], z[k, at : at + _ITEMS])
        for four in range(at, at + _ITEMS, _TILE):
            for k in range(0, whole, _TILE):
                _dot_tile(
                    x, items[four : four + _TILE], columns, directions[k : k + _TILE],
                    z[k : k + _TILE, four : four + _TILE],
                )  # fmt: skip


@helper
def _dot_eight(x: FloatArray, at: IndexArray, columns: int, w: FloatArray, z: FloatArray) -> None:
    """Fill z (8,) with eight rows of x times one direction (w,): each weight is loaded once."""
    x0, x1, x2, x3, x4, x5, x6, x7 = x[at[0]], x[at[1]], x[at[2]], x[at[3]], x[at[4]], x[at[5]], x[at[6]], x[at[7]]
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = _ZERO
    for j in range(columns):
        s0 += w[j] * x0[j]
        s1 += w[j] * x1[j]
        s2 += w[j] * x2[j]
        s3 += w[j] * x3[j]
        s4 += w[j] * x4[j]
        s5 += w[j] * x5[j]
        s6 += w[j] * x6[j]
        s7 += w[j] * x7[j]
    z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7] = s0, s1, s2, s3, s4, s5, s6, s7


@helper
def _dot_tile(x: FloatArray, at: IndexArray, columns: int, w: FloatArray, z: FloatArray) -> None:
    """Fill z (4, 4) with four rows of x times four directions (4, w): each number is loaded once for four products."""
    x0, x1, x2, x3 = x[at[0]], x[at[1]], x[at[2]], x[at[3]]
    w0, w1, w2, w3 = w[0], w[1], w[2], w[3]
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = _ZERO
    for j in range(columns):
        a0 += w0[j] * x0[j]
        a1 += w0[j] * x1[j]
        a2 += w0[j] * x2[j]
        a3 += w0[j] * x3[j]
        b0 += w1[j] * x0[j]
        b1 += w1[j] * x1[j]
        b2 += w1[j] * x2[j]
        b3 += w1[j] * x3[j]
        c0 += w2[j] * x0[j]
        c1 += w2[j] * x1[j]
        c2 += w2[j] * x2[j]
        c3 += w2[j] * x3[j]
        d0 += w3[j] * x0[j]
        d1 += w3[j] * x1[j]
        d2 += w3[j] * x2[j]
        d3 += w3[j] * x3[j]
    z[0, 0], z[0, 1], z[0, 2], z[0, 3] = a0, a1, a2, a3
    z[1, 0], z[1, 1], z[1, 2], z[1, 3] = b0, b1, b2, b3
    z[2, 0], z[2, 1], z[2, 2], z[2, 3] = c0, c1, c2, c3
    z[3, 0], z[3, 1], z[3, 2], z[3, 3] = d0, d1, d2, d3


@helper
def add_gradient(x: FloatArray, items: IndexArray, columns: int, z: FloatArray, gradient: FloatArray) -> None:
    """Add these rows of x, each times its residual in z (pk, g), to as many columns of the gradient (pk, w)."""
    whole = len(gradient) // _PAIR * _PAIR
    for at in range(0, len(items), _ITEMS):
        for k in range(whole, len(gradient)):
            _add_eight(x, items[at : at + _ITEMS], columns, z[k, at : at + _ITEMS], gradient[k])
        for k in range(0, whole, _PAIR):
            _add_pair(
                x, items[at : at + _ITEMS], columns, z[k : k + _PAIR, at : at + _ITEMS], gradient[k : k + _PAIR]
            )  # fmt: skip


@helper
def _add_eight(x: FloatArray, at: IndexArray, columns: int, z: FloatArray, gradient: FloatArray) -> None:
    """Add eight rows of x, each times its residual (8,), to one direction's gradient (w,)."""
    x0, x1, x2, x3, x4, x5, x6, x7 = x[at[0]], x[at[1]], x[at[2]], x[at[3]], x[at[4]], x[at[5]], x[at[6]], x[at[7]]
    r0, r1, r2, r3, r4, r5, r6, r7 = z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7]
    for j in range(columns):
        first = r0 * x0[j] + r1 * x1[j] + r2 * x2[j] + r3 * x3[j]
        gradient[j] += first + (r4 * x4[j] + r5 * x5[j] + r6 * x6[j] + r7 * x7[j])


@helper
def _add_pair(x: FloatArray, at: IndexArray, columns: int, z: FloatArray, gradient: FloatArray) -> None:
    """Add eight rows of x, each times its residuals (2, 8), to the gradients of two directions (2, w)."""
    x0, x1, x2, x3, x4, x5, x6, x7 = x[at[0]], x[at[1]], x[at[2]], x[at[3]], x[at[4]], x[at[5]], x[at[6]], x[at[7]]
    g0, g1 = gradient[0], gradient[1]
    a0, a1, a2, a3, a4, a5, a6, a7 = z[0, 0], z[0, 1], z[0, 2], z[0, 3], z[0, 4], z[0, 5], z[0, 6], z[0, 7]
    b0, b1, b2, b3, b4, b5, b6, b7 = z[1, 0], z[1, 1], z[1, 2], z[1, 3], z[1, 4], z[1, 5], z[1, 6], z[1, 7]
    for j in range(columns):
        first = a0 * x0[j] + a1 * x1[j] + a2 * x2[j] + a3 * x3[j]
        second = b0 * x0[j] + b1 * x1[j] + b2 * x2[j] + b3 * x3[j]
        g0[j] += first + (a4 * x4[j] + a5 * x5[j] + a6 * x6[j] + a7 * x7[j])
        g1[j] += second + (b4 * x4[j] + b5 * x5[j] + b6 * x6[j] + b7 * x7[j])
