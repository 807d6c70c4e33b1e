"""Quick-Thoughts' objective: which sentences of a passage stand beside this one.

Logeswaran and Lee, 2018, https://arxiv.org/abs/1803.02893.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from stsbench.training.objectives.arithmetic import check_rows, in_float32


@in_float32
def quick_thoughts(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of dot products against the neighbours, mean over the sentences of a passage.

    The targets of a sentence are the ones before and after it, a half each; 1 at both ends. As in
    the authors' code the sentence itself has logit 0, so it stays in the softmax as a negative
    with weight 1; it is not left out.

    Args:
        first: (b, d), consecutive sentences by the first encoder.
        second: (b, d), the same by the second.

    Raises:
        ValueError: shapes that do not fit, or a single sentence: it has no neighbour.
    """
    check_rows(first=first, second=second)
    b = len(first)
    if b == 1:
        raise ValueError("a passage of one sentence has no neighbours; give two at least")
    scores = first @ second.T
    scores = scores.masked_fill(torch.eye(b, dtype=torch.bool, device=scores.device), 0)
    beside = torch.ones(b - 1, dtype=scores.dtype, device=scores.device)
    targets = beside.diag(1) + beside.diag(-1)
    return F.cross_entropy(scores, targets / targets.sum(dim=1, keepdim=True))
