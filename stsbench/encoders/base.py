"""The interface between what embeds sentences and what scores embeddings.

An encoder has a name, a fingerprint and :meth:`Encoder.encode`. The protocols here describe what
else it may be able to do. Its further attributes are those of
:class:`stsbench.encoders.metadata.EncoderMetadata`, which are read and checked only there.
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
# Parameters of encoders, checked when a card or a user passes them.
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
NonNegativeFloat = Annotated[float, msgspec.Meta(ge=0)]
IndexArray = npt.NDArray[np.int64]
RowFunction = Callable[[FloatArray], FloatArray]
"""A function from embeddings (n, d) to (n, k) that transforms each row independently."""
KeepEmbeddings = Callable[[IndexArray, FloatArray], None]
"""A function that stores embeddings (m, d) of some rows (m,) of the request."""


@runtime_checkable
class Encoder(Protocol):
    """An object that turns sentences into embeddings: all that a user's own encoder needs."""

    @property
    def name(self) -> str:
        """Its name in results; a plain attribute is enough."""

    @property
    def fingerprint(self) -> str | None:
        """A text that changes if and only if embeddings can change.

        None if embeddings must never be reused.
        """

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return one embedding per sentence, shape (n, d), float32, in the same order."""


@runtime_checkable
class TokenEncoder(Encoder, Protocol):
    """An encoder that lets the engine plan its batches."""

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence."""

    def embed_tokens(self, tokens: TokenIds, rows: IndexArray) -> FloatArray:
        """Return the embeddings (b, d) of some of the tokenised sentences as one batch."""


class DeviceMemory(NamedTuple):
    """The memory of a device that is left for batches."""

    device: str
    """The kind of device, for example ``NVIDIA H100``."""
    free: int
    """The free memory in bytes."""
    per_token: int
    """About how many bytes a token of a batch takes."""


@runtime_checkable
class DeviceEncoder(TokenEncoder, Protocol):
    """An encoder that may run on a GPU.

    The engine makes its batches as large as is fastest, and computes two at a time.
    """

    def device_memory(self) -> DeviceMemory | None:
        """Return the memory of its device that is left for batches; None on a CPU."""


@runtime_checkable
class ThreadedEncoder(TokenEncoder, Protocol):
    """An encoder that may embed on threads of torch, and then embeds in several threads at once."""

    def processor_threads(self) -> int:
        """Return how many threads of torch embed here; 1 if no threads of torch do so."""


class EmbeddingsDiffer(EncoderError):
    """A server has embedded a text in two ways, so none of its embeddings is reliable."""


@runtime_checkable
class ServedEncoder(Encoder, Protocol):
    """An encoder whose embeddings come from a server in parts, and may cost money.

    They are stored as they come. Nothing is computed here, so no probe sentences can show whether
    another machine or version still embeds in the same way.
    """

    def embed_into(self, sentences: Sequence[str], keep: KeepEmbeddings) -> None:
        """Pass the embeddings of some rows to ``keep`` as they come, each row once.

        If it raises, the embeddings that had come are stored, unless the error is
        :class:`EmbeddingsDiffer`.
        """

    def count_tokens(self, sentences: Sequence[str]) -> int:
        """Return about how many tokens these sentences have for the server."""


@runtime_checkable
class FixedTextsEncoder(Encoder, Protocol):
    """An encoder that has embeddings of some sentences only, such as those of a file.

    Nothing is computed here, so its embeddings are not stored again.
    """

    def missing_texts(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return the distinct sentences of these that it has no embedding of."""

    def require_texts(self, sentences: Sequence[str]) -> None:
        """Raise EncoderError if it has no embedding of some of these sentences."""


@runtime_checkable
class WordEncoder(Encoder, Protocol):
    """An encoder with a fixed list of words.

    Results count the sentences that have no word of the list.
    """

    def unknown(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return those of the sentences that have no word of the list."""


@runtime_checkable
class FittableEncoder(Protocol):
    """An encoder that is fitted on texts before it embeds: whitening, flow, token removal.

    It is fitted on the texts that its attribute ``fit`` describes; by default on all sentences of
    each task that it is scored on. Its fingerprint does not depend on these texts.
    """

    def fit_texts(self, sentences: Sequence[str]) -> Encoder:
        """Return the encoder fitted on these sentences.

        Each sentence counts as often as it occurs, and those of a pair are consecutive.
        """


@runtime_checkable
class PostProcessor(FittableEncoder, Protocol):
    """A fittable encoder that transforms another's embeddings and uses nothing else of the text."""

    @property
    def base(self) -> Encoder:
        """The encoder whose embeddings are transformed."""

    def over(self, base: Encoder) -> PostProcessor:
        """Return the same post-processor for another base.

        A run passes a base that takes its embeddings from the store.
        """


class Embeddings(Protocol):
    """A read-only (n, d) view of embeddings that may be on disk, one row per sentence."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of sentences and the size of an embedding."""

    def take(self, indices: IndexArray) -> FloatArray:
        """Return the rows of these indices, shape (len(indices), d)."""

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        """Return all rows as one array."""
        rows = self.take(np.arange(self.shape[0]))
        return rows if dtype is None else rows.astype(dtype, copy=False)


ROWS_AT_ONCE = 4096
"""The number of embeddings that are in memory at a time if they are read in blocks."""
EmbeddingRows = npt.NDArray[np.floating] | Embeddings
"""Embeddings (n, d): an array, or a view of the store."""


def iter_blocks(
    x: EmbeddingRows, start: int = 0, stop: int | None = None
) -> Iterator[npt.NDArray[np.floating]]:
    """Yield the rows of a matrix (n, d) in blocks, so that not all are in memory at once.

    Args:
        x: The matrix: an array, or a view of stored embeddings whose ``take`` reads rows.
        start: The first row.
        stop: The row after the last; None means n.

    Yields:
        Consecutive rows, (b, d), with b at most ``ROWS_AT_ONCE``.
    """
    stop = x.shape[0] if stop is None else stop
    for block_start in range(start, stop, ROWS_AT_ONCE):
        block_stop = min(block_start + ROWS_AT_ONCE, stop)
        if isinstance(x, np.ndarray):
            yield x[block_start:block_stop]
        else:
            yield x.take(np.arange(block_start, block_stop))


Embed = Callable[[Sequence[str]], Embeddings]
"""A function from sentences to their embeddings; evaluators get it instead of an encoder."""
