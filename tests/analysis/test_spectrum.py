"""Singular values and isotropy against numpy and against sums over pairs, whatever the blocks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stsbench.analysis import mean_cosine, partition_isotropy, singular_values
from stsbench.analysis import run as seams
from stsbench.analysis.space import Spectrum
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


def test_the_picture_leaves_rounding_out():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    rows = [{"encoder": "a", "index": at, "value": value} for at, value in enumerate((1.0, 0.1, 1e-9), start=1)]
    chart = Spectrum().draw({"values": rows}, "mine")
    assert chart.axes[0].lines[0].get_xdata().tolist() == [1, 2]
