"""model2vec's static encoders: the mean of one vector per token, as that library computes it.

sentence-transformers opens the same folders. It embeds otherwise a sentence with an unknown token,
which it counts, or with more than 512 tokens, which it does not cut.
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
from stsbench.encoders.cached_files import cached_file_sha256, read_json
from stsbench.encoders.checkpoint import locate_checkpoint
from stsbench.encoders.metadata import check_sentences, replace_lone_surrogates

CODE_VERSION = 1
"""To be raised with a change here that can change an embedding: stored ones are not reused then."""
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
FILES = (CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE)
DEFAULT_LENGTH = 512
"""The maximum number of tokens if the folder sets none."""


def is_model2vec(folder: Path) -> bool:
    """Return whether the configuration in a folder is one of model2vec's."""
    path = folder / CONFIG_FILE
    return path.is_file() and read_json(path).get("model_type") == "model2vec"


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
        """Find the folder of the model, and read its configuration; no weights are read yet.

        Args:
            model: A path or a Hub id.
            name: The name of the encoder; empty for that of the model.
            revision: The commit, branch or tag on the Hub; ``unpinned`` is the main branch.
            max_length: The maximum number of tokens. None for ``max_length`` in the folder's
                ``config.json``: if that is null, texts are not cut; if it is missing, 512.
            normalise: Scale embeddings to length 1; None to do so if ``normalize`` is true in the
                folder's ``config.json``.

        Raises:
            SourceError: The folder is not available.
            EncoderError: It lacks ``config.json``, ``model.safetensors`` or ``tokenizer.json``.
            CardError: ``max_length``, given or the folder's, is below 1 or no integer.
        """
        self.name = name or model
        # The commit of the files, and the revision that was asked for; None for a local folder.
        self.folder, self.revision, self.revision_asked = locate_checkpoint(
            model, revision=revision
        )
        for file in FILES:
            if not (self.folder / file).is_file():
                raise EncoderError(f"{self.folder}: no {file}; is it a folder of model2vec?")
        config = read_json(self.folder / CONFIG_FILE)
        if max_length is None:
            max_length = config.get("max_length", DEFAULT_LENGTH)
        if max_length is not None and (not isinstance(max_length, int) or max_length < 1):
            raise CardError(f"max_length {max_length} leaves nothing of a sentence")
        self.max_length = max_length
        self.normalise = config.get("normalize") is True if normalise is None else normalise

    @cached_property
    def fingerprint(self) -> str:
        """The hash of everything that can change an embedding, with the version of tokenizers.

        ``CODE_VERSION`` is raised by hand with a change of the code that changes embeddings.
        ``FILES`` are the configuration, the weights and the tokenizer.
        """
        fields = {
            "kind": "model2vec",
            "code": CODE_VERSION,
            "files": {name: cached_file_sha256(self.folder / name) for name in FILES},
            "max_length": self.max_length,
            "normalise": self.normalise,
        }
        return fingerprint(fields, ["tokenizers"])

    @cached_property
    def _tokenizer(self) -> Any:  # noqa: ANN401 - tokenizers is not imported with the module
        """The folder's tokenizer, loaded at the first access.

        It does not pad, and cuts a text after ``self.max_length`` tokens if that is not None.
        """
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER_FILE))
        tokenizer.no_padding()
        if self.max_length is not None:
            tokenizer.enable_truncation(self.max_length)
        return tokenizer

    @cached_property
    def _unknown_id(self) -> int | None:
        """The id of the token that stands for text not in the vocabulary; None if there is none."""
        # Some kinds of tokenizers name the token ("unk_token"), others its id ("unk_id").
        model = json.loads(self._tokenizer.to_str())["model"]
        unknown_token = model.get("unk_token")
        token_id: int | None = model.get("unk_id")
        if unknown_token is not None:
            token_id = self._tokenizer.token_to_id(unknown_token)
        return token_id

    @cached_property
    def _vectors(self) -> FloatArray:
        """The vector of each of v tokens, (v, d).

        A folder may have fewer vectors and a ``mapping`` from tokens to vectors, and a weight for
        each token. Both are applied here.

        Raises:
            EncoderError: The file of the vectors cannot be read, or has too few of them.
        """
        from safetensors.numpy import load_file

        # Whatever is raised here becomes an EncoderError with this message.
        with translate_errors(f"{self.folder}: cannot be read", EncoderError):
            tensors = load_file(self.folder / WEIGHTS_FILE)
            n_tokens = self._tokenizer.get_vocab_size()
            # One row per token, or per value of ``mapping``: (rows, d).
            vectors: FloatArray = tensors["embeddings"].astype(np.float32)
            if "mapping" in tensors:
                vectors = vectors[tensors["mapping"]]
            if "weights" in tensors:
                vectors = vectors * tensors["weights"].astype(np.float32)[:, None]
            if vectors.ndim != 2 or len(vectors) < n_tokens:
                raise ValueError(f"{len(vectors)} vectors for {n_tokens} tokens")
        return vectors

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d): the mean of the vectors of each sentence's tokens.

        Tokens for unknown text are omitted. A sentence without other tokens is a zero vector.

        Raises:
            EncoderError: The sentences are no list of texts.
        """
        check_sentences(sentences)
        vectors = self._vectors
        tokenizer = self._tokenizer
        unknown_id = self._unknown_id
        embeddings = np.zeros((len(sentences), vectors.shape[1]), dtype=np.float32)
        texts = [replace_lone_surrogates(sentence) for sentence in sentences]
        if self.max_length is not None:
            # As in model2vec, a text is first cut by its number of characters: the maximum number
            # of tokens times the median length of a token in the vocabulary.
            token_length = int(np.median([len(token) for token in tokenizer.get_vocab()]))
            max_characters = self.max_length * token_length
            if max_characters:  # 0 if the median length is 0
                texts = [text[:max_characters] for text in texts]
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        for row, encoding in enumerate(encodings):
            known_ids = [token_id for token_id in encoding.ids if token_id != unknown_id]
            ids: IndexArray = np.array(known_ids, dtype=np.int64)
            if len(ids):
                embeddings[row] = vectors[ids].mean(axis=0)
        if self.normalise:
            # The small number is model2vec's own, and keeps zero vectors zero.
            embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True) + np.float32(1e-32)
        return embeddings
