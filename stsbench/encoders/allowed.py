"""What the JSON files of a checkpoint may say: the one list of allowed keys and values.

Libraries pass many keys on to their loaders. There a key may name a file outside the folder, other
weights than those that are hashed, or a kernel of the Hub. So each file is held against this list
before a library reads it: a key that is not in it is refused by its name.
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
"""What a value must be, or rules for the keys of a table, by a pattern of the key; the first that fits counts."""


def matches_json(pattern: str) -> Callable[[Any], bool]:
    """Return a rule: the value, written as JSON, matches a pattern as a whole."""
    return lambda value: re.fullmatch(pattern, json.dumps(value)) is not None


def allow_any(value: object) -> bool:
    """Allow any value, for keys that no library takes for a place."""
    return True


FLAG = matches_json("null|true|false")
NUMBER = matches_json(r"null|-?[\d.]+([eE][+-]?\d+)?")
WORD = matches_json(r'null|true|false|-?[\d.]+([eE][+-]?\d+)?|"[\w-]*"')
NULL = matches_json("null")


def names_nothing(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Allow what can name nothing: no text, and nothing that holds some."""
    return not isinstance(value, str | list | dict) or not value


def is_no_path(value: Any) -> bool:  # noqa: ANN401 - JSON
    """Allow words and tokens in a table or list, and a path that is only left over from where a file was made."""
    return not isinstance(value, str) or not os.path.exists(value)  # noqa: PTH110 - Path raises for long names


MODEL_ARGUMENTS: Rules = {
    "attn_implementation": matches_json(r'null|"\w+"'),
    "(torch_)?dtype": matches_json(r'null|"(torch\.)?\w+"'),
    # Without it the library would read a .bin file beside the weights that are hashed.
    "use_safetensors": matches_json("null|true"),
    # The library itself leaves trust_remote_code out.
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
    # Looked at by check_config.
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
"""Of all versions of sentence-transformers."""

TOKENIZER: Rules = {
    # Tokens, and texts that no library opens.
    r"\w+_tokens?|\w+_tokens_decoder|\w+_token_(box|sent)|never_split|tags_dict": allow_any,
    "name_or_path|special_tokens_map_file|full_tokenizer_file|cache_dir|auto_map": allow_any,
    "(tokenizer|processor)_class|(model|tokenizer|vocab|image_processor)_type|backend": allow_any,
    r"chat_\w+|response_\w+|model_input_names|model_max_length|max_model_input_sizes": allow_any,
    r"\w+_side|\w+_strategy|padding|truncation|errors|task|wordpieces_prefix": allow_any,
    r"(\w+_)?lang(uage)?s?|(lang|language)_codes|lang2id|id2lang|(word|subword)_tokenizer_type": allow_any,
    "phonemizer_backend|replace_word_delimiter_char|token_type_ids_pattern": allow_any,
    r"(transformers_)?version|_commit_hash|revision|device_map|(torch_)?dtype": allow_any,
    # Newer versions of transformers take the folder's own file instead, older ones this.
    r"\w+_file|\w+_spm|vocab|merges|entity_vocab": is_no_path,
    r"(mecab|sudachi)_kwargs": {
        r"mecab_dic|sudachi_(split_mode|dict_type)": WORD,
        r"\w+": names_nothing,
    },
    r"\w+_kwargs": {r"\w+": names_nothing},
    ".*": names_nothing,
}
"""Of a tokenizer: what its class takes, which may be anything that names nothing."""

OWN_CONFIGS = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
"""Where sentence-transformers looks for the configuration of a transformer, in this order."""
TRANSFORMER: Mapping[str, Rules] = {
    **dict.fromkeys(OWN_CONFIGS, SENTENCE_BERT),
    **dict.fromkeys(("tokenizer_config.json", "special_tokens_map.json"), TOKENIZER),
}


def _only(keys: str) -> Rules:
    return {keys: allow_any}


VOCABULARY = "vocab|word_weights|unknown_word_weight"
MODULES: Mapping[str, Mapping[str, Rules]] = {
    "Transformer": TRANSFORMER,
    "CLIPModel": TRANSFORMER,
    "Pooling": {
        "config.json": _only(r"(word_)?embedding_dimension|pooling_mode(_\w+)?|include_prompt")
    },
    "Dense": {
        "config.json": _only(
            "in_features|out_features|bias|activation_function|module_input_name|module_output_name|use_residual"
        )
    },
    "LSTM": {
        "lstm_config.json": _only(
            "(word_)?embedding_dimension|hidden_dim|num_layers|dropout|bidirectional"
        )
    },
    "CNN": {
        "cnn_config.json": _only(
            "in_(word_)?embedding_dimension|out_channels|kernel_sizes|stride_sizes"
        )
    },
    "WordEmbeddings": {
        "wordembedding_config.json": _only("tokenizer_class|update_embeddings|max_seq_length")
    },
    "WhitespaceTokenizer": {
        "whitespacetokenizer_config.json": _only("vocab|stop_words|do_lower_case")
    },
    "PhraseTokenizer": {
        "phrasetokenizer_config.json": _only(
            "vocab|stop_words|do_lower_case|ngram_separator|max_ngram_length"
        )
    },
    # It does not say that remote code is not wanted: transformers would ask at the terminal.
    "TransformersTokenizerWrapper": dict.fromkeys(
        ("tokenizer_config.json", "special_tokens_map.json"), {"auto_map": NULL, **TOKENIZER}
    ),
    "WordWeights": {"config.json": _only(VOCABULARY)},
    "BoW": {"config.json": _only(f"{VOCABULARY}|cumulative_term_frequency")},
    "WeightedLayerPooling": {
        "config.json": _only("(word_)?embedding_dimension|layer_start|num_hidden_layers")
    },
    "Dropout": {"config.json": _only("dropout")},
    "LayerNorm": {"config.json": _only("dimension")},
    # Of these the library reads no other keys.
    "Normalize": {},
    "Router": {},
    "Asym": {},
    "StaticEmbedding": {},
}
"""The modules of a sentence encoder, by their class, and what their files may say."""


def check_keys(values: Mapping[str, Any], rules: Rules, path: Path, prefix: str = "") -> None:
    """Refuse keys and values that rules do not allow; raises EncoderError, which names the first.

    ``prefix`` stands before the names of keys: those of the tables that they are in.
    """
    for key, value in values.items():
        name = f"'{prefix}{key}'"
        rule = next((rule for pattern, rule in rules.items() if re.fullmatch(pattern, key)), None)
        if rule is None:
            words = [word for pattern in rules for word in pattern.split("|")]
            near = suggest(key, filter(str.isidentifier, words))
            raise EncoderError(f"{path}: the key {name} is not read here{near or '; remove it'}")
        if not isinstance(rule, Mapping):
            allowed = rule(value)
        elif allowed := value is None or isinstance(value, dict):
            check_keys(value or {}, rule, path, f"{prefix}{key}.")
        if not allowed:
            raise EncoderError(
                f"{path}: {name} is {format_repr(value)}, which is not read here; remove it"
            )


CONFIG_LIMITS: Mapping[str, int] = {
    r"(.*_)?(n_|num_)?(layers?|blocks|depth)": 1_000,
    # Heads, experts, labels.
    r"(n|num)_.*|.*_(heads|experts|labels|groups)": 1_000_000,
    # Words, positions, widths.
    r"vocab_size|.*_vocab_size|n_positions|.*max_position_embeddings|.*_size|.*dim|d_.*|.*width": 100_000_000,
}
"""How much a configuration may count of anything, by a pattern of its key, the first that fits."""
MODEL_CONFIGS = (
    "config.json",
    "processor_config.json",
    "preprocessor_config.json",
    "audio_tokenizer_config.json",
)
"""Where a model and what prepares its input are described, each by keys of its own."""
OTHER_FILE_KEYS = (
    "transformers_weights|configuration_files|gguf_file|audio_tokenizer(_name_or_path)?"
)
"""The keys of these that lead to other files."""


def check_config(config: Mapping[str, Any], path: Path) -> None:
    """Refuse what a configuration must not say, also in its tables; raises EncoderError.

    That is a count below 0 or too large, attention whose code is fetched from the Hub, and other files.
    """
    for key, value in config.items():
        if re.fullmatch("_?(attn|experts)_implementation", key):
            words = value.values() if isinstance(value, dict) else [value]
            if not all(re.fullmatch(r"\w+|None", str(word)) for word in words):
                raise EncoderError(
                    f"{path}: '{key}' is {format_repr(value)}, which is not run here; remove it"
                )
        elif re.fullmatch(OTHER_FILE_KEYS, key) and value is not None:
            raise EncoderError(
                f"{path}: '{key}' is {format_repr(value)}, which is not read here; remove it"
            )
        elif isinstance(value, dict):
            check_config(value, path)
        elif (
            key == "max_seq_length" and value is not None and (type(value) is not int or value < 0)
        ):
            raise EncoderError(
                f"{path}: '{key}' is {format_repr(value)}; give the longest input in tokens"
            )
        elif isinstance(value, int | float) and not isinstance(value, bool):
            most = next(
                (most for pattern, most in CONFIG_LIMITS.items() if re.fullmatch(pattern, key)),
                None,
            )
            if most is not None and not 0 <= value <= most:
                raise EncoderError(
                    f"{path}: '{key}' is {format_repr(value)}; what is read is 0 to {most:,}"
                )
