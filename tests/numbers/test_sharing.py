"""Sums over items that share sentences: against a literal double loop."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from stsbench.numbers.sharing import Sharing, sentence_columns, sentences_of


def literal(sentences: np.ndarray, shares: np.ndarray) -> float:
    """The sum of products over all pairs of items that have a sentence in common, each item with itself too."""
    held, n = [set(row) for row in sentences.tolist()], len(sentences)
    return float(sum(shares[i] * shares[j] for i in range(n) for j in range(n) if held[i] & held[j]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width", [1, 2])
def test_a_variance_is_the_sum_over_items_that_share_a_sentence(seed, width):
    rng = np.random.default_rng(seed)
    # Few sentences: some pairs stand twice, either way round, and some hold one sentence twice.
    sentences, shares = rng.integers(0, 25, size=(80, width)), rng.normal(size=(3, 80)) + 0.5
    sharing = Sharing(sentences)
    found = sharing.covariance(shares)
    for at in range(3):
        assert found[at, at] == pytest.approx(literal(sentences, shares[at]))
        assert sharing.variance(shares[at]) == pytest.approx(found[at, at])
    both = literal(sentences, shares[0] + shares[1]) - found[0, 0] - found[1, 1]
    assert found[0, 1] == pytest.approx(both / 2)
    assert not sharing.independent and len(sharing) == 80


def test_a_sum_that_is_too_small_is_that_of_the_items_alone():
    # One sentence is in every pair: what all have in common adds up to nothing.
    shares = np.array([1.0, -2.0, 3.0, -2.0])
    sentences = np.stack([np.zeros(4, dtype=np.int64), np.arange(1, 5)], axis=1)
    assert literal(sentences, shares) == 0
    assert Sharing(sentences).variance(shares) == 18
    # Here the same pair stands twice, and is one item.
    doubled = np.array([(0, 1), (1, 0), (0, 2), (0, 3)])
    assert Sharing(doubled).variance(np.array([1.0, 1.0, -1.0, -1.0])) == 4 + 1 + 1


@pytest.mark.parametrize(
    ("sentences", "independent"),
    [
        ([(0, 1), (2, 3)], True),
        ([(0, 0), (2, 3)], True),
        ([(0, 1), (1, 2)], False),
        ([(0, 1), (1, 0)], False),
        ([(0,), (1,)], True),
        ([(0,), (0,)], False),
    ],
)
def test_items_are_independent_where_no_two_share_a_sentence(sentences, independent):
    assert Sharing(np.array(sentences)).independent is independent


def test_items_without_sentences_are_by_themselves():
    shares = np.arange(5.0)
    assert Sharing.none(5).independent and Sharing.none(5).variance(shares) == shares @ shares


def test_effective_items_count_independent_ones_of_equal_weight():
    assert Sharing.none(4).effective_items(np.ones(4)) == 4
    assert Sharing(np.array([(0,), (0,), (1,), (1,)])).effective_items(np.ones(4)) == 2
    assert Sharing.none(4).effective_items(np.array([1.0, 1.0, 1.0, 3.0])) == pytest.approx(36 / 12)


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


@pytest.mark.parametrize("seed", range(5))
def test_the_variance_of_every_two_rows_difference_is_that_of_their_difference_alone(seed):
    rng = np.random.default_rng(seed)
    sentences, shares = rng.integers(0, 12, size=(30, 2)), rng.normal(size=(5, 30))
    if seed % 2:
        # One sentence is in every pair: of rows that add up to nothing, so do the sums over what they share.
        sentences[:, 0], shares = 99, shares - shares.mean(axis=1, keepdims=True)
    sharing = Sharing(sentences)
    found = sharing.variances_of_differences(shares)
    expected = [[sharing.variance(a - b) for b in shares] for a in shares]
    np.testing.assert_allclose(found, expected, atol=1e-12)
