"""ConSERT's augmentations: views of a batch made between the embeddings and the first layer.

Yan et al., 2021, https://arxiv.org/abs/2105.11741, section 3.2, with the counts of its released
code. Token shuffling acts on the position ids. The others act on the output of the embedding
module: words, positions and segments summed, after LayerNorm and dropout. The attention mask stays
as it is: a token that is cut off is attended to and pooled as zeros.

All sentences of a batch are changed at once, each by its own draw. The draws come from
``generator``, on its own device: a CPU generator makes the same views whatever the device of the
model. Each function takes embeddings (b, t, h), a mask (b, t), 1 at tokens and 0 at padding, and
``rate``, the share that is cut; a rate outside [0, 1) raises StsbenchError.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stsbench.core.errors import StsbenchError

_ABOVE_ALL_DRAWS = 2.0
"""A number above every draw; draws are below 1."""


def token_shuffle(
    mask: Tensor, *, generator: torch.Generator, position_ids: Tensor | None = None
) -> Tensor:
    """Return position ids (b, t), permuted among the tokens of each sentence.

    [CLS] and [SEP] take part; padding, on either side, keeps its own ids. Only the position ids
    make the view: the caller leaves token ids, segment ids and mask unchanged. ConSERT (arXiv
    2105.11741), section 3.2.

    Args:
        mask: 1 at tokens and 0 at padding, (b, t).
        generator: The generator of the draws.
        position_ids: The ids to permute, (b, t), for example RoBERTa's, which start at 2; by
            default 0 to t - 1.
    """
    is_token = mask != 0
    b, t = is_token.shape
    positions = torch.arange(t, device=mask.device).expand(b, t)
    ids = positions if position_ids is None else position_ids
    draws = _draw_uniform_numbers(is_token, generator)  # (b, t), from 0 to below 1
    # Two orders of the columns of each row: first the tokens, as they stand or at random, and then
    # the padding, as it stands in both: its sort keys are above those of all tokens.
    plain_order = torch.where(is_token, positions, positions + t).argsort(dim=1)
    random_order = torch.where(is_token, draws, _ABOVE_ALL_DRAWS + positions).argsort(dim=1)
    # The id of the k-th column of the random order goes to the k-th column of the plain one.
    ids_in_random_order = ids.gather(1, random_order)
    return torch.empty_like(ids).scatter_(1, plain_order, ids_in_random_order)


def token_cutoff(
    embeddings: Tensor, mask: Tensor, *, rate: float, generator: torch.Generator
) -> Tensor:
    """Return embeddings (b, t, h) with some randomly drawn tokens of each sentence set to zero.

    In a sentence of n tokens, exactly floor(n * rate) are set to zero. Padding is never drawn;
    [CLS] and [SEP] may be. At rate 0.15 sentences of six tokens or fewer stay as they are. ConSERT
    (arXiv 2105.11741), section 3.2.

    Args:
        embeddings: The embedding output, (b, t, h).
        mask: 1 at tokens and 0 at padding, (b, t).
        rate: The share of tokens, from 0 to below 1.
        generator: The generator of the draws.

    Raises:
        StsbenchError: The rate is below 0, or 1 or above.
    """
    # True at exactly floor(n * rate) of the tokens of each row.
    is_cut = _draw_exact_share_mask(eligible=mask != 0, rate=rate, generator=generator)  # (b, t)
    return embeddings.masked_fill(is_cut[:, :, None], 0)


def feature_cutoff(
    embeddings: Tensor, mask: Tensor, *, rate: float, generator: torch.Generator
) -> Tensor:
    """Return embeddings (b, t, h) with floor(h * rate) columns of each sentence set to zero.

    The columns are drawn at random for each sentence, and are zero at all its tokens and at
    padding. ConSERT (arXiv 2105.11741), section 3.2.

    Args:
        embeddings: The embedding output, (b, t, h).
        mask: Not used; all functions that make a view have this argument.
        rate: The share of columns, from 0 to below 1.
        generator: The generator of the draws.

    Raises:
        StsbenchError: The rate is below 0, or 1 or above.
    """
    b, _, h = embeddings.shape
    # True at exactly floor(h * rate) columns of each row; all columns may be drawn.
    is_cut = _draw_exact_share_mask(
        torch.ones(b, h, dtype=torch.bool, device=embeddings.device), rate, generator
    )  # (b, h)
    return embeddings.masked_fill(is_cut[:, None, :], 0)


def embedding_dropout(
    embeddings: Tensor, mask: Tensor, *, rate: float, generator: torch.Generator
) -> Tensor:
    """Return embeddings (b, t, h) with some randomly drawn elements of each sentence set to zero.

    In a sentence of n tokens, exactly floor(n * h * rate) of the n * h elements are set to zero.
    Torch's dropout differs: there the count is random, padding takes part, and the other elements
    are scaled up. ConSERT (arXiv 2105.11741), section 3.2.

    Args:
        embeddings: The embedding output, (b, t, h).
        mask: 1 at tokens and 0 at padding, (b, t).
        rate: The share of elements, from 0 to below 1.
        generator: The generator of the draws.

    Raises:
        StsbenchError: The rate is below 0, or 1 or above.
    """
    b, t, h = embeddings.shape
    # True at the elements of tokens, not at those of padding.
    is_element = (mask != 0)[:, :, None].expand(b, t, h).reshape(b, t * h)
    # True at exactly the share ``rate`` of these, rounded down.
    is_dropped = _draw_exact_share_mask(is_element, rate, generator).view(b, t, h)
    return embeddings.masked_fill(is_dropped, 0)


def fgv_noise(gradient: Tensor, *, norm: float, normalise: bool) -> Tensor:
    """Compute adversarial noise (fast gradient value, FGV): a multiple of the loss's gradient.

    The caller adds the noise to the embedding output and encodes the sentences again; this is their
    adversarial view in ConSERT.

    Args:
        gradient: The gradient (b, t, h) of the classification loss at the embedding output.
        norm: The factor by which the gradient is multiplied. The default of ConSERT's command line
            is 1.0; without adversarial training its code ignores that and uses 0.01.
        normalise: Scale the gradient of each token to length 1 first, as ConSERT's code does; the
            paper multiplies the gradient itself.

    Returns:
        The noise (b, t, h), of the gradient's type.
    """
    noise = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
    if normalise:
        # 1e-10 keeps the zero gradient of padding zero.
        noise = noise / (torch.linalg.vector_norm(noise, dim=-1, keepdim=True) + 1e-10)
    return (norm * noise).to(gradient.dtype)


def _draw_exact_share_mask(eligible: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Draw exactly floor(rate * n) of the n eligible positions of each row.

    Args:
        eligible: The positions that may be drawn, bool (b, m).
        rate: The share to draw, from 0 to below 1.
        generator: The generator of the draws.

    Returns:
        A mask, True at the drawn positions, bool (b, m).

    Raises:
        StsbenchError: The rate is below 0, or 1 or above.
    """
    if not 0 <= rate < 1:
        raise StsbenchError(f"rate {rate}: it must be from 0 to below 1; ConSERT uses 0.1 to 0.2")
    # In float64 with its rounding, as in ConSERT's code: a share of 0.29 of 100 positions is 28.
    counts = (
        (eligible.sum(dim=1, keepdim=True, dtype=torch.float64) * rate).floor().long()
    )  # (b, 1)
    # Each eligible position gets a random number from 0 to below 1, the others one above all these.
    # Those with the ``counts`` smallest numbers are drawn. To sort every element of a batch would
    # take three times as long: so take the numbers below ``rate``, which are nearly as many, and
    # correct each row by the few nearest to ``rate``.
    draws = _draw_uniform_numbers(eligible, generator).masked_fill(~eligible, _ABOVE_ALL_DRAWS)
    is_drawn = draws < rate
    n_missing = counts - is_drawn.sum(dim=1, keepdim=True)  # below 0 if there are too many
    # To flip a position is to add it to the drawn ones, or to take it back. In a row that misses
    # positions only undrawn ones can flip; in a row with too many only drawn ones.
    cannot_flip = is_drawn == (n_missing > 0)
    distances = (draws - rate).abs().masked_fill(cannot_flip, torch.inf)
    max_flips = int(n_missing.abs().max())
    nearest_positions = distances.topk(max_flips, dim=1, largest=False).indices
    # ``topk`` returned as many for each row; only the |n_missing| nearest of a row are flipped.
    is_among_flipped = torch.arange(max_flips, device=eligible.device) < n_missing.abs()
    is_flipped = torch.zeros_like(eligible).scatter_(1, nearest_positions, is_among_flipped)
    # Exclusive or: a flipped position changes from drawn to undrawn or back.
    return is_drawn ^ is_flipped


def _draw_uniform_numbers(like: Tensor, generator: torch.Generator) -> Tensor:
    """Draw numbers in [0, 1) in the shape of a tensor, on the generator's device."""
    return torch.rand(like.shape, generator=generator, device=generator.device).to(like.device)
