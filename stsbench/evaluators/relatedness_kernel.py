"""The compiled loop of the relatedness regressor: a softmax over five classes, trained on its squared error.

It is put together from the probe's compiled steps; only the gradient of the loss is its own. It is not
torch's ``Linear``, ``mse_loss`` and fused ``Adam``, because a step of 64 pairs is less work than calling
them is (measured on an AMD EPYC, one thread, 5,749 pairs, d = 384: 55 ms an epoch against 8 ms here).

This module compiles when it is first imported: import it only where something is to be trained.
"""

from __future__ import annotations

import numpy as np
from numba import types

from stsbench.encoders.seams import FloatArray, IndexArray
from stsbench.evaluators.probe.compilation import entry, helper
from stsbench.evaluators.probe.kernels import ABS_MUL, ADAM, GROUP, ONE, ZERO, make_features, softmax, update
from stsbench.evaluators.probe.products import add_gradient, logits


@helper
def _to_gradient(z: FloatArray, targets: FloatArray, rows: IndexArray, scale: np.float32) -> None:
    """Turn probabilities z (5, g) into the gradient by their logits of half their squared error, times ``scale``.

    With e = p - target, that of class k is p[k] (e[k] - sum_j p[j] e[j]): the softmax's Jacobian times e.
    What lies beyond the rows becomes 0.
    """
    for r in range(len(rows)):
        target, mean = targets[rows[r]], ZERO
        for k in range(len(z)):
            mean += z[k, r] * (z[k, r] - target[k])
        for k in range(len(z)):
            z[k, r] *= scale * (z[k, r] - target[k] - mean)
    z[:, len(rows) :] = ZERO


_ROWS = types.Array(types.float32, 2, "C", readonly=True)
_F2 = types.Array(types.float32, 2, "C")
_IDS = types.Array(types.int64, 1, "C")
_INT, _FLOAT = types.int64, types.float64


@entry(_INT(_ROWS, _ROWS, _F2, _IDS, _INT, _F2, _F2, _F2, _FLOAT, _INT, types.boolean))
def train_epoch(
    u: FloatArray, v: FloatArray, targets: FloatArray, order: IndexArray, batch: int,
    weights: FloatArray, first: FloatArray, second: FloatArray, rate: float, step: int, summed: bool,
) -> int:  # fmt: skip
    """Train over all pairs in batches; return the number of steps done so far.

    Args:
        u: embeddings of first sentences, (n, d).
        v: embeddings of second sentences, (n, d).
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
    c, w = weights.shape
    buffer, z, gradient = np.zeros((GROUP, w), np.float32), np.zeros((c, GROUP), np.float32), np.zeros_like(weights)
    places = np.arange(GROUP)
    for start in range(0, len(order), batch):
        end = min(start + batch, len(order))
        scale = np.float32(2.0) if summed else np.float32(2.0 / (c * (end - start)))
        gradient[:] = ZERO
        for at in range(start, end, GROUP):
            rows = order[at : min(at + GROUP, end)]
            make_features(u, v, ABS_MUL, rows, buffer)
            logits(buffer, places, w, weights, z)
            softmax(z)
            _to_gradient(z, targets, rows, scale)
            add_gradient(buffer, places, w, z, gradient)
        step += 1
        for k in range(c):
            update(weights[k], first[k], second[k], gradient[k], ONE, ZERO, ADAM, rate, 0.0, step)
    return step
