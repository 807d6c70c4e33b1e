"""The keys and values that the JSON files of a checkpoint may have.

Libraries pass many keys on to their loaders. There a key may name a file outside the folder, other
weights than those that are hashed, or a kernel of the Hub. So each file is compared with this list
before a library reads it: a key that is not in it is refused, and the message names it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Union

from stsbench.core.errors import EncoderError, suggest
from stsbench.core.wording import format_repr

Rule = Union[Callable[[Any], bool], "Rules"]
Rules = Mapping[str, Rule]
"""For each pattern of a key what its value must be, or rules for the keys of a table.

The first pattern that fits counts.
"""


def matches_json(pattern: str) -> Callable[[Any], bool]:
    """Return a rule: the value, written as JSON, matches a pattern completely."""
    return lambda value: re.fullmatch(pattern, json.dumps(value)) is not None


def allow_any(value: object) -> bool:
    """Return true for any value: the rule of keys in which no library looks for a path."""
    return True


# The rules below accept JSON null as well: a library then uses its default.
FLAG = matches_json("null|true|false")
NUMBER = matches_json(r"null|-?[\d.]+([eE][+-]?\d+)?")
WORD = matches_json(r'null|true|false|-?[\d.]+([eE][+-]?\d+)?|"[\w-]*"')
NULL = matches_json("null")


def names_nothing(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a value is neither text nor a list or table that may hold some."""
    return not isinstance(value, str | list | dict) or not value


def is_no_path(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Return whether a value names no existing file.

    Words and tokens in a table or list are allowed, and so is a path on the machine where the file
    was made.
    """
    return not isinstance(value, str) or not os.path.exists(value)  # noqa: PTH110 - Path raises for long names


MODEL_ARGUMENTS: Rules = {
    "attn_implementation": matches_json(r'null|"\w+"'),
    "(torch_)?dtype": matches_json(r'null|"(torch\.)?\w+"'),
    # If it were false, the library would read a .bin file beside the weights that are hashed.
    "use_safetensors": matches_json("null|true"),
    # The library itself ignores trust_remote_code here.
    "trust_remote_code|low_cpu_mem_usage|add_pooling_layer": FLAG,
}
TOKENIZER_ARGUMENTS: Rules = {
    "padding_side|truncation_side": matches_json('"(left|right)"'),
    "model_max_length|min_pixels|max_pixels": NUMBER,
    "(bos|eos|unk|sep|pad|cls|mask)_token": allow_any,
    "use_fast|trust_remote_code|do_lower_case|clean_up_tokenization_spaces|legacy": FLAG,
    "add_prefix_space|add_bos_token|add_eos_token": FLAG,
}
CONFIG_ARGUMENTS: Rules = {
    "num_labels": NUMBER,
    "output_hidden_states|output_attentions|use_cache|trust_remote_code": FLAG,
    "is_causal|is_decoder|use_bidirectional_attention|add_pooling_layer": FLAG,
    r"\w*(dropout|_prob)": NUMBER,
}
SENTENCE_BERT: Rules = {
    # Checked by refuse_config_values.
    "max_seq_length": allow_any,
    "do_lower_case|unpad_inputs": FLAG,
    "query_length|document_length": NUMBER,
    "transformer_task|module_output_name": WORD,
    "modality_config": {
        r"[a-z+]+": {
            "method": matches_json('"(forward|get_[a-z]+_features)"'),
            "method_output_name": matches_json(r'null|"\w+"|\["\w+"(, ("\w+"|-?\d+))*\]'),
            "format": WORD,
        }
    },
    "processing_kwargs": {"common|text|audio|image|video|chat_template": {r"\w+": WORD}},
    "query_expansion": {"strategy|attend|length": WORD, "token": allow_any},
    "model_args|model_kwargs": MODEL_ARGUMENTS,
    "tokenizer_args|processor_kwargs": TOKENIZER_ARGUMENTS,
    "config_args|config_kwargs": CONFIG_ARGUMENTS,
    "tokenizer_name_or_path": NULL,
}
"""The rules for the configuration of a transformer in all versions of sentence-transformers."""

TOKENIZER: Rules = {
    # Tokens, and texts that no library opens.
    r"\w+_tokens?|\w+_tokens_decoder|\w+_token_(box|sent)|never_split|tags_dict": allow_any,
    "name_or_path|special_tokens_map_file|full_tokenizer_file|cache_dir|auto_map": allow_any,
    "(tokenizer|processor)_class|(model|tokenizer|vocab|image_processor)_type|backend": allow_any,
    r"chat_\w+|response_\w+|model_input_names|model_max_length|max_model_input_sizes": allow_any,
    r"\w+_side|\w+_strategy|padding|truncation|errors|task|wordpieces_prefix": allow_any,
    r"(\w+_)?lang(uage)?s?|(lang|language)_codes|lang2id|id2lang": allow_any,
    "(word|subword)_tokenizer_type": allow_any,
    "phonemizer_backend|replace_word_delimiter_char|token_type_ids_pattern": allow_any,
    r"(transformers_)?version|_commit_hash|revision|device_map|(torch_)?dtype": allow_any,
    # Newer versions of transformers read the folder's own file instead, older ones this.
    r"\w+_file|\w+_spm|vocab|merges|entity_vocab": is_no_path,
    r"(mecab|sudachi)_kwargs": {
        r"mecab_dic|sudachi_(split_mode|dict_type)": WORD,
        r"\w+": names_nothing,
    },
    r"\w+_kwargs": {r"\w+": names_nothing},
    ".*": names_nothing,
}
"""The rules for a tokenizer: its class may accept any key, if the value names nothing."""

SENTENCE_BERT_CONFIGS = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
"""The names of a transformer's configuration in sentence-transformers, in the order of search."""
TRANSFORMER_RULES: Mapping[str, Rules] = {
    **dict.fromkeys(SENTENCE_BERT_CONFIGS, SENTENCE_BERT),
    **dict.fromkeys(("tokenizer_config.json", "special_tokens_map.json"), TOKENIZER),
}


def _allow_keys(keys: str) -> Rules:
    """Return rules that allow any value of the keys that match a pattern, and no other keys."""
    return {keys: allow_any}


VOCABULARY = "vocab|word_weights|unknown_word_weight"
ALLOWED_KEYS_BY_MODULE: Mapping[str, Mapping[str, Rules]] = {
    "Transformer": TRANSFORMER_RULES,
    "CLIPModel": TRANSFORMER_RULES,
    "Pooling": {
        "config.json": _allow_keys(
            r"(word_)?embedding_dimension|pooling_mode(_\w+)?|include_prompt"
        )
    },
    "Dense": {
        "config.json": _allow_keys(
            "in_features|out_features|bias|activation_function|module_input_name"
            "|module_output_name|use_residual"
        )
    },
    "LSTM": {
        "lstm_config.json": _allow_keys(
            "(word_)?embedding_dimension|hidden_dim|num_layers|dropout|bidirectional"
        )
    },
    "CNN": {
        "cnn_config.json": _allow_keys(
            "in_(word_)?embedding_dimension|out_channels|kernel_sizes|stride_sizes"
        )
    },
    "WordEmbeddings": {
        "wordembedding_config.json": _allow_keys("tokenizer_class|update_embeddings|max_seq_length")
    },
    "WhitespaceTokenizer": {
        "whitespacetokenizer_config.json": _allow_keys("vocab|stop_words|do_lower_case")
    },
    "PhraseTokenizer": {
        "phrasetokenizer_config.json": _allow_keys(
            "vocab|stop_words|do_lower_case|ngram_separator|max_ngram_length"
        )
    },
    # This module does not refuse remote code itself: transformers would ask at the terminal.
    "TransformersTokenizerWrapper": dict.fromkeys(
        ("tokenizer_config.json", "special_tokens_map.json"), {"auto_map": NULL, **TOKENIZER}
    ),
    "WordWeights": {"config.json": _allow_keys(VOCABULARY)},
    "BoW": {"config.json": _allow_keys(f"{VOCABULARY}|cumulative_term_frequency")},
    "WeightedLayerPooling": {
        "config.json": _allow_keys("(word_)?embedding_dimension|layer_start|num_hidden_layers")
    },
    "Dropout": {"config.json": _allow_keys("dropout")},
    "LayerNorm": {"config.json": _allow_keys("dimension")},
    # The library reads no keys of these that could name a file.
    "Normalize": {},
    "Router": {},
    "Asym": {},
    "StaticEmbedding": {},
}
"""For each module of a sentence encoder, by its class, the rules for its files."""


def refuse_other_keys(
    values: Mapping[str, Any], rules: Rules, path: Path, prefix: str = ""
) -> None:
    """Raise an error if the values of a JSON file have a key or a value that is not allowed.

    Args:
        values: The values by key; a value may be a table with further keys.
        rules: For each pattern of a key, a regular expression, either a function that returns
            whether its value is allowed, or rules for the keys of its table. The first pattern
            that fits a key counts; a key that fits none is not allowed.
        path: The file, for the message.
        prefix: The keys of the tables that these values are in, each with a dot, for the message.

    Raises:
        EncoderError: A key or value is not allowed; the message names the first.
    """
    for key, value in values.items():
        quoted_key = f"'{prefix}{key}'"
        rule = next((rule for pattern, rule in rules.items() if re.fullmatch(pattern, key)), None)
        if rule is None:
            # Of the patterns, those alternatives that are plain keys, to suggest the nearest one.
            words = [word for pattern in rules for word in pattern.split("|")]
            suggestion = suggest(key, filter(str.isidentifier, words))
            raise EncoderError(
                f"{path}: the key {quoted_key} is not read here{suggestion or '; remove it'}"
            )
        if isinstance(rule, Mapping):
            is_allowed = value is None or isinstance(value, dict)
            if is_allowed:
                refuse_other_keys(value or {}, rule, path, prefix=f"{prefix}{key}.")
        else:
            is_allowed = rule(value)
        if not is_allowed:
            raise EncoderError(
                f"{path}: {quoted_key} is {format_repr(value)}, which is not read here; remove it"
            )


CONFIG_LIMITS: Mapping[str, int] = {
    r"(.*_)?(n_|num_)?(layers?|blocks|depth)": 1_000,
    # Heads, experts, labels.
    r"(n|num)_.*|.*_(heads|experts|labels|groups)": 1_000_000,
    # Words, positions, widths.
    r"vocab_size|.*_vocab_size|n_positions|.*max_position_embeddings": 100_000_000,
    r".*_size|.*dim|d_.*|.*width": 100_000_000,
}
"""The largest numbers in a configuration, by a pattern of the key; the first that fits counts."""
TRANSFORMERS_CONFIGS = (
    "config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "audio_tokenizer_config.json",
)
"""The files in which transformers describes a model and the preparation of its input.

They have too many different keys for rules; :func:`refuse_config_values` checks their values.
"""
OTHER_FILE_KEYS = (
    "transformers_weights|configuration_files|gguf_file|audio_tokenizer(_name_or_path)?"
)
"""A pattern of the keys in these files that lead to other files."""


def refuse_config_values(config: Mapping[str, Any], path: Path) -> None:
    """Raise an error if a configuration has a value that is not allowed, in its tables too.

    Such values are a number below 0 or too large, attention whose code would be fetched from the
    Hub, and the name of another file.

    Args:
        config: The configuration of a model, as read from a JSON file.
        path: The file, for the message.

    Raises:
        EncoderError: A value is not allowed; the message names the first.
    """
    for key, value in config.items():
        # The end of a message; empty if the value is allowed, or a table.
        problem = _find_problem(key, value)
        if problem:
            raise EncoderError(f"{path}: '{key}' is {format_repr(value)}{problem}")
        # A table under a key for the code of attention has been checked already.
        is_implementation = re.fullmatch(_IMPLEMENTATION_KEYS, key)
        if isinstance(value, dict) and not is_implementation:
            refuse_config_values(value, path)


_IMPLEMENTATION_KEYS = "_?(attn|experts)_implementation"
"""A pattern of the keys that choose the code of attention and of experts."""


def _find_problem(key: str, value: object) -> str:
    """Return why a value of a model's configuration is not allowed, as the end of a message.

    Args:
        key: The key of the value; for a value in a table, without the key of the table.
        value: The value.

    Returns:
        The end of the message, with a comma or semicolon at its beginning. It is empty if the
        value is allowed, or if it is a table, whose values are checked separately.
    """
    if re.fullmatch(_IMPLEMENTATION_KEYS, key):
        # The name of an implementation of attention, or one per part of the model. A name with a
        # slash would be code on the Hub.
        words = value.values() if isinstance(value, dict) else [value]
        is_allowed = all(re.fullmatch(r"\w+|None", str(word)) for word in words)
        return "" if is_allowed else ", which is not run here; remove it"
    # Keys that lead to other files, such as gguf_file.
    if re.fullmatch(OTHER_FILE_KEYS, key) and value is not None:
        return ", which is not read here; remove it"
    if isinstance(value, dict):
        return ""
    if key == "max_seq_length" and value is not None and (type(value) is not int or value < 0):
        return "; give the longest input in tokens"
    if isinstance(value, int | float) and not isinstance(value, bool):
        # The limit of the first pattern that fits the key, such as 1,000 for numbers of layers. If
        # none fits, any number is allowed.
        limits = (limit for pattern, limit in CONFIG_LIMITS.items() if re.fullmatch(pattern, key))
        limit = next(limits, None)
        if limit is not None and not 0 <= value <= limit:
            return f"; what is read is 0 to {limit:,}"
    return ""
