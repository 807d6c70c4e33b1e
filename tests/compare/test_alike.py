"""Cosines, distances and neighbours against literal computations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stsbench.compare import alike
from stsbench.compare.alike import PROBES, cosines_of, distances, neighbours


def literal_cosine(x: list[float], y: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))


def test_cosines_and_distances_by_hand():
    a = np.array([[3, 4], [1, 0], [0, 0], [0, 0]], dtype=np.float32)
    b = np.array([[6, 8], [0, 2], [0, 0], [1, 0]], dtype=np.float32)
    assert cosines_of(a, b).tolist() == [1, 0, 1, 0]
    np.testing.assert_allclose(distances(a, b), [0.5, math.sqrt(5) / 2, 0, 1], rtol=0, atol=1e-12)


def test_the_neighbour_that_changed_most():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(30, 5)).astype(np.float32)
    b = a + 0.3 * rng.normal(size=(30, 5)).astype(np.float32)
    texts = [f"s{i}" for i in range(30)]
    found, kept = neighbours(a, b, texts)
    pairs, same = [], 0
    for i in range(30):
        first, second = (
            [literal_cosine(x[i].tolist(), x[j].tolist()) if j != i else -2.0 for j in range(30)] for x in (a, b)
        )
        nearest = max(range(30), key=lambda j: first[j])
        pairs.append((abs(second[nearest] - first[nearest]), texts[i], texts[nearest]))
        same += max(range(30), key=lambda j: second[j]) == nearest
    change, text, neighbour = max(pairs)
    assert (found.text, found.neighbour) == (text, neighbour)
    assert abs(found.change) == pytest.approx(change, abs=1e-6)
    assert kept == pytest.approx(same / 30)


def test_of_many_sentences_some_are_compared(monkeypatch):
    monkeypatch.setattr(alike, "MOST", 4)
    x = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    found, kept = neighbours(x, x[:, :3], [str(i) for i in range(100)])
    assert {found.text, found.neighbour} <= {"0", "33", "66", "99"}
    assert (found.change, kept) == (0, 1)


def test_the_probes_hold_what_encoders_differ_on():
    kinds = {kind for kind, _ in PROBES}
    assert {"empty", "long", "capitals", "other scripts", "special tokens"} <= kinds
    assert len({text for _, text in PROBES}) == len(PROBES)
    assert max(len(text.split()) for _, text in PROBES) > 512
