"""Smaller embeddings against sentence-transformers' own, and against a literal computation."""

import math
from typing import Any

import numpy as np
import pytest

from stsbench.numbers.quantise import TYPES, to_bits, to_integers, truncate
from stsbench.numbers.similarity import paired_cosine


def embeddings(n: int, d: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def ranges_of(x: Any) -> Any:
    return np.array([x.min(axis=0), x.max(axis=0)])


@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_integers_are_those_of_sentence_transformers(name):
    library = pytest.importorskip("sentence_transformers.util.quantization", reason="needs sentence-transformers")
    calibration, x = embeddings(500, 24), 1.5 * embeddings(200, 24, seed=1)
    calibration[:, 5] = 0.25
    expected = library.quantize_embeddings(x, precision=name, calibration_embeddings=calibration)
    found = to_integers(x, ranges_of(calibration), signed=TYPES[name].signed)
    assert found.dtype == np.float32
    assert np.array_equal(found, expected.astype(np.float32))
    # Some lie outside the range, and none wraps around.
    outside = x[:, 0] > calibration[:, 0].max()
    assert outside.any()
    assert set(found[outside, 0].tolist()) == {127.0 if name == "int8" else 255.0}


@pytest.mark.parametrize("name", ["binary", "ubinary"])
def test_bits_are_those_of_sentence_transformers_unpacked(name):
    library = pytest.importorskip("sentence_transformers.util.quantization", reason="needs sentence-transformers")
    x = embeddings(50, 21)
    x[0, :3] = 0
    packed = library.quantize_embeddings(x, precision=name)
    unpacked = np.unpackbits((packed.astype(np.int16) + (128 if name == "binary" else 0)).astype(np.uint8), axis=1)[
        :, :21
    ]
    found = to_bits(x, signed=TYPES[name].signed)
    assert np.array_equal(found > 0, unpacked.astype(bool))
    assert set(np.unique(found).tolist()) == ({-1.0, 1.0} if name == "binary" else {0.0, 1.0})
    assert TYPES[name].bytes(21) == packed.shape[1]


def test_integers_by_hand():
    ranges = np.array([[-1.0, 0.0], [254.0, 127.5]], dtype=np.float32)
    x = np.array([[-1.0, 0.0], [254.0, 127.25], [126.5, 300.0], [-9.0, 0.5]], dtype=np.float32)
    assert to_integers(x, ranges, signed=False).tolist() == [[0, 0], [255, 254], [127, 255], [0, 1]]
    assert to_integers(x, ranges, signed=True).tolist() == [[-128, -128], [127, 126], [-1, 127], [-128, -127]]


def test_the_cosine_of_values_made_back_from_integers_is_that_of_the_floats():
    x = embeddings(400, 96)
    ranges = ranges_of(x)
    back = ranges[0] + (to_integers(x, ranges, signed=False) + 0.5) * (ranges[1] - ranges[0]) / 255
    exact, found = paired_cosine(x[:200], x[200:])[0], paired_cosine(back[:200], back[200:])[0]
    # A step is 1/255 of a range of about 6 deviations: its error, spread evenly, is 0.7% of a deviation.
    assert np.abs(found - exact).max() < 0.003


def test_fewer_numbers_have_length_one():
    x = embeddings(30, 12)
    x[4, :5] = 0
    found = truncate(x, 5)
    for row, whole in zip(found.tolist(), x.tolist(), strict=True):
        length = math.sqrt(math.fsum(value * value for value in whole[:5])) or 1.0
        assert row == pytest.approx([value / length for value in whole[:5]], abs=1e-7)
    assert not found[4].any()


@pytest.mark.parametrize(
    ("name", "size"), [("float32", 1536), ("int8", 384), ("uint8", 384), ("binary", 48), ("ubinary", 48)]
)
def test_bytes_of_an_embedding(name, size):
    assert TYPES[name].bytes(384) == size
