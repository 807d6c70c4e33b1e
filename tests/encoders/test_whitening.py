"""Whitening, calibration and token removal: the released code's values, scikit-learn, the literal formulas, and encoders made of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, EncoderError
from stsbench.core.parameters import call_with_params
from stsbench.encoders.fitted import EmbeddingTransform, FittedEncoder, PostProcessed
from stsbench.encoders.flow import FlowMethod
from stsbench.encoders.load import load_named
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.whitening import (
    CalibrationMethod,
    Moments,
    Whitening,
    WhiteningMethod,
    calibrated_encoder,
    frequent_tokens,
    token_removal_encoder,
)
from tests.encoders.fakes import Plain
from tests.encoders.tiny import SENTENCES

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(200, 12)) * np.linspace(3, 0.2, 12)) @ np.linalg.qr(
    RNG.normal(size=(12, 12))
)[0] + 5

# The first rows that bojone's and autoliuweijie's code (utils.py, all_utils.py: compute_kernel_bias, then
# transform_and_normalize) gives for `official_input()`, k = 3; numpy 2, both the same. Signs are LAPACK's.
OFFICIAL = [
    [-0.72136802, -0.58443013, 0.37157717],
    [0.66849145, -0.14319861, -0.72980363],
]


def cosines(x: np.ndarray) -> Any:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit @ unit.T


def whiten(x: np.ndarray, k: int | None = None) -> Any:
    return Whitening(k).fit(x).transform(x)


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
    moments = Moments(np.split(X + far, np.cumsum(sizes)[:-1]))
    found, due = (WhiteningMethod().fit_moments(one) for one in (moments, Moments([X])))
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
    assert fitted.notes == [
        "the texts' embeddings vary in 4 directions only: 4 components are kept, not 9"
    ]


BROKEN = np.where(np.arange(200)[:, None] == 7, np.nan, X)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X[:1], "two texts"),
        (np.ones((9, 3)), "are the same"),
        (X[0], "shape"),
        (BROKEN, "finite embeddings; row 7 "),
    ],
)
def test_what_cannot_be_whitened(x, message):
    with pytest.raises(EncoderError, match=message):
        whiten(x)


def official_input() -> Any:
    t = np.arange(360, dtype=np.float64).reshape(60, 6)
    return np.sin(t * 0.7) * np.array([3, 2.5, 2, 1.5, 1, 0.5]) + np.cos(t**2 % 17)


def test_the_official_values():
    ours = (
        whitened(3, base=Given(official_input()))
        .fit_texts([str(i) for i in range(60)])
        .encode(["0", "1"])
    )
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


def over(base: Plain, method: EmbeddingTransform, fit: str = "target") -> PostProcessed:
    return PostProcessed(base, method, name="w", fit=fit)


def whitened(
    k: int | None = None, *, base: Plain | None = None, normalise: bool = True
) -> PostProcessed:
    return over(base or Plain(d=8), WhiteningMethod(k, normalise=normalise))


def test_the_encoder_whitens_its_base():
    fitted = whitened(3).fit_texts(TEXTS)
    embeddings = fitted.encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, rtol=1e-6)
    due = whiten(Plain(d=8).encode(TEXTS).astype(float), 3)
    np.testing.assert_allclose(cosines(embeddings), cosines(due), atol=1e-6)
    plain = whitened(3, normalise=False).fit_texts(TEXTS).encode(TEXTS)
    np.testing.assert_allclose(plain, due, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("k", [3, None])
def test_plain_arrays_are_whitened_as_by_the_encoder(k):
    x = Plain(d=8).encode(TEXTS)
    whitening = Whitening(k)
    assert whitening.fit(x) is whitening and whitening.k == k
    assert (whitening.mean_.shape, whitening.components_.shape) == ((8,), (8, k or 8))
    encoded = whitened(k, normalise=False).fit_texts(TEXTS).encode(TEXTS)
    np.testing.assert_array_equal(whitening.transform(x).astype(np.float32), encoded)
    # It takes lists too, and forgets what it learned before.
    np.testing.assert_array_equal(
        whitening.fit(X).fit(x.tolist()).transform(x), Whitening(k).fit(x).transform(x)
    )
    with pytest.raises(EncoderError, match="k = 0: give 1 or more components"):
        Whitening(0).fit(x)


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


@pytest.mark.parametrize(
    "damage", [lambda content: content[:40], lambda c: c[:-1] + bytes([c[-1] ^ 1])]
)
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
    encoder = load_named("mine", params={"base_params": {"d": 6}}, catalogue=catalogue).encoder
    assert isinstance(encoder, PostProcessed)
    assert isinstance(encoder.base, Plain)
    assert encoder.base.d == 6
    fitted = encoder.fit_texts(TEXTS)
    assert isinstance(fitted, FittedEncoder)
    assert fitted.encode(TEXTS).shape == (40, 2)
    with pytest.raises(CardError, match="base 'mine' is itself fitted on texts"):
        load_named("twice", catalogue=catalogue)
    with pytest.raises(CardError, match="'k': .* >= 1, not 0"):
        load_named("mine", params={"k": 0}, catalogue=catalogue)


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


@pytest.mark.parametrize(
    ("standardise", "k"), [(True, 0), (False, 1), (False, 3), (False, 7), (True, 2)]
)
def test_dimensions_are_standardised_and_the_main_directions_removed(standardise, k):
    scaled = StandardScaler().fit_transform(embedded()) if standardise else embedded()
    due = without_directions(scaled, k) if k else scaled
    np.testing.assert_allclose(
        calibrated(standardise=standardise, remove=k), due, rtol=1e-4, atol=1e-6
    )


def test_a_dimension_without_deviation_becomes_zero():
    class Flat(Plain):
        def encode(self, sentences):
            return np.concatenate(
                [super().encode(sentences), np.full((len(sentences), 1), 3, np.float32)], axis=1
            )

    method = CalibrationMethod(standardise=True, remove=1)
    made = over(Flat(d=8), method).fit_texts(TEXTS).encode(TEXTS)
    assert np.isfinite(made).all()
    np.testing.assert_allclose(made[:, 8], 0, atol=1e-6)


@pytest.mark.parametrize(
    ("remove", "texts", "message"),
    [
        (0, TEXTS[:1], "calibration needs at least two texts, not 1"),
        (8, TEXTS, "remove = 8 leaves nothing of embeddings of 8 numbers; give less"),
    ],
)
def test_texts_that_cannot_be_calibrated(remove, texts, message):
    with pytest.raises(EncoderError) as caught:
        calibrated(standardise=True, remove=remove, texts=texts)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"standardise": False},
            "standardise = False, remove = 0 change nothing; give remove = 1 or more",
        ),
        ({"remove": -1}, "remove = -1"),
    ],
)
def test_a_calibration_that_cannot_be(params, message):
    with pytest.raises(CardError, match=message):
        calibrated_encoder("minilm", **params)


# --- token removal ---

SOME = [text for text in SENTENCES if not text.startswith("word ")]


FEW = ["a dog", "", "means a dog", "the", "the a"]
"""Texts in which the two special tokens are the most frequent."""


def removal(
    tiny: Any, *, make: str = "bert", k: int = 3, pooling: str = "last2", **more: Any
) -> Any:
    return token_removal_encoder(
        str(tiny[make]), k=k, base_params={"pooling": pooling, **more.pop("base", {})}, **more
    )


def test_the_most_frequent_tokens():
    tokens = TokenIds.from_lists([[1, 7, 7, 2], [1, 5, 2], [], [1, 9, 2, 9]])
    assert frequent_tokens(tokens, 3).tolist() == [1, 2, 7]
    assert frequent_tokens(tokens, 5).tolist() == [1, 2, 7, 9, 5]
    assert frequent_tokens(tokens, 99).tolist() == [1, 2, 7, 9, 5]
    assert frequent_tokens(tokens, 0).tolist() == []


# What ConSERT's analysis_rep_space.py (03c9e8f) leaves out of these sentences by its k, padding aside.
LEFT_OUT = {
    0: [101],
    1: [101, 102],
    2: [3, 101, 102],
    3: [3, 7, 101, 102],
    5: [3, 5, 7, 9, 101, 102],
}
COUNTED = [
    [101, 7, 7, 3, 102],
    [101, 5, 102],
    [101, 102],
    [101, 9, 3, 9, 102, 4],
    [101, 8, 3, 4, 5, 102],
]


def test_the_script_leaves_out_one_more():
    tokens = TokenIds.from_lists(COUNTED)
    assert {k: sorted(frequent_tokens(tokens, k + 1).tolist()) for k in LEFT_OUT} == LEFT_OUT


@pytest.mark.parametrize(("count", "types"), [("paper", 3), ("script", 4)])
def test_special_tokens_count_and_the_script_takes_one_more(tiny, count, types):
    encoder = removal(tiny, count=count)
    removed = encoder.fit_texts(FEW).removed
    counted = Counter(encoder.base.tokenize(FEW).ids.tolist())
    assert len(removed) == types
    assert sorted(counted[i] for i in removed.tolist()) == sorted(counted.values())[-types:]
    cls_token = int(encoder.base.tokenize(["a"]).ids[0])
    assert cls_token in removed


@pytest.mark.parametrize(
    ("make", "side"), [("bert", "right"), ("roberta", "right"), ("qwen", "left"), ("gpt2", "right")]
)
def test_the_mean_is_that_of_the_tokens_left(tiny: dict[str, Path], make: str, side: str):
    fitted = removal(tiny, make=make, base={"padding_side": side}).fit_texts(SOME)
    base = fitted.base
    embeddings = fitted.encode(SOME)
    for text, embedding in zip(SOME, embeddings, strict=True):
        tokens = base.tokenize([text])
        kept = ~np.isin(tokens.ids, fitted.removed)
        due = np.zeros(base.backbone.width)
        if kept.any():
            with torch.inference_mode():
                states = base.backbone.hidden_states(
                    {"input_ids": torch.from_numpy(tokens.ids[None].astype(np.int64))}, (-2, -1)
                )
            due = np.mean(
                [state[0].double().numpy()[kept].mean(axis=0) for state in states], axis=0
            )
        np.testing.assert_allclose(embedding, due, atol=2e-5)


def test_a_sentence_of_removed_tokens_alone_is_a_zero_vector(tiny):
    fitted = removal(tiny).fit_texts(FEW)
    # Nothing but the two special tokens and the third most frequent.
    embeddings = fitted.encode(["", "a", "a dog"])
    assert not embeddings[:2].any()
    assert embeddings[2].any()
    assert fitted.encode([]).shape == (0, 16)
    assert removal(tiny, make="gpt2").fit_texts(SOME).encode([""]).any() == np.False_


def test_what_it_cannot_be_made_of(tiny):
    with pytest.raises(CardError, match="takes no mean over a transformer's tokens"):
        removal(tiny, pooling="max")
    with pytest.raises(CardError, match="'k': .* >= 0, not -1"):
        call_with_params(token_removal_encoder, {"base": "minilm", "k": -1}, where="card")
    with pytest.raises(EncoderError, match=r"fit_texts\(sentences\)"):
        removal(tiny).encode(["a"])
