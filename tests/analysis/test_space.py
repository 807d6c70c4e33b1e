"""Singular values and isotropy against numpy and against sums over pairs, whatever the blocks."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA

from stsbench.analysis import (
    alignment,
    collapse,
    mean_cosine,
    partition_isotropy,
    singular_values,
    uniformity,
)
from stsbench.analysis.context import make_analysis
from stsbench.analysis.pairs import AlignmentAndUniformity, GoldAgainstCosine, gold_bins
from stsbench.analysis.space import Neighbours, SentenceMap, Spectrum, nearest, principal_plane
from stsbench.core.errors import CardError, DataError
from stsbench.encoders import base as seams
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain

X = np.random.default_rng(3).normal(size=(23, 5)).astype(np.float32) + 0.5


@pytest.fixture(params=[1, 7, 4096])
def rows(request, monkeypatch):
    monkeypatch.setattr(seams, "ROWS_AT_ONCE", request.param)
    return request.param


def test_singular_values_are_numpys(rows):
    assert singular_values(X) == pytest.approx(
        np.linalg.svd(X.astype(float), compute_uv=False), rel=1e-9
    )


def test_the_mean_cosine_is_over_distinct_pairs(rows):
    x = X.astype(float)
    wanted = [
        u @ v / np.linalg.norm(u) / np.linalg.norm(v) for u, v in itertools.combinations(x, 2)
    ]
    assert mean_cosine(X) == pytest.approx(np.mean(wanted), rel=1e-9)
    assert mean_cosine(np.array([[1.0, 0.0], [0.0, 0.0]])) == 0


def test_isotropy_is_the_smallest_over_the_largest_partition_function(rows):
    x = X.astype(float) / np.linalg.norm(X.astype(float), axis=1).mean()
    _, vectors = np.linalg.eigh(x.T @ x)
    sums = [sum(np.exp(sign * c @ row) for row in x) for c in vectors.T for sign in (1, -1)]
    assert partition_isotropy(X) == pytest.approx(min(sums) / max(sums), rel=1e-9)
    assert partition_isotropy(10 * X) == pytest.approx(partition_isotropy(X), rel=1e-6)
    assert partition_isotropy(np.zeros((3, 2))) == 1


def test_the_table_is_of_distinct_sentences_and_the_spectrum_of_shares():
    found = Spectrum().tables(bed(Plain(d=3)))
    texts = sorted({text for text in bed(Plain()).loaded_task.task.texts()})
    values = np.linalg.svd(Plain(d=3).encode(texts).astype(float), compute_uv=False)
    assert [row["value"] for row in found["values"]] == pytest.approx((values / values[0]).tolist())
    p = values / values.sum()
    (row,) = found["encoders"]
    assert row["effective_rank"] == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    assert row["first_share"] == pytest.approx(values[0] ** 2 / (values**2).sum())
    assert (row["sentences"], row["dimensions"]) == (len(texts), 3)


FLAT = np.random.default_rng(7).normal(size=(31, 6)) * [5, 1, 4, 1, 1, 1] + 3


@pytest.mark.parametrize("rows", [5, 4096])
def test_the_plane_is_that_of_scikit_learn(monkeypatch, rows):
    monkeypatch.setattr(seams, "ROWS_AT_ONCE", rows)
    mean, plane = principal_plane(FLAT)
    wanted = PCA(2).fit(FLAT).components_
    assert mean == pytest.approx(FLAT.mean(axis=0))
    assert np.abs(plane.T) == pytest.approx(np.abs(wanted), abs=1e-8)
    assert all(column[np.abs(column).argmax()] > 0 for column in plane.T)


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_pairs_are_placed_and_joined_the_same_each_time(method):
    found, again = (
        SentenceMap(method=method, above=2.5, pairs=5).tables(bed(Plain())) for _ in range(2)
    )
    assert found == again
    points = {(row["pair"], row["side"]): np.array([row["x"], row["y"]]) for row in found["points"]}
    joins = [np.linalg.norm(points[pair, 1] - points[pair, 2]) for pair in range(5)]
    (row,) = found["encoders"]
    assert (len(points), row["join"]) == (10, pytest.approx(np.mean(joins)))


@pytest.mark.parametrize(
    ("analysis", "task", "said"),
    [
        (
            SentenceMap(above=9.0),
            "quickstart-en",
            "fewer than 3 pairs of quickstart-en have a gold score above 9",
        ),
        (
            AlignmentAndUniformity(above=9.0),
            "quickstart-en",
            "no pairs of quickstart-en have a gold score above 9; choose another threshold: `params=above=",
        ),
        (
            GoldAgainstCosine(),
            "quickstart-probe",
            "quickstart-probe has no sentence pairs with gold scores",
        ),
    ],
)
def test_a_task_without_the_pairs_is_refused(analysis, task, said):
    with pytest.raises(DataError, match=said):
        analysis.tables(bed(Plain(), task=task))


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("map", {"pairs": 1}, "analysis 'map': key 'pairs': expected a whole number >= 3, not 1"),
        (
            "map",
            {"method": "pac"},
            "key 'method': 'pac' is not one of pca, tsne; did you mean 'pca'",
        ),
        ("tokens", {"removed": [-1, 2]}, "key 'removed': expected a whole number >= 0"),
        ("layers", {"picture": "head"}, "key 'picture': 'head' is not one of lines, heat"),
        ("neighbours", {"k": "many"}, "key 'k': expected"),
        ("errors", {"pairs": 3}, "unknown key 'pairs'"),
    ],
)
def test_parameters_are_held_to_their_types(name, parameters, said):
    with pytest.raises(CardError, match=said):
        make_analysis(name, parameters)
    assert make_analysis("neighbours", {"query": "one sentence"}) == Neighbours(
        query="one sentence"
    )


NEAR = np.random.default_rng(6).normal(size=(29, 4)).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 6, 4096])
def test_the_nearest_are_the_first_of_all_cosines(monkeypatch, rows):
    monkeypatch.setattr(seams, "ROWS_AT_ONCE", rows)
    unit = NEAR.astype(float) / np.linalg.norm(NEAR.astype(float), axis=1, keepdims=True)
    cosines = unit[:5] @ unit.T
    found = nearest(NEAR[:5], NEAR, 7)
    assert found.rows.tolist() == np.argsort(-cosines, axis=1)[:, :7].tolist()
    assert found.cosines == pytest.approx(np.sort(cosines, axis=1)[:, ::-1][:, :7])
    others = nearest(NEAR[:5], NEAR, 6, excluded=np.arange(5))
    assert others.rows.tolist() == found.rows[:, 1:].tolist()


def test_neighbours_stand_side_by_side_and_their_overlap_is_counted():
    one, other = Plain("one"), Plain("other", d=9)
    found = Neighbours(query="what is this?", k=2, sample=4).tables(bed(one, other))
    texts = list(dict.fromkeys(bed(one).loaded_task.task.load("test").texts()))
    for encoder in (one, other):
        x, q = (
            encoder.encode(texts).astype(float),
            encoder.encode(["what is this?"])[0].astype(float),
        )
        order = sorted(range(len(texts)), key=lambda at: -(x[at] @ q) / np.linalg.norm(x[at]))
        assert [row[encoder.name] for row in found["side_by_side"]] == [
            texts[at] for at in order[:2]
        ]
    shared = {(row["encoder"], row["other"]): row["shared"] for row in found["agreement"]}
    assert shared["one", "one"] == 1 and shared["one", "other"] == shared["other", "one"] < 1


def test_a_query_of_the_task_is_not_its_own_neighbour():
    found = Neighbours(k=3).tables(bed(Plain()))["neighbours"]
    assert len(found) == 9
    assert all(row["query"] != row["sentence"] for row in found)


def test_all_other_sentences_are_the_most_neighbours_that_a_query_has():
    context = bed(Plain())
    n_texts = len({*context.loaded_task.task.load("test").texts()})
    found = Neighbours(k=n_texts).tables(context)["neighbours"]
    assert len(found) == 3 * (n_texts - 1)
    assert all(row["query"] != row["sentence"] for row in found)


SIDE = np.random.default_rng(1).normal(size=(9, 4))
Y = np.random.default_rng(2).normal(size=(9, 4))


def unit(row: Any) -> list[float]:
    length = math.sqrt(sum(float(one) ** 2 for one in row))
    return [float(one) / length for one in row]


def squared(u: Any, v: Any) -> float:
    return sum((a - b) ** 2 for a, b in zip(unit(u), unit(v), strict=True))


@pytest.mark.parametrize("scale", [1.0, 1e-3, 250.0])
def test_both_are_of_unit_vectors_whatever_their_scale(scale):
    wanted = sum(squared(x, y) for x, y in zip(SIDE, Y, strict=True)) / 9
    assert alignment(scale * SIDE, 3 * scale * Y) == pytest.approx(wanted, rel=1e-12)
    terms = [math.exp(-3 * squared(x, y)) for x, y in itertools.combinations(SIDE, 2)]
    assert uniformity(scale * SIDE, t=3) == pytest.approx(math.log(sum(terms) / 36), rel=1e-12)


def test_positives_are_pairs_above_a_gold_score_of_all_splits():
    found = AlignmentAndUniformity(above=3.0).tables(bed(Plain()))
    (row,) = found["encoders"]
    task = bed(Plain()).loaded_task.task
    splits: list[Any] = [task.load(name) for name in task.card.splits]
    texts = [
        pair
        for s in splits
        for pair, gold in zip(zip(*s.sides, strict=True), s.gold, strict=True)
        if gold > 3
    ]
    sides = [Plain().encode([pair[at] for pair in texts]) for at in (0, 1)]
    assert row["alignment"] == pytest.approx(
        sum(squared(x, y) for x, y in zip(*sides, strict=True)) / len(texts)
    )
    everything = Plain().encode(sorted({text for s in splits for text in s.texts()}))
    assert row["uniformity"] == pytest.approx(uniformity(everything))
    assert (row["positives"], row["sentences"]) == (len(texts), len(everything))
    assert found["training"] == []


GOLD = np.array([0.0, 0.9, 1.0, 2.5, 3.99, 4.0, 5.0])
COSINES = np.array([0.1, 0.3, 0.5, 0.5, 0.6, 0.8, 0.9])


def test_bins_are_equal_and_the_highest_score_is_in_the_last():
    assert gold_bins(GOLD, 5).tolist() == [0, 0, 1, 2, 3, 4, 4]


def test_collapse_is_the_lowest_bin_as_a_share_of_the_highest():
    assert collapse(COSINES, GOLD) == pytest.approx(((0.1 + 0.3) / 2) / ((0.8 + 0.9) / 2))
    assert collapse(np.full(7, 0.7), GOLD) == pytest.approx(1)
    assert np.isnan(collapse(COSINES[:2], np.array([0.0, 0.0])))


def test_the_tables_are_of_the_scored_pairs():
    found = GoldAgainstCosine(bins=2).tables(bed(Plain()))
    split = bed(Plain()).loaded_task.task.load("test")
    a, b = (Plain().encode(list(side)).astype(float) for side in split.sides)
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    (whole,) = found["encoders"]
    assert whole["mean"] == pytest.approx(cosines.mean())
    assert whole["from_0.6"] == pytest.approx(sum(one >= 0.6 for one in cosines) / len(cosines))
    assert [row["cosine"] for row in found["pairs"]] == pytest.approx(cosines.tolist())
    assert sum(row["n"] for row in found["bins"]) == len(cosines)
    low = [
        c
        for c, r in zip(cosines, found["pairs"], strict=True)
        if r["gold"] < found["bins"][0]["to"]
    ]
    assert found["bins"][0]["median"] == pytest.approx(np.median(low))
