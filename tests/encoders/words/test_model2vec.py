"""model2vec's folders: held to a slow, literal mean, and to that library and sentence-transformers where these agree."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.load import load_encoder, load_named
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder
from stsbench.encoders.words.model2vec import Model2VecEncoder
from tests.encoders.made_checkpoints import SENTENCES, change
from tests.encoders.words.word_encoders import write_model2vec


def literal(folder: Path, sentence: str) -> Any:
    """The mean of the vectors of a sentence's known tokens, in float64."""
    from safetensors.numpy import load_file

    tensors, tokenizer = (
        load_file(folder / "model.safetensors"),
        Tokenizer.from_file(str(folder / "tokenizer.json")),
    )
    rows = []
    for token in tokenizer.encode(sentence, add_special_tokens=False).ids[:512]:
        if token != tokenizer.token_to_id("[UNK]"):
            row = tensors["embeddings"][
                tensors["mapping"][token] if "mapping" in tensors else token
            ].astype(np.float64)
            rows.append(row * tensors["weights"][token] if "weights" in tensors else row)
    return np.mean(rows, axis=0) if rows else np.zeros(tensors["embeddings"].shape[1])


@pytest.mark.parametrize("quantised", [False, True])
def test_it_is_the_mean_over_known_tokens(bert, tmp_path, quantised):
    folder = write_model2vec(tmp_path / "m", bert, quantised=quantised)
    encoder = load_encoder(folder)
    assert isinstance(encoder, Model2VecEncoder)
    short = [text for text in SENTENCES if len(text) < 500]
    np.testing.assert_allclose(
        encoder.encode(short), [literal(folder, text) for text in short], atol=1e-6
    )
    assert not encoder.encode(["", "שלום"]).any()
    if importlib.util.find_spec("model2vec") is not None:
        from model2vec import StaticModel

        theirs = StaticModel.from_pretrained(folder).encode(SENTENCES)
        np.testing.assert_allclose(encoder.encode(SENTENCES), theirs, atol=1e-6)


def test_it_is_cut_and_scaled_as_the_folder_says(bert, tmp_path):
    folder = write_model2vec(tmp_path / "m", bert, normalize=True, max_length=4)
    encoder = Model2VecEncoder(str(folder))
    np.testing.assert_allclose(
        np.linalg.norm(encoder.encode(["a dog", "the cat"]), axis=1), 1, atol=1e-6
    )
    one, same = encoder.encode(["a dog runs on the mat", "a dog runs on"])
    np.testing.assert_array_equal(one, same)
    (whole,) = Model2VecEncoder(str(folder), max_length=9, normalise=False).encode(
        ["a dog runs on the mat"]
    )
    np.testing.assert_allclose(whole, literal(folder, "a dog runs on the mat"), atol=1e-6)


def test_sentence_transformers_counts_unknown_tokens(bert, tmp_path):
    folder = write_model2vec(tmp_path / "m", bert)
    ours, theirs = (
        Model2VecEncoder(str(folder)),
        SentenceTransformerEncoder(str(folder), device="cpu"),
    )
    known, strange = ["the dog ran", "a cat sat on the mat"], ["the zebra ran"]
    np.testing.assert_allclose(ours.encode(known), theirs.encode(known), atol=1e-6)
    assert np.abs(ours.encode(strange) - theirs.encode(strange)).max() > 1e-2


def test_static_embedding_of_sentence_transformers_is_run_by_it(bert, tmp_path):
    folder = write_model2vec(tmp_path / "m", bert)
    (folder / "config.json").unlink()
    found = load_named(str(folder)).encoder
    assert isinstance(found, SentenceTransformerEncoder)
    np.testing.assert_allclose(
        found.encode(["the dog ran"])[0], literal(folder, "the dog ran"), atol=1e-6
    )


def test_a_broken_folder_is_one_line(bert, tmp_path):
    folder = write_model2vec(tmp_path / "m", bert)
    change(folder / "config.json", max_length=0)
    with pytest.raises(CardError, match="max_length 0"):
        Model2VecEncoder(str(folder))
    change(folder / "config.json", max_length=None)
    save_file({"embeddings": np.zeros((3, 2), np.float32)}, folder / "model.safetensors")
    with pytest.raises(EncoderError, match="3 vectors for"):
        Model2VecEncoder(str(folder)).encode(["a"])
    (folder / "tokenizer.json").unlink()
    with pytest.raises(EncoderError, match="no tokenizer.json; is it a folder of model2vec"):
        Model2VecEncoder(str(folder))
