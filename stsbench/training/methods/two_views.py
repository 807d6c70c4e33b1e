"""A sentence and itself under another dropout mask: the batches of unsupervised SimCSE and of what was made of it."""

from __future__ import annotations

import numpy as np
import torch

from stsbench.training.loop.gather import check_negatives, gather_pairs
from stsbench.training.loop.parts import Tokens
from stsbench.training.seams import Batch, Learner, Rows


class TwoViews(Learner):
    """Learns from each sentence twice; what is made of the two views is the method's."""

    chunks = True
    by_dropout = True

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """The sentences, and below them the same once more."""
        check_negatives(len(rows))
        return {"views": self.views(("text", "text"), rows)}

    def embed_views(self, tokens: Tokens) -> list[torch.Tensor]:
        """The embeddings of both views, each (ranks * b, h)."""
        return gather_pairs(self.student.embed(tokens), 2)
