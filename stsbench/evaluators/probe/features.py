"""The features that a classifier is trained on, made from embeddings chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import torch
from torch import Tensor

from stsbench.encoders.seams import IndexArray
from stsbench.errors import UnknownName
from stsbench.evaluators.probe.pool import Features, Pool

CHUNK_VALUES = 1 << 22


def combine_sides(u: Tensor, v: Tensor, kind: Features) -> Tensor:
    """Features (…, w) of items from the embeddings of their sentences, (…, d) each."""
    if kind == "u":
        return u
    if kind == "abs_mul":
        return torch.cat([(u - v).abs(), u * v], dim=-1)
    if kind == "concat_mul_abs":
        return torch.cat([u, v, u * v, (u - v).abs()], dim=-1)
    raise UnknownName("features", kind, get_args(Features))


def feature_chunks(
    pool: Pool, at: IndexArray, device: torch.device | str = "cpu", size: int = CHUNK_VALUES
) -> Iterator[Tensor]:
    """The features of these items in order, (<= size, w) float64, 32 MiB at a time at most."""
    size = max(1, min(size, CHUNK_VALUES // pool.width))
    for block in pool.blocks(at):
        for start in range(0, len(block.rows), size):
            places = block.rows[start : start + size]
            u = torch.from_numpy(block.u[places]).to(device)
            v = u if pool.features == "u" else torch.from_numpy(block.v[places]).to(device)
            yield combine_sides(u, v, pool.features).double()
