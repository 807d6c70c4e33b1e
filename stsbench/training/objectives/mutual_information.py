"""IS-BERT's objective: token states that tell their own sentence's embedding from others'.

Zhang et al., 2020, https://arxiv.org/abs/2009.12061.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from stsbench.training.objectives.arithmetic import check_rows, in_float32


@in_float32
def jsd_mutual_information(local: torch.Tensor, mask: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
    """Return minus the Jensen-Shannon estimate of the mutual information of tokens and sentences.

    With s the dot product of a token's state and a sentence's embedding: the mean of ``softplus(s) -
    log 2`` over tokens with all other sentences, minus the mean of ``log 2 - softplus(-s)`` over
    tokens with their own. 0 where every s is 0, and downwards from there; -2 log 2 is the least.

    Args:
        local: (b, t, d), the states of the tokens.
        mask: (b, t), 1 at tokens, [CLS] and [SEP] among them, and 0 at padding.
        pooled: (b, d), the embeddings of the sentences.

    Raises:
        ValueError: shapes that do not fit, or a single sentence: there is no other.
    """
    if local.ndim != 3 or mask.shape != local.shape[:2]:
        raise ValueError(
            f"local is {tuple(local.shape)} and mask {tuple(mask.shape)}; they must be (b, t, d) and (b, t)"
        )
    check_rows(pooled=pooled, **{"local without its tokens": local[:, 0]})
    b = len(pooled)
    if b == 1:
        raise ValueError("a batch of one sentence has no negatives; give two at least")
    scores = local @ pooled.T  # (b, t, b)
    tokens = (mask != 0)[:, :, None]
    own = torch.eye(b, dtype=torch.bool, device=local.device)[:, None, :]
    # -logsigmoid(-s) is softplus(s), without the threshold at 20 beyond which torch's is rounded.
    positive = (math.log(2) + F.logsigmoid(scores)).masked_fill(~(tokens & own), 0)
    negative = (-F.logsigmoid(-scores) - math.log(2)).masked_fill(~(tokens & ~own), 0)
    n = tokens.sum()
    return negative.sum() / (n * (b - 1)) - positive.sum() / n
