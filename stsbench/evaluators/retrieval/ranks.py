"""Ranks and recalls of retrieval within folds of images and their captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.encoders.seams import FloatArray, IndexArray

DEPTHS = (1, 5, 10)


class Ranks(NamedTuple):
    """Where the right answer came, from 0: ``i2t`` (i,), the best of an image's captions; ``t2i`` (i, c)."""

    i2t: IndexArray
    t2i: IndexArray


def rank_fold(similarity: FloatArray) -> Ranks:
    """Rank one fold, given the similarity (i, i * c) of its images and captions, c captions an image in turn."""
    images, captions = similarity.shape
    per_image = captions // images
    own = np.take_along_axis(similarity, np.arange(captions).reshape(images, per_image), axis=1)
    # Of an image's captions the most similar ranks first; of equals the last.
    best = per_image - 1 - own[:, ::-1].argmax(axis=1)
    i2t = ranks_of(similarity, np.arange(0, captions, per_image) + best)
    t2i = ranks_of(np.ascontiguousarray(similarity.T), np.repeat(np.arange(images), per_image))
    return Ranks(i2t, t2i.reshape(images, per_image))


def ranks_of(similarity: FloatArray, target: IndexArray) -> IndexArray:
    """The rank from 0 of one candidate a query: similarity (q, n), target (q,) -> (q,).

    Candidates of equal similarity rank by their place, the last first: the order of a stable sort read
    from its end. The toolkit reads an unstable sort from its end, whose ties are left to chance; to count
    only what is strictly better would give an encoder whose embeddings are all the same a full score.
    """
    own = np.take_along_axis(similarity, target[:, None], axis=1)
    tied_after = (similarity == own) & (np.arange(similarity.shape[1]) > target[:, None])
    ranks: IndexArray = np.count_nonzero((similarity > own) | tied_after, axis=1)
    return ranks


def join(folds: Sequence[Ranks]) -> Ranks:
    """The ranks of all folds in one."""
    return Ranks(np.concatenate([fold.i2t for fold in folds]), np.concatenate([fold.t2i for fold in folds]))


def fold_scores(ranks: IndexArray) -> list[float]:
    """Recall in points of the first 1, 5 and 10, and the median rank from 1, as the toolkit computes them."""
    recalls = [100.0 * int((ranks < depth).sum()) / ranks.size for depth in DEPTHS]
    return [*recalls, float(np.floor(np.median(ranks)) + 1)]


def summed_recall(folds: Sequence[Ranks]) -> float:
    """The sum of the six recalls in points, averaged over folds: what chooses the weights.

    Sums in the toolkit's order, for two epochs are compared by ``>``.
    """
    total = 0.0
    for fold in folds:
        (i1, i5, i10, _), (t1, t5, t10, _) = fold_scores(fold.i2t), fold_scores(fold.t2i)
        total += (i1 + i5 + i10 + t1 + t5 + t10) / len(folds)
    return total


def mean_scores(folds: Sequence[Ranks]) -> dict[str, float]:
    """Recalls in [0, 1] and median ranks of both directions, averaged over folds."""
    scores: dict[str, float] = {}
    for direction in ("i2t", "t2i"):
        table = np.array([fold_scores(getattr(fold, direction)) for fold in folds])
        *recalls, median = table.mean(axis=0).tolist()
        scores |= {f"{direction}.recall@{depth}": r / 100 for depth, r in zip(DEPTHS, recalls, strict=True)}
        scores[f"{direction}.median_rank"] = median
    return scores


def recall_of_images(ranks: Ranks) -> npt.NDArray[np.float64]:
    """What each image gives to the mean recall, (i,): the mean over depths and both directions."""
    i2t = np.mean([ranks.i2t < depth for depth in DEPTHS], axis=0)
    t2i = np.mean([(ranks.t2i < depth).mean(axis=1) for depth in DEPTHS], axis=0)
    return np.asarray((i2t + t2i) / 2)
