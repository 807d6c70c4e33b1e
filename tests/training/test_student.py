"""A student: parts by length, two views, what is saved, and what it may start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AlbertConfig,
    BertConfig,
    DistilBertConfig,
    GPT2Config,
    ModernBertConfig,
    PreTrainedConfig,
    T5Config,
)

import stsbench
from stsbench.core.errors import CardError, EncoderError
from stsbench.encoders.load import load_encoder
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.training.loop import on_cpu
from stsbench.training.saving import save_student
from stsbench.training.student import dropout_rates
from tests.training.students import sentences, student

TEXTS = [*sentences(30, longest=14), "a"]


def tokens(made: Any) -> Any:
    return made.collate(made.tokenize(TEXTS), np.arange(len(TEXTS)))


@pytest.mark.parametrize(
    "pooling", ["mean", "max", "cls_before_pooler", "cls", "last_token", "mean(1,-1)"]
)
def test_parts_by_length_embed_as_the_whole_batch_does(masked_lm, monkeypatch, pooling):
    made = student(masked_lm, pooling=pooling, dropout=0.0)
    assert len(list(on_cpu.split_by_length(tokens(made)["attention_mask"]))) > 1
    split = made.embed(tokens(made))
    monkeypatch.setattr(on_cpu, "split_by_length", lambda mask: iter([]))
    assert torch.allclose(split, made.embed(tokens(made)), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"pooling": "mean"}, "mean"),
        ({"pooling": "max"}, "max"),
        ({"pooling": "last_token"}, "last_token"),
        ({"pooling": "cls"}, "cls"),
        ({"pooling": "cls", "test_pooling": "cls_before_pooler"}, "cls_before_pooler"),
        ({"pooling": "mean", "test_pooling": "last2"}, "mean(-2,-1)"),
        ({"pooling": "first_last"}, "mean(1,-1)"),
        ({"pooling": "static_last"}, "mean(0,-1)"),
        ({"pooling": "max(2)"}, "max(2)"),
        ({"pooling": "cls(0)"}, "cls(0)"),
    ],
)
def test_a_saved_student_is_the_same_encoder_in_every_library(masked_lm, tmp_path, options, named):
    assert reopened(student(masked_lm, **options), tmp_path / "saved", TEXTS, 2e-6) == named


@pytest.mark.parametrize("make", ["roberta", "mpnet"])
@pytest.mark.parametrize("pooling", ["cls", "mean(1,-1)"])
def test_other_makes_of_transformers_are_saved_alike(tiny, tmp_path, make, pooling):
    texts = ["a dog", "the dog means the dog", "a", "", "a dog means a dog, the dog 12"]
    assert reopened(student(tiny[make], pooling=pooling), tmp_path, texts, 1e-5) == pooling


def reopened(made: Any, folder: Path, texts: list[str], apart: float) -> str:
    """The pooling of a saved student, which embeds as it does in each library."""
    from sentence_transformers import SentenceTransformer

    own = made.encoder().encode(texts)
    save_student(made, folder)
    loaded = stsbench.load_encoder(folder)
    assert isinstance(loaded, TransformerEncoder)
    theirs = SentenceTransformer(str(folder), device="cpu").encode(texts)
    for found in (loaded.encode(texts), of_transformers(folder, loaded.pooling, texts), theirs):
        np.testing.assert_allclose(found, own, atol=apart)
    return str(loaded.pooling)


def of_transformers(folder: Path, pooling: Any, texts: list[str]) -> Any:
    """The embeddings by AutoModel alone, a sentence at a time: no padding, no batches."""
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    found = []
    for text in texts:
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        states = [output.hidden_states[layer][0] for layer in pooling.layers]
        match pooling.name:
            case "cls":
                found.append(output.pooler_output[0])
            case "cls_before_pooler":
                found.append(states[0][0])
            case "last_token":
                found.append(states[0][-1])
            case "max":
                found.append(states[0].amax(dim=0))
            case _:
                found.append(torch.stack([state.mean(dim=0) for state in states]).mean(dim=0))
    return torch.stack(found).numpy()


def test_weights_may_be_chosen_under_a_pooling_that_is_neither_training_s_nor_the_tests(
    masked_lm, tmp_path
):
    made: Any = student(masked_lm, pooling="mean", test_pooling="last2", validation_pooling="max")
    seen = made.encoder().encode(TEXTS)
    assert (seen == student(masked_lm, pooling="max").encoder().encode(TEXTS)).all()
    save_student(made, tmp_path / "saved")
    kept = load_encoder(str(tmp_path / "saved")).encode(TEXTS)
    np.testing.assert_allclose(
        kept, student(masked_lm, pooling="last2").encoder().encode(TEXTS), atol=2e-6
    )
    assert np.abs(kept - seen).max() > 0.01
    with pytest.raises(EncoderError, match="asks for layer 9"):
        student(masked_lm, validation_pooling="mean(9)")


def test_a_head_goes_on_from_a_saved_one(masked_lm, tmp_path):
    first: Any = student(masked_lm, pooling="cls")
    save_student(first, tmp_path / "saved")
    second: Any = student(tmp_path / "saved", pooling="cls", head="checkpoint")
    assert torch.equal(first.head.linear.weight, second.head.linear.weight)
    with pytest.raises(EncoderError, match="no pooler to start from"):
        student(masked_lm, pooling="cls", head="checkpoint")


def test_a_test_sentence_is_not_cut_where_training_cuts(masked_lm):
    made = student(masked_lm, max_length=6)
    long = " ".join(["dog cat"] * 10)
    assert made.tokenize([long]).lengths[0] == 6
    assert made.encoder().tokenize([long]).lengths[0] == 22


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"pooling": "mean(7)"}, EncoderError, "asks for layer 7; the model has 3"),
        ({"pooling": "meen"}, CardError, "did you mean 'mean'"),
        ({"pooling": "wk(1)"}, CardError, "cannot be trained under; choose one of cls, .*, mask; "),
        ({"layers": 4}, EncoderError, "cannot keep 4 layers, its configuration has 3"),
        *(
            ({"max_length": length}, CardError, f"max_length {length}: give 3 to 40")
            for length in (0, 2, 41)
        ),
    ],
)
def test_what_the_checkpoint_lacks_is_one_line(masked_lm, options, error, says):
    with pytest.raises(error, match=says):
        student(masked_lm, **options)


@pytest.fixture
def distilbert(masked_lm, tmp_path) -> Path:
    """A model without any pooler, and with names of its own for depth and width."""
    from transformers import AutoTokenizer, DistilBertConfig, DistilBertModel

    folder: Path = tmp_path / "distilbert"
    AutoTokenizer.from_pretrained(masked_lm).save_pretrained(folder)
    sizes = {
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 32,
        "max_position_embeddings": 40,
    }
    DistilBertModel(DistilBertConfig(vocab_size=80, **sizes)).save_pretrained(folder)
    return folder


def test_a_head_needs_a_pooler_to_be_saved_as(distilbert, tmp_path):
    with pytest.raises(
        EncoderError, match="DistilBertModel has no pooler to save the head as; use it in training"
    ):
        student(distilbert, pooling="cls")
    made = student(distilbert, pooling="cls", test_pooling="cls_before_pooler")
    save_student(made, tmp_path / "saved")
    opened = stsbench.load_encoder(tmp_path / "saved")
    np.testing.assert_allclose(opened.encode(TEXTS), made.encoder().encode(TEXTS), atol=2e-6)


def test_a_folder_may_not_ask_for_code_of_its_own(masked_lm, tmp_path):
    save_student(student(masked_lm), tmp_path / "saved")
    path: Path = tmp_path / "saved" / "stsbench.json"
    path.write_text('{"kind": "os:system", "params": {}}')
    with pytest.raises(stsbench.core.errors.UnknownName, match="os:system"):
        stsbench.load_encoder(tmp_path / "saved")


def test_the_first_layers_of_a_checkpoint(masked_lm):
    whole, cut = student(masked_lm), student(masked_lm, layers=2)
    assert cut.backbone.depth == 2
    for a, b in zip(
        whole.model.encoder.layer[:2].parameters(),
        cut.model.encoder.layer.parameters(),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_a_fresh_language_model_head_only_where_it_is_asked_for(masked_lm, tmp_path):
    save_student(student(masked_lm), tmp_path)
    with pytest.raises(EncoderError, match="lack its head"):
        student(tmp_path, language_model=True)
    made = student(tmp_path, language_model=True, fresh_language_head=True)
    assert made.language_model is not None
    kept = student(tmp_path).model.encoder.layer[0].output.dense.weight
    assert torch.equal(made.model.encoder.layer[0].output.dense.weight, kept)
    assert (
        made.language_model.cls.predictions.decoder.weight
        is made.model.embeddings.word_embeddings.weight
    )


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (BertConfig(), {"hidden_dropout_prob", "attention_probs_dropout_prob"}),
        (AlbertConfig(), {"hidden_dropout_prob", "attention_probs_dropout_prob"}),
        (DistilBertConfig(), {"dropout", "attention_dropout"}),
        (GPT2Config(), {"resid_pdrop", "embd_pdrop", "attn_pdrop"}),
        (T5Config(), {"dropout_rate"}),
        (ModernBertConfig(), {"attention_dropout", "embedding_dropout", "mlp_dropout"}),
    ],
)
def test_every_dropout_of_the_body_is_known_and_none_of_a_head(
    config: PreTrainedConfig, expected: set[str]
):
    assert set(dropout_rates(config.to_dict())) == expected
