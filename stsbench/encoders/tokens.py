"""Token ids of many sentences, and the batches in which they are embedded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class TokenIds:
    """The token ids of n sentences in two arrays; lists would take ten times the memory."""

    ids: npt.NDArray[np.int32]
    """The ids of all sentences, one after the other, (total,)."""
    offsets: npt.NDArray[np.int64]
    """The index in ``ids`` of each sentence's first token, and then their length, (n + 1,)."""
    spans: npt.NDArray[np.int64] | None = None
    """The tokens of each sentence to pool, (n, 2): the first, and the one after the last.

    None if all tokens are pooled.
    """

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> TokenIds:
        """Join one list of ids per sentence."""
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        ids = np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=int(lengths.sum()))
        return cls(ids, np.concatenate([[0], np.cumsum(lengths)]))

    @classmethod
    def join(cls, parts: Sequence[TokenIds]) -> TokenIds:
        """Join parts in their order; either all have spans, or none."""
        lengths = np.concatenate([[0], *(part.lengths for part in parts)]).astype(np.int64)
        spans = [part.spans for part in parts if part.spans is not None]
        ids = np.concatenate([np.empty(0, np.int32), *(part.ids for part in parts)])
        return cls(ids, np.cumsum(lengths), np.concatenate(spans) if spans else None)

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of tokens of each sentence, (n,)."""
        return np.diff(self.offsets)

    def pad(
        self, rows: npt.NDArray[np.int64], *, pad_token: int, pad_left: bool = False
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the token ids of some sentences as a matrix, and its attention mask.

        Args:
            rows: The indices of the sentences, (b,).
            pad_token: The id of the padding token, which fills up the shorter sentences.
            pad_left: Put the padding on the left, not on the right.

        Returns:
            The ids and the mask, both int64 (b, t), with t the length of the longest of these
            sentences. The mask is 1 at tokens and 0 at padding.
        """
        # The number of tokens of each sentence, as a column, (b, 1).
        lengths = self.lengths[rows][:, None]
        width = int(lengths.max())
        columns = np.arange(width)
        # The column of each sentence's first token, (b, 1).
        first_columns = width - lengths if pad_left else np.zeros_like(lengths)
        # The number of each token in its sentence, from 0, (b, t); out of range at padding.
        positions = columns - first_columns
        is_token = (positions >= 0) & (positions < lengths)
        # The index of each token in `self.ids`, which holds the ids of all sentences one after
        # the other; `self.offsets` has the index of each sentence's first token. At padding it
        # is 0, as any valid index would do.
        sources = np.where(is_token, self.offsets[rows][:, None] + positions, 0)
        ids = np.where(is_token, self.ids[sources], pad_token)
        return ids.astype(np.int64), is_token.astype(np.int64)


def plan_batches(lengths: npt.NDArray[np.int64], *, budget: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield batches of sentences with hardly any padding, the longest sentences first.

    The same lengths in the same order give the same batches, whatever the store holds.

    Args:
        lengths: The number of tokens of each sentence, (n,).
        budget: The maximum number of tokens in a batch, padding included.

    Yields:
        The indices of the sentences of each batch.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        # The longest sentence of a batch is its first; the others are padded to its length.
        width = max(int(lengths[order[start]]), 1)
        stop = start + max(budget // width, 1)
        batch = order[start:stop]
        # The sentences are sorted by -length, so those of the full width come first.
        n_longest = int(np.searchsorted(-lengths[batch], -width, side="right"))
        # If sentences of one length fill most of a batch, they are a batch: no padding, no mask.
        if 0.75 * len(batch) <= n_longest < len(batch):
            batch = batch[:n_longest]
        yield batch
        start += len(batch)
