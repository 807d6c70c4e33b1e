"""The papers' figures, each as numbers and as a picture.

The functions below are public; their arguments are arrays.
"""

from stsbench.analysis.inside import near_vectors
from stsbench.analysis.mistakes import pair_costs, slice_cost
from stsbench.analysis.pairs import collapse
from stsbench.analysis.robustness import suppression
from stsbench.analysis.space import (
    mean_cosine,
    nearest,
    partition_isotropy,
    principal_plane,
    singular_values,
)
from stsbench.numbers.similarity import alignment, uniformity

__all__ = [
    "alignment",
    "collapse",
    "mean_cosine",
    "near_vectors",
    "nearest",
    "pair_costs",
    "partition_isotropy",
    "principal_plane",
    "singular_values",
    "slice_cost",
    "suppression",
    "uniformity",
]
