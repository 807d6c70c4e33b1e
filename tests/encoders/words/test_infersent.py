import numpy as np
import pytest
import torch

from stsbench.core.errors import DataError, EncoderError, SourceError, UnknownName
from stsbench.encoders.words.recurrent import MAXIMA_OVER_TIME, InferSentEncoder
from tests.encoders.made_checkpoints import change
from tests.encoders.words.word_encoders import SENTENCES, write_infersent, write_vectors
from tests.encoders.words.word_files import cache

__all__ = ["cache"]
pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(params=[1, 2])
def version(request):
    return request.param


@pytest.fixture
def folder(tmp_path, version):
    return write_infersent(
        tmp_path / "model", write_vectors(tmp_path / "vectors.txt", version), version
    )


def literal(encoder, sentence: str) -> tuple[np.ndarray, int]:
    """The states' maximum in float64, by the equations of an LSTM, and the number of words."""
    weights = {k: t.double().numpy() for k, t in encoder.tensors().items()}
    around = [encoder.release.start_word, *sentence.split(), encoder.release.end_word]
    rows = encoder.vectors.find(around)
    words = encoder.vectors.take(rows[rows >= 0]).astype(float)
    ends = [_lstm(weights, words, ""), _lstm(weights, words[::-1], "_reverse")[::-1]]
    return np.concatenate(ends, axis=1).max(axis=0), len(words)


def _lstm(weights: dict[str, np.ndarray], words: np.ndarray, end: str) -> np.ndarray:
    def sigmoid(x: np.ndarray) -> np.ndarray:
        return np.asarray(1 / (1 + np.exp(-x)))

    w, u = weights[f"enc_lstm.weight_ih_l0{end}"], weights[f"enc_lstm.weight_hh_l0{end}"]
    b = weights[f"enc_lstm.bias_ih_l0{end}"] + weights[f"enc_lstm.bias_hh_l0{end}"]
    h, c = np.zeros(u.shape[1]), np.zeros(u.shape[1])
    states = []
    for word in words:
        i, f, g, o = np.split(w @ word + u @ h + b, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.array(states)


def test_version_1_as_released_depends_on_the_batch(folder, version):
    encoder = InferSentEncoder(str(folder), padding="batch")
    alone = np.concatenate([encoder.encode([s]) for s in SENTENCES])
    together = encoder.encode(SENTENCES)
    lengths = [literal(encoder, s)[1] for s in SENTENCES]
    longest = np.array(lengths) == max(lengths)
    # Beside a longer sentence the padding's zeros take part in the maximum.
    np.testing.assert_allclose(together[longest], alone[longest], atol=1e-6)
    np.testing.assert_allclose(together[~longest], np.maximum(alone[~longest], 0), atol=1e-6)
    assert np.abs(together - alone).max() > 0.02
    # So nothing is stored, and the same sentence is asked for again.
    assert encoder.fingerprint is None
    released = InferSentEncoder(str(folder), padding="zeros").encode(SENTENCES)
    np.testing.assert_allclose(together[~longest], released[~longest], atol=1e-6)


def test_a_true_zero_never_wins_in_version_2():
    states = torch.tensor([[[-0.5, 0.0], [0.0, -0.25], [-0.1, 0.0]]])
    assert MAXIMA_OVER_TIME["masked"](states).tolist() == [[pytest.approx(-0.1), -0.25]]
    assert MAXIMA_OVER_TIME["batch"](states).tolist() == [[0, 0]]
    assert MAXIMA_OVER_TIME["masked"](torch.zeros(1, 2, 1)).tolist() == [[-1e9]]


# What the released models.py gives for the same weights and sentences (batches of one; the whole batch of six).
RELEASED = {
    1: (
        [
            [0.5282674, -0.1273915, 0.2373192, 0.3038058],
            [0.2789477, -0.1093276, 0.1760053, 0.1853856],
            [-0.0771777, -0.1860242, 0.1932652, 0.1830198],
            [-0.0771777, -0.1860242, 0.1932652, 0.1830198],
            [0.2789477, -0.1093276, 0.1685769, 0.1883952],
            [0.4777724, -0.1273915, 0.2327954, 0.3036534],
        ],
        [
            [0.5282674, 0.0000000, 0.2373192, 0.3038058],
            [0.2789477, 0.0000000, 0.1760053, 0.1853856],
            [0.0000000, 0.0000000, 0.1932652, 0.1830198],
            [0.0000000, 0.0000000, 0.1932652, 0.1830198],
            [0.2789477, 0.0000000, 0.1685769, 0.1883952],
            [0.4777726, -0.1273915, 0.2327954, 0.3036534],
        ],
    ),
    2: (
        [
            [0.5277512, -0.0296384, 0.2371911, 0.3038022],
            [0.3364748, -0.0296384, 0.1437594, 0.0772607],
            [0.3052575, -0.0296384, 0.0810608, 0.0772607],
            [0.3052575, -0.0296384, 0.0810608, 0.0772607],
            [0.3364748, -0.0296384, 0.0810608, 0.0772607],
            [0.5057904, -0.0296384, 0.2327862, 0.3036530],
        ],
        None,
    ),
}
"""Of version 2 a batch gives the same, but for a last digit."""


def test_values_of_the_released_code_and_of_the_equations(folder, version):
    single, batch = RELEASED[version]
    encoder = InferSentEncoder(str(folder), padding="batch" if version == 1 else "")
    alone = np.concatenate([encoder.encode([s]) for s in SENTENCES])
    np.testing.assert_allclose(alone, single, atol=1e-6)
    np.testing.assert_allclose(alone, [literal(encoder, s)[0] for s in SENTENCES], atol=1e-6)
    np.testing.assert_allclose(encoder.encode(SENTENCES), batch or single, atol=1e-6)


def test_unknown_words_are_dropped(folder, tmp_path, version):
    encoder = InferSentEncoder(str(folder))
    known, unknown = encoder.encode(["a cat", "a zebra cat"])
    np.testing.assert_array_equal(known, unknown)
    # Of a sentence without a known word what stands around it is left, as in the released code.
    nothing, empty = encoder.encode(["unknown words", ""])
    np.testing.assert_array_equal(nothing, empty)
    assert np.abs(nothing).max() > 0
    assert encoder.unknown(SENTENCES) == ["unknown words", ""]
    # Vectors that lack these words too leave nothing at all.
    (tmp_path / "few.txt").write_text("a 1 2 3\n")
    bare = InferSentEncoder(str(folder), vectors=str(tmp_path / "few.txt"))
    assert np.abs(bare.encode(["a", "b"])).max(axis=1)[1] == 0
    assert bare.fingerprint != encoder.fingerprint


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"padding": "mask"}, UnknownName, "unknown padding 'mask'; did you mean 'masked'"),
        ({"vectors": "wide.txt"}, EncoderError, "wide.txt: vectors of size 4; .* needs 3$"),
        ({"vectors": "none.txt"}, SourceError, "word vectors 'none.txt' are not on this machine"),
    ],
)
def test_parameters_that_do_not_fit_are_one_line(
    folder, tmp_path, monkeypatch, params, error, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wide.txt").write_text("a 1 2 3 4\n")
    with pytest.raises(error, match=message):
        InferSentEncoder(str(folder), **params).encode(["a"])


ELSEWHERE = "config.json: names word vectors in a folder and no sha256 of them; "


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"vectors_sha256": "abc"}, DataError, "not the word vectors of .*config.json abc"),
        ({"vectors": "/etc/passwd", "vectors_sha256": ""}, DataError, ELSEWHERE),
        ({"vectors": "~/.netrc", "vectors_sha256": ""}, DataError, ELSEWHERE),
        ({"vectors": "../vectors.txt", "vectors_sha256": ""}, DataError, ELSEWHERE),
        ({"vectors": "glove\0.txt"}, DataError, "is not a file name"),
        ({"hidden": 3}, EncoderError, r"mismatch for enc_lstm.weight_ih_l0: .*\[8, 3\]"),
        ({"hiden": 2}, EncoderError, "config.json: cannot be read"),
    ],
)
def test_what_does_not_fit_is_one_line(folder, changes, error, message):
    change(folder / "config.json", **changes)
    with pytest.raises(error, match=message):
        InferSentEncoder(str(folder)).encode(["a"])


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(EncoderError, match="no model.safetensors"):
        InferSentEncoder(str(folder))
