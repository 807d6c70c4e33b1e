"""The interval of one encoder's mean: over tasks, over seeds, or both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stsbench.compare.items import joint_sharing, read_paired_items
from stsbench.compare.variance import estimate, mean_sample
from stsbench.errors import DataError
from stsbench.results.record import Result

MEAN_METHOD = "Student's t over items and seeds, with the covariance of items that share a sentence"


def mean_interval(cells: Sequence[Sequence[Result]]) -> tuple[float, float] | None:
    """The 95% interval of one encoder's mean over tasks, over other items and other seeds.

    Args:
        cells: the encoder's results on each task, one a seed.

    Returns:
        Low and high, in the scores' unit; None where a task has no per-item columns at hand, or no statistic is known of them.
    """
    try:
        tasks = [read_paired_items([list({one.items: one for one in seeds}.values())]) for seeds in cells]
    except DataError:
        return None
    known = [one for one in tasks if one is not None]
    if not known or len(known) < len(tasks):
        return None
    sample = mean_sample([one.samples[0] for one in known], [one.sharing for one in known])
    weights = np.concatenate([one.paired.weights for one in known]) / len(known)
    low, high = estimate(sample, joint_sharing(known), weights).interval()
    return max(low, -1.0), min(high, 1.0)
