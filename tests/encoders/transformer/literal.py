"""Poolings token by token in float64, as the papers and the released codes have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stsbench.encoders.transformer.pooling import POOLING_ALIASES

Array = np.ndarray[Any, np.dtype[np.floating[Any]]]
POOLINGS = [
    "cls_before_pooler", "mean", "max", "last_token", "cls(2)", "cls(0)", "max(1)", "max(-2)",
    "mean(1,-1)", "mean(0,-1)", "mean(-2,-1)", "mean(3)", "mean(0,1,2,3,4)",
    "wk(0)", "wk(2)", "wk(-3)",
]  # fmt: skip


def literal_pool(name: str, states: Sequence[np.ndarray[Any, Any]]) -> Array:
    """Pool one sentence's hidden states, (t, h) a layer from the word embeddings up."""
    kind, _, rest = POOLING_ALIASES.get(name, name).partition("(")
    layers = [int(i) for i in rest.rstrip(")").split(",")] if rest else [-1]
    if kind == "wk":
        woven: Array = literal_wk(np.stack(states[layers[0] :]).astype(np.float64))
        return woven
    total = np.zeros(states[0].shape[1])
    for layer in layers:
        tokens = [np.asarray(token, np.float64) for token in states[layer]]
        if kind == "mean":
            total += sum(tokens) / len(tokens)
        elif kind == "max":
            total += [max(token[k] for token in tokens) for k in range(len(total))]
        else:
            total += tokens[-1] if kind == "last_token" else tokens[0]
    pooled: Array = total / len(layers)
    return pooled


def literal_wk(states: Array) -> Array:
    """WK of one sentence (l, t, h), [SEP] included: a QR for every token and layer."""
    tokens = [literal_token(states[:, i]) for i in range(states.shape[1] - 1)]
    spreads = []
    for i in range(states.shape[1] - 1):
        unit = states[:, i] / np.linalg.norm(states[:, i], axis=1, keepdims=True)
        spreads.append(np.var([unit[k] @ unit[k + 1] for k in range(len(unit) - 1)]))
    embedding: Array = np.average(tokens, axis=0, weights=spreads)
    return embedding


def literal_token(x: Array) -> Array:
    """WK of one token (l, h), as published."""
    alignment, novelty = [], []
    for k in range(len(x)):
        # Window 2 of the published codes: layers 0 and 1 have no neighbour below.
        below = x[k - 2 : k] if k >= 2 else x[:0]
        stack = np.concatenate([below, x[k + 1 : k + 3], x[k : k + 1]])
        triangle = np.linalg.qr(stack.T)[1]
        r = triangle[:, -1]
        columns = triangle[:-1, :-1] / np.linalg.norm(triangle[:-1, :-1], axis=0)
        similarity = columns.mean(axis=1) @ r[:-1] / np.linalg.norm(r[:-1])
        alignment.append(1 / (2 * len(stack) * similarity))
        novelty.append(abs(r[-1]) / np.linalg.norm(r))
    alpha = np.array(alignment) / sum(alignment) + np.array(novelty) / sum(novelty)
    token: Array = alpha / alpha.sum() @ x
    return token
