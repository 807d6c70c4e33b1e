"""Compiled loops of the probe and of the relatedness regressor: minibatch steps and predictions, several classifiers in lockstep.

They pay: SentEval's search over CR's 410 classifiers takes 243 s by torch's own loop, one after another, and 1.9 s by these, 128
times less, with the same epochs and accuracies (two cores of a Xeon; benchmarks/probe.py). A relatedness epoch of 5,749 pairs takes
55 ms by torch's ``Linear``, ``mse_loss`` and fused ``Adam``, and 8 ms by these: a step of 64 pairs is less work than calling them is.

Items are worked on in groups of sixteen, that stay in the first cache while every classifier takes its logits and adds
to its gradient. Single sentences are read where they lie, several rows with several directions at a time, so that each
number read is used more than once; BLAS wants rows side by side, and for products this small a call of it takes as long
as the product. Features of pairs, and embeddings of a size that is no multiple of sixteen, are made once in a buffer.
Letters: g items of a group, p classifiers, c classes, k directions, w features padded to a multiple of 16 (one of them
a constant 1, whose weight is the bias), d embedding size.

Two classes need one direction, the difference of their weights: the gradient of one class is minus
that of the other. Both classes keep their own weights, for weight decay acts on each.

This module compiles when it is first imported: import it only where something is to be trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit, types

from stsbench.encoders.base import FloatArray, IndexArray
from stsbench.evaluators.probe.items import LANES, Features

F = TypeVar("F", bound=Callable[..., Any])

ADAM, RMSPROP, SGD = 0, 1, 2
OPTIMISERS = {"adam": ADAM, "rmsprop": RMSPROP, "sgd": SGD}
U, ABS_MUL, CONCAT_MUL_ABS = 0, 1, 2
FEATURE_CODES: dict[Features, int] = {"u": U, "abs_mul": ABS_MUL, "concat_mul_abs": CONCAT_MUL_ABS}
GROUP = 16
_ITEMS, _TILE, _PAIR = 8, 4, 2
ONE, ZERO = np.float32(1), np.float32(0)
# Sums may be taken in another order, as every BLAS does; NaN and infinity keep their meaning.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": {"reassoc", "contract", "nsz"},
    "error_model": "numpy",
}


helper: Callable[[F], F] = njit(**_OPTIONS)
"""Makes a function that the entry points compile into themselves."""


def entry(signature: object) -> Callable[[F], F]:
    """A function compiled for this signature at once, or taken from numba's cache.

    The cache lies beside the source, else in the user's cache folder (or ``NUMBA_CACHE_DIR``); it is
    kept apart by processor and renewed when this file changes.
    """

    def compile_(plain: F) -> F:
        try:
            compiled: F = njit(signature, cache=True, **_OPTIONS)(plain)
        except RuntimeError:  # neither this folder nor the user's cache folder can be written
            compiled = njit(signature, **_OPTIONS)(plain)
        return compiled

    return compile_


@helper
def exp(x: np.float32) -> np.float32:
    """E to the x to one unit in the last place (Cephes' ``expf``): unlike a call, it runs in SIMD lanes."""
    x = min(max(x, np.float32(-87)), np.float32(88))
    n = np.rint(x * np.float32(1.44269504088896341))
    r = (x - n * np.float32(0.693359375)) + n * np.float32(2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * r + np.float32(1.3981999507e-3)
    y = y * r + np.float32(8.3334519073e-3)
    y = y * r + np.float32(4.1665795894e-2)
    y = y * r + np.float32(1.6666665459e-1)
    y = y * r + np.float32(5.0000001201e-1)
    y = y * r * r + r + ONE
    result: np.float32 = y * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(
        np.float32
    )
    return result


@helper
def logits(
    x: FloatArray, items: IndexArray, columns: int, directions: FloatArray, z: FloatArray
) -> None:
    """Fill z (pk, g) with these rows of x, as many columns of them, times the directions (pk, w); biases may be no column of x."""
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
    if columns < directions.shape[1]:
        for i in range(len(z)):
            for r in range(z.shape[1]):
                z[i, r] += directions[i, columns]


@helper
def _dot_eight(x: FloatArray, at: IndexArray, columns: int, w: FloatArray, z: FloatArray) -> None:
    """Fill z (8,) with eight rows of x times one direction (w,): each weight is loaded once."""
    x0, x1, x2, x3, x4, x5, x6, x7 = (
        x[at[0]],
        x[at[1]],
        x[at[2]],
        x[at[3]],
        x[at[4]],
        x[at[5]],
        x[at[6]],
        x[at[7]],
    )
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = ZERO
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
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = ZERO
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
def add_gradient(
    x: FloatArray, items: IndexArray, columns: int, z: FloatArray, gradient: FloatArray
) -> None:
    """Add these rows of x, each times its residual in z (pk, g), to as many columns of the gradient (pk, w), and to the biases."""
    whole = len(gradient) // _PAIR * _PAIR
    for at in range(0, len(items), _ITEMS):
        for k in range(whole, len(gradient)):
            _add_eight(x, items[at : at + _ITEMS], columns, z[k, at : at + _ITEMS], gradient[k])
        for k in range(0, whole, _PAIR):
            _add_pair(
                x, items[at : at + _ITEMS], columns, z[k : k + _PAIR, at : at + _ITEMS], gradient[k : k + _PAIR]
            )  # fmt: skip
    if columns < gradient.shape[1]:
        for i in range(len(z)):
            for r in range(z.shape[1]):
                gradient[i, columns] += z[i, r]


@helper
def _add_eight(
    x: FloatArray, at: IndexArray, columns: int, z: FloatArray, gradient: FloatArray
) -> None:
    """Add eight rows of x, each times its residual (8,), to one direction's gradient (w,)."""
    x0, x1, x2, x3, x4, x5, x6, x7 = (
        x[at[0]],
        x[at[1]],
        x[at[2]],
        x[at[3]],
        x[at[4]],
        x[at[5]],
        x[at[6]],
        x[at[7]],
    )
    r0, r1, r2, r3, r4, r5, r6, r7 = z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7]
    for j in range(columns):
        first = r0 * x0[j] + r1 * x1[j] + r2 * x2[j] + r3 * x3[j]
        gradient[j] += first + (r4 * x4[j] + r5 * x5[j] + r6 * x6[j] + r7 * x7[j])


@helper
def _add_pair(
    x: FloatArray, at: IndexArray, columns: int, z: FloatArray, gradient: FloatArray
) -> None:
    """Add eight rows of x, each times its residuals (2, 8), to the gradients of two directions (2, w)."""
    x0, x1, x2, x3, x4, x5, x6, x7 = (
        x[at[0]],
        x[at[1]],
        x[at[2]],
        x[at[3]],
        x[at[4]],
        x[at[5]],
        x[at[6]],
        x[at[7]],
    )
    g0, g1 = gradient[0], gradient[1]
    a0, a1, a2, a3, a4, a5, a6, a7 = (
        z[0, 0],
        z[0, 1],
        z[0, 2],
        z[0, 3],
        z[0, 4],
        z[0, 5],
        z[0, 6],
        z[0, 7],
    )
    b0, b1, b2, b3, b4, b5, b6, b7 = (
        z[1, 0],
        z[1, 1],
        z[1, 2],
        z[1, 3],
        z[1, 4],
        z[1, 5],
        z[1, 6],
        z[1, 7],
    )
    for j in range(columns):
        first = a0 * x0[j] + a1 * x1[j] + a2 * x2[j] + a3 * x3[j]
        second = b0 * x0[j] + b1 * x1[j] + b2 * x2[j] + b3 * x3[j]
        g0[j] += first + (a4 * x4[j] + a5 * x5[j] + a6 * x6[j] + a7 * x7[j])
        g1[j] += second + (b4 * x4[j] + b5 * x5[j] + b6 * x6[j] + b7 * x7[j])


@helper
def make_features(
    u: FloatArray, v: FloatArray, kind: int, rows: IndexArray, buffer: FloatArray
) -> None:
    """Write these items' features into the buffer (g, w); rows left over keep old ones."""
    d = u.shape[1]
    for r in range(len(rows)):
        a, b, out = u[rows[r]], v[rows[r]], buffer[r]
        if kind == U:
            for j in range(d):
                out[j] = a[j]
            out[d] = ONE
        elif kind == ABS_MUL:
            for j in range(d):
                out[j] = abs(a[j] - b[j])
                out[d + j] = a[j] * b[j]
            out[2 * d] = ONE
        elif kind == CONCAT_MUL_ABS:
            for j in range(d):
                out[j] = a[j]
                out[d + j] = b[j]
                out[2 * d + j] = a[j] * b[j]
                out[3 * d + j] = abs(a[j] - b[j])
            out[4 * d] = ONE


@helper
def row_sources(u: FloatArray, kind: int) -> bool:
    """Whether features are the embeddings (n, d) themselves, in whole lanes."""
    return kind == U and u.shape[1] % LANES == 0


@helper
def fetch(
    u: FloatArray, v: FloatArray, kind: int, rows: IndexArray, items: IndexArray, buffer: FloatArray
) -> None:
    """Make features in the buffer, or where they lie write the rows over the items (g,), the last over those left."""
    if row_sources(u, kind):
        for r in range(len(items)):
            items[r] = rows[min(r, len(rows) - 1)]
    else:
        make_features(u, v, kind, rows, buffer)


@helper
def _residuals(z: FloatArray, labels: IndexArray, k: int, scale: np.float32) -> None:
    """Turn logits z (pk, g) into residuals, probability minus truth, times ``scale``; 0 beyond the labels."""
    if k == 1:
        flat = z.reshape(z.size)
        for i in range(len(flat)):
            flat[i] = ONE / (ONE + exp(-flat[i]))
    else:
        for i in range(0, len(z), k):
            softmax(z[i : i + k])
    for i in range(len(z)):
        for r in range(len(labels)):
            truth = labels[r] if k == 1 else labels[r] == i % k
            z[i, r] = (z[i, r] - np.float32(truth)) * scale
        for r in range(len(labels), z.shape[1]):
            z[i, r] = ZERO


@helper
def _soft_residuals(z: FloatArray, targets: FloatArray, scale: np.float32) -> None:
    """Turn probabilities z (c, g) into the gradient by their logits of half their squared error, times ``scale``.

    With e = p - target, that of class k is p[k] (e[k] - sum_j p[j] e[j]): the softmax's Jacobian times e.
    What lies beyond the targets (g', c) becomes 0.
    """
    for r in range(len(targets)):
        target, mean = targets[r], ZERO
        for k in range(len(z)):
            mean += z[k, r] * (z[k, r] - target[k])
        for k in range(len(z)):
            z[k, r] *= scale * (z[k, r] - target[k] - mean)
    z[:, len(targets) :] = ZERO


@helper
def softmax(z: FloatArray) -> None:
    """Softmax over the first axis of z (c, g), in place."""
    top, total = z[0].copy(), np.zeros(z.shape[1], np.float32)
    for i in range(1, len(z)):
        for r in range(len(top)):
            top[r] = max(top[r], z[i, r])
    for i in range(len(z)):
        for r in range(len(top)):
            z[i, r] = exp(z[i, r] - top[r])
            total[r] += z[i, r]
    for i in range(len(z)):
        for r in range(len(top)):
            z[i, r] /= total[r]


@helper
def update(
    w: FloatArray, m: FloatArray, s: FloatArray, g: FloatArray, sign: np.float32, decay: np.float32,
    code: int, rate: float, momentum: float, step: int,
) -> None:  # fmt: skip
    """One step of torch's optimiser on one class's weights (w,), in torch's order of operations.

    Written out, for compiled loops cannot call torch.
    """
    if code == ADAM:
        size, root = np.float32(rate / (1 - 0.9**step)), np.float32(math.sqrt(1 - 0.999**step))
        for j in range(len(w)):
            gradient = sign * g[j] + decay * w[j]
            m[j] += np.float32(0.1) * (gradient - m[j])
            s[j] = s[j] * np.float32(0.999) + np.float32(0.001) * gradient * gradient
            w[j] -= size * m[j] / (math.sqrt(s[j]) / root + np.float32(1e-8))
    elif code == RMSPROP:
        for j in range(len(w)):
            gradient = sign * g[j] + decay * w[j]
            s[j] = s[j] * np.float32(0.99) + np.float32(0.01) * gradient * gradient
            w[j] -= np.float32(rate) * gradient / (math.sqrt(s[j]) + np.float32(1e-8))
    elif code == SGD:
        for j in range(len(w)):
            m[j] = np.float32(momentum) * m[j] + (sign * g[j] + decay * w[j])
            w[j] -= np.float32(rate) * m[j]


@helper
def _differences(weights: FloatArray) -> FloatArray:
    """The one direction (p, 1, w) of each classifier of two classes (p, 2, w)."""
    directions = np.empty((weights.shape[0], 1, weights.shape[2]), np.float32)
    for p in range(len(weights)):
        for j in range(weights.shape[2]):
            directions[p, 0, j] = weights[p, 1, j] - weights[p, 0, j]
    return directions


_F1, _F2, _F3 = (types.Array(types.float32, n, "C") for n in (1, 2, 3))
_IDS = types.Array(types.int64, 1, "C")
_INT, _FLOAT = types.int64, types.float64


@entry(
    _INT(
        _F2,
        _F2,
        _INT,
        _IDS,
        _IDS,
        _F2,
        _INT,
        _F3,
        _F3,
        _F3,
        _F1,
        _INT,
        _FLOAT,
        _FLOAT,
        _INT,
        types.boolean,
    )
)
def train_classifiers(
    u: FloatArray, v: FloatArray, kind: int, rows: IndexArray, labels: IndexArray, targets: FloatArray, batch: int,
    weights: FloatArray, first: FloatArray, second: FloatArray, decay: FloatArray,
    code: int, rate: float, momentum: float, step: int, summed: bool,
) -> int:  # fmt: skip
    """Train p classifiers over these items in batches; return the number of steps done so far.

    ``u`` and ``v`` (n, d) are embeddings of first (or only) and of second sentences, ``kind`` is that of features, ``rows`` are the
    items' in training order, as are ``labels``, of which the loss is the cross-entropy, and ``targets``: none, or soft labels (n, c)
    of one classifier, of which it is the squared error. A last, smaller batch is a step as well. Changed in place: ``weights``
    (p, c, w), ``first`` (the moving mean of gradients, or SGD's momentum) and ``second`` (that of squared gradients). ``decay`` (p,) is
    L2 added to the gradient; ``code``, ``rate`` and ``momentum`` are the optimiser's; ``step`` counts steps done before; ``summed``
    sums the loss over a batch instead of taking its mean.
    """
    p, c, w = weights.shape
    k = 1 if c == 2 else c
    buffer, z = np.zeros((GROUP, w), np.float32), np.zeros((p * k, GROUP), np.float32)
    items, x, columns = np.arange(GROUP), buffer, w
    if row_sources(u, kind):
        x, columns = u, u.shape[1]
    directions, gradient = (
        _differences(weights) if k == 1 else weights,
        np.zeros((p, k, w), np.float32),
    )
    for start in range(0, len(rows), batch):
        end = min(start + batch, len(rows))
        scale = (2.0 if len(targets) else 1.0) / (
            1 if summed else (end - start) * (c if len(targets) else 1)
        )
        gradient[:] = ZERO
        flat, due = directions.reshape(p * k, w), gradient.reshape(p * k, w)
        for at in range(start, end, GROUP):
            to = min(at + GROUP, end)
            fetch(u, v, kind, rows[at:to], items, buffer)
            logits(x, items, columns, flat, z)
            if len(targets):
                softmax(z)
                _soft_residuals(z, targets[at:to], np.float32(scale))
            else:
                _residuals(z, labels[at:to], k, np.float32(scale))
            add_gradient(x, items, columns, z, due)
        step += 1
        for i in range(p):
            for j in range(c):
                sign = np.float32(2 * j - 1) if k == 1 else ONE
                update(
                    weights[i, j], first[i, j], second[i, j], gradient[i, j if k > 1 else 0],
                    sign, decay[i], code, rate, momentum, step,
                )  # fmt: skip
        if k == 1:
            directions = _differences(weights)
    return step


@entry(types.void(_F2, _F2, _INT, _IDS, _F3, types.Array(types.int64, 2, "C")))
def predict(
    u: FloatArray,
    v: FloatArray,
    kind: int,
    rows: IndexArray,
    weights: FloatArray,
    classes: IndexArray,
) -> None:
    """Fill ``classes`` (p, n) with the class each classifier (p, c, w) gives these items; ties to the first."""
    p, c, w = weights.shape
    k = 1 if c == 2 else c
    buffer, z = np.zeros((GROUP, w), np.float32), np.zeros((p * k, GROUP), np.float32)
    items, x, columns = np.arange(GROUP), buffer, w
    if row_sources(u, kind):
        x, columns = u, u.shape[1]
    directions = _differences(weights) if k == 1 else weights
    for at in range(0, len(rows), GROUP):
        to = min(at + GROUP, len(rows))
        fetch(u, v, kind, rows[at:to], items, buffer)
        logits(x, items, columns, directions.reshape(p * k, w), z)
        for i in range(p):
            for r in range(to - at):
                if k == 1:
                    classes[i, at + r] = z[i, r] > 0
                else:
                    classes[i, at + r] = np.argmax(z[i * k : (i + 1) * k, r])
