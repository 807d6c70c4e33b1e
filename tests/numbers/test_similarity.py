"""Cosine against a literal computation in float64."""

import math

import numpy as np
import pytest

from stsbench.numbers.similarity import SIMILARITIES, are_bits, paired_cosine, paired_similarities


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


def test_by_hand():
    a = np.array([[3, 4], [1, 0], [1, 0], [2, 2]], dtype=np.float32)
    b = np.array([[4, 3], [0, 5], [-2, 0], [1, 1]], dtype=np.float32)
    similarity, _ = paired_cosine(a, b)
    np.testing.assert_allclose(similarity, [24 / 25, 0, -1, 1], rtol=0, atol=1e-15)


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


def test_the_order_and_the_rows_beside_do_not_matter():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 20, 7)).astype(np.float32)
    all_at_once, _ = paired_cosine(a, b)
    one_by_one = [paired_cosine(a[i : i + 1], b[i : i + 1])[0][0] for i in range(20)]
    np.testing.assert_allclose(all_at_once, one_by_one, rtol=0, atol=1e-15)
    assert paired_cosine(b, a)[0].tolist() == all_at_once.tolist()


def test_no_pairs():
    similarity, zero = paired_cosine(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32))
    assert (similarity.shape, zero.shape) == ((0,), (0,))


def test_four_similarities_agree_with_their_definitions():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 20, 7)).astype(np.float32)
    cosine, dot, manhattan, euclidean = paired_similarities(a, b)
    for i, (x, y) in enumerate(zip(a.astype(float).tolist(), b.astype(float).tolist(), strict=True)):
        assert cosine[i] == pytest.approx(literal(x, y), abs=1e-12)
        assert dot[i] == pytest.approx(math.fsum(p * q for p, q in zip(x, y, strict=True)), abs=1e-12)
        assert manhattan[i] == pytest.approx(-math.fsum(abs(p - q) for p, q in zip(x, y, strict=True)), abs=1e-12)
        assert euclidean[i] == pytest.approx(-math.dist(x, y), abs=1e-12)


def test_the_dot_product_of_integers_is_that_of_whole_numbers():
    rng = np.random.default_rng(1)
    a, b = rng.integers(-128, 128, size=(2, 40, 1024))
    a[3] = 0
    found, zero = SIMILARITIES["dot"](a.astype(np.float32), b.astype(np.float32))
    assert found.tolist() == [
        sum(x * y for x, y in zip(v, w, strict=True)) for v, w in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert np.flatnonzero(zero).tolist() == [3]


def test_the_hamming_distance_of_bits_is_that_of_packed_bytes():
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2, size=(2, 40, 77))
    packed = np.packbits(bits, axis=-1)
    expected = [
        -sum((x ^ y).bit_count() for x, y in zip(v, w, strict=True)) for v, w in zip(*packed.tolist(), strict=True)
    ]
    for a, b in (bits, 2 * bits - 1):
        found, zero = SIMILARITIES["hamming"](a.astype(np.float32), b.astype(np.float32))
        assert found.tolist() == expected
        assert not zero.any()


def test_the_cosine_of_signed_bits_is_their_hamming_distance_in_other_units():
    a, b = np.random.default_rng(3).choice([-1.0, 1.0], size=(2, 30, 64)).astype(np.float32)
    np.testing.assert_allclose(paired_cosine(a, b)[0], 1 + SIMILARITIES["hamming"](a, b)[0] / 32, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("rows", "bits"), [([[0, 1], [1, 1]], True), ([[0, 1], [2, 1]], False), ([[5, 5]], True)])
def test_bits_are_two_numbers_at_most(rows, bits):
    assert are_bits(np.array(rows, dtype=np.float32)) is bits
