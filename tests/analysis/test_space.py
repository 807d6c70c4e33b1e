"""Singular values and isotropy against numpy and against sums over pairs, whatever the blocks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.decomposition import PCA

from stsbench.analysis import mean_cosine, partition_isotropy, singular_values
from stsbench.analysis.run import make_analysis
from stsbench.analysis.space import Neighbours, SentenceMap, Spectrum, nearest, principal_plane
from stsbench.core.errors import CardError, DataError
from stsbench.encoders import base as seams
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain

X = np.random.default_rng(3).normal(size=(23, 5)).astype(np.float32) + 0.5


@pytest.fixture(params=[1, 7, 4096])
def rows(request, monkeypatch):
    monkeypatch.setattr(seams, "ROWS", request.param)
    return request.param


def test_singular_values_are_numpys(rows):
    assert singular_values(X) == pytest.approx(np.linalg.svd(X.astype(float), compute_uv=False), rel=1e-9)


def test_the_mean_cosine_is_over_distinct_pairs(rows):
    x = X.astype(float)
    wanted = [u @ v / np.linalg.norm(u) / np.linalg.norm(v) for u, v in itertools.combinations(x, 2)]
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
    texts = sorted({text for text in bed(Plain()).read.task.texts()})
    values = np.linalg.svd(Plain(d=3).encode(texts).astype(float), compute_uv=False)
    assert [row["value"] for row in found["values"]] == pytest.approx((values / values[0]).tolist())
    p = values / values.sum()
    (row,) = found["encoders"]
    assert row["effective_rank"] == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    assert row["first_share"] == pytest.approx(values[0] ** 2 / (values**2).sum())
    assert (row["sentences"], row["dimensions"]) == (len(texts), 3)


def test_the_picture_of_spectrum_leaves_rounding_out():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    rows = [{"encoder": "a", "index": at, "value": value} for at, value in enumerate((1.0, 0.1, 1e-9), start=1)]
    chart = Spectrum().draw({"values": rows}, "mine")
    assert chart.axes[0].lines[0].get_xdata().tolist() == [1, 2]


FLAT = np.random.default_rng(7).normal(size=(31, 6)) * [5, 1, 4, 1, 1, 1] + 3


@pytest.mark.parametrize("rows", [5, 4096])
def test_the_plane_is_that_of_scikit_learn(monkeypatch, rows):
    monkeypatch.setattr(seams, "ROWS", rows)
    mean, plane = principal_plane(FLAT)
    wanted = PCA(2).fit(FLAT).components_
    assert mean == pytest.approx(FLAT.mean(axis=0))
    assert np.abs(plane.T) == pytest.approx(np.abs(wanted), abs=1e-8)
    assert all(column[np.abs(column).argmax()] > 0 for column in plane.T)


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_pairs_are_placed_and_joined_the_same_each_time(method):
    found, again = (SentenceMap(method=method, above=2.5, pairs=5).tables(bed(Plain())) for _ in range(2))
    assert found == again
    points = {(row["pair"], row["side"]): np.array([row["x"], row["y"]]) for row in found["points"]}
    joins = [np.linalg.norm(points[pair, 1] - points[pair, 2]) for pair in range(5)]
    (row,) = found["encoders"]
    assert (len(points), row["join"]) == (10, pytest.approx(np.mean(joins)))


def test_a_map_of_too_few_pairs_is_refused():
    with pytest.raises(DataError, match="fewer than 3 pairs of quickstart-en have a gold score above 9"):
        SentenceMap(above=9.0).tables(bed(Plain()))


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("map", {"pairs": 1}, "analysis 'map': key 'pairs': expected a whole number >= 3, not 1"),
        ("map", {"method": "pac"}, "key 'method': 'pac' is not one of pca, tsne; did you mean 'pca'"),
        ("tokens", {"removed": [-1, 2]}, "key 'removed': expected a whole number >= 0"),
        ("layers", {"picture": "head"}, "key 'picture': 'head' is not one of lines, heat"),
        ("neighbours", {"k": "many"}, "key 'k': expected"),
        ("errors", {"pairs": 3}, "unknown key 'pairs'"),
    ],
)
def test_parameters_are_held_to_their_types(name, parameters, said):
    with pytest.raises(CardError, match=said):
        make_analysis(name, parameters)
    assert make_analysis("neighbours", {"query": "one sentence"}) == Neighbours(query="one sentence")


def test_the_picture_of_projection_joins_each_pair():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    analysis = SentenceMap(above=2.5, pairs=4)
    axes = analysis.draw(analysis.tables(bed(Plain())), "mine").axes[0]
    assert len(axes.lines) == 4


NEAR = np.random.default_rng(6).normal(size=(29, 4)).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 6, 4096])
def test_the_nearest_are_the_first_of_all_cosines(monkeypatch, rows):
    monkeypatch.setattr(seams, "ROWS", rows)
    unit = NEAR.astype(float) / np.linalg.norm(NEAR.astype(float), axis=1, keepdims=True)
    cosines = unit[:5] @ unit.T
    found = nearest(NEAR[:5], NEAR, 7)
    assert found.rows.tolist() == np.argsort(-cosines, axis=1)[:, :7].tolist()
    assert found.cosines == pytest.approx(np.sort(cosines, axis=1)[:, ::-1][:, :7])
    others = nearest(NEAR[:5], NEAR, 6, but=np.arange(5))
    assert others.rows.tolist() == found.rows[:, 1:].tolist()


def test_neighbours_stand_side_by_side_and_their_overlap_is_counted():
    one, other = Plain("one"), Plain("other", d=9)
    found = Neighbours(query="what is this?", k=2, sample=4).tables(bed(one, other))
    texts = list(dict.fromkeys(bed(one).read.task.load("test").texts()))
    for encoder in (one, other):
        x, q = encoder.encode(texts).astype(float), encoder.encode(["what is this?"])[0].astype(float)
        order = sorted(range(len(texts)), key=lambda at: -(x[at] @ q) / np.linalg.norm(x[at]))
        assert [row[encoder.name] for row in found["side_by_side"]] == [texts[at] for at in order[:2]]
    shared = {(row["encoder"], row["other"]): row["shared"] for row in found["agreement"]}
    assert shared["one", "one"] == 1 and shared["one", "other"] == shared["other", "one"] < 1


def test_a_query_of_the_task_is_not_its_own_neighbour():
    found = Neighbours(k=3).tables(bed(Plain()))["neighbours"]
    assert len(found) == 9
    assert all(row["query"] != row["sentence"] for row in found)


def test_the_picture_of_neighbours_holds_no_sentence():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    analysis = Neighbours()
    tables = analysis.tables(bed(Plain(), Plain("other", d=9)))
    written = analysis.draw(tables, "mine").to_bytes("svg").decode()
    assert ">other<" in written and ">100.0<" in written
    assert not any(row["sentence"] in written for row in tables["neighbours"])
