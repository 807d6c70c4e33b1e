"""Similarities, closeness and smaller embeddings against literal computations and the libraries."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from stsbench.numbers import similarity as closeness
from stsbench.numbers.similarity import (
    EMBEDDING_TYPES,
    SIMILARITIES,
    alignment,
    are_bits,
    paired_cosine,
    paired_similarities,
    to_bits,
    to_integers,
    truncate,
    uniformity,
)


def literal(a: list[float], b: list[float]) -> float:
    """The cosine of two vectors, exactly rounded sums."""
    dot = math.fsum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))


@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e18])
def test_agrees_with_the_definition(scale):
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(2, 50, 33)) * scale).astype(np.float32)
    found, zero = paired_cosine(a, b)
    assert found.dtype == np.float64
    expected = [literal(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    assert not zero.any()


def test_float32_embeddings_keep_differences_that_float32_arithmetic_loses():
    # 1 - cosine is 5e-11 and 2e-10: ties in float32, ranks in float64.
    a = np.array([[1, 0], [1, 0]], dtype=np.float32)
    b = np.array([[1, 1e-5], [1, 2e-5]], dtype=np.float32)
    similarity, _ = paired_cosine(a, b)
    assert similarity[0] > similarity[1]
    assert len(set(similarity.astype(np.float32).tolist())) == 1


def test_a_zero_vector_on_either_side_scores_zero_and_is_told():
    a = np.array([[0, 0], [1, 2], [0, 0], [1, 2]], dtype=np.float32)
    b = np.array([[1, 2], [0, 0], [0, 0], [1, 2]], dtype=np.float32)
    similarity, zero = paired_cosine(a, b)
    np.testing.assert_allclose(similarity, [0, 0, 0, 1], atol=1e-15)
    assert zero.tolist() == [True, True, True, False]


def test_tiny_is_not_zero():
    # The smallest float32: its square is zero in float32.
    tiny = np.array([[1.4e-45, 0]], dtype=np.float32)
    similarity, zero = paired_cosine(tiny, tiny)
    assert (similarity.tolist(), zero.tolist()) == ([1.0], [False])


def test_four_similarities_agree_with_their_definitions():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 20, 7)).astype(np.float32)
    cosine, dot, manhattan, euclidean = paired_similarities(a, b)
    for i, (x, y) in enumerate(
        zip(a.astype(float).tolist(), b.astype(float).tolist(), strict=True)
    ):
        assert cosine[i] == pytest.approx(literal(x, y), abs=1e-12)
        assert dot[i] == pytest.approx(
            math.fsum(p * q for p, q in zip(x, y, strict=True)), abs=1e-12
        )
        assert manhattan[i] == pytest.approx(
            -math.fsum(abs(p - q) for p, q in zip(x, y, strict=True)), abs=1e-12
        )
        assert euclidean[i] == pytest.approx(-math.dist(x, y), abs=1e-12)


def test_the_dot_product_of_integers_is_that_of_whole_numbers():
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 128, size=(2, 40, 1024))
    a[3] = 0
    found, zero = SIMILARITIES["dot"](a.astype(np.float32), b.astype(np.float32))
    assert found.tolist() == [
        sum(x * y for x, y in zip(v, w, strict=True))
        for v, w in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert np.flatnonzero(zero).tolist() == [3]


def test_the_hamming_distance_of_bits_is_that_of_packed_bytes():
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2, size=(2, 40, 77))
    packed = np.packbits(bits, axis=-1)
    expected = [
        -sum((x ^ y).bit_count() for x, y in zip(v, w, strict=True))
        for v, w in zip(*packed.tolist(), strict=True)
    ]
    for a, b in (bits, 2 * bits - 1):
        found, zero = SIMILARITIES["hamming"](a.astype(np.float32), b.astype(np.float32))
        assert found.tolist() == expected
        assert not zero.any()


@pytest.mark.parametrize(
    ("rows", "bits"), [([[0, 1], [1, 1]], True), ([[0, 1], [2, 1]], False), ([[5, 5]], True)]
)
def test_bits_are_two_numbers_at_most(rows, bits):
    assert are_bits(np.array(rows, dtype=np.float32)) is bits


X = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
Y = np.random.default_rng(2).normal(size=(7, 3)).astype(np.float32)


def squared_distance(u: Any, v: Any) -> float:
    u, v = ([float(one) / math.hypot(*map(float, row)) for one in row] for row in (u, v))
    return math.dist(u, v) ** 2


def test_alignment_is_the_mean_squared_distance_of_pairs():
    wanted = sum(squared_distance(u, v) for u, v in zip(X, Y, strict=True)) / 7
    assert alignment(X, Y) == pytest.approx(wanted, rel=1e-12)
    assert alignment(X, 3 * X) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("rows", [2, 7, 1024])
def test_uniformity_is_over_distinct_pairs_however_many_rows_go_at_once(monkeypatch, rows):
    monkeypatch.setattr(closeness, "ROWS_AT_ONCE", rows)
    terms = [math.exp(-2 * squared_distance(u, v)) for u, v in itertools.combinations(X, 2)]
    assert uniformity(X) == pytest.approx(math.log(sum(terms) / len(terms)), rel=1e-12)


def test_embeddings_that_are_all_alike_are_the_least_uniform():
    assert uniformity(np.ones((4, 3))) == pytest.approx(0, abs=1e-12)
    assert uniformity(np.zeros((4, 3))) == 0


def embeddings(n: int, d: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def ranges_of(x: Any) -> Any:
    return np.array([x.min(axis=0), x.max(axis=0)])


@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_integers_are_those_of_sentence_transformers(name):
    library = pytest.importorskip(
        "sentence_transformers.util.quantization", reason="needs sentence-transformers"
    )
    calibration, x = embeddings(500, 24), 1.5 * embeddings(200, 24, seed=1)
    calibration[:, 5] = 0.25
    expected = library.quantize_embeddings(x, precision=name, calibration_embeddings=calibration)
    found = to_integers(x, ranges_of(calibration), signed=EMBEDDING_TYPES[name].signed)
    assert EMBEDDING_TYPES[name].bytes(21) == 21 and EMBEDDING_TYPES["float32"].bytes(21) == 84
    assert found.dtype == np.float32
    assert np.array_equal(found, expected.astype(np.float32))
    # Some lie outside the range, and none wraps around.
    outside = x[:, 0] > calibration[:, 0].max()
    assert outside.any()
    assert set(found[outside, 0].tolist()) == {127.0 if name == "int8" else 255.0}


@pytest.mark.parametrize("name", ["binary", "ubinary"])
def test_bits_are_those_of_sentence_transformers_unpacked(name):
    library = pytest.importorskip(
        "sentence_transformers.util.quantization", reason="needs sentence-transformers"
    )
    x = embeddings(50, 21)
    x[0, :3] = 0
    packed = library.quantize_embeddings(x, precision=name)
    unpacked = np.unpackbits(
        (packed.astype(np.int16) + (128 if name == "binary" else 0)).astype(np.uint8), axis=1
    )[:, :21]
    found = to_bits(x, signed=EMBEDDING_TYPES[name].signed)
    assert np.array_equal(found > 0, unpacked.astype(bool))
    assert set(np.unique(found).tolist()) == ({-1.0, 1.0} if name == "binary" else {0.0, 1.0})
    assert EMBEDDING_TYPES[name].bytes(21) == packed.shape[1]


def test_fewer_numbers_have_length_one():
    x = embeddings(30, 12)
    x[4, :5] = 0
    found = truncate(x, 5)
    for row, whole in zip(found.tolist(), x.tolist(), strict=True):
        length = math.sqrt(math.fsum(value * value for value in whole[:5])) or 1.0
        assert row == pytest.approx([value / length for value in whole[:5]], abs=1e-7)
    assert not found[4].any()
    # Squares of numbers so large and so small are none of float32.
    for scale in (1e-30, 1e30):
        extreme = truncate((x * scale).astype(np.float32), 5)
        np.testing.assert_allclose(extreme, found, atol=1e-6)
