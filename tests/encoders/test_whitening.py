"""Whitening and calibration: the released code's values, scikit-learn, the literal formulas, and encoders made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.fitted import FittedEncoder, Method, PostProcessed
from stsbench.encoders.flow import FlowMethod
from stsbench.encoders.load import find_encoder
from stsbench.encoders.whitening import (
    CalibrationMethod,
    Moments,
    WhiteningMethod,
    calibrated_encoder,
)
from tests.encoders.fakes import Plain

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(200, 12)) * np.linspace(3, 0.2, 12)) @ np.linalg.qr(RNG.normal(size=(12, 12)))[0] + 5

# The first rows that bojone's and autoliuweijie's code (utils.py, all_utils.py: compute_kernel_bias, then
# transform_and_normalize) gives for `official_input()`, k = 3; numpy 2, both the same. Signs are LAPACK's.
OFFICIAL = [
    [-0.72136802, -0.58443013, 0.37157717],
    [0.66849145, -0.14319861, -0.72980363],
]


def cosines(x: np.ndarray) -> Any:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit @ unit.T


def moments_of(*chunks: np.ndarray) -> Moments:
    moments = Moments()
    for chunk in chunks:
        moments.add(chunk)
    return moments


def whiten(x: np.ndarray, k: int | None = None) -> Any:
    learned = WhiteningMethod(k).fit_moments(moments_of(x))
    return (x - learned["mean"]) @ learned["components"]


@pytest.mark.parametrize("k", [1, 5, 12])
def test_it_is_the_formula_and_scikit_learns(k):
    left, variance, _ = np.linalg.svd(np.cov(X.T))
    due = (X - X.mean(axis=0)) @ (left @ np.diag(variance**-0.5))[:, :k]
    theirs = PCA(n_components=k, whiten=True, svd_solver="full").fit(X)
    for whitened in (due, theirs.transform(X)):
        np.testing.assert_allclose(np.abs(whiten(X, k)), np.abs(whitened), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(cosines(whiten(X, k)), cosines(due), atol=1e-10)


@pytest.mark.parametrize("sizes", [[200], [1, 199], [50, 0, 150], [1] * 200])
@pytest.mark.parametrize("far", [0, 1e5])
def test_chunks_of_any_size_give_the_same_far_from_zero_too(sizes, far):
    moments = moments_of(*np.split(X + far, np.cumsum(sizes)[:-1]))
    found, due = (WhiteningMethod().fit_moments(one) for one in (moments, moments_of(X)))
    assert moments.count == 200
    np.testing.assert_allclose(found["mean"], X.mean(axis=0) + far, rtol=1e-13)
    np.testing.assert_allclose(found["components"], due["components"], rtol=1e-6, atol=1e-8)


def test_directions_without_variance_are_left_out_and_said():
    flat = np.hstack([X, X[:, :2] * 2]).astype(np.float32)
    np.testing.assert_allclose(np.cov(whiten(flat).T), np.eye(12), atol=1e-5)
    # Of five embeddings four directions are known.
    assert whiten(X[:5]).shape == (5, 4)
    fitted = whitened(base=Plain(d=9)).fit_texts("abcde")
    assert fitted.encode(["a"]).shape == (1, 4)
    assert fitted.notes == ["the texts' embeddings vary in 4 directions only: 4 components are kept, not 9"]


@pytest.mark.parametrize(("x", "message"), [(X[:1], "two texts"), (np.ones((9, 3)), "are the same")])
def test_what_cannot_be_whitened(x, message):
    with pytest.raises(EncoderError, match=message):
        whiten(x)


def official_input() -> Any:
    """Sixty embeddings of six channels."""
    t = np.arange(360, dtype=np.float64).reshape(60, 6)
    return np.sin(t * 0.7) * np.array([3, 2.5, 2, 1.5, 1, 0.5]) + np.cos(t**2 % 17)


def test_the_official_values():
    ours = whitened(3, base=Given(official_input())).fit_texts([str(i) for i in range(60)]).encode(["0", "1"])
    signs = np.sign(ours[0] * np.array(OFFICIAL[0]))
    np.testing.assert_allclose(ours * signs, OFFICIAL, atol=2e-6)


class Given(Plain):
    """Gives the rows of an array for their numbers."""

    def __init__(self, rows: np.ndarray) -> None:
        super().__init__()
        self.rows = rows

    def encode(self, sentences):
        return self.rows[[int(s) for s in sentences]].astype(np.float32)


# --- the encoder ---

TEXTS = [f"text {i}" for i in range(40)]


def over(base: Plain, method: Method, fit: str = "target") -> PostProcessed:
    return PostProcessed(base, method, name="w", fit=fit)


def whitened(k: int | None = None, *, base: Plain | None = None, normalise: bool = True) -> PostProcessed:
    return over(base or Plain(d=8), WhiteningMethod(k, normalise=normalise))


def test_the_encoder_whitens_its_base():
    fitted = whitened(3).fit_texts(TEXTS)
    embeddings = fitted.encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, rtol=1e-6)
    due = whiten(Plain(d=8).encode(TEXTS).astype(float), 3)
    np.testing.assert_allclose(cosines(embeddings), cosines(due), atol=1e-6)
    plain = whitened(3, normalise=False).fit_texts(TEXTS).encode(TEXTS)
    np.testing.assert_allclose(plain, due, rtol=1e-4, atol=1e-6)


METHODS = {
    "whitening": WhiteningMethod(3, normalise=True),
    "calibration": CalibrationMethod(standardise=True, remove=2),
    "flow": FlowMethod(),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_fit_is_kept_and_used_again(method):
    first = over(Plain(d=8), method).fit_texts(TEXTS).encode(TEXTS)
    base = Plain(d=8)
    again = over(base, method).fit_texts(TEXTS)
    assert again.texts_to_embed() == ()
    np.testing.assert_array_equal(again.encode(TEXTS), first)
    assert len(base.calls) == 1


def test_a_fit_over_a_base_that_cannot_be_told_from_another_is_made_each_time():
    base = Plain(d=8, fingerprint=None)
    for _ in range(2):
        unknown = whitened(3, base=base).fit_texts(TEXTS)
        assert unknown.texts_to_embed() == TEXTS
        unknown.encode(["a"])
    assert [len(call) for call in base.calls] == [40, 1, 40, 1]


@pytest.mark.parametrize("damage", [lambda content: content[:40], lambda c: c[:-1] + bytes([c[-1] ^ 1])])
def test_a_damaged_fit_is_made_again(damage):
    fitted = whitened(3).fit_texts(TEXTS)
    expected = fitted.encode(["a"])
    assert fitted.folder is not None
    kept = fitted.folder / "fit.safetensors"
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    again = whitened(3).fit_texts(TEXTS)
    assert again.texts_to_embed() == TEXTS
    np.testing.assert_array_equal(again.encode(["a"]), expected)
    assert kept.read_bytes() == whole


def test_a_card_makes_one(tmp_path: Path):
    card = 'name = "{0}"\nkind = "whitening"\nmethod = "W"\nbackbone = "none"\nsupervision = "none"\noverlap = "none"\n'
    card += 'paper = "none"\nlicense = "none"\n[params]\nbase = "{1}"\nk = 2\n'
    (tmp_path / "baselines").mkdir()
    for name, base in (("mine", "tests.encoders.fakes:Plain"), ("twice", "mine")):
        (tmp_path / "baselines" / f"{name}.toml").write_text(card.format(name, base))
    catalogue = Catalogue([tmp_path])
    encoder = find_encoder("mine", params={"base_params": {"d": 6}}, catalogue=catalogue).encoder
    assert isinstance(encoder, PostProcessed)
    assert isinstance(encoder.base, Plain)
    assert encoder.base.d == 6
    fitted = encoder.fit_texts(TEXTS)
    assert isinstance(fitted, FittedEncoder)
    assert fitted.encode(TEXTS).shape == (40, 2)
    with pytest.raises(CardError, match="base 'mine' is itself fitted on texts"):
        find_encoder("twice", catalogue=catalogue)
    with pytest.raises(CardError, match="key 'k': expected a whole number >= 1, not 0"):
        find_encoder("mine", params={"k": 0}, catalogue=catalogue)


# --- calibration ---


def embedded() -> np.ndarray:
    return Plain(d=8).encode(TEXTS).astype(np.float64)


def calibrated(*, standardise: bool, remove: int, texts: list[str] = TEXTS) -> np.ndarray:
    method = CalibrationMethod(standardise=standardise, remove=remove)
    return over(Plain(d=8), method).fit_texts(texts).encode(TEXTS)


def without_directions(x: np.ndarray, k: int) -> np.ndarray:
    """Algorithm 1 of arXiv 1702.01417, a row and a direction at a time."""
    centred = x - x.mean(axis=0)
    directions = PCA(n_components=k, svd_solver="full").fit(x).components_
    return np.array([row - sum((row @ u) * u for u in directions) for row in centred])


@pytest.mark.parametrize(("standardise", "k"), [(True, 0), (False, 1), (False, 3), (False, 7), (True, 2)])
def test_dimensions_are_standardised_and_the_main_directions_removed(standardise, k):
    scaled = StandardScaler().fit_transform(embedded()) if standardise else embedded()
    due = without_directions(scaled, k) if k else scaled
    np.testing.assert_allclose(calibrated(standardise=standardise, remove=k), due, rtol=1e-4, atol=1e-6)


def test_a_dimension_without_deviation_becomes_zero():
    class Flat(Plain):
        def encode(self, sentences):
            return np.concatenate([super().encode(sentences), np.full((len(sentences), 1), 3, np.float32)], axis=1)

    method = CalibrationMethod(standardise=True, remove=1)
    made = over(Flat(d=8), method).fit_texts(TEXTS).encode(TEXTS)
    assert np.isfinite(made).all()
    np.testing.assert_allclose(made[:, 8], 0, atol=1e-6)


def test_what_cannot_be_calibrated():
    with pytest.raises(EncoderError, match="at least two texts"):
        calibrated(standardise=True, remove=0, texts=["one"])
    with pytest.raises(EncoderError, match="leaves nothing of embeddings of 8 numbers"):
        calibrated(standardise=False, remove=8)
    with pytest.raises(CardError, match="change nothing; give remove = 1 or more"):
        calibrated_encoder("minilm", standardise=False)
    with pytest.raises(CardError, match="remove = -1"):
        calibrated_encoder("minilm", remove=-1)
