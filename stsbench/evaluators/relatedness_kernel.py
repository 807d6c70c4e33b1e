"""Compiled loops of the relatedness regressor: a softmax trained on the squared error of its probabilities.

Built from the probe's loops (features of a pair, logits, gradient, optimiser); only the loss is its own.
Letters: c classes, w features padded to a multiple of 16 (one of them a constant 1, whose weight is
the bias), d embedding size.

This module compiles when it is first imported: import it only where something is to be trained.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from stsbench.encoders.seams import FloatArray
from stsbench.evaluators.probe.compilation import entry, helper
from stsbench.evaluators.probe.kernels import ABS_MUL, _add_gradient, _logits, _make_features, _softmax, _update

IndexArray = npt.NDArray[np.int64]

_ITEMS = 8
_ONE, _ZERO = np.float32(1), np.float32(0)


@helper
def _squared_error_gradient(p: FloatArray, targets: FloatArray, rows: IndexArray, scale: np.float32) -> None:
    """Turn probabilities p (c, 8) into the gradient by their logits of half the squared error, times ``scale``.

    With e = p - target, that of class k is p[k] (e[k] - sum_j p[j] e[j]): the softmax's Jacobian times e.
    Lanes without an item become 0.
    """
    for r in range(len(rows)):
        target = targets[rows[r]]
        mean = _ZERO
        for k in range(p.shape[0]):
            mean += p[k, r] * (p[k, r] - target[k])
        for k in range(p.shape[0]):
            p[k, r] *= scale * (p[k, r] - target[k] - mean)
    for r in range(len(rows), _ITEMS):
        for k in range(p.shape[0]):
            p[k, r] = _ZERO


_F2 = types.Array(types.float32, 2, "C")
_ROWS = types.Array(types.float32, 2, "C", readonly=True)
_IDS = types.Array(types.int64, 1, "C")
_INT, _FLOAT = types.int64, types.float64


@entry(_INT(_ROWS, _ROWS, _ROWS, _IDS, _INT, _F2, _F2, _F2, _INT, _FLOAT, _FLOAT, _INT, types.boolean))
def train(
    u: FloatArray, v: FloatArray, targets: FloatArray, rows: IndexArray, batch: int,
    weights: FloatArray, first: FloatArray, second: FloatArray,
    code: int, rate: float, momentum: float, step: int, summed: bool,
) -> int:  # fmt: skip
    """Train over these pairs in batches; return the number of steps done so far.

    Args:
        u: embeddings of first sentences, (n, d).
        v: embeddings of second sentences, (n, d).
        targets: soft labels, (n, c).
        rows: of the pairs in training order.
        batch: pairs a step; a last, smaller batch is a step as well.
        weights: (c, w), changed in place, as are the optimiser's moments ``first`` and ``second``.
        first: moving mean of gradients (Adam), or their momentum (SGD).
        second: moving mean of squared gradients (Adam, RMSprop).
        code: optimiser, one of the probe's kernels.
        rate: learning rate.
        momentum: of SGD.
        step: steps done before.
        summed: sum the loss over a batch's probabilities instead of taking its mean.
    """
    c, w = weights.shape
    buffer, z = np.zeros((_ITEMS, w), np.float32), np.zeros((c, _ITEMS), np.float32)
    gradient = np.zeros((c, w), np.float32)
    for start in range(0, len(rows), batch):
        end = min(start + batch, len(rows))
        scale = np.float32(2.0) if summed else np.float32(2.0 / (c * (end - start)))
        gradient[:] = _ZERO
        for at in range(start, end, _ITEMS):
            some = rows[at : min(at + _ITEMS, end)]
            _make_features(u, v, ABS_MUL, some, buffer)
            _logits(buffer, weights, z)
            _softmax(z)
            _squared_error_gradient(z, targets, some, scale)
            _add_gradient(buffer, z, gradient)
        step += 1
        for k in range(c):
            _update(weights[k], first[k], second[k], gradient[k], _ONE, _ZERO, code, rate, momentum, step)
    return step


@entry(types.void(_ROWS, _ROWS, _F2, _F2))
def predict(u: FloatArray, v: FloatArray, weights: FloatArray, probabilities: FloatArray) -> None:
    """Fill ``probabilities`` (n, c) with those that the weights (c, w) give the pairs u, v (n, d)."""
    c, w = weights.shape
    buffer, z = np.zeros((_ITEMS, w), np.float32), np.zeros((c, _ITEMS), np.float32)
    for at in range(0, len(u), _ITEMS):
        some = np.arange(at, min(at + _ITEMS, len(u)))
        _make_features(u, v, ABS_MUL, some, buffer)
        _logits(buffer, weights, z)
        _softmax(z)
        for r in range(len(some)):
            for k in range(c):
                probabilities[some[r], k] = z[k, r]
