"""Standard normalisation and the removal of main directions, against the literal formulas and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.calibration import CalibrationMethod, calibrated_encoder
from stsbench.encoders.fitted.fitted import PostProcessed
from stsbench.errors import CardError, EncoderError
from tests.encoders.fakes import Plain

TEXTS = [f"text {i}" for i in range(40)]


def embedded() -> np.ndarray:
    return Plain(d=8).encode(TEXTS).astype(np.float64)


def calibrated(*, standardise: bool, remove: int, texts: list[str] = TEXTS) -> np.ndarray:
    method = CalibrationMethod(standardise=standardise, remove=remove)
    return PostProcessed(Plain(d=8), method, name="c", fit="target").fit_texts(texts).encode(TEXTS)


def without_directions(x: np.ndarray, k: int) -> np.ndarray:
    """Algorithm 1 of arXiv 1702.01417, a row and a direction at a time."""
    centred = x - x.mean(axis=0)
    directions = PCA(n_components=k, svd_solver="full").fit(x).components_
    return np.array([row - sum((row @ u) * u for u in directions) for row in centred])


def test_each_dimension_is_standardised():
    np.testing.assert_allclose(
        calibrated(standardise=True, remove=0), StandardScaler().fit_transform(embedded()), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_main_directions_are_removed(k):
    np.testing.assert_allclose(
        calibrated(standardise=False, remove=k), without_directions(embedded(), k), rtol=1e-4, atol=1e-6
    )


def test_of_both_the_directions_are_those_of_standardised_embeddings():
    due = without_directions(StandardScaler().fit_transform(embedded()), 2)
    np.testing.assert_allclose(calibrated(standardise=True, remove=2), due, rtol=1e-4, atol=1e-6)


def test_a_dimension_without_deviation_becomes_zero():
    class Flat(Plain):
        def encode(self, sentences):
            return np.concatenate([super().encode(sentences), np.full((len(sentences), 1), 3, np.float32)], axis=1)

    method = CalibrationMethod(standardise=True, remove=1)
    made = PostProcessed(Flat(d=8), method, name="c", fit="target").fit_texts(TEXTS).encode(TEXTS)
    assert np.isfinite(made).all()
    np.testing.assert_allclose(made[:, 8], 0, atol=1e-6)


def test_a_kept_fit_gives_the_same_embeddings():
    first = calibrated(standardise=True, remove=2)
    base = Plain(d=8)
    method = CalibrationMethod(standardise=True, remove=2)
    again = PostProcessed(base, method, name="c", fit="target").fit_texts(TEXTS)
    assert again.texts_to_embed() == ()
    np.testing.assert_array_equal(again.encode(TEXTS), first)
    assert len(base.calls) == 1


def test_what_cannot_be_calibrated():
    with pytest.raises(EncoderError, match="at least two texts"):
        calibrated(standardise=True, remove=0, texts=["one"])
    with pytest.raises(EncoderError, match="leaves nothing of embeddings of 8 numbers"):
        calibrated(standardise=False, remove=8)
    with pytest.raises(CardError, match="change nothing; give remove = 1 or more"):
        calibrated_encoder("minilm", standardise=False)
    with pytest.raises(CardError, match="remove = -1"):
        calibrated_encoder("minilm", remove=-1)


def test_the_card_of_a_row_is_what_the_row_says():
    card = Catalogue().encoder("bert-base-sn-natsv6")
    assert card.published == ["bert-flow/table-5/+SN+NATSV k=6"]
    assert dict(card.params) == {"base": "bert-base-mean", "standardise": True, "remove": 6, "fit": "target"}
