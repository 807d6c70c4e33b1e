"""Small checkpoints with random weights, saved by the libraries that read them."""

import json
import shutil
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


def write_saved_model(
    tensorflow: Any, folder: Path, *, form: str = "call", scale: float = 1.0
) -> Path:
    """A SavedModel in a form of the releases: callable, with a dict, or by its signature."""

    class Tiny(tensorflow.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = tensorflow.Variable(
                scale * np.sin(np.arange(64 * 8)).reshape(64, 8), dtype="float32"
            )

        def embed(self, text: Any) -> Any:
            words = tensorflow.strings.split(text)
            rows = tensorflow.strings.to_hash_bucket_fast(words, 64)
            return tensorflow.reduce_sum(tensorflow.gather(self.table, rows), axis=1)

    model = Tiny()
    signature = [tensorflow.TensorSpec([None], tensorflow.string)]
    forms = {
        "dict": lambda text: {"outputs": model.embed(text)},
        "odd": lambda text: {"a": text, "b": text},
    }
    function = tensorflow.function(forms.get(form, model.embed), input_signature=signature)
    if form == "signature":
        default = tensorflow.function(
            lambda text: {"default": model.embed(text)}, input_signature=signature
        )
        tensorflow.saved_model.save(model, str(folder), signatures={"default": default})
    else:
        model.__call__ = function
        tensorflow.saved_model.save(model, str(folder))
    return folder


def write_plain(
    bert: Path,
    folder: Path,
    *,
    pooling: Mapping[str, Any],
    own: Mapping[str, Any],
    normalise: bool,
    prompt: str,
    at: str,
    side: str = "right",
) -> Path:
    """Write a checkpoint as the library's versions before 5.4 did."""
    shutil.copytree(bert, folder / at)
    kinds = [
        ("Transformer", at),
        ("Pooling", "1_Pooling"),
        *([("Normalize", "2_Normalize")] if normalise else []),
    ]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / at / "sentence_bert_config.json").write_text(json.dumps(own))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if prompt:
        config = {"prompts": {"sts": prompt}, "default_prompt_name": "sts"}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    change(folder / at / "tokenizer_config.json", padding_side=side)
    return folder
