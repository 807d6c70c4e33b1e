"""SBERT-WK pooling: tokens and layers weighted by how much each adds to its neighbours.

Wang and Kuo, 2020, https://arxiv.org/abs/2002.06652. The published way is one QR
decomposition for every token and layer, in a Python loop. All that it reads of R are lengths
and inner products, so here the cosines between a token's states stand in for its QRs:

* r, the last column of R, is the state itself: ||r|| = ||x_k||.
* r without its last entry is the part of x_k inside the span of its neighbours, p_k.
* a column of R without its last entry is a neighbour x_j, so column-normalised and times r it
  is x_j.x_k / ||x_j||.

Hence alignment_k = 1 / (2 m mean_j cos(x_j, x_k) ||x_k|| / ||p_k||), with m = neighbours + 1, and
novelty_k = ||x_k - p_k|| / ||x_k||; ||p_k|| comes from eliminating the neighbours from the matrix of
cosines (Cholesky without the roots). No sign of a row of R enters: each would enter twice.

Cosines square the condition number, so all is float64: states of a float32 model that differ
by an angle v carry a relative error of 6e-8 / v already, elimination adds 1e-16 / v**2, which is
smaller down to v = 2e-9, finer than float32 resolves.

Of the published codes, the authors' and the one in sentence-transformers before 2.0, one quirk
is kept as ``released_window``. The neighbours of layer k are those at most ``window`` away, and
both codes take the lower ones with the slice [k - window : k]. Where its start is negative it
counts from the end, and the slice is empty. Layer 0 has no lower neighbour anyway, so with window
2 it is layer 1 that misses layer 0. The published scores have it, so it is the default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from numba import njit

from stsbench.core.errors import EncoderError
from stsbench.encoders.base import IndexArray

Floats = npt.NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., Any])

WINDOW = 2
MIN_LAYERS = 3
"""With two states there is one cosine between adjacent layers, and its variance weighs no token."""
CHUNK = 32
"""Tokens whose states are float64 at a time, in each thread: 1.8 MB at 9 layers of 768."""
_DEPENDENT = 1e-12
"""A squared sine below this is rounding: the state lies in the span of its neighbours."""
_FLOOR = 1e-30
"""Added to weights, far below any real one: where all are 0, it makes them equal."""
# Sums may be taken in another order, as every BLAS does; NaN and infinity keep their meaning.
_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}


def wk_layers(start: int, depth: int) -> tuple[int, ...]:
    """Return the hidden-state indices that ``wk(start)`` pools in a model of ``depth`` layers.

    The count includes the word embeddings, state 0, as in the paper's code: ``wk(4)`` of
    12 layers is states 4 to 12, nine of them. A negative start counts from the last state.

    Raises:
        EncoderError: fewer than three states are left.
    """
    layers = tuple(range(depth + 1)[start:]) if start >= -depth - 1 else ()
    if len(layers) < MIN_LAYERS:
        raise EncoderError(
            f"pooling 'wk({start})' leaves {len(layers)} of the model's {depth + 1} hidden states (0 to {depth}); "
            f"it needs {MIN_LAYERS} at least"
        )
    return layers


def wk_pool(
    states: Sequence[torch.Tensor], mask: torch.Tensor | None, *, window: int = WINDOW, released_window: bool = True
) -> torch.Tensor:
    """Pool consecutive hidden states, each (b, t, h), into embeddings (b, h), float32 or wider.

    ``mask`` is (b, t), 1 at tokens and 0 at padding on either side; None means no padding. [CLS]
    is kept; the last token, [SEP], is left out unless it is the only one. A token is the sum of
    its states weighted by alignment and novelty, a sentence the sum of its tokens weighted by
    the variance of the cosines between adjacent layers. ``released_window`` repeats the
    published codes' window; False gives every layer its neighbours, as the paper has it.

    Where the formula divides 0 by 0 the weights are equal: layers that are all alike, tokens
    whose cosines do not vary. A zero state has no alignment and no novelty. NaN and infinity
    in a token that counts make its sentence's embedding NaN; elsewhere they are ignored.

    The work is done on the CPU, whatever the device, in as many threads as torch uses; an
    embedding depends on its own sentence's states alone, to the last bit.

    Raises:
        EncoderError: fewer than three states, or a window below 1.
    """
    if len(states) < MIN_LAYERS:
        raise EncoderError(f"WK pooling of {len(states)} hidden states; it needs {MIN_LAYERS} at least")
    if window < 1:
        raise EncoderError(f"WK pooling with window {window}; it needs 1 at least")
    b, t, h = states[0].shape
    below = _below(len(states), window, released_window)
    sentence = _sentences(np.ones((b, t), dtype=np.bool_) if mask is None else mask.cpu().numpy() != 0)
    dtype = torch.promote_types(states[0].dtype, torch.float32)
    arrays = [state.detach().to("cpu", dtype).reshape(b * t, h).numpy() for state in states]
    total, weight = np.zeros((b, h)), np.zeros((b, 1))

    def work(first: int, last: int) -> None:
        tokens = slice(first * t, last * t)
        _add([array[tokens] for array in arrays], sentence[tokens], below, window, total, weight)

    _in_threads(work, b)
    # A row without any token has weight 0 and stays 0, as in mean pooling.
    return torch.from_numpy(total / np.maximum(weight, _FLOOR / 2)).to(states[0].device, dtype)


def _in_threads(work: Callable[[int, int], None], rows: int) -> None:
    """Call ``work`` on equal shares (first, last) of the rows, one a thread."""
    threads = max(min(torch.get_num_threads(), rows), 1)
    if threads == 1:
        return work(0, rows)
    cuts = [rows * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, cuts[:-1], cuts[1:]))


def _below(layers: int, window: int, released: bool) -> IndexArray:
    """Count the lower neighbours of each layer, (l,)."""
    every = range(layers)
    return np.array([len(every[k - window : k]) if released else min(k, window) for k in every])


def _sentences(attended: npt.NDArray[np.bool_]) -> IndexArray:
    """Say which row each token counts for, (b * t,); -1 for padding and for each row's last token."""
    after = attended[:, ::-1].cumsum(axis=1)[:, ::-1]  # attended tokens from here on
    kept = attended & ((after > 1) | (attended.sum(axis=1, keepdims=True) == 1))
    return np.where(kept, np.arange(len(kept))[:, None], -1).ravel()


def _add(
    states: Sequence[npt.NDArray[np.floating]],
    sentence: IndexArray,
    below: IndexArray,
    window: int,
    total: Floats,
    weight: Floats,
) -> None:
    """Add tokens, given as one (n, h) a layer, to the sentences they belong to."""
    n, h = states[0].shape
    block = np.empty((min(n, CHUNK), len(states), h))
    for start in range(0, n, CHUNK):
        tokens = slice(start, min(start + CHUNK, n))
        x = block[: tokens.stop - start]
        for layer, state in enumerate(states):
            x[:, layer] = state[tokens]
        _add_tokens(x, sentence[tokens], below, window, total, weight)


def _compiled(function: F) -> F:
    """Compile at the first call, or take it from numba's cache where a cache folder can be written."""
    try:
        compiled: F = njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:
        compiled = njit(**_OPTIONS)(function)
    return compiled


@_compiled
def _add_tokens(x: Floats, sentence: IndexArray, below: IndexArray, window: int, total: Floats, weight: Floats) -> None:
    """Add each token of x (n, l, h) to its sentence in total (b, h), weighted, and its weight to weight (b, 1)."""
    layers = x.shape[1]
    cosines, alpha = np.empty((layers, layers)), np.empty(layers)
    for i in range(len(x)):
        if sentence[i] < 0:
            continue
        _fill_cosines(x[i], 2 * window, cosines)
        _fill_weights(cosines, below, window, alpha)
        spread = _spread(cosines)
        weight[sentence[i], 0] += spread
        out = total[sentence[i]]
        for k in range(layers):
            share, state = spread * alpha[k], x[i, k]
            for j in range(len(out)):
                out[j] += share * state[j]


@_compiled
def _fill_cosines(x: Floats, reach: int, cosines: Floats) -> None:
    """Take the cosines of the states (l, h) at most ``reach`` layers apart; those of a zero state are 0."""
    lengths = np.empty(len(x))
    for a in range(len(x)):
        for b in range(max(a - reach, 0), a + 1):
            left, right = x[a], x[b]
            product = 0.0
            for j in range(len(left)):
                product += left[j] * right[j]
            cosines[a, b] = product
        lengths[a] = 1.0 if cosines[a, a] == 0 else np.sqrt(cosines[a, a])
    for a in range(len(x)):
        for b in range(max(a - reach, 0), a + 1):
            cosines[a, b] /= lengths[a] * lengths[b]
            cosines[b, a] = cosines[a, b]


@_compiled
def _spread(cosines: Floats) -> float:
    """The token's weight: the variance of the cosines between adjacent layers."""
    n = len(cosines) - 1
    mean = 0.0
    for k in range(n):
        mean += cosines[k + 1, k] / n
    variance = 0.0
    for k in range(n):
        variance += (cosines[k + 1, k] - mean) ** 2 / n
    return variance + _FLOOR


@_compiled
def _fill_weights(cosines: Floats, below: IndexArray, window: int, alpha: Floats) -> None:
    """Weigh the layers of a token, with sum 1, by alignment and novelty."""
    layers = len(cosines)
    novelty, members = np.empty(layers), np.empty(2 * window + 1, np.int64)
    near = np.empty((2 * window + 1, 2 * window + 1))
    for k in range(layers):
        n = 0
        shared = 0.0
        for j in range(k - below[k], min(k + window + 1, layers)):
            if j != k:
                members[n] = j
                shared += cosines[k, j]
                n += 1
        members[n] = k
        for a in range(n + 1):
            for b in range(a + 1):
                near[a, b] = cosines[members[a], members[b]]
        inside, outside = _project(near, n)
        if abs(shared) < _DEPENDENT:
            shared = _DEPENDENT
        alpha[k] = np.sqrt(inside) * n / (2 * (n + 1) * shared)
        novelty[k] = _FLOOR + (0.0 if outside < _DEPENDENT else np.sqrt(outside))
    scale = alpha.sum()
    for k in range(layers):
        aligned = 1 / layers if abs(scale) < _DEPENDENT else alpha[k] / scale
        alpha[k] = aligned / 2
    alpha += novelty / (2 * novelty.sum())


@_compiled
def _project(near: Floats, n: int) -> tuple[float, float]:
    """Split unit vector n by the span of the n before it, given their cosines (lower triangle).

    Returns the squared lengths of the part inside and of the rest. The cosines are overwritten.
    """
    inside = 0.0
    for i in range(n):
        pivot = near[i, i]
        if pivot < _DEPENDENT:
            continue  # its predecessors span it: it adds no direction
        for a in range(i + 1, n + 1):
            for b in range(i + 1, a + 1):
                near[a, b] -= near[a, i] / pivot * near[b, i]
        inside += near[n, i] ** 2 / pivot
    return inside, near[n, n]
