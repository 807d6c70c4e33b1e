"""The plane of most variance against scikit-learn's, and joins of pairs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from stsbench.analysis import run as seams
from stsbench.analysis.space import SentenceMap, principal_plane
from stsbench.core.errors import DataError, StsbenchError
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain

X = np.random.default_rng(7).normal(size=(31, 6)) * [5, 1, 4, 1, 1, 1] + 3


@pytest.mark.parametrize("rows", [5, 4096])
def test_the_plane_is_that_of_scikit_learn(monkeypatch, rows):
    monkeypatch.setattr(seams, "ROWS", rows)
    mean, plane = principal_plane(X)
    wanted = PCA(2).fit(X).components_
    assert mean == pytest.approx(X.mean(axis=0))
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


def test_mistakes_are_told():
    with pytest.raises(DataError, match="fewer than 3 pairs of quickstart-en have a gold score above 9"):
        SentenceMap(above=9.0).tables(bed(Plain()))
    with pytest.raises(StsbenchError, match="pairs = 1: give 3 or more"):
        SentenceMap(pairs=1)


def test_the_picture_joins_each_pair():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    analysis = SentenceMap(above=2.5, pairs=4)
    axes = analysis.draw(analysis.tables(bed(Plain())), "mine").axes[0]
    assert len(axes.lines) == 4
