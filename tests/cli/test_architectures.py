"""Checkpoints of unusual architectures: they are scored, or one line says why they are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import processors

from stsbench.core.errors import EncoderError
from stsbench.encoders.load import load_encoder
from tests.encoders.made_checkpoints import save as save_modules
from tests.encoders.tiny import LONGEST, bytes_tokenizer, save

SMALL = ("--tasks", "quickstart-es-en", "--no-store")
SENTENCES = ["a dog runs", "the cat sat on the mat and slept", "no", "a dog runs in the park"]
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
LOCAL = {"local_radius": 3, "global_block_size": 4}
EXPERTS = {"num_sparse_encoder_layers": 1, "num_decoder_layers": 2, "num_experts": 2}
STATE = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}
REFORMER = {
    "hidden_size": 16,
    "attention_head_size": 8,
    "num_attention_heads": 2,
    "feed_forward_size": 32,
    "axial_pos_embds": False,
    "max_position_embeddings": LONGEST,
    "attn_layers": ["local", "local"],
    "local_attn_chunk_length": 4,
    "is_decoder": False,
}
OPT = {
    "hidden_size": 16,
    "word_embed_proj_dim": 8,
    "ffn_dim": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "do_layer_norm_before": False,
    "max_position_embeddings": LONGEST,
}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any], int]] = {
    "Mamba": ("MambaModel", STATE, 16),
    "FalconMamba": ("FalconMambaModel", STATE, 16),
    "Reformer": ("ReformerModel", REFORMER, 32),
    "OPT": ("OPTModel", OPT, 8),
    "T5": ("T5EncoderModel", T5, 16),
    "LongT5": ("LongT5EncoderModel", {**T5, **LOCAL}, 16),
    "SwitchTransformers": ("SwitchTransformersEncoderModel", {**T5, **EXPERTS}, 16),
}
"""The model's class, its sizes, and the numbers of an embedding."""


def save_architecture(folder: Path, name: str) -> Path:
    kind, sizes, _ = ARCHITECTURES[name]
    tokenizer, vocab = bytes_tokenizer(["<pad>", "</s>", "<unk>"])
    end = ("</s>", vocab["</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[end])
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(vocab), pad_token_id=0, eos_token_id=1, **sizes
    )
    tokens = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return save(folder, getattr(transformers, kind), config, tokenizer, **tokens)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_unusual_architecture_embeds_as_transformers_does(stsbench, tmp_path, name):
    folder = save_architecture(tmp_path / "unusual", name)
    result = stsbench.json("run", *SMALL, "--encoder", folder)["results"][0]
    assert np.isfinite(result["score"])
    kind, _, width = ARCHITECTURES[name]
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        means = [
            model(**tokenizer(sentence, return_tensors="pt", return_token_type_ids=False))
            .last_hidden_state[0]
            .mean(dim=0)
            for sentence in SENTENCES
        ]
    embeddings = load_encoder(str(folder)).encode(SENTENCES)
    assert embeddings.shape == (len(SENTENCES), width)
    np.testing.assert_allclose(embeddings, torch.stack(means).numpy(), atol=2e-5)


@pytest.mark.parametrize(("pooling", "width"), [("mean(0,1)", 16), ("cls(1)", 16), ("mean", 8)])
def test_each_layer_is_pooled_in_its_own_width(tmp_path, pooling, width):
    folder = save_architecture(tmp_path / "opt", "OPT")
    encoder = load_encoder(str(folder), params={"pooling": pooling})
    assert encoder.encode(SENTENCES).shape == (len(SENTENCES), width)


def test_layers_of_several_widths_are_not_pooled_together(stsbench, tmp_path):
    folder = save_architecture(tmp_path / "opt", "OPT")
    error = stsbench.refused("run", *SMALL, "--encoder", folder, "--set", "pooling=first_last")
    assert "the layers of OPTModel have the shapes (" in error
    assert error.endswith("; choose a pooling of one layer")


def make_chains(bert: Path) -> dict[str, tuple[list[Callable[[], Any]], str]]:
    from sentence_transformers.sentence_transformer import modules as m

    def transformer() -> Any:
        return m.Transformer(str(bert))

    return {
        "LSTM": (
            [transformer, lambda: m.LSTM(16, 6), lambda: m.Pooling(12, "max")],
            "(Transformer, LSTM, Pooling) do not fit together: one needs 'sentence_lengths', which"
            " none before it makes",
        ),
        "width": (
            [transformer, lambda: m.Pooling(16, "mean"), lambda: m.Dense(8, 4)],
            "(Transformer, Pooling, Dense) do not fit together: mat1 and mat2 shapes cannot be",
        ),
        "no pooling": (
            [transformer],
            "(Transformer) do not fit together: one needs 'sentence_embedding', which none before",
        ),
    }


@pytest.mark.parametrize("chain", ["LSTM", "width", "no pooling"])
def test_modules_that_do_not_fit_together_are_one_line(stsbench, bert, tmp_path, chain):
    makers, message = make_chains(bert)[chain]
    folder = save_modules(tmp_path / "chain", *(make() for make in makers))
    error = stsbench.refused("run", *SMALL, "--encoder", folder)
    assert f"{folder}: its modules {message}" in error


PAGE = (
    "Failed to export the model. \x1b[96mThis is step 1/3\x1b[0m of exporting the model. Next"
    " steps:\n- Create an issue.\n\n## Exception summary\n"
)


@pytest.mark.parametrize("params", [{"backend": "onnx"}, {"dtype": "int8"}])
def test_an_export_that_fails_says_why_without_the_page_of_torch(params, tmp_path, monkeypatch):
    pytest.importorskip("onnxscript", reason="the extra 'onnx' is not installed")
    pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    folder = save_architecture(tmp_path / "t5", "T5")

    def fail(*arguments: object, **options: object) -> None:
        try:
            raise ValueError("Cannot view a tensor\nOriginal traceback:\nFile")
        except ValueError as error:
            raise RuntimeError(PAGE) from error

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(EncoderError) as raised:
        load_encoder(str(folder), params=params).encode(SENTENCES)
    remedy = f"torch cannot export it to ONNX: Cannot view a tensor; leave '{min(params)}' out"
    assert str(raised.value) == f"{folder}: {remedy}"
