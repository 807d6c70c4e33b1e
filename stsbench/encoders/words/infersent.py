"""InferSent: the maximum over the states of a bidirectional LSTM (Conneau et al. 2017, arXiv 1705.02364).

Both versions that were released are here, with their words around a sentence, their tokenisers
and what their maximum does with padding. Words without a vector are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.encoders.checkpoints.digest_cache import remembered_digest
from stsbench.encoders.devices import check_device, pick_device
from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.seams import FloatArray
from stsbench.encoders.words.folder import CONFIG, WordFolder
from stsbench.encoders.words.tokenisers import libraries, tokeniser
from stsbench.encoders.words.vectors import WordVectors, open_vectors
from stsbench.encoders.words.words import find_vectors
from stsbench.errors import CardError, DataError, EncoderError, did_you_mean
from stsbench.provenance.identity import fingerprint

if TYPE_CHECKING:
    import torch

    from stsbench.encoders.words.recurrent import BiLstm, Padding

CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""
RELEASED_BATCH = 64
PADDINGS = ("zeros", "batch", "masked")


class Release(NamedTuple):
    """What goes with a release of InferSent."""

    bos: str
    eos: str
    padding: Padding
    vectors: str


VERSIONS = {
    1: Release(bos="<s>", eos="</s>", padding="zeros", vectors="glove.840B.300d.txt"),
    2: Release(bos="<p>", eos="</p>", padding="masked", vectors="crawl-300d-2M.vec"),
}


class InferSentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``config.json`` of a saved InferSent."""

    version: Literal[1, 2]
    word_size: int
    hidden: int
    vectors: str
    """The file of word vectors it was trained with; a path only with its hash."""
    vectors_sha256: str = ""
    lowercase: bool = False

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The weights' shapes."""
        gates = {"weight_ih": (self.word_size,), "weight_hh": (self.hidden,), "bias_ih": (), "bias_hh": ()}
        return {
            f"enc_lstm.{name}_l0{end}": (4 * self.hidden, *rest)
            for end in ("", "_reverse")
            for name, rest in gates.items()
        }


class InferSentEncoder:
    """Embeds with a saved InferSent and the word vectors it was trained with, (n, 2 x hidden)."""

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        revision: str = "unpinned",
        vectors: str = "",
        tokens: str = "whitespace",
        padding: Literal["", "zeros", "batch", "masked"] = "",
        device: str = "auto",
    ) -> None:
        """Find the folder and the word vectors.

        Args:
            model: a folder written by a training run or by ``stsbench convert``.
            name: what results call the encoder.
            revision: the Hub commit, where ``model`` is a Hub id.
            vectors: the file of word vectors; default the one that the folder names.
            tokens: ``whitespace`` as SentEval ran it, ``ptb`` (version 1) or ``moses`` (version 2).
            padding: ``zeros`` (default of version 1), ``masked`` (of version 2), or ``batch``: as
                version 1 was released, in batches of 64; nothing is stored then, since a sentence
                depends on its neighbours.
            device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        """
        check_device(device)
        self.name = name or model
        self.folder = WordFolder(model, revision=revision)
        self.revision = self.folder.revision
        self.config = self.folder.config(InferSentConfig)
        self.version = VERSIONS[self.config.version]
        if padding and padding not in PADDINGS:
            raise CardError(
                f"unknown padding '{padding}'{did_you_mean(padding, PADDINGS)}; known: {', '.join(PADDINGS)}"
            )
        self.padding: Padding = padding or self.version.padding
        self.split = tokeniser(tokens, lowercase=self.config.lowercase)
        self.tokens, self.device = tokens, device
        due = self.config.vectors_sha256
        if not (vectors or due) and Path(self.config.vectors).name != self.config.vectors:
            # Who made the folder would have any file of this machine opened.
            raise DataError(
                f"{self.folder.path / CONFIG}: names word vectors in a folder and no sha256 of them; "
                "name the file by --set vectors=FILE"
            )
        found = find_vectors(vectors or self.config.vectors, hub="", hub_file="", revision="unpinned")
        self.vectors_path = found.path
        self.vectors_sha256 = remembered_digest(found.path)
        if not vectors and due and self.vectors_sha256 != due:
            raise DataError(
                f"{found.path}: not the word vectors of {self.folder.path} (sha256 {self.vectors_sha256[:12]}, "
                f"config.json {due[:12]}); name others by --set vectors=FILE if you mean to"
            )

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of all that decides an embedding; None where its neighbours do too."""
        if self.padding == "batch":
            return None
        return fingerprint(
            {
                "kind": "infersent",
                "code": CODE_VERSION,
                "files": self.folder.digests(),
                "vectors": self.vectors_sha256,
                "tokens": self.tokens,
                "padding": self.padding,
            },
            libraries(self.tokens),
        )

    @cached_property
    def vectors(self) -> WordVectors:
        """The opened word vectors."""
        vectors = open_vectors(self.vectors_path, sha256=self.vectors_sha256)
        if vectors.shape[1] != self.config.word_size:
            raise EncoderError(
                f"{self.vectors_path}: vectors of size {vectors.shape[1]}; {self.folder.path} needs "
                f"{self.config.word_size}"
            )
        return vectors

    @cached_property
    def network(self) -> BiLstm:
        """The loaded LSTM."""
        from stsbench.encoders.words.recurrent import BiLstm

        # First the weights, whose shapes are checked: a configuration alone may ask for any memory.
        tensors = self.folder.tensors(self.config.shapes())
        network = BiLstm(self.config.word_size, self.config.hidden)
        network.load_state_dict(tensors)
        return network.eval().to(pick_device(self.device))

    @property
    def device_used(self) -> str | None:
        """The device the LSTM is on; None where it was never loaded."""
        return str(next(self.network.parameters()).device) if "network" in self.__dict__ else None

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d); where not even the sentence's end has a vector, it is the zero vector."""
        import torch

        from stsbench.encoders.words.recurrent import embed_planned, pool_max

        tokens = self._rows(sentences)
        distinct, places = np.unique(tokens.ids, return_inverse=True)
        table = torch.from_numpy(np.pad(self.vectors.take(distinct.astype(np.int64)), ((0, 1), (0, 0))))
        device = next(self.network.parameters()).device

        def embed(ids: npt.NDArray[np.int64], lengths: torch.Tensor) -> torch.Tensor:
            # Padding, -1, is the table's last row.
            return pool_max(self.network(table[torch.from_numpy(ids)].to(device), lengths), self.padding)

        batch = RELEASED_BATCH if self.padding == "batch" else None
        placed = TokenIds(places.astype(np.int32), tokens.offsets)
        return embed_planned(placed, embed, d=2 * self.config.hidden, batch=batch)

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """Return the sentences without a known word, embedded as what stands around every sentence."""
        words = [self.split(sentence) for sentence in sentences]
        known = self._known(words)
        return [s for s, split in zip(sentences, words, strict=True) if not any(w in known for w in split)]

    def _rows(self, sentences: Sequence[str]) -> TokenIds:
        """The rows of each sentence's known words, those around the sentence among them."""
        words = [[self.version.bos, *self.split(sentence), self.version.eos] for sentence in sentences]
        known = self._known(words)
        return TokenIds.from_lists([[known[w] for w in split if w in known] for split in words])

    def _known(self, words: Sequence[Sequence[str]]) -> dict[str, int]:
        listed = sorted({word for split in words for word in split})
        rows = self.vectors.find(listed).tolist()
        return {word: row for word, row in zip(listed, rows, strict=True) if row >= 0}
