"""Any sentence-transformers checkpoint as an encoder, run by that library: Dense, LSTM, CNN, word embeddings and so on.

A checkpoint that is a transformer with one pooling only is better run by our own engine, as
:mod:`stsbench.encoders.described` finds out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.core.errors import CardError, EncoderError, one_line
from stsbench.core.provenance import fingerprint
from stsbench.encoders.backends import TorchBackend, backend_kind
from stsbench.encoders.base import FloatArray, check_sentences
from stsbench.encoders.checkpoint import Checkpoint, locate_checkpoint
from stsbench.encoders.described import digests, named_prompt, read_modules, similarity_notes

CODE_VERSION = 2
"""Raise when a change here can change an embedding: stored ones are then not reused."""
BATCH = 32
_MISSING = re.compile(r"^(\S+) *\| *(?:\x1b\[\d+m)?MISSING", re.MULTILINE)


class SentenceTransformerEncoder:
    """Embeds with a sentence-transformers checkpoint.

    Code of the checkpoint's own is never run. The model is loaded when the first sentence comes;
    the fingerprint needs the files' hashes only.
    """

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        revision: str = "unpinned",
        prompt_name: str | None = None,
        prompt: str = "",
        max_length: int | None = None,
        normalise: bool | None = None,
        dtype: str = "float32",
        device: str = "auto",
        backend: str = "torch",
        file: str = "",
    ) -> None:
        """Find the checkpoint and check every choice against it.

        Args:
            model: a checkpoint folder or a Hub id.
            name: what results call the encoder.
            revision: the Hub commit; ``unpinned`` takes the newest.
            prompt_name: which of the checkpoint's prompts to put before every sentence;
                default the one that the checkpoint names, ``""`` none at all.
            prompt: text put before every sentence, instead of a named prompt.
            max_length: longest input in tokens; default the checkpoint's.
            normalise: scale embeddings to length 1, or not; default as the checkpoint does.
            dtype: ``float32``, ``bfloat16`` or ``float16``.
            device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
            backend: what runs its transformer: ``torch``, ``onnx`` or ``openvino``.
            file: the runtime's file in the transformer's folder; default the usual one where it is there, else one
                that is exported into the cache folder.
        """
        self.name = name or model
        kind = backend_kind(backend, dtype=dtype, device=device)
        if prompt and prompt_name is not None:
            raise CardError("give 'prompt' or 'prompt_name', not both")
        if max_length is not None and max_length < 1:
            raise CardError(f"max_length {max_length} leaves nothing of a sentence")
        self.folder, self.revision = locate_checkpoint(model, revision=revision, also=kind.on_hub(file))
        self.modules = read_modules(self.folder)
        first = self.modules[0]
        if kind is not TorchBackend and not first.kind.endswith(".Transformer"):
            raise CardError(f"backend '{backend}' runs transformers; {self.folder} begins with a {first.kind}")
        self.backend = kind(self.folder / first.path, file=file, dtype=dtype, device=device)
        self.prompt = prompt or named_prompt(self.folder, prompt_name)
        self.max_length, self.normalise = max_length, normalise
        self.device = device

    @property
    def dtype(self) -> str:
        """The type of the network's numbers."""
        return self.backend.precision

    @property
    def notes(self) -> list[str]:
        """What runs the transformer, where that is not torch, and by what else than cosine its files compare."""
        return [*self.backend.notes, *similarity_notes(self.folder)]

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        return fingerprint(
            {
                "kind": "sentence_transformer",
                "code": CODE_VERSION,
                # Named beside the hash too; results made before that was done are found again.
                "library": version("sentence-transformers"),
                "files": digests(self.folder),
                "prompt": self.prompt,
                "max_length": self.max_length,
                "normalise": self.normalise,
                "dtype": self.backend.dtype,
                **self.backend.facts,
            },
            ["sentence-transformers", *self._libraries(), *self.backend.libraries],
        )

    def _libraries(self) -> list[str]:
        """The packages under the library, by the folder of its transformer."""
        found = [checkpoint.libraries() for checkpoint in self._transformers()]
        # Of the library's tokenizers of words one parts text by NLTK.
        return sorted(set(chain.from_iterable(found))) or ["nltk"]

    def _transformers(self) -> list[Checkpoint]:
        folders = [self.folder / module.path for module in self.modules if module.kind.endswith("Transformer")]
        return [Checkpoint(folder=folder, revision=None, weights=()) for folder in folders]

    @cached_property
    def network(self) -> Any:  # noqa: ANN401 - sentence_transformers is not typed for us
        """The loaded model."""
        network = self.backend.library(partial(_load, self.folder), state=digests(self.folder))
        if self.max_length is not None:
            positions = [limit for checkpoint in self._transformers() if (limit := checkpoint.positions())]
            _cut_at(network, self.max_length, positions, self.folder)
        while self.normalise is False and type(network[-1]).__name__ == "Normalize":
            network.pop(-1)
        return network

    @property
    def device_used(self) -> str | None:
        """The device the model is on; None where it was never loaded."""
        return str(self.network.device) if "network" in self.__dict__ else None

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        check_sentences(sentences)
        if not len(sentences):
            return np.zeros((0, self.network.get_embedding_dimension() or 0), dtype=np.float32)
        from stsbench.encoders.transformer.backbone import valid_text

        texts = [valid_text(sentence) for sentence in sentences]
        return self._by_length(texts) if self.minds_padding else self._embed(texts)

    @cached_property
    def minds_padding(self) -> bool:
        """Whether embeddings depend on the longer sentences beside them: those of a CNN over a padding that is not zero, say."""
        from stsbench.encoders.transformer.backbone import padded_alike

        texts = _made_sentences(self.network)
        together = self._embed(texts)
        alone = np.concatenate([self._embed([text]) for text in texts])
        return not padded_alike(alone, together, self.backend.dtype)

    def _by_length(self, texts: Sequence[str]) -> FloatArray:
        """Embeddings (n, d) of texts, each beside those of as many tokens alone."""
        lengths: list[int] = []
        for text in texts:
            mask = self.network.preprocess([text], prompt=self.prompt).get("attention_mask")
            # What does not say how many tokens a text has embeds each text alone.
            lengths.append(int(mask.sum()) if mask is not None else -len(lengths) - 1)
        embeddings = np.zeros((len(texts), self.network.get_embedding_dimension() or 0), dtype=np.float32)
        for length in set(lengths):
            rows = [row for row, found in enumerate(lengths) if found == length]
            embeddings[rows] = self._embed([texts[row] for row in rows])
        return embeddings

    def _embed(self, texts: Sequence[str]) -> FloatArray:
        embeddings = self.network.encode(
            list(texts),
            # Said even when empty: without a word the library would take the checkpoint's default.
            prompt=self.prompt,
            batch_size=BATCH,
            show_progress_bar=False,
            normalize_embeddings=self.normalise is True,
        )
        return np.ascontiguousarray(embeddings, dtype=np.float32)


def _made_sentences(network: Any) -> list[str]:  # noqa: ANN401 - see network
    """Texts of 1 to 13 words that a model knows, and one of 40, for sentence length alone to differ."""
    tokenizer: Any = getattr(network, "tokenizer", None)
    known = sorted(tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else [])
    # Marks of a word's beginning are no part of it.
    words = [word for token in known if (word := token.lstrip("▁Ġ")).isalpha()] or ["a"]
    step = max(1, len(words) // 64)
    return [" ".join(words[place * step % len(words)] for place in range(size)) for size in (*range(1, 14), 40)]


def _load(folder: Path, *, dtype: str, device: str) -> Any:  # noqa: ANN401 - see network
    import torch

    from stsbench.encoders.transformer.backbone import check_vocabulary, quiet

    try:
        with quiet() as said:
            from sentence_transformers import SentenceTransformer

            network = SentenceTransformer(
                str(folder),
                device=device,
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"dtype": getattr(torch, dtype)},
            )
    except Exception as error:  # whatever a broken file makes the library raise
        raise EncoderError(f"{folder}: cannot be loaded: {one_line(error)[:300]}") from error
    lost = [key for line in said for key in _MISSING.findall(line) if "pooler" not in key]
    if lost:
        raise EncoderError(f"{folder}: the weights lack '{lost[0]}', which would then be random")
    tokenizer = getattr(network, "tokenizer", None)
    if hasattr(tokenizer, "all_special_ids"):
        check_vocabulary(tokenizer, folder)
    return network.to(getattr(torch, dtype)).eval()


def _cut_at(network: Any, max_length: int, positions: Sequence[int], folder: Path) -> None:  # noqa: ANN401 - see network
    if min(positions, default=max_length) < max_length:
        raise CardError(f"max_length {max_length}: {folder} has {min(positions)} positions")
    try:
        network.max_seq_length = max_length
    except AttributeError as error:
        raise CardError(f"max_length {max_length}: {folder} reads any length, and cannot cut") from error
