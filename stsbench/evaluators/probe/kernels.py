"""Compiled loops of the linear probe: minibatch steps and predictions, several classifiers in lockstep.

Items are worked on in groups of sixteen, that stay in the first cache while every classifier takes its
logits and adds to its gradient. Single sentences are read where they lie; features of pairs, and embeddings of a
size that is no multiple of sixteen, are made once in a buffer. Letters: g items of a group, p classifiers,
c classes, k directions, w features padded to a multiple of 16 (one of them a constant 1, whose weight is the
bias), d embedding size.

Two classes need one direction, the difference of their weights: the gradient of one class is minus
that of the other. Both classes keep their own weights, for weight decay acts on each.

This module compiles when it is first imported: import it only where something is to be trained.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from stsbench.encoders.seams import FloatArray, IndexArray
from stsbench.evaluators.probe.compilation import entry, exp, helper, read_only
from stsbench.evaluators.probe.products import add_gradient, logits

LANES = 16
ADAM, RMSPROP, SGD = 0, 1, 2
U, ABS_MUL, CONCAT_MUL_ABS = 0, 1, 2
GROUP = 16
ONE, ZERO = np.float32(1), np.float32(0)


@helper
def make_features(u: FloatArray, v: FloatArray, kind: int, rows: IndexArray, buffer: FloatArray) -> None:
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
def take_logits(x: FloatArray, items: IndexArray, columns: int, directions: FloatArray, z: FloatArray) -> None:
    """Fill z (pk, g) as :func:`logits`, with the biases where they are no column of x."""
    logits(x, items, columns, directions, z)
    if columns < directions.shape[1]:
        for i in range(len(z)):
            for r in range(z.shape[1]):
                z[i, r] += directions[i, columns]


@helper
def learn(
    x: FloatArray, items: IndexArray, columns: int, directions: FloatArray, labels: IndexArray, k: int,
    scale: np.float32, z: FloatArray, gradient: FloatArray,
) -> None:  # fmt: skip
    """Add what these items (g,) teach to the gradient (pk, w); those beyond the labels teach nothing."""
    take_logits(x, items, columns, directions, z)
    _residuals(z, labels, k, scale)
    add_gradient(x, items, columns, z, gradient)
    if columns < directions.shape[1]:
        for i in range(len(z)):
            for r in range(z.shape[1]):
                gradient[i, columns] += z[i, r]


@helper
def where_they_lie(u: FloatArray, kind: int) -> bool:
    """Whether features are the embeddings (n, d) themselves, in whole lanes."""
    return kind == U and u.shape[1] % LANES == 0


@helper
def repeat_last(rows: IndexArray, items: IndexArray) -> None:
    """Write the rows over the first of the items (g,), and the last row over those left."""
    for r in range(len(items)):
        items[r] = rows[min(r, len(rows) - 1)]


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


_F1 = types.Array(types.float32, 1, "C")
_F3 = types.Array(types.float32, 3, "C")
_ROWS = types.Array(types.float32, 2, "C", readonly=True)
_IDS = types.Array(types.int64, 1, "C")
_INT, _FLOAT = types.int64, types.float64


@entry(_INT(_ROWS, _ROWS, _INT, _IDS, _IDS, _INT, _F3, _F3, _F3, _F1, _INT, _FLOAT, _FLOAT, _INT, types.boolean))
def train_classifiers(
    u: FloatArray, v: FloatArray, kind: int, rows: IndexArray, labels: IndexArray, batch: int,
    weights: FloatArray, first: FloatArray, second: FloatArray, decay: FloatArray,
    code: int, rate: float, momentum: float, step: int, summed: bool,
) -> int:  # fmt: skip
    """Train p classifiers over these items in batches; return the number of steps done so far.

    Args:
        u: embeddings of first (or only) sentences, (n, d).
        v: embeddings of second sentences, (n, d).
        kind: of features: U, ABS_MUL or CONCAT_MUL_ABS.
        rows: of the items in training order.
        labels: of the items in training order.
        batch: items a step; a last, smaller batch is a step as well.
        weights: (p, c, w), changed in place, as are the optimiser's moments ``first`` and ``second``.
        first: moving mean of gradients (Adam), or their momentum (SGD).
        second: moving mean of squared gradients (Adam, RMSprop).
        decay: L2 added to the gradient, (p,).
        code: optimiser: ADAM, RMSPROP or SGD.
        rate: learning rate.
        momentum: of SGD.
        step: steps done before.
        summed: sum the loss over a batch instead of taking its mean.
    """
    p, c, w = weights.shape
    k = 1 if c == 2 else c
    buffer, z = np.zeros((GROUP, w), np.float32), np.zeros((p * k, GROUP), np.float32)
    items, x, columns = np.arange(GROUP), read_only(buffer), w
    if where_they_lie(u, kind):
        x, columns = u, u.shape[1]
    directions, gradient = _differences(weights) if k == 1 else weights, np.zeros((p, k, w), np.float32)
    for start in range(0, len(rows), batch):
        end = min(start + batch, len(rows))
        scale = ONE if summed else np.float32(1.0 / (end - start))
        gradient[:] = ZERO
        flat, due = directions.reshape(p * k, w), gradient.reshape(p * k, w)
        for at in range(start, end, GROUP):
            to = min(at + GROUP, end)
            if where_they_lie(u, kind):
                repeat_last(rows[at:to], items)
            else:
                make_features(u, v, kind, rows[at:to], buffer)
            learn(x, items, columns, flat, labels[at:to], k, scale, z, due)
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


@entry(types.void(_ROWS, _ROWS, _INT, _IDS, _F3, types.Array(types.int64, 2, "C")))
def predict(
    u: FloatArray, v: FloatArray, kind: int, rows: IndexArray, weights: FloatArray, classes: IndexArray
) -> None:
    """Fill ``classes`` (p, n) with the class each classifier (p, c, w) gives these items; ties to the first."""
    p, c, w = weights.shape
    k = 1 if c == 2 else c
    buffer, z = np.zeros((GROUP, w), np.float32), np.zeros((p * k, GROUP), np.float32)
    items, x, columns = np.arange(GROUP), read_only(buffer), w
    if where_they_lie(u, kind):
        x, columns = u, u.shape[1]
    directions = _differences(weights) if k == 1 else weights
    for at in range(0, len(rows), GROUP):
        to = min(at + GROUP, len(rows))
        if where_they_lie(u, kind):
            repeat_last(rows[at:to], items)
        else:
            make_features(u, v, kind, rows[at:to], buffer)
        take_logits(x, items, columns, directions.reshape(p * k, w), z)
        for i in range(p):
            for r in range(to - at):
                if k == 1:
                    classes[i, at + r] = z[i, r] > 0
                else:
                    classes[i, at + r] = np.argmax(z[i * k : (i + 1) * k, r])
