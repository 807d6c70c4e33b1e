"""Which items hang together: pairs that share a sentence are not drawn independently of each other.

Two pairs that hold one sentence are wrong together where an encoder embeds that sentence badly. Items tied by a
chain of shared sentences are one cluster; clusters are independent of each other, items within one need not be.
The variance of a sum over items is then the sum over clusters of the squared sums within them (Liang and Zeger
1986; for pairs with a common member Fafchamps and Gubert 2007 and Aronow, Samii and Assenova 2015, whose variance
has the same expectation, and need not be positive as this one is).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
SentenceKeys = npt.NDArray[np.uint32]
COLUMNS = ("sentence1", "sentence2")
"""The per-item columns that tell which sentences an item holds."""
LARGE = 0.1
"""A chain of more than this share of all items is cut: too few clusters would be left to tell a variance."""


def sentence_columns(*sides: Sequence[str]) -> dict[str, SentenceKeys]:
    """The first four bytes of each sentence's sha256, as per-item columns: one side, or both of pairs.

    Two of 26,000 different sentences are taken for one with probability 0.08, and then only two clusters are joined.
    """
    return {name: _keys(side) for name, side in zip(COLUMNS, sides, strict=False)}


def _keys(sentences: Sequence[str]) -> SentenceKeys:
    known = {text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:4] for text in set(sentences)}
    return np.frombuffer(b"".join(known[text] for text in sentences), dtype="<u4").astype(np.uint32)


def sentences_of(columns: Mapping[str, npt.NDArray[Any]]) -> IntArray | None:
    """The sentences of each item, (n, 1) or (n, 2), from per-item columns; None where these do not tell them."""
    known = [columns[name].astype(np.int64) for name in COLUMNS if name in columns]
    return np.stack(known, axis=1) if known else None


def find_clusters(sentences: IntArray) -> IntArray:
    """Number the clusters of items that share sentences, directly or through other items.

    A cluster of more than a tenth of the items is cut: each of its items goes to the more frequent of its sentences.
    A sentence of more than a tenth of the items is taken as given, and its items go to their other sentence.

    Args:
        sentences: the sentences of each item, (n, m).

    Returns:
        The cluster of each item, (n,), from 0 on.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, flat = np.unique(sentences.ravel(), return_inverse=True)
    nodes = flat.reshape(sentences.shape)
    first, last = nodes[:, 0], nodes[:, -1]
    count = int(nodes.max()) + 1
    links = coo_array((np.ones(len(nodes)), (first, last)), shape=(count, count))
    _, component = connected_components(links, directed=False)
    frequency = np.bincount(flat)
    star = np.where(frequency[first] >= frequency[last], first, last)
    cluster = component[first].astype(np.int64)
    for finer in (count + star, 2 * count + first + last - star):
        cluster = np.where(_size(cluster) > LARGE * len(nodes), finer, cluster)
    _, numbered = np.unique(cluster, return_inverse=True)
    return numbered.astype(np.int64)


def _size(cluster: IntArray) -> IntArray:
    """How many items each item's cluster has, (n,)."""
    _, numbered, sizes = np.unique(cluster, return_inverse=True, return_counts=True)
    found: IntArray = sizes[numbered]
    return found


def effective_clusters(cluster: IntArray, weights: npt.NDArray[np.float64]) -> float:
    """How many clusters of equal weight would tell as much; weights, (n,), are the items' shares of the score."""
    sums = np.bincount(cluster, weights=weights)
    return float(sums.sum() ** 2 / (sums @ sums))
