from typing import Any

import numpy as np
import pytest

from stsbench.core.errors import EncoderError
from stsbench.encoders.described import (
    is_pair_classifier,
    plain_transformer_params,
    read_modules,
)
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.sentence_transformer import SentenceTransformerEncoder
from tests.encoders.made_checkpoints import SENTENCES, change, save, write_plain

MEAN = {
    "word_embedding_dimension": 16,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_cls_token": False,
}


def old(mode: str) -> dict[str, Any]:
    return {
        "word_embedding_dimension": 16,
        "pooling_mode_mean_tokens": False,
        f"pooling_mode_{mode}": True,
    }


PLAIN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "old mean": ({"pooling": old("mean_tokens")}, {}),
    "old cls": ({"pooling": old("cls_token")}, {"pooling": "cls_before_pooler"}),
    "old max": ({"pooling": old("max_tokens")}, {"pooling": "max"}),
    "old last": ({"pooling": old("lasttoken")}, {"pooling": "last_token"}),
    "no mode": ({"pooling": {"word_embedding_dimension": 16}}, {}),
    "new mode": (
        {"pooling": {"embedding_dimension": 16, "pooling_mode": "max", "include_prompt": True}},
        {"pooling": "max"},
    ),
    "new list": (
        {"pooling": {"embedding_dimension": 16, "pooling_mode": ["cls"]}},
        {"pooling": "cls_before_pooler"},
    ),
    "cut": ({"own": {"max_seq_length": 7, "do_lower_case": False}}, {"max_length": 7}),
    "no limit": ({"own": {"max_seq_length": None, "model_args": {}}}, {}),
    "normalised": ({"normalise": True}, {"normalise": True}),
    "prompted": ({"prompt": "q : "}, {"prompt": "q : "}),
    "left": ({"side": "left"}, {"padding_side": "left"}),
    "in a folder": ({"at": "0_Transformer"}, {"subfolder": "0_Transformer"}),
}
"""How a checkpoint is made, and what of it is another than a mean that is not normalised."""
DEFAULTS: dict[str, Any] = {"pooling": MEAN, "own": {}, "normalise": False, "prompt": "", "at": ""}


@pytest.mark.parametrize("case", PLAIN)
def test_our_engine_gives_what_the_library_gives(bert, tmp_path, case):
    made, expected = PLAIN[case]
    folder = write_plain(bert, tmp_path / "model", **{**DEFAULTS, **made})
    params = plain_transformer_params(folder)
    assert params == {"pooling": "mean", "normalise": False, **expected}
    ours = TransformerEncoder(str(folder), **(params or {}), device="cpu").encode(SENTENCES)
    theirs = SentenceTransformerEncoder(str(folder), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


@pytest.mark.parametrize("normalise", [False, True])
def test_checkpoints_saved_today_are_seen_through(bert, tmp_path, normalise):
    from sentence_transformers.sentence_transformer import modules as m

    steps = [
        m.Transformer(str(bert), max_seq_length=9),
        m.Pooling(16, "cls"),
        *([m.Normalize()] if normalise else []),
    ]
    folder = save(tmp_path / "model", *steps)
    params = plain_transformer_params(folder)
    assert params == {"pooling": "cls_before_pooler", "normalise": normalise}
    ours = TransformerEncoder(str(folder), **params).encode(SENTENCES)
    np.testing.assert_allclose(
        ours, SentenceTransformerEncoder(str(folder)).encode(SENTENCES), atol=2e-6
    )


NOT_PLAIN: dict[str, dict[str, Any]] = {
    "two modes": {"pooling": {**MEAN, "pooling_mode_max_tokens": True}},
    "two new modes": {"pooling": {"embedding_dimension": 16, "pooling_mode": ["mean", "max"]}},
    "root of length": {"pooling": old("mean_sqrt_len_tokens")},
    "weighted": {"pooling": {"embedding_dimension": 16, "pooling_mode": "weightedmean"}},
    "prompt left out": {"pooling": {**MEAN, "include_prompt": False}, "prompt": "q : "},
    "unknown pooling key": {"pooling": {**MEAN, "window": 3}},
    "lower case": {"own": {"do_lower_case": True}},
    "another output": {"own": {"module_output_name": "sentence_embedding"}},
    "own arguments": {"own": {"model_args": {"attn_implementation": "eager"}}},
    "own processing": {"own": {"processing_kwargs": {"text": {"padding": "max_length"}}}},
}


OTHER_MODELS: list[dict[str, Any]] = [
    {"is_encoder_decoder": True},
    {"model_type": "t5"},
    {"vision_config": {}},
]


@pytest.mark.parametrize("case", [*NOT_PLAIN, *OTHER_MODELS], ids=str)
def test_what_only_the_library_does_is_left_to_it(bert, tmp_path, case):
    folder = write_plain(
        bert,
        tmp_path / "model",
        **{**DEFAULTS, **(NOT_PLAIN[case] if isinstance(case, str) else {})},
    )
    change(folder / "config.json", **({} if isinstance(case, str) else case))
    assert plain_transformer_params(folder) is None


@pytest.mark.parametrize(
    ("model_type", "length", "expected"),
    [
        ("roberta", 64, 0),
        ("roberta", 63, 0),
        ("roberta", 62, 62),
        ("bert", 64, 64),
        ("bert", 65, 0),
    ],
)
def test_texts_are_cut_at_the_positions_that_a_model_can_read(
    bert, tmp_path, model_type, length, expected
):
    # RoBERTa uses two of its positions for no token.
    folder = write_plain(
        bert, tmp_path / "model", **{**DEFAULTS, "own": {"max_seq_length": length}}
    )
    change(
        folder / "config.json",
        model_type=model_type,
        architectures=["RobertaModel" if model_type == "roberta" else "BertModel"],
        max_position_embeddings=64,
    )
    params = plain_transformer_params(folder)
    assert params is not None and params.get("max_length", 0) == expected


@pytest.mark.parametrize("config", [{"id2label": 3}, {"architectures": {"a": 1}}, {}])
def test_a_broken_configuration_is_of_no_pair_classifier(config):
    assert not is_pair_classifier({"num_labels": 1, "architectures": ["BertModel"], **config})


@pytest.mark.parametrize("length", ["x", 3.5, -3, [8], True])
def test_a_longest_input_that_is_no_number_of_tokens_is_one_line(bert, tmp_path, length):
    folder = write_plain(
        bert, tmp_path / "model", **{**DEFAULTS, "own": {"max_seq_length": length}}
    )
    with pytest.raises(EncoderError, match="'max_seq_length' is ") as caught:
        read_modules(folder)
    assert "sentence_bert_config.json" in str(caught.value)


def test_other_checkpoints_are_not_plain(saved, bert, dense):
    assert plain_transformer_params(bert) is None
    assert [make for make, folder in saved.items() if plain_transformer_params(folder)] == []
    (dense / "modules.json").write_text("[{")
    with pytest.raises(EncoderError, match="modules.json.* modules"):
        plain_transformer_params(dense)
