"""The pooling of SBERT-WK, for the tokens of many sentences together.

In SBERT-WK (Wang and Kuo, 2020, https://arxiv.org/abs/2002.06652) tokens and layers are weighted by
how much each adds to its neighbours. The published method is one QR decomposition for every token
and layer, in a Python loop. It reads only lengths and inner products of R, so here the cosines
between a token's states stand in for its QRs: with p_k the part of the state x_k inside the span
of its neighbours, and m = neighbours + 1,

    alignment_k = 1 / (2 m mean_j cos(x_j, x_k) ||x_k|| / ||p_k||)
    novelty_k = ||x_k - p_k|| / ||x_k||

||p_k|| comes from eliminating the neighbours from the matrix of cosines (Cholesky without the
roots). Cosines square the condition number, so all is float64: states of a float32 model that
differ by an angle v carry a relative error of 6e-8 / v already. Elimination adds 1e-16 / v**2,
which is smaller down to v = 2e-9, finer than float32 resolves.

One quirk is kept of the published codes, the authors' and the one in sentence-transformers before
2.0. The neighbours of layer k are those at most ``window`` away, and both codes take the lower
ones with the slice [k - window : k]. If its start is negative, it counts from the end, and the
slice is empty: with window 2 layer 1 misses layer 0. The published scores have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float64]
WINDOW = 2
"""The distance in layers up to which states are neighbours."""
MIN_LAYERS = 3
"""With two states there is only one cosine of adjacent layers, whose variance is zero."""
TOKENS_AT_ONCE = 128
"""The number of tokens whose states are float64 at a time: 7 MB for 9 layers of 768."""
_MIN_SQUARED_SINE = 1e-12
"""A squared sine below this is rounding: the state lies in the span of its neighbours."""
_MIN_WEIGHT = 1e-30
"""Added to weights, far below any real one: if all are 0, it makes them equal."""


def wk_pool(states: Sequence[torch.Tensor], mask: torch.Tensor | None) -> torch.Tensor:
    """Pool the hidden states of several layers into embeddings as SBERT-WK does.

    The vector of a token is the weighted sum of its states in the layers; the weights are the
    token's alignment and novelty of each layer (see :func:`_layer_weights`). An embedding is the
    weighted mean of the vectors of the tokens; the weight of a token is the variance of the cosines
    between its states in adjacent layers. The last token, [SEP], is not pooled, unless it is the
    only one.

    If a formula divides 0 by 0, the weights are equal: for layers that are all the same, and
    tokens whose cosines do not vary. A zero state has no alignment and no novelty. NaN and infinity
    in a pooled token make the embedding NaN; elsewhere they are ignored. Everything is computed on
    the CPU, each sentence independently of the others to the last bit.

    Args:
        states: The hidden states of three consecutive layers or more, each (b, t, h).
        mask: 1 at tokens and 0 at padding on either side, (b, t); None if there is no padding.

    Returns:
        The embeddings, (b, h), in float32 or in the type of the states if that is wider.
    """
    import torch

    b, t, h = states[0].shape
    dtype = torch.promote_types(states[0].dtype, torch.float32)
    # The tokens of all sentences in one list: token i is at position i % t of sentence i // t.
    arrays = [state.detach().to("cpu", dtype).reshape(b * t, h).numpy() for state in states]
    is_token = np.ones((b, t), dtype=np.bool_) if mask is None else mask.cpu().numpy() != 0
    # The tokens to pool, as indices of that list; the last of each sentence is left out.
    pooled_tokens = np.flatnonzero(_without_last_tokens(is_token))
    neighbours = _layer_neighbours(len(states))
    # For each sentence, the sum of its weighted tokens, and the sum of their weights.
    weighted_sum = np.zeros((b, h))
    weight_sum = np.zeros((b, 1))
    for start in range(0, len(pooled_tokens), TOKENS_AT_ONCE):
        tokens = pooled_tokens[start : start + TOKENS_AT_ONCE]
        # (n, l, h) for n tokens and l layers
        token_states = np.stack([array[tokens] for array in arrays], axis=1, dtype=np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            # (n, l) and (n, 1)
            layer_weights, token_weights = _wk_weights(token_states, neighbours)
            token_vectors = np.squeeze(layer_weights[:, None] @ token_states, axis=1)
            weighted_tokens = token_vectors * token_weights
        sentences = tokens // t
        # Several tokens have the same sentence: += would add only one of them.
        np.add.at(weighted_sum, sentences, weighted_tokens)
        np.add.at(weight_sum, sentences, token_weights)
    # Each token has a weight of _MIN_WEIGHT at least. So only a sentence without any token is
    # divided by half of it, and stays 0 as in mean pooling.
    embeddings = weighted_sum / np.maximum(weight_sum, _MIN_WEIGHT / 2)
    return torch.from_numpy(embeddings).to(states[0].device, dtype)


def _without_last_tokens(is_token: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the mask (b, t) without each sentence's last token, unless it has only one.

    SBERT-WK leaves out the last token, [SEP], but pools the first, [CLS].

    Args:
        is_token: Whether each position is a token and not padding, (b, t).
    """
    # At each position, the number of tokens there and to its right: 1 at the last token.
    tokens_from_here_on = is_token[:, ::-1].cumsum(axis=1)[:, ::-1]
    is_only_token = is_token.sum(axis=1, keepdims=True) == 1
    return is_token & ((tokens_from_here_on > 1) | is_only_token)  # type: ignore[no-any-return]


def _layer_neighbours(n_states: int) -> npt.NDArray[np.int64]:
    """Return the indices of the layers near each layer, as an array.

    Args:
        n_states: The number of hidden states.

    Returns:
        One row per state, of 2 * ``WINDOW`` + 1 numbers. Row k has the layers at most ``WINDOW``
        away from layer k, and ends with k itself; but layer 1 misses layer 0. If these are fewer,
        the row begins with -1s.
    """
    layers = range(n_states)
    rows = []
    for k in layers:
        # SBERT-WK's code takes the layers below k by this slice. With a negative start, as for
        # k = 1 and ``WINDOW`` = 2, it is empty: layer 1 misses layer 0. The published scores have
        # it, so it is kept.
        row = [*layers[k - WINDOW : k], *layers[k + 1 : k + 1 + WINDOW], k]
        rows.append([-1] * (2 * WINDOW + 1 - len(row)) + row)
    return np.array(rows)


def _wk_weights(states: Floats, neighbours: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Compute SBERT-WK's weights of tokens and of each token's layers.

    A token's weight is the variance of the cosines between its states in adjacent layers.

    Args:
        states: The hidden states of n tokens in l layers, (n, l, h).
        neighbours: The layers near each layer, (l, m), from :func:`_layer_neighbours`: row k ends
            with k itself, and begins with -1s if there are fewer than m layers.

    Returns:
        The weights of each token's layers, (n, l), with sum 1, by alignment and novelty; and those
        of the tokens in their sentences, (n, 1).
    """
    cosines = _layer_cosines(states)
    # The diagonal below the main one: the cosine of each layer with the one before it, (n, l - 1).
    # This notation takes the diagonals of the last two axes.
    adjacent_cosines = np.einsum("nkk->nk", cosines[:, 1:, :-1])
    # With 1e-30 more, tokens whose cosines do not vary get equal weights later, not 0 / 0.
    token_weights = adjacent_cosines.var(axis=1, keepdims=True) + _MIN_WEIGHT
    return _layer_weights(cosines, neighbours), token_weights


def _layer_cosines(states: Floats) -> Floats:
    """Return the cosines between the states of each token in all pairs of layers, (n, l, l).

    The cosine of a zero state with any state, itself included, is 0.

    Args:
        states: The hidden states of n tokens in l layers, (n, l, h).
    """
    inner_products = states @ states.transpose(0, 2, 1)
    # This notation takes the diagonals: the squared length of each state, (n, l).
    lengths = np.sqrt(np.einsum("nkk->nk", inner_products))
    lengths[lengths == 0] = 1.0
    inner_products /= lengths[:, :, None] * lengths[:, None, :]
    return inner_products


def _layer_weights(cosines: Floats, neighbours: npt.NDArray[np.int64]) -> Floats:
    """Compute the weight of each layer for each token, as SBERT-WK does: by alignment and novelty.

    Alignment is large for a layer whose state is much like those of nearby layers, its neighbours.
    Novelty is large for a layer whose state has a large part that no sum of them explains. Let
    p_k be the part of state x_k in the span of its m - 1 neighbours x_j. Then (arXiv 2002.06652)

        alignment_k = 1 / (2 m mean_j cos(x_j, x_k) ||x_k|| / ||p_k||)
        novelty_k = ||x_k - p_k|| / ||x_k||

    Each is divided by its sum over the layers. The weight of a layer is the mean of the two.

    Args:
        cosines: The cosines between all pairs of the l states of n tokens, (n, l, l).
        neighbours: The indices of the layers near each layer, (l, m): row k ends with k itself,
            and begins with -1s if there are fewer than m layers.

    Returns:
        The weights, (n, l); those of a token have the sum 1.
    """
    n_layers = cosines.shape[1]
    exists = neighbours >= 0
    # The cosines among each layer's neighbours and itself, which is last: (n, l, m, m). For a
    # missing neighbour the index -1 has picked the last layer. Its cosines are set to 0, so that
    # it adds nothing to any sum.
    near_cosines = cosines[:, neighbours[:, :, None], neighbours[:, None, :]]
    both_exist = exists[:, :, None] & exists[:, None, :]  # (l, m, m)
    near_cosines[:, ~both_exist] = 0.0
    n_neighbours = exists[:, :-1].sum(axis=1)  # m - 1 in the formula, for each layer
    # For each layer, the sum of its cosines with its neighbours; a sum that is 0 but for rounding
    # becomes the threshold, 1e-12, as it is divided by. The same threshold serves for all sums.
    cosine_sum = near_cosines[:, :, -1, :-1].sum(axis=-1)
    cosine_sum[np.abs(cosine_sum) < _MIN_SQUARED_SINE] = _MIN_SQUARED_SINE
    # ||p_k||^2 / ||x_k||^2 and ||x_k - p_k||^2 / ||x_k||^2: in cosines all states have length 1.
    inside, outside = _squared_parts(near_cosines)
    # The formula with ||p_k|| / ||x_k|| = sqrt(inside) and mean_j = cosine_sum / n_neighbours.
    alignment = np.sqrt(inside) * n_neighbours / (2 * (n_neighbours + 1) * cosine_sum)
    alignment_sum = alignment.sum(axis=1, keepdims=True)
    is_zero = np.abs(alignment_sum) < _MIN_SQUARED_SINE
    # A sum of zero cannot be divided by: all layers get equal weights.
    alignment_weights = np.where(
        is_zero, 1 / n_layers, alignment / np.where(is_zero, 1.0, alignment_sum)
    )
    # 1e-30 is added, so that the weights are equal, not 0 / 0, if no layer is novel.
    novelty = _MIN_WEIGHT + np.where(
        outside < _MIN_SQUARED_SINE, 0.0, np.sqrt(np.maximum(outside, 0.0))
    )
    novelty_weights = novelty / novelty.sum(axis=1, keepdims=True)
    return (alignment_weights + novelty_weights) / 2  # type: ignore[no-any-return]


def _squared_parts(near_cosines: Floats) -> tuple[Floats, Floats]:
    """Split each state into the part that its neighbours explain, and the part that they do not.

    The neighbours of a state are the states of nearby layers. The first part lies in their span:
    it is a weighted sum of them. States are scaled to length 1, so the squared lengths of the parts
    add up to 1, or to 0 for a zero state.

    They are computed by Gaussian elimination of the symmetric matrix of cosines: what is left of
    its last entry is the squared length of the part outside the span.

    Args:
        near_cosines: The cosines among the neighbours of each layer and itself, which is last,
            (n, l, m, m). They are overwritten: each neighbour is eliminated from them in turn.

    Returns:
        The squared lengths inside the span and outside it, (n, l) each.
    """
    inside = np.zeros(near_cosines.shape[:2])
    for i in range(near_cosines.shape[-1] - 1):
        # The squared length of what the neighbours before it do not explain of neighbour i.
        pivot = near_cosines[:, :, i, i].copy()
        # A neighbour that is a weighted sum of those before it adds nothing to the span.
        is_spanned = pivot < _MIN_SQUARED_SINE
        pivot[is_spanned] = 1.0
        column = near_cosines[..., i] / pivot[..., None]
        column[is_spanned] = 0.0
        inside += column[..., -1] * near_cosines[:, :, -1, i]
        near_cosines -= column[..., None] * near_cosines[..., i, None, :]
    return inside, near_cosines[..., -1, -1]
