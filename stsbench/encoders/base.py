"""What an encoder is: the seam between everything that embeds sentences and everything that scores.

An encoder has a name, a fingerprint and :meth:`Encoder.encode`. What else it can do, a protocol says; what else it may say of
itself stands in :class:`Facts`, read and checked here and nowhere else. Below them: the kinds of encoder, a registry of what makes one,
and :class:`KnownEncoder`, an encoder under the name that results give it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core.errors import EncoderError
from stsbench.encoders.tokens import TokenIds

FloatArray = npt.NDArray[np.float32]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
NonNegativeFloat = Annotated[float, msgspec.Meta(ge=0)]
"""Parameters of encoders, checked where cards and users give them."""
IndexArray = npt.NDArray[np.int64]
RowFunction = Callable[[FloatArray], FloatArray]
"""From embeddings (n, d) to (n, k), each row by itself."""
KeepEmbeddings = Callable[[IndexArray, FloatArray], None]
"""Takes some rows (m,) of what is asked for, and their embeddings (m, d)."""


@runtime_checkable
class Encoder(Protocol):
    """Sentences in, embeddings out: all that a user's own encoder has to be."""

    @property
    def name(self) -> str:
        """What results call it; a plain attribute does."""

    @property
    def fingerprint(self) -> str | None:
        """Changes if and only if embeddings can change; None: embeddings are never reused."""

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return one embedding a sentence, shape (n, d), float32, in the order given."""


@runtime_checkable
class TokenEncoder(Encoder, Protocol):
    """An encoder that lets the engine plan its batches."""

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence."""

    def embed_tokens(self, tokens: TokenIds, rows: IndexArray) -> FloatArray:
        """Return the embeddings (b, d) of some of the tokenised sentences as one batch."""


class DeviceMemory(NamedTuple):
    """The bytes that a kind of device, as ``NVIDIA H100``, has left for batches, and about how many a token takes."""

    device: str
    free: int
    per_token: int


@runtime_checkable
class DeviceEncoder(TokenEncoder, Protocol):
    """An encoder that may run on a GPU, whose batches the engine then makes as large as is fastest, two under way at a time."""

    def device_memory(self) -> DeviceMemory | None:
        """Return what its device has left; None on a CPU."""


class EmbeddingsDiffer(EncoderError):
    """A server embeds a text in two ways: nothing that it gave is believed, stored or not."""


@runtime_checkable
class ServedEncoder(Encoder, Protocol):
    """An encoder whose embeddings come from a server, some at a time, and may cost money: stored as they come.

    Nothing is computed here, so no sample sentences tell whether another machine or version still embeds alike.
    """

    def embed_into(self, sentences: Sequence[str], keep: KeepEmbeddings) -> None:
        """Pass the embeddings of some rows to ``keep`` as they come, each row once.

        Whatever it raises, what had come is kept, unless it is :class:`EmbeddingsDiffer`.
        """

    def count_tokens(self, sentences: Sequence[str]) -> int:
        """Return how many tokens these sentences have for the server, or nearly."""


@runtime_checkable
class WordEncoder(Encoder, Protocol):
    """An encoder that knows some words and no others; results count the sentences of which it knows none."""

    def unknown(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return those of the sentences that hold no word it knows."""


@runtime_checkable
class FittableEncoder(Protocol):
    """An encoder that is fitted on texts before it embeds: whitening, flow, token removal.

    Which texts, :attr:`Facts.fit` says (:mod:`stsbench.bench.embedder`); where it does not, all
    sentences of each task that it is scored on. Its fingerprint is that of everything else.
    """

    def fit_texts(self, sentences: Sequence[str]) -> Encoder:
        """Return the encoder fitted on these sentences, each counted as often as it comes; those of a pair come one after the other."""


@runtime_checkable
class PostProcessor(FittableEncoder, Protocol):
    """A text-fitted encoder that changes another's embeddings and needs nothing else of the text."""

    @property
    def base(self) -> Encoder:
        """The encoder whose embeddings are changed."""

    def over(self, base: Encoder) -> PostProcessor:
        """Return the same for another base: the bench gives one that takes embeddings from the store."""


class Embeddings(Protocol):
    """A read-only (n, d) view of embeddings that may live on disk, one row a sentence."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of sentences and embedding size."""

    def take(self, indices: IndexArray) -> FloatArray:
        """Return the rows of these indices, shape (len(indices), d)."""

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        """Return all rows as one array."""
        rows = self.take(np.arange(self.shape[0]))
        return rows if dtype is None else rows.astype(dtype, copy=False)


ROWS_AT_ONCE = 4096
"""So many embeddings are in memory at once where they are read in blocks."""
EmbeddingRows = npt.NDArray[np.floating] | Embeddings
"""Embeddings (n, d): an array, or a view of the store."""


def iter_blocks(
    x: EmbeddingRows, start: int = 0, stop: int | None = None
) -> Iterator[npt.NDArray[np.floating]]:
    """The rows of a matrix (n, d) from ``start`` to ``stop``, so many at a time that 100,000 are never in memory together."""
    stop = x.shape[0] if stop is None else stop
    for at in range(start, stop, ROWS_AT_ONCE):
        end = min(at + ROWS_AT_ONCE, stop)
        yield x[at:end] if isinstance(x, np.ndarray) else x.take(np.arange(at, end))


Embed = Callable[[Sequence[str]], Embeddings]
"""Sentences to their embeddings; what evaluators are handed instead of an encoder."""
