from pathlib import Path

import numpy as np
import pytest
import torch

from stsbench.cli.main import main
from stsbench.core.errors import EncoderError, OutputError, SourceError
from stsbench.encoders.load import load_encoder
from stsbench.encoders.words.convert import (
    convert_infersent,
    convert_skip_thoughts,
    expand_vocabulary,
)
from stsbench.encoders.words.recurrent import GruHalvesEncoder, InferSentEncoder
from tests.encoders.words.word_encoders import (
    SENTENCES,
    WORDS,
    write_halves,
    write_infersent,
    write_vectors,
)
from tests.encoders.words.word_files import cache

__all__ = ["cache"]
pytestmark = pytest.mark.usefixtures("cache")


class Evil:
    def __reduce__(self):
        return (open, ("/dev/null",))


@pytest.mark.parametrize("legacy", [True, False])
def test_published_infersent_weights_become_a_folder(tmp_path, legacy):
    vectors = write_vectors(tmp_path / "v.txt", 2)
    due = InferSentEncoder(str(write_infersent(tmp_path / "due", vectors, 2)))
    pickled = tmp_path / "infersent2.pkl"
    state = due.tensors()
    torch.save(state, pickled, _use_new_zipfile_serialization=not legacy)
    arguments = ["convert", "infersent", str(pickled), str(tmp_path / "out"), "--version", "2"]
    assert main([*arguments, "--vectors", str(vectors)]) == 0
    made = load_encoder(tmp_path / "out")
    assert isinstance(made, InferSentEncoder)
    assert (made.config, made.fingerprint) == (due.config, due.fingerprint)
    np.testing.assert_array_equal(made.encode(SENTENCES), due.encode(SENTENCES))
    # Without a file of one's own, the one that the version was trained with.
    convert_infersent(pickled, tmp_path / "plain", version=1)
    with pytest.raises(SourceError, match="glove.840B.300d.txt.*https://nlp.stanford"):
        load_encoder(tmp_path / "plain")


def test_a_converted_infersent_opens_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "vectors").mkdir()
    monkeypatch.chdir(tmp_path)
    write_vectors(tmp_path / "vectors" / "v.txt", 2)
    due = InferSentEncoder(str(write_infersent(tmp_path / "due", Path("vectors/v.txt"), 2)))
    torch.save(due.tensors(), "infersent2.pkl")
    convert_infersent(
        Path("infersent2.pkl"), tmp_path / "out", version=2, vectors_file="vectors/v.txt"
    )
    # A name in the folder of word vectors stays a name, for other machines.
    monkeypatch.setenv("STSBENCH_VECTORS", str(tmp_path / "vectors"))
    convert_infersent(Path("infersent2.pkl"), tmp_path / "named", version=2, vectors_file="v.txt")
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name, vectors in (("out", str(tmp_path / "vectors" / "v.txt")), ("named", "v.txt")):
        encoder = load_encoder(tmp_path / name)
        assert isinstance(encoder, InferSentEncoder) and encoder.config.vectors == vectors
        np.testing.assert_array_equal(encoder.encode(SENTENCES), due.encode(SENTENCES))


def test_of_an_older_encoder_in_the_folder_nothing_stays(tmp_path):
    vectors = write_vectors(tmp_path / "v.txt", 1)
    due = InferSentEncoder(str(write_infersent(tmp_path / "new", vectors)))
    folder = write_halves(tmp_path / "used", "skip_thoughts")
    assert (folder / "vocab.txt").is_file()
    found = InferSentEncoder(str(write_infersent(folder, vectors)))
    assert not (folder / "vocab.txt").exists() and found.fingerprint == due.fingerprint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"enc_lstm.weight_ih_l0": torch.zeros(8, 3)},
            "Missing key.s. in state_dict: .enc_lstm.weight_hh_l0",
        ),
        ({"enc_lstm.weight_ih_l0": torch.zeros(7, 3)}, "is it InferSent"),
        ({"conv.weight": torch.zeros(1)}, "is it InferSent"),
        ({"enc_lstm.weight_ih_l0": Evil()}, "holds more than tensors and is not read"),
        ([torch.zeros(1)], "is not a flat table of tensors"),
    ],
)
def test_other_pickles_are_refused(tmp_path, content, message):
    torch.save(content, tmp_path / "a.pkl")
    with pytest.raises(EncoderError, match=message):
        convert_infersent(tmp_path / "a.pkl", tmp_path / "out", version=1)
    assert not (tmp_path / "out").exists()


def write_theano(folder, rng) -> dict[str, dict[str, np.ndarray]]:
    """What the published archives hold: w x h and h x h matrices, those of the gates side by side."""
    folder.mkdir()
    archives = {}
    for name, prefixes, hidden in (("uni", ["encoder"], 4), ("bi", ["encoder", "encoder_r"], 2)):
        arrays = {"Wemb": rng.normal(size=(5, 3))}
        for prefix in prefixes:
            sizes = {"W": (3, 2 * hidden), "b": (2 * hidden,), "U": (hidden, 2 * hidden)}
            sizes |= {"Wx": (3, hidden), "bx": (hidden,), "Ux": (hidden, hidden)}
            arrays |= {f"{prefix}_{key}": rng.normal(size=size) for key, size in sizes.items()}
        np.savez(
            folder / f"{name}_skip.npz", **{k: a.astype(np.float32) for k, a in arrays.items()}
        )
        np.save(
            folder / f"{name[0]}table.npy", rng.normal(size=(len(WORDS) + 1, 3)).astype(np.float32)
        )
        archives[name] = arrays
    # A word that stands twice: the last one counts.
    (folder / "dictionary.txt").write_text("\n".join([*WORDS, "cat"]) + "\n", encoding="utf-8")
    return archives


def theano(arrays, prefix: str, words: np.ndarray) -> np.ndarray:
    """The released gru_layer, step by step in float64."""
    state = np.zeros(arrays[f"{prefix}_Ux"].shape[1])
    for word in words.astype(float):
        gates = state @ arrays[f"{prefix}_U"] + word @ arrays[f"{prefix}_W"] + arrays[f"{prefix}_b"]
        reset, update = np.split(1 / (1 + np.exp(-gates)), 2)
        fresh = (
            state @ arrays[f"{prefix}_Ux"] * reset
            + word @ arrays[f"{prefix}_Wx"]
            + arrays[f"{prefix}_bx"]
        )
        state = update * state + (1 - update) * np.tanh(fresh)
    return state


def test_published_skip_thoughts_become_a_folder(tmp_path):
    archives = write_theano(tmp_path / "published", np.random.default_rng(0))
    assert (
        main(["convert", "skip_thoughts", str(tmp_path / "published"), str(tmp_path / "out")]) == 0
    )
    encoder = load_encoder(tmp_path / "out")
    assert isinstance(encoder, GruHalvesEncoder)
    assert list(encoder.config.halves) == ["uni", "bi"]
    embeddings = encoder.encode(["the cat zebra", "mat ."])
    for sentence, embedding in zip([["the", "cat", "UNK"], ["mat", "."]], embeddings, strict=True):
        rows = [9 if word == "cat" else WORDS.index(word) for word in sentence]
        uni, bi = (
            np.load(tmp_path / "published" / f"{name}table.npy")[rows] for name in ("u", "b")
        )
        halves = [
            theano(archives["uni"], "encoder", uni),
            np.concatenate(
                [
                    theano(archives["bi"], "encoder", bi),
                    theano(archives["bi"], "encoder_r", bi[::-1]),
                ]
            ),
        ]
        np.testing.assert_allclose(
            embedding, np.concatenate([h / np.linalg.norm(h) for h in halves]), atol=1e-6
        )
    uni = load_encoder(tmp_path / "out", params={"halves": ["uni"]})
    np.testing.assert_allclose(uni.encode(["mat ."]), embeddings[1:, :4], atol=1e-6)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (np.array([{"a": 1}]), EncoderError, "the half 'bi' cannot be read"),
        (np.zeros((3, 3), np.float32), EncoderError, r"shape \(3, 3\) for 11 lines"),
        (None, SourceError, "no btable.npy; get it as the README"),
    ],
)
def test_a_published_folder_that_is_not_whole_is_one_line(tmp_path, table, error, message):
    write_theano(tmp_path / "published", np.random.default_rng(0))
    path = tmp_path / "published" / "btable.npy"
    path.unlink()
    if table is not None:
        np.save(path, table, allow_pickle=True)
    with pytest.raises(error, match=message):
        convert_skip_thoughts(tmp_path / "published", tmp_path / "out")


def test_a_damaged_archive_is_one_line(tmp_path):
    write_theano(tmp_path / "published", np.random.default_rng(0))
    path = tmp_path / "published" / "uni_skip.npz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(EncoderError, match="the half 'uni' cannot be read: File is not a zip file"):
        convert_skip_thoughts(tmp_path / "published", tmp_path / "out")


def test_a_dictionary_in_another_encoding_is_one_line(tmp_path):
    write_theano(tmp_path / "published", np.random.default_rng(0))
    (tmp_path / "published" / "dictionary.txt").write_bytes(b"UNK\ncaf\xe9\n")
    with pytest.raises(EncoderError, match="dictionary.txt: cannot be read: 'utf-8' codec"):
        convert_skip_thoughts(tmp_path / "published", tmp_path / "out")


def test_a_dictionary_without_words_is_one_line(tmp_path):
    write_theano(tmp_path / "published", np.random.default_rng(0))
    (tmp_path / "published" / "dictionary.txt").write_text("\n")
    with pytest.raises(EncoderError, match="lacks the word UNK"):
        convert_skip_thoughts(tmp_path / "published", tmp_path / "out")


def test_an_expanded_vocabulary_maps_new_words(tmp_path):
    folder = write_halves(tmp_path / "model", "skip_thoughts")
    encoder = GruHalvesEncoder(str(folder))
    rng = np.random.default_rng(1)
    names = ["the", "cat", "sat", "on", "mat", "UNK", "zebra", "New_York", "gnu"]
    vectors = rng.normal(size=(len(names), 2)).round(3)
    lines = [f"{name} {a} {b}" for name, (a, b) in zip(names, vectors, strict=True)]
    (tmp_path / "v.txt").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    assert (
        main(["convert", "expand", str(folder), str(out), "--vectors", str(tmp_path / "v.txt")])
        == 0
    )
    expanded = GruHalvesEncoder(str(out))
    assert expanded.words == [*WORDS, "zebra", "gnu"]
    np.testing.assert_array_equal(expanded.encode(SENTENCES), encoder.encode(SENTENCES))
    assert np.abs(expanded.encode(["zebra"]) - encoder.encode(["zebra"])).max() > 1e-3
    # The map, by the normal equations over the five shared words.
    table = (
        encoder.tensors()["uni.embedding"]
        .double()
        .numpy()[[WORDS.index(name) for name in names[:5]]]
    )
    x = np.column_stack([vectors[:5], np.ones(5)])
    due = np.array([*vectors[6], 1]) @ np.linalg.solve(x.T @ x, x.T @ table)
    grown = expanded.tensors()["uni.embedding"]
    np.testing.assert_allclose(grown[len(WORDS)].numpy(), due, atol=1e-5)
    with pytest.raises(EncoderError, match="share 2 words; the map needs more than 2"):
        expand_vocabulary(encoder, str(tmp_path / "v.txt"), tmp_path / "no", limit=2)
    np.savez(
        tmp_path / "v.npz", words=[*WORDS[2:], "two\nlines"], vectors=np.eye(8, 3, dtype=np.float32)
    )
    with pytest.raises(OutputError, match="holds a line end"):
        expand_vocabulary(encoder, str(tmp_path / "v.npz"), tmp_path / "no")


def test_an_expanded_vocabulary_keeps_the_parameters_of_its_encoder(tmp_path):
    folder = write_halves(tmp_path / "model", "skip_thoughts")
    encoder = GruHalvesEncoder(str(folder), halves=["bi"], append_eos=True, tokens="ptb")
    lines = [f"{word} {row}" for row, word in enumerate([*WORDS[2:], "zebra"])]
    (tmp_path / "v.txt").write_text("\n".join(lines) + "\n")
    expand_vocabulary(encoder, str(tmp_path / "v.txt"), tmp_path / "out")
    expanded = load_encoder(tmp_path / "out")
    np.testing.assert_array_equal(expanded.encode(["the cat."]), encoder.encode(["the cat."]))
    # All words of the file but the last are the encoder's own.
    with pytest.raises(EncoderError, match=r"v\.txt has no word that .*model lacks"):
        expand_vocabulary(encoder, str(tmp_path / "v.txt"), tmp_path / "no", limit=len(lines) - 1)


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    model = write_infersent(tmp_path / "m", write_vectors(tmp_path / "v.txt", 1))
    for arguments, message in (
        (["infersnt", "a", "b"], "unknown conversion 'infersnt'; did you mean 'infersent'"),
        (
            ["infersent", "a.pkl", "b", "--version", "3"],
            "Invalid value for '--version': 3 is not in the range 1<=x<=2",
        ),
        (
            ["infersent", "a.pkl", "b"],
            "'a.pkl' does not exist; get it from github.com/facebookresearch/InferSent",
        ),
        (["expand", str(model), "b"], "is not a Skip-Thoughts or Quick-Thoughts encoder"),
    ):
        assert main(["convert", *arguments]) == 2
        assert message in capsys.readouterr().err
    folder = write_halves(tmp_path / "h", "quick_thoughts")
    assert main(["convert", "expand", str(folder), "b"]) == 2
    assert "needs --vectors" in capsys.readouterr().err
