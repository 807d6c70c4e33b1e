"""The losses of the training methods: pure functions of tensors, mean-reduced, scalar out.

They know nothing of ranks: under several processes the caller gathers the rows first. Whatever
the model computes in, they compute in float32, or in float64 if that is what they are given.
What torch has already (cross-entropy, squared error) is not here; losses of sentence-transformers
are taken over embeddings by ``library``.
"""

from __future__ import annotations

from stsbench.training.objectives.contrastive import info_nce, nt_xent, pairs_in_batch
from stsbench.training.objectives.library import GivenEmbeddings, given_columns, library_loss
from stsbench.training.objectives.mutual_information import jsd_mutual_information
from stsbench.training.objectives.negatives import (
    dimension_contrast,
    mixed_info_nce,
    off_dropout_info_nce,
    queued_info_nce,
)
from stsbench.training.objectives.ordered import quick_thoughts
from stsbench.training.objectives.pairs import PAIR_FEATURES, feature_names, pair_features
from stsbench.training.objectives.ranking import list_mle, list_net, ranking_consistency, rankings
from stsbench.training.objectives.self_guided import SELF_GUIDED, anchored_l2, self_guided

__all__ = [
    "PAIR_FEATURES",
    "SELF_GUIDED",
    "GivenEmbeddings",
    "anchored_l2",
    "dimension_contrast",
    "feature_names",
    "given_columns",
    "info_nce",
    "jsd_mutual_information",
    "library_loss",
    "mixed_info_nce",
    "list_mle",
    "list_net",
    "nt_xent",
    "off_dropout_info_nce",
    "pair_features",
    "queued_info_nce",
    "pairs_in_batch",
    "quick_thoughts",
    "ranking_consistency",
    "rankings",
    "self_guided",
]
