"""ConSERT's augmentations: views of a batch made inside the encoder, between its embeddings and its first layer.

Yan et al., 2021, https://arxiv.org/abs/2105.11741, section 3.2, with the counts of its released code. Token shuffling
acts on the position ids. The others act on the embedding module's output: words, positions and segments summed, after
LayerNorm and dropout. The attention mask stays as it is: a token that is cut off is attended to and pooled as zeros.

All sentences of a batch are done at once, each by its own draw. The draws come from ``generator``, on its own device: a
CPU generator makes the same views whatever the device of the model. Each takes embeddings (b, t, h), a mask (b, t), 1
at tokens and 0 at padding, and the ``rate``, the share that is cut; a rate outside [0, 1) raises StsbenchError.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stsbench.core.errors import StsbenchError

_PAST_DRAWS = 2.0
"""Above every draw, which are below 1."""


def token_shuffle(
    mask: Tensor, *, generator: torch.Generator, position_ids: Tensor | None = None
) -> Tensor:
    """Return position ids (b, t) with those of each sentence's tokens permuted; padding, on either side, keeps its own.

    [CLS] and [SEP] take part. Token ids, segment ids and mask are to stay as they are. What is permuted is 0 to t - 1,
    or ``position_ids`` (b, t) (RoBERTa's start at 2).
    """
    tokens = mask != 0
    b, t = tokens.shape
    places = torch.arange(t, device=mask.device).expand(b, t)
    ids = places if position_ids is None else position_ids
    draws = _draws(tokens, generator)
    in_order = torch.where(tokens, places, places + t).argsort(dim=1)  # tokens first, then padding
    at_random = torch.where(tokens, draws, _PAST_DRAWS + places).argsort(dim=1)
    return torch.empty_like(ids).scatter_(1, in_order, ids.gather(1, at_random))


def token_cutoff(
    embeddings: Tensor, mask: Tensor, *, rate: float, generator: torch.Generator
) -> Tensor:
    """Return embeddings (b, t, h) with floor(n * rate) of each sentence's n tokens set to zero.

    Padding is never drawn; [CLS] and [SEP] may be. At rate 0.15 sentences of six tokens or fewer stay as they are.
    """
    cut = _draw(mask != 0, rate, generator)  # (b, t)
    return embeddings.masked_fill(cut[:, :, None], 0)


def feature_cutoff(
    embeddings: Tensor, mask: Tensor, *, rate: float, generator: torch.Generator
) -> Tensor:
    """Return embeddings (b, t, h) with floor(h * rate) columns of each sentence set to zero, padding included."""
    b, _, h = embeddings.shape
    cut = _draw(
        torch.ones(b, h, dtype=torch.bool, device=embeddings.device), rate, generator
    )  # (b, h)
    return embeddings.masked_fill(cut[:, None, :], 0)


def embedding_dropout(
    embeddings: Tensor, mask: Tensor, *, rate: float, generator: torch.Generator
) -> Tensor:
    """Return embeddings (b, t, h) with floor(n * h * rate) elements of each sentence's n tokens set to zero.

    Other than torch's dropout: the count is exact, padding is left alone, and what stays is not scaled up.
    """
    b, t, h = embeddings.shape
    elements = (mask != 0)[:, :, None].expand(b, t, h).reshape(b, t * h)
    return embeddings.masked_fill(_draw(elements, rate, generator).view(b, t, h), 0)


def fgv_noise(gradient: Tensor, *, norm: float, normalise: bool) -> Tensor:
    """Return the noise to add to embeddings, from the gradient (b, t, h) of the classification loss at them.

    The adversarial view adds it to the embedding output and encodes again. ``normalise`` scales each token's gradient
    to length 1 first, as the released code does; the paper takes the gradient as it is (fast gradient value). ``norm``
    is a factor on the noise; 1.0 by ConSERT's command line, 0.01 where that is not passed on.
    """
    wide = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
    if normalise:
        # 1e-10 keeps the zero gradient of padding zero.
        wide = wide / (torch.linalg.vector_norm(wide, dim=-1, keepdim=True) + 1e-10)
    return (norm * wide).to(gradient.dtype)


def _draw(eligible: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Draw floor(rate * n) of the n eligible places of each row of a boolean (b, m)."""
    if not 0 <= rate < 1:
        raise StsbenchError(f"rate {rate}: it must be from 0 to below 1; ConSERT uses 0.1 to 0.2")
    # In float64 with its rounding, as the released code: 0.29 of 100 is 28.
    count = (eligible.sum(dim=1, keepdim=True, dtype=torch.float64) * rate).floor().long()  # (b, 1)
    # The places of the ``count`` smallest draws. Those below ``rate`` are nearly as many; what is
    # missing or too much is nearest to it. Three times as fast as sorting every element of a batch.
    draws = _draws(eligible, generator).masked_fill(~eligible, _PAST_DRAWS)
    drawn = draws < rate
    missing = count - drawn.sum(dim=1, keepdim=True)
    candidates = (draws - rate).abs().masked_fill(drawn == (missing > 0), torch.inf)
    most = int(missing.abs().max())
    nearest = candidates.topk(most, dim=1, largest=False).indices
    flips = torch.arange(most, device=eligible.device) < missing.abs()
    return drawn ^ torch.zeros_like(eligible).scatter_(1, nearest, flips)


def _draws(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, generator=generator, device=generator.device).to(like.device)
