import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.core.errors import CardError, EncoderError, SourceError
from stsbench.core.parameters import call_with_params
from stsbench.encoders.served import use
from stsbench.encoders.served.use import UniversalSentenceEncoder
from tests.encoders.made_checkpoints import write_saved_model

SENTENCES = [
    "the cat sat",
    "a",
    "",
    "😀 שלום עולם",
    "the cat " * 2000,
    "half \ud83d",
    "the cat sat",
]


@pytest.fixture
def tensorflow():
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed (extra 'use')")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow
    return tensorflow


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["call", "dict", "signature"])
def test_any_form_of_saved_model_embeds(tensorflow, tmp_path, form):
    encoder = UniversalSentenceEncoder(
        str(write_saved_model(tensorflow, tmp_path / "m", form=form)), batch=3
    )
    embeddings = encoder.encode(SENTENCES)
    np.testing.assert_array_equal(embeddings[0], embeddings[6])
    assert not embeddings[2].any()
    # The mean of words is not taken here: each word is a row of the table, by TensorFlow's hash.
    rows = tensorflow.strings.to_hash_bucket_fast(["the", "cat", "sat"], 64).numpy()
    table = np.sin(np.arange(64 * 8)).reshape(64, 8)
    np.testing.assert_allclose(embeddings[0], table[rows].sum(axis=0), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_a_module_of_the_first_format_embeds(tensorflow, tmp_path):
    # As large/3: a graph of TensorFlow 1 under no tag, with the signature "default".
    v1 = tensorflow.compat.v1
    with tensorflow.Graph().as_default(), v1.Session() as session:
        text = v1.placeholder(tensorflow.string, [None])
        values = np.sin(np.arange(64 * 8)).reshape(64, 8).astype(np.float32)
        table = v1.get_variable("table", initializer=values, use_resource=True)
        rows = tensorflow.gather(table, tensorflow.strings.to_hash_bucket_fast(text, 64))
        session.run(v1.global_variables_initializer())
        signature = v1.saved_model.predict_signature_def({"text": text}, {"default": rows})
        builder = v1.saved_model.Builder(str(tmp_path / "module"))
        builder.add_meta_graph_and_variables(session, [], signature_def_map={"default": signature})
        builder.save()
    (tmp_path / "module/tfhub_module.pb").write_bytes(b"")
    encoder = UniversalSentenceEncoder(str(tmp_path / "module"))
    hashed = tensorflow.strings.to_hash_bucket_fast(["the cat", "a"], 64).numpy()
    np.testing.assert_allclose(encoder.encode(["the cat", "a"]), values[hashed], atol=1e-6)


def save_odd(tensorflow: Any, folder: Path) -> None:
    write_saved_model(tensorflow, folder, form="odd")


def save_nothing(tensorflow: Any, folder: Path) -> None:
    tensorflow.saved_model.save(tensorflow.Module(), str(folder))


def save_no_graph(tensorflow: Any, folder: Path) -> None:
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"no graph")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("save_model", "message"),
    [
        (save_odd, "returns a, b; none is known to be the embeddings"),
        (save_nothing, "the SavedModel can be called in no way that is known"),
        (save_no_graph, "cannot be loaded: "),
    ],
)
def test_a_saved_model_of_another_kind_is_one_line(tensorflow, tmp_path, save_model, message):
    save_model(tensorflow, tmp_path / "model")
    with pytest.raises(EncoderError, match=f"{tmp_path / 'model'}: {message}"):
        UniversalSentenceEncoder(str(tmp_path / "model")).encode(["a"])


@pytest.mark.parametrize(
    ("installed", "model", "error", "message"),
    [
        ((), "", EncoderError, r"'use-v4' needs TensorFlow, .*: pip install 'stsbench\[use\]'"),
        (("tensorflow",), "none", SourceError, "checkpoint folder '.*none' does not exist"),
        (
            ("tensorflow",),
            "",
            EncoderError,
            "no saved_model.pb; unpack the SavedModel and give its folder$",
        ),
        (
            ("tensorflow",),
            "https://tfhub.dev/google/universal-sentence-encoder/4",
            EncoderError,
            r"needs TensorFlow Hub, which is not installed: pip install 'stsbench\[use\]'$",
        ),
    ],
)
def test_what_cannot_be_had_is_one_line(tmp_path, monkeypatch, installed, model, error, message):
    monkeypatch.setattr(use, "find_spec", lambda name: True if name in installed else None)
    address = model if "://" in model else str(tmp_path / model)
    with pytest.raises(error, match=message) as caught:
        UniversalSentenceEncoder(address, name="use-v4")
    assert "\n" not in str(caught.value)


def test_a_batch_of_nothing_is_refused(tmp_path):
    with pytest.raises(CardError, match="'batch': .* not 0"):
        call_with_params(
            UniversalSentenceEncoder, {"model": str(tmp_path), "batch": 0}, where="card"
        )


def test_a_handle_is_resolved_by_tensorflow_hub(tmp_path, monkeypatch):
    import sys
    from types import SimpleNamespace

    (tmp_path / "saved_model.pb").write_bytes(b"")
    monkeypatch.setattr(use, "find_spec", lambda name: True)
    monkeypatch.setitem(
        sys.modules, "tensorflow_hub", SimpleNamespace(resolve=lambda handle: str(tmp_path))
    )
    assert (
        UniversalSentenceEncoder("https://tfhub.dev/google/universal-sentence-encoder/4").folder
        == tmp_path
    )

    def fails(handle: str) -> str:
        raise OSError("no\nnetwork")

    monkeypatch.setitem(sys.modules, "tensorflow_hub", SimpleNamespace(resolve=fails))
    with pytest.raises(SourceError, match="cannot be fetched: no network; download it and pass"):
        UniversalSentenceEncoder("https://tfhub.dev/x/1")
