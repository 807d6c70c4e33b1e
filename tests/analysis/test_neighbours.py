"""Nearest sentences against sorting all cosines, whatever the blocks."""

from __future__ import annotations

import numpy as np
import pytest

from stsbench.analysis import run as seams
from stsbench.analysis.space import Neighbours, nearest
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain

X = np.random.default_rng(6).normal(size=(29, 4)).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 6, 4096])
def test_the_nearest_are_the_first_of_all_cosines(monkeypatch, rows):
    monkeypatch.setattr(seams, "ROWS", rows)
    unit = X.astype(float) / np.linalg.norm(X.astype(float), axis=1, keepdims=True)
    cosines = unit[:5] @ unit.T
    found = nearest(X[:5], X, 7)
    assert found.rows.tolist() == np.argsort(-cosines, axis=1)[:, :7].tolist()
    assert found.cosines == pytest.approx(np.sort(cosines, axis=1)[:, ::-1][:, :7])
    others = nearest(X[:5], X, 6, but=np.arange(5))
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


def test_the_picture_holds_no_sentence():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    analysis = Neighbours()
    tables = analysis.tables(bed(Plain(), Plain("other", d=9)))
    written = analysis.draw(tables, "mine").to_bytes("svg").decode()
    assert ">other<" in written and ">100.0<" in written
    assert not any(row["sentence"] in written for row in tables["neighbours"])
