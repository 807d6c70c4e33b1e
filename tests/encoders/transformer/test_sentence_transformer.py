import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.core.errors import CardError, EncoderError, UnknownName
from stsbench.encoders.base import Encoder
from stsbench.encoders.described import library_file_hashes
from stsbench.encoders.load import load_encoder
from stsbench.encoders.metadata import read_notes
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder
from tests.encoders.made_checkpoints import MAKES, SENTENCES, change, save
from tests.hub_server import hub
from tests.pickles import Call, written

__all__ = ["hub"]


@pytest.mark.parametrize("make", MAKES)
def test_embeddings_are_the_librarys(saved, capfd, monkeypatch, make):
    from sentence_transformers import SentenceTransformer

    for handler in logging.getLogger("transformers").handlers:
        if type(handler) is logging.StreamHandler:
            monkeypatch.setattr(handler, "stream", sys.stderr)
    encoder = SentenceTransformerEncoder(str(saved[make]))
    embeddings = encoder.encode(SENTENCES)
    assert isinstance(encoder, Encoder)
    assert embeddings.shape == (len(SENTENCES), MAKES[make])
    assert embeddings.dtype == np.float32
    # Without a known word the library's largest value is -inf, which the engine refuses with the sentence.
    infinite = [
        s for s, row in zip(SENTENCES, embeddings, strict=True) if not np.isfinite(row).all()
    ]
    assert infinite == (["", "http://x.org/dog.jpg"] if make in ("lstm", "cnn") else [])
    assert encoder.encode([]).shape == (0, MAKES[make])
    assert encoder.encode(tuple(SENTENCES)).tobytes() == embeddings.tobytes()
    # Nothing is said to the user.
    assert capfd.readouterr() == ("", "")
    library = SentenceTransformer(str(saved[make]), device="cpu", local_files_only=True)
    np.testing.assert_allclose(
        embeddings, library.encode(SENTENCES, show_progress_bar=False), atol=1e-6
    )


def test_prompts(saved):
    def embed(make: str, sentences: list[str], **params: Any) -> Any:
        return SentenceTransformerEncoder(str(saved[make]), **params).encode(sentences)

    plain = embed("two poolings", ["dog"])
    asked = embed("two poolings", ["q : dog"])
    assert not np.allclose(plain, asked)
    np.testing.assert_allclose(embed("two poolings", ["dog"], prompt="q : "), asked, atol=1e-6)
    np.testing.assert_allclose(
        embed("two poolings", ["dog"], prompt_name="query"), asked, atol=1e-6
    )
    # A default prompt is put before, and can be left out.
    default = embed("prompted", ["dog"])
    np.testing.assert_allclose(embed("prompted", ["dog"], prompt_name="query"), default, atol=1e-6)
    assert not np.allclose(embed("prompted", ["dog"], prompt_name=""), default)
    with pytest.raises(UnknownName, match="unknown prompt of ") as caught:
        embed("two poolings", [], prompt_name="qery")
    assert caught.value.name == "qery" and "query" in caught.value.choices
    with pytest.raises(CardError, match="not both"):
        embed("two poolings", [], prompt_name="query", prompt="q")


def test_an_empty_prompt_switches_the_default_one_off(saved):
    def embed(**params: str) -> Any:
        return load_encoder(saved["prompted"], params=params).encode(["dog"])

    assert embed(prompt="").tobytes() == embed(prompt_name="").tobytes()
    assert not np.allclose(embed(prompt=""), embed())


def test_max_length_cuts(saved):
    long, short = "dog cat sat on the mat", "dog cat"
    for make in ("dense", "words"):
        encoder = SentenceTransformerEncoder(
            str(saved[make]), max_length=4 if make == "dense" else 2
        )
        np.testing.assert_allclose(encoder.encode([long]), encoder.encode([short]), atol=1e-6)
    with pytest.raises(CardError, match="max_length 65: .* has 64 positions"):
        SentenceTransformerEncoder(str(saved["dense"]), max_length=65).encode(["dog"])
    for too_few in (1, 2):
        with pytest.raises(CardError, match="leaves nothing of a sentence beside the special"):
            SentenceTransformerEncoder(str(saved["dense"]), max_length=too_few).encode(["dog"])
    with pytest.raises(CardError, match="'max_length': .* not 0"):
        load_encoder(saved["dense"], params={"max_length": 0})


def test_normalise(saved):
    def lengths(make: str, normalise: bool | None) -> Any:
        return np.linalg.norm(
            SentenceTransformerEncoder(str(saved[make]), normalise=normalise).encode(SENTENCES),
            axis=1,
        )

    np.testing.assert_allclose(lengths("dense", None), 1, atol=1e-6)
    assert not np.allclose(lengths("dense", False), 1)
    np.testing.assert_allclose(lengths("two poolings", True), 1, atol=1e-6)
    assert not np.allclose(lengths("two poolings", None), 1)


def test_fingerprint_changes_with_what_decides_embeddings(saved, dense):
    def of(folder: Path = dense) -> str:
        return SentenceTransformerEncoder(str(folder)).fingerprint

    original = of()
    assert (
        len({of(path) for path in saved.values()}) == len(saved) and of(saved["dense"]) == original
    )
    (dense / "README.md").write_text("Another text.")
    (dense / "onnx").mkdir()
    (dense / "onnx" / "config.json").write_text("{}")
    (dense / "pytorch_model.bin").write_bytes(b"not read beside safetensors")
    (dense / "training_args.bin").write_bytes(b"not read")
    assert of() == original
    seen = {original}
    for name in sorted(library_file_hashes(saved["dense"])):
        path = dense / name
        content = path.read_bytes()
        path.write_bytes(
            content.replace(b"}", b" }", 1) if path.suffix == ".json" else content + b" "
        )
        seen.add(of())
        path.write_bytes(content)
    assert len(seen) == len(library_file_hashes(saved["dense"])) + 1 >= 9
    assert {"model.safetensors", "2_Dense/model.safetensors", "tokenizer.json"} <= set(
        library_file_hashes(dense)
    )
    assert "1_CNN/pytorch_model.bin" in library_file_hashes(saved["cnn"])


@pytest.mark.parametrize(
    "name", ["onnx", "openvino", "eval", "runs", "checkpoint-12", ".hidden", "a link"]
)
def test_every_file_that_the_modules_lead_to_counts(dense, tmp_path, name):
    (dense / "2_Dense").rename(tmp_path / "weights" if name == "a link" else dense / name)
    if name == "a link":
        (dense / name).symlink_to(tmp_path / "weights")
        (dense / name / "round").symlink_to(tmp_path / "weights")
    modules = json.loads((dense / "modules.json").read_text())
    modules[2]["path"] = name
    (dense / "modules.json").write_text(json.dumps(modules))
    before = SentenceTransformerEncoder(str(dense)).fingerprint
    assert SentenceTransformerEncoder(str(dense)).encode(SENTENCES).shape == (len(SENTENCES), 4)
    weights = dense / name / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    assert SentenceTransformerEncoder(str(dense)).fingerprint != before


def test_a_router_in_the_checkpoints_own_folder_is_run_as_the_library_does(bert, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as m

    ways = {
        "query": [m.Transformer(str(bert)), m.Pooling(16, "mean")],
        "document": [m.Transformer(str(bert)), m.Pooling(16, "cls")],
    }
    folder = save(tmp_path / "router", m.Router(ways, default_route="document"))
    encoder = SentenceTransformerEncoder(str(folder))
    expected = SentenceTransformer(str(folder), device="cpu").encode(
        SENTENCES, show_progress_bar=False
    )
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)
    assert {
        "router_config.json",
        "document_1_Pooling/config.json",
        "query_0_Transformer/model.safetensors",
    } <= {*library_file_hashes(folder)}
    change(folder / "query_0_Transformer" / "config.json", _attn_implementation="someone/kernel")
    with pytest.raises(EncoderError, match="'_attn_implementation'.*'someone/kernel'"):
        SentenceTransformerEncoder(str(folder))


def test_embeddings_are_as_long_as_the_files_say_and_another_similarity_is_noted(bert, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as m

    steps = [m.Transformer(str(bert)), m.Pooling(16, "mean")]
    folder = save(tmp_path / "model", *steps, truncate_dim=4, similarity_fn_name="dot")
    found = load_encoder(str(folder))
    expected = SentenceTransformer(str(folder), device="cpu").encode(
        SENTENCES, show_progress_bar=False
    )
    assert expected.shape == (len(SENTENCES), 4)
    np.testing.assert_allclose(found.encode(SENTENCES), expected, atol=1e-5)
    assert read_notes(found) == [
        "its files compare embeddings by dot; here all are compared by cosine"
    ]
    change(folder / "config_sentence_transformers.json", truncate_dim=None)
    whole = load_encoder(str(folder))
    assert (type(whole), whole.encode(["dog"]).shape) == (TransformerEncoder, (1, 16))
    assert read_notes(whole) == read_notes(found)
    change(
        folder / "config_sentence_transformers.json", truncate_dim=0, similarity_fn_name="cosine"
    )
    with pytest.raises(EncoderError, match=r"config_sentence_transformers.json.*\$.truncate_dim"):
        load_encoder(str(folder))


@pytest.mark.parametrize("make", ["words", "cnn", "dense"])
def test_a_hub_checkpoint_comes_with_all_its_modules(saved, hub, make):
    files = {
        p.relative_to(saved[make]).as_posix(): p.read_bytes()
        for p in saved[make].rglob("*")
        if p.is_file()
    }
    commit = hub.add("model", "owner/name", files).commit
    fetched, local = (
        SentenceTransformerEncoder("owner/name"),
        SentenceTransformerEncoder(str(saved[make])),
    )
    assert (fetched.name, fetched.revision) == ("owner/name", commit)
    assert fetched.fingerprint == local.fingerprint
    assert fetched.encode(SENTENCES).tobytes() == local.encode(SENTENCES).tobytes()


@pytest.mark.parametrize("at", ["1_CNN", "."])
def test_a_pickle_is_never_run(saved, tmp_path, at):
    call = Call("posix", "mkdir", (str(tmp_path / "ran"),))
    folder = Path(shutil.copytree(saved["cnn"], tmp_path / "cnn"))
    (folder / at / "pytorch_model.bin").write_bytes(written({"emb_layer.weight": call}))
    with pytest.raises(EncoderError, match="cannot be loaded") as caught:
        SentenceTransformerEncoder(str(folder)).encode(["dog"])
    assert not (tmp_path / "ran").exists()
    assert "\n" not in str(caught.value)


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no modules.json": (
        lambda d: (d / "modules.json").unlink(),
        "is for the encoder kind 'transformer'",
    ),
    "empty list": (lambda d: (d / "modules.json").write_text("[]"), "lists no modules"),
    "another family": (
        lambda d: change(d / "config_sentence_transformers.json", model_type="SparseEncoder"),
        "is a SparseEncoder",
    ),
    "adapter": (lambda d: (d / "adapter_config.json").write_text("{}"), "is an adapter"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "cannot be loaded"),
    "cut weights": (lambda d: os.truncate(d / "model.safetensors", 5000), "cannot be loaded"),
    "no dense weights": (
        lambda d: (d / "2_Dense" / "model.safetensors").unlink(),
        "cannot be loaded",
    ),
    "no default prompt": (
        lambda d: change(d / "config_sentence_transformers.json", default_prompt_name="x"),
        "unknown prompt",
    ),
}


@pytest.mark.parametrize("case", BREAKS)
def test_a_broken_checkpoint_is_one_clear_line(dense, case):
    damage, message = BREAKS[case]
    damage(dense)
    with pytest.raises((EncoderError, UnknownName), match=message) as caught:
        SentenceTransformerEncoder(str(dense)).encode(["dog"])
    assert "\n" not in str(caught.value)
    assert str(dense) in str(caught.value)


def test_a_missing_weight_is_not_made_up(dense, monkeypatch):
    from safetensors.torch import load_file, save_file

    weights = load_file(dense / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, dense / "model.safetensors", {"format": "pt"})
    with pytest.raises(EncoderError, match="lack.*'encoder.layer.1.output.dense.weight'"):
        SentenceTransformerEncoder(str(dense)).encode(["dog"])
