"""Tiny encoders of words, their weights written down as a formula, and vectors to go with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from stsbench.core.files import file_sha256
from stsbench.encoders.words.recurrent import BiLstm, GruTable, HalvesConfig, InferSentConfig
from stsbench.encoders.words.words import FastSentConfig, write_word_folder

VECTORS = {
    1: "<s> 0.5 -0.25 1\n</s> -0.5 0.25 0.75\n",
    2: "<p> 0.25 0.5 -1\n</p> -0.75 0.5 0.25\n",
}
COMMON = """\
a 1 0.5 -0.5
cat -1 0.25 0.75
sat 0.5 -1 0.25
on -0.25 -0.5 1
the 0.75 1 -0.25
mat -0.5 0.5 -1
. 0.25 -0.75 0.5
"""
SENTENCES = [
    "the cat sat on the mat .",
    "a cat",
    "unknown words",
    "",
    "a",
    "the mat unknown sat on a cat . the end .",
]
HIDDEN = 2


def waves(shape: tuple[int, ...], phase: float) -> torch.Tensor:
    """Weights as a formula: every test and the official code can make the very same."""
    count = int(torch.tensor(shape).prod())
    return torch.sin(torch.arange(count, dtype=torch.float64) * 1.7 + phase).float().reshape(shape)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def gru_step(weights: Mapping[str, np.ndarray], word: np.ndarray, state: np.ndarray) -> np.ndarray:
    """The released Skip-Thoughts' step in float64: reset after the product, no recurrent bias."""
    h = len(state)
    w, u, b = weights["weight_ih_l0"], weights["weight_hh_l0"], weights["bias_ih_l0"]
    b2 = weights["bias_hh_l0"]
    reset, update = np.split(
        sigmoid(w[: 2 * h] @ word + b[: 2 * h] + u[: 2 * h] @ state + b2[: 2 * h]), 2
    )
    new = np.tanh(w[2 * h :] @ word + b[2 * h :] + reset * (u[2 * h :] @ state + b2[2 * h :]))
    return np.asarray(update * state + (1 - update) * new)


def write_vectors(path: Path, version: int) -> Path:
    path.write_text(VECTORS[version] + COMMON, encoding="utf-8")
    return path


def write_infersent(folder: Path, vectors: Path, version: int = 1) -> Path:
    digest = file_sha256(vectors)
    config = InferSentConfig(
        version=1 if version == 1 else 2,
        word_size=3,
        hidden=HIDDEN,
        vectors=str(vectors),
        vectors_sha256=digest,
    )
    tensors = {
        name: waves(t.shape, i)
        for i, (name, t) in enumerate(BiLstm(3, HIDDEN).state_dict().items())
    }
    write_word_folder(folder, kind="infersent", config=config, tensors=tensors)
    return folder


WORDS = ("<eos>", "UNK", "the", "cat", "sat", "on", "mat", "a", ".")


def write_halves(folder: Path, kind: str) -> Path:
    both: dict[str, Any] = {"word_size": 3, "hidden": 2, "bidirectional": True}
    halves = {
        "skip_thoughts": {"uni": GruTable(word_size=3, hidden=4), "bi": GruTable(**both)},
        "quick_thoughts": {name: GruTable(**both, cell="tensorflow") for name in "fg"},
    }[kind]
    config = HalvesConfig(halves=halves, unknown="UNK", eos="<eos>")
    tensors = {
        name: waves(t.shape, i)
        for i, (name, t) in enumerate(config.make_network(len(WORDS)).state_dict().items())
    }
    write_word_folder(folder, kind=kind, config=config, tensors=tensors, words=WORDS)
    return folder


def write_fastsent(folder: Path) -> Path:
    table = {"source": waves((len(WORDS), 4), 0.3)}
    write_word_folder(
        folder, kind="fastsent", config=FastSentConfig(size=4), tensors=table, words=WORDS
    )
    return folder


MODULES = [
    {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}
]


def write_model2vec(
    folder: Path, bert: Path, *, size: int = 8, quantised: bool = False, **config: Any
) -> Path:
    """Save random vectors with the tokenizer of a checkpoint, as model2vec does."""
    folder.mkdir(parents=True)
    shutil.copy(bert / "tokenizer.json", folder)
    tokens = Tokenizer.from_file(str(bert / "tokenizer.json")).get_vocab_size()
    draw = np.random.default_rng(0)
    tensors: dict[str, Any] = {
        "embeddings": draw.normal(size=(7 if quantised else tokens, size)).astype(np.float32)
    }
    if quantised:
        tensors["mapping"] = draw.integers(0, 7, tokens)
        tensors["weights"] = draw.uniform(0.5, 2, tokens).astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", **config}))
    (folder / "modules.json").write_text(json.dumps(MODULES))
    return folder
