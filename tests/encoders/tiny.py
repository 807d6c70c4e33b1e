"""Transformers of three layers of 16 with random weights, and tokenizers of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from stsbench.encoders.transformer.encoder import TransformerEncoder

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.4,
}
LONGEST = 48
"""Tokens that each of them reads."""
SENTENCES = [
    "a dog runs in the park",
    "",
    "The quick brown fox.",
    "a",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 dog",
    "שלום עולם, مرحبا بالعالم",
    "word " * 300,
    "a dog runs in the park",
    "half an emoji: \ud83d",
    "  spaces\tand\nlines \u2028 ",
    *(f"sentence {'number ' * (i % 7)}{i}" for i in range(20)),
]
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789.,:\"'"


def make_bert(folder: Path) -> Path:
    """BERT: absolute positions, a pooler, [CLS] and [SEP]."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [
        *specials,
        "a",
        "dog",
        "the",
        "means",
        *ALPHABET,
        *(f"##{letter}" for letter in ALPHABET),
    ]
    vocab = {word: i for i, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"])
    )
    named = dict(
        zip(
            ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
            specials,
            strict=True,
        )
    )
    config = BertConfig(vocab_size=len(vocab), max_position_embeddings=LONGEST, **SIZES)
    return save(folder, BertModel, config, tokenizer, **named)


def make_roberta(folder: Path, kind: str = "Roberta") -> Path:
    """RoBERTa: positions that start behind the padding id, bytes as tokens."""
    import transformers
    from tokenizers import processors

    tokenizer, vocab = bytes_tokenizer(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", vocab["</s>"]), ("<s>", vocab["<s>"])
    )
    sizes = {
        "max_position_embeddings": LONGEST + 2,
        "pad_token_id": 1,
        "type_vocab_size": 1,
        **SIZES,
    }
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(vocab), **sizes)
    named = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
    return save(folder, getattr(transformers, f"{kind}Model"), config, tokenizer, **named)


def make_gpt2(folder: Path) -> Path:
    """GPT-2: absolute positions, causal, no special tokens and no padding token."""
    from transformers import GPT2Config, GPT2Model

    tokenizer, vocab = bytes_tokenizer(["<|endoftext|>"])
    sizes = {
        "n_positions": LONGEST,
        "n_embd": 16,
        "n_layer": 3,
        "n_head": 2,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    config = GPT2Config(vocab_size=len(vocab), initializer_range=0.4, **sizes)
    return save(folder, GPT2Model, config, tokenizer, eos_token="<|endoftext|>")


def make_qwen(folder: Path) -> Path:
    """Qwen: rotary positions, causal, an end token after every sentence."""
    from tokenizers import processors
    from transformers import Qwen2Config, Qwen2Model

    tokenizer, vocab = bytes_tokenizer(["<|endoftext|>"])
    end = ("<|endoftext|>", vocab["<|endoftext|>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[end]
    )
    sizes = {
        "max_position_embeddings": LONGEST,
        "num_key_value_heads": 1,
        "pad_token_id": 0,
        **SIZES,
    }
    config = Qwen2Config(vocab_size=len(vocab), **sizes)
    return save(
        folder, Qwen2Model, config, tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )


def bytes_tokenizer(specials: list[str]) -> tuple[Any, dict[str, int]]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    symbols = [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocab = {symbol: i for i, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, vocab


def save(folder: Path, kind: Any, config: Any, tokenizer: Any, **named: str) -> Path:
    from transformers import PreTrainedTokenizerFast

    torch.manual_seed(0)
    kind(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=LONGEST, **named
    ).save_pretrained(folder)
    return folder


MAKES: dict[str, Callable[[Path], Path]] = {
    "bert": make_bert,
    "roberta": make_roberta,
    "gpt2": make_gpt2,
    "qwen": make_qwen,
    # An architecture without torch's fused attention.
    "mpnet": partial(make_roberta, kind="MPNet"),
}


ENCODERS: dict[str, dict[str, Any]] = {
    "bert": {"pooling": "mean"},
    "bert left": {"pooling": "cls_before_pooler", "padding_side": "left"},
    "bert head": {"pooling": "cls", "normalise": True},
    "roberta": {"pooling": "mean(1,-1)"},
    "roberta left": {"pooling": "last_token", "padding_side": "left"},
    "gpt2": {"pooling": "mean"},
    "gpt2 left": {"pooling": "last_token", "padding_side": "left"},
    "qwen left": {"pooling": "last_token", "padding_side": "left", "prompt": "query: "},
    "mpnet left": {"pooling": "mean", "padding_side": "left"},
}


def make_encoder(tiny: Mapping[str, Path], name: str, **changes: Any) -> TransformerEncoder:
    """Return one of the encoders, with other parameters if they are given."""
    return TransformerEncoder(
        str(tiny[name.split()[0]]), **{"device": "cpu", **ENCODERS[name], **changes}
    )
