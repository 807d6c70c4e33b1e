"""Models whose states depend on padding give each sentence the embedding that it has alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, ConvBertConfig, ConvBertModel, FNetConfig, FNetModel

from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.backbone import depends_on_padding
from tests.encoders import made_checkpoints as made
from tests.encoders.tiny import LONGEST, bytes_tokenizer, save

SENTENCES = ["a dog", "a dog runs", "no", "half of the dogs run in a park", "run", "a dog ran"]
SIZES = {
    "num_hidden_layers": 1,
    "intermediate_size": 32,
    "max_position_embeddings": LONGEST,
    "initializer_range": 0.4,
}


def make(folder: Path, kind: Any, config: Any, **fields: Any) -> Path:
    tokenizer, vocab = bytes_tokenizer(["<pad>", "<unk>"])
    made = config(vocab_size=len(vocab), hidden_size=16, pad_token_id=0, **SIZES, **fields)
    return save(folder, kind, made, tokenizer, pad_token="<pad>", unk_token="<unk>")


@pytest.fixture(scope="module")
def convbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ConvBERT, whose convolutions read the padding behind a sentence."""
    folder = tmp_path_factory.mktemp("convbert")
    return make(folder, ConvBertModel, ConvBertConfig, embedding_size=16, num_attention_heads=2)


@pytest.fixture(scope="module")
def fnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FNet, which mixes all tokens by a Fourier transform, and has a pooler."""
    return make(tmp_path_factory.mktemp("fnet"), FNetModel, FNetConfig)


def alone(folder: Path) -> list[torch.Tensor]:
    """The last hidden states of each sentence by itself, as transformers gives them."""
    model = AutoModel.from_pretrained(str(folder)).eval()
    tokenizer = load_encoder(str(folder)).backbone.tokenizer  # type: ignore[attr-defined]
    with torch.no_grad():
        return [
            model(torch.tensor([tokenizer(one)["input_ids"]])).last_hidden_state[0]
            for one in SENTENCES
        ]


@pytest.mark.parametrize("make_", ["convbert", "fnet"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_neighbours_do_not_matter(request: pytest.FixtureRequest, make_: str, side: str):
    folder = request.getfixturevalue(make_)
    encoder: Any = load_encoder(str(folder), params={"padding_side": side})
    assert encoder.backbone.depends_on_padding
    expected = np.stack([states.mean(dim=0).numpy() for states in alone(folder)])
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, rtol=0, atol=2e-5)
    assert not neighbours_matter(encoder, SENTENCES)
    if make_ == "fnet":
        assert not neighbours_matter(
            load_encoder(str(folder), params={"pooling": "cls"}), SENTENCES
        ), "its own head"


def neighbours_matter(encoder: Any, sentences: list[str]) -> bool:
    together = encoder.encode(sentences)
    alone = np.concatenate([encoder.encode([sentence]) for sentence in sentences])
    return not np.allclose(alone, together, rtol=0, atol=2e-5)


@pytest.fixture(scope="module")
def kinds(convbert: Path) -> dict[str, Path]:
    from sentence_transformers.sentence_transformer import modules as m

    steps = [m.Transformer(str(convbert)), m.Pooling(16, "mean"), m.Dense(16, 4)]
    return {
        "transformer": convbert,
        "sentence_transformer": made.save(convbert.with_name("made"), *steps),
    }


@pytest.mark.parametrize("backend", ["torch", "onnx", "openvino"])
@pytest.mark.parametrize("kind", ["transformer", "sentence_transformer"])
def test_neighbours_do_not_matter_in_any_kind_and_runtime(
    kinds: Any, monkeypatch: Any, kind: str, backend: str
):
    if backend != "torch":
        package = {"onnx": "onnxruntime"}.get(backend, backend)
        pytest.importorskip(package, reason=f"the extra '{backend}' is not installed")
    # Torch exports each kind once, for both runtimes.
    monkeypatch.setenv("STSBENCH_CACHE", str(kinds["transformer"].with_name("cache")))
    encoder: Any = load_encoder(str(kinds[kind]), params={"backend": backend})
    in_torch: Any = load_encoder(str(kinds[kind]))
    assert not neighbours_matter(encoder, SENTENCES)
    np.testing.assert_allclose(
        encoder.encode(SENTENCES), in_torch.encode(SENTENCES), rtol=0, atol=2e-5
    )


@pytest.mark.parametrize("padding", [0.0, 3.0])
def test_a_cnn_over_padding_that_is_not_zero_sees_one_sentence_alone(
    tmp_path: Path, padding: float
):
    from sentence_transformers.sentence_transformer import modules as m

    folder = made.save(
        tmp_path / "cnn", made.word_embeddings(padding), m.CNN(8, 6), m.Pooling(18, "max")
    )
    encoder: Any = load_encoder(str(folder))
    sentences = [
        "dog",
        "the dog ran",
        "a dog runs on the mat and the cat sat on the mat",
        "cat sat",
    ]
    assert not neighbours_matter(encoder, sentences)
    together = encoder.network.encode(sentences, show_progress_bar=False)
    assert np.allclose(together, encoder.encode(sentences), atol=1e-5) == (not padding)


@pytest.mark.parametrize("made", ["bert", "roberta", "gpt2", "qwen", "mpnet"])
@pytest.mark.parametrize("half", [False, True])
def test_models_that_keep_to_the_mask_do_not_mind(tiny: Any, made: str, half: bool):
    model = AutoModel.from_pretrained(str(tiny[made]))
    for training in (False, True):
        model.train(training)
        # Rounding under autocast is not taken for padding.
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            assert (
                not depends_on_padding(model, 1, torch.device("cpu")) and model.training is training
            )
