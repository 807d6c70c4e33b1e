"""Tensors the same on every machine and under every torch: no generator makes them, only the sine."""

import math

import torch
from sentence_transformers.sentence_transformer.losses import ContrastiveTensionLossInBatchNegatives

from stsbench.training.objectives import GivenEmbeddings, library_loss


def made(*shape: int, key: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """A tensor with elements in (-1, 1), another one for each key."""
    i = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64)
    return torch.sin(i * i * 0.37 + key).reshape(shape).to(dtype)


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    x, y = a.tolist(), b.tolist()
    dot = math.fsum(i * j for i, j in zip(x, y, strict=True))
    return dot / math.sqrt(math.fsum(i * i for i in x) * math.fsum(j * j for j in y))


def in_batch_tension(
    a: torch.Tensor, b: torch.Tensor, scale: float | torch.Tensor = 20.0
) -> torch.Tensor:
    """Contrastive tension with in-batch negatives, by two models whose embeddings are given."""
    loss = ContrastiveTensionLossInBatchNegatives(GivenEmbeddings("2"))
    loss.model1 = GivenEmbeddings("1")
    # The library keeps the scale's logarithm in float32.
    exact = torch.as_tensor(scale, dtype=torch.promote_types(a.dtype, torch.float32)).log()
    del loss.logit_scale
    loss.logit_scale = exact
    return library_loss(loss, a, b)
