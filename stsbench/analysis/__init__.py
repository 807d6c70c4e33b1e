"""The papers' figures, each as numbers and as a picture; the functions below take arrays and are public."""

from stsbench.analysis.mistakes import pair_costs, slice_cost
from stsbench.analysis.neighbours import nearest
from stsbench.analysis.projection import principal_plane
from stsbench.analysis.robustness import suppression
from stsbench.analysis.similarity import collapse
from stsbench.analysis.spectrum import mean_cosine, partition_isotropy, singular_values
from stsbench.analysis.tokens import near_vectors
from stsbench.numbers.closeness import alignment, uniformity

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
