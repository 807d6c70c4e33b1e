"""FastSent: the sum of a sentence's source word vectors (Hill et al. 2016, arXiv 1602.03483)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from stsbench.encoders.seams import FloatArray
from stsbench.encoders.words.folder import WordFolder
from stsbench.encoders.words.tokenisers import libraries, tokeniser
from stsbench.encoders.words.words import CHUNK, sum_vectors
from stsbench.provenance.identity import fingerprint

if TYPE_CHECKING:
    import torch

CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""


class FastSentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``config.json`` of a saved FastSent."""

    size: int
    lowercase: bool = False


class FastSentEncoder:
    """Embeds with the sum, or the mean, of source vectors; a sentence without a known word is the zero vector.

    Cosine does not see the difference between sum and mean; a probe does.
    """

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        revision: str = "unpinned",
        mean: bool = False,
        tokens: str = "whitespace",
    ) -> None:
        """Find the folder.

        Args:
            model: a folder written by a training run.
            name: what results call the encoder.
            revision: the Hub commit, where ``model`` is a Hub id.
            mean: the mean of the word vectors instead of their sum.
            tokens: ``whitespace`` for text that is tokenised already, else ``ptb``.
        """
        self.name = name or model
        self.folder = WordFolder(model, revision=revision)
        self.revision = self.folder.revision
        self.config = self.folder.config(FastSentConfig)
        self.split = tokeniser(tokens, lowercase=self.config.lowercase)
        self.mean, self.tokens = mean, tokens

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        files = self.folder.digests()
        facts = {"kind": "fastsent", "code": CODE_VERSION, "files": files, "mean": self.mean, "tokens": self.tokens}
        return fingerprint(facts, libraries(self.tokens))

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Each word's row; of a doubled word the first."""
        return {word: row for row, word in reversed(list(enumerate(self.folder.words())))}

    @cached_property
    def table(self) -> torch.Tensor:
        """The source vectors, (words, d)."""
        return self.folder.tensors({"source": (len(self.folder.words()), self.config.size)})["source"]

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        table = self.table.numpy()
        embeddings = np.zeros((len(sentences), self.config.size), dtype=np.float32)
        for start in range(0, len(sentences), CHUNK):
            bags = [
                [self.vocabulary[word] for word in self.split(sentence) if word in self.vocabulary]
                for sentence in sentences[start : start + CHUNK]
            ]
            sums = sum_vectors(bags, lambda rows: table[rows])
            lengths = np.array([[max(len(bag), 1)] for bag in bags])
            embeddings[start : start + len(bags)] = sums / lengths if self.mean else sums
        return embeddings

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """Return the sentences without a known word, whose embeddings are zero."""
        return [s for s in sentences if not any(word in self.vocabulary for word in self.split(s))]
