"""Compiled loops of the relatedness regressor: a softmax over five classes, trained on its squared error.

Letters: n pairs, w features padded to a multiple of 16 (one of them a constant 1, whose weight is the bias).

This module compiles when it is first imported: import it only where something is to be trained.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import types

from stsbench.encoders.seams import FloatArray
from stsbench.evaluators.probe.compilation import entry, exp, helper

IndexArray = npt.NDArray[np.int64]

CLASSES = 5
_PAIRS = 4
_ONE, _ZERO = np.float32(1), np.float32(0)


@helper
def _probabilities(x: FloatArray, weights: FloatArray, p: FloatArray) -> None:
    """Fill p (5,) with the softmax of the weights (5, w) times the features x (w,)."""
    w0, w1, w2, w3, w4 = weights[0], weights[1], weights[2], weights[3], weights[4]
    s0 = s1 = s2 = s3 = s4 = _ZERO
    for j in range(len(x)):
        s0 += w0[j] * x[j]
        s1 += w1[j] * x[j]
        s2 += w2[j] * x[j]
        s3 += w3[j] * x[j]
        s4 += w4[j] * x[j]
    top = max(max(max(s0, s1), max(s2, s3)), s4)
    p[0], p[1], p[2], p[3], p[4] = exp(s0 - top), exp(s1 - top), exp(s2 - top), exp(s3 - top), exp(s4 - top)
    total = p[0] + p[1] + p[2] + p[3] + p[4]
    for k in range(CLASSES):
        p[k] /= total


@helper
def _to_gradient(p: FloatArray, target: FloatArray, scale: np.float32) -> None:
    """Turn probabilities p (5,) into the gradient by their logits of half their squared error, times ``scale``.

    With e = p - target, that of class k is p[k] (e[k] - sum_j p[j] e[j]): the softmax's Jacobian times e.
    """
    mean = _ZERO
    for k in range(CLASSES):
        mean += p[k] * (p[k] - target[k])
    for k in range(CLASSES):
        p[k] *= scale * (p[k] - target[k] - mean)


@helper
def _add_gradient(features: FloatArray, rows: IndexArray, residuals: FloatArray, gradient: FloatArray) -> None:
    """Add some pairs, each times its residuals (m, 5), to the gradient (5, w), four at a time.

    ``residuals`` has rows of zeros up to a multiple of four.
    """
    last = len(rows) - 1
    for i in range(0, len(rows), _PAIRS):
        x0, x1 = features[rows[i]], features[rows[min(i + 1, last)]]
        x2, x3 = features[rows[min(i + 2, last)]], features[rows[min(i + 3, last)]]
        for k in range(CLASSES):
            g = gradient[k]
            r0, r1, r2, r3 = residuals[i, k], residuals[i + 1, k], residuals[i + 2, k], residuals[i + 3, k]
            for j in range(len(g)):
                g[j] += (r0 * x0[j] + r1 * x1[j]) + (r2 * x2[j] + r3 * x3[j])


@helper
def _adam(w: FloatArray, m: FloatArray, s: FloatArray, g: FloatArray, rate: float, step: int) -> None:
    """One step of torch's Adam on one class's weights (w,), in torch's order of operations."""
    size, root = np.float32(rate / (1 - 0.9**step)), np.float32(math.sqrt(1 - 0.999**step))
    for j in range(len(w)):
        m[j] += np.float32(0.1) * (g[j] - m[j])
        s[j] = s[j] * np.float32(0.999) + np.float32(0.001) * g[j] * g[j]
        w[j] -= size * m[j] / (math.sqrt(s[j]) / root + np.float32(1e-8))


_F2 = types.Array(types.float32, 2, "C")
_IDS = types.Array(types.int64, 1, "C")
_INT, _FLOAT = types.int64, types.float64


@entry(_INT(_F2, _F2, _IDS, _INT, _F2, _F2, _F2, _FLOAT, _INT, types.boolean))
def train(
    features: FloatArray, targets: FloatArray, order: IndexArray, batch: int,
    weights: FloatArray, first: FloatArray, second: FloatArray, rate: float, step: int, summed: bool,
) -> int:  # fmt: skip
    """Train over all pairs in batches; return the number of steps done so far.

    Args:
        features: (n, w).
        targets: soft labels, (n, 5).
        order: of the pairs, (n,).
        batch: pairs a step; a last, smaller batch is a step as well.
        weights: (5, w), changed in place, as are Adam's moments ``first`` and ``second``.
        first: moving mean of gradients.
        second: moving mean of squared gradients.
        rate: learning rate.
        step: steps done before.
        summed: sum the squared errors of a batch instead of taking their mean.
    """
    residuals, gradient = np.zeros((batch + _PAIRS, CLASSES), np.float32), np.zeros_like(weights)
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        scale = np.float32(2.0) if summed else np.float32(2.0 / (CLASSES * len(rows)))
        for i in range(len(rows)):
            _probabilities(features[rows[i]], weights, residuals[i])
            _to_gradient(residuals[i], targets[rows[i]], scale)
        residuals[len(rows) :] = _ZERO
        gradient[:] = _ZERO
        _add_gradient(features, rows, residuals, gradient)
        step += 1
        for k in range(CLASSES):
            _adam(weights[k], first[k], second[k], gradient[k], rate, step)
    return step


@entry(types.void(_F2, _F2, _F2))
def predict(features: FloatArray, weights: FloatArray, probabilities: FloatArray) -> None:
    """Fill ``probabilities`` (n, 5) with those that the weights (5, w) give the features (n, w)."""
    for i in range(len(features)):
        _probabilities(features[i], weights, probabilities[i])
