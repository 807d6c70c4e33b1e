import json

import numpy as np
import pytest

from stsbench.core.errors import EncoderError, UnknownName
from stsbench.encoders.load import load_encoder
from stsbench.encoders.words.recurrent import GruHalvesEncoder, QuickThoughtsEncoder
from tests.encoders.words.word_encoders import SENTENCES, WORDS, gru_step, sigmoid, write_halves

KINDS = {"skip_thoughts": GruHalvesEncoder, "quick_thoughts": QuickThoughtsEncoder}


@pytest.fixture(params=KINDS)
def encoder(request, tmp_path) -> GruHalvesEncoder:
    folder = write_halves(tmp_path / "model", request.param)
    loaded = load_encoder(folder)
    assert type(loaded) is KINDS[request.param]
    assert isinstance(loaded, GruHalvesEncoder)
    return loaded


def tensorflow_step(
    weights: dict[str, np.ndarray], word: np.ndarray, state: np.ndarray
) -> np.ndarray:
    """TensorFlow's GRUCell: the state is reset before its product."""
    gates = weights["gates.weight"] @ np.concatenate([word, state]) + weights["gates.bias"]
    reset, update = np.split(sigmoid(gates), 2)
    both = np.concatenate([word, reset * state])
    new = np.tanh(weights["candidate.weight"] @ both + weights["candidate.bias"])
    return np.asarray(update * state + (1 - update) * new)


def literal(encoder: GruHalvesEncoder, ids: list[int]) -> np.ndarray:
    tensors = {k: t.double().numpy() for k, t in encoder.tensors().items()}
    parts = []
    for name in encoder.halves:
        half, lasts = encoder.config.halves[name], []
        for i in range(2 if half.bidirectional else 1):
            start = f"{name}.gru.directions.{i}."
            start += "gru." if half.cell == "torch" else ""
            weights = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
            state = np.zeros(half.hidden)
            for row in ids[:: -1 if i else 1]:
                step = gru_step if half.cell == "torch" else tensorflow_step
                state = step(weights, tensors[f"{name}.embedding"][row], state)
            lasts.append(state)
        joined = np.concatenate(lasts)
        parts.append(joined / np.linalg.norm(joined))
    return np.concatenate(parts)


def test_embeddings_are_those_of_the_equations(encoder):
    embeddings = encoder.encode(SENTENCES)
    for sentence, embedding in zip(SENTENCES, embeddings, strict=True):
        ids = [
            WORDS.index(word) if word in WORDS else WORDS.index("UNK") for word in sentence.split()
        ]
        due = literal(encoder, ids) if ids else np.zeros(8)
        np.testing.assert_allclose(embedding, due, atol=1e-6)


def test_halves_are_chosen_and_joined(encoder):
    first, second = encoder.config.halves
    both = encoder.encode(SENTENCES)
    make, path = type(encoder), str(encoder.folder)
    np.testing.assert_array_equal(make(path, halves=[first]).encode(SENTENCES), both[:, :4])
    swapped = make(path, halves=[second, first])
    np.testing.assert_array_equal(
        swapped.encode(SENTENCES), np.concatenate([both[:, 4:], both[:, :4]], axis=1)
    )
    with pytest.raises(UnknownName, match=f"'{first}x'; did you mean '{first}'"):
        make(path, halves=[f"{first}x"])


def test_unknown_words_are_read_as_one_word_and_the_end_only_if_asked_for(encoder):
    make, path = type(encoder), str(encoder.folder)
    zebra, gnu, mark = encoder.encode(["the zebra", "the gnu", "the UNK"])
    np.testing.assert_allclose(zebra, gnu, atol=1e-6)
    np.testing.assert_allclose(zebra, mark, atol=1e-6)
    ended = make(path, append_eos=True)
    np.testing.assert_allclose(
        ended.encode(["the cat"]), encoder.encode(["the cat <eos>"]), atol=1e-7
    )
    assert np.abs(ended.encode([""])).max() > 0
    assert encoder.unknown(SENTENCES) == ["unknown words", ""]


def test_a_broken_folder_is_one_line(encoder):
    assert encoder.fingerprint
    path = encoder.folder / "vocab.txt"
    for content, message in (
        ("\n".join(WORDS[2:]).encode(), "vocab.txt lacks the word 'UNK'"),
        (
            "\n".join([*WORDS, "more"]).encode(),
            r"embedding: .*\[9, 3\]\) from checkpoint, .* is torch.Size\(\[10, 3\]",
        ),
        (b"\xff\n", "vocab.txt: cannot be read"),
    ):
        path.write_bytes(content)
        broken = type(encoder)(str(encoder.folder))
        with pytest.raises(EncoderError, match=message):
            broken.encode(["a"])
        assert broken.fingerprint != encoder.fingerprint


def test_weights_that_torch_does_not_read_are_one_line(encoder):
    for kind, shape, size in (("F4", [9, 4], 18), ("F32", [2**63, 0], 0)):
        header = json.dumps(
            {"a": {"dtype": kind, "shape": shape, "data_offsets": [0, size]}}
        ).encode()
        (encoder.folder / "model.safetensors").write_bytes(
            len(header).to_bytes(8, "little") + header + bytes(size)
        )
        with pytest.raises(EncoderError, match="model.safetensors: "):
            type(encoder)(str(encoder.folder)).encode(["a"])


@pytest.mark.parametrize(
    "halves", [{}, {"a.b": {"word_size": 3, "hidden": 4}}, {"keys": {"word_size": 3, "hidden": 4}}]
)
def test_halves_are_those_that_we_write(encoder, halves):
    path = encoder.folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "halves": halves}))
    with pytest.raises(EncoderError, match="config.json: cannot be read: .*halves"):
        type(encoder)(str(encoder.folder))


def test_a_file_fetched_with_the_weights_names_none_but_our_kinds(encoder):
    (encoder.folder / "stsbench.json").write_text('{"kind": "os:system", "params": {}}')
    with pytest.raises(UnknownName) as caught:
        load_encoder(encoder.folder)
    assert (caught.value.kind, caught.value.name) == ("kind of saved encoder", "os:system")
