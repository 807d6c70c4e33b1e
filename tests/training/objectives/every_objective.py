"""Every objective as a function of one tensor of embeddings, for what all of them must do."""

from __future__ import annotations

from collections.abc import Callable

import torch
from sentence_transformers.sentence_transformer.losses import (
    CoSENTLoss,
    MultipleNegativesRankingLoss,
)

from stsbench.training.objectives import (
    GivenEmbeddings,
    dimension_contrast,
    info_nce,
    jsd_mutual_information,
    library_loss,
    list_mle,
    list_net,
    mixed_info_nce,
    nt_xent,
    off_dropout_info_nce,
    pairs_in_batch,
    queued_info_nce,
    quick_thoughts,
    ranking_consistency,
    rankings,
    self_guided,
)
from tests.training.tensors import in_batch_tension, made

INPUTS = made(6, 4, 5, key=1)
"""Four inputs a sentence: an anchor, its positive, its hard negative and one more layer."""
MASK = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0]])
LABELS = torch.tensor([1, 0, 0, 1, 0, 0])


def guided(variant: str, layers: int) -> Callable[..., torch.Tensor]:
    return lambda z, mask, labels: self_guided(
        z[:, 0], z[:, 1 : 1 + layers], temperature=0.05, variant=variant
    )


def similar(z: torch.Tensor, one: int, other: int) -> torch.Tensor:
    return rankings(z[:, one], z[:, other], temperature=0.5)


# Each of the embeddings (b, 4, d), a mask (b, 3) and labels (b,).
LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "info_nce": lambda z, mask, labels: info_nce(z[:, 0], z[:, 1], temperature=0.05),
    "info_nce, hard negatives": lambda z, mask, labels: info_nce(
        z[:, 0], z[:, 1], z[:, 2], temperature=0.05, hard_negative_weight=0.7
    ),
    "nt_xent": lambda z, mask, labels: nt_xent(z[:, 0], z[:, 1], temperature=0.1),
    "base": guided("base", 1),
    "opt1": guided("opt1", 1),
    "opt2": guided("opt2", 1),
    "opt2-released": guided("opt2-released", 1),
    "opt3": guided("opt3", 3),
    "triplets": lambda z, mask, labels: library_loss(
        MultipleNegativesRankingLoss(GivenEmbeddings()), *z[:, :3].unbind(1)
    ),
    "contrastive tension in batch": lambda z, mask, labels: in_batch_tension(z[:, 0], z[:, 1]),
    "cosent": lambda z, mask, labels: library_loss(
        CoSENTLoss(GivenEmbeddings()), z[:, 0], z[:, 1], labels=labels + mask.sum(dim=1)
    ),
    "angle's contrast": lambda z, mask, labels: pairs_in_batch(
        z[:, 0],
        z[:, 1],
        torch.arange(2 * len(z)).roll(len(z))[:, None] == torch.arange(2 * len(z)),
        temperature=0.1,
    ),
    "consistency": lambda z, mask, labels: ranking_consistency(z[:, 0], z[:, 1], temperature=0.1),
    "list_mle": lambda z, mask, labels: list_mle(similar(z, 0, 1), similar(z, 2, 2)),
    "list_net": lambda z, mask, labels: list_net(similar(z, 0, 1), similar(z, 2, 2)),
    "mutual information": lambda z, mask, labels: jsd_mutual_information(z[:, 1:], mask, z[:, 0]),
    "mixed negatives": lambda z, mask, labels: mixed_info_nce(
        z[:, 0], z[:, 1], temperature=0.05, mixing=0.2
    ),
    "mixed negatives, released": lambda z, mask, labels: mixed_info_nce(
        z[:, 0], z[:, 1], temperature=0.05, mixing=0.2, variant="released"
    ),
    "off dropout": lambda z, mask, labels: off_dropout_info_nce(
        z[:, 0], z[:, 1], z[:, 2], temperature=0.05
    ),
    "dimensions": lambda z, mask, labels: dimension_contrast(z[:, 0], z[:, 1], temperature=0.5),
    "queued negatives": lambda z, mask, labels: queued_info_nce(
        z[:, 0], z[:, 1], z[:, 2], labels.bool(), temperature=0.3
    ),
    "quick-thoughts": lambda z, mask, labels: quick_thoughts(z[:, 0], z[:, 1]),
}
