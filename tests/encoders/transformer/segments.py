"""Attention over a flat batch, literally: one sentence after the other."""

from __future__ import annotations

import torch

from stsbench.encoders.transformer.flat import TokenLayout


def attend_literally(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: TokenLayout,
    *,
    scale: float,
    dropout: float,
    causal: bool,
    window: int | None,
) -> torch.Tensor:
    """Return softmax(scale Q K^T) V of each sentence, (N, h, d)."""
    repeats = query.shape[1] // key.shape[1]
    results = []
    ends = layout.cu_seqlens.tolist()
    for start, end in zip(ends, ends[1:], strict=False):
        q = query[start:end].transpose(0, 1)
        k, v = (
            tensor[start:end].transpose(0, 1).repeat_interleave(repeats, dim=0)
            for tensor in (key, value)
        )
        number = torch.arange(end - start, device=query.device)
        ahead = number[None, :] - number[:, None]  # from the query on
        hidden = (ahead > 0) if causal else torch.zeros_like(ahead, dtype=torch.bool)
        if window is not None:
            hidden = hidden | (ahead.abs() >= window)
        scores = (q @ k.transpose(1, 2) * scale).masked_fill(hidden, float("-inf"))
        weights = torch.nn.functional.dropout(scores.softmax(dim=-1), dropout)
        results.append((weights @ v).transpose(0, 1))
    return torch.cat(results)
