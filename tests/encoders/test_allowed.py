"""What the JSON files of a checkpoint may say: what public checkpoints say is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.described import read_modules
from tests.cli.commands import write
from tests.hub_files import write_bert

TOKENIZERS: dict[str, dict[str, Any]] = {
    "before 4.0": {
        "do_lower_case": True,
        "max_len": 512,
        "full_tokenizer_file": None,
        "init_inputs": [],
    },
    # Left over from where it was saved: no such file is here.
    "4.6": {
        "special_tokens_map_file": "/root/.cache/huggingface/transformers/853440ef",
        "tokenizer_file": "/root/.cache/huggingface/transformers/16a2f78023c8dc511294f0c97b5e10fde3ef9889ad6d11ffaa2a00714e73926e",
        "name_or_path": "bert-base-uncased",
        "never_split": None,
        "model_max_length": 1e30,
    },
    "4.40": {
        "added_tokens_decoder": {"0": {"content": "[PAD]", "lstrip": False, "special": True}},
        "additional_special_tokens": [],
        "extra_special_tokens": {},
        "clean_up_tokenization_spaces": True,
        "pad_to_multiple_of": None,
        "pad_token_type_id": 0,
        "padding_side": "right",
        "stride": 0,
        "truncation_strategy": "longest_first",
        "chat_template": "{% for message in messages %}{{ message }}{% endfor %}",
        "auto_map": {"AutoTokenizer": ["tokenization_qwen.Qwen2Tokenizer", None]},
    },
    "5.0": {
        "backend": "tokenizers",
        "is_local": True,
        "local_files_only": False,
        "model_specific_special_tokens": {"image_token": "<image>"},
        "processor_class": "CLIPProcessor",
    },
    "T5": {
        "sp_model_kwargs": {},
        "extra_ids": 100,
        "legacy": False,
        "additional_special_tokens": ["<extra_id_0>"],
    },
    "M2M100": {
        "language_codes": "m2m100",
        "src_lang": None,
        "tgt_lang": "th",
        "num_madeup_words": 8,
    },
    "Japanese": {
        "word_tokenizer_type": "mecab",
        "subword_tokenizer_type": "wordpiece",
        "mecab_kwargs": {"mecab_dic": "unidic_lite"},
    },
    "DeBERTa": {"vocab_type": "spm", "split_by_punct": False},
    "inline": {"errors": "replace", "vocab": {"a": 0}, "merges": [["a", "b"]]},
}
ONE_MODALITY = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
LENGTHS: dict[str, dict[str, Any]] = {
    "2.0": {"max_seq_length": 128, "do_lower_case": False},
    "by hand": {
        "max_seq_length": 8192,
        "model_args": {
            "attn_implementation": "sdpa",
            "torch_dtype": "torch.float16",
            "trust_remote_code": True,
        },
        "tokenizer_args": {"padding_side": "left", "model_max_length": 8192, "use_fast": True},
        "config_args": {"output_hidden_states": True, "num_labels": 1, "attention_dropout": 0.0},
    },
    "6.2": {
        "transformer_task": "feature-extraction",
        "modality_config": {
            **ONE_MODALITY,
            "image+text": {
                "method": "get_image_features",
                "method_output_name": ["hidden_states", -1],
            },
            "message": {"method": "forward", "method_output_name": None, "format": "structured"},
        },
        "module_output_name": "token_embeddings",
        "processing_kwargs": {
            "text": {"padding": "max_length", "add_special_tokens": False},
            "chat_template": {
                "chat_template": "sentence_transformers",
                "add_generation_prompt": True,
            },
        },
        "unpad_inputs": None,
        "query_length": 32,
        "query_expansion": {"strategy": "fixed", "attend": False, "token": "[MASK]", "length": 32},
    },
}


@pytest.mark.parametrize("case", TOKENIZERS)
def test_what_saved_tokenizers_say_is_read(tmp_path, case):
    folder = write_bert(tmp_path / "tiny", tokenizer_config__json=TOKENIZERS[case])
    write(
        folder / "special_tokens_map.json",
        json.dumps({"unk_token": {"content": "[UNK]", "lstrip": False}}),
    )
    assert "tokenizer_config.json" in find_checkpoint(str(folder)).file_hashes()


@pytest.mark.parametrize("case", LENGTHS)
def test_what_saved_transformers_say_is_read(tmp_path, case):
    folder = write_bert(tmp_path / "tiny", sentence_bert_config__json=LENGTHS[case])
    write(
        folder / "modules.json",
        '[{"type": "sentence_transformers.models.Transformer", "path": ""}]',
    )
    assert [module.kind for module in read_modules(folder)] == [
        "sentence_transformers.models.Transformer"
    ]


def configured(kind: str) -> dict[str, dict[str, Any]]:
    """What releases of sentence-transformers from 2.0 on have written into the folder of a module."""
    words: dict[str, Any] = {"vocab": ["a"], "word_weights": {"a": 1.0}, "unknown_word_weight": 1}
    tokenizer = {"vocab": ["a"], "stop_words": [], "do_lower_case": False}
    pooling = {
        "word_embedding_dimension": 16,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_lasttoken": False,
    }
    dense = {
        "in_features": 16,
        "out_features": 4,
        "bias": True,
        "activation_function": "torch.nn.Tanh",
    }
    recurrent = {"hidden_dim": 6, "num_layers": 1, "dropout": 0, "bidirectional": True}
    written: dict[str, dict[str, dict[str, Any]]] = {
        "Pooling": {"config.json": {**pooling, "include_prompt": True}},
        "Dense": {
            "config.json": {
                **dense,
                "module_input_name": "x",
                "module_output_name": "x",
                "use_residual": True,
            }
        },
        "LSTM": {"lstm_config.json": {"word_embedding_dimension": 8, **recurrent}},
        "CNN": {
            "cnn_config.json": {
                "in_word_embedding_dimension": 8,
                "out_channels": 6,
                "kernel_sizes": [1, 3],
            }
        },
        "WordEmbeddings": {
            "wordembedding_config.json": {
                "tokenizer_class": "sentence_transformers.models.tokenizer.WhitespaceTokenizer.WhitespaceTokenizer",
                "update_embeddings": False,
                "max_seq_length": 1000000,
            },
            "whitespacetokenizer_config.json": tokenizer,
        },
        "WordWeights": {"config.json": words},
        "BoW": {"config.json": {**words, "cumulative_term_frequency": True}},
        "WeightedLayerPooling": {
            "config.json": {
                "word_embedding_dimension": 16,
                "layer_start": 4,
                "num_hidden_layers": 12,
            }
        },
        "Dropout": {"config.json": {"dropout": 0.2}},
        "LayerNorm": {"config.json": {"dimension": 16}},
        "Normalize": {"config.json": {"module_input_name": "sentence_embedding", "more": 1}},
    }
    return written[kind]


@pytest.mark.parametrize(
    "kind",
    "Pooling Dense LSTM CNN WordEmbeddings WordWeights BoW WeightedLayerPooling Dropout LayerNorm Normalize".split(),
)
@pytest.mark.parametrize("home", ["models", "sentence_transformer.modules"])
def test_what_saved_modules_say_is_read(tmp_path: Path, kind, home):
    address = f"sentence_transformers.{home}.{kind}"
    for name, values in configured(kind).items():
        write(tmp_path / "1_Module" / name, json.dumps(values))
    write(
        tmp_path / "modules.json",
        json.dumps([{"type": address, "path": "1_Module", "idx": 0, "name": "0"}]),
    )
    assert [module.kind for module in read_modules(tmp_path)] == [address]
