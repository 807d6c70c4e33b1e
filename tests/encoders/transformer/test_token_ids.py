"""Token ids from the tokenizers library are those of transformers' own call, for every kind of tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from stsbench.encoders.metadata import replace_lone_surrogates
from stsbench.encoders.transformer import token_ids
from stsbench.encoders.transformer.token_ids import make_token_ids
from tests.encoders.tiny import ALPHABET, MAKES, SENTENCES

SPECIALS = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]


def unigram() -> Any:
    """As of T5 and XLM-R: pieces of a probability each, with a mark for a blank."""
    pieces = [*SPECIALS, "\u2581", "\u2581a", "\u2581dog", *ALPHABET]
    tokenizer = Tokenizer(
        models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], unk_id=3)
    )
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return wrapped(tokenizer)


def words() -> Any:
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate([*SPECIALS, "a", "dog"])}, "<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return wrapped(tokenizer)


def wrapped(tokenizer: Any) -> Any:
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", mask_token="<mask>"
    )


def cut_on_the_left() -> Any:
    tokenizer = unigram()
    tokenizer.truncation_side = "left"
    return tokenizer


def with_settings() -> Any:
    """As saved by other programs: the file itself cuts and pads."""
    tokenizer = unigram()
    tokenizer.backend_tokenizer.enable_truncation(5)
    tokenizer.backend_tokenizer.enable_padding(length=20)
    return tokenizer


def special_text() -> Any:
    """Special tokens in a text are read as text."""
    tokenizer = unigram()
    tokenizer.split_special_tokens = True
    return tokenizer


class CallsOtherwise(transformers.PreTrainedTokenizerFast):  # type: ignore[misc]
    """A class that changes the call."""

    def _encode_plus(self, text: Any, **options: Any) -> Any:
        return super()._encode_plus([f"a {one}" for one in text], **options)


def calls_otherwise() -> Any:
    return CallsOtherwise(tokenizer_object=unigram().backend_tokenizer, pad_token="<pad>")


def bert_class() -> Any:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", *ALPHABET]
    return transformers.BertTokenizer(vocab={word: i for i, word in enumerate(vocabulary)})


KINDS: dict[str, tuple[Callable[[], Any], bool]] = {
    "unigram": (unigram, True),
    "words": (words, True),
    "BertTokenizer": (bert_class, True),
    "cut on the left": (cut_on_the_left, True),
    "its own settings": (with_settings, True),
    "special tokens as text": (special_text, True),
    "another call": (calls_otherwise, False),
    "written in Python": (transformers.ByT5Tokenizer, False),
}
"""Each kind, and whether the library is called for it."""


def other_ids(tokenizer: Any) -> list[Any]:
    """Return the settings by which ids are not those of transformers' own call."""
    texts = [*SENTENCES, "<mask> in </s> text", "x<pad>"]
    differing = []
    for length in (None, 7, 16):
        for specials in (True, False):
            expected = tokenizer(
                [replace_lone_surrogates(text) for text in texts],
                add_special_tokens=specials,
                truncation=length is not None,
                max_length=length,
                padding=False,
                verbose=False,
            )["input_ids"]
            tokens = make_token_ids(
                tokenizer, texts, max_length=length, add_special_tokens=specials
            )
            parts = [
                tokens.ids[a:b].tolist()
                for a, b in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)
            ]
            if parts != expected:
                differing.append((length, specials))
    return differing


@pytest.mark.parametrize("at_once", [7, 8192])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_transformers(monkeypatch, kind, at_once):
    monkeypatch.setattr(token_ids, "TOKENIZE_AT_ONCE", at_once)
    make, is_library = KINDS[kind]
    tokenizer = make()
    assert token_ids.uses_library_call(tokenizer) == is_library
    assert other_ids(tokenizer) == []


@pytest.mark.parametrize("kind", MAKES)
def test_ids_of_checkpoints_are_those_of_transformers(tmp_path: Path, kind):
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(MAKES[kind](tmp_path / "made")))
    assert token_ids.uses_library_call(tokenizer)
    assert other_ids(tokenizer) == []


def test_no_texts_have_no_ids():
    assert len(make_token_ids(unigram(), [])) == 0
