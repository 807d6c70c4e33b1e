"""Small checkpoints with random weights, saved by sentence-transformers itself."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

SENTENCES = [
    "a dog runs",
    "",
    "😀 שלום עולם dog",
    "the cat sat on the mat , and the dog ran",
    "http://x.org/dog.jpg",
    "dog cat " * 400,
    "A DOG runs",
    *(f"the dog ran {i} times" for i in range(30)),
]
WORDS = [
    "a",
    "the",
    "dog",
    "cat",
    "runs",
    "ran",
    "sat",
    "on",
    "mat",
    "and",
    "times",
    ",",
    "##s",
    "q",
    ":",
]
MAKES = {"dense": 4, "two poolings": 32, "words": 4, "lstm": 12, "cnn": 18, "prompted": 16}


def save_bert(
    folder: Path,
    kind: str = "BertModel",
    words: Sequence[str] = WORDS,
    *,
    positions: int = 64,
    layers: int = 2,
    initializer_range: float = 0.5,
) -> Path:
    """Save a BERT with layers of 16, random weights and a vocabulary of its own."""
    import transformers

    vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])}
    transformers.BertTokenizer(vocab=vocab, model_max_length=positions).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocab),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=positions,
        initializer_range=initializer_range,
    )
    getattr(transformers, kind)(config).save_pretrained(folder)
    return folder


def save(folder: Path, *modules: Any, **options: Any) -> Path:
    from sentence_transformers import SentenceTransformer

    safe = options.pop("safe_serialization", True)
    model = SentenceTransformer(modules=list(modules), device="cpu", **options)
    # Its card would ask the Hub about the model it is based on.
    model.save(str(folder), create_model_card=False, safe_serialization=safe)
    return folder


def word_embeddings(padding: float = 0.0) -> Any:
    from sentence_transformers.sentence_transformer.modules import WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    tokenizer = WhitespaceTokenizer(["PADDING", *WORDS], stop_words=[","])
    weights = np.random.default_rng(0).normal(size=(len(WORDS) + 1, 8)).astype(np.float32)
    weights[0] = padding
    return WordEmbeddings(tokenizer, weights)


def save_all(root: Path, bert: Path) -> Mapping[str, Path]:
    """Save one checkpoint of each make, by what is special in it."""
    from sentence_transformers.sentence_transformer import modules as m

    torch.manual_seed(0)
    prompts = {"query": "q : ", "plain": "the "}
    return {
        "dense": save(
            root / "dense",
            m.Transformer(str(bert)),
            m.Pooling(16, "mean"),
            m.Dense(16, 4),
            m.Normalize(),
        ),
        "two poolings": save(
            root / "two", m.Transformer(str(bert)), m.Pooling(16, ("cls", "max")), prompts=prompts
        ),
        "words": save(root / "words", word_embeddings(), m.Pooling(8, "mean"), m.Dense(8, 4)),
        "lstm": save(root / "lstm", word_embeddings(), m.LSTM(8, 6), m.Pooling(12, "max")),
        "cnn": save(
            root / "cnn",
            word_embeddings(),
            m.CNN(8, 6),
            m.Pooling(18, "max"),
            safe_serialization=False,
        ),
        "prompted": save(
            root / "prompted",
            m.Transformer(str(bert)),
            m.Pooling(16, "mean", include_prompt=False),
            prompts=prompts,
            default_prompt_name="query",
        ),
    }


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
