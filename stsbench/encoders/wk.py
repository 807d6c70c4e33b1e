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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from stsbench.errors import EncoderError

WINDOW = 2
MIN_LAYERS = 3
"""With two states there is one cosine between adjacent layers, and its variance weighs no token."""
_CHUNK = 256
"""Tokens at a time: bounds memory, 14 MB at 9 layers of 768, and keeps a chunk in the cache."""
_DEPENDENT = 1e-12
"""A squared sine below this is rounding: the state lies in the span of its neighbours."""
_FLOOR = 1e-30
"""Added to weights, far below any real one: where all are 0, it makes them equal."""


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


@torch.no_grad()
def wk_pool(
    states: Sequence[torch.Tensor], mask: torch.Tensor | None, *, window: int = WINDOW, released_window: bool = True
) -> torch.Tensor:
    """Pool consecutive hidden states, each (b, t, h), into embeddings (b, h), float32 or wider.

    ``mask`` is (b, t), 1 at tokens and 0 at padding on either side; None means no padding. The
    last token, [SEP], is left out, [CLS] is kept; a sentence of one token keeps it, which the
    published codes cannot embed. Every token is the sum of its states weighted by alignment
    and novelty, the sentence the sum of its tokens weighted by the variance of the cosines
    between adjacent layers.

    The neighbours of a layer are those at most ``window`` away. Both published codes, the
    authors' and the one in sentence-transformers before 2.0, take the lower ones with the slice
    ``[k - window : k]``; where its start is negative it counts from the end and the slice is
    empty. Layer 0 has no lower neighbour anyway, so with window 2 it is layer 1 that misses
    layer 0. ``released_window=True`` does the same, as the published numbers did; False gives
    every layer its neighbours, as the paper has it.

    Where the formula divides 0 by 0 the weights are equal: layers that are all alike, tokens
    whose cosines do not vary. A zero state has no alignment and no novelty. NaN and infinity
    in a token that counts make that sentence's embedding NaN; elsewhere they are ignored.

    Raises:
        EncoderError: fewer than three states, or a window below 1.
    """
    if len(states) < MIN_LAYERS:
        raise EncoderError(f"WK pooling of {len(states)} hidden states; it needs {MIN_LAYERS} at least")
    if window < 1:
        raise EncoderError(f"WK pooling with window {window}; it needs 1 at least")
    b, t, h = states[0].shape
    keep = _kept(mask, b, t, states[0].device)
    near = _neighbours(len(states), window, released_window, states[0].device)
    total, weight = states[0].new_zeros((b, h), dtype=torch.float64), keep.new_zeros((b, 1), dtype=torch.float64)
    at_once = max(_CHUNK // max(t, 1), 1)
    lines = min(at_once, b) * min(t, _CHUNK) * len(states) + near.reach
    buffer = states[0].new_empty((lines, h), dtype=torch.float64)
    for row in range(0, b, at_once):
        rows = slice(row, row + at_once)
        for column in range(0, t, _CHUNK):
            columns = slice(column, column + _CHUNK)
            kept = keep[rows, columns]
            x = _gather([state[rows, columns] for state in states], kept, buffer)  # (r, c, l, h)
            alpha, spread = _weights(_cosines(buffer, kept.numel(), near), near)
            spread = spread * kept.flatten()
            total[rows] += torch.bmm((alpha * spread).T.reshape(len(x), 1, -1), x.flatten(1, 2)).squeeze(1)
            weight[rows] += spread.view(kept.shape).sum(dim=1, keepdim=True)
    # A row without any token has weight 0 and stays 0, as in mean pooling.
    pooled: torch.Tensor = total / weight.clamp(min=_FLOOR / 2)
    return pooled.to(torch.promote_types(states[0].dtype, torch.float32))


def _kept(mask: torch.Tensor | None, b: int, t: int, device: torch.device) -> torch.Tensor:
    """Mark the tokens that count, bool (b, t): all attended ones but each row's last."""
    attended = torch.ones((b, t), dtype=torch.bool, device=device) if mask is None else mask != 0
    after = attended.flip(1).cumsum(dim=1).flip(1)  # attended tokens from here on
    return attended & ((after > 1) | (attended.sum(dim=1, keepdim=True) == 1))


class _Neighbours(NamedTuple):
    """Which cosines of a token decide the weight of which layer.

    A token's cosines are l rows of 1 + ``reach``: of each layer with itself and with the next ones.
    """

    layers: int
    reach: int
    table: torch.Tensor
    """Where layer k's matrix of cosines, its neighbours first and itself last, is found: (m, m, l).

    After the cosines come a 0 and a 1: a layer with fewer than m - 1 neighbours is filled up with
    unit vectors orthogonal to everything, which change nothing.
    """
    count: torch.Tensor
    """How many neighbours each layer has, (l, 1)."""


def _neighbours(layers: int, window: int, released: bool, device: torch.device) -> _Neighbours:
    every = range(layers)
    around = [
        [*(every[k - window : k] if released else every[max(k - window, 0) : k]), *every[k + 1 : k + window + 1]]
        for k in every
    ]
    m, reach = max(map(len, around)) + 1, min(2 * window, layers - 1)
    zero = layers * (reach + 1)
    table = torch.full((m, m, layers), zero)
    table[range(m), range(m)] = zero + 1
    for k, near in enumerate(around):
        places, members = [*range(len(near)), m - 1], torch.tensor([*near, k])
        for place, member in zip(places, members, strict=True):
            table[place, places, k] = torch.minimum(member, members) * (reach + 1) + (member - members).abs()
    count = torch.tensor([[float(len(near))] for near in around], dtype=torch.float64)
    return _Neighbours(layers, reach, table.to(device), count.to(device))


def _gather(states: Sequence[torch.Tensor], kept: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """Copy layers of (r, c, h) into the float64 buffer as (r, c, l, h), zeros where not kept."""
    r, c, h = states[0].shape
    x = buffer[: r * c * len(states)].view(r, c, len(states), h)
    for layer, state in enumerate(states):
        x[:, :, layer] = state
    x.flatten(0, 1).index_fill_(0, (~kept).flatten().nonzero().squeeze(1), 0.0)
    return x


def _cosines(buffer: torch.Tensor, tokens: int, near: _Neighbours) -> torch.Tensor:
    """Return each token's cosines, then a 0 and a 1: (l * (1 + reach) + 2, n). A zero state has cosine 0.

    A window that slides over the buffer's lines runs past a token's last layer into the next
    token; the table never points there.
    """
    lines = tokens * near.layers
    windows = buffer[: lines + near.reach].unfold(0, near.reach + 1, 1)  # (n * l, h, 1 + reach)
    products = torch.bmm(buffer[:lines].unsqueeze(1), windows).squeeze(1)
    lengths = products[:, 0].sqrt()
    lengths = torch.where(lengths == 0, torch.ones_like(lengths), lengths)
    lengths = torch.cat([lengths, lengths.new_ones(near.reach)]).unfold(0, near.reach + 1, 1)
    cosines = products / (lengths[:, :1] * lengths)
    constants = cosines.new_tensor([[0.0], [1.0]]).expand(2, tokens)
    return torch.cat([cosines.view(tokens, -1).T, constants])


def _weights(cosines: torch.Tensor, near: _Neighbours) -> tuple[torch.Tensor, torch.Tensor]:
    """Weigh n tokens by their cosines: their layers, (l, n) with sum 1, and the tokens, (n,)."""
    matrix = cosines[near.table.flatten()].view(*near.table.shape, -1)  # (m, m, l, n)
    shared = matrix[:-1, -1].sum(dim=0)
    shared = torch.where(shared.abs() < _DEPENDENT, torch.full_like(shared, _DEPENDENT).copysign(shared), shared)
    inside, outside = _project(matrix)
    alignment = inside.sqrt() * near.count / (2 * (near.count + 1) * shared)
    novelty = outside.sqrt() + _FLOOR
    scale = alignment.sum(dim=0)
    aligned = torch.where(scale.abs() < _DEPENDENT, torch.full_like(scale, 1 / near.layers), alignment / scale)
    alpha = (aligned + novelty / novelty.sum(dim=0)) / 2
    adjacent = cosines[1 : (near.layers - 1) * (near.reach + 1) : near.reach + 1]
    return alpha, adjacent.var(dim=0, correction=0) + _FLOOR


def _project(near: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split the last of m unit vectors by the span of the others, given their cosines (m, m, ...).

    Returns the squared lengths of the part inside and of the rest. The cosines are overwritten.
    """
    inside = torch.zeros_like(near[0, 0])
    for i in range(len(near) - 1):
        pivot, tail = near[i, i], near[i, i + 1 :]
        # A vector that its predecessors span adds no direction.
        scaled = tail / torch.where(pivot < _DEPENDENT, torch.full_like(pivot, torch.inf), pivot)
        inside += scaled[-1] * tail[-1]
        near[i + 1 :, i + 1 :] -= scaled.unsqueeze(1) * tail
    outside = near[-1, -1]
    return inside, torch.where(outside < _DEPENDENT, torch.zeros_like(outside), outside)
