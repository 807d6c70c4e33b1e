"""The difference of two encoders' Spearman correlations on the same pairs, over items and over seeds."""

from __future__ import annotations

from typing import NamedTuple

from stsbench.compare.paired import Correlated
from stsbench.compare.variance import Sample, difference_of
from stsbench.data.splits import PairSplit
from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.intervals import sharing_from
from stsbench.numbers.sharing import sentence_columns
from stsbench.numbers.statistics import split_parts


class Change(NamedTuple):
    """A difference of two correlations, and its 95% interval."""

    difference: float
    low: float
    high: float


def score_change(before: Float64Array, after: Float64Array, split: PairSplit) -> Change:
    """Return by how much Spearman's correlation with gold differs, after minus before.

    Args:
        before: cosines of the pairs by each seed, (s, n).
        after: likewise, of as many seeds or others.
        split: the pairs.
    """
    parts = split_parts(split.subset, "all")
    both = Correlated(values=[before, after], gold=split.gold, parts=parts, metric="spearman")
    first, second = (Sample(both.scores(at), both.shares(at), tuple(range(len(both.values[at])))) for at in (0, 1))
    sharing = sharing_from(sentence_columns(*split.sides), split.n)
    found = difference_of(first, second, sharing, both.weights)
    return Change(found.difference, *found.interval())
