"""The papers' figures, each as numbers and as a picture; the functions below take arrays and are public."""

from stsbench.analysis.similarity import collapse
from stsbench.analysis.spectrum import mean_cosine, partition_isotropy, singular_values
from stsbench.numbers.closeness import alignment, uniformity

__all__ = ["alignment", "collapse", "mean_cosine", "partition_isotropy", "singular_values", "uniformity"]
