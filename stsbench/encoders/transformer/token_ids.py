"""Token ids of many texts, from the tokenizers library itself where transformers runs on it.

Transformers' own call makes Python objects of offsets, types and words that no embedding needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from transformers import PreTrainedTokenizerBase, TokenizersBackend
from transformers.tokenization_utils_base import TruncationStrategy
from transformers.utils import PaddingStrategy

from stsbench.encoders.metadata import replace_lone_surrogates
from stsbench.encoders.tokens import TokenIds

TOKENIZE_AT_ONCE = 8192
"""The number of texts that are tokenised at a time."""
PARTS_AT_ONCE = 2
"""While the ids of some texts become arrays in Python, the library tokenises the next ones."""


def make_token_ids(
    tokenizer: Any,  # noqa: ANN401 - transformers is untyped
    texts: Sequence[str],
    *,
    max_length: int | None = None,
    add_special_tokens: bool = True,
) -> TokenIds:
    """Return the token ids of each text: those that a call of the tokenizer returns.

    If the tokenizer is one of the Rust library ``tokenizers``, that library is called directly,
    which is faster.

    Args:
        tokenizer: A tokenizer of transformers.
        texts: The texts. Half a surrogate pair, which is no valid character, is replaced.
        max_length: The most tokens of a text, special ones included; a longer text is cut. None to
            cut none.
        add_special_tokens: Add the special tokens of a sentence.
    """
    parts = [
        texts[start : start + TOKENIZE_AT_ONCE] for start in range(0, len(texts), TOKENIZE_AT_ONCE)
    ]
    if not uses_library_call(tokenizer):
        return TokenIds.join(
            [_call_tokenizer(tokenizer, part, max_length, add_special_tokens) for part in parts]
        )
    library_tokenizer = tokenizer.backend_tokenizer
    truncation = TruncationStrategy.DO_NOT_TRUNCATE
    if max_length is not None:
        truncation = TruncationStrategy.LONGEST_FIRST
    # The settings that transformers' own call makes. They are made before there are threads,
    # because they cannot be changed while a thread reads them.
    tokenizer.set_truncation_and_padding(
        padding_strategy=PaddingStrategy.DO_NOT_PAD,
        truncation_strategy=truncation,
        max_length=max_length,
        stride=0,
        pad_to_multiple_of=None,
        padding_side=None,
    )
    # If true, a special token's name in a text, such as [SEP], is cut into pieces like other text.
    library_tokenizer.encode_special_tokens = tokenizer.split_special_tokens

    def encode(part: Sequence[str]) -> TokenIds:
        """Return the token ids of some of the texts."""
        encodings = library_tokenizer.encode_batch_fast(
            list(map(replace_lone_surrogates, part)), add_special_tokens=add_special_tokens
        )
        return TokenIds.from_lists([encoding.ids for encoding in encodings])

    if len(parts) < 2:
        return TokenIds.join(list(map(encode, parts)))
    # While the ids of one part become arrays here, the library tokenises the next part.
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        return TokenIds.join(list(pool.map(encode, parts)))


def uses_library_call(tokenizer: Any) -> bool:  # noqa: ANN401 - transformers is untyped
    """Return whether a call of a tokenizer does nothing but call the Rust library ``tokenizers``.

    It is false for tokenizers written in Python, and for those whose class replaces one of the
    methods of transformers that such a call runs.
    """
    tokenizer_class = type(tokenizer)
    return (
        isinstance(tokenizer, TokenizersBackend)
        and tokenizer_class.__call__ is PreTrainedTokenizerBase.__call__
        and tokenizer_class._encode_plus is TokenizersBackend._encode_plus
        and tokenizer_class.set_truncation_and_padding
        is TokenizersBackend.set_truncation_and_padding
        # Translation models' tokenizers exchange their special tokens in the call.
        and not hasattr(tokenizer, "_switch_to_input_mode")
    )


def _call_tokenizer(
    tokenizer: Any,  # noqa: ANN401 - transformers is untyped
    texts: Sequence[str],
    max_length: int | None,
    add_special_tokens: bool,
) -> TokenIds:
    """Return the token ids of texts by transformers' own call.

    Args:
        tokenizer: A tokenizer of transformers.
        texts: The texts. Half a surrogate pair, which is no valid character, is replaced.
        max_length: The most tokens of a text, special ones included; a longer text is cut. None to
            cut none.
        add_special_tokens: Add the special tokens of a sentence.
    """
    encoded = tokenizer(
        list(map(replace_lone_surrogates, texts)),
        add_special_tokens=add_special_tokens,
        truncation=max_length is not None,
        max_length=max_length,
        padding=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    return TokenIds.from_lists(encoded["input_ids"])
