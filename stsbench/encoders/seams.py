"""What an encoder is: the seam between everything that embeds sentences and everything that scores.

An encoder has a name, a fingerprint and :meth:`Encoder.encode`. What else it can do, a protocol says; what else it
may tell of itself stands in :class:`Facts`, which :mod:`stsbench.encoders.facts` reads and checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from stsbench.encoders.engine.tokens import TokenIds

FloatArray = npt.NDArray[np.float32]
IndexArray = npt.NDArray[np.int64]
KeepRows = Callable[[IndexArray, FloatArray], None]
"""Takes some rows (m,) of what is asked for, and their embeddings (m, d)."""


@runtime_checkable
class Encoder(Protocol):
    """Sentences in, embeddings out: all that a user's own encoder has to be."""

    @property
    def name(self) -> str:
        """What results call it; a plain attribute does."""
        ...

    @property
    def fingerprint(self) -> str | None:
        """Changes if and only if embeddings can change; None: embeddings are never reused."""
        ...

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return one embedding a sentence, shape (n, d), float32, in the order given."""
        ...


@runtime_checkable
class TokenEncoder(Encoder, Protocol):
    """An encoder that lets the engine plan its batches."""

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence."""
        ...

    def embed_tokens(self, tokens: TokenIds, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Return the embeddings (b, d) of some of the tokenised sentences as one batch."""
        ...


class DeviceMemory(NamedTuple):
    """What a device with a memory of its own has left for batches."""

    device: str
    """What kind it is, as ``NVIDIA H100``."""
    free: int
    """Bytes."""
    per_token: int
    """Bytes that a token of a batch takes, or nearly."""


@runtime_checkable
class DeviceEncoder(TokenEncoder, Protocol):
    """An encoder that may run on a GPU, whose batches the engine then makes as large as is fastest, two under way at a time."""

    def device_memory(self) -> DeviceMemory | None:
        """Return what its device has left; None on a CPU."""
        ...


@runtime_checkable
class ServedEncoder(Encoder, Protocol):
    """An encoder whose embeddings come from a server, some at a time, and may cost money: each is stored when it comes.

    Nothing is computed here, so no sample sentences tell whether another machine or version still embeds alike.
    """

    def embed_into(self, sentences: Sequence[str], keep: KeepRows) -> None:
        """Hand on the embeddings of some rows as they come, each row once; whatever it raises, what had come is kept."""
        ...

    def count_tokens(self, sentences: Sequence[str]) -> int:
        """Return how many tokens these sentences have for the server, or nearly."""
        ...


@runtime_checkable
class WordEncoder(Encoder, Protocol):
    """An encoder that knows some words and no others; results count the sentences of which it knows none."""

    def unknown(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return those of the sentences that hold no word it knows."""
        ...


@runtime_checkable
class TextFitted(Protocol):
    """An encoder that is fitted on texts before it embeds: whitening, flow, token removal.

    Which texts, :attr:`Facts.fit` says (:mod:`stsbench.bench.fit_texts`); where it does not, all
    sentences of each task that it is scored on. Its fingerprint is that of everything else.
    """

    def fit_texts(self, sentences: Sequence[str]) -> Encoder:
        """Return the encoder fitted on these sentences, each counted as often as it comes.

        Where the texts are pairs, the two sentences of a pair come one after the other.
        """
        ...


@runtime_checkable
class PostProcessor(TextFitted, Protocol):
    """A text-fitted encoder that changes another's embeddings and needs nothing else of the text."""

    @property
    def base(self) -> Encoder:
        """The encoder whose embeddings are changed."""
        ...

    def over(self, base: Encoder) -> PostProcessor:
        """Return the same for another base: the bench gives one that takes embeddings from the store."""
        ...


class Embeddings(Protocol):
    """A read-only (n, d) view of embeddings that may live on disk, one row a sentence."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of sentences and embedding size."""
        ...

    def take(self, indices: npt.NDArray[np.int64]) -> FloatArray:
        """Return the rows of these indices, shape (len(indices), d)."""
        ...

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[np.float32]:
        """Return all rows as one array."""
        ...


ROWS = 4096
"""So many embeddings are in memory at once where they are read in blocks."""
EmbeddingRows = npt.NDArray[np.floating] | Embeddings
"""Embeddings (n, d): an array, or a view of the store."""


def blocks(x: EmbeddingRows, start: int = 0, stop: int | None = None) -> Iterator[npt.NDArray[np.floating]]:
    """The rows of a matrix (n, d) from ``start`` to ``stop``, so many at a time that 100,000 are never in memory together."""
    stop = x.shape[0] if stop is None else stop
    for at in range(start, stop, ROWS):
        end = min(at + ROWS, stop)
        yield x[at:end] if isinstance(x, np.ndarray) else x.take(np.arange(at, end))


Embed = Callable[[Sequence[str]], Embeddings]
"""Sentences to their embeddings; what evaluators are handed instead of an encoder."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What an encoder may tell of itself, each by an attribute of this name; None where it does not.

    Results carry it, and nothing is computed by it.
    """

    revision: str | None = None
    """The commit its checkpoint was resolved to, where that came from the Hub."""
    train_seed: int | None = None
    """The seed it was trained or fitted with: results of several seeds are averaged as one encoder."""
    dtype: str | None = None
    """The type of the numbers it computes in, as ``bfloat16``."""
    device: str | None = None
    """The device it was asked to run on, as ``auto`` or ``cuda:1``."""
    device_used: str | None = None
    """The device that its model is on; None as long as it is not loaded."""
    fit: str | None = None
    """Which texts it is fitted on, of one that is :class:`TextFitted`; a method of this name tells nothing."""
