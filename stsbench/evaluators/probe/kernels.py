"""Compiled loops of the probe and of the relatedness regressor.

They take minibatch steps and make predictions, for several classifiers in lockstep.

They pay: SentEval's search over CR's 410 classifiers takes 243 s by torch's own loop, one
classifier after another, and 1.9 s by these, 128 times less, with the same epochs and accuracies
(two cores of a Xeon; benchmarks/probe.py). A relatedness epoch of 5,749 pairs takes 55 ms by
torch's ``Linear``, ``mse_loss`` and fused ``Adam``, and 8 ms by these: a step of 64 pairs is less
work than calling them is.

Items are processed in groups of sixteen, which stay in the first cache while every classifier
computes its logits and adds to its gradient. Single sentences are read from the embeddings, several
rows with several directions at a time, so that each number read is used more than once; BLAS needs
contiguous rows, and for products this small a call of it takes as long as the product. Features of
pairs, and embeddings of a size that is no multiple of sixteen, are made once in a buffer.
Letters: g items of a group, p classifiers, c classes, k directions, w features padded to a multiple
of 16 (one of them a constant 1, whose weight is the bias), d embedding size, z logits or residuals.

Two classes need one direction, the difference of their weights: the gradient of one class is minus
that of the other. Both classes keep their own weights, because weight decay acts on each.

This module compiles when it is first imported: import it only if something is to be trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit

from stsbench.encoders.base import FloatArray, IndexArray
from stsbench.evaluators.probe.items import SIMD_LANES, Features

F = TypeVar("F", bound=Callable[..., Any])

ADAM, RMSPROP, SGD = 0, 1, 2
OPTIMISERS = {"adam": ADAM, "rmsprop": RMSPROP, "sgd": SGD}
U, ABS_MUL, CONCAT_MUL_ABS = 0, 1, 2
FEATURE_CODES: dict[Features, int] = {"u": U, "abs_mul": ABS_MUL, "concat_mul_abs": CONCAT_MUL_ABS}
ITEMS_AT_ONCE = 16
"""The number of items whose features are made in a buffer together."""
_ROWS_PER_CALL, _TILE_SIDE, _DIRECTIONS_PER_CALL = 8, 4, 2
ONE_F32, ZERO_F32 = np.float32(1), np.float32(0)
# Sums may be computed in another order, as in every BLAS; NaN and infinity keep their meaning.
_NUMBA_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": {"reassoc", "contract", "nsz"},
    "error_model": "numpy",
}


compiled_helper: Callable[[F], F] = njit(**_NUMBA_OPTIONS)
"""Marks a function that the entry points compile into themselves."""


def compiled_entry_point(signature: str) -> Callable[[F], F]:
    """Return a decorator that compiles a function with numba, or loads it from numba's cache.

    With a signature, numba compiles when the function is defined, not at its first call. The
    options (``_NUMBA_OPTIONS``) let the sums be reordered and the loops run without Python's global
    lock. Numba writes its cache beside the source, or else to the user's cache folder; there is one
    per processor, and it is renewed when this file changes.

    Args:
        signature: The types of the result and the parameters in numba's notation, where
            ``float32[:, ::1]`` is a contiguous matrix.
    """

    def compile_(function: F) -> F:
        try:
            compiled: F = njit(signature, cache=True, **_NUMBA_OPTIONS)(function)
        except RuntimeError:  # neither this folder nor the user's cache folder can be written
            compiled = njit(signature, **_NUMBA_OPTIONS)(function)
        return compiled

    return compile_


@compiled_helper
def exp(x: np.float32) -> np.float32:
    """Compute e to the x to one unit in the last place, by ``expf`` of the library Cephes.

    Unlike a call of a library, it can be compiled to SIMD instructions. With x = n log 2 + r, where
    n is a whole number, the result is 2^n e^r. Beyond -87 and 88, where float32 ends, x is clamped.
    """
    x = min(max(x, np.float32(-87)), np.float32(88))
    # n = x / log 2, rounded.
    n = np.rint(x * np.float32(1.44269504088896341))
    # r = x - n log 2; log 2 is subtracted in two parts, for precision.
    r = (x - n * np.float32(0.693359375)) + n * np.float32(2.12194440e-4)
    # y = e^r, by a polynomial with Cephes' coefficients.
    y = np.float32(1.9875691500e-4)
    y = y * r + np.float32(1.3981999507e-3)
    y = y * r + np.float32(8.3334519073e-3)
    y = y * r + np.float32(4.1665795894e-2)
    y = y * r + np.float32(1.6666665459e-1)
    y = y * r + np.float32(5.0000001201e-1)
    y = y * r * r + r + ONE_F32
    # A float32 holds its exponent plus 127 from bit 23 on: these are the bits of 2^n.
    power_bits = np.int32((np.int32(n) + np.int32(127)) << np.int32(23))
    result: np.float32 = y * power_bits.view(np.float32)
    return result


@compiled_helper
def fill_logits(
    x: FloatArray, rows: IndexArray, n_columns: int, directions: FloatArray, z: FloatArray
) -> None:
    """Compute the logits of g items: the dot products of their features with weights.

    A direction is a row of a classifier's weights: p classifiers have k directions each. For speed
    they are taken in tiles of four directions and four items (``_TILE_SIDE``). Directions that are
    left over are taken one by one with eight items (``_ROWS_PER_CALL``). So each number that is
    loaded serves several products. ``_dot_tile`` and ``_dot_eight`` overwrite their part of z.

    Args:
        x: Features or embeddings of items, (n, at least ``n_columns``).
        rows: The rows of x to use, one per item, (g,); g is a multiple of 8.
        n_columns: The number of columns of x to use. If it is less than w, x has no column of ones:
            the weight in column ``n_columns`` is the bias, and is added at the end.
        directions: The weights, (pk, w).
        z: The logits, (pk, g), overwritten.
    """
    # The number of directions that make full tiles.
    n_tiled = len(directions) // _TILE_SIDE * _TILE_SIDE
    for start in range(0, len(rows), _ROWS_PER_CALL):
        stop = start + _ROWS_PER_CALL
        for direction in range(n_tiled, len(directions)):
            _dot_eight(
                x, rows[start:stop], n_columns, directions[direction], z[direction, start:stop]
            )
        for tile_start in range(start, stop, _TILE_SIDE):
            tile_stop = tile_start + _TILE_SIDE
            for first in range(0, n_tiled, _TILE_SIDE):
                _dot_tile(
                    x, rows[tile_start:tile_stop], n_columns,
                    directions[first : first + _TILE_SIDE],
                    z[first : first + _TILE_SIDE, tile_start:tile_stop],
                )  # fmt: skip
    # Add the biases.
    if n_columns < directions.shape[1]:
        for direction in range(len(z)):
            for item in range(z.shape[1]):
                z[direction, item] += directions[direction, n_columns]


_EIGHT = tuple(range(8))


@compiled_helper
def _take_eight(values: FloatArray, positions: IndexArray | tuple[int, ...]) -> tuple[Any, ...]:
    """Return the numbers, or the rows, at eight positions of an array."""
    return (
        values[positions[0]],
        values[positions[1]],
        values[positions[2]],
        values[positions[3]],
        values[positions[4]],
        values[positions[5]],
        values[positions[6]],
        values[positions[7]],
    )


@compiled_helper
def _dot_eight(
    x: FloatArray, rows: IndexArray, n_columns: int, w: FloatArray, z: FloatArray
) -> None:
    """Compute the dot products of eight rows of x with one direction, a row of weights.

    The eight rows and sums (``x0`` to ``x7``, ``s0`` to ``s7``) are variables of their own, not
    arrays, so that the compiler keeps the sums in registers and loads each weight once.

    Args:
        x: Features or embeddings, (n, at least ``n_columns``).
        rows: The numbers of eight rows of x.
        n_columns: The number of columns to use.
        w: The weights of the direction, (at least ``n_columns``,).
        z: The eight products, (8,), overwritten.
    """
    x0, x1, x2, x3, x4, x5, x6, x7 = _take_eight(x, rows)
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = ZERO_F32
    for j in range(n_columns):
        s0 += w[j] * x0[j]
        s1 += w[j] * x1[j]
        s2 += w[j] * x2[j]
        s3 += w[j] * x3[j]
        s4 += w[j] * x4[j]
        s5 += w[j] * x5[j]
        s6 += w[j] * x6[j]
        s7 += w[j] * x7[j]
    z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7] = s0, s1, s2, s3, s4, s5, s6, s7


@compiled_helper
def _dot_tile(
    x: FloatArray, rows: IndexArray, n_columns: int, w: FloatArray, z: FloatArray
) -> None:
    """Compute the dot products of four rows of x with four directions, rows of weights.

    The sixteen sums are variables of their own, not an array, so that the compiler keeps them in
    registers and loads each number once for four products. The letter of a sum is its direction (a
    to d), the digit its row of x.

    Args:
        x: Features or embeddings, (n, at least ``n_columns``).
        rows: The numbers of four rows of x.
        n_columns: The number of columns to use.
        w: The weights of the four directions, (4, w).
        z: The products, (directions, rows) = (4, 4), overwritten.
    """
    x0, x1, x2, x3 = x[rows[0]], x[rows[1]], x[rows[2]], x[rows[3]]
    w0, w1, w2, w3 = w[0], w[1], w[2], w[3]
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = ZERO_F32
    for j in range(n_columns):
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


@compiled_helper
def add_gradient(
    x: FloatArray, rows: IndexArray, n_columns: int, z: FloatArray, gradient: FloatArray
) -> None:
    """Add what g items contribute to the gradient of the loss by the weights.

    This is the matrix product of z (pk, g) and x[rows] (g, w). A direction is a row of a
    classifier's weights: p classifiers have k directions each. For speed, two directions are taken
    at a time (``_DIRECTIONS_PER_CALL``), with eight items (``_ROWS_PER_CALL``).

    Args:
        x: Features or embeddings of items, (n, at least ``n_columns``).
        rows: The rows of x to use, one per item, (g,); g is a multiple of 8.
        n_columns: The number of columns of x to use. If it is less than w, x has no column of ones:
            the residuals themselves are added to column ``n_columns``, the gradient of the biases.
        z: The residuals, the derivatives of the loss by the logits, (pk, g).
        gradient: The gradients of the directions, (pk, w), added to in place.
    """
    # The number of directions that make pairs: all, or all but the last.
    n_paired = len(gradient) // _DIRECTIONS_PER_CALL * _DIRECTIONS_PER_CALL
    for start in range(0, len(rows), _ROWS_PER_CALL):
        stop = start + _ROWS_PER_CALL
        for direction in range(n_paired, len(gradient)):
            _add_eight(
                x, rows[start:stop], n_columns, z[direction, start:stop], gradient[direction]
            )
        for first in range(0, n_paired, _DIRECTIONS_PER_CALL):
            _add_pair(
                x, rows[start:stop], n_columns, z[first : first + _DIRECTIONS_PER_CALL, start:stop],
                gradient[first : first + _DIRECTIONS_PER_CALL],
            )  # fmt: skip
    # The gradient of the biases.
    if n_columns < gradient.shape[1]:
        for direction in range(len(z)):
            for item in range(z.shape[1]):
                gradient[direction, n_columns] += z[direction, item]


@compiled_helper
def _add_eight(
    x: FloatArray, rows: IndexArray, n_columns: int, z: FloatArray, gradient: FloatArray
) -> None:
    """Add eight rows of x, each times its residual, to the gradient of one row of weights.

    A residual is the derivative of the loss by an item's logit. All are variables of their own
    (``x0``, ``r0`` and so on), not arrays, so that the compiler keeps them in registers.

    Args:
        x: Features or embeddings, (n, at least ``n_columns``).
        rows: The numbers of eight rows of x.
        n_columns: The number of columns to use.
        z: The residual of each row, (8,).
        gradient: The gradient, (at least ``n_columns``,), changed in place.
    """
    x0, x1, x2, x3, x4, x5, x6, x7 = _take_eight(x, rows)
    r0, r1, r2, r3, r4, r5, r6, r7 = _take_eight(z, _EIGHT)
    for j in range(n_columns):
        # Two sums of four, not one of eight: all kernels add in this order, because it decides the
        # last digits, and scores must not depend on which kernel computed a gradient.
        first_half = r0 * x0[j] + r1 * x1[j] + r2 * x2[j] + r3 * x3[j]
        gradient[j] += first_half + (r4 * x4[j] + r5 * x5[j] + r6 * x6[j] + r7 * x7[j])


@compiled_helper
def _add_pair(
    x: FloatArray, rows: IndexArray, n_columns: int, z: FloatArray, gradient: FloatArray
) -> None:
    """Add eight rows of x, each times its residuals, to the gradients of two rows of weights.

    A residual is the derivative of the loss by an item's logit. All are variables of their own, not
    arrays, so that the compiler keeps them in registers: ``a0`` to ``a7`` are the residuals for the
    first row of weights, ``b0`` to ``b7`` for the second, ``g0`` and ``g1`` their gradients.

    Args:
        x: Features or embeddings, (n, at least ``n_columns``).
        rows: The numbers of eight rows of x.
        n_columns: The number of columns to use.
        z: The residuals of each row for both directions, (2, 8).
        gradient: The gradients, (2, w), changed in place.
    """
    x0, x1, x2, x3, x4, x5, x6, x7 = _take_eight(x, rows)
    g0, g1 = gradient[0], gradient[1]
    a0, a1, a2, a3, a4, a5, a6, a7 = _take_eight(z[0], _EIGHT)
    b0, b1, b2, b3, b4, b5, b6, b7 = _take_eight(z[1], _EIGHT)
    for j in range(n_columns):
        # Each sum in two halves of four, as in ``_add_eight``: the order decides the last digits.
        a_first_half = a0 * x0[j] + a1 * x1[j] + a2 * x2[j] + a3 * x3[j]
        b_first_half = b0 * x0[j] + b1 * x1[j] + b2 * x2[j] + b3 * x3[j]
        g0[j] += a_first_half + (a4 * x4[j] + a5 * x5[j] + a6 * x6[j] + a7 * x7[j])
        g1[j] += b_first_half + (b4 * x4[j] + b5 * x5[j] + b6 * x6[j] + b7 * x7[j])


@compiled_helper
def make_features(
    u: FloatArray, v: FloatArray, kind: int, rows: IndexArray, buffer: FloatArray
) -> None:
    """Write the features of some items into a buffer, a row per item.

    Behind the features comes a 1, whose weight is the bias. Further columns stay 0, and rows beyond
    the items stay unchanged.

    Args:
        u: Embeddings of first (or only) sentences, (n, d).
        v: Embeddings of second sentences, (n, d).
        kind: The kind of features: ``U`` is u; ``ABS_MUL`` is ``[|u - v|, u * v]``;
            ``CONCAT_MUL_ABS`` is ``[u, v, u * v, |u - v|]``.
        rows: The rows of the items in u and v, at most g.
        buffer: The features, (g, w), overwritten.
    """
    d = u.shape[1]
    for item in range(len(rows)):
        first, second, out = u[rows[item]], v[rows[item]], buffer[item]
        if kind == U:
            for j in range(d):
                out[j] = first[j]
            out[d] = ONE_F32
        elif kind == ABS_MUL:
            for j in range(d):
                out[j] = abs(first[j] - second[j])
                out[d + j] = first[j] * second[j]
            out[2 * d] = ONE_F32
        elif kind == CONCAT_MUL_ABS:
            for j in range(d):
                out[j] = first[j]
                out[d + j] = second[j]
                out[2 * d + j] = first[j] * second[j]
                out[3 * d + j] = abs(first[j] - second[j])
            out[4 * d] = ONE_F32


@compiled_helper
def are_features_embeddings(u: FloatArray, kind: int) -> bool:
    """Return whether features are the embeddings (n, d) themselves and need no copy into a buffer.

    They are those of single sentences whose size fills whole SIMD lanes.
    """
    return kind == U and u.shape[1] % SIMD_LANES == 0


@compiled_helper
def prepare_inputs(
    u: FloatArray,
    v: FloatArray,
    kind: int,
    rows: IndexArray,
    group_rows: IndexArray,
    buffer: FloatArray,
) -> None:
    """Prepare the features of a group of at most g items, which are processed at once.

    One of the last two arguments is overwritten. If the features are the embeddings themselves
    (kind ``U``, and d a multiple of 16), no copy is made: the rows to read in ``u`` are written to
    ``group_rows``. If there are fewer than g items, the last one is repeated, and what is computed
    for the repetitions is ignored. Otherwise features are computed into ``buffer``.

    Args:
        u: Embeddings of first (or only) sentences, (n, d).
        v: Embeddings of second sentences, (n, d).
        kind: The kind of features, a number: one of ``FEATURE_CODES``.
        rows: The rows of the items in u and v, at most g.
        group_rows: The rows to read, (g,).
        buffer: The features, (g, w).
    """
    if are_features_embeddings(u, kind):
        for item in range(len(group_rows)):
            group_rows[item] = rows[min(item, len(rows) - 1)]
    else:
        make_features(u, v, kind, rows, buffer)


@compiled_helper
def _residuals(z: FloatArray, labels: IndexArray, k: int, scale: np.float32) -> None:
    """Turn logits into residuals in place: (probability - truth) * scale.

    These are the derivatives of the cross-entropy by the logits.

    Args:
        z: The logits, (p * k, g): k rows for each of p classifiers, and g items processed at once;
            overwritten.
        labels: The labels of the items, at most g; further columns of z become 0.
        k: The rows of logits of a classifier: 1 for two classes, whose sigmoid is the probability
            of class 1, otherwise the number of classes, under a softmax.
        scale: The weight of an item in the loss.
    """
    if k == 1:
        flat_z = z.reshape(z.size)
        for position in range(len(flat_z)):
            flat_z[position] = ONE_F32 / (ONE_F32 + exp(-flat_z[position]))
    else:
        for first_row in range(0, len(z), k):
            softmax(z[first_row : first_row + k])
    # Now z has probabilities.
    for row in range(len(z)):
        for item in range(len(labels)):
            # A row of z is of class ``row % k``; truth is 1 if that is the item's class.
            truth = labels[item] if k == 1 else labels[item] == row % k
            z[row, item] = (z[row, item] - np.float32(truth)) * scale
        for item in range(len(labels), z.shape[1]):
            z[row, item] = ZERO_F32


@compiled_helper
def _soft_residuals(z: FloatArray, targets: FloatArray, scale: np.float32) -> None:
    """Replace probabilities by the derivatives of a squared error by the logits, in place.

    The error is half the sum of (probability - target)^2 over classes. With e = p - target, its
    derivative by the logit of class k is p[k] (e[k] - sum_j p[j] e[j]), because the probabilities p
    are a softmax of the logits. It is multiplied by ``scale``.

    Args:
        z: The probabilities of one classifier, (classes, g), for g items processed at once;
            overwritten.
        targets: The soft labels of the items, (at most g, classes); further columns of z become 0.
        scale: The weight of an item in the loss; it holds the factor 2 of the squared error.
    """
    for item in range(len(targets)):
        target = targets[item]
        mean = ZERO_F32  # sum_j p[j] e[j]
        for k in range(len(z)):
            mean += z[k, item] * (z[k, item] - target[k])
        for k in range(len(z)):
            z[k, item] *= scale * (z[k, item] - target[k] - mean)
    z[:, len(targets) :] = ZERO_F32


@compiled_helper
def softmax(z: FloatArray) -> None:
    """Replace logits by probabilities, in place: the softmax over classes.

    The maximum is subtracted first, so that no exponential overflows.

    Args:
        z: The logits of c classes and g items, (c, g).
    """
    # For each item the highest logit, and the sum of the exponentials.
    maximum = z[0].copy()
    total = np.zeros(z.shape[1], np.float32)
    for class_index in range(1, len(z)):
        for item in range(len(maximum)):
            maximum[item] = max(maximum[item], z[class_index, item])
    for class_index in range(len(z)):
        for item in range(len(maximum)):
            z[class_index, item] = exp(z[class_index, item] - maximum[item])
            total[item] += z[class_index, item]
    for class_index in range(len(z)):
        for item in range(len(maximum)):
            z[class_index, item] /= total[item]


@compiled_helper
def update_weights(
    w: FloatArray, m: FloatArray, s: FloatArray, g: FloatArray, sign: np.float32, decay: np.float32,
    optimiser: int, rate: float, momentum: float, step: int,
) -> None:  # fmt: skip
    """Take one step of an optimiser on the weights of one class, in place.

    The operations are those of torch's optimisers in their order, written out because compiled
    loops cannot call torch. The constants are torch's defaults: betas 0.9 and 0.999 of Adam, alpha
    0.99 of RMSprop, and 1e-8 added to the root.

    Args:
        w: The weights, (w,).
        m: The moving means of gradients, or SGD's momentum, (w,).
        s: The moving means of squared gradients, (w,); not used by SGD.
        g: The gradient of the loss, (w,), without weight decay.
        sign: The factor of the gradient: -1 for the first of two classes, otherwise 1. For two
            classes there is one gradient, of the difference of their weights.
        decay: The weight decay, L2 added to the gradient.
        optimiser: ``ADAM``, ``RMSPROP`` or ``SGD``.
        rate: The learning rate.
        momentum: SGD's momentum.
        step: The number of this step, from 1; Adam's correction of the zero start needs it.
    """
    if optimiser == ADAM:
        # Both moving means start at 0; these factors correct that for m and s.
        step_size = np.float32(rate / (1 - 0.9**step))
        root = np.float32(math.sqrt(1 - 0.999**step))
        for j in range(len(w)):
            gradient = sign * g[j] + decay * w[j]
            m[j] += np.float32(0.1) * (gradient - m[j])
            s[j] = s[j] * np.float32(0.999) + np.float32(0.001) * gradient * gradient
            w[j] -= step_size * m[j] / (math.sqrt(s[j]) / root + np.float32(1e-8))
    elif optimiser == RMSPROP:
        for j in range(len(w)):
            gradient = sign * g[j] + decay * w[j]
            s[j] = s[j] * np.float32(0.99) + np.float32(0.01) * gradient * gradient
            w[j] -= np.float32(rate) * gradient / (math.sqrt(s[j]) + np.float32(1e-8))
    elif optimiser == SGD:
        for j in range(len(w)):
            m[j] = np.float32(momentum) * m[j] + (sign * g[j] + decay * w[j])
            w[j] -= np.float32(rate) * m[j]


@compiled_helper
def _differences(weights: FloatArray) -> FloatArray:
    """Return for classifiers of two classes the weights of class 1 minus those of class 0.

    Features times this difference are one logit per item, which is positive for class 1.

    Args:
        weights: The weights of p classifiers, (p, 2, w).

    Returns:
        The differences, (p, 1, w).
    """
    directions = np.empty((weights.shape[0], 1, weights.shape[2]), np.float32)
    for classifier in range(len(weights)):
        for j in range(weights.shape[2]):
            directions[classifier, 0, j] = weights[classifier, 1, j] - weights[classifier, 0, j]
    return directions


@compiled_entry_point(
    "int64(float32[:, ::1], float32[:, ::1], int64, int64[::1], int64[::1], float32[:, ::1], int64,"
    " float32[:, :, ::1], float32[:, :, ::1], float32[:, :, ::1], float32[::1],"
    " int64, float64, float64, int64, boolean)"
)
def train_classifiers(
    u: FloatArray, v: FloatArray, kind: int, rows: IndexArray, labels: IndexArray,
    targets: FloatArray, batch: int,
    weights: FloatArray, gradient_means: FloatArray, squared_gradient_means: FloatArray,
    decay: FloatArray,
    optimiser: int, rate: float, momentum: float, step: int, summed: bool,
) -> int:  # fmt: skip
    """Train p classifiers over some items in batches; a last, smaller batch is a step as well.

    All classifiers take the same batches. The items of a batch are processed ``ITEMS_AT_ONCE``.

    Args:
        u: Embeddings (n, d) of first (or only) sentences.
        v: Embeddings (n, d) of second sentences.
        kind: The kind of features, one of ``FEATURE_CODES``.
        rows: The items' rows in u and v, in training order, (items,).
        labels: Their labels, (items,); the loss is the cross-entropy. Not read with soft labels.
        targets: Empty, or soft labels (items, c) of one classifier; then the loss is the squared
            error of the probabilities.
        batch: The number of items of a batch.
        weights: The weights (p, c, w), changed in place; w includes the bias and padding.
        gradient_means: The moving means of gradients, or SGD's momentum, (p, c, w), changed in
            place.
        squared_gradient_means: The moving means of squared gradients, (p, c, w), changed in place.
        decay: L2 added to the gradient of each classifier, (p,).
        optimiser: One of ``OPTIMISERS``.
        rate: The learning rate.
        momentum: SGD's momentum.
        step: The number of steps before.
        summed: Sum the loss over a batch instead of taking its mean.

    Returns:
        The number of steps so far.
    """
    p, c, w = weights.shape
    # Two classes need one direction, the difference of their weights.
    k = 1 if c == 2 else c
    buffer, z = (
        np.zeros((ITEMS_AT_ONCE, w), np.float32),
        np.zeros((p * k, ITEMS_AT_ONCE), np.float32),
    )
    # The inputs x are the features in the buffer, of which all rows are read; or the embeddings
    # themselves, of which the rows are those of the items.
    group_rows, x, n_columns = np.arange(ITEMS_AT_ONCE), buffer, w
    if are_features_embeddings(u, kind):
        x, n_columns = u, u.shape[1]
    directions, gradient = (
        _differences(weights) if k == 1 else weights,
        np.zeros((p, k, w), np.float32),
    )
    for start in range(0, len(rows), batch):
        end = min(start + batch, len(rows))
        # An item's share of the loss. The squared error has the factor 2 of its derivative, and its
        # mean is over items and classes.
        scale = (2.0 if len(targets) else 1.0) / (
            1 if summed else (end - start) * (c if len(targets) else 1)
        )
        gradient[:] = ZERO_F32
        flat_directions = directions.reshape(p * k, w)
        flat_gradient = gradient.reshape(p * k, w)
        for group_start in range(start, end, ITEMS_AT_ONCE):
            group_end = min(group_start + ITEMS_AT_ONCE, end)
            prepare_inputs(u, v, kind, rows[group_start:group_end], group_rows, buffer)
            fill_logits(x, group_rows, n_columns, flat_directions, z)
            if len(targets):
                softmax(z)
                _soft_residuals(z, targets[group_start:group_end], np.float32(scale))
            else:
                _residuals(z, labels[group_start:group_end], k, np.float32(scale))
            add_gradient(x, group_rows, n_columns, z, flat_gradient)
        step += 1
        for classifier in range(p):
            for class_index in range(c):
                # The one direction's gradient is that of class 1; that of class 0 is minus it.
                sign = np.float32(2 * class_index - 1) if k == 1 else ONE_F32
                update_weights(
                    weights[classifier, class_index],
                    gradient_means[classifier, class_index],
                    squared_gradient_means[classifier, class_index],
                    gradient[classifier, class_index if k > 1 else 0],
                    sign, decay[classifier], optimiser, rate, momentum, step,
                )  # fmt: skip
        if k == 1:
            directions = _differences(weights)
    return step


@compiled_entry_point(
    "void(float32[:, ::1], float32[:, ::1], int64, int64[::1], float32[:, :, ::1], int64[:, ::1])"
)
def predict(
    u: FloatArray,
    v: FloatArray,
    kind: int,
    rows: IndexArray,
    weights: FloatArray,
    classes: IndexArray,
) -> None:
    """Fill ``classes`` with the class that each classifier predicts for each item.

    Of classes with equal logits the first one counts. Items are processed in groups of
    ``ITEMS_AT_ONCE``.

    Args:
        u: Embeddings (n, d) of first (or only) sentences.
        v: Embeddings (n, d) of second sentences.
        kind: The kind of features, one of ``FEATURE_CODES``.
        rows: The items' rows in u and v, (items,).
        weights: The weights of p classifiers, (p, c, w); w includes the bias and padding.
        classes: The predicted classes, (p, items), overwritten.
    """
    p, c, w = weights.shape
    # Two classes need one direction, the difference of their weights.
    k = 1 if c == 2 else c
    buffer = np.zeros((ITEMS_AT_ONCE, w), np.float32)
    logits = np.zeros((p * k, ITEMS_AT_ONCE), np.float32)
    # x holds the features of a group, in rows ``group_rows``: all rows of the buffer, or, for kind
    # ``U`` with d a multiple of 16, the items' rows of the embeddings themselves.
    group_rows, x, n_columns = np.arange(ITEMS_AT_ONCE), buffer, w
    if are_features_embeddings(u, kind):
        x, n_columns = u, u.shape[1]
    directions = _differences(weights) if k == 1 else weights
    for group_start in range(0, len(rows), ITEMS_AT_ONCE):
        group_end = min(group_start + ITEMS_AT_ONCE, len(rows))
        prepare_inputs(u, v, kind, rows[group_start:group_end], group_rows, buffer)
        fill_logits(x, group_rows, n_columns, directions.reshape(p * k, w), logits)
        for classifier in range(p):
            # A last group may be smaller; what is computed beyond it is ignored.
            for item in range(group_end - group_start):
                if k == 1:
                    classes[classifier, group_start + item] = logits[classifier, item] > 0
                else:
                    class_logits = logits[classifier * k : (classifier + 1) * k, item]
                    classes[classifier, group_start + item] = np.argmax(class_logits)
