"""Which items hang together: against a literal walk from pair to pair."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from stsbench.numbers.clusters import effective_clusters, find_clusters, sentence_columns, sentences_of


def walk(sentences: np.ndarray) -> list[set[int]]:
    """The sets of items that a chain of shared sentences ties."""
    left, found = set(range(len(sentences))), []
    while left:
        reached, new = set(), {min(left)}
        while new:
            reached |= new
            held = {s for item in reached for s in sentences[item]}
            new = {item for item in left - reached if held & set(sentences[item])}
        left -= reached
        found.append(reached)
    return found


def groups(cluster: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(cluster == number)) for number in range(cluster.max() + 1)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("width", [1, 2])
def test_items_that_a_chain_of_sentences_ties_are_one_cluster(seed, width):
    sentences = np.random.default_rng(seed).integers(0, 900 * width, size=(150, width))
    by_size = sorted(map(sorted, groups(find_clusters(sentences))))
    assert by_size == sorted(map(sorted, walk(sentences)))


def test_a_cluster_of_more_than_a_tenth_is_cut_at_its_most_frequent_sentences():
    # Items 0 to 6 are two stars, at 1 and at 2, tied by item 3; all other items are alone.
    tied = [(1, 10), (1, 11), (1, 12), (1, 2), (2, 13), (2, 14), (2, 15)]
    alone = [(100 + 2 * at, 101 + 2 * at) for at in range(43)]
    cluster = find_clusters(np.array(tied + alone))
    assert sorted(map(len, groups(cluster)))[-2:] == [3, 4]
    assert set(map(len, groups(cluster))) == {1, 3, 4}
    # Of a hundred items seven are no tenth: they stay together.
    more = [(1000 + 2 * at, 1001 + 2 * at) for at in range(50)]
    assert max(map(len, groups(find_clusters(np.array(tied + alone + more))))) == 7


def test_a_sentence_that_is_everywhere_ties_nothing():
    cluster = find_clusters(np.array([(0, 1 + at // 2) for at in range(30)]))
    assert groups(cluster) == [{2 * at, 2 * at + 1} for at in range(15)]


def test_a_sentence_is_told_by_the_start_of_its_sha256():
    columns = sentence_columns(["a", "b", "a"], ["ü", "\ud800", "b"])
    assert list(columns) == ["sentence1", "sentence2"] and columns["sentence1"].dtype == np.uint32
    assert columns["sentence1"][1] == int.from_bytes(hashlib.sha256(b"b").digest()[:4], "little")
    assert columns["sentence1"][0] == columns["sentence1"][2] != columns["sentence1"][1] == columns["sentence2"][2]
    found = sentences_of(columns)
    assert found is not None and found.shape == (3, 2)
    assert sentences_of({"gold": np.zeros(3)}) is None
    (single,) = sentence_columns(["a"]).values()
    assert single.shape == (1,)


def test_effective_clusters_count_clusters_of_equal_weight():
    assert effective_clusters(np.array([0, 0, 1, 1]), np.ones(4)) == 2
    assert effective_clusters(np.array([0, 1, 2, 2]), np.array([1.0, 1.0, 0.5, 0.5])) == 3
    assert effective_clusters(np.array([0, 0, 0, 1]), np.ones(4)) == pytest.approx(16 / 10)
