"""Verdicts on two encoders: by embeddings that are made to differ, and by scores whose intervals are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stsbench.compare.comparison import Comparison, Difference
from stsbench.compare.parity import DIFFERENT, PRACTICAL, SAME, Embedded, Form, judge

RNG = np.random.default_rng(0)
SENTENCES = [
    *(("of the tasks", f"{'word ' * 4}{i}") for i in range(60)),
    *(("long", f"{'word ' * 60}{i}") for i in range(6)),
]
BASE = RNG.normal(size=(66, 16)).astype(np.float32)
DIFFERENCE = Difference(
    first="a", second="b", task="pets", tasks=("pets",), split="test", protocol={"name": "simcse"}, n=60, seeds=(1, 1),
    scores=(0.8, 0.8), deviations=None, difference=0.0, interval=(-0.001, 0.002), p=0.5, p_williams=None,
)  # fmt: skip


def verdict(b: Any, *, interval: tuple[float, float] | None = (-0.001, 0.002), kept: str = "float32") -> Any:
    comparison = Comparison(encoders=["a", "b"], differences=[replace(DIFFERENCE, interval=interval)], level=0.05)
    first, second = Embedded(Form("float32", 16), BASE), Embedded(Form(kept, b.shape[1]), b)
    return judge(first, second, SENTENCES, comparison)


def moved(by: float, rows: Any = slice(None)) -> Any:
    b = BASE.copy()
    b[rows] += by * np.random.default_rng(1).normal(size=BASE[rows].shape).astype(np.float32)
    return b


@pytest.mark.parametrize(("by", "expected"), [(0, SAME), (1e-6, SAME), (0.01, PRACTICAL), (1.0, DIFFERENT)])
def test_the_farther_embeddings_are_the_worse(by, expected):
    found = verdict(moved(by))
    assert found.verdict == expected
    assert found.same is (expected != DIFFERENT)
    assert [row.n for row in found.rows] == [60, 6]


@pytest.mark.parametrize(
    ("interval", "reason"),
    [
        ((-0.001, 0.006), "pets: the difference may be -0.10 to +0.60 points, beyond ±0.5"),
        ((-0.2, -0.1), "pets: the difference may be -20.00 to -10.00 points, beyond ±0.5"),
        (None, "pets: no interval of the difference is known"),
    ],
)
def test_a_score_that_may_have_moved_tells_them_apart(interval, reason):
    found = verdict(moved(0.01), interval=interval)
    assert (found.verdict, found.reasons) == (DIFFERENT, [reason])


def test_few_sentences_astray_tell_them_apart_whatever_scores_say():
    found = verdict(moved(2.0, slice(60, None)))
    assert found.verdict == DIFFERENT
    assert found.reasons == [
        "6 of 66 sentences have a cosine below 0.99",
        "most are long: one may cut sentences shorter",
    ]
    assert {one.kind for one in found.strays} == {"long"}
    assert [one.cosine for one in found.strays] == sorted(one.cosine for one in found.strays)


def test_all_sentences_astray_have_a_cause_in_common():
    assert "nearly all: look at pooling, prompt, weights and normalisation" in verdict(moved(3.0)).reasons


def test_another_length_alone_is_remarked():
    found = verdict(BASE * 3)
    assert found.verdict == PRACTICAL
    assert any("their lengths differ" in reason for reason in found.reasons)


def test_other_forms_have_no_cosine():
    for b, kept in ((BASE[:, :8], "float32"), (np.sign(BASE), "binary")):
        found = verdict(b, kept=kept)
        assert (found.verdict, found.rows, found.strays, found.distance) == (PRACTICAL, [], [], None)
        assert 0 < found.kept < 1
