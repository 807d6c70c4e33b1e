"""Parity of two encoders: how far their embeddings are apart, and what is said of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from stsbench.significance.comparison import compare
from stsbench.significance.comparison_record import Comparison, Difference
from stsbench.significance.parity import (
    DIFFERENT,
    PRACTICAL,
    SAME,
    UNKNOWN,
    EmbeddingForm,
    EncoderEmbeddings,
    compare_embeddings,
    compare_neighbours,
    embedding_distances,
    row_cosines,
)
from tests.boards.scored import probe


def literal_cosine(x: list[float], y: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))


def test_cosines_and_distances_by_hand():
    a = np.array([[3, 4], [1, 0], [0, 0], [0, 0]], dtype=np.float32)
    b = np.array([[6, 8], [0, 2], [0, 0], [1, 0]], dtype=np.float32)
    assert row_cosines(a, b).tolist() == [1, 0, 1, 0]
    np.testing.assert_allclose(
        embedding_distances(a, b), [0.5, math.sqrt(5) / 2, 0, 1], rtol=0, atol=1e-12
    )


def test_the_neighbour_that_changed_most():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(30, 5)).astype(np.float32)
    b = a + 0.3 * rng.normal(size=(30, 5)).astype(np.float32)
    texts = [f"s{i}" for i in range(30)]
    found, kept = compare_neighbours(a, b, texts)
    pairs, same = [], 0
    for i in range(30):
        first, second = (
            [literal_cosine(x[i].tolist(), x[j].tolist()) if j != i else -2.0 for j in range(30)]
            for x in (a, b)
        )
        nearest = max(range(30), key=lambda j: first[j])
        pairs.append((abs(second[nearest] - first[nearest]), texts[i], texts[nearest]))
        same += max(range(30), key=lambda j: second[j]) == nearest
    change, text, neighbour = max(pairs)
    assert (found.text, found.neighbour) == (text, neighbour)
    assert abs(found.cosines[1] - found.cosines[0]) == pytest.approx(change, abs=1e-6)
    assert kept == pytest.approx(same / 30)


RNG = np.random.default_rng(0)
SENTENCES = [
    *(("of the tasks", f"{'word ' * 4}{i}") for i in range(60)),
    *(("long", f"{'word ' * 60}{i}") for i in range(6)),
]
BASE = RNG.normal(size=(66, 16)).astype(np.float32)
DIFFERENCE = Difference(
    first="a", second="b", task="pets", tasks=("pets",), split="test", protocol={"name": "simcse"}, n=60, seeds=(1, 1),
    scores=(0.8, 0.8), deviations=None, difference=0.0, interval=(-0.001, 0.002), error=0.0008, p=0.5,
)  # fmt: skip


def verdict(
    b: Any, *, interval: tuple[float, float] | None = (-0.001, 0.002), kept: str = "float32"
) -> Any:
    difference = replace(DIFFERENCE, interval=interval)
    if interval is not None:
        low, high = interval
        error = (high - low) / 2 / norm.ppf(0.975)
        difference = replace(difference, difference=(low + high) / 2, error=error)
    comparison = Comparison(encoders=["a", "b"], differences=[difference], level=0.05)
    first, second = (
        EncoderEmbeddings(EmbeddingForm("float32", 16), BASE),
        EncoderEmbeddings(EmbeddingForm(kept, b.shape[1]), b),
    )
    return compare_embeddings(first, second, SENTENCES, comparison)


def moved(by: float, rows: Any = slice(None)) -> Any:
    b = BASE.copy()
    b[rows] += by * np.random.default_rng(1).normal(size=BASE[rows].shape).astype(np.float32)
    return b


@pytest.mark.parametrize(
    ("by", "expected"), [(0, SAME), (1e-6, SAME), (0.01, PRACTICAL), (1.0, DIFFERENT)]
)
def test_the_farther_embeddings_are_the_worse(by, expected):
    found = verdict(moved(by))
    assert found.verdict == expected
    assert found.same is (expected != DIFFERENT)
    assert [row.n for row in found.rows] == [60, 6]


@pytest.mark.parametrize(
    ("interval", "expected", "reason"),
    [
        (
            (-0.001, 0.006),
            UNKNOWN,
            "pets: these 60 items leave open if the difference is within ±0.5 points: it may be "
            "-0.10 to +0.60",
        ),
        (
            (-0.02, -0.005),
            UNKNOWN,
            "pets: these 60 items leave open if the difference is within ±0.5 points: it may be "
            "-2.00 to -0.50",
        ),
        (
            (-0.2, -0.1),
            DIFFERENT,
            "pets: the difference is -20.00 to -10.00 points, beyond ±0.5",
        ),
        ((0.006, 0.01), DIFFERENT, "pets: the difference is +0.60 to +1.00 points, beyond ±0.5"),
        (None, UNKNOWN, "pets: no interval of the difference is known"),
    ],
)
def test_only_a_score_that_has_moved_by_more_than_the_margin_tells_them_apart(
    interval, expected, reason
):
    found = verdict(moved(0.01), interval=interval)
    assert (found.verdict, found.reasons) == (expected, [reason])
    assert not found.same


def test_equal_answers_to_few_items_do_not_show_that_encoders_are_the_same():
    """Forty items that both have right or wrong alike leave room for a difference of 13 points."""
    answers = [1] * 30 + [0] * 10
    few = compare({name: [probe(name, "mr", answers)] for name in "ab"})
    many = compare({name: [probe(name, "mr", answers * 30)] for name in "ab"})
    b = moved(0.07)
    first, second = (EncoderEmbeddings(EmbeddingForm("float32", 16), side) for side in (BASE, b))
    found = compare_embeddings(first, second, SENTENCES, few)
    assert found.distance is not None and found.distance > 0.05
    assert (found.verdict, found.same) == (UNKNOWN, False)
    assert found.reasons == [
        "mr: these 40 items leave open if the difference is within ±0.5 points: it may be "
        "-13.05 to +13.05"
    ]
    assert compare_embeddings(first, second, SENTENCES, many).verdict == PRACTICAL


def test_sentences_that_are_off_by_more_than_rounding_are_listed():
    strays = verdict(moved(0.001)).strays
    assert len(strays) == 8 and all(0.9999 < stray.cosine < 1 for stray in strays)


def test_few_sentences_astray_tell_them_apart_whatever_scores_say():
    found = verdict(moved(2.0, slice(60, None)))
    assert found.verdict == DIFFERENT
    assert found.reasons == [
        "6 of 66 sentences have a cosine below 0.99",
        "most are long: one may cut sentences shorter",
    ]
    assert {one.kind for one in found.strays} == {"long"}
    assert [one.cosine for one in found.strays] == sorted(one.cosine for one in found.strays)


CAPITALS = "all of them have capitals: one may lower-case"
NEARLY_ALL = "nearly all: look at pooling, prompt, weights and normalisation"
LONG = "most are long: one may cut sentences shorter"
SHORT = "most are short: one may count padding, or pad on another side"
NOTHING = "they have nothing plain in common"


@pytest.mark.parametrize(
    ("astray", "others", "hint"),
    [
        (["A dog"] * 3, ["a dog"] * 9, CAPITALS),
        (["A dog", "a cat"], ["a dog"] * 9, NOTHING),
        (["a dog"] * 19, ["a cat"] * 2, NEARLY_ALL),
        (["a dog"] * 18, ["a cat"] * 2, NOTHING),
        (["x" * 31] * 3, ["x" * 20] * 9, LONG),
        (["x" * 30] * 3, ["x" * 20] * 9, NOTHING),
        (["x" * 20] * 3, ["x" * 30] * 9, NOTHING),
        (["x" * 20] * 3, ["x" * 31] * 9, SHORT),
    ],
)
def test_what_the_sentences_astray_have_in_common_is_hinted_at(astray, others, hint):
    texts = [*astray, *others]
    a = np.random.default_rng(0).normal(size=(len(texts), 16)).astype(np.float32)
    b = a.copy()
    b[: len(astray)] *= -1
    b[len(astray) :, 0] += 0.01
    comparison = Comparison(encoders=["a", "b"], differences=[DIFFERENCE], level=0.05)
    first, second = (EncoderEmbeddings(EmbeddingForm("float32", 16), side) for side in (a, b))
    found = compare_embeddings(first, second, [("plain", text) for text in texts], comparison)
    count = f"{len(astray)} of {len(texts)} sentences have a cosine below 0.99"
    assert (found.verdict, found.reasons) == (DIFFERENT, [count, hint])


def test_another_length_alone_is_remarked():
    comparison = Comparison(encoders=["a", "b"], differences=[DIFFERENCE], level=0.05)
    unit = BASE / np.linalg.norm(BASE, axis=1, keepdims=True) / 2
    first, second = (
        EncoderEmbeddings(EmbeddingForm("float32", 16), side) for side in (unit, unit * 3)
    )
    found = compare_embeddings(first, second, SENTENCES, comparison)
    assert found.verdict == PRACTICAL
    assert found.reasons[1:] == [
        "their lengths differ (0.5 and 1.5 in the median): one may be normalised"
    ]


def test_other_forms_have_no_cosine():
    for b, kept in ((BASE[:, :8], "float32"), (np.sign(BASE), "binary")):
        found = verdict(b, kept=kept)
        assert (found.verdict, found.rows, found.strays, found.distance) == (
            PRACTICAL,
            [],
            [],
            None,
        )
        assert 0 < found.kept < 1
