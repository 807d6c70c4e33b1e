"""model2vec's static encoders: the mean of one vector a token, as that library takes it.

sentence-transformers opens the same folders and embeds otherwise where a sentence has an unknown token, which it counts, or
more than 512 tokens, which it does not cut.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.core.errors import CardError, EncoderError, translate_errors
from stsbench.core.provenance import fingerprint
from stsbench.encoders.base import FloatArray, IndexArray
from stsbench.encoders.checkpoint import cached_digest, locate_checkpoint, read_json
from stsbench.encoders.metadata import valid_text

CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""
CONFIG, WEIGHTS, TOKENIZER = FILES = ("config.json", "model.safetensors", "tokenizer.json")
LONGEST = 512
"""Tokens that are read where the folder says nothing of it."""


def is_model2vec(folder: Path) -> bool:
    """Whether a folder says that it is one of model2vec's."""
    config = folder / CONFIG
    return config.is_file() and read_json(config).get("model_type") == "model2vec"


class Model2VecEncoder:
    """Embeds with a folder of model2vec."""

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        revision: str = "unpinned",
        max_length: int | None = None,
        normalise: bool | None = None,
    ) -> None:
        """Find the folder; longest input in tokens and length 1 are by default as it says, else 512 and not.

        Raises SourceError: it cannot be had; EncoderError: it is no such folder.
        """
        self.name = name or model
        self.folder, self.revision, self.revision_asked = locate_checkpoint(
            model, revision=revision
        )
        for file in FILES:
            if not (self.folder / file).is_file():
                raise EncoderError(f"{self.folder}: no {file}; is it a folder of model2vec?")
        config = read_json(self.folder / CONFIG)
        length = config.get("max_length", LONGEST) if max_length is None else max_length
        if length is not None and (not isinstance(length, int) or length < 1):
            raise CardError(f"max_length {length} leaves nothing of a sentence")
        self.max_length = length
        self.normalise = config.get("normalize") is True if normalise is None else normalise

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        files = {name: cached_digest(self.folder / name) for name in FILES}
        own = {"max_length": self.max_length, "normalise": self.normalise}
        return fingerprint(
            {"kind": "model2vec", "code": CODE_VERSION, "files": files, **own}, ["tokenizers"]
        )

    @cached_property
    def _tokenizer(self) -> tuple[Any, int | None]:
        """The tokenizer, and the id of its token for what is unknown, None where there is none."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER))
        tokenizer.no_padding()
        if self.max_length is not None:
            tokenizer.enable_truncation(self.max_length)
        model = json.loads(tokenizer.to_str())["model"]
        named = model.get("unk_token")
        return tokenizer, model.get("unk_id") if named is None else tokenizer.token_to_id(named)

    @cached_property
    def _vectors(self) -> FloatArray:
        """One vector a token, (v, d): the mapping and the weights of a quantised vocabulary are in it."""
        from safetensors.numpy import load_file

        with translate_errors(f"{self.folder}: cannot be read", EncoderError):
            tensors, tokens = load_file(self.folder / WEIGHTS), self._tokenizer[0].get_vocab_size()
            vectors: FloatArray = tensors["embeddings"].astype(np.float32)
            if "mapping" in tensors:
                vectors = vectors[tensors["mapping"]]
            if "weights" in tensors:
                vectors = vectors * tensors["weights"].astype(np.float32)[:, None]
            if vectors.ndim != 2 or len(vectors) < tokens:
                raise ValueError(f"{len(vectors)} vectors for {tokens} tokens")
        return vectors

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d); a sentence without a known token is a zero vector."""
        vectors, (tokenizer, unknown) = self._vectors, self._tokenizer
        embeddings = np.zeros((len(sentences), vectors.shape[1]), dtype=np.float32)
        texts = [valid_text(sentence) for sentence in sentences]
        if self.max_length is not None:
            # As the library, which cuts characters too.
            longest = self.max_length * int(
                np.median([len(token) for token in tokenizer.get_vocab()])
            )
            texts = [text[: longest or None] for text in texts]
        for row, found in enumerate(tokenizer.encode_batch_fast(texts, add_special_tokens=False)):
            ids: IndexArray = np.array([one for one in found.ids if one != unknown], dtype=np.int64)
            if len(ids):
                embeddings[row] = vectors[ids].mean(axis=0)
        if self.normalise:
            embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True) + np.float32(1e-32)
        return embeddings
