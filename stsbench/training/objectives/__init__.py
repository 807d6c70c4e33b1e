"""The losses of the training methods: pure functions of tensors, mean-reduced, scalar out.

They know nothing of ranks: under several processes the caller gathers the rows first. Whatever
the model computes in, they compute in float32, or in float64 if that is what they are given.
All raise ValueError where shapes do not fit, and StsbenchError where a temperature is not positive.
What torch has already (cross-entropy, squared error) is not here; losses of sentence-transformers
are taken over embeddings by ``library_loss``.
"""

from __future__ import annotations

from stsbench.training.objectives.contrastive import (
    dimension_contrast,
    info_nce,
    jsd_mutual_information,
    mixed_info_nce,
    nt_xent,
    off_dropout_info_nce,
    pairs_in_batch,
    queued_info_nce,
    quick_thoughts,
)
from stsbench.training.objectives.pairs import (
    PAIR_FEATURES,
    GivenEmbeddings,
    feature_names,
    given_columns,
    library_loss,
    pair_features,
)
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
